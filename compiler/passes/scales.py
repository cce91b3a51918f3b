"""Scales, offsets and batch normalization into the weights of the linear operator beside them."""

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.graph import Array, Node
from accelc.compiler.passes.algebra import constant_operand
from accelc.compiler.rewrite import Replacement, Rule, Scope

_CONVS = ("Conv", "ConvTranspose")


def _weights(node: Node, scope: Scope) -> tuple[Array, Array | None] | None:
    """Constant weights and bias of a linear node in float64; ``None`` if they are no constants."""
    weights = scope.constant(node.inputs[1])
    bias = scope.constant(node.input(2)) if node.input(2) else None
    if weights is None or weights.dtype.kind != "f" or (node.input(2) and bias is None):
        return None
    wide = None if bias is None else bias.astype(np.float64)
    return weights.astype(np.float64), wide


def _channels(node: Node, scope: Scope) -> int:
    return scope.shape(node.outputs[0])[1]


def per_channel(array: Array, rank: int, axis: int, channels: int) -> NDArray[np.float64] | None:
    """A constant that is broadcast along all axes but ``axis``, as ``(channels,)``."""
    if array.ndim > rank or array.dtype.kind != "f":
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(size != 1 for k, size in enumerate(shape) if k != axis):
        return None
    if shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(array.reshape(-1).astype(np.float64), (channels,))


