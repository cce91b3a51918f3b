"""Concatenation and nearest-neighbour enlargement to ``int.concat`` and ``int.resize``."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.graph import Node
from accelc.compiler.integer import Post
from accelc.compiler.passes.lower_pool import signed_quant
from accelc.compiler.passes.lower_table import linear_table, quantize
from accelc.compiler.passes.operands import (
    Context,
    Operand,
    Target,
    View,
    activation,
    enter,
    features_view,
    int32,
    nhwc_type,
    operand,
    require_int8,
    rows_view,
    target,
)
from accelc.compiler.rewrite import Refusal


def lower_float_concat(context: Context, node: Node, result: Target) -> None:
    """``DequantizeLinear... -> Concat -> QuantizeLinear`` to ``int.concat``."""
    parts = [activation(context.scope, value, "operand") for value in node.inputs]
    _emit(context, parts, result, node.attrs["axis"])


def lower_qlinear_concat(context: Context) -> None:
    """``com.microsoft.QLinearConcat`` to ``int.concat``."""
    scope, node = context.scope, context.node
    i = node.inputs
    parts = [require_int8(operand(scope, i[k], i[k + 1], i[k + 2])) for k in range(2, len(i), 3)]
    result = target(scope, node.outputs[0], i[0], i[1])
    _emit(context, parts, result, node.attrs["axis"])


def lower_int_concat(context: Context) -> None:
    """``Concat`` of int8 or uint8 tensors, nothing requantized, to ``int.concat``."""
    scope, node = context.scope, context.node
    one, zero = np.array(1, np.float32), np.array(0)
    parts = []
    for value in node.inputs:
        found = scope.types[value]
        shifted = zero + (128 if found.dtype == np.uint8 else 0)
        parts.append(require_int8(Operand(value, found.shape, found.dtype, one, shifted)))
    out = scope.types[node.outputs[0]]
    result = Target(node.outputs[0], out.shape, out.dtype, np.float32(1), 0)
    _emit(context, parts, result, node.attrs["axis"])


def _views(parts: Sequence[Operand], result: Target, axis: int) -> tuple[list[View], View]:
    """NHWC views with the joined axis last."""
    rank = len(result.shape)
    axis %= rank
    shapes = [*(part.shape for part in parts), result.shape]
    if rank == 4:
        if axis == 0:
            raise Refusal("concatenation along the batch")
        kept = [a for a in range(4) if a != axis]
        perm = (*kept, axis)
        views = [View(shape, perm) for shape in shapes]
    elif axis == rank - 1 and rank > 1:
        views = [rows_view(shape) for shape in shapes]
    elif rank == 3 and axis == 1:
        views = [features_view(shape) for shape in shapes]
    else:
        raise Refusal(f"concatenation along axis {axis} of {rank}")
    return views[:-1], views[-1]


def _emit(context: Context, parts: Sequence[Operand], result: Target, axis: int) -> None:
    scope, name = context.scope, context.name
    x_views, y_view = _views(parts, result, axis)
    values: list[str] = []
    params: list[tuple[int, int, int, int]] = []
    for part, view in zip(parts, x_views, strict=True):
        value, bias, mult, shift = _requantized(context, part, view, result)
        values.append(value)
        params.append((bias, mult, shift, view.shape[3]))
    names = [
        scope.add_constant(
            f"{name}/{what}", int32(np.concatenate([np.full(p[3], p[k]) for p in params]))
        )
        for k, what in enumerate(("bias", "mult", "shift"))
    ]
    value = scope.emit(
        "int.concat",
        (*values, *names),
        nhwc_type(y_view.shape, result),
        {"post": Post(zero=result.zero)},
        name=name,
        hint=f"{result.value}:nhwc",
    )
    y_view.leave(scope, value, result, name)


def _requantized(
    context: Context, part: Operand, view: View, result: Target
) -> tuple[str, int, int, int]:
    """An operand's NHWC value with bias, multiplier and shift that requantize it exactly.

    Where no multiplier gives onnxruntime's result for all 256 values, a table does so beforehand.
    """
    scope, name = context.scope, context.name
    value = enter(scope, part, view, name)
    q = np.arange(-128, 128, dtype=np.int64)
    real = (q - part.scalar_zero).astype(np.float32) * part.scalar_scale
    table = quantize(real, result)
    found = linear_table(table, part, result, context.config.mult_bits)
    if found is not None and not found[3].inside:
        return value, found[0], found[1], found[2]
    if not context.config.lut:
        raise Refusal("no multiplier requantizes an operand exactly, and there is no look-up table")
    value = scope.emit(
        "int.lookup",
        (value, scope.add_constant(f"{name}/table", table)),
        nhwc_type(view.shape, result),
        {"post": Post(table=True)},
        name=f"{name}/requantize",
    )
    return value, -result.zero, 1, 0


def lower_resize(context: Context) -> None:
    """``Resize`` or ``Upsample`` of int8 by whole factors, nearest neighbour, to ``int.resize``."""
    scope, node = context.scope, context.node
    found = scope.types[node.inputs[0]]
    zero = np.array(128 if found.dtype == np.uint8 else 0)
    x = require_int8(
        Operand(node.inputs[0], found.shape, found.dtype, np.array(1, np.float32), zero)
    )
    out = scope.types[node.outputs[0]]
    factors = _factors(node, found.shape, out.shape, scope.opset)
    result = Target(node.outputs[0], out.shape, out.dtype, np.float32(1), 0)
    y_view = features_view(out.shape)
    typed = nhwc_type(y_view.shape, result)
    value = scope.emit(
        "int.resize",
        (enter(scope, x, features_view(found.shape), context.name),),
        type(typed)(typed.shape, typed.dtype, signed_quant(scope, node.inputs[0])),
        {"factors": factors},
        name=context.name,
        hint=f"{result.value}:nhwc",
    )
    y_view.leave(scope, value, result, context.name)


def _factors(
    node: Node, before: tuple[int, ...], after: tuple[int, ...], opset: int
) -> tuple[int, int]:
    if node.attrs.get("mode", "nearest") != "nearest":
        raise Refusal(f"{node.op} with mode {node.attrs['mode']}")
    if len(before) not in (3, 4) or before[:2] != after[:2]:
        raise Refusal(f"{node.op} from {before} to {after}")
    sizes = list(zip(before[2:], after[2:], strict=True))
    if any(a % b for b, a in sizes):
        raise Refusal(f"{node.op} by a factor that is not whole")
    for b, a in sizes:
        if not np.array_equal(_nearest(node, b, a, opset), np.arange(a) // (a // b)):
            raise Refusal(f"{node.op} whose nearest neighbour is not the repeated element")
    factors = [a // b for b, a in sizes]
    return (factors[0], factors[1]) if len(factors) == 2 else (1, factors[0])


def _nearest(node: Node, before: int, after: int, opset: int) -> NDArray[np.int64]:
    """Source index of every output element along one axis, as ONNX Resize defines it."""
    scale = after / before
    modern = node.op == "Resize" and opset >= 11
    i = np.arange(after, dtype=np.float64)
    default = "half_pixel" if modern else "asymmetric"
    match node.attrs.get("coordinate_transformation_mode", default):
        case "half_pixel" | "half_pixel_symmetric":
            x = (i + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            x = (i + 0.5) / scale - 0.5 if after > 1 else np.zeros(1)
        case "asymmetric":
            x = i / scale
        case "align_corners":
            x = i * (before - 1) / (after - 1) if after > 1 else np.zeros(1)
        case other:
            raise Refusal(f"Resize with coordinates {other}")
    default = "round_prefer_floor" if modern else "floor"
    match node.attrs.get("nearest_mode", default):
        case "floor":
            index = np.floor(x)
        case "ceil":
            index = np.ceil(x)
        case "round_prefer_ceil":
            index = np.floor(x + 0.5)
        case _:
            index = np.ceil(x - 0.5)
    return np.clip(index, 0, before - 1).astype(np.int64)
