"""Placement of blocks in scratchpads: rings that skip what is still alive."""

from accelc.compiler.footprint import Space, depth
from accelc.compiler.task import Block
from accelc.isa.config import AccelConfig


class Ring:
    """``depth`` rows handed out in a circle: the oldest is overwritten next."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._next = 0
        self._live: dict[Block, tuple[int, int]] = {}

    def place(self, rows: int) -> int | None:
        """First row of a free run of ``rows`` rows, or None; does not take it."""
        gaps: list[tuple[int, int]] = []
        row = 0
        for first, last in sorted(self._live.values()):
            gaps.append((row, first))
            row = max(row, last)
        gaps.append((row, self.depth))
        for first, last in gaps:
            if max(first, self._next) + rows <= last:
                return max(first, self._next)
        for first, last in gaps:
            if first + rows <= last:
                return first
        return None

    def take(self, block: Block, row: int) -> None:
        block.row = row
        self._live[block] = (row, row + block.rows)
        self._next = row + block.rows

    def free(self, block: Block) -> None:
        del self._live[block]


class Scratchpads:
    """All scratchpads of a configuration, one ring each."""

    def __init__(self, config: AccelConfig) -> None:
        self._rings = {
            space: Ring(depth(space, config)) for space in Space if space is not Space.MEMORY
        }

    def try_take(self, block: Block) -> bool:
        """Place ``block`` if a free run is long enough."""
        ring = self._rings[block.space]
        row = ring.place(block.rows)
        if row is not None:
            ring.take(block, row)
        return row is not None

    def free(self, block: Block) -> None:
        self._rings[block.space].free(block)
