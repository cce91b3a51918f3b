"""What is remembered of a value over samples, and noise as a ratio."""

import math

import numpy as np
import pytest

from accelc.compiler.quantize.statistics import Noise, ValueStatistics


def test_means_and_reaches(rng: np.random.Generator) -> None:
    samples = [rng.standard_normal((1, 3, 4, 5)).astype(np.float32) for _ in range(7)]
    found = ValueStatistics(mean=True, channel_axis=1)
    for sample in samples:
        found.add(sample)
    np.testing.assert_allclose(found.mean, np.mean(samples, axis=0, dtype=np.float64), rtol=1e-6)
    assert found.reach is not None
    np.testing.assert_array_equal(found.reach, np.abs(samples).max(axis=(0, 1, 3, 4)))
    assert found.histogram.count == 7 * 60


def test_only_what_is_asked_for_is_kept() -> None:
    found = ValueStatistics()
    found.add(np.ones((2, 2), np.float32))
    assert found.reach is None
    with pytest.raises(AssertionError):
        _ = found.mean


def test_noise_adds_up_over_samples() -> None:
    noise = Noise()
    assert noise.decibels == math.inf
    noise.add(np.array([3.0, 4.0]), np.array([3.0, 4.0]))
    assert noise.decibels == math.inf
    noise.add(np.zeros(2), np.array([0.5, 0.0]))
    assert noise.decibels == pytest.approx(20.0)
    silent = Noise()
    silent.add(np.zeros(2), np.ones(2))
    assert silent.decibels == -math.inf
