"""GridSample: values of an image at computed places."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu.elementwise import contiguous
from accelc.compiler.cpu.expressions import FLOATS
from accelc.compiler.cpu.functions import truncate_to_int
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT64, Val
from accelc.compiler.cpu.parse import require, text
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.cpu.planes import require_native
from accelc.compiler.graph import Node

#: Cubic convolution's coefficient, as ONNX fixes it here.
_CUBIC = -0.75
#: Places are bounded to this, so that they are integers that fit whatever the grid holds.
_FAR = float(1 << 30)


@dataclass(frozen=True)
class GridSample:
    """``(n, c, *extents)`` at ``(n, points, rank)``; ``mode`` is linear, nearest or cubic."""

    dtype: str
    grid: str
    mode: str
    padding: str
    align_corners: bool
    images: int
    channels: int
    extents: tuple[int, ...]
    points: int


def _scaled(x: Val, s: GridSample, extent: int) -> Val:
    """From -1 to 1 to a place in the image."""
    if s.align_corners:
        return (x + 1.0) * ((extent - 1) / 2)
    return ((x + 1.0) * float(extent) - 1.0) * 0.5


def _mirrored(x: Val, low: float, high: float) -> Val:
    """A place brought inside by mirrors at both borders."""
    span = high - low
    if span <= 0.0:
        return x.like(low)
    beyond = (low - x).call("fabs")
    beyond = (x < low).select(beyond, (x > high).select(x - high, x.like(0.0)))
    times = (beyond / span).call("floor")
    rest = beyond - times * span
    odd = (times * 0.5).call("floor").differs(times * 0.5)
    from_low = odd.select(high - rest, rest + low)
    from_high = odd.select(rest + low, high - rest)
    return (x < low).select(from_low, (x > high).select(from_high, x))


def _bounded(x: Val) -> Val:
    """NaN and what is far outside as a place just as far outside."""
    x = x.differs(x).select(x.like(-_FAR), x)
    return x.clamp(-_FAR, _FAR)


def _cubic(t: Val) -> list[Val]:
    """Weights of the four neighbours of a place ``t`` behind the second."""
    a = _CUBIC

    def near(d: Val) -> Val:
        return ((a + 2) * d - (a + 3)) * d * d + 1.0

    def far(d: Val) -> Val:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


def emit_grid_sample(k: Kernel, s: GridSample) -> None:
    """Pointers: x, grid, out."""
    image, grid, out = k.args
    dtype = np.dtype(s.dtype)
    rank = len(s.extents)
    strides = contiguous(s.extents)
    pixels = math.prod(s.extents)

    def borders(extent: int) -> tuple[float, float]:
        return (0.0, extent - 1.0) if s.align_corners else (-0.5, extent - 0.5)

    def placed(place: Val, extent: int) -> Val:
        """A place that padding other than zeros brings inside."""
        if s.padding == "border":
            return place.clamp(0.0, extent - 1.0)
        if s.padding == "reflection":
            return _mirrored(place, *borders(extent)).clamp(0.0, extent - 1.0)
        return place

    def taps(place: Val, extent: int) -> list[tuple[Val, Val]]:
        """Positions along one axis (whole floats) with their weights."""
        one = place.like(1.0)
        if s.mode == "nearest":
            return [(placed(place, extent).rint(), one)]
        if s.mode == "linear":
            place = placed(place, extent)
            low = place.call("floor")
            share = place - low
            return [(low, 1.0 - share), (low + 1.0, share)]
        low = place.call("floor")
        weights = _cubic(place - low)
        return [(placed(low + float(n - 1), extent), w) for n, w in enumerate(weights)]

    def point(at: tuple[Index, ...]) -> None:
        n, p = at
        first = k.affine((n, s.points * rank), (p, rank))
        axes: list[list[tuple[Val, Val]]] = []
        for axis, extent in enumerate(s.extents):
            # the last coordinate of the grid is the first axis
            given = k.load(grid, np.dtype(s.grid), k.iadd(first, rank - 1 - axis)).convert(dtype)
            axes.append(taps(_bounded(_scaled(given, s, extent)), extent))
        found: list[tuple[Index, Val]] = []
        for combination in itertools.product(*axes):
            weight = combination[0][1]
            for _, other in combination[1:]:
                weight = weight * other
            offset: Index = 0
            for (place, _), extent, stride in zip(combination, s.extents, strides, strict=True):
                inside = (place >= 0.0) & (place <= extent - 1.0)
                weight = inside.select(weight, 0.0)
                index = truncate_to_int(place.clamp(0.0, extent - 1.0), INT64)
                offset = k.iadd(offset, k.imul(index.value, stride))
            found.append((offset, weight))

        def channel(c: Index) -> None:
            base = k.affine((n, s.channels * pixels), (c, pixels))
            total = k.value(0, dtype)
            for offset, weight in found:
                total = total + weight * k.load(image, dtype, k.iadd(base, offset))
            k.store(total, out, k.affine((n, s.channels * s.points), (c, s.points), (p, 1)))

        k.loop(s.channels, channel)

    k.nest((s.images, s.points), point)


def lower_grid_sample(plan: Plan, node: Node) -> None:
    x, grid = node.inputs
    out = node.outputs[0]
    require_native(plan, x, grid)
    require(plan.dtype(x) in FLOATS and plan.dtype(grid) in FLOATS, "element type")
    n, c, *extents = plan.shape(x)
    mode = text(node.attrs.get("mode", "linear"))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    params = GridSample(
        plan.dtype(x).name,
        plan.dtype(grid).name,
        mode,
        text(node.attrs.get("padding_mode", "zeros")),
        bool(node.attrs.get("align_corners", 0)),
        n,
        c,
        tuple(extents),
        math.prod(plan.shape(out)[2:]),
    )
    plan.call(emit_grid_sample, params, [x, grid], [out])


LOWERINGS: dict[str, Callable[[Plan, Node], Any]] = {"GridSample": lower_grid_sample}
