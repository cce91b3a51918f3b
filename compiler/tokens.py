"""Insert the tokens that keep conflicting instructions of different units in order.

For every instruction the latest conflicting instruction of each other unit is found (write after
read, read after write; only one unit writes a space and only one other reads it). Vector clocks say
which of those are known to be complete already, because an earlier token or the same unit's order
implies it; for the rest the earlier one signals and the later one waits. Each token covers
everything its sender did before, so the tokens of an ordered pair of units are consumed in the
order they are sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.footprint import Access, Space, depth, footprint
from accelc.isa.config import AccelConfig
from accelc.isa.errors import DoesNotFitError
from accelc.isa.spec import Instruction, Unit

_UNITS = tuple(Unit)
Clock = tuple[int, ...]


@dataclass
class _Touched:
    """Per row of one space: number (from 1) within its unit of the last to touch it."""

    rows: int
    written: NDArray[np.int32] = field(init=False)
    read: NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        self.written = np.zeros(self.rows, np.int32)
        self.read = np.zeros(self.rows, np.int32)


def dependencies(
    accesses: Sequence[tuple[Access, ...]],
    units: Sequence[Unit],
    config: AccelConfig,
    memory_bytes: int,
) -> list[dict[Unit, int]]:
    """Per instruction: of each other unit, how many of its instructions must be complete first."""
    touched = {
        space: _Touched(
            -(-memory_bytes // config.bus_bytes) if space is Space.MEMORY else depth(space, config)
        )
        for space in Space
    }
    counts = dict.fromkeys(_UNITS, 0)
    needs: list[dict[Unit, int]] = []
    for unit, footprints in zip(units, accesses, strict=True):
        need: dict[Unit, int] = {}
        number = counts[unit] = counts[unit] + 1
        for access in footprints:
            space = access.space
            other = space.reader if access.write else space.writer
            rows = touched[space]
            if other is not unit and access.rows.size:
                before = rows.read if access.write else rows.written
                latest = int(before[access.rows].max())
                if latest > need.get(other, 0):
                    need[other] = latest
        for access in footprints:
            rows = touched[access.space]
            if access.write:
                rows.written[access.rows] = number
            elif unit is access.space.reader:
                # what the writer reads back (GEMM its sums) its own order protects
                rows.read[access.rows] = number
        needs.append(need)
    return needs


def insert_tokens(
    instructions: Sequence[Instruction], config: AccelConfig, memory_bytes: int
) -> list[Instruction]:
    """Set the wait and signal masks of ``instructions``, which must have none yet.

    ``memory_bytes`` is the end of memory that STOREs write; loads beyond it read constants.

    Raises:
        DoesNotFitError: a token counter would overflow however the instructions are synchronised.
    """
    units: list[Unit] = []
    accesses: list[tuple[Access, ...]] = []
    limit = -(-memory_bytes // config.bus_bytes)
    for instruction in instructions:
        if instruction.unit is None:
            raise AssertionError("FINISH takes no part in synchronisation")
        units.append(instruction.unit)
        accesses.append(
            tuple(
                Access(a.space, a.rows[a.rows < limit], a.write) if a.space is Space.MEMORY else a
                for a in footprint(instruction, config)
            )
        )
    needs = dependencies(accesses, units, config, memory_bytes)
    # an instruction so far back has left its queue before fetch could get here: waiting for it is
    # free
    free = config.queue_depth + 2
    for slack in (free, min(free, config.max_tokens // 2), 0):
        masks = _synchronise(units, needs, config, slack)
        if masks is not None:
            return [
                replace(instruction, wait=wait, signal=signal)
                for instruction, wait, signal in zip(instructions, *masks, strict=True)
            ]
    raise DoesNotFitError(
        f"counters of {config.max_tokens} tokens are too small for this program; raise token_bits"
    )


def _synchronise(
    units: Sequence[Unit], needs: Sequence[dict[Unit, int]], config: AccelConfig, slack: int
) -> tuple[list[int], list[int]] | None:
    """Masks for ``needs``, or None if in program order a counter would overflow.

    Instead of an instruction more than ``slack`` back in its unit, a later one is waited for: that
    covers more, and keeps tokens from lying in their counters. As long as no counter overflows in
    program order, the earliest unfinished instruction can always proceed: no timing can deadlock.
    """
    waits, signals = [0] * len(units), [0] * len(units)
    positions: list[list[int]] = [[] for _ in _UNITS]
    clocks: list[Clock] = []  # known complete when the instruction starts
    latest: list[Clock] = [(0,) * len(_UNITS) for _ in _UNITS]
    tokens: dict[tuple[Unit, Unit], list[tuple[int, int]]] = {}
    for position, (unit, need) in enumerate(zip(units, needs, strict=True)):
        clock = latest[unit]
        counts = {
            other: max(count, len(positions[other]) - slack)
            for other, count in need.items()
            if clock[other] < count
        }
        # the newest sender first: it is the likeliest to know of the others
        wanted = sorted(
            ((positions[other][count - 1], other, count) for other, count in counts.items()),
            reverse=True,
        )
        for sender, other, count in wanted:
            if clock[other] >= need[other]:
                continue
            waits[position] |= 1 << other
            signals[sender] |= 1 << unit
            tokens.setdefault((other, unit), []).append((sender, position))
            known = list(clocks[sender])
            known[other] = count
            clock = tuple(map(max, clock, known))
        clocks.append(clock)
        positions[unit].append(position)
        own = list(clock)
        own[unit] = len(positions[unit])
        latest[unit] = tuple(own)
    for pairs in tokens.values():
        limit = config.max_tokens
        # token k lies in its counter together with token k - limit if that is taken after k is sent
        if any(old[1] >= new[0] for old, new in zip(pairs, pairs[limit:], strict=False)):
            return None
    return waits, signals
