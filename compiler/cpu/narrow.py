"""Element types that are computed on in wider registers: float16 and smaller, 4 bits and fewer.

A narrow float lives in memory in its own format and in registers as float32, always on a value the
format has; the integers live in int8 or uint8. One table of formats serves them all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ll
import ml_dtypes
import numpy as np

from accelc.compiler.cpu.lanes import FLOAT32, FLOAT64, INT8, INT32, INT64, UINT8, Val, llvm_type

UINT16, UINT32 = np.dtype(np.uint16), np.dtype(np.uint32)


@dataclass(frozen=True)
class FloatFormat:
    """A sign, ``exponent_bits`` and ``mantissa_bits``.

    Members:
        largest: the largest finite value.
        infinity: whether the exponent of all ones means infinity and NaN, as IEEE 754 has it.
        nan: the bits of NaN; -1 where the format has none.
        unsigned_zero: the bits of negative zero mean NaN.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: float
    infinity: bool
    nan: int
    unsigned_zero: bool = False

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def least_exponent(self) -> int:
        """Of normal numbers; what is smaller is spaced as evenly as they are."""
        return 1 - self.bias


FLOAT_FORMATS: Mapping[str, FloatFormat] = {
    "float16": FloatFormat(5, 10, 15, 65504.0, True, 0x7E00),
    "bfloat16": FloatFormat(8, 7, 127, float(ml_dtypes.finfo("bfloat16").max), True, 0x7FC0),
    "float8_e4m3fn": FloatFormat(4, 3, 7, 448.0, False, 0x7F),
    "float8_e4m3fnuz": FloatFormat(4, 3, 8, 240.0, False, 0x80, True),
    "float8_e5m2": FloatFormat(5, 2, 15, 57344.0, True, 0x7E),
    "float8_e5m2fnuz": FloatFormat(5, 2, 16, 57344.0, False, 0x80, True),
    "float4_e2m1fn": FloatFormat(2, 1, 1, 6.0, False, -1),
}
#: Bits of the small integers, negative where they are signed.
INTEGER_BITS: Mapping[str, int] = {"int4": -4, "uint4": 4, "int2": -2, "uint2": 2}
NARROW_NAMES = frozenset((*FLOAT_FORMATS, *INTEGER_BITS))


def dtype_named(name: str) -> np.dtype[Any]:
    """The element type called ``name``, of NumPy or ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, name))


def is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.name in NARROW_NAMES


def is_narrow_float(dtype: np.dtype[Any]) -> bool:
    return dtype.name in FLOAT_FORMATS


def register_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What lanes of ``dtype`` are computed on."""
    if dtype.name in FLOAT_FORMATS:
        return FLOAT32
    if dtype.name in INTEGER_BITS:
        return INT8 if INTEGER_BITS[dtype.name] < 0 else UINT8
    return dtype


