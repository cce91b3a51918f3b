"""The driver on lines that lose, repeat and invent bytes: nothing lost, nothing wrong accepted."""

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from accelc.boards.link import line as line_module
from accelc.boards.link.exercise import BELL, Exercise
from accelc.boards.link.faults import ROUGH, BadLine, FaultRates
from accelc.boards.link.model import EndpointModel, PlainBus
from accelc.boards.link.port import Port
from accelc.boards.link.protocol import BoardRecord, Region, Response, Status, frame
from accelc.boards.link.requester import Requester
from accelc.isa.errors import DeviceError

BAUD = 3_000_000
MEMORY_BYTES = 1 << 15


@dataclass
class Bell(PlainBus):
    """Registers of which one counts."""

    rung: list[int] = field(default_factory=list)

    def write(self, address: int, value: int) -> bool | None:
        if address == BELL:
            self.rung.append(value)
        return super().write(address, value)


def model() -> EndpointModel:
    return EndpointModel(
        record=BoardRecord(name="model", clock_hz=1, memory_bytes=MEMORY_BYTES, digest=1),
        memory=PlainBus(bytearray(MEMORY_BYTES)),
        registers=Bell(bytearray(512)),
        address_bits=16,
    )


@pytest.fixture
def endpoint() -> EndpointModel:
    return model()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pseudo-terminal needs no patience with USB."""
    monkeypatch.setattr(line_module, "MIN_TIMEOUT_SECONDS", 0.01)
    yield


def connected(line: BadLine, patience: float = 20.0) -> Requester:
    requester = Requester(Port(line.port, BAUD), patience=patience)
    requester.connect()
    return requester


def test_10000_transfers_on_a_bad_line(quick: None, endpoint: EndpointModel) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rates = FaultRates(
        drop=4e-4, duplicate=4e-4, corrupt=4e-4, insert=4e-4, repeat=2e-3, stall=1e-3,
        stall_seconds=0.005,
    )  # fmt: skip
    with BadLine(endpoint, rates, seed=seed) as line:
        requester = connected(line)
        exercise = Exercise(requester, memory_bytes=MEMORY_BYTES, longest=150, seed=seed)
        for _ in range(10_000):
            exercise.step()
        exercise.check()
    assert exercise.wrong_bytes == 0
    assert isinstance(endpoint.memory, PlainBus) and isinstance(endpoint.registers, Bell)
    assert endpoint.memory.data == exercise.memory
    assert endpoint.registers.rung == exercise.rung and len(exercise.rung) > 800
    statistics = requester.statistics
    print(statistics, line.counts)
    # The faults were there, and it took work to hide them.
    for what, at_least in {
        "drop": 200, "duplicate": 200, "corrupt": 200, "insert": 200, "repeat": 20, "stall": 10,
    }.items():  # fmt: skip
        assert line.counts[what] > at_least, what
    assert statistics.repeated > 500
    assert statistics.damaged > 100
    assert statistics.refused > 200
    assert endpoint.answers[Status.SEQUENCE] > 50


def test_large_transfers_on_a_terrible_line(quick: None, endpoint: EndpointModel) -> None:
    """A fault every 250 bytes, frames of 2048: pieces get small enough to pass."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    with BadLine(endpoint, ROUGH, seed=seed) as line:
        exercise = Exercise(connected(line), memory_bytes=MEMORY_BYTES, longest=3000, seed=seed)
        for _ in range(60):
            exercise.step()
    assert isinstance(endpoint.memory, PlainBus)
    assert exercise.wrong_bytes == 0
    assert endpoint.memory.data == exercise.memory
    assert sum(line.counts.values()) > 200


