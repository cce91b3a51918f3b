"""Every memory backend under AXI traffic, and the SDRAM controller against its chip's rules."""

import dataclasses
import json
import os
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.lib import wiring
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator

from accelc.boards.board import BoardMemory, OnChip, OnChipKind
from accelc.boards.definitions.ulx3s import ULX3S_85F
from accelc.boards.memory.block import BlockMemory
from accelc.boards.memory.chip_model import REPORTS, RULES, with_chip
from accelc.boards.memory.chips import SdramChip
from accelc.boards.memory.memory import board_memory
from accelc.boards.memory.requests import STREAK
from accelc.boards.memory.sdram import SdramMemory
from accelc.boards.memory.spram import SpramMemory
from accelc.boards.memory.timing import SdramTiming
from accelc.hw.verilog import component_rtlil, core_ports, to_verilog
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
    on_chip: int = 0
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
        if self.sdram is not None and self.on_chip:
            on_chip = OnChip(kind=OnChipKind.BLOCK, nbytes=self.on_chip)
            memory = BoardMemory(on_chip=on_chip, sdram=self.sdram, io_cycles=self.io_cycles)
            return board_memory(
                dataclasses.replace(
                    ULX3S_85F, config=self.config, memory=memory, clock_hz=self.clock_hz
                )
            )
        if self.sdram is not None:
            return SdramMemory(
                self.config,
                self.sdram,
                self.clock_hz,
                io_cycles=self.io_cycles,
                masks=self.masks,
            )
        return (SpramMemory if self.spram else BlockMemory)(self.config, self.nbytes)

    @property
    def wait(self) -> int:
        """Cycles one direction may wait for the other: a streak, two more bursts, the way."""
        words = 1 if self.sdram is None else self.width * 8 // self.sdram.data_bits
        return (STREAK + 2) * self.burst * words + 150


