"""Recognise convolutions and fully connected layers in every form ONNX quantizes them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.geometry import explicit_pads
from accelc.compiler.graph import Node
from accelc.compiler.integer import ConvAttrs
from accelc.compiler.passes.lower_conv import (
    Linear,
    integer_bias,
    lower_linear,
    real_multipliers,
    weight_values,
)
from accelc.compiler.passes.lower_matmul import Product, lower_product
from accelc.compiler.passes.operands import (
    Context,
    Operand,
    Target,
    View,
    activation,
    dequantized,
    features_view,
    operand,
    require_int8,
    rows_view,
    target,
)
from accelc.compiler.rewrite import Refusal, Scope

#: Relative difference up to which two float32 scales are one: a few roundings.
SCALE_TOLERANCE = 2.0**-20


@dataclass(frozen=True)
class Clamp:
    """Bounds on the int8 result, from activations between the accumulation and QuantizeLinear."""

    low: int = -128
    high: int = 127


def conv_attrs(node: Node, x_shape: tuple[int, ...], kernel: tuple[int, ...]) -> ConvAttrs:
    """Geometry of a 1-D or 2-D convolution; one spatial axis becomes the columns of one line."""
    spatial = x_shape[2:]
    if len(spatial) not in (1, 2):
        raise Refusal(f"{len(spatial)} spatial axes; the accelerator has two at most")
    pads = explicit_pads(node.attrs, spatial, kernel)
    if min(pads, default=0) < 0:
        raise Refusal("negative pads")
    strides = tuple(node.attrs.get("strides") or (1,) * len(spatial))
    dilations = tuple(node.attrs.get("dilations") or (1,) * len(spatial))
    if len(spatial) == 1:
        kernel, strides, dilations = (1, *kernel), (1, *strides), (1, *dilations)
        pads = (0, pads[0], 0, pads[1])
    return ConvAttrs(
        kernel=(kernel[0], kernel[1]),
        stride=(strides[0], strides[1]),
        pads=(pads[0], pads[1], pads[2], pads[3]),
        dilation=(dilations[0], dilations[1]),
    )


def constant_real(scope: Scope, value: str) -> NDArray[np.float64] | None:
    """A float constant, plain or behind DequantizeLinear, as float64 of its exact real values."""
    if (array := scope.constant(value)) is not None:
        return array.astype(np.float64)
    found = dequantized(scope, value)
    if found is None or (array := scope.constant(found.value)) is None:
        return None
    zero, scale = found.zero, found.scale.astype(np.float64)
    if found.scale.ndim:
        shape = [-1 if axis == found.axis else 1 for axis in range(array.ndim)]
        zero, scale = zero.reshape(shape), scale.reshape(shape)
    return (array.astype(np.int64) - zero) * scale


@dataclass(frozen=True)
class Bias:
    """Constant biases of a layer: accumulator units known exactly, and the rest in real units.

    ``units`` is ``(channels,)`` int64, ``real`` ``(channels,)`` float64.
    """

    units: NDArray[np.int64]
    real: NDArray[np.float64]


def channel_bias(
    scope: Scope,
    values: Sequence[tuple[str, int, int]],
    acc_scale: NDArray[np.float64],
) -> Bias:
    """Biases ``(value, rank, axis)``, each broadcast to ``(channels,)`` along ``axis`` of ``rank``.

    An int32 bias at the accumulator's scale is taken as it is, as onnxruntime does: the scale that
    a quantizer wrote beside it may differ from the product of the scales by float32 rounding.
    """
    channels = acc_scale.size
    units, real = np.zeros(channels, np.int64), np.zeros(channels)
    for value, rank, axis in values:
        constant = constant_real(scope, value)
        if constant is None:
            raise Refusal(f"bias {value!r} is computed at run time")
        shape = (1,) * (rank - constant.ndim) + constant.shape
        flat = [size for a, size in enumerate(shape) if a != axis % rank]
        if len(shape) != rank or any(size != 1 for size in flat):
            raise Refusal(f"bias {value!r} of shape {constant.shape} is not per channel")
        found = dequantized(scope, value) if scope.constant(value) is None else None
        if found is not None and _at_scale(found, acc_scale):
            integers = scope.constants[found.value].astype(np.int64) - found.zero
            units = units + np.broadcast_to(integers.reshape(-1), (channels,))
        else:
            real = real + np.broadcast_to(constant.reshape(-1), (channels,))
    return Bias(units, real)


def _at_scale(bias: Operand, acc_scale: NDArray[np.float64]) -> bool:
    if bias.dtype != np.int32 or bias.zero.any() or bias.scale.size not in (1, acc_scale.size):
        return False
    return bool(np.allclose(bias.scale.astype(np.float64), acc_scale, rtol=SCALE_TOLERANCE, atol=0))


def lower_float_linear(
    context: Context, node: Node, biases: tuple[str, ...], result: Target, clamp: Clamp
) -> None:
    """``DequantizeLinear -> node -> [Add bias] -> [clamp] -> QuantizeLinear`` to ``int.conv``."""
    match node.op:
        case "Conv":
            _conv(context, node, biases, result, clamp)
        case "MatMul":
            _matmul(context, node, biases, result, clamp)
        case "Gemm":
            _gemm(context, node, biases, result, clamp)


def _conv(
    context: Context, node: Node, biases: tuple[str, ...], result: Target, clamp: Clamp
) -> None:
    scope = context.scope
    x = activation(scope, node.inputs[0], "input")
    w = _weights(scope, node.inputs[1])
    # a convolution's own bias is (c,), whatever the rank of its result
    own = [(value, 1, 0) for value in node.inputs[2:3] if value]
    added = [(value, len(x.shape), 1) for value in biases]
    bias = channel_bias(scope, [*own, *added], _acc_scale(x, w, w.shape[0]))
    groups = node.attrs.get("group", 1)
    _emit_conv(context, node, x, w, bias, groups, result, clamp)


def _emit_conv(
    context: Context,
    node: Node,
    x: Operand,
    w: Operand,
    bias: Bias,
    groups: int,
    result: Target,
    clamp: Clamp,
) -> None:
    values = weight_values(context.scope, w, 0)
    if values.ndim == 3:
        values = values[:, :, None, :]
    linear = _linear(
        x, w, values, bias, conv_attrs(node, x.shape, w.shape[2:]), groups, result, clamp
    )
    lower_linear(context, linear, result, features_view(x.shape), features_view(result.shape))


def _linear(
    x: Operand,
    w: Operand,
    values: NDArray[np.int64],
    bias: Bias,
    conv: ConvAttrs,
    groups: int,
    result: Target,
    clamp: Clamp,
) -> Linear:
    channels = values.shape[0]
    real = real_multipliers(x.scalar_scale, w.scale, result.scale, channels)
    units = bias.units + integer_bias(bias.real, _acc_scale(x, w, channels), real)
    return Linear(
        x=x,
        weights=values,
        bias=units,
        real=real,
        conv=conv,
        groups=groups,
        low=clamp.low,
        high=clamp.high,
    )


def _weights(scope: Scope, value: str) -> Operand:
    found = dequantized(scope, value)
    if found is None:
        raise Refusal(f"operand {value!r} is not quantized")
    return found


def _channels(w: Operand, transposed: bool) -> int:
    """Output channels of a product with ``w (..., k, o)``, or ``(..., o, k)`` if ``transposed``."""
    if len(w.shape) < 2:
        return 1
    axis = len(w.shape) - (2 if transposed else 1)
    if w.scale.ndim and w.axis != axis:
        raise Refusal(f"{w.value!r} is quantized along axis {w.axis}, not output channels")
    return w.shape[axis]


def _acc_scale(x: Operand, w: Operand, channels: int) -> NDArray[np.float64]:
    """What one unit of the accumulator is worth, ``(channels,)``."""
    if w.scale.size not in (1, channels):
        raise Refusal(f"{w.value!r} has {w.scale.size} scales for {channels} output channels")
    return np.broadcast_to(np.float64(x.scalar_scale) * w.scale.astype(np.float64), (channels,))


_POINT = ConvAttrs(kernel=(1, 1))


def _fully_connected(
    context: Context,
    x: Operand,
    w: Operand,
    transposed: bool,
    bias: Bias,
    result: Target,
    clamp: Clamp,
) -> None:
    """``x (…, k)`` times ``w (k, o)``, or ``(o, k)`` if ``transposed``.

    Plain matrices of constants are weights, everything else is a product of activations.
    """
    if not x.shape or not w.shape:
        raise Refusal("a matrix product of a scalar")
    constant = [context.scope.constant(operand.value) is not None for operand in (x, w)]
    if all(constant):
        raise Refusal("a matrix product of constants")
    if constant[0] or not constant[1] or len(w.shape) != 2:
        channels = _channels(w, transposed)
        real = real_multipliers(x.scalar_scale, w.scale, result.scale, channels)
        units = bias.units + integer_bias(bias.real, _acc_scale(x, w, channels), real)
        product = Product(
            a=x,
            b=require_int8(w),
            transposed=transposed,
            bias=units,
            real=real,
            low=clamp.low,
            high=clamp.high,
        )
        lower_product(context, product, result)
        return
    values = weight_values(context.scope, w, 0 if transposed else 1)
    values = values if transposed else values.T
    linear = _linear(x, w, values[:, :, None, None], bias, _POINT, 1, result, clamp)
    lower_linear(context, linear, result, rows_view(x.shape), _result_rows(x, result))


def _result_rows(x: Operand, result: Target) -> View:
    view = rows_view(result.shape)
    if view.shape[:3] != rows_view(x.shape).shape[:3]:
        raise Refusal(f"a matrix product of shapes {x.shape} and {result.shape}")
    return view


def _matmul(
    context: Context, node: Node, biases: tuple[str, ...], result: Target, clamp: Clamp
) -> None:
    scope = context.scope
    x = activation(scope, node.inputs[0], "input")
    w = _weights(scope, node.inputs[1])
    rank = max(len(result.shape), 1)
    if biases and len(w.shape) < 2:
        raise Refusal("a bias of a product with a vector")
    scale = _acc_scale(x, w, _channels(w, False))
    bias = channel_bias(scope, [(b, rank, -1) for b in biases], scale)
    _fully_connected(context, x, w, False, bias, result, clamp)


def _gemm(
    context: Context, node: Node, biases: tuple[str, ...], result: Target, clamp: Clamp
) -> None:
    scope = context.scope
    attrs = node.attrs
    if attrs.get("transA", 0):
        raise Refusal("Gemm with transA")
    if attrs.get("alpha", 1.0) != 1.0 or (node.input(2) and attrs.get("beta", 1.0) != 1.0):
        raise Refusal("Gemm with alpha or beta other than 1")
    x = activation(scope, node.inputs[0], "input")
    w = _weights(scope, node.inputs[1])
    transposed = bool(attrs.get("transB", 0))
    channels = _channels(w, transposed)
    constants = [value for value in (*node.inputs[2:3], *biases) if value]
    bias = channel_bias(scope, [(b, 2, -1) for b in constants], _acc_scale(x, w, channels))
    _fully_connected(context, x, w, transposed, bias, result, clamp)


def lower_qlinear_conv(context: Context) -> None:
    """``QLinearConv`` to ``int.conv``."""
    scope, node = context.scope, context.node
    i = node.inputs
    x = require_int8(operand(scope, i[0], i[1], i[2]))
    w = operand(scope, i[3], i[4], i[5], 0)
    result = target(scope, node.outputs[0], i[6], i[7])
    bias = _int_bias(scope, node.input(8), w.shape[0])
    _emit_conv(context, node, x, w, bias, node.attrs.get("group", 1), result, Clamp())


def _int_bias(scope: Scope, value: str, channels: int) -> Bias:
    none = np.zeros(channels)
    if not value:
        return Bias(none.astype(np.int64), none)
    array = scope.constant(value)
    if array is None:
        raise Refusal(f"bias {value!r} is computed at run time")
    if array.size not in (1, channels):
        raise Refusal(f"bias {value!r} of shape {array.shape} is not per channel")
    return Bias(np.broadcast_to(array.reshape(-1).astype(np.int64), (channels,)), none)


def lower_qlinear_matmul(context: Context) -> None:
    """``QLinearMatMul`` to ``int.conv``, of two activations to ``int.matmul``."""
    scope, node = context.scope, context.node
    i = node.inputs
    x = require_int8(operand(scope, i[0], i[1], i[2]))
    w = operand(scope, i[3], i[4], i[5], -1)
    result = target(scope, node.outputs[0], i[6], i[7])
    bias = _int_bias(scope, "", _channels(w, False))
    _fully_connected(context, x, w, False, bias, result, Clamp())


def lower_qgemm(context: Context) -> None:
    """``com.microsoft.QGemm`` to ``int.conv``, of two activations to ``int.matmul``."""
    scope, node = context.scope, context.node
    i = node.inputs
    if node.attrs.get("transA", 0) or node.attrs.get("alpha", 1.0) != 1.0:
        raise Refusal("QGemm with transA or alpha other than 1")
    if not node.input(7):
        raise Refusal("QGemm with a float result")
    transposed = bool(node.attrs.get("transB", 0))
    x = require_int8(operand(scope, i[0], i[1], i[2]))
    w = operand(scope, i[3], i[4], i[5], 0 if transposed else 1)
    result = target(scope, node.outputs[0], node.input(7), node.input(8))
    bias = _int_bias(scope, node.input(6), _channels(w, transposed))
    _fully_connected(context, x, w, transposed, bias, result, Clamp())
