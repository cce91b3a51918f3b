"""Gowin: the matrix array's cells and sums, block RAM of the scratchpads, what the flow says."""

import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from amaranth.lib import wiring

from accelc.boards.board import Family
from accelc.boards.build.family import Resource, Target
from accelc.boards.build.flows import flow_for
from accelc.boards.build.tools import YOSYS, find_tool
from accelc.boards.primitives.arrays import mac_array, simulated_array
from accelc.boards.primitives.gowin_mac import GowinMacArray
from accelc.boards.registry import find
from accelc.hw.scratchpad import AccScratchpad, InpScratchpad, WgtScratchpad
from accelc.hw.sequential.compute import Compute
from accelc.hw.verilog import TOP, component_rtlil, without_empty_contents
from accelc.isa.config import PRESETS, AccelConfig

BOARDS = ("tang-nano-20k", "tang-nano-9k")
FLOW = flow_for(Family.GOWIN)
CASES = {
    "1x4x4": PRESETS["1x4x4"],
    "1x4x8": PRESETS["1x4x8"],
    "batch": dataclasses.replace(PRESETS["1x4x4"], batch=2),
    "without window": dataclasses.replace(PRESETS["1x4x4"], window=False),
}
needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make"
)


@pytest.mark.rtl
@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_same_sums_as_the_portable_array(case: str, compare_arrays: Callable[..., str]) -> None:
    config = CASES[case]
    design = compare_arrays(Family.GOWIN, config, None)
    assert design.count(" MULT9X9 ") == config.macs_per_cycle


def mapped_cells(component: wiring.Component, folder: Path) -> dict[str, int]:
    """Cells of a component by type, synthesised as the flow would inside the core."""
    rtlil = without_empty_contents(component_rtlil(component))
    # the flow knows memories by the unit of the core they are in
    prepare = [re.sub(r"\*\.core\.\S*?/", f"{TOP}*/", line) for line in FLOW.prepare()]
    synthesis = [line.replace("-top top", f"-top {TOP} -noiopads") for line in FLOW.synthesis()]
    script = [
        "read_rtlil x.il",
        *prepare,
        *synthesis,
        "check -assert",
        "tee -q -o x.json stat -json",
    ]
    (folder / "x.il").write_text(rtlil)
    (folder / "x.ys").write_text("\n".join(script))
    yosys = find_tool(YOSYS)
    subprocess.run([yosys.command, "-q", "-s", "x.ys"], cwd=folder, check=True, capture_output=True)
    return json.loads((folder / "x.json").read_text())["design"]["num_cells_by_type"]


def test_a_multiplier_each_and_no_product_in_flip_flops(tmp_path: Path) -> None:
    config = dataclasses.replace(PRESETS["1x4x4"], window=False)
    cells = mapped_cells(GowinMacArray(config), tmp_path)
    assert cells["MULT9X9"] == 16
    used = FLOW.synthesised(cells)
    # two tiles of weights, a row, adders of two levels, and few flags
    sums = 4 * (2 * 17 + 18)
    registers = 2 * 16 * 8 + 4 * 8 + sums
    assert registers <= used[Resource.FF] <= registers + 8
    # a bit of a sum each, and what decodes the shadow's row
    assert used[Resource.LUT] <= sums + 8


def test_scratchpads_are_block_rams_without_logic_for_collisions(tmp_path: Path) -> None:
    config = dataclasses.replace(PRESETS["1x8x8"], vector_lanes=1)
    parts: dict[Callable[[AccelConfig], wiring.Component], tuple[int, int]] = {
        # bits, flip-flops of the ports
        InpScratchpad: (config.inp_rows * config.inp_row_bytes * 8, 80),
        WgtScratchpad: (config.wgt_rows * config.wgt_row_bytes * 8, 80),
        # once for each of its readers
        AccScratchpad: (2 * config.acc_rows * config.block_out * 32, 340),
    }
    for number, (part, (bits, registers)) in enumerate(parts.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        cells = mapped_cells(part(config), folder)
        used = FLOW.synthesised(cells)
        # a block RAM is 512 rows of 36 bits at most: shallow, wide memories leave rows unused
        assert -(-bits // 18432) <= used[Resource.RAM] <= max(16, -(-bits // 16384))
        assert used[Resource.FF] <= registers
        assert not any(cell.startswith("RAM16") for cell in cells)


def test_sequential_scratchpads_and_products(tmp_path: Path) -> None:
    config = find("tang-nano-9k").config
    cells = mapped_cells(Compute(config, array=mac_array(Family.GOWIN, config)), tmp_path)
    used = FLOW.synthesised(cells)
    assert cells["MULT9X9"] == config.macs_per_cycle
    assert not any(cell.startswith("RAM16") for cell in cells)
    # a port of a block RAM has 36 bits: inputs, a pair of weight rows, accumulators, vectors,
    # words of parameters, results
    assert used[Resource.RAM] == 1 + 2 + 4 + 1 + 1 + 1
    # without logic for collisions, which takes a flip-flop for every bit of a port
    assert used[Resource.FF] < 1450


def test_the_array_for_simulation_is_as_deep() -> None:
    config: AccelConfig = PRESETS["1x8x8"]
    mine, other = mac_array(Family.GOWIN, config), simulated_array(Family.GOWIN, config)
    assert mine is not None and other is not None
    assert mine.latency == other.latency == 1 + 2 + 3


@pytest.mark.parametrize("name", BOARDS)
def test_fits_by_its_multipliers(name: str) -> None:
    board = find(name)
    available = FLOW.available(board.platform())
    assert board.config.macs_per_cycle <= available[Resource.DSP][1]


@pytest.mark.parametrize("name", BOARDS)
def test_device_of_place_and_route_and_packing(name: str) -> None:
    board = find(name)
    target = Target(platform=board.platform(), clock_mhz=54, seed=3, extra=("--extra",))
    place, pack = FLOW.place_and_route(target), FLOW.pack(target)
    assert place.arguments[:2] == ("--device", target.platform.part)
    assert place.arguments[-1] == "--extra"
    family = pack.arguments[pack.arguments.index("-d") + 1]
    assert f"family={family}" in place.arguments
    assert target.platform.family.replace("R", "").startswith(family[:6])
