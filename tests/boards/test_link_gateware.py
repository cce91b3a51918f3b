"""The gateware of the link, Verilated, against its model: same bytes, same answers, same memory."""

import random
import shutil
from collections.abc import Iterator

import pytest

from accelc.boards.definitions.icebreaker import ICEBREAKER
from accelc.boards.definitions.ulx3s import ULX3S_25F
from accelc.boards.link import line
from accelc.boards.link.endpoint import board_record
from accelc.boards.link.exercise import Exercise
from accelc.boards.link.faults import BadLine, FaultRates
from accelc.boards.link.model import EndpointModel, PlainBus
from accelc.boards.link.port import Port
from accelc.boards.link.protocol import (
    READ_BYTES,
    SYNC_COMMAND,
    WRITE_BYTES,
    BoardRecord,
    Deframer,
    Region,
    Request,
    Response,
    Status,
    command,
    frame,
)
from accelc.boards.link.requester import Requester
from accelc.boards.link.simulation import REGISTER_BYTES, SimulatedEndpoint

pytestmark = [
    pytest.mark.rtl,
    pytest.mark.skipif(
        not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make"
    ),
]

BOARD = ICEBREAKER
SESSION = 0x7D7E


class Pair:
    """Gateware and model side by side."""

    def __init__(self, seed: int = 1, **options: int) -> None:
        self.gateware = SimulatedEndpoint(BOARD, seed=seed, **options)
        self.memory = PlainBus(bytearray(BOARD.memory.nbytes))
        self.registers = PlainBus(bytearray(REGISTER_BYTES))
        self.model = EndpointModel(
            record=board_record(BOARD),
            memory=self.memory,
            registers=self.registers,
            address_bits=(BOARD.memory.nbytes - 1).bit_length(),
        )
        self._deframer = Deframer(READ_BYTES + 16)

    def decode(self, data: bytes) -> list[Response]:
        responses = [Response.decode(content) for content in self._deframer.feed(data)]
        assert None not in responses and self._deframer.damaged == 0
        return [r for r in responses if r is not None]

    def ask(self, data: bytes) -> list[Response]:
        """The gateware's answers, which must be the model's.

        Of damaged pieces that follow each other closely, it answers one.
        """
        found = self.decode(self.gateware.receive(data))
        expected = self.decode(self.model.receive(data))
        good = [r for r in expected if r.status is not Status.CHECKSUM]
        assert [r for r in found if r.status is not Status.CHECKSUM] == good
        bad = [r for r in found if r.status is Status.CHECKSUM]
        assert min(len(expected) - len(good), 1) <= len(bad) <= len(expected) - len(good)
        return found

    def same_memory(self) -> None:
        assert bytes(self.gateware.memory) == self.memory.data
        assert bytes(self.gateware.registers) == self.registers.data


@pytest.fixture
def pair() -> Iterator[Pair]:
    yield Pair()


def sync(session: int = SESSION) -> bytes:
    return Request(command=SYNC_COMMAND, session=session, tag=7).encode()


def request(
    region: Region,
    address: int = 0,
    *,
    data: bytes | None = None,
    length: int = 0,
    sequence: int = 0,
    session: int = SESSION,
    tag: int = 0x7E7D,
) -> bytes:
    return Request(
        command=command(region, write=data is not None),
        session=session, sequence=sequence, tag=tag, address=address,
        length=length if data is None else len(data), data=data or b"",
    ).encode()  # fmt: skip


def test_says_which_board_it_is(pair: Pair) -> None:
    pair.ask(sync())
    (answer,) = pair.ask(request(Region.BOARD, length=BoardRecord.SIZE))
    assert BoardRecord.decode(answer.data) == board_record(BOARD)


