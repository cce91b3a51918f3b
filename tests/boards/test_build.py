"""The build flow on small tops: whole bitstreams in seconds, and everything that can go wrong."""

import hashlib
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from accelc.boards.board import Board
from accelc.boards.build import board as board_module
from accelc.boards.build import job as job_module
from accelc.boards.build.board import build_board, require_timing
from accelc.boards.build.build import Build, build
from accelc.boards.build.family import Resource, Usage
from accelc.boards.build.flows import flow_for
from accelc.boards.build.job import StepError
from accelc.boards.build.report import report
from accelc.boards.build.synthesis import TooLargeError
from accelc.boards.build.tools import YOSYS, FoundTool, Tool, find_tool
from accelc.boards.memory.pins import SdramPins
from accelc.boards.registry import BOARDS, find
from accelc.command.main import ExitCode
from accelc.hw.verilog import without_empty_contents
from accelc.isa.errors import ConfigError, DoesNotFitError, TimingError, ToolError


class Echo(wiring.Component):
    """Echoes the UART and counts on the LEDs; exercises the SDRAM's pins where there are any."""

    rx: Signal
    tx: Signal
    leds: Signal
    sdram: Any

    def __init__(self, board: Board) -> None:
        self.board = board
        out: Any = Out  # its stubs lack init
        ports: dict[str, Any] = {"rx": In(1), "tx": out(1, init=1), "leds": Out(3)}
        if board.memory.sdram is not None:
            ports["sdram"] = Out(SdramPins(board.memory.sdram))
        super().__init__(ports)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        count = Signal(24)
        m.d.sync += [count.eq(count + 1), self.tx.eq(self.rx)]
        m.d.comb += self.leds.eq(count[-3:])
        if self.board.memory.sdram is not None:
            pins = self.sdram
            m.d.sync += [
                Cat(pins.cke, pins.cs_n, pins.ras_n, pins.cas_n, pins.we_n, pins.ba).eq(count),
                Cat(pins.a, pins.dqm).eq(count[1:]),
                pins.dq_o.eq(pins.dq_i + count),
                pins.dq_oe.eq(count[3]),
            ]
        return m


class Memories(Echo):
    """Echo with so many kilobytes of memory, a RAM of 4 KiB each."""

    def __init__(self, board: Board, kib: int) -> None:
        super().__init__(board)
        self._rams = kib // 4

    def elaborate(self, platform: object) -> Elaboratable:
        m = super().elaborate(platform)
        assert isinstance(m, Module)
        address, parity = Signal(12), Signal()
        m.d.sync += address.eq(Cat(self.rx, address))
        for number in range(self._rams):
            m.submodules[f"ram{number}"] = ram = memory.Memory(shape=8, depth=4096, init=[])
            read, write = ram.read_port(), ram.write_port()
            following = Signal(name=f"parity{number}")
            m.d.comb += [
                read.addr.eq(address + number), write.addr.eq(~address),
                write.data.eq(address), write.en.eq(self.rx),
            ]  # fmt: skip
            m.d.sync += following.eq(parity ^ read.data.xor())
            parity = following
        m.d.sync += self.tx.eq(parity)
        return m


class Slow(Echo):
    """Echo with eight additions after each other in one cycle."""

    def elaborate(self, platform: object) -> Elaboratable:
        m = super().elaborate(platform)
        assert isinstance(m, Module)
        start, value = Signal(16), Signal(16)
        m.d.sync += start.eq(Cat(self.rx, start))
        result = start
        for _ in range(8):
            result = ((result + start) ^ (result << 3))[:16]
        m.d.sync += [value.eq(result), self.tx.eq(value[15])]
        return m


def need(board: Board) -> None:
    try:
        for tool in flow_for(board.family).tools:
            find_tool(tool)
    except (ToolError, ImportError) as error:
        pytest.skip(str(error))


@pytest.fixture
def icebreaker() -> Board:
    board = find("icebreaker")
    need(board)
    return board


