"""Elementary functions on lanes: float32 as polynomials (within 3 ulp), float64 through libm."""

import math

import llvmlite.ir as ll
import numpy as np

from accelc.compiler.cpu.lanes import FLOAT32, INT32, Val, llvm_type


def libm(x: Val, name: str, *others: Val) -> Val:
    """The C library's function, lane by lane (``f`` appended for float32)."""
    k = x.k
    symbol = name + ("f" if x.dtype == FLOAT32 else "")
    scalar = llvm_type(x.dtype)
    operands = (x, *others)
    function = k.declare(symbol, ll.FunctionType(scalar, [scalar] * len(operands)))
    if x.lanes == 1:
        return Val(k, k.b.call(function, [o.value for o in operands]), x.dtype)
    vector = ll.Constant(llvm_type(x.dtype, x.lanes), ll.Undefined)
    for lane in range(x.lanes):
        result = k.b.call(function, [k.lane(o, lane).value for o in operands])
        vector = k.b.insert_element(vector, result, ll.Constant(ll.IntType(32), lane))
    return Val(k, vector, x.dtype)


def _horner(x: Val, *coefficients: float) -> Val:
    total = x.like(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total.muladd(x, coefficient)
    return total


def _power_of_two(n: Val) -> Val:
    """2**n for int32 n in the range of normal numbers."""
    return ((n + 127) << 23).bits(FLOAT32)


def exp(x: Val) -> Val:
    """e**x; overflows to infinity, underflows through the denormals to 0, NaN stays."""
    if x.dtype != FLOAT32:
        return libm(x, "exp")
    # beyond these the result is infinity or 0 anyway; unlike clamp(), this keeps NaN
    bounded = (x > 89.0).select(x.like(89.0), x)
    bounded = (bounded < -104.0).select(x.like(-104.0), bounded)
    n = (bounded * 1.44269504).rint()
    r = n.muladd(-0.693145752, bounded)  # ln 2 in two parts: n * high is exact
    r = n.muladd(-1.42860677e-6, r)
    p = _horner(
        r, 1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0
    )
    valid = n.equals(n).select(n, 0.0).convert(INT32)
    half = valid >> 1  # two factors: 2**n itself may be outside the normal numbers
    return p * _power_of_two(half) * _power_of_two(valid - half)


def log(x: Val) -> Val:
    """Natural logarithm; 0 gives -infinity, negative numbers NaN."""
    if x.dtype != FLOAT32:
        return libm(x, "log")
    small = x < 1.17549435e-38
    scaled = small.select(x * 8388608.0, x)
    bits = scaled.bits(INT32)
    # exponent so that the mantissa is within [2/3, 4/3)
    e = (bits - 0x3F2AAAAB) & -8388608
    m = (bits - e).bits(FLOAT32) - 1.0
    exponent = e.convert(FLOAT32) * 1.19209290e-7 - small.select(x.like(23.0), 0.0)
    p = _horner(
        m,
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
    square = m * m
    y = p * m * square
    y = exponent.muladd(-2.12194440e-4, y)
    y = square.muladd(-0.5, y)
    result = exponent.muladd(0.693359375, m + y)
    result = (x.equals(math.inf)).select(x, result)
    result = (x < 0.0).select(x.like(math.nan), result)
    result = x.equals(0.0).select(x.like(-math.inf), result)
    return x.differs(x).select(x, result)


def tanh(x: Val) -> Val:
    if x.dtype != FLOAT32:
        return libm(x, "tanh")
    a = x.call("fabs")
    large = 1.0 - 2.0 / (exp(a + a) + 1.0)
    s = x * x
    small = _horner(s, 1.57394409e-2, -5.23025580e-2, 1.33152470e-1, -3.33327681e-1, 0.0)
    small = small.muladd(x, x)
    return (a > 0.55).select(large.call("copysign", x), small)


def erf(x: Val) -> Val:
    """Error function, after N. Juffa's two-interval single precision approximation."""
    if x.dtype != FLOAT32:
        return libm(x, "erf")
    t, s = x.call("fabs"), x * x
    r = t.muladd(-1.72853470e-5, 3.83197126e-4)
    u = t.muladd(-3.88396438e-3, 2.42546219e-2)
    r = r.muladd(s, u)
    r = _horner_from(r, t, -1.06777877e-1, -6.34846687e-1, -1.28717512e-1)
    r = r.muladd(t, -t)
    large = (1.0 - exp(r)).call("copysign", x)
    p = _horner(
        s,
        -5.96761703e-4,
        4.99119423e-3,
        -2.67681349e-2,
        1.12819925e-1,
        -3.76125336e-1,
        1.28379166e-1,
    )
    return (t > 0.927734375).select(large, p.muladd(x, x))


def _horner_from(start: Val, x: Val, *coefficients: float) -> Val:
    for coefficient in coefficients:
        start = start.muladd(x, coefficient)
    return start


def sigmoid(x: Val) -> Val:
    """1 / (1 + e**-x), computed so that neither end loses precision."""
    e = exp(-x.call("fabs"))
    positive = 1.0 / (e + 1.0)
    return (x < 0.0).select(e * positive, positive)


def log1p_exp(x: Val) -> Val:
    """log(1 + e**x) (softplus)."""
    e = exp(-x.call("fabs"))
    u = e + 1.0
    # log1p(e) = log(u) * e / (u - 1) corrects the rounding of 1 + e
    near = u.equals(1.0).select(e, log(u) * e / u.equals(1.0).select(x.like(1.0), u - 1.0))
    return near + (x > 0.0).select(x, x.differs(x).select(x, 0.0))


def pow_(x: Val, y: Val) -> Val:
    return libm(x, "pow", y)


def fmod(x: Val, y: Val) -> Val:
    """C's fmod: exact, sign of the dividend."""
    return libm(x, "fmod", y)


def truncate_to_int(x: Val, dtype: np.dtype) -> Val:
    """Float to integer as x86 does: toward zero; NaN and what does not fit give the lowest."""
    bits = dtype.itemsize * 8
    limit = 2.0 ** (bits - 1)
    fits = (x >= -limit) & (x < limit)
    whole = fits.select(x, 0.0).convert(dtype)
    return fits.select(whole, -(1 << (bits - 1)))
