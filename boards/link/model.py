"""The board's end of the host link in Python, from the same definitions as the gateware.

The driver is tested against it, and the gateware is compared with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from accelc.boards.link.protocol import (
    NO_SESSION,
    PAGE_BYTES,
    REQUEST_BYTES,
    REQUEST_HEADER,
    SEQUENCES,
    SYNC,
    VERSION,
    BoardRecord,
    Deframer,
    Region,
    Request,
    Response,
    Status,
)


class Bus(Protocol):
    """Bytes at addresses; both return None where the bus answers with an error."""

    def read(self, address: int) -> int | None: ...

    def write(self, address: int, value: int) -> bool | None: ...


@dataclass
class PlainBus:
    """A bus on which bytes stay as they were written; the whole address space of ``data``."""

    data: bytearray
    #: Places that answer with an error.
    refused: range = range(0)

    def read(self, address: int) -> int | None:
        place = address % len(self.data)
        return None if place in self.refused else self.data[place]

    def write(self, address: int, value: int) -> bool | None:
        place = address % len(self.data)
        if place in self.refused:
            return None
        self.data[place] = value
        return True


@dataclass
class EndpointModel:
    """Takes bytes from the line and answers, like ``Link``, but in no time.

    Without time no request finds the buffer full: each is answered before the next is looked at.
    """

    record: BoardRecord
    memory: Bus
    registers: Bus
    #: Bits of an address that there are wires for.
    address_bits: int
    core_busy: Callable[[], bool] = lambda: False
    session: int = NO_SESSION
    expected: int = 0
    mlperf: bool = False
    #: Requests that were executed with success, SYNCs aside: what a test may rely on.
    executed: list[Request] = field(default_factory=list)
    #: How many answers had each status.
    answers: dict[Status, int] = field(default_factory=lambda: dict.fromkeys(Status, 0))
    _deframer: Deframer = field(default_factory=lambda: Deframer(REQUEST_BYTES))
    _damaged: int = 0

    def reset(self) -> None:
        """What a reset of the board does to the link."""
        self.session, self.expected, self.mlperf = NO_SESSION, 0, False
        self._deframer.forget()

    def receive(self, data: bytes) -> bytes:
        """The answers to the frames that ``data`` completes."""
        answers = b""
        for byte in data:
            for content in self._deframer.feed(bytes([byte])):
                if len(content) < REQUEST_HEADER.size:
                    self._deframer.damaged += 1
                else:
                    answers += self._answer(self._execute(Request.decode(content)))
            while self._damaged < self._deframer.damaged:
                self._damaged += 1
                answers += self._answer(self._response(0, Status.CHECKSUM))
        return answers

    def _answer(self, response: Response) -> bytes:
        self.answers[response.status] += 1
        return response.encode()

    def _response(self, tag: int, status: Status, data: bytes = b"") -> Response:
        return Response(
            tag=tag, session=self.session, expected=self.expected, status=status, data=data
        )

    def _execute(self, request: Request) -> Response:
        region = request.command >> 1 & 3
        if request.command >> 4 != VERSION or region not in list(Region):
            return self._response(request.tag, Status.VERSION)
        if request.command & SYNC:
            if request.session != self.session:
                self.session, self.expected = request.session, 0
            beyond = request.address >> self.address_bits
            return self._response(request.tag, Status.ADDRESS if beyond else Status.OK)
        if request.session != self.session:
            return self._response(request.tag, Status.SESSION)
        if request.sequence != self.expected:
            return self._response(request.tag, Status.SEQUENCE)
        if request.address >> self.address_bits:
            return self._response(request.tag, Status.ADDRESS)
        if request.length and region == Region.MEMORY and self.core_busy():
            return self._response(request.tag, Status.BUSY)
        status, data = self._transfer(request, Region(region))
        if status is Status.OK:
            self.executed.append(request)
            if request.write:
                self.expected = (self.expected + 1) % SEQUENCES
        return self._response(request.tag, status, data)

    def _transfer(self, request: Request, region: Region) -> tuple[Status, bytes]:
        if region is Region.BOARD:
            if request.write:
                self.mlperf |= any(byte & 1 for byte in request.data)
                return Status.OK, b""
            record = self.record.encode()
            return Status.OK, bytes(record[n % len(record)] for n in range(request.length))
        bus = self.memory if region is Region.MEMORY else self.registers
        page = request.address - request.address % PAGE_BYTES
        data = b""
        for offset in range(request.length):
            address = page + (request.address + offset) % PAGE_BYTES
            if request.write:
                if bus.write(address, request.data[offset]) is None:
                    return Status.ACCESS, b""
            else:
                value = bus.read(address)
                data += bytes([0 if value is None else value])
                if value is None:
                    return Status.ACCESS, data
        return Status.OK, data
