"""Reductions along axes, and the position of the extreme."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu import functions
from accelc.compiler.cpu.copies import Fill, emit_fill
from accelc.compiler.cpu.elementwise import collapse, contiguous, single
from accelc.compiler.cpu.expressions import FLOATS, OPERATORS
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT32, INT64, Val
from accelc.compiler.cpu.move import known_ints
from accelc.compiler.cpu.parse import Operand, require
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.cpu.planes import require_native
from accelc.compiler.graph import Node

#: Vectors summed side by side, so that additions do not wait for each other.
CHAINS = 4


@dataclass(frozen=True)
class Kind:
    """Value before combining, neutral element, combination, result from total and count."""

    before: Callable[[Val], Val]
    neutral: Callable[[np.dtype[Any]], Any]
    combine: Callable[[Val, Val], Val]
    after: Callable[[Val, int], Val]


def _maximum(a: Val, b: Val) -> Val:
    return a.call("maximum", b) if a.is_float else a.maximum(b)


def _minimum(a: Val, b: Val) -> Val:
    return a.call("minimum", b) if a.is_float else a.minimum(b)


def lowest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return False
    return -math.inf if dtype.kind == "f" else np.iinfo(dtype).min


def highest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return True
    return math.inf if dtype.kind == "f" else np.iinfo(dtype).max


def _same(x: Val) -> Val:
    return x


def _total(x: Val, count: int) -> Val:
    return x


def _zero(dtype: np.dtype[Any]) -> Any:
    return 0


def _sum(a: Val, b: Val) -> Val:
    return a + b


KINDS: dict[str, Kind] = {
    "ReduceSum": Kind(_same, _zero, _sum, _total),
    "ReduceMean": Kind(_same, _zero, _sum, lambda x, count: x / float(count)),
    "ReduceMax": Kind(_same, lowest, _maximum, _total),
    "ReduceMin": Kind(_same, highest, _minimum, _total),
    "ReduceProd": Kind(_same, lambda d: 1, lambda a, b: a * b, _total),
    "ReduceL1": Kind(
        lambda x: x.call("fabs") if x.is_float else (x < 0).select(-x, x), _zero, _sum, _total
    ),
    "ReduceL2": Kind(lambda x: x * x, _zero, _sum, lambda x, count: x.call("sqrt")),
    "ReduceSumSquare": Kind(lambda x: x * x, _zero, _sum, _total),
    "ReduceLogSum": Kind(_same, _zero, _sum, lambda x, count: functions.log(x)),
}


@dataclass(frozen=True)
class Reduction:
    """Strides of the input in elements; the output is contiguous over the kept axes."""

    kind: str
    dtype: str
    kept: tuple[int, ...]
    kept_strides: tuple[int, ...]
    gone: tuple[int, ...]
    gone_strides: tuple[int, ...]


def accumulate(
    k: Kernel,
    count: int,
    lanes: int,
    start: Callable[[int], Sequence[Val]],
    body: Callable[[Index, int, tuple[Val, ...]], Sequence[Val]],
    combine: Callable[[Val, Val], Val],
) -> tuple[Val, ...]:
    """Fold a contiguous line: vectors first, what is left one by one, then all lanes together.

    ``start(lanes)`` are neutral values, ``body(first, lanes, totals)`` the totals after one strip.
    """
    while lanes > count:
        lanes //= 2
    whole = count // lanes
    chains = CHAINS if whole >= 2 * CHAINS else 1
    neutral = list(start(lanes))
    size = len(neutral)

    def chained(i: Index, *totals: Val) -> list[Val]:
        results: list[Val] = []
        for chain in range(chains):
            first = k.imul(k.iadd(k.imul(i, chains), chain), lanes)
            results += body(first, lanes, totals[chain * size : (chain + 1) * size])
        return results

    totals = k.loop(whole // chains, chained, neutral * chains)
    done = whole // chains * chains
    joined = list(totals[:size])
    for chain in range(1, chains):
        part = totals[chain * size : (chain + 1) * size]
        joined = [combine(a, b) for a, b in zip(joined, part, strict=True)]
    if whole > done:
        joined = list(
            k.loop(
                whole - done,
                lambda i, *totals: body(k.imul(k.iadd(i, done), lanes), lanes, totals),
                joined,
            )
        )
    scalars = [k.horizontal(total, combine) for total in joined]
    rest = count - whole * lanes
    return k.loop(rest, lambda i, *totals: body(k.iadd(i, whole * lanes), 1, totals), scalars)


def emit_reduction(k: Kernel, s: Reduction) -> None:
    source, out = k.args
    dtype = np.dtype(s.dtype)
    kind = KINDS[s.kind]
    count = math.prod(s.gone)
    lanes = min(32, k.lanes_of(dtype))
    writes = contiguous(s.kept)
    neutral = kind.neutral(dtype)

    def fold(
        read: Index, axes: Sequence[tuple[int, int]], lanes: int, stride: int, total: Val
    ) -> Val:
        """Combine over ``axes`` of (extent, stride) the lanes that lie ``stride`` apart."""
        if not axes:
            value = k.load_strided(source, dtype, read, stride, lanes)
            return kind.combine(total, kind.before(value))
        (extent, step), rest = axes[0], axes[1:]

        def body(i: Index, total: Val) -> Val:
            return fold(k.iadd(read, k.imul(i, step)), rest, lanes, stride, total)

        return k.loop(extent, body, [total])[0]

    axes = list(zip(s.gone, s.gone_strides, strict=True))
    if s.gone_strides[-1] == 1:

        def row(at: tuple[Index, ...]) -> None:
            read = k.affine(*zip(at, s.kept_strides, strict=True))

            def level(read: Index, axes: Sequence[tuple[int, int]], total: Val) -> Val:
                if len(axes) == 1:
                    (part,) = accumulate(
                        k,
                        axes[0][0],
                        lanes,
                        lambda n: [k.value(neutral, dtype, n)],
                        lambda i, n, totals: [
                            kind.combine(
                                totals[0], kind.before(k.load(source, dtype, k.iadd(read, i), n))
                            )
                        ],
                        kind.combine,
                    )
                    return kind.combine(total, part)
                (extent, step), rest = axes[0], axes[1:]
                return k.loop(
                    extent,
                    lambda i, total: level(k.iadd(read, k.imul(i, step)), rest, total),
                    [total],
                )[0]

            total = level(read, axes, k.value(neutral, dtype))
            k.store(kind.after(total, count), out, k.affine(*zip(at, writes, strict=True)))

        k.nest(s.kept, row)
        return

    def line(at: tuple[Index, ...]) -> None:
        read = k.affine(*zip(at, s.kept_strides, strict=False))
        write = k.affine(*zip(at, writes, strict=False))
        stride = s.kept_strides[-1]

        def strip(first: Index, lanes: int) -> None:
            start = k.iadd(read, k.imul(first, stride))
            total = fold(start, axes, lanes, stride, k.value(neutral, dtype, lanes))
            k.store(kind.after(total, count), out, k.iadd(write, first))

        k.strips(s.kept[-1], lanes, strip)

    k.nest(s.kept[:-1], line)


def reduce(plan: Plan, kind: str, source: str, out: str, axes: Sequence[int]) -> None:
    """Reduce ``axes`` of ``source``; ``out`` has the kept extents in order."""
    shape = plan.shape(source)
    if 0 in shape:
        empty(plan, kind, out)
        return
    require_native(plan, source)
    strides = contiguous(shape)
    gone = sorted(axes)
    kept = [axis for axis in range(len(shape)) if axis not in gone]
    kept_extents, (kept_strides,) = collapse([shape[a] for a in kept], [[strides[a] for a in kept]])
    extents, (gone_strides,) = collapse([shape[a] for a in gone], [[strides[a] for a in gone]])
    params = Reduction(
        kind, plan.dtype(source).name, kept_extents, kept_strides, extents, gone_strides
    )
    plan.call(emit_reduction, params, [source], [out])


#: What is left of nothing: where it is not the neutral element of the combination.
_EMPTY = {"ReduceMean": math.nan, "ReduceLogSum": -math.inf, "ReduceLogSumExp": -math.inf}


def empty(plan: Plan, kind: str, out: str) -> None:
    """The reduction of no elements at all."""
    dtype = plan.dtype(out)
    value = _EMPTY[kind] if kind in _EMPTY else KINDS[kind].neutral(dtype)
    fill = Fill(plan.size(out), dtype.itemsize)
    plan.call(emit_fill, fill, [plan.constant(np.array(value, dtype))], [out])


def reduced_axes(plan: Plan, node: Node) -> list[int]:
    """The axes of a Reduce node, none if it leaves its input alone."""
    rank = len(plan.shape(node.inputs[0]))
    name = node.inputs[1] if len(node.inputs) > 1 else ""
    axes = known_ints(plan, name, "axes") if name else list(node.attrs.get("axes") or ())
    if not axes and not node.attrs.get("noop_with_empty_axes"):
        axes = list(range(rank))
    return sorted({int(axis) % rank for axis in axes}) if rank else []


def lower_reduce(plan: Plan, node: Node) -> None:
    source, out = node.inputs[0], node.outputs[0]
    dtype = plan.dtype(source)
    float_only = node.op in ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
    choice = node.op in ("ReduceMax", "ReduceMin")
    whole = dtype.kind in ("iub" if choice else "iu") and not float_only
    require(dtype in FLOATS or whole, "element type")
    axes = reduced_axes(plan, node)
    if not axes:
        require(
            node.op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"),
            "no axes",
        )
        plan.alias(out, source)
        return
    if node.op == "ReduceLogSumExp" and 0 not in plan.shape(source):
        log_sum_exp(plan, source, out, axes)
        return
    reduce(plan, node.op, source, out, axes)


def log_sum_exp(plan: Plan, source: str, out: str, axes: Sequence[int]) -> None:
    """``max + log(sum(exp(x - max)))``."""
    shape, dtype = plan.shape(source), plan.dtype(source)
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    largest = plan.temporary(kept, dtype)
    reduce(plan, "ReduceMax", source, largest, axes)
    powers = plan.temporary(shape, dtype)
    operands: list[Operand] = [(source, shape), (largest, kept)]
    single(plan, "ExpDifference", operands, (), powers, shape)
    total = plan.temporary(kept, dtype)
    reduce(plan, "ReduceSum", powers, total, axes)
    flat = (plan.size(out),)
    single(plan, "AddLog", [(total, flat), (largest, flat)], (), out, flat)


def _finite(x: Val) -> Val:
    """0 in place of infinities, so that differences with them are not NaN."""
    return x.call("fabs").equals(math.inf).select(x.like(0.0), x)


OPERATORS["ExpDifference"] = lambda v, p, d: functions.exp(v[0] - _finite(v[1]))
OPERATORS["AddLog"] = lambda v, p, d: functions.log(v[0]) + _finite(v[1])


@dataclass(frozen=True)
class ArgExtreme:
    """Along the middle axis of ``(outer, extent, inner)``."""

    largest: bool
    last: bool
    dtype: str
    outer: int
    extent: int
    inner: int


def emit_arg_extreme(k: Kernel, s: ArgExtreme) -> None:
    source, out = k.args
    dtype = np.dtype(s.dtype)
    lanes = min(8, k.lanes_of(dtype))

    def block(outer: Index) -> None:
        def strip(first: Index, lanes: int) -> None:
            read = k.affine((outer, s.extent * s.inner), (first, 1))

            def step(i: Index, best: Val, where: Val) -> tuple[Val, Val]:
                number = k.iadd(i, 1)
                value = k.load(source, dtype, k.iadd(read, k.imul(number, s.inner)), lanes)
                if s.largest:
                    better = value >= best if s.last else value > best
                else:
                    better = value <= best if s.last else value < best
                if value.is_float:  # the first NaN wins, as in NumPy
                    better = (better | value.differs(value)) & best.equals(best)
                here = k.splat(Val(k, k.index(number), INT64), lanes)
                return better.select(value, best), better.select(here, where)

            start = [k.load(source, dtype, read, lanes), k.value(0, INT64, lanes)]
            _, where = k.loop(s.extent - 1, step, start)
            k.store(where, out, k.affine((outer, s.inner), (first, 1)))

        k.strips(s.inner, lanes, strip)

    k.loop(s.outer, block)


def lower_arg_extreme(plan: Plan, node: Node) -> None:
    source, out = node.inputs[0], node.outputs[0]
    require_native(plan, source)
    dtype = plan.dtype(source)
    require(dtype in FLOATS or dtype.kind in "iu", "element type")
    shape = plan.shape(source)
    require(len(shape) > 0, "scalar")
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    params = ArgExtreme(
        node.op == "ArgMax",
        bool(node.attrs.get("select_last_index", 0)),
        dtype.name,
        math.prod(shape[:axis]),
        shape[axis],
        math.prod(shape[axis + 1 :]),
    )
    plan.call(emit_arg_extreme, params, [source], [out])


def lower_global_pool(plan: Plan, node: Node) -> None:
    source, out = node.inputs[0], node.outputs[0]
    require(plan.dtype(source) in FLOATS, "element type")
    axes = range(2, len(plan.shape(source)))
    require(len(axes) > 0, "no spatial axes")
    if node.op == "GlobalLpPool":
        p = int(node.attrs.get("p", 2))
        require(p in (1, 2), "norm")
        reduce(plan, "ReduceL1" if p == 1 else "ReduceL2", source, out, axes)
        return
    kind = "ReduceMax" if node.op == "GlobalMaxPool" else "ReduceMean"
    reduce(plan, kind, source, out, axes)


def lower_qlinear_global_average_pool(plan: Plan, node: Node) -> None:
    """``rint(sum(q - zero) * (xs / (ys * H * W)))``, then the zero point, like a convolution."""
    x, xs, xz, ys, yz = (*node.inputs, "")[:5]
    out = node.outputs[0]
    shape = plan.shape(x)
    axes = range(1, len(shape) - 1) if node.attrs.get("channels_last") else range(2, len(shape))
    zero = plan.constant(np.zeros((), plan.dtype(x)))
    centered = plan.temporary(shape, np.int32)
    single(plan, "Recenter", [(x, shape), (xz or zero, ())], (), centered, shape)
    total = plan.temporary(plan.shape(out), INT32)
    reduce(plan, "ReduceSum", centered, total, axes)
    pixels = math.prod(shape[axis] for axis in axes)
    operands: list[Operand] = [(total, plan.shape(out)), (xs, ()), (ys, ()), (yz or zero, ())]
    single(plan, "MeanRequantize", operands, (float(pixels),), out, plan.shape(out))


LOWERINGS: dict[str, Callable[[Plan, Node], None]] = {
    **{op: lower_reduce for op in (*KINDS, "ReduceLogSumExp")},
    "ArgMax": lower_arg_extreme,
    "ArgMin": lower_arg_extreme,
    "GlobalAveragePool": lower_global_pool,
    "GlobalLpPool": lower_global_pool,
    "GlobalMaxPool": lower_global_pool,
    "com.microsoft.QLinearGlobalAveragePool": lower_qlinear_global_average_pool,
}
