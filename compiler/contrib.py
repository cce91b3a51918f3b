"""The ``com.microsoft`` operators that onnxruntime's quantizer writes: signatures and shapes.

Only what the compiler lowers or can express in standard operators is listed.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from accelc.compiler.geometry import pool_output
from accelc.compiler.graph import Node, TensorType

_UNARY = ("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")
_POOLS = ("QLinearAveragePool", "QLinearGlobalAveragePool")
_BINARY = ("QLinearAdd", "QLinearMul")

#: Every operator of the domain that is understood.
CONTRIB = frozenset(
    f"com.microsoft.{name}" for name in (*_UNARY, *_POOLS, *_BINARY, "QLinearConcat", "QGemm")
)


def short_name(op: str) -> str:
    return op.removeprefix("com.microsoft.")


def quantization(node: Node) -> Iterator[tuple[str, str, str]]:
    """``(value, scale, zero point)`` of every quantized operand and result of a QLinear node."""
    i = (*node.inputs, "", "", "", "", "", "")
    out = node.outputs[0] if node.outputs else ""
    match short_name(node.op):
        case "QLinearConv" | "QLinearMatMul" | "QLinearAdd" | "QLinearMul":
            yield i[0], i[1], i[2]
            yield i[3], i[4], i[5]
            yield out, i[6], i[7]
        case "QGemm":
            yield i[0], i[1], i[2]
            yield i[3], i[4], i[5]
            if i[7]:
                yield out, i[7], i[8]
        case name if name in _UNARY or name in _POOLS:
            yield i[0], i[1], i[2]
            yield out, i[3], i[4]
        case "QLinearConcat":
            yield out, i[0], i[1]
            for k in range(2, len(node.inputs), 3):
                yield node.inputs[k], node.inputs[k + 1], node.inputs[k + 2]


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an elementwise operation; what depends on an open dimension (-1) is open too."""
    if -1 not in (*a, *b):
        return np.broadcast_shapes(a, b)
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    return tuple(y if x == 1 else x if y == 1 else max(x, y) for x, y in pairs)


def infer(node: Node, types: Mapping[str, TensorType]) -> list[TensorType | None]:
    """Types of the outputs of an operator in ``CONTRIB``."""
    name = short_name(node.op)
    first = types[node.inputs[0]]
    shape: tuple[int, ...]
    match name:
        case "QLinearAdd" | "QLinearMul":
            shape = _broadcast(first.shape, types[node.inputs[3]].shape)
        case "QLinearConcat":
            parts = [types[v].shape for v in node.inputs[2::3]]
            axis = node.attrs["axis"] % len(parts[0])
            sizes = [part[axis] for part in parts]
            total = -1 if -1 in sizes else sum(sizes)
            shape = (*parts[0][:axis], total, *parts[0][axis + 1 :])
            return [TensorType(shape, types[node.inputs[2]].dtype)]
        case "QGemm":
            a, b = first.shape, types[node.inputs[3]].shape
            m = a[1] if node.attrs.get("transA", 0) else a[0]
            n = b[0] if node.attrs.get("transB", 0) else b[1]
            quantized = node.input(7)
            return [TensorType((m, n), first.dtype if quantized else np.dtype(np.float32))]
        case "QLinearGlobalAveragePool":
            last = node.attrs.get("channels_last", 0)
            ones = (1,) * (len(first.shape) - 2)
            shape = (first.shape[0], *ones, first.shape[-1]) if last else (*first.shape[:2], *ones)
        case "QLinearAveragePool":
            last = node.attrs.get("channels_last", 0)
            spatial = first.shape[1:-1] if last else first.shape[2:]
            out = (-1,) * len(spatial) if -1 in spatial else pool_output(node.attrs, spatial)
            shape = (first.shape[0], *out, first.shape[-1]) if last else (*first.shape[:2], *out)
        case _:
            shape = first.shape
    return [TensorType(shape, first.dtype)]
