"""The host's end of the protocol: sessions, windows, retransmission."""

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from accelc.boards.link.line import FIRST_LATENCY_SECONDS, Line, LineStatistics, Nothing
from accelc.boards.link.port import Port, PortGone
from accelc.boards.link.protocol import (
    BOARD_REQUESTS,
    NO_SESSION,
    PAGE_BYTES,
    READ_BYTES,
    SEQUENCES,
    STATUS_MEANINGS,
    SYNC_COMMAND,
    VERSION,
    WRITE_BYTES,
    Region,
    Request,
    Response,
    Status,
    command,
)
from accelc.boards.link.waiting import Patience, Sent
from accelc.isa.errors import DeviceError

#: WRITEs on the way at once; far below half of SEQUENCES, so that an old answer is known as one.
MAX_WINDOW = 32
#: The smallest pieces that a line with many errors is given.
_MIN_PIECE_BYTES = 16
#: Part of the patience that an answer is thought to take before any came.
_LATENCY_PART = 1 / 100
#: Times a READ is sent before it is cut.
_CUT_AFTER = 2
_TAGS = 1 << 16

Progress = Callable[[int], None]
#: Where, and what to write there.
Piece = tuple[Region, int, bytes]


class Requester:
    """Executes reads and writes on a board, each exactly once, however bad the line.

    Nothing waits longer than ``patience`` seconds without progress. When a method has raised, what
    was not yet executed never will be.

    Raises:
        DeviceError: from every method: the board does not answer, was reset, belongs to another
            program, or answers with an error.
    """

    def __init__(self, port: Port, *, patience: float = 5.0) -> None:
        # Whoever is patient has a slow board, a simulated one, which should not be asked again and
        # again before it can have answered.
        self.line = Line(port, max(FIRST_LATENCY_SECONDS, patience * _LATENCY_PART))
        self.name = port.name
        self._patience = patience
        self._session = NO_SESSION
        self._sequence = 0
        self._number = 0
        # The last transmission before all that was unanswered is sent again.
        self._mark = 0
        self._window = 4.0
        # Bytes of a request, by whether it is a WRITE.
        self._size = {False: READ_BYTES, True: WRITE_BYTES}
        # The last transfer did not come to its end.
        self._unfinished = False
        #: Why nothing can be done with the board any more.
        self.lost: str | None = None

    @property
    def statistics(self) -> LineStatistics:
        return self.line.statistics

    # Sessions.

    def connect(self) -> None:
        """Open a session, and find out what is wrong if there is no answer."""
        self.lost = None
        self._unfinished = False
        third = self._patience / 3
        with self._noting_loss():
            if self._synchronise(third):
                return
            # An MLPerf Tiny runner may have had the line before us.
            self.line.port.send_break()
            if not self._synchronise(self._patience - third):
                raise self._lose(self._silence())

    def _synchronise(self, patience: float) -> bool:
        """Start a session that no request before has part in; False: no answer."""
        session = secrets.randbelow(_TAGS - 1) + 1
        self.line.forget()
        first = self._number + 1
        waiting = Patience(self.line, patience)
        response: Response | Nothing = Nothing.LATE
        while not waiting.over:
            if response is Nothing.LATE:
                self._number += 1
                tag = self._number % _TAGS
                self.statistics.repeated += self._number > first
                self.line.send([Request(command=SYNC_COMMAND, session=session, tag=tag)])
            response = self.line.next(waiting.left)
            if response is Nothing.LATE:
                waiting.late()
            if isinstance(response, Nothing) or response.status is Status.CHECKSUM:
                continue
            if self._answered(response) < first:
                continue
            if response.status is Status.VERSION:
                raise self._lose(
                    f"{self.name}: the board does not speak version {VERSION} of the host link; "
                    "build its bitstream with this version of accelc and flash it"
                )
            if response.status is Status.OK and response.session == session:
                self._session, self._sequence = session, response.expected
                self._mark = self._number
                self._unfinished = False
                return True
        return False

    def _silence(self) -> str:
        """Why there may be no answer."""
        name, baud, line = self.name, self.line.port.baud, self.line
        if not self.statistics.received_bytes:
            return (
                f"nothing answers on {name}; is it the right port, is the board powered, and does "
                "it have a bitstream of accelc (`accelc flash`)?"
            )
        if line.sent in line.received:
            return f"{name} returns what is sent to it; are its two wires connected to each other?"
        return (
            f"what answers on {name} does not speak the host link "
            f"({self.statistics.received_bytes} bytes received, {self.statistics.answers} whole "
            f"frames); is {baud} the board's baud rate, and is it the right port?"
        )

    def _lose(self, reason: str) -> DeviceError:
        self.lost = reason
        return DeviceError(reason)

    @contextmanager
    def _noting_loss(self) -> Iterator[None]:
        if self.lost is not None:
            raise DeviceError(f"the connection to the board is lost: {self.lost}")
        try:
            if self._unfinished and not self._synchronise(self._patience):
                raise self._no_progress(self.statistics)
            self._unfinished = True
            yield
            self._unfinished = False
        except PortGone as error:
            self.lost = str(error)
            raise

    def _refused(self, response: Response, sent: Sent) -> DeviceError:
        """The error an answer reports, once nothing more of this session can be executed."""
        name, status = self.name, response.status
        if status is Status.SESSION:
            if response.session == NO_SESSION:
                return self._lose(f"{name}: the board was reset during the transfer")
            return self._lose(f"{name}: another program has taken the board over")
        if status is Status.SEQUENCE:
            return self._lose(f"{name}: the board has lost count of the requests")
        what = "reading" if sent.data is None else "writing"
        text = (
            f"{name}: {what} {sent.length} bytes at {sent.address:#x} of {sent.region.name}: "
            f"{status.name}, {STATUS_MEANINGS[status]}"
        )
        if not self._synchronise(self._patience):
            return self._lose(text + "; then no answer any more")
        return DeviceError(text)

    def _no_progress(self, before: LineStatistics) -> DeviceError:
        now = self.statistics
        bad = now.damaged - before.damaged + now.refused - before.refused
        if bad:
            return self._lose(
                f"{self.name}: too many errors on the line: {bad} damaged frames and no good one "
                f"in {self._patience:g} s; try a shorter cable or a lower baud rate"
            )
        return self._lose(
            f"{self.name}: no answer for {self._patience:g} s; was the board unplugged, or does "
            "it have another bitstream now?"
        )

    # Transmissions.

    def _answered(self, response: Response) -> int:
        """Number of the transmission it answers."""
        return self._number - (self._number - response.tag) % _TAGS

    def _find(self, response: Response, waiting: Iterable[Sent]) -> Sent | None:
        """The request it answers, unless that needs none any more."""
        number = self._answered(response)
        return next((sent for sent in waiting if number in sent.numbers), None)

    def _transmit(self, requests: Iterable[Sent]) -> None:
        now = time.monotonic()
        encoded: list[Request] = []
        for sent in requests:
            self._number += 1
            self.statistics.repeated += bool(sent.numbers)
            sent.numbers.append(self._number)
            sent.time = now
            encoded.append(
                Request(
                    command=command(sent.region, write=sent.data is not None),
                    session=self._session,
                    sequence=sent.sequence,
                    tag=self._number % _TAGS,
                    address=sent.address,
                    length=sent.length,
                    data=sent.data or b"",
                )
            )
        self.line.send(encoded)

    def _measured(self, sent: Sent) -> None:
        if len(sent.numbers) == 1:
            self.line.measured(sent.time)

    def _good(self, write: bool) -> None:
        self._window = min(float(MAX_WINDOW), self._window + 0.5)
        largest = WRITE_BYTES if write else READ_BYTES
        self._size[write] = min(self._size[write] + self._size[write] // 16, largest)

    def _bad(self, write: bool) -> None:
        self._mark = self._number
        self._window = max(1.0, self._window / 2)
        self._size[write] = max(self._size[write] * 3 // 4, _MIN_PIECE_BYTES)

    # Transfers.

    def write(self, pieces: Iterable[Piece], progress: Progress | None = None) -> None:
        """Write one piece after the other; returns when the board has executed all.

        ``progress`` is told, now and then, how many bytes more were written.
        """
        with self._noting_loss():
            self._write(deque((r, a, memoryview(d)) for r, a, d in pieces if d), progress)

    def _cut(self, left: deque[tuple[Region, int, memoryview]]) -> Sent:
        """The next WRITE."""
        region, address, data = left.popleft()
        size = min(self._size[True], PAGE_BYTES - address % PAGE_BYTES)
        if size < len(data):
            left.appendleft((region, address + size, data[size:]))
        part = bytes(data[:size])
        sent = Sent(region, address, len(part), part, self._sequence)
        self._sequence = (self._sequence + 1) % SEQUENCES
        return sent

    def _write(
        self, left: deque[tuple[Region, int, memoryview]], progress: Progress | None
    ) -> None:
        # In order; of these the first `going` were sent since the last time all were sent again.
        waiting: deque[Sent] = deque()
        going = 0
        patience = Patience(self.line, self._patience)
        while left or waiting:
            ready: list[Sent] = []
            while going < int(self._window) and (going < len(waiting) or left):
                if going == len(waiting):
                    waiting.append(self._cut(left))
                ready.append(waiting[going])
                going += 1
            self._transmit(ready)
            if patience.over:
                raise self._no_progress(patience.before)
            response = self.line.next(patience.left)
            if response is Nothing.LATE:
                patience.late()
                self._bad(True)
                going = 0
            elif response is Nothing.DAMAGED:
                going = self._damaged(waiting, going, patience)
            else:
                going = self._acknowledge(response, waiting, going, patience, progress)

    def _damaged(self, waiting: deque[Sent], going: int, patience: Patience) -> int:
        """Something was damaged: when that may be all there was on the way, send it again."""
        if not going or not patience.damaged(going, waiting[0].time):
            return going
        self._bad(True)
        patience.restart()
        return 0

    def _acknowledge(
        self,
        response: Response,
        waiting: deque[Sent],
        going: int,
        patience: Patience,
        progress: Progress | None,
    ) -> int:
        """Take what was executed from ``waiting``; returns how many of the rest are on the way."""
        sent = self._find(response, waiting)
        if response.status is Status.SESSION and sent is not None:
            raise self._refused(response, sent)
        if response.session != self._session:
            return going  # of before our time
        done = (response.expected - waiting[0].sequence) % SEQUENCES
        if 0 < done <= len(waiting):
            for _ in range(done):
                finished = waiting.popleft()
                if finished is sent:
                    self._measured(finished)
                if progress is not None:
                    progress(finished.length)
                self._good(True)
            going = max(going - done, 0)
            patience.progress()
        if response.status is Status.CHECKSUM:
            self.statistics.refused += 1
            return self._damaged(waiting, going, patience)
        if response.status is Status.SEQUENCE:
            self.statistics.refused += 1
            if self._answered(response) > self._mark and going:
                self._bad(True)
                patience.restart()
                return 0
        elif response.status is not Status.OK and sent is not None and sent in waiting:
            raise self._refused(response, sent)
        return going

    def read(
        self, region: Region, address: int, nbytes: int, progress: Progress | None = None
    ) -> bytes:
        """``nbytes`` from ``address`` on."""
        with self._noting_loss():
            return self._read(region, address, nbytes, progress)

    def _read(self, region: Region, address: int, nbytes: int, progress: Progress | None) -> bytes:
        result = bytearray(nbytes)
        left = deque([(address, nbytes)] if nbytes else [])
        waiting: deque[Sent] = deque()
        again: list[Sent] = []
        patience = Patience(self.line, self._patience)
        while left or waiting:
            while left and len(waiting) < BOARD_REQUESTS:
                start, rest = left.popleft()
                size = min(self._size[False], PAGE_BYTES - start % PAGE_BYTES, rest)
                if size < rest:
                    left.appendleft((start + size, rest - size))
                waiting.append(Sent(region, start, size, None, self._sequence))
                again.append(waiting[-1])
            self._transmit(again)
            again = []
            if patience.over:
                raise self._no_progress(patience.before)
            response = self.line.next(patience.left)
            if response is Nothing.LATE:
                patience.late()
                self._bad(False)
                again = list(waiting)
            elif isinstance(response, Nothing) or response.status is Status.CHECKSUM:
                # Answers come in order: it was the oldest, or the answer to it.
                self.statistics.refused += isinstance(response, Response)
                if patience.damaged(1, waiting[0].time):
                    self._bad(False)
                    patience.restart()
                    again = [waiting[0]]
            elif (sent := self._find(response, waiting)) is None:
                continue
            elif response.status is not Status.OK:
                raise self._refused(response, sent)
            elif response.session == self._session and len(response.data) == sent.length:
                offset = sent.address - address
                result[offset : offset + sent.length] = response.data
                waiting.remove(sent)
                self._measured(sent)
                self._good(False)
                patience.progress()
                if progress is not None:
                    progress(sent.length)
                # For the same reason the answer to an older one is lost.
                again = [s for s in waiting if s.numbers[-1] < self._answered(response)]
            # What fails time and again is asked for in smaller pieces.
            for failed in [s for s in again if len(s.numbers) >= _CUT_AFTER]:
                if failed.length > self._size[False]:
                    again.remove(failed)
                    waiting.remove(failed)
                    left.appendleft((failed.address, failed.length))
        return bytes(result)
