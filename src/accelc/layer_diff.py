"""Two traces of a network, tensor by tensor: how far they are apart, and where they part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.graph import Array
from accelc.isa.errors import InputError
from accelc.trace import Tensor, Trace


@dataclass(frozen=True)
class Bounds:
    """What two executors may differ by, see docs/inspecting.md.

    Members:
        steps: quantized tensors against the reference, in steps of their integers; what two
            executors of one compiled network compute in integers must be equal.
        tolerance: float tensors, relative to the largest magnitude of the tensor.
        sqnr_db: tensors of two models, signal to noise.
    """

    steps: int = 1
    tolerance: float = 1e-4
    sqnr_db: float = 10.0


@dataclass(frozen=True)
class Difference:
    """One tensor on both sides.

    Members:
        kind: ``integers``, ``floats`` or ``models``: which bound holds.
        differing: elements that are not equal.
        worst: the largest difference, in steps for integers, else in the tensor's numbers, with its
            ``index`` and both values there.
        sqnr_db: 10 log10 of the power of ``a`` over that of the difference; infinite if equal.
        alone: the largest difference that this layer adds by itself: the reference computed it from
            the other side's tensors. ``None`` where no side is the reference.
        limit: what ``alone``, else ``worst``, and for models ``sqnr_db``, is held to.
    """

    name: str
    op: str
    shape: tuple[int, ...]
    kind: str
    elements: int
    differing: int
    worst: float
    index: tuple[int, ...]
    a: float
    b: float
    sqnr_db: float
    alone: float | None
    limit: float
    within: bool


def differences(
    a: Trace,
    b: Trace,
    bounds: Bounds,
    *,
    relayed: Trace | None = None,
    relayed_side: int = 1,
    same_model: bool = True,
) -> list[Difference]:
    """Tensors that both sides have, in the order in which ``b`` computes them.

    ``relayed`` is what ``trace.Model.relay`` makes of one side, 0 for ``a`` or 1 for ``b``, if the
    other is the reference.

    Raises:
        InputError: there is no such tensor.
    """
    found: list[Difference] = []
    for left, right in _pairs(a, b, same_model):
        alone = None if relayed is None else relayed.get(right.name)
        own = None if alone is None else _own((left, right)[relayed_side], alone)
        found.append(_difference(left, right, own, relayed is not None, bounds, same_model))
    if not found:
        raise InputError(
            "the two sides have no tensor in common: no name of a tensor is in both, with one shape"
        )
    return found


def _pairs(a: Trace, b: Trace, same_model: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Tensors of equal name and shape; of two models also integers and the float tensor that they
    stand for."""
    meant: dict[str, Tensor] = {}
    for tensor in a.values() if not same_model else ():
        for name in tensor.stands_for:
            meant.setdefault(name, tensor)
    for right in b.values():
        names = (right.name,) if same_model else (right.name, *right.stands_for)
        candidates = [found[name] for found in (a, meant) for name in names if name in found]
        for left in candidates:
            if left.array.shape == right.array.shape and _numeric(left) and _numeric(right):
                yield left, right
                break


def _numeric(tensor: Tensor) -> bool:
    return tensor.array.dtype.kind in "biuf" or tensor.array.dtype.name == "bfloat16"


def _difference(
    left: Tensor,
    right: Tensor,
    own: float | None,
    reference: bool,
    bounds: Bounds,
    same_model: bool,
) -> Difference:
    x, y = left.real, right.real
    alike = left.array.dtype == right.array.dtype and left.array.dtype.kind in "biu"
    if not same_model:
        kind, p, q, limit = "models", x, y, bounds.sqnr_db
    elif alike:
        kind = "integers"
        p, q = left.array.astype(np.float64), right.array.astype(np.float64)
        limit = float(bounds.steps) if reference else 0.0
    else:
        kind, p, q = "floats", x, y
        finite = np.abs(x[np.isfinite(x)])
        limit = bounds.tolerance * float(finite.max(initial=0.0))
    gap = _gap(p, q)
    position = int(gap.argmax()) if gap.size else 0
    worst = float(gap.reshape(-1)[position]) if gap.size else 0.0
    index = tuple(int(k) for k in np.unravel_index(position, gap.shape)) if gap.size else ()
    sqnr = _sqnr_db(x, y)
    held = worst if own is None else own
    return Difference(
        name=right.name,
        op=right.op,
        shape=tuple(gap.shape),
        kind=kind,
        elements=gap.size,
        differing=int(np.count_nonzero(gap)),
        worst=worst,
        index=index,
        a=float(p.reshape(-1)[position]) if gap.size else 0.0,
        b=float(q.reshape(-1)[position]) if gap.size else 0.0,
        sqnr_db=sqnr,
        alone=own,
        limit=limit,
        within=sqnr >= limit if kind == "models" else held <= limit,
    )


def _own(side: Tensor, alone: Tensor) -> float | None:
    """How far ``side`` is from what the reference makes of the tensors before it."""
    if alone.array.shape != side.array.shape or alone.array.dtype != side.array.dtype:
        return None
    if side.array.dtype.kind in "biu":
        gap = _gap(side.array.astype(np.float64), alone.array.astype(np.float64))
    else:
        gap = _gap(side.real, alone.real)
    return float(gap.max(initial=0.0))


def _gap(p: Array, q: Array) -> Array:
    """Absolute difference; 0 where both are the same infinity or both no number, else infinite."""
    with np.errstate(all="ignore"):
        gap = np.abs(p - q)
    same = (p == q) | (np.isnan(p) & np.isnan(q))
    return np.where(same, 0.0, np.where(np.isnan(gap), np.inf, gap))


def _sqnr_db(x: Array, y: Array) -> float:
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.all() and not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return float("-inf")
    signal, noise = np.sum(x[finite] ** 2), np.sum((x[finite] - y[finite]) ** 2)
    if not noise:
        return float("inf")
    return float(10 * np.log10(signal / noise)) if signal else float("-inf")


def first_outside(found: Sequence[Difference]) -> Difference | None:
    """The first tensor that leaves its bound."""
    return next((difference for difference in found if not difference.within), None)


def as_json(found: Difference) -> dict[str, Any]:
    """A difference for JSON, which has no infinities."""
    values = {**vars(found), "shape": list(found.shape), "index": list(found.index)}
    return {
        key: None if isinstance(value, float) and not np.isfinite(value) else value
        for key, value in values.items()
    }
