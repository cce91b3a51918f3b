"""Sums of two quantized tensors to ``int.add``."""

from dataclasses import replace

import numpy as np

from accelc.compiler.fixed_point import Unrepresentable, add_stage
from accelc.compiler.graph import Node
from accelc.compiler.integer import Post
from accelc.compiler.passes.match_linear import Clamp
from accelc.compiler.passes.operands import (
    Context,
    Operand,
    Target,
    activation,
    elementwise_view,
    enter,
    nhwc_type,
    operand,
    require_int8,
    signed,
    target,
)
from accelc.compiler.rewrite import Refusal, Scope


def lower_float_add(context: Context, node: Node, result: Target, clamp: Clamp) -> None:
    """``DequantizeLinear x2 -> Add or Sub -> [clamp] -> QuantizeLinear`` to ``int.add``."""
    a = activation(context.scope, node.inputs[0], "operand")
    b = activation(context.scope, node.inputs[1], "operand")
    ratio_a = float(np.float64(a.scalar_scale) / np.float64(result.scale))
    ratio_b = float(np.float64(b.scalar_scale) / np.float64(result.scale))
    if node.op == "Sub":
        ratio_b = -ratio_b
    _emit(context, a, ratio_a, b, ratio_b, result, clamp, inside=False)


def lower_qlinear_add(context: Context) -> None:
    """``com.microsoft.QLinearAdd`` to ``int.add``."""
    scope, node = context.scope, context.node
    i = node.inputs
    a = require_int8(operand(scope, i[0], i[1], i[2]))
    b = require_int8(operand(scope, i[3], i[4], i[5]))
    result = target(scope, node.outputs[0], i[6], node.input(7))
    ratio_a = float(a.scalar_scale / result.scale)
    ratio_b = float(b.scalar_scale / result.scale)
    _emit(context, a, ratio_a, b, ratio_b, result, Clamp(), inside=True)


def _emit(
    context: Context,
    a: Operand,
    ratio_a: float,
    b: Operand,
    ratio_b: float,
    result: Target,
    clamp: Clamp,
    *,
    inside: bool,
) -> None:
    scope, name = context.scope, context.name
    if not context.config.add:
        raise Refusal("the configuration has no add stage (add = false)")
    if scope.constant(a.value) is not None:
        a, ratio_a, b, ratio_b = b, ratio_b, a, ratio_a
    if a.shape != result.shape:
        raise Refusal(f"shapes {a.shape} and {b.shape} are broadcast against each other")
    view = elementwise_view(result.shape)
    try:
        stage = add_stage(
            ratio_a,
            ratio_b,
            a.scalar_zero,
            b.scalar_zero,
            result.zero,
            inside=inside,
            minimum=clamp.low,
            maximum=clamp.high,
        )
    except Unrepresentable as error:
        raise Refusal(str(error)) from None
    if b.shape == result.shape:
        right = enter(scope, b, view, name)
    else:
        right = _per_channel(scope, b, result, name)
    value = scope.emit(
        "int.add",
        (enter(scope, a, view, name), right),
        nhwc_type(view.shape, result),
        {"post": Post(add=stage)},
        name=name,
        hint=f"{result.value}:nhwc",
    )
    view.leave(scope, value, result, name)


def _per_channel(scope: Scope, b: Operand, result: Target, name: str) -> str:
    """A constant that is broadcast, as ``(1, 1, 1, c)`` of the elementwise view."""
    array = scope.constant(b.value)
    if array is None:
        raise Refusal(f"shapes {b.shape} and {result.shape} are broadcast against each other")
    rank = len(result.shape)
    axis = 1 if rank == 4 else rank - 1
    shape = (1,) * (rank - array.ndim) + array.shape
    if len(shape) != rank or any(size != 1 for a, size in enumerate(shape) if a != axis):
        raise Refusal(f"constant of shape {array.shape} is not per channel")
    channels = result.shape[axis] if rank else 1
    values = np.broadcast_to(array.reshape(-1), (channels,)).reshape(1, 1, 1, channels)
    made = scope.add_constant(f"{name}/constant", np.ascontiguousarray(values))
    typed = replace(scope.types[made], quant=scope.types[b.value].quant)
    scope.types[made] = typed
    if array.dtype == np.uint8:
        return signed(scope, replace(b, value=made, shape=(1, 1, 1, channels)), name).value
    return made