CASES = {
    "block 4": Case(4, 3 << 12, write=1060, read=1060),
    "block 16": Case(16, 16 << 12, write=1060, read=1060, burst=256),
    "spram": Case(4, 128 << 10, write=1160, read=1060, spram=True),
    "sdram 16/4": Case(4, CHIP16.nbytes, write=2110, read=2110, sdram=CHIP16),
    "sdram 16/8": Case(8, CHIP16.nbytes, write=4200, read=4200, sdram=CHIP16, burst=64),
    "sdram 16/16": Case(16, CHIP16.nbytes, write=8400, read=8400, sdram=CHIP16, burst=256),
    "sdram 32/4": Case(4, CHIP32.nbytes, write=1090, read=1090, sdram=CHIP32),
    "sdram 32/8": Case(8, CHIP32.nbytes, write=2110, read=2110, sdram=CHIP32),
    "no masks": Case(8, CHIP32.nbytes, write=2110, read=2110, sdram=CHIP32, masks=False),
    "on chip": Case(
        8, CHIP16.nbytes, write=4300, read=4300, sdram=CHIP16, on_chip=3 << 12, io_cycles=2
    ),
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


def simulate(folder: Path, text: str, module: str, tests: int, **settings: object) -> None:
    """Build ``text`` and run the testbenches of ``module`` on it; all ``tests`` must pass."""
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
        test_module=module,
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
        "cocotb_memory",
        6,
        seed=random.randrange(1 << 30),
        nbytes=case.nbytes,
        width=case.width,
        burst=case.burst,
        sequential={"write": case.write, "read": case.read},
        rounds=case.rounds,
        wait=case.wait,
        boundaries=[case.on_chip, 0, case.nbytes // 2, case.nbytes - (2 << 12)],
        masks=case.masks,
    )


#: A master that reads and writes at random, within a few rows of every bank.
TRAFFIC = """
module traffic (
  input clk, input rst,
  output [31:0] bus_araddr, output [7:0] bus_arlen, output bus_arvalid, input bus_arready,
  output [31:0] bus_awaddr, output [7:0] bus_awlen, output bus_awvalid, input bus_awready,
  output [63:0] bus_wdata, output [7:0] bus_wstrb, output bus_wvalid, input bus_wready,
  output bus_wlast, input bus_bvalid, output bus_bready,
  input bus_rvalid, output bus_rready, output reg [31:0] beats
);
  reg [31:0] noise;
  reg [13:6] ar, aw;
  reg [2:0] arlen, awlen;
  reg reading, writing, filling;
  reg [2:0] left;
  assign bus_araddr = {ar, 6'd0};
  assign bus_arlen = arlen;
  assign bus_arvalid = reading;
  assign bus_awaddr = {aw, 6'd0};
  assign bus_awlen = awlen;
  assign bus_awvalid = writing;
  assign bus_wvalid = filling;
  assign bus_wdata = {2{noise}};
  assign bus_wstrb = 8'hff;
  assign bus_wlast = left == 0;
  assign bus_bready = 1;
  assign bus_rready = 1;
  always @(posedge clk)
    if (rst) begin
      noise <= 32'h2545f491;
      {reading, writing, filling} <= 0;
      beats <= 0;
    end else begin
      noise <= {noise[30:0], noise[31] ^ noise[21] ^ noise[1] ^ noise[0]};
      beats <= beats + (bus_rvalid & bus_rready) + (bus_wvalid & bus_wready);
      if (!reading || bus_arready) begin
        reading <= noise[2:0] != 0;
        ar <= noise[13:6];
        arlen <= noise[16:14] & noise[19:17];
      end
      if (writing && bus_awready) writing <= 0;
      if (filling && bus_wready) begin
        left <= left - 1;
        if (left == 0) filling <= 0;
      end
      if (!writing && !filling && noise[20]) begin
        writing <= 1;
        filling <= 1;
        aw <= noise[31:24];
        awlen <= noise[3:1] & noise[6:4];
        left <= noise[3:1] & noise[6:4];
      end
    end
endmodule
"""


def mutations(timing: SdramTiming) -> dict[str, tuple[SdramTiming, list[str]]]:
    """Every distance shortened by one and the rules of which one is then broken first."""
    shorter = {
        "cas": ["mode register"],
        "precharge": ["tRP"],
        "activate": ["tRCD"],
        "active": ["tRAS (min)", "tRC"],
        "read_to_precharge": ["cut short"],
        "write_to_precharge": ["tWR"],
        "read_to_write": ["at a time"],
        "refresh": ["tRFC"],
    }
    cases = {
        name: (dataclasses.replace(timing, **{name: getattr(timing, name) - 1}), rules)
        for name, rules in shorter.items()
    }
    # The controller needs some cycles itself until its first command.
    hasty = dataclasses.replace(timing, mode=timing.mode - 6)
    # Both are counted in intervals of a refresh; a few of those may be late.
    early = dataclasses.replace(timing, power_up=timing.power_up - timing.refresh_interval)
    late = dataclasses.replace(timing, refresh_interval=timing.refresh_interval * 5 // 4)
    return {
        "unchanged": (timing, []),
        **cases,
        "mode": (hasty, ["tMRD"]),
        "power_up": (early, ["pause after power-up"]),
        "refresh_interval": (late, ["refreshes overdue"]),
    }


def mutants(case: Case, timings: dict[str, SdramTiming]) -> str:
    """A top with controllers of these timings, each with traffic and chip of its own."""
    assert case.sdram is not None
    texts, instances, ports = [TRAFFIC], [], ["input clk", "input rst"]
    for name, timing in timings.items():
        memory = SdramMemory(case.config, case.sdram, case.clock_hz, timing=timing)
        top = f"mutant_{name}"
        text = to_verilog(rtlil.convert(memory, name=top, ports=core_ports(memory), emit_src=False))
        texts.append(
            with_chip(text, memory, case.sdram, case.clock_hz, top=top, model=len(texts) == 1)
        )
        reports = {**REPORTS, "beats": 32}
        ports += [f"output [{bits - 1}:0] {name}_{what}" for what, bits in reports.items()]
        wires = [what for what in core_ports(memory) if what.startswith("bus_")]
        widths = {what: len(value) for what, (value, _) in core_ports(memory).items()}
        driven = [what for what in wires if re.search(rf"\b{what}\b", TRAFFIC)]
        instances += [f"  wire [{widths[what] - 1}:0] {name}_{what};" for what in driven]
        joined = "".join(f", .{what}({name}_{what})" for what in driven)
        chip = "".join(f", .{what}({name}_{what})" for what in REPORTS)
        instances += [
            f"  traffic {name}_traffic (.clk(clk), .rst(rst), .beats({name}_beats){joined});",
            f"  {top} {name} (.clk(clk), .rst(rst){joined}{chip});",
        ]
    listed = ", ".join(ports)
    return "".join(texts) + "\n".join([f"module {TOP} ({listed});", *instances, "endmodule\n"])


def test_mutations(tmp_path: Path, tools: None) -> None:
    # Slow enough for every distance to be longer than the controller's own minimum.
    chip = dataclasses.replace(CHIP16, trcd_ns=30.0, tmrd_cycles=8)
    case = dataclasses.replace(CASES["sdram 16/8"], sdram=chip)
    cases = mutations(SdramTiming.of(chip, case.clock_hz, burst=4))
    expected = {
        name: [number for number, text in RULES.items() if any(rule in text for rule in rules)]
        for name, (_, rules) in cases.items()
    }
    assert all(bool(expected[name]) == bool(rules) for name, (_, rules) in cases.items())
    simulate(
        tmp_path,
        mutants(case, {name: timing for name, (timing, _) in cases.items()}),
        "cocotb_mutations",
        1,
        expected=expected,
        cycles=80_000,
    )
