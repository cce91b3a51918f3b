"""The streaming histogram: exact counts in constant memory, whatever comes in whatever order."""

import numpy as np
import pytest

from accelc.compiler.quantize.histogram import BINS, Histogram


def of(*parts: object) -> Histogram:
    histogram = Histogram()
    for part in parts:
        histogram.add(np.asarray(part, np.float32))
    return histogram


@pytest.mark.parametrize("scales", [(1e-3, 1.0, 1e3), (1e3, 1.0, 1e-3), (1e-20, 1e20)])
def test_nothing_is_lost_while_the_range_grows(
    scales: tuple[float, ...], rng: np.random.Generator
) -> None:
    parts = [rng.standard_normal(1000).astype(np.float32) * np.float32(s) for s in scales]
    everything = np.concatenate(parts)
    histogram = of(*parts)
    points, counts = histogram.points
    assert histogram.count == counts.sum() == everything.size
    assert (histogram.low, histogram.high) == (everything.min(), everything.max())
    assert points @ counts == pytest.approx(everything.astype(np.float64).sum(), rel=1e-6)
    assert (np.diff(points) > 0).all()
    assert len(points) <= BINS


def test_a_bin_stands_for_the_mean_of_its_numbers() -> None:
    """Pixels are whole numbers: their bins must not be off by half a bin."""
    points, counts = of(np.arange(256), np.arange(0, 256, 2)).points
    assert points.tolist() == list(range(256))
    assert counts.tolist() == [2, 1] * 128


def test_magnitudes_leave_zeros_out() -> None:
    histogram = of([0.0] * 7, [-1.0, 1.0, 0.5])
    counts, width = histogram.magnitudes
    assert (histogram.zeros, counts.sum()) == (7, 3)
    assert counts[int(0.5 / width)] == 1


def test_zeros_alone() -> None:
    histogram = of(np.zeros(5), np.zeros(3))
    assert (histogram.low, histogram.high, histogram.count) == (0.0, 0.0, 8)
    assert of(np.zeros(5), [3.0]).high == 3.0


def test_no_numbers_change_nothing() -> None:
    assert of(np.zeros((0, 3))).count == 0


def test_order_does_not_matter(rng: np.random.Generator) -> None:
    a, b = rng.uniform(-9, 9, 500), rng.uniform(-0.1, 0.1, 500)
    one, other = of(a, b).points, of(b, a).points
    assert np.array_equal(one[1], other[1])
    np.testing.assert_allclose(one[0], other[0])
