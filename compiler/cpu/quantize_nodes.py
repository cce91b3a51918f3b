"""Quantizing operators of more than one kernel."""

from collections.abc import Callable

import numpy as np

from accelc.compiler.cpu.copies import strided_copy
from accelc.compiler.cpu.elementwise import contiguous, lower_group, single
from accelc.compiler.cpu.lanes import FLOAT32
from accelc.compiler.cpu.parse import Operand, check_types, require
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.cpu.planes import require_native
from accelc.compiler.cpu.quantize import check_dequantize, check_quantize
from accelc.compiler.cpu.reduce import reduce
from accelc.compiler.graph import Node


def lower_dynamic_quantize(plan: Plan, node: Node) -> None:
    """uint8 values, scale and zero point from the range of the input itself."""
    x = node.inputs[0]
    out, scale, zero = node.outputs
    require_native(plan, x)
    require(plan.dtype(x) == FLOAT32, "element type")
    shape = plan.shape(x)
    require(len(shape) > 0, "scalar")
    low, high = plan.temporary((), FLOAT32), plan.temporary((), FLOAT32)
    axes = range(len(shape))
    reduce(plan, "ReduceMin", x, low, axes)
    reduce(plan, "ReduceMax", x, high, axes)
    # the optional outputs are needed here even if nobody else reads them
    scale = scale or plan.temporary((), FLOAT32)
    zero = zero or plan.temporary((), np.uint8)
    single(plan, "DynamicScale", [(low, ()), (high, ())], (), scale, ())
    single(plan, "DynamicZero", [(low, ()), (scale, ())], (), zero, ())
    operands: list[Operand] = [(x, shape), (scale, ()), (zero, ())]
    single(plan, "QuantizeLinear", operands, (True,), out, shape)


def lower_qlinear_concat(plan: Plan, node: Node) -> None:
    """Every input to the scale and zero point of the output, then side by side."""
    out_scale, out_zero, *rest = node.inputs
    out = node.outputs[0]
    shape = plan.shape(out)
    axis = int(node.attrs["axis"]) % len(shape)
    write = contiguous(shape)
    first = 0
    for name, scale, zero in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        part = plan.shape(name)
        value = plan.temporary(part, plan.dtype(out))
        parameters: list[Operand] = [(n, ()) for n in (scale, zero, out_scale, out_zero)]
        require(all(plan.size(n) == 1 for n, _ in parameters), "per-channel parameters")
        single(plan, "Requantized", [(name, part), *parameters], (), value, part)
        start = first * write[axis]
        strided_copy(plan, value, out, part, contiguous(part), write, write_start=start)
        first += part[axis]


def lower_blocked(plan: Plan, node: Node) -> None:
    """QuantizeLinear and DequantizeLinear with a scale for every so many elements of an axis."""
    x, scale = node.inputs[:2]
    out = node.outputs[0]
    block = int(node.attrs.get("block_size", 0))
    if not block:
        lower_group(plan, [node])
        return
    check_types(node, plan)
    check = check_quantize if node.op == "QuantizeLinear" else check_dequantize
    check(node, plan)
    shape, scales = plan.shape(x), plan.shape(scale)
    axis = int(node.attrs.get("axis", 1)) % len(shape)
    require(shape[axis] == scales[axis] * block, "an incomplete block")
    split = (*shape[:axis], scales[axis], block, *shape[axis + 1 :])
    view = (*scales[: axis + 1], 1, *scales[axis + 1 :])
    operands: list[Operand] = [(x, split), *((name, view) for name in node.inputs[1:3] if name)]
    params = (bool(node.attrs.get("saturate", 1)),) if node.op == "QuantizeLinear" else ()
    single(plan, node.op, operands, params, out, split)


LOWERINGS: dict[str, Callable[[Plan, Node], None]] = {
    "DequantizeLinear": lower_blocked,
    "DynamicQuantizeLinear": lower_dynamic_quantize,
    "QuantizeLinear": lower_blocked,
    "com.microsoft.QLinearConcat": lower_qlinear_concat,
}
