"""Whole boards, synthesised: multipliers are DSP blocks, scratchpads are block RAMs.

Minutes for each board the first time; from the cache afterwards.
"""

import json
import re
from collections import defaultdict
from dataclasses import dataclass

import pytest

from accelc.boards.board import Board, Family, OnChipKind
from accelc.boards.build.board import board_top
from accelc.boards.build.cost import scratchpad_rams
from accelc.boards.build.family import TOP, Resource
from accelc.boards.build.flows import flow_for
from accelc.boards.build.job import Job, find_tools
from accelc.boards.build.path import source_name
from accelc.boards.build.synthesis import Synthesis, synthesise
from accelc.boards.registry import BOARDS
from accelc.isa.errors import ToolError

pytestmark = pytest.mark.fpga

#: Cells by family: multipliers of the matrix array, block RAMs, RAM made of LUTs.
_DSP = {Family.ICE40: "SB_MAC16", Family.ECP5: "MULT18X18D", Family.GOWIN: "MULT9X9"}
_RAM = {Family.ICE40: r"SB_RAM40_4K", Family.ECP5: r"DP16KD", Family.GOWIN: r"(SDP|DP|SP)(X9)?B?$"}
_LUT_RAM = {Family.ICE40: r"$^", Family.ECP5: r"TRELLIS_DPR16X4", Family.GOWIN: r"RAM16"}
#: Products of one multiplier.
_PRODUCTS = {Family.ICE40: 2, Family.ECP5: 1, Family.GOWIN: 1}


@dataclass(frozen=True)
class Case:
    board: Board
    synthesis: Synthesis
    #: Names in the gateware by type of cell.
    names: dict[str, list[str]]

    def of(self, pattern: str) -> list[str]:
        return [n for kind, names in self.names.items() if re.match(pattern, kind) for n in names]


@pytest.fixture(scope="module", params=BOARDS)
def case(request: pytest.FixtureRequest) -> Case:
    board = BOARDS[request.param]
    try:
        job = Job(tools=find_tools(flow_for(board.family).tools))
    except ToolError as error:
        pytest.skip(str(error))
    synthesis = synthesise(board, board_top(board), job)
    cells = json.loads((synthesis.folder / f"{TOP}.json").read_text())["modules"][TOP]["cells"]
    names: dict[str, list[str]] = defaultdict(list)
    for name, cell in cells.items():
        names[cell["type"]].append(source_name(name) or name)
    return Case(board, synthesis, names)


def test_multipliers_are_dsp_blocks(case: Case) -> None:
    board, config = case.board, case.board.config
    products = min(config.macs_per_cycle, board.options.get("dsps", config.macs_per_cycle))
    array = [name for name in case.of(_DSP[board.family]) if ".array" in name]
    assert len(array) * _PRODUCTS[board.family] >= products
    if board.family is Family.ICE40:
        assert case.synthesis.used[Resource.DSP] == 8


def test_scratchpads_are_block_rams(case: Case) -> None:
    family, config = case.board.family, case.board.config
    rams = [name for name in case.of(_RAM[family]) if name.startswith("core.")]
    pads = ["inp", "wgt", "acc", "out", "prm"]
    for pad in pads:
        assert any(pad in name for name in rams), (pad, sorted(set(rams)))
    assert len(rams) >= scratchpad_rams(family, config) - (family is Family.ICE40) * 4
    in_luts = {name for name in case.of(_LUT_RAM[family]) if "_scratchpad" in name}
    assert in_luts <= {"core.vin_scratchpad.memory"}  # a few rows are not worth a block
    # nor flip-flops: the largest flat memory there is would be as many as a small scratchpad's;
    # what a DSP block has for its operands and product, a multiplier of LUTs needs
    multipliers = config.macs_per_cycle - case.board.options.get("dsps", config.macs_per_cycle)
    assert case.synthesis.used[Resource.FF] < 25_000 + 32 * multipliers


def test_memory_is_what_the_board_says(case: Case) -> None:
    on_chip, family = case.board.memory.on_chip, case.board.family
    if on_chip is None:
        assert not [name for name in case.of(_RAM[family]) if ".on_chip" in name]
        return
    if on_chip.kind is OnChipKind.SPRAM:
        assert case.synthesis.used[Resource.SPRAM] == on_chip.nbytes // (32 << 10)
        return
    blocks = [name for name in case.of(_RAM[family]) if ".on_chip" in name]
    assert len(blocks) == on_chip.nbytes // (2 << 10)


def test_the_board_fits(case: Case) -> None:
    available = case.synthesis.flow.available(case.synthesis.netlist.platform)
    for resource, used in case.synthesis.used.items():
        cell, limit = available[resource]
        assert used <= limit, (resource, cell, used, limit)
