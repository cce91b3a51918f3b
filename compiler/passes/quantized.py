"""Move data movement into the integers, so that it neither hides nor splits quantized patterns."""

from dataclasses import replace

import numpy as np

from accelc.compiler.graph import Node, Quant, TensorType
from accelc.compiler.passes.operands import Operand, dequantized
from accelc.compiler.rewrite import Refusal, Replacement, Rule, Scope

#: Operators that only move elements of their first input, or choose among them monotonically.
MOVEMENT = frozenset(
    "Transpose Reshape Flatten Squeeze Unsqueeze MaxPool GlobalMaxPool Resize Upsample Slice "
    "Gather Split Expand Tile DepthToSpace SpaceToDepth Pad".split()
)
_INT8 = (np.dtype(np.int8), np.dtype(np.uint8))


def _moves(node: Node, scope: Scope) -> bool:
    if node.op not in MOVEMENT:
        return False
    if node.op in ("Resize", "Upsample") and node.attrs.get("mode", "nearest") != "nearest":
        return False
    if (
        node.op == "Resize"
        and node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    ):
        return False
    if node.op == "MaxPool" and len(node.outputs) > 1:
        return False
    if node.op == "Pad":
        return node.attrs.get("mode", "constant") != "constant" or pad_value(node, scope) == 0
    return True


def pad_value(node: Node, scope: Scope) -> float | None:
    """The constant a Pad node fills with; ``None`` if it is computed at run time."""
    if node.input(2):
        array = scope.constant(node.inputs[2])
        return None if array is None else float(array.reshape(-1)[0])
    return float(node.attrs.get("value", 0.0))


def _with_pad_value(node: Node, source: str, zero: int, scope: Scope) -> Node:
    """The Pad node on integers, where a real 0 is the zero point."""
    if len(node.inputs) == 1:
        return node.with_(inputs=(source,), attrs={**node.attrs, "value": float(zero)})
    made = scope.add_constant(f"{node.name}/value", np.array(zero, scope.types[source].dtype))
    return node.with_(inputs=(source, node.inputs[1], made, *node.inputs[3:]))


def _sink_dequantize(node: Node, scope: Scope) -> Replacement | None:
    if not node.inputs or not _moves(node, scope):
        return None
    inner = scope.producer(node.inputs[0], "DequantizeLinear")
    if inner is None:
        return None
    try:
        x = dequantized(scope, node.inputs[0])
    except Refusal:
        return None
    if x is None or x.dtype not in _INT8:
        return None
    axis = _moved_axis(node, scope, x)
    if axis is None:
        return None
    moved = node.with_(inputs=(x.value, *node.inputs[1:]))
    if node.op == "Pad" and node.attrs.get("mode", "constant") == "constant":
        moved = _with_pad_value(node, x.value, int(x.zero), scope)
    outputs: list[str] = []
    old = scope.types[x.value]
    for output in node.outputs:
        name = scope.fresh(f"{output}:q")
        quant = (
            None if old.quant is None else replace(old.quant, axis=axis if x.scale.ndim else None)
        )
        scope.types[name] = TensorType(scope.shape(output), x.dtype, quant)
        outputs.append(name)
    scope.add_node(moved.with_(outputs=tuple(outputs)))
    attrs = {**inner.attrs, "axis": axis} if x.scale.ndim else dict(inner.attrs)
    for name, output in zip(outputs, node.outputs, strict=True):
        scope.emit(
            "DequantizeLinear",
            (name, *inner.inputs[1:]),
            output,
            attrs,
            name=f"{node.name}/dequantize",
        )
    return scope.done()


def _moved_axis(node: Node, scope: Scope, x: Operand) -> int | None:
    """Where the axis of quantization goes; 1 for per-tensor; ``None`` where it does not survive."""
    if not x.scale.ndim:
        return 1
    assert x.axis is not None
    before, after = x.shape, scope.shape(node.outputs[0])
    if node.op == "Transpose":
        perm = node.attrs.get("perm", tuple(range(len(before)))[::-1])
        return tuple(perm).index(x.axis)
    if node.op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze") and -1 not in (*before, *after):
        ahead = int(np.prod(before[: x.axis], dtype=np.int64))
        for axis, size in enumerate(after):
            same = int(np.prod(after[:axis], dtype=np.int64)) == ahead
            if size == before[x.axis] and same:
                return axis
    return None


def _hoist_quantize(node: Node, scope: Scope) -> Replacement | None:
    if node.attrs.get("block_size"):
        return None
    inner = scope.producer(node.inputs[0])
    if inner is None or not inner.inputs or not _moves(inner, scope) or len(inner.outputs) != 1:
        return None
    if not scope.sole_use(node.inputs[0]) or scope.constant(inner.inputs[0]) is not None:
        return None
    scale = scope.constant(node.inputs[1])
    zero = scope.constant(node.input(2)) if node.input(2) else np.array(0, np.uint8)
    out = scope.types[node.outputs[0]]
    if scale is None or zero is None or scale.size != 1 or zero.size != 1 or out.dtype not in _INT8:
        return None
    quant = Quant(scale.reshape(()), zero.reshape(()))
    early = scope.emit(
        "QuantizeLinear",
        (inner.inputs[0], *node.inputs[1:]),
        TensorType(scope.shape(inner.inputs[0]), out.dtype, quant),
        node.attrs,
        name=node.name,
        hint=f"{inner.inputs[0]}:q",
    )
    moved = inner.with_(inputs=(early, *inner.inputs[1:]), outputs=node.outputs)
    if inner.op == "Pad" and inner.attrs.get("mode", "constant") == "constant":
        moved = _with_pad_value(inner, early, int(zero.reshape(())), scope).with_(
            outputs=node.outputs
        )
    scope.add_node(moved)
    return scope.done()


def _same_quantization(node: Node, scope: Scope) -> Replacement | None:
    inner = scope.producer(node.inputs[0], "DequantizeLinear")
    if inner is None or node.attrs.get("block_size") or inner.attrs.get("block_size"):
        return None
    source, out = inner.inputs[0], node.outputs[0]
    if scope.types[source].dtype != scope.types[out].dtype:
        return None
    scales = [scope.constant(n.inputs[1]) for n in (node, inner)]
    zeros = [_zero(n, scope) for n in (node, inner)]
    if any(array is None or array.size != 1 for array in (*scales, *zeros)):
        return None
    if scales[0] != scales[1] or zeros[0] != zeros[1]:
        return None
    return scope.done({out: source})


def _zero(node: Node, scope: Scope) -> np.ndarray | None:
    if node.input(2):
        return scope.constant(node.inputs[2])
    return np.array(0)


MOVEMENT_RULES = (
    Rule(
        "cancel-requantization",
        "QuantizeLinear(DequantizeLinear(x, s, z), s, z)",
        "x",
        _same_quantization,
        ("QuantizeLinear",),
    ),
    Rule(
        "movement-on-integers",
        "Transpose(DequantizeLinear(x)); likewise Reshape, MaxPool, Slice, Pad...",
        "DequantizeLinear(Transpose(x))",
        _sink_dequantize,
        tuple(sorted(MOVEMENT)),
    ),
    Rule(
        "quantize-first",
        "QuantizeLinear(Transpose(x)); likewise other movement",
        "Transpose(QuantizeLinear(x))",
        _hoist_quantize,
        ("QuantizeLinear",),
    ),
)
