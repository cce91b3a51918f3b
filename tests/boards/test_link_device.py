"""A board on a cable as a device, and the commands for it, with a model of a board on the cable."""

import hashlib
import json
import re
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

import accelc
from accelc.attached import check_address, is_address
from accelc.boards.link.faults import BadLine, FaultRates
from accelc.boards.link.host import BoardDevice, Connection
from accelc.boards.link.model import EndpointModel, PlainBus
from accelc.boards.link.protocol import BoardRecord, Region
from accelc.boards.link.selftest import Selftest
from accelc.boards.registry import BOARDS
from accelc.command.link import chosen_bitstream
from accelc.command.main import ExitCode, run
from accelc.isa.codec import decode_all
from accelc.isa.config import INSTRUCTION_BYTES, PRESETS, AccelConfig
from accelc.isa.errors import (
    ConfigError,
    DeviceError,
    DoesNotFitError,
    EncodingError,
    InputError,
)
from accelc.isa.program import Program
from accelc.isa.registers import BY_NAME, IDENTITY, ErrorCode
from accelc.isa.spec import ISA_VERSION, Finish, Instruction, Unit
from accelc.session import Session
from accelc.sim.functional import FunctionalDevice
from accelc.sim.random_programs import random_program

CONFIG = PRESETS["1x8x8"]
MEMORY_BYTES = 1 << 20
MODEL = Path(__file__).parents[2] / "models" / "digits_resnet8_int8.onnx"
CYCLES = 123_456_789_012


@dataclass
class Core(PlainBus):
    """Registers with a core behind them that takes a few looks at its status to run a program."""

    config: AccelConfig = CONFIG
    memory: bytearray = field(default_factory=lambda: bytearray(MEMORY_BYTES))
    #: Looks at the status until a program is over.
    looks: int = 3
    left: int = 0
    #: What the next run ends in instead.
    fault: ErrorCode | None = None
    #: What this one does.
    ending: ErrorCode | None = None
    runs: int = 0
    aborts: int = 0

    def __post_init__(self) -> None:
        config = self.config
        shape = (config.batch, config.block_in, config.block_out, config.bus_bytes)
        for name, value in {
            "id": IDENTITY, "version": ISA_VERSION, "config": config.digest,
            "shape": int.from_bytes(bytes(shape), "little"),
        }.items():  # fmt: skip
            self.set(name, value)

    def get(self, name: str) -> int:
        return struct.unpack_from("<I", self.data, BY_NAME[name].offset)[0]

    def set(self, name: str, value: int) -> None:
        struct.pack_into("<I", self.data, BY_NAME[name].offset, value)

    def read(self, address: int) -> int | None:
        if address == BY_NAME["status"].offset and self.left:
            self.left -= 1
            if not self.left:
                self.set("status", 4 if self.ending else 2)
        return super().read(address)

    def write(self, address: int, value: int) -> bool | None:
        if address != BY_NAME["control"].offset:
            return super().write(address, value)
        if value == 2:
            self.aborts += 1
            self.left = 0
            self.set("status", 0)
        elif value == 1:
            self.start()
        return True

    def start(self) -> None:
        self.runs += 1
        self.left = self.looks
        self.set("status", 1)
        base, nbytes = self.get("memory_base"), self.get("memory_bytes")
        address, count = self.get("program_address"), self.get("program_length")
        image = bytes(self.memory[base : base + nbytes])
        words = image[address : address + count * INSTRUCTION_BYTES]
        instructions: list[Instruction] = []
        self.ending = self.fault
        try:
            instructions = list(decode_all(words))
        except EncodingError:
            self.ending = self.ending or ErrorCode.ILLEGAL_INSTRUCTION
        if not self.ending and not isinstance(instructions[-1], Finish):
            self.ending = ErrorCode.MISSING_FINISH
        self.set("error", self.ending or 0)
        self.set("error_info", count | 4 << 24)
        if self.ending is not None:
            return
        device = FunctionalDevice(self.config)
        program = Program(
            config=self.config, instructions=tuple(instructions), instructions_address=address,
            memory_bytes=nbytes, constants=(),
        )  # fmt: skip
        device.reserve(nbytes)
        device.write(0, image)
        device.run(program)
        self.memory[base : base + nbytes] = device.read(0, nbytes)
        self.set("cycles_low", CYCLES & 0xFFFF_FFFF)
        self.set("cycles_high", CYCLES >> 32)
        self.set("alu_wait_low", 77)
        self.set("write_bytes_low", 99)
        for unit in Unit:
            retired = sum(i.unit is unit for i in instructions)
            self.set(f"{unit.name.lower()}_retired", retired)


