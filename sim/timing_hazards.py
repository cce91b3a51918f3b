"""Cycles the matrix unit waits because a row reads an accumulator that is still being written."""

import functools

#: A row may read an accumulator this many cycles after another row that writes it was issued.
HAZARD_DISTANCE = 4


@functools.cache
def hazard_stalls(lines: int, columns: int, acc_y: int, acc_x: int, spacing: int) -> int:
    """Cycles lost in one weight tile whose rows all read their accumulators.

    Fired rows follow one another ``spacing`` cycles apart through ``lines`` lines of ``columns``
    accumulators with the given strides (modulo 2^16).
    """
    reach = -(-HAZARD_DISTANCE // max(spacing, 1)) - 1
    if reach < 1 or lines * columns < 2 or not _collides(lines, columns, acc_y, acc_x, reach):
        return 0
    ready: dict[int, int] = {}
    time = 0
    for y in range(lines):
        for x in range(columns):
            row = (y * acc_y + x * acc_x) & 0xFFFF
            time = max(time + spacing, ready.get(row, 0))
            ready[row] = time + HAZARD_DISTANCE
    return time - lines * columns * spacing


def _collides(lines: int, columns: int, acc_y: int, acc_x: int, reach: int) -> bool:
    """Whether two of ``reach + 1`` successive rows are the same accumulator.

    Looks at the first line and at the step to the second: all other places repeat these.
    """
    shown = min(lines, reach + 2)
    rows = [
        (y * acc_y + x * acc_x) & 0xFFFF
        for y in range(shown)
        for x in range(columns)
        if y or x <= 2 * reach or x >= columns - 2 * reach
    ]
    return any(rows[i] == rows[i - d] for d in range(1, reach + 1) for i in range(d, len(rows)))
