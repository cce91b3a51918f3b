"""Every memory backend under AXI traffic, and the SDRAM controller against its chip's rules."""

import dataclasses
import json
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from amaranth.lib import wiring
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator

from accelc.boards.memory.block import BlockMemory
from accelc.boards.memory.chip_model import with_chip
from accelc.boards.memory.chips import SdramChip
from accelc.boards.memory.sdram import SdramMemory
from accelc.boards.memory.spram import SpramMemory
from accelc.hw.verilog import component_rtlil, to_verilog
from accelc.isa.config import AccelConfig
from accelc.sim.verilator import TOP, find_verilator, make_flags

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.rtl,
    pytest.mark.skipif(
        not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make"
    ),
]

#: A small fast chip of each width, so that every boundary is near: 256 KB and 128 KB.
CHIP16 = SdramChip(
    name="test 16",
    source="MT48LC16M16A2-75 with fewer rows",
    data_bits=16,
    bank_bits=2,
    row_bits=11,
    column_bits=9,
    min_period_ns={2: 10.0, 3: 7.5},
    trc_ns=66.0,
    trcd_ns=20.0,
    trp_ns=20.0,
    tras_min_ns=44.0,
    tras_max_ns=120_000.0,
    twr_ns=15.0,
    trrd_ns=15.0,
    trfc_ns=66.0,
    refresh_ms=16.0,
)
CHIP32 = dataclasses.replace(CHIP16, name="test 32", data_bits=32, column_bits=8)


@dataclass(frozen=True)
class Case:
    """A backend and what it must do."""

    width: int
    nbytes: int
    #: Cycles of 1024 beats in order: the beats and what cannot be hidden.
    write: int
    read: int
    burst: int = 32
    sdram: SdramChip | None = None
    spram: bool = False
    clock_hz: int = 100_000_000
    io_cycles: int = 0
    masks: bool = True
    rounds: int = 12

    @property
    def config(self) -> AccelConfig:
        return AccelConfig(
            block_in=16,
            block_out=16,
            bus_bytes=self.width,
            max_burst_beats=self.burst,
        )

    @property
    def memory(self) -> wiring.Component:
        if self.sdram is not None:
            return SdramMemory(
                self.config,
                self.sdram,
                self.clock_hz,
                io_cycles=self.io_cycles,
                masks=self.masks,
            )
        return (SpramMemory if self.spram else BlockMemory)(self.config, self.nbytes)


CASES = {
    "block 4": Case(4, 3 << 12, write=1060, read=1060),
    "block 16": Case(16, 16 << 12, write=1060, read=1060, burst=256),
    "spram": Case(4, 128 << 10, write=1160, read=1060, spram=True),
    "sdram 16/4": Case(4, CHIP16.nbytes, write=2150, read=2150, sdram=CHIP16),
    "sdram 16/8": Case(8, CHIP16.nbytes, write=4280, read=4280, sdram=CHIP16, burst=64),
    "sdram 16/16": Case(16, CHIP16.nbytes, write=8550, read=8550, sdram=CHIP16, burst=256),
    "sdram 32/4": Case(4, CHIP32.nbytes, write=1090, read=1090, sdram=CHIP32),
    "sdram 32/8": Case(8, CHIP32.nbytes, write=2150, read=2150, sdram=CHIP32),
    "no masks": Case(8, CHIP32.nbytes, write=2150, read=2150, sdram=CHIP32, masks=False),
    "133 MHz": Case(
        8, CHIP16.nbytes, write=4300, read=4300, sdram=CHIP16, clock_hz=133_000_000, io_cycles=2
    ),
    "25 MHz": Case(
        8, CHIP16.nbytes, write=4300, read=4300, sdram=CHIP16, clock_hz=25_000_000, io_cycles=1
    ),
}


class PortsOnly(Verilator):
    """Shows the simulator the top's ports instead of every signal: three times as fast."""

    def _build_command(self) -> list[list[str]]:
        commands = super()._build_command()
        return [[word for word in c if word != "--public-flat-rw"] for c in commands]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put Verilator where the runner looks, with variables that make its makefile work."""
    tool = find_verilator()
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "verilator").symlink_to(tool.binary)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MAKEFLAGS", f"{make_flags()} OPT_FAST=-O1")
    if tool.root is not None:
        monkeypatch.setenv("VERILATOR_ROOT", str(tool.root))


def simulate(folder: Path, text: str, tests: int, **settings: object) -> None:
    """Build ``text`` and run the testbenches on it; all ``tests`` must pass."""
    print(settings)
    source, ports = folder / f"{TOP}.v", folder / "ports.vlt"
    source.write_text(text)
    ports.write_text(f'`verilator_config\npublic_flat_rw -module "{TOP}" -port "*"\n')
    runner = PortsOnly()
    runner.build(
        sources=[ports, source],
        hdl_toplevel=TOP,
        build_dir=folder / "build",
        build_args=["--x-initial", "unique", "-Wno-fatal", "-Wno-lint"],
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        test_module="cocotb_memory",
        hdl_toplevel=TOP,
        test_dir=HERE,
        build_dir=folder / "build",
        results_xml=str(folder / "results.xml"),
        extra_env={"PYTHONDONTWRITEBYTECODE": "1", "ACCELC_SETTINGS": json.dumps(settings)},
    )
    assert get_results(results) == (tests, 0)


def memory_verilog(case: Case) -> str:
    """The backend, with its chip if it has one."""
    memory = case.memory
    text = to_verilog(component_rtlil(memory))
    if case.sdram is None:
        return text
    return with_chip(text, memory, case.sdram, case.clock_hz, io_cycles=case.io_cycles)


@pytest.mark.parametrize("name", CASES)
def test_traffic(name: str, tmp_path: Path, tools: None) -> None:
    case = CASES[name]
    simulate(
        tmp_path,
        memory_verilog(case),
        4,
        seed=random.randrange(1 << 30),
        nbytes=case.nbytes,
        width=case.width,
        burst=case.burst,
        sequential={"write": case.write, "read": case.read},
        rounds=case.rounds,
        boundaries=[0, case.nbytes // 2, case.nbytes - (2 << 12)],
        masks=case.masks,
    )