def test_resets_in_the_middle_are_noticed(quick: None) -> None:
    """What was written before a reset is there; what was being written is old or new, byte by byte.

    The model's memory survives a reset, as an SDRAM might.
    """
    rng = random.Random(8)
    endpoint = model()
    due: set[int] = set()

    def between(portion: int) -> None:
        if rng.random() < 0.02:
            due.add(portion)
            endpoint.reset()

    memory = bytearray(MEMORY_BYTES)
    noticed = 0
    with BadLine(endpoint, FaultRates(corrupt=2e-4), between=between) as line:
        requester = Requester(Port(line.port, BAUD), patience=5)

        def after_resets(address: int, size: int) -> bytes:
            while True:
                try:
                    requester.connect()
                    return requester.read(Region.MEMORY, address, size)
                except DeviceError as error:
                    assert "reset during the transfer" in str(error)

        requester.connect()
        for _ in range(600):
            size = rng.choice((4, 300, 2000))
            address = rng.randrange(MEMORY_BYTES - size)
            data = rng.randbytes(size)
            try:
                requester.write([(Region.MEMORY, address, data)])
                memory[address : address + size] = data
                assert requester.read(Region.MEMORY, address, size) == data
            except DeviceError as error:
                assert "reset during the transfer" in str(error)
                noticed += 1
                with pytest.raises(DeviceError, match="connection to the board is lost"):
                    requester.read(Region.MEMORY, 0, 1)
                found = after_resets(address, size)
                old = memory[address : address + size]
                assert all(f in (o, n) for f, o, n in zip(found, old, data, strict=True))
                memory[address : address + size] = found
        assert after_resets(0, MEMORY_BYTES) == memory
    assert noticed > 20
    assert noticed <= len(due)


def test_unplugging_is_an_error_at_any_moment() -> None:
    rng = random.Random(9)
    errors = set()
    for _ in range(25):
        with BadLine(model()) as line:
            requester = connected(line, patience=2)
            timer = threading.Timer(rng.random() * 0.05, line.unplug)
            timer.start()
            start = time.monotonic()
            with pytest.raises(DeviceError) as caught:
                while True:
                    requester.write([(Region.MEMORY, 0, bytes(3000))])
                    requester.read(Region.MEMORY, 0, 3000)
            timer.join()
            assert time.monotonic() - start < 30
            errors.add("is gone" in str(caught.value) or "no answer" in str(caught.value))
            with pytest.raises(DeviceError):
                requester.read(Region.MEMORY, 0, 1)
    assert errors == {True}


@dataclass
class Replies:
    """An endpoint that is something else."""

    reply: Callable[[bytes], bytes]

    def receive(self, data: bytes) -> bytes:
        return self.reply(data)

    def reset(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda data: b"", "nothing answers on .*right port.*powered.*accelc flash"),
        (lambda data: data, "returns what is sent to it"),
        (lambda data: b"login: ", "does not speak the host link .*baud"),
        (lambda data: os.urandom(200), "does not speak the host link .*baud"),
        (
            lambda data: Response(tag=1, session=1, expected=0, status=Status.VERSION).encode(),
            "does not speak version 1",
        ),
        (lambda data: frame(b"123456789"), "does not speak the host link"),
    ],
)
def test_what_is_no_board_is_told_apart(reply: Callable[[bytes], bytes], message: str) -> None:
    with BadLine(Replies(reply)) as line:
        requester = Requester(Port(line.port, BAUD), patience=0.6)
        start = time.monotonic()
        with pytest.raises(DeviceError, match=message):
            requester.connect()
        assert time.monotonic() - start < 30


def test_endless_garbage_is_no_hang() -> None:
    """A board that goes mad: as many bytes as fit through the line, none of them an answer."""
    board = Replies(model().receive)
    with BadLine(board) as line:
        requester = connected(line, patience=1.0)
        requester.write([(Region.MEMORY, 0, b"sane")])
        board.reply = lambda data: b""
        talking = threading.Event()
        talking.set()

        def shout() -> None:
            with contextlib.suppress(OSError):
                while talking.is_set():
                    os.write(line._master, os.urandom(512))

        thread = threading.Thread(target=shout, daemon=True)
        thread.start()
        start = time.monotonic()
        with pytest.raises(DeviceError, match="too many errors on the line: .* damaged"):
            requester.read(Region.MEMORY, 0, 100)
        with pytest.raises(DeviceError, match="does not speak the host link"):
            requester.connect()
        assert time.monotonic() - start < 30
        talking.clear()
        requester.line.port.read(0.1)
        thread.join(5)


