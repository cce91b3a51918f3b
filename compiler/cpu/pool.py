"""Pooling over any number of spatial axes."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu.elementwise import contiguous, single
from accelc.compiler.cpu.expressions import FLOATS
from accelc.compiler.cpu.functions import pow_
from accelc.compiler.cpu.gemm import TapOffsets
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT64, Val
from accelc.compiler.cpu.parse import require
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.cpu.planes import Window, planes, require_native, window_of
from accelc.compiler.graph import Array, Node


@dataclass(frozen=True)
class Pool:
    """``kind`` is max, average or lp; strides of the padded planes in elements."""

    kind: str
    dtype: str
    channels: int
    channel: int
    outputs: tuple[int, ...]
    pitch: tuple[int, ...]
    taps: tuple[int, ...]
    p: int = 1


def emit_pool(k: Kernel, s: Pool) -> None:
    """Pointers: planes, [window sizes ``(*outputs)`` when averaging], out."""
    x, *counts, out = k.args
    dtype = np.dtype(s.dtype)
    lanes = min(32, k.lanes_of(dtype))
    taps = TapOffsets(k, s.taps)
    writes = contiguous(s.outputs)
    pixels = int(np.prod(s.outputs))

    def combine(total: Val, value: Val) -> Val:
        if s.kind == "max":
            return value.call("maximum", total) if value.is_float else value.maximum(total)
        if s.kind == "lp":
            size = value.call("fabs")
            value = size if s.p == 1 else value * value if s.p == 2 else pow_(size, size.like(s.p))
        return total + value

    def start(at: Index, lanes: int) -> Val:
        if s.kind == "max":
            return k.load(x, dtype, k.iadd(at, taps[0]), lanes)
        return k.value(0, dtype, lanes)

    def finish(total: Val, position: Index, lanes: int) -> Val:
        if s.kind == "average":
            return total / k.load(counts[0], dtype, position, lanes)
        if s.kind == "lp" and s.p != 1:
            if s.p == 2:
                return total.call("sqrt")
            return pow_(total, total.like(1.0 / s.p))
        return total

    def line(at: tuple[Index, ...]) -> None:
        channel, *outer = at
        read = k.affine((channel, s.channel), *zip(outer, s.pitch, strict=False))
        position = k.affine(*zip(outer, writes, strict=False))
        write = k.affine((channel, pixels), (position, 1))

        def strip(first: Index, lanes: int) -> None:
            base = k.iadd(read, first)

            def tap(t: Index, total: Val) -> Val:
                return combine(total, k.load(x, dtype, k.iadd(base, taps[t]), lanes))

            total = k.loop(len(s.taps), tap, [start(base, lanes)])[0]
            k.store(finish(total, k.iadd(position, first), lanes), out, k.iadd(write, first))

        k.strips(s.outputs[-1], lanes, strip)

    k.nest((s.channels, *s.outputs[:-1]), line)


def window_sizes(node: Node, window: Window) -> Array:
    """Elements each output averages, ``(*outputs)``: with ``count_include_pad`` padding counts too,
    but never what ``ceil_mode`` reads beyond it."""
    rank = len(window.kernel)
    include = bool(node.attrs.get("count_include_pad", 0))
    pads = [int(v) for v in node.attrs.get("pads") or (0,) * (2 * rank)]
    sizes: Array = np.ones((), np.int64)
    for axis in range(rank):
        first = np.arange(window.outputs[axis]) * window.strides[axis] - window.before[axis]
        taps = first[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
        low, high = 0, window.inputs[axis]
        if include:
            automatic = (
                window.after[axis]
                if node.attrs.get("auto_pad", "NOTSET")
                not in (
                    "NOTSET",
                    "VALID",
                )
                else pads[rank + axis]
            )
            low, high = -window.before[axis], high + automatic
        inside = ((taps >= low) & (taps < high)).sum(axis=1)
        sizes = sizes[..., None] * inside
    return sizes


def pool(plan: Plan, node: Node, x: str, out: str, kind: str, pad_value: Any) -> None:
    """Pool ``x`` ``(n, c, *inputs)`` into ``out`` by ``node``'s attributes."""
    require_native(plan, x, out)
    n, c, *inputs = plan.shape(x)
    dtype = plan.dtype(x)
    window = window_of(node, inputs, plan.shape(out)[2:], node.attrs["kernel_shape"])
    pad = plan.constant(np.array(pad_value, dtype))
    p = planes(plan, x, n * c, window, pad)
    norm = int(node.attrs.get("p", 2))
    params = Pool(kind, dtype.name, n * c, p.channel, window.outputs, p.pitch, p.taps, norm)
    reads = [p.value]
    if kind == "average":
        reads.append(plan.constant(window_sizes(node, window).astype(dtype)))
    plan.call(emit_pool, params, reads, [out])


