"""Elementwise functions of one quantized tensor to a table of 256 entries.

Whatever lies between one DequantizeLinear and one QuantizeLinear is evaluated for every int8 value,
in float32, by ``onnx.reference``: the table is the definition, there is nothing to approximate.
"""

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.contrib import short_name
from accelc.compiler.fixed_point import Unrepresentable, multipliers
from accelc.compiler.graph import Node
from accelc.compiler.integer import Post
from accelc.compiler.integer_reference import requantize
from accelc.compiler.onnx_node import run
from accelc.compiler.passes.operands import (
    Context,
    Operand,
    Target,
    dequantized,
    elementwise_view,
    enter,
    int32,
    nhwc_type,
    operand,
    require_int8,
    target,
)
from accelc.compiler.rewrite import Refusal, Scope

#: Operators that map every element by itself, given scalar constants for their other inputs.
ELEMENTWISE = frozenset(
    "Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Celu Clip Cos Cosh Div Elu Erf Exp Floor Gelu "
    "HardSigmoid HardSwish Identity LeakyRelu Log Max Mean Min Mish Mod Mul Neg PRelu Pow "
    "Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub "
    "Sum Swish Tan Tanh ThresholdedRelu".split()
)
#: Nodes between DequantizeLinear and QuantizeLinear that are still searched.
MAX_REGION_NODES = 64


def function_of_one(scope: Scope, value: str) -> tuple[str, list[Node]] | None:
    """The one dequantized value a float ``value`` is an elementwise function of, and the nodes.

    ``None`` if it depends on several, on run-time floats or on anything not elementwise. The nodes
    are in topological order; constants must be scalars.
    """
    source: str | None = None
    order: list[Node] = []
    done: set[str] = set()
    pending = [(value, False)]
    while pending:
        name, expanded = pending.pop()
        node = scope.producer(name)
        if expanded:
            if node is not None and node not in order:
                order.append(node)
            continue
        if name in done:
            continue
        done.add(name)
        if (array := scope.constant(name)) is not None:
            if array.size != 1:
                return None
            continue
        if node is None:
            return None
        if node.op == "DequantizeLinear":
            inner = scope.constant(node.inputs[0])
            if inner is not None:
                if inner.size != 1:
                    return None
                pending.append((name, True))
                continue
            if source not in (None, name):
                return None
            source = name
            continue
        if node.op not in ELEMENTWISE or len(done) > MAX_REGION_NODES or len(node.outputs) > 1:
            return None
        pending.append((name, True))
        pending.extend((i, False) for i in node.inputs if i)
    return None if source is None else (source, order)


def table_of(
    scope: Scope, x: Operand, source: str, nodes: list[Node], value: str, result: Target
) -> NDArray[np.int8]:
    """``(256,)`` int8: entry ``q + 128`` is the result for the int8 value ``q``."""
    q = np.arange(-128, 128, dtype=np.int64)
    real = ((q - x.scalar_zero).astype(np.float32) * x.scalar_scale).astype(np.float32)
    values = {source: real}
    with np.errstate(all="ignore"):
        for node in nodes:
            inputs = [
                None if not n else values[n] if n in values else scope.constants[n]
                for n in node.inputs
            ]
            values[node.outputs[0]] = run(node, inputs, scope.opset)[0]
        return quantize(values[value].reshape(-1), result)


def quantize(real: NDArray[np.float32], result: Target) -> NDArray[np.int8]:
    """QuantizeLinear to int8; NaN gives the lowest value, as on x86."""
    with np.errstate(all="ignore"):
        rounded = np.rint(real.astype(np.float32) / result.scale).astype(np.float64) + result.zero
    rounded = np.where(np.isnan(rounded), -128, rounded)
    return np.clip(rounded, -128, 127).astype(np.int8)


def lower_function(context: Context, result: Target, value: str) -> bool:
    """``DequantizeLinear -> elementwise... -> QuantizeLinear`` to ``int.lookup`` or ``int.scale``.

    Returns False where the pattern is another one.
    """
    found = function_of_one(context.scope, value)
    if found is None:
        return False
    source, nodes = found
    x = dequantized(context.scope, source)
    assert x is not None
    x = require_int8(x)
    if x.shape != result.shape:
        raise Refusal("a scalar constant broadcasts the tensor to another shape")
    emit_table(context, x, table_of(context.scope, x, source, nodes, value, result), result)
    return True


