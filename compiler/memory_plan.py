"""Static allocation of activations: what never lives at the same time shares bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Every allocation starts at a multiple of this: whole beats of the widest bus.
ALIGNMENT_BYTES = 64


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


def plan_memory(lifetimes: Sequence[Lifetime]) -> MemoryPlan:
    """Give every tensor the lowest address free during its life, large tensors first.

    Large first keeps the gaps that small ones later fill; of equals, the earlier born goes first.
    """
    placed: list[tuple[int, Lifetime]] = []
    addresses: dict[str, int] = {}
    for tensor in sorted(lifetimes, key=lambda t: (-t.nbytes, t.first, t.name)):
        address = 0
        neighbours = sorted(
            (start, start + aligned(other.nbytes))
            for start, other in placed
            if other.overlaps(tensor)
        )
        for start, stop in neighbours:
            if address + aligned(tensor.nbytes) <= start:
                break
            address = max(address, stop)
        placed.append((address, tensor))
        addresses[tensor.name] = address
    peak = max((start + aligned(t.nbytes) for start, t in placed), default=0)
    moments = {t.first for t in lifetimes}
    bound = max(
        (sum(aligned(t.nbytes) for t in lifetimes if t.first <= m <= t.last) for m in moments),
        default=0,
    )
    return MemoryPlan(addresses=addresses, peak_bytes=peak, lower_bound_bytes=bound)


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
