"""Scales, zero points, integer weights and biases."""

import numpy as np
import pytest

from accelc.compiler.quantize.parameters import BIAS_MAX, affine, balanced, quantize_weights


@pytest.mark.parametrize(
    ("low", "high", "zero"),
    [(0, 255, -128), (0, 6, -128), (-255, 0, 127), (3, 7, -128), (-7, -3, 127)],
)
def test_the_zero_point(low: float, high: float, zero: int) -> None:
    assert affine(low, high).zero == zero


def test_zero_is_exact_and_the_range_covered(rng: np.random.Generator) -> None:
    for low, high in rng.uniform(-1, 1, (200, 2)) * 10.0 ** rng.integers(-6, 6, (200, 1)):
        found = affine(low, high)
        assert found.rounded(np.zeros(1)) == 0.0
        assert found.quantize(np.zeros(1)) == found.zero
        ends = np.array([min(low, high, 0), max(low, high, 0)])
        if low <= high:
            assert np.abs(found.rounded(ends) - ends).max() <= 0.51 * found.scale


def test_pixels_stay_what_they_are() -> None:
    pixels = np.arange(256.0)
    assert np.array_equal(affine(0, 255).rounded(pixels), pixels)


@pytest.mark.parametrize(
    ("low", "high", "zero"),
    [(-1, 1, 0), (-3, 2, 0), (-2, 4, 0), (-1, 4, -77), (0, 1, -128), (-5, 0, 127), (0, 0, 0)],
)
def test_factors_of_a_product_are_symmetric_where_that_costs_little(
    low: float, high: float, zero: int
) -> None:
    found = affine(*balanced(low, high))
    assert found.zero == zero
    assert found.low <= low + 1e-6 and found.high >= high - 1e-6


def test_a_value_that_is_always_zero() -> None:
    assert (affine(0, 0).scale, affine(0, 0).zero) == (1.0, 0)


@pytest.mark.parametrize("axis", [0, 1])
def test_weights_have_a_scale_per_channel(axis: int, rng: np.random.Generator) -> None:
    weights = (rng.standard_normal((4, 6)) * [[1e-3], [1], [50], [0]]).astype(np.float32)
    weights = weights if axis == 0 else np.ascontiguousarray(weights.T)
    found = quantize_weights(weights, axis, np.float32(0.1), None)
    assert found.integers.min() >= -127
    channels = np.moveaxis(np.abs(found.integers), axis, 0).reshape(4, -1).max(axis=1)
    assert channels.tolist() == [127, 127, 127, 0]
    assert (np.abs(found.real - weights) <= 0.5001 * found.scale.max()).all()
    assert found.bias is None and (found.scale > 0).all()


def test_biases_are_at_the_accumulators_scale() -> None:
    weights, bias = np.array([[1.0], [2.0]], np.float32), np.array([0.5, -3.0], np.float32)
    found = quantize_weights(weights, 0, np.float32(0.01), bias)
    assert found.bias is not None and found.bias.dtype == np.int32
    np.testing.assert_allclose(found.bias * found.bias_scale, bias, rtol=1e-3)
    np.testing.assert_allclose(found.bias_scale, np.float32(0.01) * found.scale, rtol=1e-6)


def test_the_bias_of_a_dead_channel_fits() -> None:
    weights = np.array([[1e-9], [0.0]], np.float32)
    found = quantize_weights(weights, 0, np.float32(1e-3), np.array([5.0, 5.0], np.float32))
    assert found.bias is not None
    assert (np.abs(found.bias.astype(np.int64)) <= BIAS_MAX + 1).all()
    np.testing.assert_allclose(found.bias * found.bias_scale.astype(np.float64), 5.0, rtol=1e-6)