@pytest.mark.parametrize("cycles_per_bit", [4, 13])
def test_random_requests(cycles_per_bit: int) -> None:
    pair = Pair(cycles_per_bit=cycles_per_bit)
    rng = random.Random(cycles_per_bit)
    pair.ask(sync())
    statuses = set()
    for _ in range(300):
        region = rng.choice(list(Region))
        if rng.random() < 0.05:
            pair.gateware.set_bus(rng.randrange(12), rng.choice((0, 0.3)), range(0x100, 0x120))
            pair.memory.refused = pair.registers.refused = range(0x100, 0x120)
        if rng.random() < 0.05:
            busy = rng.random() < 0.5
            pair.gateware.set_busy(busy)
            pair.model.core_busy = lambda busy=busy: busy
        size = BOARD.memory.nbytes if region is Region.MEMORY else REGISTER_BYTES
        address = rng.randrange(size) if rng.random() < 0.95 else rng.randrange(1 << 32)
        if region is not Region.MEMORY:
            address %= size
        if region is Region.MEMORY and rng.random() < 0.3:
            address = rng.choice((0xF0, 0x110, 0x1FFF, size - 1))
        write = rng.random() < 0.6 and region is not Region.BOARD
        length = rng.choice((0, 1, 2, 3, 64, WRITE_BYTES))
        if not write and rng.random() < 0.1:
            length = READ_BYTES
        sequence = pair.model.expected if rng.random() < 0.95 else rng.randrange(256)
        data = rng.choice((rng.randbytes(length), bytes([0x7E]) * length)) if write else None
        session = SESSION if rng.random() < 0.98 else rng.randrange(1 << 16)
        if rng.random() < 0.01:
            pair.ask(sync(rng.choice((SESSION, 5))))
            pair.ask(sync())
        answers = pair.ask(
            request(region, address, data=data, length=length, sequence=sequence, session=session)
        )
        statuses.add(answers[0].status)
    pair.same_memory()
    assert statuses >= {
        Status.OK, Status.SESSION, Status.SEQUENCE, Status.BUSY, Status.ADDRESS, Status.ACCESS,
    }  # fmt: skip


def test_bursts_of_writes_arrive_without_pause(pair: Pair) -> None:
    rng = random.Random(1)
    pair.ask(sync())
    for size in (1, 2, 5, 50, WRITE_BYTES):
        burst = b""
        start = pair.model.expected
        for n in range(20):
            data = rng.randbytes(size)
            address = rng.randrange(BOARD.memory.nbytes - len(data))
            burst += request(Region.MEMORY, address, data=data, sequence=(start + n) % 256, tag=n)
        assert [a.status for a in pair.ask(burst)] == [Status.OK] * 20
    pair.same_memory()


def test_two_reads_fit_and_a_third_is_lost(pair: Pair) -> None:
    pair.ask(sync())
    reads = [request(Region.MEMORY, n, length=500, tag=n) for n in range(3)]
    answers = pair.decode(pair.gateware.receive(b"".join(reads)))
    assert [a.tag for a in answers if a.status is Status.OK] == [0, 1]


def test_other_versions_are_refused(pair: Pair) -> None:
    pair.ask(sync())
    for code in (0x00, 0x20, 0x21, 0x28, 0xF0, 0x16, 0x17):
        content = bytes([code]) + Request(command=0, session=SESSION).encode()[2:13]
        (answer,) = pair.decode(pair.gateware.receive(frame(content)))
        assert answer.status is Status.VERSION


def test_random_bytes_change_nothing(pair: Pair) -> None:
    """Noise of all kinds, then the link works and memory is as it was."""
    rng = random.Random(3)
    pair.ask(sync())
    pair.ask(request(Region.MEMORY, 100, data=b"before"))
    accesses = pair.gateware.accesses
    damaged = 0
    for _ in range(400):
        noise = rng.randbytes(rng.randrange(600))
        for _ in range(rng.randrange(8)):
            place = rng.randrange(len(noise) + 1)
            noise = noise[:place] + rng.choice((b"~", b"}", b"}~", b"~~")) + noise[place:]
        damaged += len(pair.ask(noise + b"~"))
    assert damaged > 300
    assert pair.gateware.accesses == accesses
    (answer,) = pair.ask(request(Region.MEMORY, 100, length=6, sequence=1))
    assert answer.data == b"before"
    pair.same_memory()


