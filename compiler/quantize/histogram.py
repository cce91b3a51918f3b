"""A histogram of a stream of numbers whose range is not known in advance."""

import math

import numpy as np
from numpy.typing import NDArray

#: Enough that a 256th of the range, one quantization step, holds at least 16 bins.
BINS = 1 << 14


class Histogram:
    """Counts of all numbers seen so far, in a fixed number of bins around 0.

    The bins cover ``[-reach, reach)``; ``reach`` is a power of two that doubles, merging bins
    pairwise, when a larger number comes. Memory does not depend on how many numbers come.

    Members:
        count: how many numbers there were.
        zeros: how many of them were exactly 0: rectifiers and padding make those.
        low, high: the smallest and the largest, exactly.
    """

    def __init__(self) -> None:
        self.count = 0
        self.zeros = 0
        self.low = math.inf
        self.high = -math.inf
        self._reach = 0.0
        self._counts = np.zeros(BINS, np.int64)
        self._sums = np.zeros(BINS)

    def add(self, values: NDArray[np.float32]) -> None:
        """Count finite ``values``, of any shape."""
        flat = values.reshape(-1)
        if not flat.size:
            return
        low, high = float(flat.min()), float(flat.max())
        self._grow(max(abs(low), abs(high)))
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.count += flat.size
        self.zeros += flat.size - int(np.count_nonzero(flat))
        index = ((flat.astype(np.float64) / self._reach + 1.0) * (BINS // 2)).astype(np.int64)
        np.clip(index, 0, BINS - 1, out=index)  # the largest number itself may lie on the edge
        self._counts += np.bincount(index, minlength=BINS)
        self._sums += np.bincount(index, weights=flat, minlength=BINS)

    def _grow(self, largest: float) -> None:
        if not self._reach:
            # a number of zeros fits any reach
            self._reach = 2.0 ** math.ceil(math.log2(max(largest, 2.0**-120)))
        while largest > self._reach:
            self._reach *= 2.0
            self._counts, self._sums = _halved(self._counts), _halved(self._sums)

    @property
    def points(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Occupied bins in ascending order: the mean of the numbers in each, and how many."""
        used = np.flatnonzero(self._counts)
        counts = self._counts[used]
        return self._sums[used] / counts, counts

    @property
    def magnitudes(self) -> tuple[NDArray[np.int64], float]:
        """How many numbers other than 0 there are by magnitude, in bins from 0, and their width."""
        half = BINS // 2
        counts = self._counts[half:] + self._counts[:half][::-1]
        counts[0] -= self.zeros
        return counts, self._reach / half


def _halved(bins: NDArray) -> NDArray:
    """The same content in bins twice as wide, centred: half of the result is empty."""
    pairs = bins.reshape(-1, 2).sum(axis=1)
    quarter = BINS // 4
    return np.pad(pairs, (quarter, quarter))