def _scaled(node: Node, weights: Array, gain: Array) -> Array:
    """Weights of a convolution whose output channels are multiplied by ``gain`` ``(channels,)``."""
    spatial = weights.shape[2:]
    if node.op == "Conv":
        return weights * gain.reshape(-1, *(1 for _ in weights.shape[1:]))
    # (c, o / group, ...): output channels of group g are the second axis of its rows
    groups = node.attrs.get("group", 1)
    parts = weights.reshape(groups, weights.shape[0] // groups, weights.shape[1], *spatial)
    scaled = parts * gain.reshape(groups, 1, weights.shape[1], *(1 for _ in spatial))
    return scaled.reshape(weights.shape)


def _emit(
    scope: Scope, linear: Node, source: str, weights: Array, bias: Array | None, out: str
) -> Replacement | None:
    """``linear`` with other weights; ``None`` if they overflow its element type."""
    dtype = scope.types[linear.inputs[1]].dtype
    inputs = [source]
    for array, part in ((weights, "weights"), (bias, "bias")):
        if array is None:
            continue
        with np.errstate(all="ignore"):
            made = array.astype(dtype)
        if not np.isfinite(made).all():
            return None
        inputs.append(scope.add_constant(f"{linear.name}/{part}", made))
    scope.emit(linear.op, inputs, out, linear.attrs, name=linear.name)
    return scope.done()


def _batch_norm(node: Node, scope: Scope) -> Replacement | None:
    """``g = scale / sqrt(variance + epsilon)`` per output channel; computed in float64."""
    if node.attrs.get("training_mode", 0) or any(node.outputs[1:]):
        return None
    conv = scope.producer(node.inputs[0], *_CONVS)
    if conv is None or not scope.sole_use(node.inputs[0]):
        return None
    found = _weights(conv, scope)
    params = [scope.constant(name) for name in node.inputs[1:5]]
    if found is None or any(p is None for p in params):
        return None
    scale, beta, mean, variance = (np.asarray(p, np.float64) for p in params)
    gain = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
    weights, bias = found
    shifted = ((0 if bias is None else bias) - mean) * gain + beta
    scaled = _scaled(conv, weights, gain)
    return _emit(scope, conv, conv.inputs[0], scaled, shifted, node.outputs[0])


def _after(node: Node, scope: Scope) -> Replacement | None:
    """Mul or Add of a constant per channel behind a convolution or a product with a matrix."""
    found = constant_operand(node, scope)
    if found is None or not scope.sole_use(found[0]):
        return None
    linear = scope.producer(found[0], *_CONVS, "MatMul", "Gemm")
    out, value = node.outputs[0], found[0]
    if linear is None or scope.shape(value) != scope.shape(out) or -1 in scope.shape(out):
        return None
    parts = _weights(linear, scope)
    if parts is None or (linear.op == "Gemm" and not _plain(linear)):
        return None
    rank = len(scope.shape(out))
    axis = 1 if linear.op in _CONVS else rank - 1
    constant = per_channel(found[1], rank, axis, scope.shape(out)[axis])
    if constant is None:
        return None
    weights, bias = parts
    if node.op == "Add":
        if linear.op == "MatMul":
            return _as_gemm(linear, scope, weights, constant, out)
        total = constant if bias is None else bias + constant
        return _emit(scope, linear, linear.inputs[0], weights, total, out)
    scaled_bias = None if bias is None else bias * constant
    if linear.op in _CONVS:
        weights = _scaled(linear, weights, constant)
    elif weights.ndim < 2:
        return None
    else:
        turned = linear.op == "Gemm" and linear.attrs.get("transB", 0)
        weights = weights * (constant[:, None] if turned else constant)
    return _emit(scope, linear, linear.inputs[0], weights, scaled_bias, out)


def _plain(gemm: Node) -> bool:
    return gemm.attrs.get("alpha", 1.0) == 1.0 and gemm.attrs.get("beta", 1.0) == 1.0


def _as_gemm(
    product: Node, scope: Scope, weights: Array, bias: Array, out: str
) -> Replacement | None:
    """A product of two matrices gets the bias that only Gemm has a place for."""
    if len(scope.shape(product.inputs[0])) != 2 or weights.ndim != 2:
        return None
    dtype = scope.types[product.inputs[1]].dtype
    made = scope.add_constant(f"{product.name}/bias", bias.astype(dtype))
    scope.emit("Gemm", (*product.inputs, made), out, name=product.name)
    return scope.done()


def _before(node: Node, scope: Scope) -> Replacement | None:
    """Mul or, without pads, Add of a constant per input channel in front of a convolution."""
    inner = scope.producer(node.inputs[0], "Mul", "Add")
    if inner is None or not scope.sole_use(node.inputs[0]):
        return None
    found, parts = constant_operand(inner, scope), _weights(node, scope)
    if found is None or parts is None or scope.shape(found[0]) != scope.shape(node.inputs[0]):
        return None
    shape = scope.shape(found[0])
    if -1 in shape:
        return None
    constant = per_channel(found[1], len(shape), 1, shape[1])
    if constant is None:
        return None
    weights, bias = parts
    # (o, c / groups, ...): which input channels an output's weights meet depends on its group
    groups = node.attrs.get("group", 1)
    met = constant.reshape(groups, 1, weights.shape[1]).repeat(weights.shape[0] // groups, axis=1)
    spread = met.reshape(weights.shape[0], weights.shape[1], *(1 for _ in weights.shape[2:]))
    if inner.op == "Mul":  # what is padded is 0, scaled or not
        return _emit(scope, node, found[0], weights * spread, bias, node.outputs[0])
    if any(node.attrs.get("pads", ())) or node.attrs.get("auto_pad", "NOTSET") not in (
        "NOTSET",
        "",
        "VALID",
    ):
        return None
    moved = (weights * spread).sum(axis=tuple(range(1, weights.ndim)))
    return _emit(
        scope, node, found[0], weights, moved if bias is None else bias + moved, node.outputs[0]
    )


BATCH_NORM = (
    Rule(
        "batch-norm-into-conv",
        "BatchNormalization(Conv(x, w, b)); likewise ConvTranspose",
        "Conv(x, w * g, (b - mean) * g + beta)",
        _batch_norm,
        ("BatchNormalization",),
        exact=False,
    ),
)
SCALES = (
    Rule(
        "scale-into-weights",
        "Conv(x, w, b) * c, Conv(x, w, b) + d; likewise ConvTranspose, MatMul, Gemm",
        "Conv(x, w * c, b * c), Conv(x, w, b + d)",
        _after,
        ("Mul", "Add"),
        exact=False,
    ),
    Rule(
        "scale-before-conv",
        "Conv(x * c, w, b), Conv(x + d, w, b) without pads",
        "Conv(x, w * c, b), Conv(x, w, b + sum(w * d))",
        _before,
        ("Conv",),
        exact=False,
    ),
)
