"""The serial protocol between host and board, defined once; docs/host-link.md explains it.

A frame is ``7E``, stuffed bytes, ``7E``. Between the delimiters ``7D x`` stands for ``x ^ 20``, so
that ``7E`` is the border of a frame wherever it appears. The last four bytes of a frame are
the CRC-32 (as in Ethernet and zlib) of the others, low byte first. All numbers are little-endian.
"""

import enum
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from accelc.isa.errors import EncodingError

#: Changes with every incompatible change; in every request and in the board's record.
VERSION = 1

DELIMITER = 0x7E
ESCAPE = 0x7D
#: An escaped byte is sent as itself with these bits inverted.
ESCAPE_FLIP = 0x20

CRC_BYTES = 4
CRC_INIT = 0xFFFF_FFFF
#: Reflected polynomial of CRC-32.
CRC_POLYNOMIAL = 0xEDB8_8320
#: What the register of the CRC holds after a frame and its own CRC, before the final inversion.
CRC_RESIDUE = 0xDEBB_20E3

#: command, session, sequence, tag, length, address
REQUEST_HEADER = struct.Struct("<BHBHHI")
#: tag, session
RESPONSE_HEADER = struct.Struct("<HH")
#: sequence number the board expects next, status
RESPONSE_TRAILER = struct.Struct("<BB")

#: Bytes of a request, CRC included, the board has room for.
REQUEST_BYTES = 224
#: Bytes one WRITE carries at most.
WRITE_BYTES = REQUEST_BYTES - REQUEST_HEADER.size - CRC_BYTES
#: Bytes one READ asks for at most.
READ_BYTES = 2048
#: No request crosses a multiple of this address: the board counts addresses modulo it.
PAGE_BYTES = 4096
#: Requests the board holds: one it executes, one it has received.
BOARD_REQUESTS = 2
#: Sequence numbers are modulo this.
SEQUENCES = 256
#: Of the board after reset; a host never takes it.
NO_SESSION = 0

#: Bit 3 of the command: set the session. Bits 2:1 are the region, bit 0 tells WRITE from READ.
SYNC = 0b1000
WRITE = 0b0001
_VERSION_SHIFT = 4
_REGION_SHIFT = 1


class Region(enum.IntEnum):
    """What a request addresses."""

    #: The accelerator's memory, from 0.
    MEMORY = 0
    #: The core's registers, ``isa.registers``.
    REGISTERS = 1
    #: READ: the board's record, from its start whatever the address. WRITE: bit 0 of each byte
    #: hands the serial line to the MLPerf Tiny protocol, until a break or a reset.
    BOARD = 2


class Status(enum.IntEnum):
    """How a request ended. Anything but OK: the sequence number stands still."""

    OK = 0
    #: Something arrived that was not a whole frame; tag and sequence number were not looked at.
    CHECKSUM = 1
    VERSION = 2
    SESSION = 3
    SEQUENCE = 4
    BUSY = 5
    ADDRESS = 6
    ACCESS = 7


STATUS_MEANINGS: dict[Status, str] = {
    Status.OK: "done",
    Status.CHECKSUM: "the frame was damaged on the way; send again",
    Status.VERSION: "the board speaks another version of the protocol",
    Status.SESSION: "the request is of another session; the answer has the board's",
    Status.SEQUENCE: "the request is not the next one; the answer has the number expected",
    Status.BUSY: "memory is not accessible while the core runs",
    Status.ADDRESS: "the address is beyond the region",
    Status.ACCESS: "the bus answered the access with an error",
}


def command(region: Region, *, write: bool, version: int = VERSION) -> int:
    """The command byte of a READ or WRITE."""
    return version << _VERSION_SHIFT | region << _REGION_SHIFT | (WRITE if write else 0)


