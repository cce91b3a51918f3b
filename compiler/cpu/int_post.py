"""What follows accumulation in the integer operators: requantize, clamp, add, table; bit for bit.

Where compile-time bounds prove that every product fits in the 53 bits of a double, the arithmetic
of ``isa.spec.Alu`` runs in float64: products and power-of-two scales are exact there and ``rint``
rounds half to even, so the result is the same bits for a quarter of the instructions. Otherwise it
runs in int64.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import FLOAT64, INT8, INT32, INT64, Val
from accelc.compiler.cpu.plan import NotNative, Plan
from accelc.compiler.graph import Array
from accelc.compiler.integer import Post

#: Largest shift for which adding 1 to a value clamped to 10 bits is still exact in a double.
_PARITY_SHIFT = 42
_DOUBLE_BITS = 53


@dataclass(frozen=True)
class PostKernel:
    """What of a Post is compiled in; the numbers themselves are read from a constant."""

    scale: bool
    add: bool
    table: bool
    double: bool
    #: Round half to odd: the zero point is inside the rounding and odd.
    odd: bool

    @property
    def element(self) -> np.dtype[Any]:
        return FLOAT64 if self.double else INT64


@dataclass(frozen=True)
class Scale:
    """Requantization constants, ``(c,)`` int64 each, and a bound on ``|x + bias|`` per channel."""

    bias: Array
    mult: Array
    shift: Array
    bound: Array


def vector(plan: Plan, name: str) -> Array:
    """A constant per-channel vector as int64 ``(c,)``.

    Raises:
        NotNative: the value is not known at compile time.
    """
    array = plan.known(name)
    if array is None:
        raise NotNative(f"{name} is not a constant")
    return array.reshape(-1).astype(np.int64)


def scale_of(plan: Plan, names: tuple[str, str, str], spread: Any) -> Scale:
    """Scale of bias, mult, shift; ``spread`` bounds the accumulated ``|x|`` of each channel."""
    bias, mult, shift = (vector(plan, name) for name in names)
    return Scale(bias, mult & 0xFFFFFF, shift & 0x3F, np.abs(bias) + spread)


def kernel_of(post: Post, scale: Scale | None) -> PostKernel:
    """How ``post`` may be computed exactly."""
    double = True
    odd = bool(scale is not None and post.inside and post.zero & 1)
    if scale is not None and scale.bias.size:
        fits = scale.bound <= (1 << 31) - 1  # cannot wrap
        fits &= [
            int(b) * int(m) <= 1 << _DOUBLE_BITS
            for b, m in zip(scale.bound, scale.mult, strict=True)
        ]
        double = bool(fits.all()) and (not odd or int(scale.shift.max()) <= _PARITY_SHIFT)
        double = double and int(scale.shift.max()) <= 62
    if post.add is not None:
        # the first operand is within int8 only if the clamp says so
        first = max(abs(post.min), abs(post.max))
        largest = first * abs(post.add.m1) + 128 * abs(post.add.m2) + abs(post.add.offset)
        double = double and largest <= 1 << _DOUBLE_BITS and post.add.shift <= 62
    return PostKernel(scale is not None, post.add is not None, post.table, double, odd)


def numbers(plan: Plan, post: Post, kernel: PostKernel) -> str:
    """The constant that holds the Post's numbers in the order ``emit_lanes`` reads them."""
    add = post.add
    values: list[float | int] = [post.zero, post.min, post.max]
    if add is not None:
        shift = 2.0**-add.shift if kernel.double else add.shift
        values += [add.m1, add.m2, add.offset, shift, add.zero, add.min, add.max]
    return plan.constant(np.array(values, kernel.element))


def scales(plan: Plan, scale: Scale, kernel: PostKernel) -> list[str]:
    """The constants of requantization: multiplier (and shift, in the int64 form) ``(c,)``."""
    if kernel.double:
        return [plan.constant(scale.mult * 2.0 ** -scale.shift.astype(np.float64))]
    return [plan.constant(scale.mult), plan.constant(scale.shift)]


class PostEmitter:
    """Emits the stages for a strip of channels; scalars are loaded once, where it is created."""

    def __init__(
        self, k: Kernel, kernel: PostKernel, constants: Any, scale: tuple[Any, ...], table: Any
    ) -> None:
        self.k, self.kernel, self.scale, self.table = k, kernel, scale, table
        count = 10 if kernel.add else 3
        self._scalars = [k.load(constants, kernel.element, i) for i in range(count)]
        self._splats: dict[int, list[Val]] = {}

    def prepare(self, lanes: int) -> None:
        """Broadcast the scalars here, outside of the loops that use them."""
        self._splats[lanes] = [self.k.splat(scalar, lanes) for scalar in self._scalars]

    def channel_scale(self, channel: Index, lanes: int) -> tuple[Val, ...]:
        """Multiplier (and shift) of a strip of channels."""
        return tuple(self.k.load(p, self.kernel.element, channel, lanes) for p in self.scale)

    def lanes(self, x: Val, scale: tuple[Val, ...], other: Val | None) -> Val:
        """int8 of accumulators ``x`` (int32, bias added) or of int8 ``x``; ``other`` is int8."""
        kernel = self.kernel
        p = self._splats[x.lanes]
        value = x.convert(kernel.element)
        if kernel.scale:
            value = self._round_scale(value, scale) + p[0]
        value = value.clamp(p[1], p[2])
        if other is not None:
            second = other.convert(INT32).convert(kernel.element)
            total = value * p[3] + second * p[4] + p[5]
            value = (total * p[6]).rint() if kernel.double else self._shift(total, p[6], False)
            value = (value + p[7]).clamp(p[8], p[9])
        if kernel.table:
            index = value.convert(INT32) + 128
            return self.k.load_indexed(self.table, INT8, index.convert(INT64))
        return value.convert(INT32).convert(INT8)

    def _round_scale(self, value: Val, scale: tuple[Val, ...]) -> Val:
        if not self.kernel.double:
            mult, shift = scale
            return self._shift(value * mult, shift, self.kernel.odd)
        product = value * scale[0]
        if self.kernel.odd:
            return (product.clamp(-1024.0, 1024.0) + 1.0).rint() - 1.0
        return product.rint()

    @staticmethod
    def _shift(value: Val, shift: Val, odd: bool) -> Val:
        """``isa.semantics.round_shift`` in int64."""
        floor = value >> shift
        twice = (value - (floor << shift)) << 1
        one = value.like(1) << shift
        parity = (floor + 1 if odd else floor) & 1
        up = (twice > one) | (twice.equals(one) & parity.equals(1))
        return shift.equals(0).select(value, floor + up.convert(INT64))
