"""Requests out, answers in, and what is known about the line between."""

import enum
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from accelc.boards.link.port import Port
from accelc.boards.link.protocol import (
    CRC_BYTES,
    DELIMITER,
    READ_BYTES,
    RESPONSE_HEADER,
    RESPONSE_TRAILER,
    Deframer,
    Request,
    Response,
)

#: Answers are waited for at least this long: USB adapters deliver every 16 ms.
MIN_TIMEOUT_SECONDS = 0.05
#: What an answer takes before any came.
FIRST_LATENCY_SECONDS = 0.1
_LONGEST_ANSWER = RESPONSE_HEADER.size + READ_BYTES + RESPONSE_TRAILER.size + CRC_BYTES
#: Bytes kept of what arrived last, to tell what it is if it is not answers.
_KEPT_BYTES = 256


@dataclass
class LineStatistics:
    """What happened on the line since it was opened."""

    requests: int = 0
    #: Of these, those sent again.
    repeated: int = 0
    answers: int = 0
    #: Pieces of what was received that were not frames.
    damaged: int = 0
    #: Answers that said that a request arrived damaged, or out of order.
    refused: int = 0
    timeouts: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


class Nothing(enum.Enum):
    """What came instead of an answer."""

    LATE = "nothing came in time"
    DAMAGED = "something that is no answer"


class Line:
    """Frames to and from a port, and how long answers take."""

    def __init__(self, port: Port, latency: float = FIRST_LATENCY_SECONDS) -> None:
        self.port = port
        self.statistics = LineStatistics()
        #: The last bytes received, and what was sent last.
        self.received = self.sent = b""
        self._deframer = Deframer(_LONGEST_ANSWER)
        self._ready: deque[Response] = deque()
        #: Seconds an answer takes, and how far that varies.
        self.latency = latency
        self._jitter = latency / 2

    def send(self, requests: Iterable[Request]) -> None:
        frames = [request.encode() for request in requests]
        if frames:
            # One more delimiter, in case the last one is lost: nothing comes behind it for a while.
            data = b"".join(frames) + bytes([DELIMITER])
            self.statistics.requests += len(frames)
            self.statistics.sent_bytes += len(data)
            self.sent = frames[-1]
            self.port.write(data)

    def next(self, seconds: float) -> Response | Nothing:
        """The next answer; waits for at most ``seconds``."""
        deadline = time.monotonic() + seconds
        while not self._ready:
            data = self.port.read(max(deadline - time.monotonic(), 0.0))
            if not data:
                return Nothing.LATE
            before = self.statistics.damaged
            self._receive(data)
            if self.statistics.damaged > before and not self._ready:
                return Nothing.DAMAGED
        return self._ready.popleft()

    def forget(self) -> None:
        """Drop answers that nobody has looked at."""
        self._ready.clear()

    def _receive(self, data: bytes) -> None:
        statistics = self.statistics
        statistics.received_bytes += len(data)
        self.received = (self.received + data)[-_KEPT_BYTES:]
        for content in self._deframer.feed(data):
            response = Response.decode(content)
            if response is None:
                self._deframer.damaged += 1
            else:
                statistics.answers += 1
                self._ready.append(response)
        statistics.damaged = self._deframer.damaged

    @property
    def timeout(self) -> float:
        """Seconds after which an answer is late."""
        return max(MIN_TIMEOUT_SECONDS, 1.5 * self.latency + 4 * self._jitter)

    def measured(self, since: float) -> None:
        """An answer came to what was sent once, at the time ``since``."""
        error = time.monotonic() - since - self.latency
        self.latency += error / 8
        self._jitter += (abs(error) - self._jitter) / 4
