"""Convolutions and fully connected layers to ``int.conv``."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.fixed_point import ACC_MAX, Unrepresentable, multipliers
from accelc.compiler.integer import ConvAttrs, Post
from accelc.compiler.passes.operands import (
    Context,
    Operand,
    Target,
    View,
    enter,
    int32,
    nhwc_type,
)
from accelc.compiler.rewrite import Refusal, Scope

#: How far a bias may be from a whole accumulator unit, in steps of the output: below it, rounding
#: the bias changes fewer outputs than the contract's 1 in 10,000.
BIAS_TOLERANCE = 2.0**-15


@dataclass(frozen=True, kw_only=True)
class Linear:
    """A linear layer, everything that is constant about it already in integers.

    ``weights`` are ``(o, c / groups, kh, kw)`` int64 with their zero point subtracted, so they may
    need nine bits; ``bias`` is ``(o,)`` int64 at the accumulator's scale, without zero points;
    ``real`` is ``(o,)``, what the accumulator is multiplied by.
    """

    x: Operand
    weights: NDArray[np.int64]
    bias: NDArray[np.int64]
    real: NDArray[np.float64]
    conv: ConvAttrs
    groups: int
    low: int = -128
    high: int = 127
    inside: bool = False


def weight_values(scope: Scope, w: Operand, channel_axis: int) -> NDArray[np.int64]:
    """Constant weights minus their zero point, ``(…)`` int64."""
    array = scope.constant(w.value)
    if array is None:
        raise Refusal(f"weights {w.value!r} are computed at run time")
    if w.dtype not in (np.int8, np.uint8):
        raise Refusal(f"weights {w.value!r} are {w.dtype}, not int8 or uint8")
    zero = w.zero
    if zero.ndim:
        if w.axis != channel_axis % array.ndim:
            raise Refusal(
                f"weights {w.value!r} are quantized along axis {w.axis}, not output channels"
            )
        zero = zero.reshape([-1 if a == w.axis else 1 for a in range(array.ndim)])
    return array.astype(np.int64) - zero


def real_multipliers(
    x_scale: np.float32, w_scale: NDArray[np.float32], y_scale: np.float32, channels: int
) -> NDArray[np.float64]:
    """``float32(float32(x_scale * w_scale) / y_scale)`` per output channel."""
    product = (x_scale * w_scale.astype(np.float32)).astype(np.float32)
    return np.broadcast_to((product / y_scale).astype(np.float32), (channels,)).astype(np.float64)


def integer_bias(
    bias: NDArray[np.float64], acc_scale: NDArray[np.float64], real: NDArray[np.float64]
) -> NDArray[np.int64]:
    """A bias in real units as accumulator units, ``(o,)`` int64.

    Raises:
        Refusal: rounding it to whole units would show in the output, or it exceeds int32.
    """
    exact = bias / acc_scale
    units = np.rint(exact)
    if not np.isfinite(units).all() or (np.abs(units) > ACC_MAX).any():
        raise Refusal("bias does not fit a 32-bit accumulator")
    error = float((np.abs(exact - units) * real).max(initial=0.0))
    if error > BIAS_TOLERANCE:
        raise Refusal(
            f"bias is not a multiple of the accumulator's scale (off by {error:.2g} steps)"
        )
    return units.astype(np.int64)


def lower_linear(
    context: Context, layer: Linear, result: Target, x_view: View, y_view: View
) -> None:
    """Emit ``int.conv`` for ``layer``, with the views of its operand and result.

    Raises:
        Refusal: a multiplier or bias does not fit the hardware.
    """
    scope, config, name = context.scope, context.config, context.name
    try:
        mult, shift = multipliers(layer.real, config.mult_bits)
    except Unrepresentable as error:
        raise Refusal(str(error)) from None
    zero = layer.x.scalar_zero
    bias = layer.bias - zero * layer.weights.sum(axis=(1, 2, 3))
    if (np.abs(bias) > ACC_MAX).any():
        raise Refusal("bias with the zero point's share does not fit a 32-bit accumulator")
    worst = 128 * np.abs(layer.weights).sum(axis=(1, 2, 3)) + np.abs(bias)
    if (worst > ACC_MAX).any():
        note = f"{name}: cannot prove that no 32-bit accumulator overflows"
        if note not in scope.notes:
            scope.notes.append(note)
    conv = replace(layer.conv, pad_value=zero)
    value = enter(scope, layer.x, x_view, name)
    weights, depthwise = _arranged(layer, x_view.shape[3], config.window)
    if weights.min(initial=0) < -128 or weights.max(initial=0) > 127:
        value, weights, conv = _split_weights(scope, value, weights, conv, name)
    out = scope.emit(
        "int.conv",
        (
            value,
            scope.add_constant(f"{name}/weights", np.ascontiguousarray(weights, np.int8)),
            scope.add_constant(f"{name}/bias", int32(bias)),
            scope.add_constant(f"{name}/mult", mult),
            scope.add_constant(f"{name}/shift", shift),
        ),
        nhwc_type(y_view.shape, result),
        {
            "conv": conv,
            "post": Post(zero=result.zero, inside=layer.inside, min=layer.low, max=layer.high),
            "depthwise": depthwise,
        },
        name=name,
        hint=f"{result.value}:nhwc",
    )
    y_view.leave(scope, out, result, name)


def _arranged(layer: Linear, channels: int, window: bool) -> tuple[NDArray[np.int64], bool]:
    """Weights in the integer operator's order, and whether they are depthwise.

    Groups become zeros off the diagonal, unless every channel is a group of its own and the
    hardware has the window for that: exact, at the price of multiplying by zero.
    """
    w = layer.weights
    outputs, per_group = w.shape[:2]
    groups = layer.groups
    if groups == channels == outputs and per_group == 1 and groups > 1 and window:
        return w[:, 0].transpose(1, 2, 0), True
    w = w.transpose(0, 2, 3, 1)
    if groups == 1:
        return w, False
    full = np.zeros((*w.shape[:3], channels), np.int64)
    share = outputs // groups
    for g in range(groups):
        rows, columns = slice(g * share, (g + 1) * share), slice(g * per_group, (g + 1) * per_group)
        full[rows, :, :, columns] = w[rows]
    return full, False


def _split_weights(
    scope: Scope, value: str, w: NDArray[np.int64], conv: ConvAttrs, name: str
) -> tuple[str, NDArray[np.int64], ConvAttrs]:
    """Weights of nine bits as sums of two int8 ones that meet the same pixel.

    ``conv(x, w1 + w2)`` = ``conv(x repeated twice along an axis, w1 and w2 alternating)``.
    """
    if conv.dilation[1] == 1 or conv.kernel[1] == 1:
        axis = 1
    elif conv.dilation[0] == 1 or conv.kernel[0] == 1:
        axis = 0
    else:
        raise Refusal("weights minus their zero point exceed int8, and both axes are dilated")
    low = np.clip(w, -128, 127)
    tap_axis = w.ndim - 3 + axis
    pair = np.stack([low, w - low], axis=tap_axis + 1)
    shape = [*w.shape]
    shape[tap_axis] *= 2
    factors = (1, 2) if axis else (2, 1)

    def doubled(pair: tuple[int, int]) -> tuple[int, int]:
        return (pair[0] * factors[0], pair[1] * factors[1])

    top, left, bottom, right = conv.pads
    n, h, width, c = scope.shape(value)
    old = scope.types[value]
    value = scope.emit(
        "int.resize",
        (value,),
        replace(old, shape=(n, h * factors[0], width * factors[1], c)),
        {"factors": factors},
        name=f"{name}/twice",
    )
    conv = ConvAttrs(
        kernel=doubled(conv.kernel),
        stride=doubled(conv.stride),
        pads=(top * factors[0], left * factors[1], bottom * factors[0], right * factors[1]),
        dilation=(conv.dilation[0] if axis else 1, 1 if axis else conv.dilation[1]),
        pad_value=conv.pad_value,
    )
    return value, pair.reshape(shape), conv