@pytest.mark.parametrize("name", BOARDS)
def test_every_board_builds_and_meets_timing(name: str) -> None:
    board = find(name)
    need(board)
    result = build(board, Echo(board))
    require_timing(result)
    content = report(result)
    assert content["timing_met"] and content["fmax_mhz"] > board.clock_hz / 1e6
    assert content["bitstream"]["bytes"] == result.bitstream.stat().st_size > 10_000
    assert content["bitstream"]["file"] == name + result.bitstream.suffix
    # the counter and little else: whatever is more was not asked for
    used = {entry["resource"]: entry["used"] for entry in content["resources"]}
    assert 24 <= used["LUT"] < 250 and 24 <= used["FF"] < 250
    assert used["DSP"] == used["block RAM"] == used.get("SPRAM", 0) == 0
    assert content["config_digest"] == f"{board.config.digest:08x}"
    assert content["gops"] == pytest.approx(
        2 * board.config.macs_per_cycle * board.clock_hz / 1e9, rel=1e-3
    )
    assert set(content["tools"]) == {tool.name for tool in result.flow.tools}
    assert {log.name for log in result.logs} >= {"yosys.log", "nextpnr.log"}
    assert json.loads(json.dumps(content)) == content
    path = content["critical_paths"][-1 if name == "icebreaker" else 0]
    assert path["start"] and path["end"] and "$" not in path["start"] + path["end"]
    assert path["delay_ns"] == pytest.approx(path["logic_ns"] + path["routing_ns"], abs=0.002)
    hops = path["hops"]
    assert sum(hop["logic_ns"] for hop in hops) == pytest.approx(path["logic_ns"], abs=0.02)


def test_sdram_pins_are_registered_in_their_cells() -> None:
    board = find("ulx3s-85f")
    need(board)
    result = build(board, Echo(board))
    # clock, enable, select, 3 commands, 2 banks, 13 addresses, 2 masks, 16 data
    assert result.timing["utilization"]["IOLOGIC"]["used"] == 1 + 1 + 1 + 3 + 2 + 13 + 2 + 16
    assert result.cells["EHXPLLL"] == result.cells["ODDRX1F"] == 1
    assert result.timing["utilization"]["EHXPLLL"]["used"] == 1


