"""What calibration learns about values: histograms, extremes and means, in constant memory."""

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.quantize.histogram import Histogram


class ValueStatistics:
    """Statistics of one value over all samples.

    Members:
        histogram: of all elements.
        mean: of the value over the samples, in its shape; only if asked for.
        reach: largest magnitude along ``channel_axis``, ``(channels,)``; only if that is given.
    """

    def __init__(self, *, mean: bool = False, channel_axis: int | None = None) -> None:
        self.histogram = Histogram()
        self.channel_axis = channel_axis
        self.reach: NDArray[np.float64] | None = None
        self._wants_mean = mean
        self._sum: NDArray[np.float64] | None = None
        self._samples = 0

    def add(self, value: NDArray[np.float32]) -> None:
        """Take in one finite value."""
        self.histogram.add(value)
        self._samples += 1
        if self._wants_mean:
            self._sum = value.astype(np.float64) if self._sum is None else self._sum + value
        if self.channel_axis is not None:
            others = tuple(a for a in range(value.ndim) if a != self.channel_axis % value.ndim)
            reach = np.abs(value).max(axis=others, initial=0.0).astype(np.float64)
            self.reach = reach if self.reach is None else np.maximum(self.reach, reach)

    @property
    def mean(self) -> NDArray[np.float64]:
        if self._sum is None:
            raise AssertionError("the mean was not asked for, or there was no sample")
        return self._sum / self._samples


class Noise:
    """Signal-to-noise ratio of a value against its reference, accumulated over samples."""

    def __init__(self) -> None:
        self.signal = 0.0
        self.noise = 0.0

    def add(self, reference: NDArray, found: NDArray) -> None:
        exact = reference.astype(np.float64)
        self.signal += float(np.vdot(exact, exact))
        error = found.astype(np.float64) - exact
        self.noise += float(np.vdot(error, error))

    @property
    def decibels(self) -> float:
        """Ratio of the powers in dB; infinite where both agree exactly."""
        if self.noise == 0.0:
            return float("inf")
        return float(10.0 * np.log10(self.signal / self.noise)) if self.signal else float("-inf")
