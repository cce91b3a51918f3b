"""Softmax and the normalizations: statistics of a line, then the line again."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu import functions
from accelc.compiler.cpu.elementwise import single
from accelc.compiler.cpu.expressions import FLOATS, OPERATORS
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import Val
from accelc.compiler.cpu.parse import Operand, channel_view, require
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.cpu.planes import Window, planes, require_native
from accelc.compiler.cpu.points import one_hot
from accelc.compiler.cpu.pool import Pool, emit_pool
from accelc.compiler.cpu.reduce import ArgExtreme, accumulate, emit_arg_extreme, reduce
from accelc.compiler.graph import Node


@dataclass(frozen=True)
class Softmax:
    """Along the middle axis of ``(outer, extent, inner)``."""

    dtype: str
    log: bool
    outer: int
    extent: int
    inner: int


def emit_softmax(k: Kernel, s: Softmax) -> None:
    source, out = k.args
    dtype = np.dtype(s.dtype)
    lanes = k.lanes_of(dtype)

    def add(a: Val, b: Val) -> Val:
        return a + b

    def larger(a: Val, b: Val) -> Val:
        return a.call("maximum", b)

    def row(outer: Index) -> None:
        """Contiguous lines."""
        base = k.imul(outer, s.extent)

        def load(i: Index, n: int) -> Val:
            return k.load(source, dtype, k.iadd(base, i), n)

        (largest,) = accumulate(
            k,
            s.extent,
            lanes,
            lambda n: [k.value(-math.inf, dtype, n)],
            lambda i, n, totals: [larger(totals[0], load(i, n))],
            larger,
        )

        def power(i: Index, n: int, totals: tuple[Val, ...]) -> list[Val]:
            value = functions.exp(load(i, n) - k.splat(largest, n))
            if not s.log:
                k.store(value, out, k.iadd(base, i))
            return [totals[0] + value]

        (total,) = accumulate(k, s.extent, lanes, lambda n: [k.value(0, dtype, n)], power, add)
        # one division a line instead of one an element
        rest = functions.log(total) if s.log else 1.0 / total

        def each(i: Index, n: int, _: tuple[Val, ...]) -> list[Val]:
            at = k.iadd(base, i)
            if s.log:
                k.store(load(i, n) - k.splat(largest, n) - k.splat(rest, n), out, at)
            else:
                k.store(k.load(out, dtype, at, n) * k.splat(rest, n), out, at)
            return []

        # the line is rewritten in place: no strip may overlap another
        accumulate(k, s.extent, lanes, lambda n: [], each, add)

    def columns(outer: Index) -> None:
        """Lines ``inner`` apart, side by side in the lanes."""
        base = k.imul(outer, s.extent * s.inner)

        def strip(first: Index, n: int) -> None:
            def at(i: Index) -> Index:
                return k.affine((base, 1), (i, s.inner), (first, 1))

            def load(i: Index) -> Val:
                return k.load(source, dtype, at(i), n)

            (largest,) = k.loop(
                s.extent, lambda i, m: larger(m, load(i)), [k.value(-math.inf, dtype, n)]
            )
            (total,) = k.loop(
                s.extent,
                lambda i, t: t + functions.exp(load(i) - largest),
                [k.value(0, dtype, n)],
            )
            rest = functions.log(total) if s.log else 1.0 / total

            def write(i: Index) -> None:
                value = load(i) - largest
                k.store(value - rest if s.log else functions.exp(value) * rest, out, at(i))

            k.loop(s.extent, write)

        k.strips(s.inner, lanes, strip)

    k.loop(s.outer, row if s.inner == 1 else columns)


def softmax(plan: Plan, source: str, out: str, axis: int, flatten: bool, log: bool) -> None:
    """``flatten``: everything from ``axis`` on is one line, as before opset 13."""
    require_native(plan, source)
    require(plan.dtype(source) in FLOATS, "element type")
    shape = plan.shape(source)
    axis = axis % len(shape) if shape else 0
    extent = math.prod(shape[axis:]) if flatten or not shape else shape[axis]
    inner = 1 if flatten or not shape else math.prod(shape[axis + 1 :])
    params = Softmax(plan.dtype(source).name, log, math.prod(shape[:axis]), extent, inner)
    plan.call(emit_softmax, params, [source], [out])


def lower_softmax(plan: Plan, node: Node) -> None:
    old = 0 < plan.graph.opset < 13
    axis = int(node.attrs.get("axis", 1 if old else -1))
    softmax(plan, node.inputs[0], node.outputs[0], axis, old, node.op == "LogSoftmax")


def lower_qlinear_softmax(plan: Plan, node: Node) -> None:
    """Dequantize, softmax, quantize: within one step of onnxruntime's table."""
    x, xs, xz, ys, yz = (*node.inputs, "")[:5]
    out = node.outputs[0]
    shape = plan.shape(x)
    zero = plan.constant(np.zeros((), plan.dtype(x)))
    real, result = plan.temporary(shape, np.float32), plan.temporary(shape, np.float32)
    single(plan, "DequantizeLinear", [(x, shape), (xs, ()), (xz or zero, ())], (), real, shape)
    old = int(node.attrs.get("opset", 13)) < 13
    softmax(plan, real, result, int(node.attrs.get("axis", -1)), old, False)
    single(plan, "QuantizeLinear", [(result, shape), (ys, ()), (yz or zero, ())], (), out, shape)