class Board:
    """A model of a board at a pseudo-terminal."""

    def __init__(self, config: AccelConfig = CONFIG, rates: FaultRates | None = None) -> None:
        self.core = Core(bytearray(512), config=config)
        self.endpoint = EndpointModel(
            record=BoardRecord(
                name="desk", clock_hz=50_000_000, memory_bytes=MEMORY_BYTES, digest=config.digest
            ),
            memory=PlainBus(self.core.memory),
            registers=self.core,
            address_bits=20,
            core_busy=lambda: bool(self.core.left),
        )
        self.line = BadLine(self.endpoint, rates, seed=1)

    @property
    def port(self) -> str:
        return self.line.port


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board()
    with made.line:
        yield made


@pytest.fixture
def connection(board: Board) -> Iterator[Connection]:
    with Connection(board.port, patience=2) as opened:
        yield opened


def check_program(device: BoardDevice, seed: int) -> None:
    program = random_program(device.config, seed)
    expected = FunctionalDevice(device.config)
    for one in (device, expected):
        one.load(program)
        one.run(program)
    nbytes = program.memory_bytes
    assert device.read(0, nbytes) == expected.read(0, nbytes)


def test_runs_programs(board: Board, connection: Connection) -> None:
    device = BoardDevice(CONFIG, connection)
    for seed in range(3):
        check_program(device, seed)
    program = random_program(CONFIG, 0)
    device.load(program)
    counters = device.run(program)
    assert counters.cycles == CYCLES
    assert counters.wait == (0, 0, 77, 0)
    assert counters.write_bytes == 99
    assert board.core.runs == 4
    assert device.clock_hz == 50_000_000


def test_runs_programs_on_a_bad_line() -> None:
    """Each is started exactly once."""
    rates = FaultRates(drop=5e-4, duplicate=5e-4, corrupt=5e-4, insert=5e-4, repeat=0.01)
    board = Board(rates=rates)
    with board.line, Connection(board.port, patience=20) as connection:
        device = BoardDevice(CONFIG, connection)
        for seed in range(4):
            check_program(device, seed)
    assert board.core.runs == 4
    assert sum(board.line.counts.values()) > 50


def test_two_devices_share_the_memory(connection: Connection) -> None:
    first, second = BoardDevice(CONFIG, connection), BoardDevice(CONFIG, connection)
    first.reserve(5000)
    second.reserve(700)
    first.write(0, b"1" * 5000)
    second.write(0, b"2" * 700)
    assert first.read(0, 5000) == b"1" * 5000
    first.reserve(8192)
    with pytest.raises(DoesNotFitError, match=r"needs 1048576 bytes .*1048576, of which 8192 are"):
        second.reserve(MEMORY_BYTES)
    with pytest.raises(DoesNotFitError, match="needs 1048577 bytes"):
        first.reserve(MEMORY_BYTES + 1)


def test_outside_its_memory(connection: Connection) -> None:
    device = BoardDevice(CONFIG, connection)
    with pytest.raises(DeviceError, match="load the program"):
        device.read(0, 1)
    device.reserve(100)
    with pytest.raises(DeviceError, match="bytes 99 to 101 are outside the 100 bytes"):
        device.write(99, b"xx")


def test_the_wrong_board(connection: Connection) -> None:
    with pytest.raises(ConfigError, match="compile it with --config desk"):
        BoardDevice(PRESETS["1x4x4"], connection)


