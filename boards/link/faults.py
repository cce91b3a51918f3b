"""A bad serial line: an endpoint behind a pseudo-terminal that loses, repeats and invents bytes."""

import contextlib
import os
import random
import select
import threading
import time
import tty
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from accelc.boards.link.protocol import DELIMITER, ESCAPE


class Endpoint(Protocol):
    """The board's end of the link: gateware or model."""

    def receive(self, data: bytes) -> bytes: ...

    def reset(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class FaultRates:
    """Chances per byte, in each direction; of stalls per portion of bytes."""

    drop: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    insert: float = 0.0
    #: Portions are also repeated as a whole, which repeats frames.
    repeat: float = 0.0
    stall: float = 0.0
    stall_seconds: float = 0.02


#: Everything at once, about one fault in 250 bytes.
ROUGH = FaultRates(drop=1e-3, duplicate=1e-3, corrupt=1e-3, insert=1e-3, repeat=0.01, stall=0.005)


class FaultInjector:
    """Does to bytes what :class:`FaultRates` says, repeatably, and counts it."""

    def __init__(self, rates: FaultRates, seed: int) -> None:
        self.rates = rates
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)

    def _hit(self, what: str, chance: float) -> bool:
        if not chance or self._random.random() >= chance:
            return False
        self.counts[what] += 1
        return True

    def apply(self, data: bytes) -> bytes:
        """What arrives of ``data``; may take some time."""
        rates, rng = self.rates, self._random
        if data and self._hit("stall", rates.stall):
            time.sleep(rng.random() * 2 * rates.stall_seconds)
        out = bytearray()
        for byte in data:
            if self._hit("drop", rates.drop):
                continue
            if self._hit("corrupt", rates.corrupt):
                byte ^= 1 << rng.randrange(8)
            out.append(byte)
            if self._hit("duplicate", rates.duplicate):
                out.append(byte)
            if self._hit("insert", rates.insert):
                # What has a meaning is worse than what has none.
                out.append(rng.choice((DELIMITER, ESCAPE, rng.randrange(256))))
        if data and self._hit("repeat", rates.repeat):
            out += bytes(out)
        return bytes(out)


class BadLine:
    """Serves ``endpoint`` at a pseudo-terminal, ``port``, with faults in both directions.

    Its thread runs from ``with`` to the end of the block.

    Parameters
    ----------
    endpoint
        Is called from that thread alone.
    rates, seed
        Of the faults, in each direction.
    between
        Called with the number of each portion of bytes before the endpoint gets it: to reset it,
        say.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        rates: FaultRates | None = None,
        *,
        seed: int = 0,
        between: Callable[[int], None] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.outward = FaultInjector(rates or FaultRates(), 2 * seed)
        self.inward = FaultInjector(rates or FaultRates(), 2 * seed + 1)
        #: Portions of bytes the host has sent.
        self.portions = 0
        self._between = between
        self._master, self._slave = os.openpty()
        # Kept open here, so that the line stays up while the host opens and closes it.
        tty.setraw(self._slave)
        self.port: str = os.ttyname(self._slave)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="bad line", daemon=True)
        #: What the endpoint raised, if it did.
        self.error: BaseException | None = None

    @property
    def counts(self) -> Counter[str]:
        """Faults so far, both directions."""
        return self.outward.counts + self.inward.counts

    def __enter__(self) -> "BadLine":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unplug()
        if self.error is not None and kind is None:
            raise self.error

    def unplug(self) -> None:
        """Pull the cable."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        for descriptor in (self._master, self._slave):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _serve(self) -> None:
        try:
            while not self._stop.is_set():
                if not select.select([self._master], [], [], 0.01)[0]:
                    continue
                self._pass_on(os.read(self._master, 4096))
        except OSError:
            pass  # the terminal is gone
        except BaseException as error:  # shown by the test, not by the thread
            self.error = error

    def _pass_on(self, data: bytes) -> None:
        if self._between is not None:
            self._between(self.portions)
        self.portions += 1
        answer = self.inward.apply(self.endpoint.receive(self.outward.apply(data)))
        while answer and not self._stop.is_set():
            if select.select([], [self._master], [], 0.01)[1]:
                answer = answer[os.write(self._master, answer[:1024]) :]