def test_damaged_requests_change_nothing(pair: Pair) -> None:
    """Every byte of a request changed, left out, doubled: refused, never executed."""
    pair.ask(sync())
    whole = request(Region.MEMORY, 0x1234, data=bytes(range(0x70, 0x90)))
    for place in range(1, len(whole) - 1):
        for piece in (
            whole[:place] + whole[place + 1 :],
            whole[: place + 1] + whole[place:],
            whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :],
        ):
            answers = pair.ask(piece)
            assert all(a.status is Status.CHECKSUM for a in answers) or piece.count(b"}}")
            if pair.model.expected:
                pair.ask(sync(place))
                pair.ask(sync())
    pair.same_memory()


def test_noise_on_the_wire(pair: Pair) -> None:
    """Inverted levels, a quarter of a bit long: whatever is executed was asked for."""
    rng = random.Random(4)
    pair.ask(sync())
    pair.gateware.set_noise(0.0004)
    data = rng.randbytes(100)
    executed = 0
    for n in range(300):
        pair.gateware.receive(sync(n + 1))
        before = bytes(pair.gateware.memory[: 1 << 12])
        found = pair.decode(
            pair.gateware.receive(request(Region.MEMORY, n, data=data, session=n + 1))
        )
        done = any(a.status is Status.OK and a.expected == 1 for a in found)
        executed += done
        expected = before[:n] + data + before[n + 100 :] if done else before
        assert bytes(pair.gateware.memory[: 1 << 12]) == expected
    assert 20 < executed < 290
    assert pair.gateware.flips > 300


def test_reset_forgets_the_session(pair: Pair) -> None:
    pair.ask(sync())
    pair.gateware.reset()
    (answer,) = pair.decode(pair.gateware.receive(request(Region.MEMORY, length=1)))
    assert (answer.status, answer.session) == (Status.SESSION, 0)


def test_hands_the_line_over_once_asked(pair: Pair) -> None:
    pair.ask(sync())
    pair.ask(request(Region.BOARD, data=b"\0"))
    assert not pair.gateware.mlperf
    pair.ask(request(Region.BOARD, data=b"\1", sequence=9))
    assert not pair.gateware.mlperf
    pair.ask(request(Region.BOARD, data=b"\1", sequence=1))
    assert pair.gateware.mlperf


def test_driver_on_a_bad_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real driver, the real gateware, and between them what real lines rarely do.

    `benchmarks/link_faults.py` does this at length.
    """
    monkeypatch.setattr(line, "MIN_TIMEOUT_SECONDS", 0.01)
    seed = random.randrange(1 << 30)
    print("seed", seed)
    gateware = SimulatedEndpoint(BOARD, seed=seed)
    gateware.set_bus(5, 0.1)
    gateware.set_noise(2e-5)
    rates = FaultRates(drop=4e-4, duplicate=4e-4, corrupt=4e-4, insert=4e-4, repeat=3e-3)
    with BadLine(gateware, rates, seed=seed) as bad:
        requester = Requester(Port(bad.port, 3_000_000), patience=30)
        requester.connect()
        exercise = Exercise(requester, memory_bytes=1 << 15, longest=150, seed=seed)
        for _ in range(400):
            exercise.step()
        gateware.set_noise(0)
        exercise.check()
    assert exercise.wrong_bytes == 0
    assert bytes(gateware.memory[: 1 << 15]) == exercise.memory
    assert gateware.rings == len(exercise.rung) > 10
    assert sum(bad.counts.values()) > 30 and gateware.flips > 10
    assert requester.statistics.repeated > 20


def test_wide_bus() -> None:
    """Eight bytes a beat: each lands in its lane."""
    gateware = SimulatedEndpoint(ULX3S_25F)
    gateware.receive(sync())
    data = bytes(range(1, 40))
    gateware.receive(request(Region.MEMORY, 0x1FF_FFC3, data=data))
    assert bytes(gateware.memory[0x1FF_FFC0:0x1FF_FFF0]) == bytes(3) + data + bytes(6)
    answers = gateware.receive(request(Region.MEMORY, 0x1FF_FFC4, length=30, sequence=1))
    assert data[1:31] in answers
