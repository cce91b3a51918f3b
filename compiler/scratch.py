"""Placement of blocks in scratchpads: rings that skip what is still alive."""

from accelc.compiler.footprint import Space, depth
from accelc.compiler.task import Block
from accelc.isa.config import AccelConfig


class Ring:
    """Rows ``start`` to ``stop`` handed out in a circle: the oldest is overwritten next."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self._next = start
        self._live: dict[Block, tuple[int, int]] = {}

    def place(self, rows: int) -> int | None:
        """First row of a free run of ``rows`` rows, or None; does not take it."""
        gaps: list[tuple[int, int]] = []
        row = self.start
        for first, last in sorted(self._live.values()):
            gaps.append((row, first))
            row = max(row, last)
        gaps.append((row, self.stop))
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
    """All scratchpads of a configuration; ``acc`` is a ring for each of its banks.

    A sequential core has one bank: nobody empties it while it is being filled.
    """

    def __init__(self, config: AccelConfig) -> None:
        self._rings: dict[Space, list[Ring]] = {
            space: [Ring(0, depth(space, config))]
            for space in Space
            if space not in (Space.ACC, Space.MEMORY)
        }
        bank = config.acc_rows // 2
        self._rings[Space.ACC] = (
            [Ring(0, config.acc_rows)]
            if config.sequential
            else [Ring(0, bank), Ring(bank, 2 * bank)]
        )
        self._owner: dict[Block, Ring] = {}
        self._turn = 0

    def try_take(self, block: Block) -> bool:
        """Place ``block`` if a free run is long enough."""
        rings = self._rings[block.space]
        if len(rings) == 2:
            # alternate: the matrix unit fills one bank while the vector unit empties the other
            rings = [rings[self._turn], rings[1 - self._turn]]
        for ring in rings:
            row = ring.place(block.rows)
            if row is not None:
                ring.take(block, row)
                self._owner[block] = ring
                if block.space is Space.ACC:
                    self._turn = 1 - self._rings[Space.ACC].index(ring)
                return True
        return False

    def free(self, block: Block) -> None:
        self._owner.pop(block).free(block)