def emit_table(context: Context, x: Operand, table: NDArray[np.int8], result: Target) -> None:
    """Emit the operator that maps int8 ``x`` through ``table``; the cheapest the hardware has."""
    scope, name = context.scope, context.name
    view = elementwise_view(result.shape)
    if context.config.lut:
        value = scope.emit(
            "int.lookup",
            (enter(scope, x, view, name), scope.add_constant(f"{name}/table", table)),
            nhwc_type(view.shape, result),
            {"post": Post(table=True)},
            name=name,
            hint=f"{result.value}:nhwc",
        )
    else:
        found = linear_table(table, x, result, context.config.mult_bits)
        if found is None:
            raise Refusal(
                "the configuration has no look-up table (lut = false), the function is not linear"
            )
        bias, mult, shift, post = found
        channels = view.shape[3]
        parts = [
            scope.add_constant(f"{name}/{part}", int32(np.full(channels, number)))
            for part, number in (("bias", bias), ("mult", mult), ("shift", shift))
        ]
        value = scope.emit(
            "int.scale",
            (enter(scope, x, view, name), *parts),
            nhwc_type(view.shape, result),
            {"post": post},
            name=name,
            hint=f"{result.value}:nhwc",
        )
    view.leave(scope, value, result, name)


def linear_table(
    table: NDArray[np.int8], x: Operand, result: Target, mult_bits: int
) -> tuple[int, int, int, Post] | None:
    """Bias, multiplier, shift and clamp that give all entries of ``table``, if there are any."""
    real = float(np.float64(x.scalar_scale) / np.float64(result.scale))
    q = np.arange(-128, 128, dtype=np.int64)
    low, high = int(table.min()), int(table.max())
    try:
        mult, shift = (int(array[0]) for array in multipliers([real], mult_bits))
    except Unrepresentable:
        return None
    # where a product is half way, float32 falls to one side; a neighbouring multiplier does too
    for nearby in (0, 1, -1, 2, -2):
        for inside in (False, True):
            post = Post(zero=result.zero, inside=inside, min=low, max=high)
            candidate = min(max(mult + nearby, 0), (1 << mult_bits) - 1)
            y = requantize(q, np.array(-x.scalar_zero), np.array(candidate), np.array(shift), post)
            if np.array_equal(np.clip(y, low, high), table):
                return -x.scalar_zero, candidate, shift, post
    return None


def lower_qlinear_unary(context: Context) -> None:
    """``com.microsoft.QLinearSigmoid`` and ``QLinearLeakyRelu`` to a table."""
    scope, node = context.scope, context.node
    x = require_int8(operand(scope, node.inputs[0], node.inputs[1], node.input(2)))
    result = target(scope, node.outputs[0], node.input(3), node.input(4))
    op = short_name(node.op).removeprefix("QLinear")
    attrs = {"alpha": node.attrs.get("alpha", 0.01)} if op == "LeakyRelu" else {}
    function = Node(op, node.name, ("x",), ("y",), attrs)
    emit_table(context, x, table_of(scope, x, "x", [function], "y", result), result)


def lower_integer_relu(context: Context) -> None:
    """``Relu``, ``Clip``, ``Max`` and ``Min`` with constants on int8 itself to a table."""
    scope, node = context.scope, context.node
    found = scope.types[node.inputs[0]]
    if found.dtype != np.int8:
        raise Refusal(f"{node.op} on {found.dtype}")
    constants = [scope.constant(n) if n else None for n in node.inputs[1:]]
    for name, array in zip(node.inputs[1:], constants, strict=True):
        if name and (array is None or array.size != 1):
            raise Refusal(f"{node.op} with an operand that is not a scalar constant")
    x = Operand(node.inputs[0], found.shape, found.dtype, np.array(1, np.float32), np.array(0))
    out = scope.types[node.outputs[0]]
    result = Target(node.outputs[0], out.shape, out.dtype, np.float32(1), 0)
    q = np.arange(-128, 128).astype(np.int8)
    emit_table(
        context, require_int8(x), run(node, [q, *constants], scope.opset)[0].reshape(-1), result
    )
