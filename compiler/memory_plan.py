"""Static allocation of activations: what never lives at the same time shares bytes."""

import bisect
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

#: Every allocation starts at a multiple of this: whole beats of the widest bus.
ALIGNMENT_BYTES = 64
#: Pairs of tensors that live together, a tensor, up to which all of them are looked at.
MAX_PAIRS = 50
#: Gaps that are searched for the one that fits best.
MAX_GAPS = 256
#: Beyond every address.
_FAR = 1 << 62


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """A tensor that must keep its bytes from step ``first`` to step ``last``, both included."""

    name: str
    nbytes: int
    first: int
    last: int

    def overlaps(self, other: "Lifetime") -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Where each tensor lies, the bytes that takes, and the fewest any allocation could take."""

    addresses: Mapping[str, int]
    peak_bytes: int
    #: Largest sum of what lives at one step.
    lower_bound_bytes: int


def plan_memory(lifetimes: Sequence[Lifetime], *, share: bool = True) -> MemoryPlan:
    """Give every tensor an address that is free during its life.

    Two ways are tried, the smaller result is taken: large tensors first, each at the lowest address
    (the gaps that large ones leave are filled by small ones later), and in order of birth, each in
    the smallest gap that holds it. The first costs a look at every pair that lives together; where
    there are more than ``MAX_PAIRS`` a tensor, only the second is tried. Without ``share`` every
    tensor has bytes of its own.
    """
    bound = _lower_bound(lifetimes)
    if not share:
        addresses, peak = _apart(lifetimes)
    else:
        addresses, peak = _by_birth(lifetimes)
        if peak > bound and _pairs(lifetimes) <= MAX_PAIRS * (len(lifetimes) + 1000):
            other = _by_size(lifetimes)
            addresses, peak = min((other, (addresses, peak)), key=lambda found: found[1])
    return MemoryPlan(addresses=addresses, peak_bytes=peak, lower_bound_bytes=bound)


#: Addresses by name, and the bytes they take.
_Plan = tuple[dict[str, int], int]


def _apart(lifetimes: Sequence[Lifetime]) -> _Plan:
    addresses: dict[str, int] = {}
    end = 0
    for tensor in lifetimes:
        addresses[tensor.name] = end
        end += aligned(tensor.nbytes)
    return addresses, end


def _lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Largest sum of what lives at one step."""
    changes: dict[int, int] = {}
    for tensor in lifetimes:
        changes[tensor.first] = changes.get(tensor.first, 0) + aligned(tensor.nbytes)
        changes[tensor.last + 1] = changes.get(tensor.last + 1, 0) - aligned(tensor.nbytes)
    alive = bound = 0
    for moment in sorted(changes):
        alive += changes[moment]
        bound = max(bound, alive)
    return bound


def _pairs(lifetimes: Sequence[Lifetime]) -> int:
    """How many pairs of tensors live together at some step."""
    firsts = np.sort([t.first for t in lifetimes])
    lasts = np.sort([t.last for t in lifetimes])
    begun = np.searchsorted(firsts, [t.last for t in lifetimes], "right")
    ended = np.searchsorted(lasts, [t.first for t in lifetimes], "left")
    return int((begun - ended - 1).sum()) // 2


class _Alive:
    """Placed tensors, to be found by the steps at which they live."""

    def __init__(self, lifetimes: Sequence[Lifetime]) -> None:
        steps = max((t.last for t in lifetimes), default=0) + 1
        self._leaves = 1 << max(0, steps - 1).bit_length()
        #: A binary tree over the steps: what lives during all of a node's steps.
        self._covers: dict[int, list[tuple[int, int]]] = {}
        self._firsts: list[tuple[int, int, int]] = []

    def add(self, tensor: Lifetime, start: int) -> None:
        place = start, start + aligned(tensor.nbytes)
        bisect.insort(self._firsts, (tensor.first, *place))
        low, high = tensor.first + self._leaves, tensor.last + self._leaves + 1
        while low < high:
            if low & 1:
                self._covers.setdefault(low, []).append(place)
                low += 1
            if high & 1:
                high -= 1
                self._covers.setdefault(high, []).append(place)
            low, high = low // 2, high // 2

    def beside(self, tensor: Lifetime) -> list[tuple[int, int]]:
        """First and last address of all that lives at some time of ``tensor``'s life, sorted."""
        begin = bisect.bisect_right(self._firsts, (tensor.first, _FAR, _FAR))
        end = bisect.bisect_right(self._firsts, (tensor.last, _FAR, _FAR))
        found = [(start, stop) for _, start, stop in self._firsts[begin:end]]
        node = tensor.first + self._leaves
        while node:
            found.extend(self._covers.get(node, ()))
            node //= 2
        return sorted(found)


def _by_size(lifetimes: Sequence[Lifetime]) -> _Plan:
    placed = _Alive(lifetimes)
    addresses: dict[str, int] = {}
    peak = 0
    for tensor in sorted(lifetimes, key=lambda t: (-t.nbytes, t.first, t.name)):
        address, size = 0, aligned(tensor.nbytes)
        for start, stop in placed.beside(tensor):
            if address + size <= start:
                break
            address = max(address, stop)
        placed.add(tensor, address)
        addresses[tensor.name] = address
        peak = max(peak, address + size)
    return addresses, peak


def _by_birth(lifetimes: Sequence[Lifetime]) -> _Plan:
    gaps: list[tuple[int, int]] = []  # start and stop, sorted, never touching each other
    alive: list[tuple[int, int, int]] = []  # last step, start, stop: a heap
    addresses: dict[str, int] = {}
    top = peak = 0
    for tensor in sorted(lifetimes, key=lambda t: (t.first, -t.nbytes, t.name)):
        while alive and alive[0][0] < tensor.first:
            _, start, stop = heapq.heappop(alive)
            top = _free(gaps, start, stop, top)
        size = aligned(tensor.nbytes)
        # the gaps at the bottom will do where there are many
        fitting = [k for k, (a, b) in enumerate(gaps[:MAX_GAPS]) if b - a >= size]
        if fitting:
            best = min(fitting, key=lambda k: gaps[k][1] - gaps[k][0])
            address, stop = gaps[best]
            gaps[best : best + 1] = [(address + size, stop)] if address + size < stop else []
        else:
            address, top = top, top + size
        heapq.heappush(alive, (tensor.last, address, address + size))
        addresses[tensor.name] = address
        peak = max(peak, top)
    return addresses, peak


def _free(gaps: list[tuple[int, int]], start: int, stop: int, top: int) -> int:
    """Give back the bytes from ``start`` to ``stop``; the new end of what is in use."""
    at = bisect.bisect_left(gaps, (start, stop))
    if at < len(gaps) and gaps[at][0] == stop:
        stop = gaps.pop(at)[1]
    if at and gaps[at - 1][1] == start:
        start = gaps.pop(at - 1)[0]
        at -= 1
    if stop == top:
        return start
    gaps.insert(at, (start, stop))
    return top


@dataclass
class ConstantPool:
    """Constants laid one after the other; equal bytes share an address."""

    start: int
    segments: list[tuple[int, bytes]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    _known: dict[bytes, int] = field(default_factory=dict)

    def add(self, name: str, data: bytes) -> int:
        """Address of ``data``."""
        address = self._known.get(data)
        if address is None:
            address = self.end
            self.segments.append((address, data))
            self.names.append(name)
            self._known[data] = address
        return address

    @property
    def end(self) -> int:
        if not self.segments:
            return aligned(self.start)
        address, data = self.segments[-1]
        return aligned(address + len(data))
