"""Pools to ``int.conv`` with weights 1 (averages) and ``int.maxpool``."""

from dataclasses import replace

import numpy as np

from accelc.compiler.contrib import short_name
from accelc.compiler.geometry import explicit_pads, pool_output
from accelc.compiler.graph import Node, Quant
from accelc.compiler.integer import ConvAttrs, Post
from accelc.compiler.passes.lower_conv import Linear, lower_linear
from accelc.compiler.passes.match_linear import Clamp
from accelc.compiler.passes.operands import (
    Context,
    Operand,
    Target,
    View,
    activation,
    enter,
    features_view,
    nhwc_type,
    operand,
    require_int8,
    target,
)
from accelc.compiler.rewrite import Refusal, Scope

#: Elements of a window whose sum of 8-bit values fits a 32-bit accumulator.
MAX_AREA = 1 << 23


def _pool_attrs(node: Node, spatial: tuple[int, ...]) -> ConvAttrs:
    """Geometry of a pool; ``ceil_mode`` becomes padding at the end."""
    kernel = tuple(node.attrs["kernel_shape"])
    rank = len(kernel)
    if rank not in (1, 2):
        raise Refusal(f"{rank} spatial axes; the accelerator has two at most")
    strides = tuple(node.attrs.get("strides") or (1,) * rank)
    dilations = tuple(node.attrs.get("dilations") or (1,) * rank)
    pads = list(explicit_pads(node.attrs, spatial, kernel))
    for axis, count in enumerate(pool_output(node.attrs, spatial)):
        reach = (count - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        pads[axis + rank] = max(pads[axis + rank], reach - spatial[axis] - pads[axis])
        if node.attrs.get("ceil_mode", 0):
            # no more than the last window needs: padding must not grow another window
            pads[axis + rank] = max(0, reach - spatial[axis] - pads[axis])
    if rank == 1:
        kernel, strides, dilations = (1, *kernel), (1, *strides), (1, *dilations)
        pads = [0, pads[0], 0, pads[1]]
    return ConvAttrs(
        kernel=(kernel[0], kernel[1]),
        stride=(strides[0], strides[1]),
        pads=(pads[0], pads[1], pads[2], pads[3]),
        dilation=(dilations[0], dilations[1]),
    )


def _channels_first(node: Node, shape: tuple[int, ...]) -> View:
    if node.attrs.get("channels_last", 0):
        if len(shape) != 4:
            raise Refusal("a channels-last pool that is not 2-dimensional")
        return View(shape)
    return features_view(shape)


def _average(
    context: Context,
    x: Operand,
    conv: ConvAttrs,
    result: Target,
    clamp: Clamp,
    *,
    inside: bool,
    x_view: View,
    y_view: View,
) -> None:
    area = conv.kernel[0] * conv.kernel[1]
    if area >= MAX_AREA:
        raise Refusal(f"the average of {area} elements may overflow the accumulator")
    channels = x_view.shape[3]
    real = np.float64(x.scalar_scale) / (np.float64(result.scale) * area)
    layer = Linear(
        x=x,
        weights=np.ones((channels, 1, *conv.kernel), np.int64),
        bias=np.zeros(channels, np.int64),
        real=np.full(channels, np.float64(np.float32(real))),
        conv=conv,
        groups=channels,
        low=clamp.low,
        high=clamp.high,
        inside=inside,
    )
    lower_linear(context, layer, result, x_view, y_view)


def _average_attrs(node: Node, shape: tuple[int, ...]) -> ConvAttrs:
    """Geometry of AveragePool, if every window has the same divisor."""
    last = node.attrs.get("channels_last", 0)
    spatial = shape[1:-1] if last else shape[2:]
    conv = _pool_attrs(node, spatial)
    asked = explicit_pads(node.attrs, spatial, node.attrs["kernel_shape"])
    if any(conv.pads) and not node.attrs.get("count_include_pad", 0):
        raise Refusal("average pool that leaves padding out of the count: its divisor varies")
    if sum(conv.pads) > sum(asked):
        raise Refusal("average pool with ceil_mode: its divisor varies at the end")
    return conv


def global_attrs(view: View) -> ConvAttrs:
    _, h, w, _ = view.shape
    return ConvAttrs(kernel=(h, w))


def lower_average(context: Context, node: Node, result: Target, clamp: Clamp) -> None:
    """``DequantizeLinear -> average -> QuantizeLinear``, the average a pool or a ReduceMean."""
    x = activation(context.scope, node.inputs[0], "input")
    x_view = features_view(x.shape)
    if node.op == "ReduceMean" and _mean_axes(context.scope, node, len(x.shape)) == [1, 2]:
        x_view = View(x.shape)  # NHWC as it stands
    if node.op == "AveragePool":
        conv = _average_attrs(node, x.shape)
        y_view = features_view(result.shape)
    else:
        conv = global_attrs(x_view)
        n, _, _, c = x_view.shape
        y_view = View((n, 1, 1, c))
    _average(context, x, conv, result, clamp, inside=False, x_view=x_view, y_view=y_view)


def _mean_axes(scope: Scope, node: Node, rank: int) -> list[int]:
    """Axes of a mean over space: ``(n, c, h, w)`` features, or ``(n, h, w, c)``."""
    axes = node.attrs.get("axes")
    if node.input(1):
        array = scope.constant(node.inputs[1])
        axes = None if array is None else array.reshape(-1).tolist()
    found = [] if axes is None else sorted(int(axis) % rank for axis in axes)
    if found != list(range(2, rank)) and not (rank == 4 and found == [1, 2]):
        raise Refusal(f"mean over axes {axes}, not over the spatial ones")
    return found


def lower_qlinear_average(context: Context) -> None:
    """``com.microsoft.QLinearAveragePool`` and ``QLinearGlobalAveragePool`` to ``int.conv``."""
    scope, node = context.scope, context.node
    x = require_int8(operand(scope, node.inputs[0], node.inputs[1], node.input(2)))
    result = target(scope, node.outputs[0], node.input(3), node.input(4))
    x_view, y_view = _channels_first(node, x.shape), _channels_first(node, result.shape)
    if short_name(node.op) == "QLinearGlobalAveragePool":
        conv, inside = global_attrs(x_view), False
    else:
        conv, inside = _average_attrs(node, x.shape), True
    _average(context, x, conv, result, Clamp(), inside=inside, x_view=x_view, y_view=y_view)


def lower_maxpool(context: Context) -> None:
    """``MaxPool`` on int8 or uint8 (GlobalMaxPool too) to ``int.maxpool``."""
    scope, node = context.scope, context.node
    output, *indices = node.outputs
    if any(indices):
        raise Refusal("MaxPool that returns indices")
    found = scope.types[node.inputs[0]]
    x = require_int8(_plain(node.inputs[0], scope))
    x_view = features_view(x.shape)
    if node.op == "GlobalMaxPool":
        conv = global_attrs(x_view)
    else:
        conv = _pool_attrs(node, x.shape[2:])
    out = scope.types[output]
    y_view = features_view(out.shape)
    if conv.output_size(*x_view.shape[1:3]) != y_view.shape[1:3]:
        raise Refusal("a window of the pool lies wholly in padding")
    result = Target(output, out.shape, out.dtype, np.float32(1), 0)
    value = scope.emit(
        "int.maxpool",
        (enter(scope, x, x_view, context.name),),
        replace(nhwc_type(y_view.shape, result), quant=signed_quant(scope, node.inputs[0])),
        {"conv": replace(conv, pad_value=-128), "post": Post()},
        name=context.name,
        hint=f"{result.value}:nhwc",
    )
    assert found.dtype == out.dtype
    y_view.leave(scope, value, result, context.name)


def _plain(value: str, scope: Scope) -> Operand:
    """An integer tensor whose scale does not matter."""
    found = scope.types[value]
    zero = np.array(128 if found.dtype == np.uint8 else 0, np.int64)
    return Operand(value, found.shape, found.dtype, np.array(1, np.float32), zero)


def signed_quant(scope: Scope, value: str) -> Quant | None:
    """Quantization of ``value`` as int8, if it is known."""
    found = scope.types[value]
    if found.quant is None or found.dtype == np.int8:
        return found.quant
    zero = (found.quant.zero_point.astype(np.int16) - 128).astype(np.int8)
    return replace(found.quant, zero_point=zero)
