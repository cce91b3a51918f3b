"""Where every value lives, and how long: liveness over the steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from accelc.compiler.cpu.plan import Plan
from accelc.compiler.memory_plan import Lifetime

Place = Literal["input", "output", "arena", "constant"]


@dataclass(frozen=True)
class Location:
    """``offset``: which input or output, or the byte in the arena or in the constants."""

    place: Place
    offset: int


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
        Lifetime(
            name=name,
            nbytes=max(1, plan.size(name) * plan.dtype(name).itemsize),
            first=first[name],
            last=last[name],
        )
        for name in first
    ]
