"""Observers: what each one covers of distributions whose best range is known."""

import numpy as np
import pytest

from accelc.compiler.quantize.histogram import Histogram
from accelc.compiler.quantize.observers import (
    OBSERVERS,
    Observer,
    entropy,
    mean_square_error,
    percentile,
)
from accelc.compiler.quantize.parameters import affine


def of(values: object) -> Histogram:
    histogram = Histogram()
    histogram.add(np.asarray(values, np.float32))
    return histogram


@pytest.fixture
def normal(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(200_000).astype(np.float32)


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("value", [0.0, 2.5, -2.5])
def test_one_value_is_covered(name: str, value: float) -> None:
    low, high = OBSERVERS[name](of([value] * 100))
    assert min(low, 0.0) == pytest.approx(min(value, 0.0), rel=1e-2)
    assert max(high, 0.0) == pytest.approx(max(value, 0.0), rel=1e-2)


@pytest.mark.parametrize("name", OBSERVERS)
def test_a_range_stays_within_what_was_seen(name: str, normal: np.ndarray) -> None:
    for values in (normal, np.maximum(normal, 0), -np.maximum(normal, 0), normal + 3):
        low, high = OBSERVERS[name](of(values))
        assert min(values.min(), 0) <= min(low, 0) and max(high, 0) <= max(values.max(), 0)


def test_percentile_leaves_that_share_out_at_each_end(normal: np.ndarray) -> None:
    low, high = percentile(of(normal), 99.0)
    assert (low, high) == pytest.approx(np.percentile(normal, [1, 99]).tolist(), abs=0.01)
    assert percentile(of(normal), 100.0) == (normal.min(), normal.max())


@pytest.mark.parametrize("observer", [percentile, entropy])
def test_an_outlier_is_clipped(observer: Observer, normal: np.ndarray) -> None:
    low, high = observer(of(np.append(normal, np.float32(100.0))))
    assert high < 20 and max(-low, high) > 2.5


@pytest.mark.parametrize("name", ["min-max", "percentile", "entropy"])
def test_mse_has_the_smallest_error(name: str, normal: np.ndarray) -> None:
    values = np.maximum(np.append(normal, np.float32(30.0)), 0)

    def error(found: tuple[float, float]) -> float:
        return float(np.square(affine(*found).rounded(values.astype(np.float64)) - values).sum())

    best = error(mean_square_error(of(values)))
    assert best <= 1.001 * error(OBSERVERS[name](of(values)))


def test_entropy_keeps_a_smooth_distribution(normal: np.ndarray) -> None:
    """Also a rectified one: its many zeros are exact and must not count."""
    for values in (normal, np.maximum(normal, 0)):
        _, high = entropy(of(values))
        assert high > 0.85 * values.max()


def test_entropy_takes_everything_where_numbers_are_few() -> None:
    assert entropy(of([-1.0, 0.2, 5.0])) == (-1.0, 5.0)
