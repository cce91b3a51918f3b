"""The nearest configuration that would fit, where one does not."""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from accelc.boards.board import Family
from accelc.boards.build.cost import estimate
from accelc.boards.build.family import Resource, Usage
from accelc.boards.build.synthesis import TooLargeError
from accelc.isa.config import AccelConfig
from accelc.isa.errors import ConfigError

#: Estimates must stay this far below what the device has: place and route needs some air, and
#: the model is off by some percent.
MARGIN = 0.95
#: Rows below which a scratchpad is of no use to the compiler.
_FEWEST_ROWS = {
    "inp_rows": 128, "wgt_rows": 16, "acc_rows": 64, "vin_rows": 64, "out_rows": 64, "prm_rows": 8,
}  # fmt: skip
#: Steps looked at before giving up.
_LIMIT = 5_000


def _halved(name: str, least: int) -> Callable[[AccelConfig], dict[str, Any] | None]:
    def reduce(config: AccelConfig) -> dict[str, Any] | None:
        value = getattr(config, name)
        return {name: value // 2} if value // 2 >= least else None

    return reduce


def _without(name: str) -> Callable[[AccelConfig], dict[str, Any] | None]:
    return lambda config: {name: False} if getattr(config, name) else None


def _fewer_outputs(config: AccelConfig) -> dict[str, Any] | None:
    if config.block_out // 2 < config.block_in:
        return None
    half = config.block_out // 2
    return {"block_out": half, "vector_lanes": min(config.vector_lanes, half)}


def _smaller_blocks(config: AccelConfig) -> dict[str, Any] | None:
    half = config.block_in // 2
    if half < 4:
        return None
    return {
        "block_in": half,
        "block_out": config.block_out // 2,
        "bus_bytes": min(config.bus_bytes, half),
        "vector_lanes": min(config.vector_lanes, config.block_out // 2),
    }


def _sequential(config: AccelConfig) -> dict[str, Any] | None:
    if config.sequential:
        return None
    return {"sequential": True, "batch": 1, "vector_lanes": 1, "add": False, "lut": False}


#: What may be given up, and how much it hurts: halving a scratchpad costs some traffic, fewer
#: vector lanes cost cycles after each tile, an operator without its stage runs on the CPU, smaller
#: blocks halve or quarter the speed, a sequential core overlaps nothing.
REDUCTIONS: tuple[tuple[float, Callable[[AccelConfig], dict[str, Any] | None]], ...] = (
    *((1.0, _halved(name, least)) for name, least in _FEWEST_ROWS.items()),
    (1.0, _without("lookahead")),
    (1.5, _halved("vector_lanes", 1)),
    (3.0, _without("lut")),
    (4.0, _without("add")),
    (8.0, _fewer_outputs),
    (16.0, _smaller_blocks),
    (24.0, _sequential),
)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A configuration that should fit."""

    config: AccelConfig
    #: Parameters that differ from the one that does not fit.
    changes: dict[str, Any]
    #: Estimated resources of the whole design.
    used: dict[Resource, int]

    def __str__(self) -> str:
        changes = ", ".join(
            f"{name} = {str(value).lower()}" for name, value in self.changes.items()
        )
        used = ", ".join(f"{count} {item.value}s" for item, count in self.used.items() if count)
        return f"{changes} (estimated: {used})"


def _successors(config: AccelConfig) -> Iterator[tuple[float, AccelConfig]]:
    for pain, reduction in REDUCTIONS:
        changes = reduction(config)
        if changes is None:
            continue
        try:
            yield pain, replace(config, **changes)
        except ConfigError:
            continue  # one of the configuration's own rules


def nearest_that_fits(
    family: Family, config: AccelConfig, usage: tuple[Usage, ...]
) -> Advice | None:
    """The configuration with the least given up that is estimated to fit.

    ``usage`` is what the design with ``config`` uses. None if nothing is estimated to fit.
    """
    used = {item.resource: item.used for item in usage}
    limits = {item.resource: _limit(item) for item in usage}
    dsps = next((item.available for item in usage if item.resource is Resource.DSP), 0)
    order = itertools.count()  # configurations cannot be compared
    queue = [(0.0, next(order), config, used)]
    seen = {config}
    for _ in range(_LIMIT):
        if not queue:
            return None
        pain, _, candidate, guess = heapq.heappop(queue)
        missing = [resource for resource, limit in limits.items() if guess[resource] > limit]
        if not missing:
            changes = {
                name: value
                for name, value in candidate.to_dict().items()
                if value != getattr(config, name)
            }
            return Advice(config=candidate, changes=changes, used=guess)
        for more, following in _successors(candidate):
            if following in seen:
                continue
            seen.add(following)
            smaller = estimate(family, used, dsps, config, following)
            # what gives up something that is not missing does not help
            if any(smaller[r] < guess[r] for r in missing):
                heapq.heappush(queue, (pain + more, next(order), following, smaller))
    return None


def _limit(item: Usage) -> float:
    """How much may be used: with a margin where a lot is, and counted in estimates."""
    estimated = item.resource in (Resource.LUT, Resource.FF)
    tight = item.used > item.available * MARGIN
    return item.available * (MARGIN if estimated and tight else 1)


def explain(error: TooLargeError, family: Family, config: AccelConfig) -> str:
    """The error's message, and the nearest configuration that would fit."""
    advice = nearest_that_fits(family, config, error.usage)
    if advice is None:
        return f"{error}; no smaller configuration is estimated to fit"
    return f"{error}; the nearest configuration that should fit has {advice}"