@dataclass(frozen=True)
class Normalization:
    """Lines ``(rows, extent)`` to mean 0 (if ``center``) and variance 1, then weights of a line."""

    dtype: str
    rows: int
    extent: int
    epsilon: float
    center: bool
    scale: bool
    bias: bool


def emit_normalization(k: Kernel, s: Normalization) -> None:
    """Pointers: x, [scale], [bias], out."""
    source, *rest, out = k.args
    scale = rest.pop(0) if s.scale else None
    bias = rest.pop(0) if s.bias else None
    dtype = np.dtype(s.dtype)
    lanes = k.lanes_of(dtype)

    def add(a: Val, b: Val) -> Val:
        return a + b

    def zero(n: int) -> list[Val]:
        return [k.value(0, dtype, n)]

    def row(number: Index) -> None:
        base = k.imul(number, s.extent)

        def load(i: Index, n: int) -> Val:
            return k.load(source, dtype, k.iadd(base, i), n)

        mean = k.value(0, dtype)
        if s.center:
            (total,) = accumulate(
                k, s.extent, lanes, zero, lambda i, n, t: [t[0] + load(i, n)], add
            )
            mean = total / float(s.extent)

        def square(i: Index, n: int, totals: tuple[Val, ...]) -> list[Val]:
            difference = load(i, n) - k.splat(mean, n)
            return [totals[0] + difference * difference]

        (squares,) = accumulate(k, s.extent, lanes, zero, square, add)
        factor = 1.0 / (squares / float(s.extent) + s.epsilon).call("sqrt")

        def strip(i: Index, n: int) -> None:
            value = (load(i, n) - k.splat(mean, n)) * k.splat(factor, n)
            if scale is not None:
                value = value * k.load(scale, dtype, i, n)
            if bias is not None:
                value = value + k.load(bias, dtype, i, n)
            k.store(value, out, k.iadd(base, i))

        k.strips(s.extent, lanes, strip)

    k.loop(s.rows, row)


def normalize(
    plan: Plan,
    x: str,
    out: str,
    rows: int,
    epsilon: float,
    weights: tuple[str, str] = ("", ""),
    center: bool = True,
) -> None:
    require_native(plan, x)
    require(plan.dtype(x) in FLOATS, "element type")
    extent = plan.size(x) // rows
    scale, bias = weights
    for name in weights:
        require(not name or plan.size(name) == extent, "weights of another shape")
        require(not name or plan.dtype(name) == plan.dtype(x), "mixed precision")
    params = Normalization(
        plan.dtype(x).name, rows, extent, epsilon, center, bool(scale), bool(bias)
    )
    plan.call(emit_normalization, params, [x, *(name for name in weights if name)], [out])


def lower_layer_normalization(plan: Plan, node: Node) -> None:
    require(not any(node.outputs[1:]), "statistics as outputs")
    x, scale, bias = (*node.inputs, "")[:3]
    shape = plan.shape(x)
    axis = int(node.attrs.get("axis", -1)) % len(shape)
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    center = node.op == "LayerNormalization"
    rows = math.prod(shape[:axis])
    normalize(plan, x, node.outputs[0], rows, epsilon, (scale, bias), center)


def lower_instance_normalization(plan: Plan, node: Node) -> None:
    """Also GroupNormalization: lines are channels or groups of instances, weights per channel."""
    x, scale, bias = node.inputs
    out = node.outputs[0]
    shape, dtype = plan.shape(x), plan.dtype(x)
    n, c = shape[:2]
    groups = c
    if node.op == "GroupNormalization":
        groups = int(node.attrs["num_groups"])
        require(plan.size(scale) == c, "weights per group")
    temporary = plan.temporary(shape, dtype)
    normalize(plan, x, temporary, n * groups, float(node.attrs.get("epsilon", 1e-5)))
    rank = len(shape)
    operands: list[Operand] = [
        (temporary, shape),
        channel_view(scale, plan, 1, rank),
        channel_view(bias, plan, 1, rank),
    ]
    single(plan, "Affine", operands, (), out, shape)


