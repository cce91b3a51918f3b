"""Observers: from the histogram of a value to the range that eight bits shall cover."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.quantize.histogram import Histogram
from accelc.compiler.quantize.parameters import affine

Range = tuple[float, float]
Observer = Callable[[Histogram], Range]
#: Share of the numbers, in percent, that ``percentile`` covers by default.
DEFAULT_PERCENTILE = 99.99
_LEVELS = 256
#: Cells that ``entropy`` divides the full range into, and the fewest it keeps.
_CELLS, _FEWEST_CELLS = 2048, 128
#: Distance of the thresholds that ``entropy`` tries, in cells.
_CELL_STEP = 16
#: Numbers per cell below which what a cell holds says nothing about the distribution.
_FEWEST_NUMBERS = 8
#: Shares of the range that ``mse`` tries for each end.
_SHARES = np.linspace(1.0, 0.04, 49)
_MSE_ROUNDS = 2


def min_max(histogram: Histogram) -> Range:
    """All of it."""
    return histogram.low, histogram.high


def percentile(histogram: Histogram, percent: float = DEFAULT_PERCENTILE) -> Range:
    """What is left without the outermost numbers: ``100 - percent`` at each end."""
    points, counts = histogram.points
    cumulated = np.cumsum(counts)
    outside = histogram.count * (1.0 - percent / 100.0)
    low = points[min(np.searchsorted(cumulated, outside, "right"), len(points) - 1)]
    high = points[np.searchsorted(cumulated, histogram.count - outside, "left")]
    # a bin's mean lies within it: the outermost bins' ends are the exact extremes
    low = histogram.low if low == points[0] else low
    high = histogram.high if high == points[-1] else high
    return float(min(low, 0.0)), float(max(high, 0.0))


def mean_square_error(histogram: Histogram) -> Range:
    """The range whose rounding and clipping errors have the smallest sum of squares."""
    points, counts = histogram.points
    ends = [min(histogram.low, 0.0), max(histogram.high, 0.0)]

    def error(low: float, high: float) -> float:
        return float(counts @ (affine(low, high).rounded(points) - points) ** 2)

    best, found = error(*ends), list(ends)
    for _ in range(_MSE_ROUNDS):
        for end in (0, 1):
            for share in _SHARES:
                tried = list(found)
                tried[end] = ends[end] * float(share)
                if tried != found and (worth := error(tried[0], tried[1])) < best:
                    best, found = worth, tried
    return found[0], found[1]


def entropy(histogram: Histogram) -> Range:
    """The range whose quantized distribution tells most about the original one.

    As in TensorRT: for each threshold the numbers beyond it are clipped, the distribution within is
    merged to as many levels as quantization leaves it, and the threshold with the smallest
    Kullback-Leibler divergence between the two is taken. One threshold serves both signs; a side
    that holds no numbers gets no levels. All of the range is taken where numbers are too few to
    have a distribution.
    """
    counts, width = histogram.magnitudes
    # the zeros that a rectifier makes would outweigh everything; they are exact at any threshold
    if counts.sum() < _FEWEST_NUMBERS * _CELLS:
        return histogram.low, histogram.high
    used = int(np.flatnonzero(counts)[-1]) + 1
    bins = -(-used // _CELLS)  # per cell: whole ones, or the density would have ripples
    cells = -(-used // bins)
    density = np.pad(counts[:used], (0, cells * bins - used)).reshape(cells, bins).sum(axis=1)
    levels = _LEVELS // 2 if histogram.low < 0.0 < histogram.high else _LEVELS
    tried = [*range(max(_FEWEST_CELLS, levels), cells, _CELL_STEP), cells]
    divergences = [_divergence(density, kept, levels) for kept in tried]
    threshold = tried[int(np.argmin(divergences))] * bins * width
    return max(histogram.low, -threshold), min(histogram.high, threshold)


def _divergence(density: NDArray[Any], kept: int, levels: int) -> float:
    """Kullback-Leibler divergence of ``density`` clipped to ``kept`` cells from its ``levels``."""
    inside = density[:kept]
    reference = inside.copy()
    reference[-1] += density[kept:].sum()
    edges = (np.arange(levels) * kept) // levels
    occupied = inside > 0
    mass = np.add.reduceat(inside, edges)
    cells = np.add.reduceat(occupied.astype(np.float64), edges)
    level = np.repeat(np.arange(levels), np.diff(np.append(edges, kept)))
    share = np.divide(mass, cells, out=np.zeros(levels), where=cells > 0)
    candidate = np.where(occupied, share[level], 0.0)
    p, q = reference / reference.sum(), candidate / max(candidate.sum(), 1e-300)
    counted = p > 0
    # a clipped number with no level of its own is what this threshold gets wrong
    return float(np.sum(p[counted] * np.log(p[counted] / np.maximum(q[counted], 1e-12))))


OBSERVERS: dict[str, Observer] = {
    "min-max": min_max,
    "percentile": percentile,
    "entropy": entropy,
    "mse": mean_square_error,
}
