"""Resize and Upsample: nearest neighbour, linear and cubic interpolation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from accelc.compiler.cpu.copies import table_copy
from accelc.compiler.cpu.elementwise import single
from accelc.compiler.cpu.expressions import FLOATS
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT64, Val
from accelc.compiler.cpu.move import native
from accelc.compiler.cpu.parse import Operand, require, text
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
        if policy != "stretch" and not name:
            return _equal_scales(plan, node, policy)
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


def _equal_scales(plan: Plan, node: Node, policy: str) -> list[float]:
    """The one scale that keeps the aspect ratio within, or around, the sizes asked for."""
    shape = plan.shape(node.inputs[0])
    sizes = plan.needed(node.inputs[3], "sizes").reshape(-1)
    axes = [int(a) % len(shape) for a in node.attrs.get("axes") or range(len(shape))]
    ratios = [int(size) / shape[axis] for size, axis in zip(sizes, axes, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [scale if axis in axes else 1.0 for axis in range(len(shape))]


def region_of_interest(plan: Plan, node: Node, transform: str) -> list[tuple[float, float]]:
    """First and last position of every axis as a share of it; all of it except when cropping.

    Raises:
        NotNative: the region is computed at run time.
    """
    rank = len(plan.shape(node.inputs[0]))
    regions = [(0.0, 1.0)] * rank
    if transform == "tf_crop_and_resize":
        known = plan.known(node.inputs[1]) if node.inputs[1] else None
        require(known is not None, "region not known at compile time")
        assert known is not None
        axes = [int(a) % rank for a in node.attrs.get("axes") or range(rank)]
        for axis, (start, end) in zip(axes, known.reshape(2, -1).T, strict=True):
            regions[axis] = (float(start), float(end))
    return regions


def coordinates(
    mode: str, extent: int, out: int, scale: float, region: tuple[float, float] = (0.0, 1.0)
) -> Array:
    """Where in the input every output position lies, ``(out,)`` float32.

    In single precision as onnxruntime computes it: rounding decides between neighbours.

    Raises:
        NotNative: unknown mode.
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
            # the length as it is: onnx.reference takes the one before it was rounded down
            return x * np.float32(extent - 1) / np.float32(out - 1) if out > 1 else x * 0
        case "asymmetric":
            return x / factor
        case "tf_half_pixel_for_nn":
            return (x + half) / factor
        case "tf_crop_and_resize":
            start, end = (np.float32(v) for v in region)
            last = np.float32(extent - 1)
            if out == 1:
                return x + half * (start + end) * last
            return start * last + x * (end - start) * last / np.float32(out - 1)
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


def linear(place: Array, extent: int) -> tuple[Array, Array]:
    """The two neighbours of every position and their weights, ``(2, out)``."""
    place = place.clip(0, extent - 1)
    low = np.floor(place)
    share = place - low
    taps = np.stack([low, np.minimum(low + 1, extent - 1)]).astype(np.int64)
    return taps, np.stack([1 - share, share])


def cubic(place: Array, extent: int, a: float, exclude_outside: bool) -> tuple[Array, Array]:
    """The four neighbours of every position and their weights, ``(4, out)``.

    Beyond the border its own value counts again, or nothing with ``exclude_outside``.
    """
    low = np.floor(place)
    s = place - low
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (s, 1 - s)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (1 + s, 2 - s)]
    taps = np.stack([low - 1, low, low + 1, low + 2]).astype(np.int64)
    weights = np.stack([far[0], *near, far[1]])
    if exclude_outside:
        weights = np.where((taps >= 0) & (taps < extent), weights, 0)
        weights /= weights.sum(axis=0)
    return taps.clip(0, extent - 1), weights


def antialiased(
    mode: str, place: Array, extent: int, scale: float, a: float, exclude_outside: bool
) -> tuple[Array, Array]:
    """Neighbours of every position and their weights, ``(taps, out)``, as far as the filter reaches
    when it is as wide as one output element is in the input."""
    scale = min(scale, 1.0)
    reach = 2.0 if mode == "cubic" else 1.0
    start = math.floor(-reach / scale) + 1
    steps = np.arange(start, 2 - start)[:, None]
    low = np.floor(place)
    distance = np.abs((steps - (place - low)) * scale)
    if mode == "cubic":
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    else:
        weights = np.clip(1 - distance, 0, 1)
    taps = (steps + low).astype(np.int64)
    if exclude_outside:
        weights = np.where((taps >= 0) & (taps < extent), weights, 0)
    return taps.clip(0, extent - 1), weights / weights.sum(axis=0)


@dataclass(frozen=True)
class Interpolation:
    """Along the middle axis of ``(outer, extent, inner)``, to ``out`` positions."""

    dtype: str
    outer: int
    extent: int
    out: int
    inner: int
    #: Neighbours every position is made of.
    taps: int


