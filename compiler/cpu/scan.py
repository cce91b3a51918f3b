"""Running sums and products, sorted lines, and positions of the largest."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu.expressions import FLOATS
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT64, Val
from accelc.compiler.cpu.parse import require
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.cpu.planes import require_native
from accelc.compiler.graph import Node


@dataclass(frozen=True)
class Running:
    """Along the middle axis of ``(outer, extent, inner)``."""

    product: bool
    exclusive: bool
    reverse: bool
    dtype: str
    outer: int
    extent: int
    inner: int


def emit_running(k: Kernel, s: Running) -> None:
    source, out = k.args
    dtype = np.dtype(s.dtype)

    def block(outer: Index) -> None:
        base = k.imul(outer, s.extent * s.inner)

        def strip(first: Index, lanes: int) -> None:
            def step(i: Index, total: Val) -> Val:
                place = k.iadd(k.imul(i, -1), s.extent - 1) if s.reverse else i
                at = k.affine((base, 1), (place, s.inner), (first, 1))
                value = k.load(source, dtype, at, lanes)
                following = total * value if s.product else total + value
                k.store(total if s.exclusive else following, out, at)
                return following

            k.loop(s.extent, step, [k.value(int(s.product), dtype, lanes)])

        k.strips(s.inner, k.lanes_of(dtype), strip)

    k.loop(s.outer, block)


def lower_running(plan: Plan, node: Node) -> None:
    x, axis = node.inputs
    out = node.outputs[0]
    require_native(plan, x)
    dtype = plan.dtype(x)
    require(dtype in FLOATS or dtype.kind in "iu", "element type")
    shape = plan.shape(x)
    along = int(plan.needed(axis, "axis").reshape(-1)[0]) % len(shape)
    params = Running(
        node.op == "CumProd",
        bool(node.attrs.get("exclusive", 0)),
        bool(node.attrs.get("reverse", 0)),
        dtype.name,
        math.prod(shape[:along]),
        shape[along],
        math.prod(shape[along + 1 :]),
    )
    plan.call(emit_running, params, [x], [out])


@dataclass(frozen=True)
class Sorted:
    """Lines along the middle axis of ``(outer, extent, inner)``; the first ``kept`` stay."""

    dtype: str
    largest: bool
    outer: int
    extent: int
    inner: int
    kept: int


def emit_sorted(k: Kernel, s: Sorted) -> None:
    """Pointers: x, two scratch lines of values, two of positions, values, positions.

    A merge sort without branches, so stable: of equal values the first comes first.
    """
    source, *scratch, out, where = k.args
    dtype = np.dtype(s.dtype)
    values, places = scratch[:2], scratch[2:]
    widths = [1 << level for level in range(max(0, (s.extent - 1).bit_length()))]

    def number(value: Index) -> Val:
        return Val(k, k.index(value), INT64)

    def merge(width: int, source: int) -> None:
        """Sorted runs of ``width`` to runs of twice that, between the scratch lines."""
        target = 1 - source

        def step(i: Index, left: Val, right: Val) -> tuple[Val, Val]:
            place = number(i)
            inside = place & (2 * width - 1)
            base = place - inside
            begins = inside.equals(0)
            middle = (base + width).minimum(s.extent)
            end = (base + 2 * width).minimum(s.extent)
            left, right = begins.select(base, left), begins.select(middle, right)
            a_at, b_at = left.minimum(s.extent - 1), right.minimum(s.extent - 1)
            a = k.load(values[source], dtype, a_at.value)
            b = k.load(values[source], dtype, b_at.value)
            better = b > a if s.largest else b < a
            from_right = (right < end) & ((left >= middle) | better)
            k.store(from_right.select(b, a), values[target], i)
            taken = from_right.select(b_at, a_at)
            k.store(k.load(places[source], INT64, taken.value), places[target], i)
            one = k.value(1, INT64)
            zero = k.value(0, INT64)
            return left + from_right.select(zero, one), right + from_right.select(one, zero)

        k.loop(s.extent, step, [k.value(0, INT64), k.value(0, INT64)])

    def line(at: tuple[Index, ...]) -> None:
        outer, inner = at
        base = k.affine((outer, s.extent * s.inner), (inner, 1))
        write = k.affine((outer, s.kept * s.inner), (inner, 1))

        def take(i: Index) -> None:
            k.store(k.load(source, dtype, k.affine((base, 1), (i, s.inner))), values[0], i)
            k.store(number(i), places[0], i)

        k.loop(s.extent, take)
        for level, width in enumerate(widths):
            merge(width, level % 2)
        last = len(widths) % 2

        def give(i: Index) -> None:
            to = k.affine((write, 1), (i, s.inner))
            k.store(k.load(values[last], dtype, i), out, to)
            k.store(k.load(places[last], INT64, i), where, to)

        k.loop(s.kept, give)

    k.nest((s.outer, s.inner), line)


def lower_top_k(plan: Plan, node: Node) -> None:
    x = node.inputs[0]
    require_native(plan, x)
    dtype = plan.dtype(x)
    require(dtype in FLOATS or dtype.kind in "iu", "element type")
    shape = plan.shape(x)
    axis = int(node.attrs.get("axis", -1)) % len(shape)
    if len(node.inputs) > 1:
        kept = int(plan.needed(node.inputs[1], "k").reshape(-1)[0])
    else:
        kept = int(node.attrs["k"])
    extent = shape[axis]
    require(kept <= extent, "more than there are")
    params = Sorted(
        dtype.name,
        bool(node.attrs.get("largest", 1)),
        math.prod(shape[:axis]),
        extent,
        math.prod(shape[axis + 1 :]),
        kept,
    )
    scratch = [plan.temporary((extent,), t) for t in (dtype, dtype, INT64, INT64)]
    result = (*shape[:axis], kept, *shape[axis + 1 :])
    outputs = (*node.outputs, "")[:2]
    values, places = (
        name or plan.temporary(result, t) for name, t in zip(outputs, (dtype, INT64), strict=True)
    )
    plan.call(emit_sorted, params, [x], [*scratch, values, places])


LOWERINGS: dict[str, Callable[[Plan, Node], Any]] = {
    "CumProd": lower_running,
    "CumSum": lower_running,
    "TopK": lower_top_k,
}
