"""Fold batch normalization into the float convolution before it."""

import numpy as np

from accelc.compiler.graph import Node
from accelc.compiler.rewrite import Replacement, Rule, Scope


def _fold(node: Node, scope: Scope) -> Replacement | None:
    """``g = scale / sqrt(variance + epsilon)`` per output channel; computed in float64."""
    if node.attrs.get("training_mode", 0) or any(node.outputs[1:]):
        return None
    conv = scope.producer(node.inputs[0], "Conv", "ConvTranspose")
    if conv is None or not scope.sole_use(node.inputs[0]):
        return None
    weights = scope.constant(conv.inputs[1])
    given = bool(conv.input(2))
    bias = scope.constant(conv.inputs[2]) if given else None
    params = [scope.constant(name) for name in node.inputs[1:5]]
    if weights is None or (given and bias is None) or any(p is None for p in params):
        return None
    scale, beta, mean, variance = (np.asarray(p, np.float64) for p in params)
    gain = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
    if conv.op == "Conv":
        shape = (-1,) + (1,) * (weights.ndim - 1)
        scaled = weights * gain.reshape(shape)
    else:
        # (c, o / group, ...): output channels of group g are the second axis of its rows
        groups = conv.attrs.get("group", 1)
        spatial = weights.shape[2:]
        parts = weights.reshape(groups, weights.shape[0] // groups, weights.shape[1], *spatial)
        scaled = parts * gain.reshape(groups, 1, weights.shape[1], *(1 for _ in spatial))
        scaled = scaled.reshape(weights.shape)
    shifted = ((0 if bias is None else bias) - mean) * gain + beta
    inputs = (
        conv.inputs[0],
        scope.add_constant(f"{conv.name}/weights", scaled.astype(weights.dtype)),
        scope.add_constant(f"{conv.name}/bias", shifted.astype(weights.dtype)),
    )
    scope.emit(conv.op, inputs, node.outputs[0], conv.attrs, name=conv.name)
    return scope.done()


BATCH_NORM = (
    Rule(
        "batch-norm-into-conv",
        "BatchNormalization(Conv(x, w, b)); likewise ConvTranspose",
        "Conv(x, w * g, (b - mean) * g + beta)",
        _fold,
        ("BatchNormalization",),
        exact=False,
    ),
)