@dataclass(frozen=True)
class MaxPlaces:
    """A max pool that says where each maximum was, as a position in the whole input.

    ``taps`` are offsets in the padded planes, ``moves`` the same taps in the input; ``steps`` is
    how far the window moves in the input along every axis, ``first`` where it begins.
    """

    dtype: str
    channels: int
    channel: int
    pixels: int
    outputs: tuple[int, ...]
    pitch: tuple[int, ...]
    taps: tuple[int, ...]
    moves: tuple[int, ...]
    steps: tuple[int, ...]
    first: int


def emit_max_places(k: Kernel, s: MaxPlaces) -> None:
    """Pointers: planes, out, places."""
    x, out, places = k.args
    dtype = np.dtype(s.dtype)
    taps = TapOffsets(k, s.taps)
    moves = TapOffsets(k, s.moves, "moves")
    writes = contiguous((s.channels, *s.outputs))

    def position(at: tuple[Index, ...]) -> None:
        channel, *place = at
        read = k.affine((channel, s.channel), *zip(place, s.pitch, strict=True))
        begin = k.affine((channel, s.pixels), *zip(place, s.steps, strict=True), (s.first, 1))

        def tap(t: Index, best: Val, where: Val) -> tuple[Val, Val]:
            value = k.load(x, dtype, k.iadd(read, taps[t]))
            here = Val(k, k.index(k.iadd(begin, moves[t])), INT64)
            better = value > best
            return better.select(value, best), better.select(here, where)

        start = [
            k.load(x, dtype, k.iadd(read, taps[0])),
            Val(k, k.index(k.iadd(begin, moves[0])), INT64),
        ]
        best, where = k.loop(len(s.taps), tap, start)
        write = k.affine(*zip(at, writes, strict=True))
        k.store(best, out, write)
        k.store(where, places, write)

    k.nest((s.channels, *s.outputs), position)


def max_pool_places(plan: Plan, node: Node, lowest: Any) -> None:
    """MaxPool with its second output."""
    x, (out, places) = node.inputs[0], node.outputs
    require_native(plan, x)
    n, c, *inputs = plan.shape(x)
    shape = plan.shape(places)
    dtype = plan.dtype(x)
    window = window_of(node, inputs, shape[2:], node.attrs["kernel_shape"])
    p = planes(plan, x, n * c, window, plan.constant(np.array(lowest, dtype)))
    steps = contiguous(inputs)
    if node.attrs.get("storage_order"):
        steps = contiguous(inputs[::-1])[::-1]
    reach = itertools.product(
        *(
            [i * d for i in range(size)]
            for size, d in zip(window.kernel, window.dilations, strict=True)
        )
    )
    params = MaxPlaces(
        dtype.name,
        n * c,
        p.channel,
        int(np.prod(inputs)),
        window.outputs,
        p.pitch,
        p.taps,
        tuple(sum(i * s for i, s in zip(tap, steps, strict=True)) for tap in reach),
        tuple(a * b for a, b in zip(window.strides, steps, strict=True)),
        -sum(b * s for b, s in zip(window.before, steps, strict=True)),
    )
    plan.call(emit_max_places, params, [p.value], [out or plan.temporary(shape, dtype), places])


def lower_max_pool(plan: Plan, node: Node) -> None:
    dtype = plan.dtype(node.inputs[0])
    require(dtype in FLOATS or dtype.kind in "iu", "element type")
    lowest = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
    if any(node.outputs[1:]):
        max_pool_places(plan, node, lowest)
    else:
        pool(plan, node, node.inputs[0], node.outputs[0], "max", lowest)


def lower_average_pool(plan: Plan, node: Node) -> None:
    require(plan.dtype(node.inputs[0]) in FLOATS, "element type")
    pool(plan, node, node.inputs[0], node.outputs[0], "average", 0)


def lower_lp_pool(plan: Plan, node: Node) -> None:
    require(plan.dtype(node.inputs[0]) in FLOATS, "element type")
    pool(plan, node, node.inputs[0], node.outputs[0], "lp", 0)


def lower_qlinear_average_pool(plan: Plan, node: Node) -> None:
    """Dequantize, average in float32, then ``rint(y / scale + zero)``: the zero point is inside."""
    x, xs, xz, ys, yz = (*node.inputs, "")[:5]
    out = node.outputs[0]
    require(not node.attrs.get("channels_last"), "channels last")
    dtype = plan.dtype(x)
    zero = plan.constant(np.zeros((), dtype))
    real = plan.temporary(plan.shape(x), np.float32)
    operands = [(x, plan.shape(x)), (xs, ()), (xz or zero, ())]
    single(plan, "DequantizeLinear", operands, (), real, plan.shape(x))
    mean = plan.temporary(plan.shape(out), np.float32)
    pool(plan, node, real, mean, "average", 0)
    operands = [(mean, plan.shape(out)), (ys, ()), (yz or zero, ())]
    single(plan, "QuantizeInside", operands, (), out, plan.shape(out))


LOWERINGS: dict[str, Callable[[Plan, Node], None]] = {
    "AveragePool": lower_average_pool,
    "LpPool": lower_lp_pool,
    "MaxPool": lower_max_pool,
    "com.microsoft.QLinearAveragePool": lower_qlinear_average_pool,
}