@pytest.mark.parametrize(
    ("register", "error", "message"),
    [
        ("id", DeviceError, "register id reads 0x00000001, not 0x31636361"),
        ("version", ConfigError, "has version 1 of the instruction set|build its bitstream again"),
        ("config", DeviceError, "core's configuration is 00000001, the board's record says"),
    ],
)
def test_a_core_that_is_not_ours(
    board: Board, register: str, error: type[Exception], message: str
) -> None:
    board.core.set(register, 1 if register != "version" else ISA_VERSION + 1)
    with pytest.raises(error, match=message):
        Connection(board.port, patience=1)


def test_faults_are_reported_and_the_board_goes_on(board: Board, connection: Connection) -> None:
    device = BoardDevice(CONFIG, connection)
    program = random_program(CONFIG, 1)
    device.load(program)
    board.core.fault = ErrorCode.WATCHDOG
    with pytest.raises(DeviceError, match="WATCHDOG in unit fetch at instruction .*token"):
        device.run(program)
    board.core.fault = None
    assert board.core.aborts == 1
    check_program(device, 2)


def test_a_run_left_behind_is_stopped(board: Board) -> None:
    board.core.left = 1_000_000
    board.core.set("status", 1)
    with Connection(board.port, patience=2):
        assert board.core.aborts == 1


