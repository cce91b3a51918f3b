"""Random transfers whose outcome is known: what a line or an endpoint is tested with."""

import random

from accelc.boards.link.protocol import Region
from accelc.boards.link.requester import Requester

#: A register that counts how often it is written: what must happen once shows here.
BELL = 0x40


class Exercise:
    """Writes and reads random pieces of memory, and checks what it reads.

    Parameters
    ----------
    requester
        The board.
    memory_bytes
        How much memory is used, from 0; it is as it was made: all zeros.
    longest
        Bytes of the longest transfer.
    seed
        Of everything.
    """

    def __init__(self, requester: Requester, *, memory_bytes: int, longest: int, seed: int) -> None:
        self._requester = requester
        self._longest = longest
        self._random = random.Random(seed)
        #: What the board's memory must hold.
        self.memory = bytearray(memory_bytes)
        #: What was written to BELL, in order.
        self.rung: list[int] = []
        self.transfers = 0
        self.moved_bytes = 0
        #: Bytes read that were not what had been written.
        self.wrong_bytes = 0

    def step(self) -> None:
        """One transfer."""
        rng = self._random
        size = min(rng.choice((1, 4, 16, 60, self._longest)), self._longest)
        address = rng.randrange(len(self.memory) - size)
        kind = rng.randrange(10)
        if kind < 5:
            # what must be escaped is as frequent as all else
            data = rng.randbytes(size) if rng.random() < 0.8 else (b"~}" * size)[:size]
            self._requester.write([(Region.MEMORY, address, data)])
            self.memory[address : address + size] = data
        elif kind < 9:
            self._compare(address, self._requester.read(Region.MEMORY, address, size))
        else:
            size, value = 2, rng.randrange(256)
            pieces = [(Region.REGISTERS, BELL, bytes([value])), (Region.REGISTERS, 4, b"x")]
            self._requester.write(pieces)
            self.rung.append(value)
        self.transfers += 1
        self.moved_bytes += size

    def check(self) -> None:
        """Read and compare all memory."""
        self._compare(0, self._requester.read(Region.MEMORY, 0, len(self.memory)))

    def _compare(self, address: int, found: bytes) -> None:
        expected = self.memory[address : address + len(found)]
        self.wrong_bytes += sum(f != e for f, e in zip(found, expected, strict=True))