def emit_interpolation(k: Kernel, s: Interpolation) -> None:
    """Pointers: x, neighbours int64 ``(taps, out)``, their weights ``(taps, out)``, out."""
    source, table, weight, target = k.args
    dtype = np.dtype(s.dtype)
    lanes = k.lanes_of(dtype)

    def weighted(values: list[Val], weights: list[Val]) -> Val:
        total = values[0] * weights[0]
        for value, share in zip(values[1:], weights[1:], strict=True):
            total = total + value * share
        return total

    def block(outer: Index) -> None:
        base = k.imul(outer, s.extent * s.inner)
        write = k.imul(outer, s.out * s.inner)

        def position(i: Index) -> None:
            at = [k.iadd(i, tap * s.out) for tap in range(s.taps)]
            reads = [k.iadd(base, k.imul(k.load(table, INT64, t).value, s.inner)) for t in at]
            shares = [k.load(weight, dtype, t) for t in at]

            def strip(first: Index, n: int) -> None:
                values = [k.load(source, dtype, k.iadd(read, first), n) for read in reads]
                total = weighted(values, [k.splat(share, n) for share in shares])
                k.store(total, target, k.affine((write, 1), (i, s.inner), (first, 1)))

            k.strips(s.inner, lanes, strip)

        def line(first: Index, n: int) -> None:
            at = [k.iadd(first, tap * s.out) for tap in range(s.taps)]
            values = [
                k.load_indexed(k.at(source, dtype, base), dtype, k.load(table, INT64, t, n))
                for t in at
            ]
            total = weighted(values, [k.load(weight, dtype, t, n) for t in at])
            k.store(total, target, k.iadd(write, first))

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
    rounding = text(node.attrs.get("nearest_mode", "" if old else "round_prefer_floor"))
    shape, target = plan.shape(x), plan.shape(out)
    scales = scales_of(plan, node)
    places: list[Array | None] = [
        None
        if scale == 1.0 and extent == size and region == (0, 1)
        else coordinates(transform, extent, size, scale, region)
        for scale, extent, size, region in zip(
            scales, shape, target, region_of_interest(plan, node, transform), strict=True
        )
    ]
    if outside(places, shape).any() and transform == "tf_crop_and_resize":
        out = plan.temporary(target, plan.dtype(x))
    if mode == "nearest":
        # operator set 10 said nothing of rounding; its examples shrink to the next sample
        tables = [
            None
            if place is None
            else nearest(rounding or ("ceil" if scale < 1 else "floor"), place, extent)
            for place, extent, scale in zip(places, shape, scales, strict=True)
        ]
        table_copy(plan, x, out, tables)
    else:
        interpolate(plan, node, x, out, mode, places, scales)
    if out != node.outputs[0]:
        fill_beyond(plan, node, outside(places, shape), out)


def outside(places: Sequence[Array | None], shape: Sequence[int]) -> Array:
    """Which positions lie beyond the input, as far as axes have places of their own."""
    mask = np.zeros((1,) * len(shape), np.bool_)
    for axis, (place, extent) in enumerate(zip(places, shape, strict=True)):
        if place is not None:
            view = tuple(-1 if other == axis else 1 for other in range(len(shape)))
            mask = mask | ((place < 0) | (place > extent - 1)).reshape(view)
    return mask


def fill_beyond(plan: Plan, node: Node, mask: Array, resized: str) -> None:
    """``extrapolation_value`` for what lies beyond the input."""
    out = node.outputs[0]
    number = np.array(node.attrs.get("extrapolation_value", 0.0), plan.dtype(out))
    operands: list[Operand] = [
        (plan.constant(mask), mask.shape),
        (plan.constant(number), ()),
        (resized, plan.shape(out)),
    ]
    single(plan, "Where", operands, (), out, plan.shape(out))


def interpolate(
    plan: Plan,
    node: Node,
    x: str,
    out: str,
    mode: str,
    places: Sequence[Array | None],
    scales: Sequence[float],
) -> None:
    """One axis after the other: linear and cubic interpolation are separable."""
    shape, target = plan.shape(x), plan.shape(out)
    antialias = bool(node.attrs.get("antialias"))
    require(mode in ("linear", "bilinear", "cubic"), f"mode {mode}")
    require(plan.dtype(x) in FLOATS, "element type")
    axes = [axis for axis, place in enumerate(places) if place is not None]
    if not axes:
        plan.alias(out, x)
        return
    current = list(shape)
    for axis in axes:
        place, extent = places[axis], shape[axis]
        assert place is not None
        coefficient = float(node.attrs.get("cubic_coeff_a", -0.75))
        exclude = bool(node.attrs.get("exclude_outside"))
        if antialias:
            taps, weights = antialiased(mode, place, extent, scales[axis], coefficient, exclude)
        elif mode == "cubic":
            taps, weights = cubic(place, extent, coefficient, exclude)
        else:
            taps, weights = linear(place, extent)
        params = Interpolation(
            plan.dtype(x).name,
            math.prod(current[:axis]),
            extent,
            target[axis],
            math.prod(current[axis + 1 :]),
            len(taps),
        )
        current[axis] = target[axis]
        result = out if axis == axes[-1] else plan.temporary(current, plan.dtype(x))
        tables = [plan.constant(taps), plan.constant(weights.astype(plan.dtype(out)))]
        plan.call(emit_interpolation, params, [x, *tables], [result])
        x = result


LOWERINGS: dict[str, Callable[[Plan, Node], None]] = {
    "Resize": lower_resize,
    "Upsample": lower_resize,
}
