"""What each elementwise operator computes, on lanes of one element type."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from accelc.compiler.cpu import functions
from accelc.compiler.cpu.lanes import BOOL, FLOAT32, FLOAT64, INT32, INT64, Val
from accelc.compiler.cpu.narrow import (
    is_narrow,
    is_narrow_float,
    register_dtype,
    round_to,
    to_float32,
)

#: (operands, static parameters, element type of the output) -> result
Operator = Callable[[Sequence[Val], tuple[Any, ...], np.dtype[Any]], Val]


def _add(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    total = v[0]
    for item in v[1:]:
        total = total + item
    return total


def _mean(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    return _add(v, p, d) / float(len(v))


def _div(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """Integers truncate; division by zero gives 0 and lowest / -1 wraps, rather than trapping."""
    a, b = v
    if a.is_float:
        return a / b
    zero = b.equals(0)
    if a.dtype.kind == "u":
        return zero.select(a.like(0), a / zero.select(b.like(1), b))
    minus = b.equals(-1)
    quotient = a / (zero | minus).select(b.like(1), b)
    return zero.select(a.like(0), minus.select(-a, quotient))


def _mod(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """``fmod``: sign of the dividend; otherwise of the divisor. Modulo zero is 0 for integers."""
    a, b = v
    if a.is_float:
        rest = functions.fmod(a, b)
        if p[0]:
            return rest
        other_sign = rest.differs(0.0) & ((rest < 0.0) ^ (b < 0.0))
        rest = other_sign.select(rest + b, rest)
        return rest.equals(0.0).select(rest.call("copysign", b), rest)
    zero = b.equals(0)
    if a.dtype.kind == "u":
        return zero.select(a.like(0), a % zero.select(b.like(1), b))
    trivial = zero | b.equals(-1)
    rest = a % trivial.select(b.like(1), b)
    if not p[0]:
        other_sign = rest.differs(0) & ((rest ^ b) < 0)
        rest = other_sign.select(rest + b, rest)
    return trivial.select(a.like(0), rest)


def _pow(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """``p`` holds the exponent when it is a small whole number: then by multiplication."""
    base = v[0]
    if p:
        result = base
        for _ in range(int(p[0]) - 1):
            result = result * base
        return result
    if not base.is_float and v[1].is_float:
        wide = functions.pow_(base.convert(FLOAT64), v[1].convert(FLOAT64))
        return functions.truncate_to_int(wide, INT64).convert(d)
    if not base.is_float:
        return _whole_power(base, v[1].convert(base.dtype))
    return functions.pow_(base, v[1].convert(base.dtype))


def _whole_power(base: Val, exponent: Val) -> Val:
    """By repeated squaring, with the wrapping of the type; negative exponents as 0."""
    exponent = (exponent < 0).select(exponent.like(0), exponent)
    result = base.like(1)
    for bit in range(6):  # what has more bits wraps to 0, or is 0 or 1 anyway
        result = (exponent >> bit & 1).differs(0).select(result * base, result)
        base = base * base
    return result


def _min(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    total = v[0]
    for item in v[1:]:
        total = total.call("minimum", item) if total.is_float else total.minimum(item)
    return total


def _max(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    total = v[0]
    for item in v[1:]:
        total = total.call("maximum", item) if total.is_float else total.maximum(item)
    return total


def _abs(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    x = v[0]
    if x.is_float:
        return x.call("fabs")
    return x if x.dtype.kind == "u" else (x < 0).select(-x, x)


def _relu(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    return (v[0] < 0).select(v[0].like(0), v[0])


def _clip(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """``p`` says which bounds there are: operands in the order low, high. NaN stays NaN."""
    x, bounds = v[0], list(v[1:])
    if p[0]:
        low = bounds.pop(0)
        x = (x < low).select(low, x)
    if p[1]:
        high = bounds.pop(0)
        x = (x > high).select(high, x)
    return x


def _sign(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    x = v[0]
    negative = (x < 0).select(x.like(-1), x) if x.dtype.kind != "u" else x
    return (x > 0).select(x.like(1), negative)


def _elu(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    x = v[0]
    return (x < 0.0).select((functions.exp(x) - 1.0) * p[0], x)


def _selu(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    x, (alpha, gamma) = v[0], p
    return (x > 0.0).select(x, functions.exp(x) * alpha - alpha) * gamma


def _celu(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    x, alpha = v[0], p[0]
    return (x > 0.0).select(x, (functions.exp(x / alpha) - 1.0) * alpha)


def _gelu(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    x = v[0]
    if p[0] == "tanh":
        inner = (x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)
        return x * 0.5 * (functions.tanh(inner) + 1.0)
    return x * 0.5 * (functions.erf(x * math.sqrt(0.5)) + 1.0)


def _hard_sigmoid(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    return (v[0] * p[0] + p[1]).clamp(0.0, 1.0)


def _cast(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """``p``: whether what does not fit an 8 bit float becomes its largest value."""
    x = v[0]
    if is_narrow_float(d):
        return round_to(to_float32(x), d, bool(p[0]))
    if is_narrow(d):
        return (functions.truncate_to_int(x, INT32) if x.is_float else x).convert(register_dtype(d))
    if not x.is_float or d.kind in "fb":
        return x.convert(d)
    if d == np.dtype(np.uint64):
        # what lies above the signed range is converted 2**63 lower
        high = x >= 2.0**63
        low = functions.truncate_to_int(high.select(x - 2.0**63, x), INT64)
        return (low ^ high.select(low.like(-(1 << 63)), 0)).convert(d)
    wide = INT32 if d.itemsize < 4 or d == INT32 else INT64
    return functions.truncate_to_int(x, wide).convert(d)


def _isinf(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    negative, positive = p
    x = v[0]
    result = x.k.value(0, BOOL, x.lanes)
    if positive:
        result = result | x.equals(math.inf)
    return result | x.equals(-math.inf) if negative else result


def _shrink(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    x, (bias, lambd) = v[0], p
    high = (x > lambd).select(x - bias, 0.0)
    return (x < -lambd).select(x + bias, high)


def _bit_shift(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """Shifting by the width or more leaves nothing, or the sign to the right."""
    x, amount = v
    bits = x.dtype.itemsize * 8
    if p[0] != "LEFT" and x.dtype.kind == "i":
        return x >> (amount < bits).select(amount, bits - 1)
    valid = amount < bits
    safe = valid.select(amount, 0)
    return valid.select(x << safe if p[0] == "LEFT" else x >> safe, 0)


def _prelu(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    return (v[0] < 0).select(v[0] * v[1], v[0])


def _affine(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    return v[0] * v[1] + v[2]


def _normalize(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """Batch normalization: x, scale, bias, mean, variance; ``p`` is epsilon."""
    x, scale, bias, mean, variance = v
    factor = scale / (variance + p[0]).call("sqrt")
    return (x - mean) * factor + bias


def _xor_bool(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    return v[0] ^ v[1]


def _libm(name: str) -> Operator:
    return lambda v, p, d: functions.libm(v[0], name)


def _intrinsic(name: str) -> Operator:
    return lambda v, p, d: v[0].call(name)


#: By ONNX name, or a name of this package's own; modules that need more add theirs.
OPERATORS: dict[str, Operator] = {
    "Abs": _abs,
    "Acos": _libm("acos"),
    "Acosh": _libm("acosh"),
    "Add": _add,
    "Affine": _affine,
    "And": lambda v, p, d: v[0] & v[1],
    "Asin": _libm("asin"),
    "Asinh": _libm("asinh"),
    "Atan": _libm("atan"),
    "Atanh": _libm("atanh"),
    "BitShift": _bit_shift,
    "BitwiseAnd": lambda v, p, d: v[0] & v[1],
    "BitwiseNot": lambda v, p, d: ~v[0],
    "BitwiseOr": lambda v, p, d: v[0] | v[1],
    "BitwiseXor": _xor_bool,
    "Cast": _cast,
    "Ceil": _intrinsic("ceil"),
    "Celu": _celu,
    "Clip": _clip,
    "Cos": _libm("cos"),
    "Cosh": _libm("cosh"),
    "Div": _div,
    "Elu": _elu,
    "Equal": lambda v, p, d: v[0].equals(v[1]),
    "Erf": lambda v, p, d: functions.erf(v[0]),
    "Exp": lambda v, p, d: functions.exp(v[0]),
    "Floor": _intrinsic("floor"),
    "Gelu": _gelu,
    "Greater": lambda v, p, d: v[0] > v[1],
    "GreaterOrEqual": lambda v, p, d: v[0] >= v[1],
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda v, p, d: v[0] * (v[0] * (1.0 / 6.0) + 0.5).clamp(0.0, 1.0),
    "IsInf": _isinf,
    "IsNaN": lambda v, p, d: v[0].differs(v[0]),
    "LeakyRelu": lambda v, p, d: (v[0] < 0.0).select(v[0] * p[0], v[0]),
    "Less": lambda v, p, d: v[0] < v[1],
    "LessOrEqual": lambda v, p, d: v[0] <= v[1],
    "Log": lambda v, p, d: functions.log(v[0]),
    "Max": _max,
    "Mean": _mean,
    "Min": _min,
    "Mish": lambda v, p, d: v[0] * functions.tanh(functions.log1p_exp(v[0])),
    "Mod": _mod,
    "Mul": lambda v, p, d: v[0] * v[1],
    "Neg": lambda v, p, d: -v[0],
    "Normalize": _normalize,
    "Not": lambda v, p, d: ~v[0],
    "Or": lambda v, p, d: v[0] | v[1],
    "Pow": _pow,
    "PRelu": _prelu,
    "Reciprocal": lambda v, p, d: 1.0 / v[0],
    "Relu": _relu,
    "Round": lambda v, p, d: v[0].rint(),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": lambda v, p, d: functions.sigmoid(v[0]),
    "Sign": _sign,
    "Sin": _libm("sin"),
    "Sinh": _libm("sinh"),
    "Softplus": lambda v, p, d: functions.log1p_exp(v[0]),
    "Softsign": lambda v, p, d: v[0] / (v[0].call("fabs") + 1.0),
    "Sqrt": _intrinsic("sqrt"),
    "Sub": lambda v, p, d: v[0] - v[1],
    "Sum": _add,
    "Swish": lambda v, p, d: v[0] * functions.sigmoid(v[0] * p[0]),
    "Tan": _libm("tan"),
    "Tanh": lambda v, p, d: functions.tanh(v[0]),
    "ThresholdedRelu": lambda v, p, d: (v[0] > p[0]).select(v[0], 0.0),
    "Where": lambda v, p, d: v[0].select(v[1], v[2]),
    "Xor": _xor_bool,
}

FLOATS = (FLOAT32, FLOAT64)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether elementwise operators compute on ``dtype`` as on floats; the narrow ones included."""
    return dtype in FLOATS or is_narrow_float(dtype)