def test_bitstreams_are_reproducible(
    icebreaker: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def anew(name: str, user: str) -> Build:
        monkeypatch.setenv("USER", user)
        monkeypatch.setattr("accelc.sim.cache.cache_root", lambda: tmp_path / name)
        return build(icebreaker, Echo(icebreaker))

    first, second = anew("first", "alice"), anew("another/place", "bob")
    assert first.folder != second.folder
    assert first.bitstream.read_bytes() == second.bitstream.read_bytes()
    assert str(tmp_path).encode() not in first.bitstream.read_bytes()
    netlists = [next(tmp_path.glob(f"{p}/synthesis/*/top.json")) for p in ("first", "another/*")]
    assert netlists[0].read_bytes() == netlists[1].read_bytes()
    assert str(tmp_path).encode() not in netlists[0].read_bytes()


def test_the_second_build_is_from_the_cache(
    icebreaker: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelc.sim.cache.cache_root", lambda: tmp_path)
    runs: list[str] = []
    original = FoundTool.run

    def run(self: FoundTool, *arguments: Any, **options: Any) -> int:
        runs.append(self.tool.name)
        return original(self, *arguments, **options)

    monkeypatch.setattr(FoundTool, "run", run)
    first = build(icebreaker, Echo(icebreaker))
    assert runs == ["yosys", "nextpnr-ice40", "icepack"]
    again = build(icebreaker, Echo(icebreaker))
    assert runs == ["yosys", "nextpnr-ice40", "icepack"]
    assert again.folder == first.folder and again.seconds.keys() == first.seconds.keys()
    other = build(icebreaker, Echo(icebreaker), seed=2)
    assert runs[3:] == ["nextpnr-ice40", "icepack"]  # a seed is of no concern to Yosys
    assert other.folder != first.folder
    monkeypatch.setattr("accelc.boards.build.job.cache_root", lambda: tmp_path)
    build(icebreaker, Echo(icebreaker), force=True)
    assert runs[5:] == ["yosys", "nextpnr-ice40", "icepack"]


def test_too_much_memory_is_named(icebreaker: Board, tmp_path: Path) -> None:
    with pytest.raises(TooLargeError) as caught:
        build(icebreaker, Memories(icebreaker, 24), failed=tmp_path)
    message = str(caught.value)
    # 4 KiB of bytes are eight RAMs of 4 kbit
    assert "iCE40UP5K" in message and "48 block RAMs of 30 (18 too many)" in message
    excess = {item.resource: item.excess for item in caught.value.usage}
    assert excess[Resource.RAM] == 18 and excess[Resource.LUT] == 0
    assert (tmp_path / "yosys.log").exists()


def test_memories_become_block_rams(icebreaker: Board) -> None:
    used = {u.resource: u.used for u in build(icebreaker, Memories(icebreaker, 12)).usage}
    assert used[Resource.RAM] == 24


def test_missed_timing_is_an_error(icebreaker: Board) -> None:
    result = build(icebreaker, Slow(icebreaker))
    content = report(result)
    assert not content["timing_met"] and content["fmax_mhz"] < 40
    assert content["critical_paths"][0]["delay_ns"] > 25
    with pytest.raises(TimingError) as caught:
        require_timing(result)
    wanted = f"{icebreaker.clock_hz / 1e6:g} MHz"
    for part in (wanted, f"{content['fmax_mhz']:.1f} MHz", "--seed", "--clock", "--allow-slow"):
        assert part in str(caught.value)


def test_a_clock_that_cannot_be_made(icebreaker: Board) -> None:
    board = replace(icebreaker, clock_hz=40_000_000)
    with pytest.raises(ConfigError, match=r"40 MHz from 12 MHz.*39\.75 and 40\.5 MHz"):
        build_board(board)


def script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_tool_that_fails_says_why_and_leaves_its_log(
    icebreaker: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelc.sim.cache.cache_root", lambda: tmp_path / "cache")
    failing = script(tmp_path, "place", "echo Info: so good; echo ERROR: no such pin; exit 7")
    real = find_tool

    def find_failing(tool: Tool) -> FoundTool:
        found = real(tool)
        return replace(found, command=str(failing)) if "nextpnr" in tool.name else found

    monkeypatch.setattr(job_module, "find_tool", find_failing)
    with pytest.raises(StepError, match="no such pin") as caught:
        build(icebreaker, Echo(icebreaker), failed=tmp_path / "failed")
    assert str(tmp_path / "failed" / "nextpnr.log") in str(caught.value)
    assert "so good" in (tmp_path / "failed" / "nextpnr.log").read_text()
    assert not list((tmp_path / "cache" / "bitstreams").glob("[0-9a-f]*"))


def test_native_tools_come_first(tmp_path: Path) -> None:
    command = script(tmp_path, "yosys", "echo 'Yosys 0.99+12 (git sha1 0123, clang 14)'")
    found = find_tool(YOSYS, str(tmp_path))
    assert found.native and found.command == str(command)
    assert found.version == "yosys 0.99+12" and not found.note


def test_old_native_tools_are_passed_over(tmp_path: Path) -> None:
    script(tmp_path, "yosys", "echo 'Yosys 0.9 (git sha1 1979e0b1)'")
    try:
        found = find_tool(YOSYS, str(tmp_path))
    except ToolError as error:  # no wheel here
        assert "yosys 0.9" in str(error) and "0.50" in str(error)
        return
    assert not found.native and "yowasp" in found.version
    assert "0.9" in found.note and "0.50 or newer" in found.note


def test_a_missing_tool_is_named() -> None:
    tool = Tool(name="no-such-tool", wheel="no-such-wheel", package="no-such-package")
    with pytest.raises(ToolError, match=r"no-such-tool.*accelc\[boards\]"):
        find_tool(tool)


def test_memory_contents_stay_and_zeros_go() -> None:
    def cell(data: str) -> str:
        return (
            "  cell $meminit_v2 $1\n"
            '    parameter \\MEMID "\\\\m"\n'
            f"    connect \\DATA {data}\n"
            "    connect \\EN 8'11111111\n"
            "  end\n"
        )

    text = "module \\top\n" + cell("16'0000000000000000") + cell("16'0000000000000100") + "end\n"
    assert without_empty_contents(text) == "module \\top\n" + cell("16'0000000000000100") + "end\n"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, command: Any) -> Any:
    """`accelc build`, with a small top in place of the accelerator."""

    def call(*arguments: object, top: Any = Echo) -> tuple[int, str, str]:
        monkeypatch.setattr("accelc.boards.build.board.board_top", top)
        return command("build", *arguments)

    return call


@pytest.mark.usefixtures("icebreaker")
def test_the_command_leaves_bitstream_report_and_logs(command: Any, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    code, out, err = command("--board", "icebreaker", "-o", folder, "--seed", 5)
    assert code == 0 and err == ""
    names = {path.name for path in folder.iterdir()}
    assert names == {"icebreaker.bin", "report.json", "yosys.log", "nextpnr.log", "icepack.log"}
    content = json.loads((folder / "report.json").read_text())
    data = (folder / content["bitstream"]["file"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == content["bitstream"]["sha256"]
    assert content["seed"] == 5 and content["config"] == find("icebreaker").config.to_dict()
    for part in (
        "LUT",
        "SPRAM",
        f"{find('icebreaker').clock_hz / 1e6:g} MHz wanted",
        "GOPS",
        "critical path: ",
        "logic in",
    ):
        assert part in out
    code, out, _ = command("--board", "icebreaker", "-o", folder, "--seed", 5, "--json")
    assert code == 0 and json.loads(out) == content


@pytest.mark.usefixtures("icebreaker")
def test_a_failed_build_destroys_nothing(command: Any, tmp_path: Path) -> None:
    before = {"icebreaker.bin": "bits", "report.json": "{}", "yosys.log": "log", "notes": "mine"}
    for name, text in before.items():
        (tmp_path / name).write_text(text)

    def too_large(board: Board) -> Echo:
        return Memories(board, 24)

    code, _, err = command("--board", "icebreaker", "-o", tmp_path, top=too_large)
    assert code == ExitCode.USER_ERROR and "48 block RAMs of 30 (18 too many)" in err
    assert "Traceback" not in err and len(err.splitlines()) == 1
    code, _, err = command("--board", "icebreaker", "-o", tmp_path, top=Slow)
    assert code == ExitCode.CHECK_FAILED and "--allow-slow" in err
    assert {n: (tmp_path / n).read_text() for n in before} == before
    assert {path.name for path in tmp_path.iterdir()} == {*before, "failed"}
    code, out, _ = command("--board", "icebreaker", "-o", tmp_path, "--allow-slow", top=Slow)
    assert code == 0 and "NOT MET" in out
    assert json.loads((tmp_path / "report.json").read_text())["timing_met"] is False
    assert (tmp_path / "notes").read_text() == "mine" and not (tmp_path / "failed").exists()


@pytest.mark.usefixtures("icebreaker")
def test_another_clock_and_configuration(command: Any, tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('base = "icebreaker"\nprm_rows = 16\n')
    code, _, err = command(
        "--board", "icebreaker", "-o", tmp_path / "out", "--clock", 24, "--config", config, "-q"
    )
    assert code == 0 and err == ""
    content = json.loads((tmp_path / "out" / "report.json").read_text())
    assert content["clock_mhz"] == 24 and content["gops"] == pytest.approx(2 * 16 * 24 / 1e3)
    assert content["config"]["name"] == "mine" and content["config"]["prm_rows"] == 16


def too_large(board: Board, **excess: int) -> TooLargeError:
    available = flow_for(board.family).available(board.platform())
    return TooLargeError(
        "device",
        tuple(
            Usage(resource=resource, cell=cell, used=n + excess.get(resource.name, 0), available=n)
            for resource, (cell, n) in available.items()
        ),
    )


def test_an_array_does_with_as_many_multipliers_as_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = replace(find("ulx3s-25f"), options={})
    tried: list[int | None] = []

    def fail(board: Board, top: object, **_: Any) -> Build:
        tried.append(board.options.get("dsps"))
        raise too_large(board, **({"DSP": 9} if len(tried) == 1 else {"LUT": 3}))

    monkeypatch.setattr(board_module, "build", fail)
    monkeypatch.setattr(board_module, "board_top", lambda board: None)
    # the second attempt's fault is what is told
    with pytest.raises(DoesNotFitError, match="24291 LUTs of 24288 [(]3 too many[)]"):
        build_board(board)
    assert tried == [None, board.config.macs_per_cycle - 9]
    tried.clear()
    with pytest.raises(DoesNotFitError, match="DSPs"):  # the iCE40's array needs all of its blocks
        build_board(find("icebreaker"))
    assert len(tried) == 1
