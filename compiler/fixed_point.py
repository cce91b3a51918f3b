"""Real multipliers as integers: ``real = mult / 2**shift``."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accelc.compiler.integer import AddStage

#: Bits of the shift of a requantization, and of the add stage (isa Alu b_shift).
MAX_SHIFT = 63
MAX_ADD_SHIFT = 31
#: Bits of the add stage's signed multipliers, sign included (isa Alu m1, m2).
ADD_MULT_BITS = 25
#: Accumulators are int32.
ACC_MAX = (1 << 31) - 1


class Unrepresentable(ValueError):
    """A multiplier or offset the fixed-point stage has no encoding for."""


def multipliers(real: ArrayLike, mult_bits: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """``mult`` and ``shift``, ``(c,)`` int32, for positive real multipliers ``(c,)``.

    ``mult`` is normalised: ``2^(mult_bits-1) <= mult < 2^mult_bits``, exact for float32 when
    ``mult_bits`` is 24. Where that would need a shift beyond 63, the multiplier is below 2^-39: any
    int32 accumulator rounds to 0, and ``mult`` is 0.

    Raises:
        Unrepresentable: a multiplier is negative, not finite, or at least ``2^mult_bits``.
    """
    values = np.asarray(real, np.float64).reshape(-1)
    if not np.isfinite(values).all() or (values < 0).any():
        raise Unrepresentable(f"multiplier {values.tolist()[:4]} is negative or not finite")
    mantissa, exponent = np.frexp(values)  # value = mantissa * 2^exponent, mantissa in [0.5, 1)
    mult = np.rint(mantissa * (1 << mult_bits)).astype(np.int64)
    shift = mult_bits - exponent.astype(np.int64)
    carried = mult == 1 << mult_bits
    mult = np.where(carried, mult >> 1, mult)
    shift = np.where(carried, shift - 1, shift)
    if (shift < 0).any():
        raise Unrepresentable(
            f"multiplier {values.max():.6g} is 2^{mult_bits} or more: too large for the hardware"
        )
    vanishes = (shift > MAX_SHIFT) | (mult == 0)
    mult = np.where(vanishes, 0, mult)
    shift = np.where(vanishes, 0, shift)
    return mult.astype(np.int32), shift.astype(np.int32)


def add_stage(
    ratio_a: float,
    ratio_b: float,
    zero_a: int,
    zero_b: int,
    zero: int,
    *,
    inside: bool,
    minimum: int = -128,
    maximum: int = 127,
) -> AddStage:
    """The stage for ``y = round((a - zero_a)*ratio_a + (b - zero_b)*ratio_b) + zero``, clamped.

    ``inside`` puts ``zero`` before the rounding, as onnxruntime's QLinearAdd does: it then takes
    part in the parity at ties. Both multipliers share one shift, so the smaller one is off by at
    most 2^-25 of the larger one.

    Raises:
        Unrepresentable: a ratio is not finite, or too large for the multipliers.
    """
    largest = max(abs(ratio_a), abs(ratio_b))
    if not math.isfinite(largest) or largest >= 1 << (ADD_MULT_BITS - 1):
        raise Unrepresentable(f"scale ratio {largest:.6g} does not fit the add stage")
    limit = (1 << (ADD_MULT_BITS - 1)) - 1
    _, exponent = math.frexp(largest)
    shift = max(0, min(MAX_ADD_SHIFT, ADD_MULT_BITS - 1 - exponent))
    if round(largest * (1 << shift)) > limit:
        shift -= 1
    m1, m2 = round(ratio_a * (1 << shift)), round(ratio_b * (1 << shift))
    offset = -(zero_a * m1 + zero_b * m2) + ((zero << shift) if inside else 0)
    if shift < 0 or abs(m1) > limit or abs(m2) > limit:
        raise Unrepresentable(f"scale ratio {largest:.6g} does not fit the add stage")
    return AddStage(
        m1=m1,
        m2=m2,
        offset=offset,
        shift=shift,
        zero=0 if inside else zero,
        min=minimum,
        max=maximum,
    )
