"""Quantizing operators that work element by element: (De)QuantizeLinear and QLinear*."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from accelc.compiler.cpu import functions
from accelc.compiler.cpu.expressions import OPERATORS
from accelc.compiler.cpu.lanes import FLOAT32, INT32, Val
from accelc.compiler.cpu.narrow import (
    integer_range,
    is_narrow,
    is_narrow_float,
    register_dtype,
    round_to,
)
from accelc.compiler.cpu.parse import PARSERS, Operand, Parsed, channel_view, check_types, require
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.graph import Node

_QUANTIZED = frozenset(np.dtype(t) for t in ("int8", "uint8", "int16", "uint16"))


def saturate(x: Val, dtype: np.dtype[Any]) -> Val:
    """Rounded float lanes to an integer type; NaN gives its lowest value."""
    low, high = integer_range(dtype)
    return x.clamp(float(low), float(high)).convert(INT32).convert(register_dtype(dtype))


def _quantize(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """``rint(x / scale) + zero_point``: the zero point is added after rounding.

    To a float type of 8 bits or fewer it is the rounding; ``p`` says whether that saturates.
    """
    x = v[0].convert(FLOAT32) if not v[0].is_float else v[0]
    if is_narrow_float(d):
        return round_to(x / v[1] + v[2] if len(v) == 3 else x / v[1], d, bool(p[0]))
    rounded = (x / v[1]).rint()
    if len(v) == 3:
        rounded = rounded + v[2].convert(rounded.dtype)
    return saturate(rounded, d)


def _dequantize(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    kind = FLOAT32 if v[0].is_float else INT32
    q = v[0].convert(kind)
    if len(v) == 3:
        q = q - v[2].convert(kind)
    return q.convert(FLOAT32) * v[1]


def _real(v: Sequence[Val]) -> Val:
    """``(q - zero_point) * scale`` in float32 of q, scale, zero point."""
    return (v[0].convert(INT32) - v[2].convert(INT32)).convert(FLOAT32) * v[1]


def _requantize(x: Val, scale: Val, zero: Val, dtype: np.dtype[Any]) -> Val:
    return saturate((x / scale).rint() + zero.convert(FLOAT32), dtype)


def _quantize_inside(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """``rint(x / scale + zero_point)``."""
    return saturate((v[0] / v[1] + v[2].convert(FLOAT32)).rint(), d)


def _mean_requantize(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """Sum, x scale, y scale, zero point; ``p`` is the number of summands."""
    factor = v[1] / (v[2] * p[0])
    return saturate((v[0].convert(FLOAT32) * factor).rint() + v[3].convert(FLOAT32), d)


def _qlinear_add(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """``rint(a*ra + b*rb + F)`` with fused multiply-adds; the zero point is inside (in ``F``)."""
    a, sa, za, b, sb, zb, sc, zc = v
    ra, rb = sa / sc, sb / sc
    fixed = zc.convert(FLOAT32) - ra.fma(za.convert(FLOAT32), rb * zb.convert(FLOAT32))
    total = a.convert(INT32).convert(FLOAT32).fma(ra, fixed)
    return saturate(b.convert(INT32).convert(FLOAT32).fma(rb, total).rint(), d)


def _qlinear_mul(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """``rint(p * float32(float32(sa*sb)/sc) + zc)``: the zero point is inside."""
    a, sa, za, b, sb, zb, sc, zc = v
    left = a.convert(INT32) - za.convert(INT32)
    right = b.convert(INT32) - zb.convert(INT32)
    product = (left * right).convert(FLOAT32)
    return saturate((product * (sa * sb / sc) + zc.convert(FLOAT32)).rint(), d)


def _qlinear_sigmoid(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    return _requantize(functions.sigmoid(_real(v[:3])), v[3], v[4], d)


def _qlinear_leaky_relu(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    x = _real(v[:3])
    return _requantize((x < 0.0).select(x * p[0], x), v[3], v[4], d)


def _requantized(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """x, scale, zero point, output scale, output zero point."""
    return _requantize(_real(v[:3]), v[3], v[4], d)


def _dynamic_scale(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """Minimum, maximum: the range, made to hold 0, in 255 steps."""
    low, high = v[0].minimum(0.0), v[1].maximum(0.0)
    return (high - low) / 255.0


def _dynamic_zero(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """Minimum, scale: ``rint(-minimum / scale)``."""
    return saturate((-v[0].minimum(0.0) / v[1]).rint(), d)


def per_axis(node: Node, plan: Plan) -> tuple[Operand, ...]:
    """x, scale and zero point of QuantizeLinear and DequantizeLinear, along ``axis``."""
    check_types(node, plan)
    require(not node.attrs.get("block_size"), "blocked quantization")
    x, rank = node.inputs[0], len(plan.shape(node.inputs[0]))
    axis = int(node.attrs.get("axis", 1))
    rest = [name for name in node.inputs[1:3] if name]
    for name in rest:
        require(len(plan.shape(name)) <= 1, "blocked quantization")
    if rank <= 1:
        axis = 0  # onnxruntime takes rank 1 biases whatever their axis says
    return (x, plan.shape(x)), *(channel_view(name, plan, axis, max(rank, 1)) for name in rest)


def _parse_quantize(node: Node, plan: Plan) -> Parsed:
    views = per_axis(node, plan)
    check_quantize(node, plan)
    return Parsed(views, (bool(node.attrs.get("saturate", 1)),), "QuantizeLinear")


def _parse_dequantize(node: Node, plan: Plan) -> Parsed:
    views = per_axis(node, plan)
    check_dequantize(node, plan)
    return Parsed(views, (), "DequantizeLinear")


def _is_quantized(dtype: np.dtype[Any]) -> bool:
    return dtype in _QUANTIZED or is_narrow(dtype)


def _is_real(dtype: np.dtype[Any]) -> bool:
    """Whether ``dtype`` is computed on as float32."""
    return dtype == FLOAT32 or is_narrow_float(dtype)


def check_quantize(node: Node, plan: Plan) -> None:
    """Refuse element types that QuantizeLinear has no kernel for."""
    require(_is_quantized(plan.dtype(node.outputs[0])), "quantized type")
    x = plan.dtype(node.inputs[0])
    require(_is_real(x) or x == INT32, "input type")
    require(_is_real(plan.dtype(node.inputs[1])), "scale type")


def check_dequantize(node: Node, plan: Plan) -> None:
    """Refuse element types that DequantizeLinear has no kernel for."""
    x = plan.dtype(node.inputs[0])
    require(_is_quantized(x) or x == INT32, "quantized type")
    require(_is_real(plan.dtype(node.outputs[0])), "output type")
    require(_is_real(plan.dtype(node.inputs[1])), "scale type")


def _scalars(plan: Plan, names: Sequence[str], dtype: np.dtype[Any]) -> list[Operand]:
    """Scale and zero point; an absent zero point is 0."""
    result: list[Operand] = []
    for number, name in enumerate(names):
        if not name:
            require(number % 2 == 1, "scale missing")
            name = plan.constant(np.zeros((), dtype))
        require(plan.size(name) == 1, "per-channel parameters")
        result.append((name, ()))
    return result


def _parse_binary(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    a, sa, za, b, sb, zb, sc, zc = (*node.inputs, *("",) * (8 - len(node.inputs)))
    dtype = plan.dtype(a)
    return Parsed(
        (
            (a, plan.shape(a)),
            *_scalars(plan, (sa, za), dtype),
            (b, plan.shape(b)),
            *_scalars(plan, (sb, zb), dtype),
            *_scalars(plan, (sc, zc), dtype),
        )
    )


def _parse_unary(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    x, *rest = (*node.inputs, *("",) * (5 - len(node.inputs)))
    params = (float(node.attrs.get("alpha", 0.01)),)
    return Parsed(((x, plan.shape(x)), *_scalars(plan, rest, plan.dtype(x))), params)


def _parse_sign(node: Node, plan: Plan) -> Parsed:
    return Parsed(((node.inputs[0], plan.shape(node.inputs[0])),), (), "FlipSign")


OPERATORS.update(
    {
        # uint8 q and int8 q - 128 differ in the highest bit
        "FlipSign": lambda v, p, d: (v[0] ^ v[0].like(-128)).convert(d),
        "QuantizeLinear": _quantize,
        "QuantizeInside": _quantize_inside,
        "MeanRequantize": _mean_requantize,
        "DynamicScale": _dynamic_scale,
        "DynamicZero": _dynamic_zero,
        "Requantized": _requantized,
        "DequantizeLinear": _dequantize,
        "com.microsoft.QLinearAdd": _qlinear_add,
        "com.microsoft.QLinearMul": _qlinear_mul,
        "com.microsoft.QLinearSigmoid": _qlinear_sigmoid,
        "com.microsoft.QLinearLeakyRelu": _qlinear_leaky_relu,
    }
)
PARSERS.update(
    {
        "int.signed": _parse_sign,
        "int.unsigned": _parse_sign,
        "QuantizeLinear": _parse_quantize,
        "DequantizeLinear": _parse_dequantize,
        "com.microsoft.QuantizeLinear": _parse_quantize,
        "com.microsoft.DequantizeLinear": _parse_dequantize,
        "com.microsoft.QLinearAdd": _parse_binary,
        "com.microsoft.QLinearMul": _parse_binary,
        "com.microsoft.QLinearSigmoid": _parse_unary,
        "com.microsoft.QLinearLeakyRelu": _parse_unary,
    }
)
