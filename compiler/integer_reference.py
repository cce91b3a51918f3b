"""The golden model of graphs: integer operators in NumPy, the rest by ``onnx.reference``.

Written from the contract in ``compiler.integer`` and ``isa.spec.Alu``; every executor of a compiled
graph must give these bits.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.graph import Array, Graph, Node
from accelc.compiler.integer import ConvAttrs, MatmulAttrs, Post
from accelc.compiler.onnx_node import run
from accelc.isa.errors import InputError
from accelc.isa.semantics import round_shift

Int8 = NDArray[np.int8]
Int64 = NDArray[np.int64]


def evaluate(
    graph: Graph, feeds: Mapping[str, Array], *, every_value: bool = False
) -> dict[str, Array]:
    """Outputs of ``graph`` for the inputs ``feeds``; with ``every_value``, intermediate values too.

    Raises:
        InputError: an input is missing, or its shape or type is not the graph's.
    """
    values: dict[str, Any] = {}
    for name in graph.inputs:
        expected = graph.types[name]
        if name not in feeds:
            raise InputError(f"input {name!r} is missing")
        array = feeds[name]
        opaque = -1 in expected.shape
        if not opaque and (array.shape, array.dtype) != (expected.shape, expected.dtype):
            raise InputError(
                f"input {name!r} is {array.dtype}{array.shape},"
                f" not {expected.dtype}{expected.shape}"
            )
        values[name] = array
    values.update(graph.constants)
    for node in graph.nodes:
        inputs = [values[name] if name else None for name in node.inputs]
        results = run_any(node, inputs, graph.opset)
        # an absent output has no result either
        values.update(zip(filter(None, node.outputs), results, strict=False))
    return values if every_value else {name: values[name] for name in graph.outputs}


def run_any(node: Node, inputs: list[Any], opset: int) -> list[Any]:
    """Outputs of one node of a graph, integer operator or ONNX."""
    if node.op.startswith("int."):
        return [run_integer(node, inputs)]
    return run(node, inputs, opset)


def run_integer(node: Node, inputs: list[Any]) -> Array:
    """Output of one integer operator; shapes as in ``compiler.integer``."""
    post: Post = node.attrs.get("post", Post())
    x = inputs[0]
    table = inputs[-1] if post.table else None
    match node.op:
        case "int.conv":
            conv: ConvAttrs = node.attrs["conv"]
            acc = accumulate(x, inputs[1], conv, depthwise=node.attrs["depthwise"])
            y = requantize(acc, inputs[2], inputs[3], inputs[4], post)
            return _finish(y, post, inputs[5] if post.add else None, table)
        case "int.matmul":
            acc = multiply(x, inputs[1], node.attrs["matmul"])
            y = requantize(acc, inputs[2], inputs[3], inputs[4], post)
            return _finish(y, post, None, table)
        case "int.maxpool":
            return _finish(_maximum(x, node.attrs["conv"]), post, None, table)
        case "int.add":
            return _finish(x.astype(np.int64), post, inputs[1], table)
        case "int.scale":
            return _finish(requantize(x, inputs[1], inputs[2], inputs[3], post), post, None, table)
        case "int.lookup":
            return _finish(x.astype(np.int64), post, None, inputs[1])
        case "int.concat":
            parts = np.concatenate(inputs[:-3], axis=-1)
            return _finish(
                requantize(parts, inputs[-3], inputs[-2], inputs[-1], post), post, None, None
            )
        case "int.resize":
            fh, fw = node.attrs["factors"]
            return x.repeat(fh, axis=1).repeat(fw, axis=2)
        case "int.signed":
            return (x.astype(np.int16) - 128).astype(np.int8)
        case "int.unsigned":
            return (x.astype(np.int16) + 128).astype(np.uint8)
    raise AssertionError(f"no such integer operator: {node.op}")


def _taps(x: Int8, conv: ConvAttrs) -> list[tuple[int, int, Int8]]:
    """Every window position with the input it meets, ``(n, oh, ow, c)`` each."""
    top, left, bottom, right = conv.pads
    padded = np.pad(
        x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=np.int8(conv.pad_value)
    )
    oh, ow = conv.output_size(x.shape[1], x.shape[2])
    (sy, sx), (dy, dx) = conv.stride, conv.dilation
    return [
        (
            ky,
            kx,
            padded[
                :,
                ky * dy : ky * dy + (oh - 1) * sy + 1 : sy,
                kx * dx : kx * dx + (ow - 1) * sx + 1 : sx,
            ],
        )
        for ky in range(conv.kernel[0])
        for kx in range(conv.kernel[1])
    ]


def accumulate(x: Int8, w: Int8, conv: ConvAttrs, *, depthwise: bool) -> NDArray[np.int32]:
    """Accumulators ``(n, oh, ow, o)`` int32, wrapping, of a convolution without its bias."""
    n, h, width, _ = x.shape
    channels = w.shape[-1] if depthwise else w.shape[0]
    acc = np.zeros((n, *conv.output_size(h, width), channels), np.int64)
    for ky, kx, tap in _taps(x, conv):
        if depthwise:
            acc += tap.astype(np.int64) * w[ky, kx]
        else:
            # exact: sums of products of int8 stay far below 2^53
            acc += (tap.astype(np.float64) @ w[:, ky, kx].T.astype(np.float64)).astype(np.int64)
    return acc.astype(np.int32)


def multiply(a: Int8, b: Int8, matmul: MatmulAttrs) -> NDArray[np.int32]:
    """Accumulators ``(m, 1, heads, o)`` int32, wrapping, of an ``int.matmul``."""
    # exact: products of differences of int8, summed, stay far below 2^53
    left, right = a.astype(np.float64) - matmul.a_zero, b.astype(np.float64) - matmul.b_zero
    heads = [left[:, 0, ha] @ right[:, 0, hb].T for ha, hb in matmul.heads]
    return np.stack(heads, axis=1)[:, None].astype(np.int64).astype(np.int32)


def _maximum(x: Int8, conv: ConvAttrs) -> Int64:
    return np.maximum.reduce([tap for _, _, tap in _taps(x, conv)]).astype(np.int64)


def requantize(acc: Array, bias: Array, mult: Array, shift: Array, post: Post) -> Int64:
    """``round(wrap32(acc + bias) * mult / 2**shift) + zero``, not yet clamped."""
    value = (acc.astype(np.int64) + bias).astype(np.int32).astype(np.int64) * mult
    return round_shift(value, shift, post.zero if post.inside else 0) + post.zero


def _finish(x: Int64, post: Post, other: Int8 | None, table: Int8 | None) -> Int8:
    x = np.clip(x, post.min, post.max)
    if post.add is not None:
        assert other is not None
        add = post.add
        total = x * add.m1 + other.astype(np.int64) * add.m2 + add.offset
        x = np.clip(round_shift(total, add.shift) + add.zero, add.min, add.max)
    return table[x + 128] if table is not None else x.astype(np.int8)
