"""Where every value lives: liveness over the steps, and static offsets in one arena."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from accelc.compiler.cpu.plan import Plan

#: Every value starts on its own cache line.
ALIGNMENT = 64

Place = Literal["input", "output", "arena", "constant"]


@dataclass(frozen=True)
class Location:
    """``offset``: which input or output, or the byte in the arena or in the constants."""

    place: Place
    offset: int


@dataclass(frozen=True)
class Lifetime:
    """A value's bytes, and the steps from the one that writes it to the last that reads it."""

    name: str
    size: int
    first: int
    last: int


def align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def lifetimes(plan: Plan, pinned: Mapping[str, Location]) -> list[Lifetime]:
    """Lifetimes of the roots that need arena memory (not ``pinned``)."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, step in enumerate(plan.steps):
        for name in (*step.writes, *step.reads):
            root = plan.root(name)
            if not name or root in pinned:
                continue
            first.setdefault(root, number)
            last[root] = number
    return [
        Lifetime(name, max(1, plan.size(name) * plan.dtype(name).itemsize), first[name], last[name])
        for name in first
    ]


def assign(values: Sequence[Lifetime]) -> tuple[dict[str, int], int]:
    """Offsets without overlap among values alive together, and the arena's bytes.

    Largest first, each at the lowest gap that is free during its whole life.
    """
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[str, int] = {}
    total = 0
    for value in sorted(values, key=lambda v: (-v.size, v.first, v.name)):
        size = align(value.size)
        busy = sorted(
            (start, end)
            for start, end, other in placed
            if other.first <= value.last and value.first <= other.last
        )
        offset = 0
        for start, end in busy:
            if offset + size <= start:
                break
            offset = max(offset, end)
        placed.append((offset, offset + size, value))
        offsets[value.name] = offset
        total = max(total, offset + size)
    return offsets, total
