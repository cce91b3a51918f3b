"""Requests that have no answer yet, and how long they are waited for."""

import dataclasses
import time
from dataclasses import dataclass, field

from accelc.boards.link.line import Line
from accelc.boards.link.protocol import Region


@dataclass
class Sent:
    """A request that has no answer yet."""

    region: Region
    address: int
    length: int
    #: Of a WRITE; None for a READ.
    data: bytes | None
    sequence: int
    #: Numbers of its transmissions, in order.
    numbers: list[int] = field(default_factory=list)
    time: float = 0.0


class Patience:
    """Tells when an answer is late, and when too long has passed since the last progress."""

    def __init__(self, line: Line, seconds: float) -> None:
        self._line = line
        self._seconds = seconds
        self.progress()

    def progress(self) -> None:
        self._give_up = time.monotonic() + self._seconds
        self._factor = 1.0
        self.before = dataclasses.replace(self._line.statistics)
        self.restart()

    def restart(self) -> None:
        """Something was sent again."""
        self._deadline = time.monotonic() + self._line.timeout * self._factor
        self._damages = 0

    def damaged(self, going: int, since: float) -> bool:
        """Note a damaged frame; True: nothing is left of the ``going`` sent ``since`` then.

        Not before an answer was possible: what comes earlier may be noise, and is followed by a
        shorter wait.
        """
        self._damages += 1
        if self._damages < going:
            return False
        soon = since + self._line.latency
        self._deadline = min(self._deadline, soon)
        return time.monotonic() >= soon - self._line.latency / 2

    def late(self) -> None:
        self._line.statistics.timeouts += 1
        self._factor *= 1.5
        self.restart()

    @property
    def left(self) -> float:
        """Seconds until an answer is late."""
        return max(min(self._deadline, self._give_up) - time.monotonic(), 0.0)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._give_up