#: The command byte of a SYNC.
SYNC_COMMAND = VERSION << _VERSION_SHIFT | SYNC


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the host sends. ``length`` is that of ``data`` in a WRITE."""

    command: int
    session: int
    sequence: int = 0
    tag: int = 0
    address: int = 0
    length: int = 0
    data: bytes = b""

    @property
    def write(self) -> bool:
        return bool(self.command & WRITE)

    def encode(self) -> bytes:
        """The frame, delimiters included.

        Raises:
            EncodingError: more data than a board has room for.
        """
        if len(self.data) > WRITE_BYTES:
            raise EncodingError(
                f"a WRITE carries at most {WRITE_BYTES} bytes, not {len(self.data)}"
            )
        header = REQUEST_HEADER.pack(
            self.command, self.session, self.sequence, self.tag, self.length, self.address
        )
        return frame(header + self.data)

    @classmethod
    def decode(cls, content: bytes) -> "Request":
        """The request in a frame's content, which is at least a header long."""
        code, session, sequence, tag, length, address = REQUEST_HEADER.unpack_from(content)
        data = content[REQUEST_HEADER.size :]
        return cls(
            command=code, session=session, sequence=sequence, tag=tag,
            address=address, length=length, data=data,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Response:
    """What the board answers: the request's tag, its own session, data read, and how it went."""

    tag: int
    session: int
    expected: int
    status: Status
    data: bytes = b""

    def encode(self) -> bytes:
        return frame(
            RESPONSE_HEADER.pack(self.tag, self.session)
            + self.data
            + RESPONSE_TRAILER.pack(self.expected, self.status)
        )

    @classmethod
    def decode(cls, content: bytes) -> "Response | None":
        """The response in a frame's content; None if it can not be one."""
        end = len(content) - RESPONSE_TRAILER.size
        if end < RESPONSE_HEADER.size:
            return None
        tag, session = RESPONSE_HEADER.unpack_from(content)
        expected, number = RESPONSE_TRAILER.unpack_from(content, end)
        try:
            status = Status(number)
        except ValueError:
            return None
        data = content[RESPONSE_HEADER.size : end]
        return cls(tag=tag, session=session, expected=expected, status=status, data=data)


_DELIMITER, _ESCAPE = bytes([DELIMITER]), bytes([ESCAPE])
_ESCAPED_DELIMITER = bytes([ESCAPE, DELIMITER ^ ESCAPE_FLIP])
_ESCAPED_ESCAPE = bytes([ESCAPE, ESCAPE ^ ESCAPE_FLIP])


def frame(content: bytes) -> bytes:
    """``content`` with its CRC, stuffed, between delimiters."""
    body = content + zlib.crc32(content).to_bytes(CRC_BYTES, "little")
    body = body.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_DELIMITER, _ESCAPED_DELIMITER)
    return _DELIMITER + body + _DELIMITER


class Deframer:
    """Finds frames in a stream of bytes: whole ones come out, the rest is counted."""

    def __init__(self, limit: int) -> None:
        """``limit``: bytes of the longest frame, CRC included, that is waited for."""
        self._limit = limit
        self._pending = b""
        #: Pieces between delimiters that were not frames.
        self.damaged = 0

    def feed(self, received: bytes) -> Iterator[bytes]:
        """The contents, without CRC, of the frames that ``received`` completes."""
        *whole, rest = (self._pending + received).split(_DELIMITER)
        # An endless frame is noise: its end alone is kept, and will not pass as a frame.
        self._pending = rest[-2 * self._limit - 1 :]
        for piece in whole:
            if not piece.strip(_ESCAPE):
                continue
            content = self._unstuff(piece)
            if content is None:
                self.damaged += 1
            else:
                yield content

    def forget(self) -> None:
        """Drop what was received of the frame in progress."""
        self._pending = b""

    def _unstuff(self, piece: bytes) -> bytes | None:
        if piece.endswith(_ESCAPE):
            return None
        head, *tails = piece.split(_ESCAPE)
        # Between two escapes there is nothing: they count as one.
        body = head + b"".join(bytes([t[0] ^ ESCAPE_FLIP]) + t[1:] for t in tails if t)
        if not CRC_BYTES < len(body) <= self._limit:
            return None
        content, crc = body[:-CRC_BYTES], body[-CRC_BYTES:]
        return content if zlib.crc32(content).to_bytes(CRC_BYTES, "little") == crc else None


_RECORD = struct.Struct("<4sBBHHIII32s")
_MAGIC = b"link"
_HAS_MLPERF = 1


@dataclass(frozen=True, kw_only=True)
class BoardRecord:
    """What region BOARD answers a READ with: which board this is."""

    #: Bytes; more than the fields take.
    SIZE = 64

    name: str
    clock_hz: int
    memory_bytes: int
    #: ``AccelConfig.digest`` of its core.
    digest: int
    mlperf: bool = False
    version: int = VERSION
    write_bytes: int = WRITE_BYTES
    read_bytes: int = READ_BYTES

    def encode(self) -> bytes:
        """Exactly SIZE bytes.

        Raises:
            EncodingError: a value does not fit.
        """
        name = self.name.encode()
        if len(name) > 32:
            raise EncodingError(f"a board's name has at most 32 bytes, not {len(name)}")
        try:
            fields = _RECORD.pack(
                _MAGIC, self.version, _HAS_MLPERF if self.mlperf else 0, self.write_bytes,
                self.read_bytes, self.clock_hz, self.memory_bytes, self.digest, name,
            )  # fmt: skip
        except struct.error as error:
            raise EncodingError(f"board {self.name!r} does not fit its record: {error}") from None
        return fields.ljust(self.SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "BoardRecord | None":
        """The record in ``data``; None if there is none."""
        if len(data) < _RECORD.size or not data.startswith(_MAGIC):
            return None
        _, version, flags, write, read, clock, memory, digest, name = _RECORD.unpack_from(data)
        return cls(
            name=name.rstrip(b"\0").decode(errors="replace"), clock_hz=clock, memory_bytes=memory,
            digest=digest, mlperf=bool(flags & _HAS_MLPERF), version=version,
            write_bytes=write, read_bytes=read,
        )  # fmt: skip