def test_a_core_that_never_ends(
    board: Board, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock stands still: an error, soon after the limit."""
    monkeypatch.setattr("accelc.boards.link.core._STILL_SECONDS", 1.0)
    board.core.looks = 1 << 40
    device = BoardDevice(CONFIG, connection)
    program = random_program(CONFIG, 1)
    device.load(program)
    with pytest.raises(DeviceError, match="the core is busy but does nothing"):
        device.run(program)
    assert board.core.aborts == 1


def test_a_reset_takes_the_program_along(board: Board, connection: Connection) -> None:
    """No run with what may be left of it, until it is loaded again."""
    device, other = BoardDevice(CONFIG, connection), BoardDevice(CONFIG, connection)
    program = random_program(CONFIG, 3)
    for one in (device, other):
        one.load(program)
    board.endpoint.reset()
    with pytest.raises(DeviceError, match="reset during the transfer"):
        device.run(program)
    with pytest.raises(DeviceError, match=r"board was lost \(.*reset.*load the program again"):
        device.run(program)
    check_program(device, 3)
    with pytest.raises(DeviceError, match="board was lost, .*load the program again"):
        other.read(0, 1)
    assert board.core.runs == 1


def test_progress_is_reported(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accelc.boards.link.host._REPORT_SECONDS", 0.0)
    said: list[str] = []
    with Connection(board.port, report=said.append) as connection:
        device = BoardDevice(CONFIG, connection)
        device.reserve(20_000)
        device.write(0, bytes(20_000))
    assert said[-1].startswith("writing to desk: 100 % of 20 KiB, ")


def test_selftest_passes(connection: Connection) -> None:
    test = Selftest(connection, memory_bytes=5000, programs=2, seed=1, config=CONFIG)
    checks = list(test.run())
    assert [c.name for c in checks if c.passed is not True] == []
    assert len(checks) == 8


def test_selftest_without_the_configuration(connection: Connection) -> None:
    checks = list(Selftest(connection, memory_bytes=5000, programs=2, seed=1).run())
    skipped = [c.name for c in checks if c.passed is None]
    assert skipped == (["core: programs", "core: errors"] if not known(CONFIG) else [])


def known(config: AccelConfig) -> bool:
    return any(board.config.digest == config.digest for board in BOARDS.values())


def break_line(board: Board) -> None:
    """Address line 12 is stuck: two addresses, one place."""
    memory = board.endpoint.memory
    assert isinstance(memory, PlainBus)
    read, write = memory.read, memory.write
    board.endpoint.memory = Wrapped(
        lambda address: read(address & ~0x1000),
        lambda address, value: write(address & ~0x1000, value),
    )


def break_bit(board: Board) -> None:
    """A data bit that sticks at some addresses."""
    memory = board.endpoint.memory
    assert isinstance(memory, PlainBus)
    read = memory.read
    board.endpoint.memory = Wrapped(
        lambda address: (read(address) or 0) | (4 if address % 64 == 63 else 0), memory.write
    )


def break_register(board: Board) -> None:
    core, write = board.core, board.core.write

    def stuck(address: int, value: int) -> bool | None:
        return write(address, value & 0x7F if address == 0x22 else value)

    board.endpoint.registers = Wrapped(core.read, stuck)


def break_core(board: Board) -> None:
    """It computes, and then one bit in memory falls over."""
    start = board.core.start

    def wrong() -> None:
        start()
        board.core.memory[board.core.get("memory_base") + 20 * 1024] ^= 1

    board.core.start = wrong  # type: ignore[method-assign]


@dataclass
class Wrapped:
    reader: Callable[[int], int | None]
    writer: Callable[[int, int], bool | None]

    def read(self, address: int) -> int | None:
        return self.reader(address)

    def write(self, address: int, value: int) -> bool | None:
        return self.writer(address, value)


@pytest.mark.parametrize(
    ("damage", "name", "message"),
    [
        (break_line, "memory: address lines", r"at 0x0 there is .* \(that of 0x1000\)"),
        (break_bit, "memory: data", r"bytes differ, .*wrong bits \{2: "),
        (break_register, "registers", "register program_address was written"),
        (break_core, "core: programs", "golden and board differ in 1 bytes"),
    ],
)
def test_selftest_finds_what_is_broken(
    board: Board, connection: Connection, damage: Callable[[Board], None], name: str, message: str
) -> None:
    damage(board)
    test = Selftest(connection, memory_bytes=5000, programs=2, seed=1, config=CONFIG)
    failed = {c.name: c.detail for c in test.run() if c.passed is False}
    assert name in failed
    assert re.search(message, failed[name]), failed[name]


def test_sessions_run_networks_on_boards(board: Board) -> None:
    artifact = accelc.compile(MODEL, config=CONFIG)
    inputs = {"image": np.random.default_rng(0).random((1, 1, 8, 8), np.float32)}
    expected = accelc.load(artifact).run(inputs)["logits"]
    with Session(artifact, board.port) as session:
        assert session.run(inputs)["logits"].tobytes() == expected.tobytes()
        assert session.cycles == CYCLES * len(session.counters)
        assert session.clock_hz == 50_000_000
    with pytest.raises(DeviceError, match="board was lost"):
        session.run(inputs)


def test_the_command_line(board: Board, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    compiled = tmp_path / "digits.accel"
    assert run(["compile", str(MODEL), "-o", str(compiled), "--config", "1x8x8", "-q"]) == 0
    assert run(["run", str(compiled), "--on", f"{board.port}@3000000,functional"]) == 0
    text = capfd.readouterr().out
    assert "2,469,135.780 ms at 50 MHz" in text or "2469135.780 ms at 50 MHz" in text
    assert "all outputs equal, bit for bit" in text
    assert run(["run", str(compiled), "--on", board.port, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["cycles"] % CYCLES == 0
    assert report["device_seconds"] == report["cycles"] / 50e6
    other = tmp_path / "other.accel"
    assert run(["compile", str(MODEL), "-o", str(other), "--config", "1x4x4", "-q"]) == 0
    capfd.readouterr()
    assert run(["run", str(other), "--on", board.port]) == ExitCode.USER_ERROR
    assert "compile it with --config desk" in capfd.readouterr().err
    assert run(["selftest", "--on", board.port, "--memory", "4", "--json"]) == 0
    assert {c["passed"] for c in json.loads(capfd.readouterr().out)} <= {True, None}
    board.line.unplug()
    assert run(["run", str(compiled), "--on", board.port]) == ExitCode.DEVICE_ERROR
    assert capfd.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    "name", ["/dev/ttyUSB0", "COM3", "com12", r"\\.\COM10", "socket://host:7", "sim:icebreaker"]
)
def test_addresses(name: str) -> None:
    assert is_address(name)
    check_address(name)


def test_what_is_no_address() -> None:
    assert not any(map(is_address, ("rtl", "golden", "icebreaker", "ttyUSB0", "")))
    with pytest.raises(ConfigError, match="there is no board 'nothing'"):
        check_address("sim:nothing")
    with pytest.raises(InputError, match="0 is no baud rate"):
        check_address("/dev/ttyUSB0@0")


class TestFlash:
    """With a program in the place of openFPGALoader that writes down how it was called."""

    @pytest.fixture
    def build(self, tmp_path: Path) -> Path:
        content = b"bitstream"
        (tmp_path / "icebreaker.bin").write_bytes(content)
        report = {
            "board": "icebreaker",
            "timing_met": True,
            "bitstream": {
                "file": "icebreaker.bin",
                "sha256": hashlib.sha256(content).hexdigest(),
            },
        }
        (tmp_path / "report.json").write_text(json.dumps(report))
        return tmp_path

    @pytest.fixture
    def loader(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        script = tmp_path / "loader"
        script.write_text('#!/bin/sh\necho "$@" > "$0.called"\necho no cable found\nexit $CODE\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("OPENFPGALOADER", str(script))
        monkeypatch.setenv("CODE", "0")
        return script

    def test_calls_the_loader(self, build: Path, loader: Path) -> None:
        assert run(["flash", str(build)]) == 0
        called = loader.with_name("loader.called")
        assert called.read_text() == f"-b ice40_generic {build / 'icebreaker.bin'}\n"
        arguments = ["flash", str(build / "icebreaker.bin"), "--board", "icebreaker", "--permanent"]
        assert run(arguments) == 0
        assert called.read_text().startswith("-b ice40_generic --write-flash ")

    def test_its_failure_is_told(
        self, build: Path, loader: Path, monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        monkeypatch.setenv("CODE", "3")
        assert run(["flash", str(build)]) == ExitCode.TOOL_ERROR
        assert "exit code 3: no cable found; is icebreaker plugged in" in capfd.readouterr().err

    def test_its_absence_is_told(
        self, build: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.delenv("OPENFPGALOADER", raising=False)
        monkeypatch.setenv("PATH", "")
        assert run(["flash", str(build)]) == ExitCode.TOOL_ERROR
        assert "apt install openfpgaloader" in capfd.readouterr().err
        monkeypatch.setenv("OPENFPGALOADER", "/nowhere")
        assert run(["flash", str(build)]) == ExitCode.TOOL_ERROR
        assert "OPENFPGALOADER names '/nowhere'" in capfd.readouterr().err

    def test_refuses_what_is_not_for_the_board(self, build: Path) -> None:
        with pytest.raises(ConfigError, match="is for board icebreaker, not ulx3s-25f"):
            chosen_bitstream(build, "ulx3s-25f", False)
        with pytest.raises(ConfigError, match="is for board icebreaker"):
            chosen_bitstream(build, "ulx3s-25f", True)

    def test_refuses_what_was_not_built(self, build: Path) -> None:
        bitstream = build / "icebreaker.bin"
        bitstream.write_bytes(b"another")
        with pytest.raises(ConfigError, match="is not the file .*report.json describes"):
            chosen_bitstream(build, None, False)
        assert chosen_bitstream(build, None, True) == (bitstream, "icebreaker")
        (build / "report.json").unlink()
        with pytest.raises(InputError, match="nothing says which board"):
            chosen_bitstream(bitstream, "icebreaker", False)
        assert chosen_bitstream(bitstream, "icebreaker", True) == (bitstream, "icebreaker")
        with pytest.raises(InputError, match="there is no "):
            chosen_bitstream(build / "nothing", None, False)

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"board": "icebreaker", "bitstream": 3}'])
    def test_refuses_broken_reports(self, build: Path, text: str) -> None:
        (build / "report.json").write_text(text)
        with pytest.raises(InputError, match="is no report of accelc build"):
            chosen_bitstream(build, None, False)

    def test_refuses_what_is_too_slow(self, build: Path) -> None:
        report = json.loads((build / "report.json").read_text())
        (build / "report.json").write_text(json.dumps({**report, "timing_met": False}))
        with pytest.raises(ConfigError, match="may not work at its clock"):
            chosen_bitstream(build, None, False)


def test_records_name_their_board(board: Board) -> None:
    board.endpoint.record = replace(board.endpoint.record, name="other", mlperf=True)
    with Connection(board.port) as connection:
        assert connection.record.name == "other" and connection.record.mlperf
        assert connection.requester.read(Region.BOARD, 0, 4) == b"link"
