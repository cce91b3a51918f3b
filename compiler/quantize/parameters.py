"""Scales, zero points and integers: from ranges and weights to what a quantized model stores."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

INT8_MIN, INT8_MAX = -128, 127
#: Weights are symmetric: one value less, so that the sign can be changed.
WEIGHT_MAX = 127
#: How far the nearer end of a range must reach, as a share of the farther one, to be made alike.
BALANCED = 0.5
#: A bias takes at most half of the accumulator's range; the products need the rest.
BIAS_MAX = 1 << 30
#: Smaller scales are of values that are 0 for all purposes; their products underflow float32.
MIN_SCALE = 1e-12


@dataclass(frozen=True)
class Affine:
    """Asymmetric int8 quantization of a tensor: ``real = (q - zero) * scale``."""

    scale: np.float32
    zero: int

    @property
    def low(self) -> float:
        """The smallest number that is not clipped."""
        return float((INT8_MIN - self.zero) * self.scale)

    @property
    def high(self) -> float:
        return float((INT8_MAX - self.zero) * self.scale)

    def quantize(self, real: NDArray) -> NDArray[np.int8]:
        q = np.rint(real.astype(np.float32) / self.scale) + self.zero
        return np.clip(q, INT8_MIN, INT8_MAX).astype(np.int8)

    def rounded(self, real: NDArray[np.float64]) -> NDArray[np.float64]:
        """What ``real`` is after quantization."""
        q = np.clip(np.rint(real / self.scale) + self.zero, INT8_MIN, INT8_MAX)
        return (q - self.zero) * float(self.scale)


def affine(low: float, high: float) -> Affine:
    """Parameters that cover ``low`` to ``high``, widened so that 0 (padding!) is exact.

    A range of a single 0 gives scale 1.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return Affine(np.float32(1), 0)
    scale = np.float32(max((high - low) / (INT8_MAX - INT8_MIN), MIN_SCALE))
    zero = int(np.clip(np.rint(INT8_MIN - low / float(scale)), INT8_MIN, INT8_MAX))
    return Affine(scale, zero)


def balanced(low: float, high: float) -> tuple[float, float]:
    """The range of a factor of a product: as far to both sides where that costs little.

    With a zero point of 0 the accelerator multiplies once, with another one also what corrects for
    it. One side that reaches less than ``BALANCED`` of the other is not given levels for that.
    """
    reach = max(-low, high)
    if min(-low, high) < BALANCED * reach:
        return low, high
    return -reach * (INT8_MAX + 1) / INT8_MAX, reach


@dataclass(frozen=True)
class Weights:
    """Symmetric int8 weights, ``real = integers * scale[channel]`` along ``axis``.

    ``bias`` is ``(channels,)`` int32 at the scale ``bias_scale = x_scale * scale``, or None.
    """

    integers: NDArray[np.int8]
    scale: NDArray[np.float32]
    axis: int
    bias: NDArray[np.int32] | None
    bias_scale: NDArray[np.float32]

    @property
    def real(self) -> NDArray[np.float64]:
        return self.integers * along(self.scale, self.axis, self.integers.ndim).astype(np.float64)


def along(values: NDArray, axis: int, rank: int) -> NDArray:
    """``(channels,)`` shaped to broadcast along ``axis`` of ``rank`` axes."""
    return values.reshape([-1 if a == axis else 1 for a in range(rank)])


def quantize_weights(
    weights: NDArray, axis: int, x_scale: np.float32, bias: NDArray | None
) -> Weights:
    """Quantize ``weights`` per channel along ``axis`` and ``bias``, ``(channels,)``, to int32.

    A channel whose weights are so small that its bias would not fit gets a larger scale: its
    weights hardly matter then.
    """
    others = tuple(a for a in range(weights.ndim) if a != axis)
    largest = np.abs(weights).max(axis=others, initial=0.0).astype(np.float64)
    # a channel of zeros takes part in nothing; the largest scale keeps it out of trouble
    largest = np.where(largest > 0, largest, max(float(largest.max(initial=0.0)), 1.0))
    scale = np.maximum(largest / WEIGHT_MAX, MIN_SCALE)
    if bias is not None:
        scale = np.maximum(scale, np.abs(bias.astype(np.float64)) / (float(x_scale) * BIAS_MAX))
    scale32 = scale.astype(np.float32)
    spread = along(scale32, axis, weights.ndim)
    integers = np.clip(np.rint(weights / spread), -WEIGHT_MAX, WEIGHT_MAX).astype(np.int8)
    bias_scale = (x_scale * scale32).astype(np.float32)
    units = None
    if bias is not None:
        units = np.rint(bias.astype(np.float64) / bias_scale.astype(np.float64)).astype(np.int32)
    return Weights(integers, scale32, axis, units, bias_scale)
