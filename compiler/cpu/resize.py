"""Resize and Upsample: nearest neighbour and linear interpolation."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accelc.compiler.cpu.copies import table_copy
from accelc.compiler.cpu.expressions import FLOATS
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT64
from accelc.compiler.cpu.move import native
from accelc.compiler.cpu.parse import require, text
from accelc.compiler.cpu.plan import NotNative, Plan
from accelc.compiler.cpu.planes import require_native
from accelc.compiler.graph import Array, Node


def scales_of(plan: Plan, node: Node) -> list[float]:
    """Scale of every axis, as given or as the shapes imply.

    Raises:
        NotNative: scales or sizes are computed at run time.
    """
    shape, out = plan.shape(node.inputs[0]), plan.shape(node.outputs[0])
    implied = [o / i for o, i in zip(out, shape, strict=True)]
    if node.op == "Upsample" or plan.graph.opset == 10:
        name = node.inputs[1] if len(node.inputs) > 1 else ""
        if not name:
            return [float(v) for v in node.attrs["scales"]]
    else:
        name = node.inputs[2] if len(node.inputs) > 2 else ""
        policy = text(node.attrs.get("keep_aspect_ratio_policy", "stretch"))
        require(policy == "stretch" or bool(name), "aspect ratio policy")
    if not name or plan.size(name) == 0:
        return implied
    known = plan.known(name)
    require(known is not None, "scales not known at compile time")
    assert known is not None
    axes = [int(a) % len(shape) for a in node.attrs.get("axes") or range(len(shape))]
    scales = [1.0] * len(shape)
    for axis, scale in zip(axes, known.reshape(-1), strict=True):
        scales[axis] = float(scale)
    return scales


def coordinates(mode: str, extent: int, out: int, scale: float) -> Array:
    """Where in the input every output position lies, ``(out,)`` float32.

    In single precision as onnxruntime computes it: rounding decides between neighbours.
    """
    x = np.arange(out, dtype=np.float32)
    half, factor = np.float32(0.5), np.float32(scale)
    match mode:
        case "half_pixel":
            return (x + half) / factor - half
        case "half_pixel_symmetric":
            adjustment = np.float32(out) / (factor * np.float32(extent))
            offset = np.float32(extent) / 2 * (1 - adjustment)
            return offset + (x + half) / factor - half
        case "pytorch_half_pixel":
            return (x + half) / factor - half if out > 1 else x * 0
        case "align_corners":
            return x * np.float32(extent - 1) / np.float32(out - 1) if out > 1 else x * 0
        case "asymmetric":
            return x / factor
        case "tf_half_pixel_for_nn":
            return (x + half) / factor
    raise NotNative(f"coordinate mode {mode}")


def nearest(mode: str, x: Array, extent: int) -> Array:
    """Input positions for coordinates ``x``."""
    match mode:
        case "round_prefer_floor" | "":
            index = np.ceil(x - 0.5)
        case "round_prefer_ceil":
            index = np.floor(x + 0.5)
        case "floor":
            index = np.floor(x)
        case "ceil":
            index = np.ceil(x)
        case _:
            raise NotNative(f"nearest mode {mode}")
    return index.clip(0, extent - 1).astype(np.int64)


@dataclass(frozen=True)
class Interpolation:
    """Along the middle axis of ``(outer, extent, inner)``, to ``out`` positions."""

    dtype: str
    outer: int
    extent: int
    out: int
    inner: int


def emit_interpolation(k: Kernel, s: Interpolation) -> None:
    """Pointers: x, lower and upper neighbour int64 ``(out,)``, upper's weight ``(out,)``, out."""
    source, low, high, weight, target = k.args
    dtype = np.dtype(s.dtype)
    lanes = k.lanes_of(dtype)

    def block(outer: Index) -> None:
        base = k.imul(outer, s.extent * s.inner)
        write = k.imul(outer, s.out * s.inner)

        def position(i: Index) -> None:
            reads = [
                k.iadd(base, k.imul(k.load(table, INT64, i).value, s.inner))
                for table in (low, high)
            ]
            share = k.load(weight, dtype, i)

            def strip(first: Index, n: int) -> None:
                a, b = (k.load(source, dtype, k.iadd(read, first), n) for read in reads)
                w = k.splat(share, n)
                k.store(
                    a * (1.0 - w) + b * w, target, k.affine((write, 1), (i, s.inner), (first, 1))
                )

            k.strips(s.inner, lanes, strip)

        def line(first: Index, n: int) -> None:
            a, b = (
                k.load_indexed(k.at(source, dtype, base), dtype, k.load(table, INT64, first, n))
                for table in (low, high)
            )
            w = k.load(weight, dtype, first, n)
            k.store(a * (1.0 - w) + b * w, target, k.iadd(write, first))

        if s.inner == 1:
            k.strips(s.out, lanes, line)
        else:
            k.loop(s.out, position)

    k.loop(s.outer, block)


def lower_resize(plan: Plan, node: Node) -> None:
    x, out = node.inputs[0], node.outputs[0]
    native(plan, x)
    require_native(plan, x, out)
    old = node.op == "Upsample" or plan.graph.opset == 10
    mode = text(node.attrs.get("mode", "nearest"))
    transform = "asymmetric" if old else "half_pixel"
    transform = text(node.attrs.get("coordinate_transformation_mode", transform))
    rounding = text(node.attrs.get("nearest_mode", "floor" if old else "round_prefer_floor"))
    require(not node.attrs.get("antialias"), "antialias")
    require(not node.attrs.get("exclude_outside"), "exclude_outside")
    shape, target = plan.shape(x), plan.shape(out)
    scales = scales_of(plan, node)
    places: list[Array | None] = [
        None if scale == 1.0 and extent == size else coordinates(transform, extent, size, scale)
        for scale, extent, size in zip(scales, shape, target, strict=True)
    ]
    if mode == "nearest":
        tables = [
            None if place is None else nearest(rounding, place, extent)
            for place, extent in zip(places, shape, strict=True)
        ]
        table_copy(plan, x, out, tables)
        return
    require(mode in ("linear", "bilinear"), f"mode {mode}")
    require(plan.dtype(x) in FLOATS, "element type")
    axes = [axis for axis, place in enumerate(places) if place is not None]
    if not axes:
        plan.alias(out, x)
        return
    current = list(shape)
    for axis in axes:
        place, extent = places[axis], shape[axis]
        assert place is not None
        place = place.clip(0, extent - 1)
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, extent - 1)
        params = Interpolation(
            plan.dtype(x).name,
            math.prod(current[:axis]),
            extent,
            target[axis],
            math.prod(current[axis + 1 :]),
        )
        current[axis] = target[axis]
        result = out if axis == axes[-1] else plan.temporary(current, plan.dtype(x))
        weight = plan.constant((place - low).astype(plan.dtype(out)))
        plan.call(
            emit_interpolation,
            params,
            [x, plan.constant(low), plan.constant(high), weight],
            [result],
        )
        x = result


LOWERINGS: dict[str, Callable[[Plan, Node], None]] = {
    "Resize": lower_resize,
    "Upsample": lower_resize,
}