def carrier(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The unsigned integer a narrow element is loaded as."""
    return UINT8 if dtype.itemsize == 1 else UINT16


def decode(raw: Val, dtype: np.dtype[Any]) -> Val:
    """Lanes as they lie in memory, in register form."""
    if dtype.name in INTEGER_BITS:
        bits = INTEGER_BITS[dtype.name]
        if bits > 0:
            return raw & ((1 << bits) - 1)
        shift = 8 + bits
        return (raw.bits(INT8) << shift) >> shift
    form = FLOAT_FORMATS[dtype.name]
    if _has_half(raw, dtype):
        half = raw.k.b.bitcast(raw.value, _half_type(raw.lanes))
        return Val(raw.k, raw.k.b.fpext(half, llvm_type(FLOAT32, raw.lanes)), FLOAT32)
    wide = raw.convert(UINT32)
    if dtype.name == "bfloat16":
        return (wide << 16).bits(FLOAT32)
    sign = (wide & form.sign) << (32 - form.bits)
    magnitude = wide & (form.sign - 1)
    shift = 23 - form.mantissa_bits
    normal = (magnitude << shift) + ((127 - form.bias) << 23)
    # below the normal numbers: so many of the smallest step
    step = 2.0 ** (form.least_exponent - form.mantissa_bits)
    small = (magnitude.convert(FLOAT32) * step).bits(UINT32)
    value = (magnitude < (1 << form.mantissa_bits)).select(small, normal)
    top = ((1 << form.exponent_bits) - 1) << form.mantissa_bits
    if form.infinity:
        special = (magnitude << shift) | 0x7F800000
        value = (magnitude >= top).select(special, value)
    value = value | sign
    if not form.infinity and form.nan >= 0:
        seen = wide if form.unsigned_zero else magnitude
        value = seen.equals(form.nan).select(value.like(0x7FC00000), value)
    return value.bits(FLOAT32)


def round_to(x: Val, dtype: np.dtype[Any], saturate: bool = False) -> Val:
    """float32 lanes rounded, half to even, to values ``dtype`` has.

    What is too large becomes infinity (or NaN where there is none), or in 8 bits with ``saturate``
    the largest value, infinities too.
    """
    form = FLOAT_FORMATS[dtype.name]
    if dtype.name == "bfloat16":
        return decode(encode(x, dtype), dtype)
    if _has_half(x, dtype):
        half = x.k.b.fptrunc(x.value, _half_type(x.lanes))
        return Val(x.k, x.k.b.fpext(half, x.value.type), FLOAT32)
    bits = x.bits(UINT32)
    magnitude = bits & 0x7FFFFFFF
    sign = bits & 0x80000000
    exponent = (magnitude >> 23).bits(INT32) - 127
    top = math.frexp(form.largest)[1] - 1
    exponent = exponent.clamp(form.least_exponent, top + 1)
    step = ((exponent + (127 - form.mantissa_bits)) << 23).bits(FLOAT32)
    inverse = ((form.mantissa_bits + 127 - exponent) << 23).bits(FLOAT32)
    size = magnitude.bits(FLOAT32)
    rounded = (size * inverse).rint() * step
    if (saturate and form.bits == 8) or form.nan < 0:
        beyond = form.largest
    else:
        beyond = math.inf if form.infinity else math.nan
    rounded = (rounded > form.largest).select(rounded.like(beyond), rounded)
    if form.nan >= 0:
        rounded = size.differs(size).select(size, rounded)
    else:
        # as ml_dtypes does: a zero of the other sign
        rounded = size.differs(size).select(size.like(0.0), rounded)
        sign = size.differs(size).select(sign ^ 0x80000000, sign)
    return (rounded.bits(UINT32) | sign).bits(FLOAT32)


def encode(x: Val, dtype: np.dtype[Any]) -> Val:
    """Register form as it lies in memory: lanes of ``carrier(dtype)``.

    Floats must be on values the format has (see :func:`round_to`), but for float16 and bfloat16,
    which are rounded here; integers keep their low bits.
    """
    if dtype.name in INTEGER_BITS:
        bits = abs(INTEGER_BITS[dtype.name])
        return x.convert(UINT8) & ((1 << bits) - 1)
    form = FLOAT_FORMATS[dtype.name]
    if dtype.name == "bfloat16":
        bits = x.bits(UINT32)
        nearest = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
        quiet = (bits >> 16) | 0x40
        return x.differs(x).select(quiet, nearest).convert(UINT16)
    if _has_half(x, dtype):
        half = x.k.b.fptrunc(x.value, _half_type(x.lanes))
        raw = x.k.b.bitcast(half, llvm_type(UINT16, x.lanes))
        return Val(x.k, raw, UINT16)
    x = round_to(x, dtype) if dtype.name == "float16" else x
    bits = x.bits(UINT32)
    sign = (bits >> (32 - form.bits)) & form.sign
    magnitude = bits & 0x7FFFFFFF
    size = magnitude.bits(FLOAT32)
    shift = 23 - form.mantissa_bits
    normal = (magnitude >> shift) - ((127 - form.bias) << form.mantissa_bits)
    count = (size < 1.0).select(size, 0.0) * 2.0 ** (form.mantissa_bits - form.least_exponent)
    result = (size < 2.0**form.least_exponent).select(count.convert(UINT32), normal)
    if form.infinity:
        top = ((1 << form.exponent_bits) - 1) << form.mantissa_bits
        result = size.equals(math.inf).select(result.like(top), result)
    if form.unsigned_zero:
        result = result.equals(0).select(result, result | sign)
    else:
        result = result | sign
    if form.nan >= 0:
        # NaN keeps its sign where the format has one for it
        nan = result.like(form.nan) if form.unsigned_zero else sign | form.nan
        result = size.differs(size).select(nan, result)
    return result.convert(carrier(dtype))


def to_float32(x: Val) -> Val:
    """Any lanes as float32 for rounding once more: inexact ones become odd, so that the second
    rounding is as good as the only one."""
    if x.dtype == FLOAT32:
        return x
    if x.dtype != FLOAT64:
        if x.dtype.kind in "iu" and x.dtype.itemsize > 2:
            return to_float32(x.convert(FLOAT64))
        return x.convert(FLOAT32)
    near = x.convert(FLOAT32)
    back = near.convert(FLOAT64)
    bits = near.bits(INT32)
    outward = back.call("fabs") > x.call("fabs")
    inward = outward.select(bits - 1, bits)
    odd = (back.differs(x) & x.equals(x)).select(inward | 1, bits)
    return odd.bits(FLOAT32)


def settle(x: Val, dtype: np.dtype[Any]) -> Val:
    """A result in register form: rounded, or with the bits only that ``dtype`` has."""
    if dtype.name in INTEGER_BITS:
        return decode(encode(x, dtype), dtype)
    return round_to(x, dtype) if dtype.name in FLOAT_FORMATS else x


def _half_type(lanes: int) -> ll.Type:
    half = ll.HalfType()
    return half if lanes == 1 else ll.VectorType(half, lanes)


def _has_half(x: Val, dtype: np.dtype[Any]) -> bool:
    """Whether the processor converts float16 itself."""
    target = x.k.target
    return dtype.name == "float16" and (target.has("f16c") or target.triple.startswith("aarch64"))


def integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Least and greatest value of an integer type, narrow ones too."""
    if dtype.name in INTEGER_BITS:
        bits = INTEGER_BITS[dtype.name]
        return (-(1 << (-bits - 1)), (1 << (-bits - 1)) - 1) if bits < 0 else (0, (1 << bits) - 1)
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def wide_enough(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The signed type floats are converted to on the way to an integer type."""
    return INT32 if dtype.itemsize < 4 or dtype == INT32 else INT64
