"""Frames: what is encoded is decoded, whatever else is not."""

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelc.boards.link.protocol import (
    CRC_INIT,
    CRC_POLYNOMIAL,
    CRC_RESIDUE,
    READ_BYTES,
    REQUEST_BYTES,
    REQUEST_HEADER,
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
from accelc.isa.errors import EncodingError


@given(st.binary(min_size=1, max_size=300), st.binary(max_size=50))
def test_frames_survive_what_is_around_them(content: bytes, noise: bytes) -> None:
    deframer = Deframer(400)
    found = list(deframer.feed(noise + b"~" + frame(content) + noise))
    assert found[-1:] == [content]


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.data())
def test_frames_in_any_portions(contents: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(frame, contents))
    deframer, found = Deframer(64), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += deframer.feed(stream[:size])
        stream = stream[size:]
    assert found == contents
    assert deframer.damaged == 0


@given(
    st.integers(0, 255), st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFF_FFFF), st.binary(max_size=WRITE_BYTES),
)  # fmt: skip
def test_requests(
    code: int, session: int, sequence: int, tag: int, address: int, data: bytes
) -> None:
    request = Request(
        command=code, session=session, sequence=sequence, tag=tag, address=address,
        length=len(data), data=data,
    )  # fmt: skip
    (content,) = Deframer(REQUEST_BYTES).feed(request.encode())
    assert Request.decode(content) == request


@given(
    st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.integers(0, 255), st.sampled_from(Status),
    st.binary(max_size=100),
)  # fmt: skip
def test_responses(tag: int, session: int, expected: int, status: Status, data: bytes) -> None:
    response = Response(tag=tag, session=session, expected=expected, status=status, data=data)
    (content,) = Deframer(READ_BYTES).feed(response.encode())
    assert Response.decode(content) == response


def test_what_is_no_response() -> None:
    assert Response.decode(b"12345") is None
    assert Response.decode(b"12345\x08") is None


def test_any_change_is_noticed() -> None:
    """One byte changed, lost, doubled or inserted; nothing else comes out than what went in."""
    rng = random.Random(5)
    for _ in range(2000):
        content = rng.randbytes(rng.randrange(1, 60))
        whole = bytearray(frame(content))
        place = rng.randrange(len(whole))
        kind = rng.randrange(4)
        if kind == 0:
            whole[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del whole[place]
        elif kind == 2:
            whole.insert(place, whole[place])
        else:
            whole.insert(place, rng.randrange(256))
        assert all(found == content for found in Deframer(100).feed(bytes(whole) + b"~"))


def test_noise_is_no_frame_and_takes_no_memory() -> None:
    rng = random.Random(6)
    deframer = Deframer(100)
    for _ in range(300):
        assert list(deframer.feed(rng.randbytes(1000))) == []
    assert deframer.damaged > 800
    list(deframer.feed(bytes(10_000)))
    assert len(deframer._pending) < 1000


def test_the_crc_is_the_one_described() -> None:
    """Bit by bit, as the gateware computes it."""
    data = random.Random(7).randbytes(50)

    def crc(data: bytes) -> int:
        register = CRC_INIT
        for byte in data:
            for bit in range(8):
                feedback = (register ^ byte >> bit) & 1
                register = register >> 1 ^ (CRC_POLYNOMIAL if feedback else 0)
        return register

    checked = data + zlib.crc32(data).to_bytes(4, "little")
    assert crc(data) ^ 0xFFFF_FFFF == zlib.crc32(data)
    assert crc(checked) == CRC_RESIDUE


def test_sizes_fit_the_board() -> None:
    assert REQUEST_HEADER.size + WRITE_BYTES + 4 == REQUEST_BYTES
    with pytest.raises(EncodingError, match="at most 208 bytes, not 209"):
        Request(command=command(Region.MEMORY, write=True), session=1, data=bytes(209)).encode()


def test_records() -> None:
    record = BoardRecord(name="ulx3s-25f", clock_hz=62_500_000, memory_bytes=1 << 25, digest=7)
    assert BoardRecord.decode(record.encode()) == record
    assert BoardRecord.decode(b"LINK" + record.encode()[4:]) is None
    assert BoardRecord.decode(record.encode()[:20]) is None
    with pytest.raises(EncodingError, match="at most 32 bytes, not 33"):
        BoardRecord(name="x" * 33, clock_hz=1, memory_bytes=1, digest=1).encode()
    with pytest.raises(EncodingError, match="does not fit its record"):
        BoardRecord(name="x", clock_hz=1 << 32, memory_bytes=1, digest=1).encode()