def lower_hardmax(plan: Plan, node: Node) -> None:
    """1 at the first of the largest, 0 elsewhere."""
    x, out = node.inputs[0], node.outputs[0]
    require_native(plan, x)
    shape, dtype = plan.shape(x), plan.dtype(x)
    require(dtype in FLOATS, "element type")
    old = 0 < plan.graph.opset < 13
    axis = int(node.attrs.get("axis", 1 if old else -1)) % len(shape)
    line = math.prod(shape[axis:]) if old else shape[axis]
    outer = math.prod(shape[:axis])
    inner = 1 if old else math.prod(shape[axis + 1 :])
    where = plan.temporary((outer, inner), np.int64)
    plan.call(
        emit_arg_extreme, ArgExtreme(True, False, dtype.name, outer, line, inner), [x], [where]
    )
    off, on = (plan.constant(np.array(number, dtype)) for number in (0, 1))
    one_hot(plan, where, line, 1, (off, ()), (on, ()), out)


def lower_lp_normalization(plan: Plan, node: Node) -> None:
    """Every line by its norm; lines of zeros stay what they are."""
    x, out = node.inputs[0], node.outputs[0]
    require_native(plan, x)
    shape, dtype = plan.shape(x), plan.dtype(x)
    require(dtype in FLOATS, "element type")
    axis, p = int(node.attrs.get("axis", -1)) % len(shape), int(node.attrs.get("p", 2))
    require(p in (1, 2), "norm")
    kept = tuple(1 if number == axis else extent for number, extent in enumerate(shape))
    norm = plan.temporary(kept, dtype)
    reduce(plan, "ReduceL1" if p == 1 else "ReduceL2", x, norm, [axis])
    single(plan, "DivideUnlessZero", [(x, shape), (norm, kept)], (), out, shape)


def lower_lrn(plan: Plan, node: Node) -> None:
    """``x / (bias + alpha / size * sum of squares over neighbouring channels) ** beta``."""
    x, out = node.inputs[0], node.outputs[0]
    require_native(plan, x)
    shape, dtype = plan.shape(x), plan.dtype(x)
    require(dtype in FLOATS, "element type")
    size = int(node.attrs["size"])
    require(size > 0, "a neighbourhood of no channels")
    n, c = shape[:2]
    pixels = math.prod(shape[2:])
    before = (size - 1) // 2
    squares, sums = plan.temporary(shape, dtype), plan.temporary(shape, dtype)
    single(plan, "Mul", [(x, shape), (x, shape)], (), squares, shape)
    window = Window(
        (c, pixels), (c, pixels), (size, 1), (1, 1), (1, 1), (before, 0), (size - 1 - before, 0)
    )
    p = planes(plan, squares, n, window, plan.constant(np.zeros((), dtype)))
    params = Pool("lp", dtype.name, n, p.channel, window.outputs, p.pitch, p.taps)
    plan.call(emit_pool, params, [p.value], [sums])
    factors = (
        float(node.attrs.get("alpha", 1e-4)) / size,
        float(node.attrs.get("beta", 0.75)),
        float(node.attrs.get("bias", 1.0)),
    )
    single(plan, "ByPower", [(x, shape), (sums, shape)], factors, out, shape)


OPERATORS["DivideUnlessZero"] = lambda v, p, d: v[0] / v[1].equals(0.0).select(v[1].like(1.0), v[1])
OPERATORS["ByPower"] = lambda v, p, d: v[0] / functions.pow_(v[1] * p[0] + p[2], v[1].like(p[1]))

LOWERINGS: dict[str, Callable[[Plan, Node], Any]] = {
    "Hardmax": lower_hardmax,
    "LRN": lower_lrn,
    "LpNormalization": lower_lp_normalization,
    "GroupNormalization": lower_instance_normalization,
    "InstanceNormalization": lower_instance_normalization,
    "LayerNormalization": lower_layer_normalization,
    "LogSoftmax": lower_softmax,
    "RMSNormalization": lower_layer_normalization,
    "Softmax": lower_softmax,
    "com.microsoft.QLinearSoftmax": lower_qlinear_softmax,
}
