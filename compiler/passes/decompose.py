"""What is left for the CPU in terms of standard ONNX operators."""

import numpy as np

from accelc.compiler.contrib import CONTRIB, short_name
from accelc.compiler.graph import Node, TensorType
from accelc.compiler.rewrite import Replacement, Rule, Scope

_FLOAT = np.dtype(np.float32)
_BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
_UNARY = {
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSoftmax": "Softmax",
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
}
_KEPT_ATTRS = {
    "LeakyRelu": ("alpha",),
    "Softmax": ("axis",),
    "AveragePool": (
        "kernel_shape",
        "strides",
        "pads",
        "auto_pad",
        "ceil_mode",
        "count_include_pad",
    ),
}


def _sign_change(node: Node, scope: Scope) -> Replacement | None:
    unsigned, signed = np.array(128, np.uint8), np.array(0, np.int8)
    before, after = (unsigned, signed) if node.op == "int.signed" else (signed, unsigned)
    scale = scope.add_constant(f"{node.name}/scale", np.array(1, np.float32))
    real = _dequantize(
        node, scope, (node.inputs[0], scale, scope.add_constant(f"{node.name}/from", before))
    )
    _quantize(node, scope, real, scale, scope.add_constant(f"{node.name}/to", after))
    return scope.done()


def _dequantize(
    node: Node, scope: Scope, inputs: tuple[str, ...], attrs: dict[str, int] | None = None
) -> str:
    kept = tuple(name for name in inputs if name)
    out = TensorType(scope.shape(inputs[0]), _FLOAT)
    return scope.emit("DequantizeLinear", kept, out, attrs, name=f"{node.name}/dequantize")


def _quantize(node: Node, scope: Scope, real: str, scale: str, zero: str) -> None:
    out = node.outputs[0]
    if not zero:
        zero = scope.add_constant(f"{node.name}/zero", np.array(0, scope.types[out].dtype))
    scope.emit("QuantizeLinear", (real, scale, zero), out, name=f"{node.name}/quantize")


def _contrib(node: Node, scope: Scope) -> Replacement | None:
    name, i, out = short_name(node.op), (*node.inputs, "", "", ""), node.outputs[0]
    real_out = TensorType(scope.shape(out), _FLOAT)
    if name in _BINARY:
        a, b = (_dequantize(node, scope, i[k : k + 3]) for k in (0, 3))
        real = scope.emit(_BINARY[name], (a, b), real_out, name=node.name)
        _quantize(node, scope, real, i[6], i[7])
    elif name in _UNARY:
        x = _dequantize(node, scope, i[:3])
        _quantize(node, scope, _unary(node, scope, _UNARY[name], x, real_out), i[3], i[4])
    elif name == "QLinearConcat":
        parts = [_dequantize(node, scope, i[k : k + 3]) for k in range(2, len(node.inputs), 3)]
        real = scope.emit("Concat", parts, real_out, {"axis": node.attrs["axis"]}, name=node.name)
        _quantize(node, scope, real, i[0], i[1])
    else:
        _gemm(node, scope, i, real_out)
    return scope.done()


def _unary(node: Node, scope: Scope, op: str, x: str, out: TensorType) -> str:
    attrs = {k: node.attrs[k] for k in _KEPT_ATTRS.get(op, ()) if k in node.attrs}
    if op == "LeakyRelu":
        attrs.setdefault("alpha", 0.01)
    if not node.attrs.get("channels_last", 0):
        if op == "Softmax" and scope.opset < 13 <= node.attrs.get("opset", scope.opset):
            rank = len(out.shape)
            if attrs.get("axis", -1) % rank != rank - 1:
                raise AssertionError("QLinearSoftmax over an inner axis in an old model")
            attrs["axis"] = rank - 1
        return scope.emit(op, (x,), out, attrs, name=node.name)
    rank = len(out.shape)
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)

    def permuted(shape: tuple[int, ...]) -> TensorType:
        return TensorType(tuple(shape[p] for p in first), _FLOAT)

    moved = scope.emit(
        "Transpose", (x,), permuted(scope.shape(x)), {"perm": first}, name=f"{node.name}/transpose"
    )
    pooled = scope.emit(op, (moved,), permuted(out.shape), attrs, name=node.name)
    return scope.emit("Transpose", (pooled,), out, {"perm": last}, name=f"{node.name}/transpose")


def _gemm(node: Node, scope: Scope, i: tuple[str, ...], out: TensorType) -> None:
    transposed = node.attrs.get("transB", 0)
    a = _dequantize(node, scope, i[:3])
    b = _dequantize(node, scope, i[3:6], {"axis": 0 if transposed else 1})
    inputs = [a, b]
    if i[6]:
        # the bias is int32 at the product of both scales
        scale = scope.constants[i[1]].reshape(-1) * scope.constants[i[4]].reshape(-1)
        alpha = np.float32(node.attrs.get("alpha", 1.0))
        real = scope.constants[i[6]].astype(np.float32) * scale.astype(np.float32) * alpha
        inputs.append(scope.add_constant(f"{node.name}/bias", real.astype(np.float32)))
    attrs = {k: node.attrs[k] for k in ("alpha", "transA", "transB") if k in node.attrs}
    if not i[7]:
        scope.emit("Gemm", inputs, node.outputs[0], attrs, name=node.name)
        return
    _quantize(node, scope, scope.emit("Gemm", inputs, out, attrs, name=node.name), i[7], i[8])


DECOMPOSITIONS = (
    Rule(
        "sign-change-as-conversion",
        "int.signed(x)",
        "QuantizeLinear(DequantizeLinear(x, 1, 128), 1, 0)",
        _sign_change,
        ("int.signed", "int.unsigned"),
    ),
    Rule(
        "contrib-as-standard",
        "com.microsoft.QLinearSoftmax(x) and its kin",
        "QuantizeLinear(Softmax(DequantizeLinear(x)))",
        _contrib,
        tuple(sorted(CONTRIB)),
    ),
)