def test_a_port_is_for_one_program(endpoint: EndpointModel) -> None:
    with BadLine(endpoint) as line:
        first = Port(line.port, BAUD)
        with pytest.raises(DeviceError, match="in use by another program"):
            Port(line.port, BAUD)
        first.close()
        Port(line.port, BAUD).close()


def test_another_program_is_noticed(endpoint: EndpointModel) -> None:
    """One that does not care whether the port is in use."""
    with BadLine(endpoint) as line:
        requester = connected(line)
        requester.write([(Region.MEMORY, 0, b"ours")])
        endpoint.session, endpoint.expected = endpoint.session ^ 1 or 2, 0
        with pytest.raises(DeviceError, match="another program has taken the board over"):
            requester.write([(Region.MEMORY, 0, b"lost")])
    assert isinstance(endpoint.memory, PlainBus)
    assert endpoint.memory.data[:4] == b"ours"


def test_errors_of_the_board(endpoint: EndpointModel) -> None:
    """Each is named, nothing behind it is executed, and the link goes on."""
    assert isinstance(endpoint.memory, PlainBus)
    with BadLine(endpoint) as line:
        requester = connected(line)
        endpoint.core_busy = lambda: True
        writes = [(Region.MEMORY, 0, b"no"), (Region.REGISTERS, BELL, b"!")]
        with pytest.raises(DeviceError, match=r"writing 2 bytes at 0x0 of MEMORY: BUSY, .*core"):
            requester.write(writes)
        assert isinstance(endpoint.registers, Bell) and endpoint.registers.rung == []
        with pytest.raises(DeviceError, match="reading 5 bytes at 0x10 of MEMORY: BUSY"):
            requester.read(Region.MEMORY, 0x10, 5)
        endpoint.core_busy = lambda: False
        endpoint.memory.refused = range(0x100, 0x200)
        with pytest.raises(DeviceError, match="ACCESS, the bus answered"):
            requester.read(Region.MEMORY, 0xF0, 0x20)
        with pytest.raises(DeviceError, match="ACCESS"):
            requester.write([(Region.MEMORY, 0xF0, bytes(0x20))])
        with pytest.raises(DeviceError, match="ADDRESS, the address is beyond"):
            requester.write([(Region.MEMORY, 1 << 16, b"x")])
        requester.write([(Region.MEMORY, 0, b"yes")])
        assert requester.read(Region.MEMORY, 0, 3) == b"yes"


def test_an_interrupted_transfer_ends_there(endpoint: EndpointModel) -> None:
    """After Ctrl-C the next transfer is not mixed up with the rest of the last."""
    with BadLine(endpoint) as line:
        requester = connected(line)

        def interrupt(nbytes: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            requester.write([(Region.MEMORY, 0, bytes(20_000))], interrupt)
        with pytest.raises(KeyboardInterrupt):
            requester.read(Region.MEMORY, 0, 20_000, interrupt)
        requester.write([(Region.MEMORY, 5, b"after")])
        assert requester.read(Region.MEMORY, 5, 5) == b"after"


def test_a_slow_board_is_waited_for() -> None:
    """A second for an answer at first, as a simulation may take: late is not wrong."""
    board = model()
    slow = {"seconds": 0.5}

    def receive(data: bytes) -> bytes:
        time.sleep(slow["seconds"])
        return board.receive(data)

    with BadLine(Replies(receive)) as line:
        requester = connected(line)
        requester.write([(Region.MEMORY, 0, bytes(range(200)))])
        assert requester.read(Region.MEMORY, 0, 200) == bytes(range(200))
        slow["seconds"] = 0
    assert requester.statistics.damaged == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/dev/does-not-exist", "there is no serial port /dev/does-not-exist; those found: "),
        ("/dev/null", "cannot open /dev/null"),
        ("nonsense://x", "cannot open nonsense"),
    ],
)
def test_ports_that_can_not_be_opened(name: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        Port(name, BAUD)
