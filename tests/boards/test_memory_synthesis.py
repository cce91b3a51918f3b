"""What synthesis makes of the memory backends: RAM blocks, and no more logic than allowed."""

import json
from pathlib import Path

import pytest
from amaranth.lib import wiring

from accelc.boards.build.tools import YOSYS, find_tool
from accelc.boards.definitions.ulx3s import ULX3S_85F
from accelc.boards.memory.block import BlockMemory
from accelc.boards.memory.sdram import SdramMemory
from accelc.boards.memory.spram import SpramMemory
from accelc.hw.verilog import component_rtlil
from accelc.isa.config import PRESETS
from accelc.isa.errors import ToolError


@pytest.fixture
def tool():
    try:
        return find_tool(YOSYS)
    except ToolError as error:
        pytest.skip(str(error))


def cells(tool, folder: Path, memory: wiring.Component, command: str, before: str = "") -> dict:
    """Cells by type of a synthesised component; memories have no contents."""
    (folder / "top.il").write_text(component_rtlil(memory))
    script = (
        "read_rtlil top.il; delete t:$meminit_v2; "
        f"{before} {command} -top accel; tee -q -o cells.json stat -json"
    )
    assert tool.run(["-q", "-p", script], folder, "yosys.log") == 0, (
        folder / "yosys.log"
    ).read_text()[-2000:]
    statistics = json.loads((folder / "cells.json").read_text())
    return statistics["design"]["num_cells_by_type"]


def test_spram(tool, tmp_path: Path) -> None:
    used = cells(tool, tmp_path, SpramMemory(PRESETS["1x4x4"], 128 << 10), "synth_ice40 -device u")
    assert used["SB_SPRAM256KA"] == 4
    assert "SB_RAM40_4K" not in used
    # two addresses are kept, so that a register and one choice are all there is before the RAMs
    assert used["SB_LUT4"] <= 145
    assert sum(number for name, number in used.items() if name.startswith("SB_DFF")) <= 44


def test_block_ram(tool, tmp_path: Path) -> None:
    # Reads during writes are undefined; said so, Yosys adds no logic for them.
    undefined = "setparam -set COLLISION_X_MASK 1'1 t:$memrd_v2;"
    memory = BlockMemory(PRESETS["1x8x8"], 64 << 10)
    used = cells(tool, tmp_path, memory, "synth_ecp5", undefined)
    assert used["DP16KD"] == 32
    assert used["LUT4"] <= 150


def test_sdram_controller(tool, tmp_path: Path) -> None:
    board = ULX3S_85F
    assert board.memory.sdram is not None
    memory = SdramMemory(board.config, board.memory.sdram, board.clock_hz, io_cycles=2)
    used = cells(tool, tmp_path, memory, "synth_ecp5")
    assert "DP16KD" not in used
    assert used["LUT4"] <= 650
    assert used["TRELLIS_FF"] <= 350
    assert used["TRELLIS_DPR16X4"] <= 45
