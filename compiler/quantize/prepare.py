"""Simplify a float graph before it is quantized; shapes that are symbolic in the model may stay so.

What depends on the size of the batch is left as it is, so that the quantized model keeps a
symbolic batch where the float model has one.
"""

import numpy as np

from accelc.compiler.check import check
from accelc.compiler.graph import Array, Graph, Node
from accelc.compiler.passes.constants import SHAPES
from accelc.compiler.passes.table import BY_NAME, run_passes
from accelc.compiler.rewrite import Replacement, Rule, Scope, rewrite

#: Passes that hold for every size of the batch, but for the no-ops that are not ``_ANY_BATCH``.
_PASSES = (
    "remove-dead-code",
    "fold-constants",
    "eliminate-no-ops",
    "share-common",
    "fold-batch-norm",
    "fold-pads",
    "fold-scales",
    "share-common",
)
_ANY_BATCH = ("no-op-identity", "no-op-dropout", "no-op-cast", "keep-output-names")


def prepare(graph: Graph) -> Graph:
    """Fold what a quantized layer has no place for into its weights and bias.

    ``Conv -> BatchNormalization`` becomes ``Conv``, ``Conv -> Add(constant)`` a ``Conv`` with
    bias, ``MatMul -> Add(constant)`` of two axes a ``Gemm``; any other BatchNormalization becomes a
    depthwise ``Conv`` of one point.
    """
    off = [s.name for s in BY_NAME["eliminate-no-ops"].steps if s.name not in _ANY_BATCH]
    if not computes_shapes(graph):
        off += [rule.name for rule in SHAPES]
    graph = run_passes(graph, order=_PASSES, disable=off)
    return check(rewrite(graph, (_LONE_BATCH_NORM,)))


def computes_shapes(graph: Graph) -> bool:
    """Whether sizes are computed with, which fixes them; to restore an earlier shape is nothing."""
    shapes = {o for node in graph.nodes if node.op in ("Shape", "Size") for o in node.outputs}
    if shapes & {*graph.outputs}:
        return True
    return any(
        value in shapes and not (node.op == "Reshape" and place == 1)
        for node in graph.nodes
        for place, value in enumerate(node.inputs)
    )


def per_channel(constant: Array, rank: int, axis: int, channels: int) -> Array | None:
    """A constant that broadcasts along ``axis`` of ``rank`` only, as ``(channels,)``; else None."""
    if constant.ndim > rank:
        return None
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if any(size != 1 for a, size in enumerate(shape) if a != axis % rank):
        return None
    flat = constant.reshape(-1)
    if flat.size not in (1, channels):
        return None
    return np.broadcast_to(flat, (channels,)).copy()


def _lone_batch_norm(node: Node, scope: Scope) -> Replacement | None:
    """A batch normalization nothing absorbed, as depthwise convolution."""
    if node.attrs.get("training_mode", 0) or any(node.outputs[1:]):
        return None
    shape = scope.shape(node.inputs[0])
    params = [scope.constant(name) for name in node.inputs[1:5]]
    if len(shape) not in (3, 4) or any(p is None for p in params):
        return None
    dtype = scope.types[node.inputs[0]].dtype
    scale, beta, mean, variance = (np.asarray(p, np.float64) for p in params)
    gain = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
    weights = gain.reshape(-1, *(1,) * (len(shape) - 1)).astype(dtype)
    inputs = (
        node.inputs[0],
        scope.add_constant(f"{node.name}/weights", weights),
        scope.add_constant(f"{node.name}/bias", (beta - mean * gain).astype(dtype)),
    )
    attrs = {"group": int(shape[1]), "kernel_shape": (1,) * (len(shape) - 2)}
    scope.emit("Conv", inputs, node.outputs[0], attrs, name=node.name)
    return scope.done()


_LONE_BATCH_NORM = Rule(
    "lone-batch-norm",
    "BatchNormalization(x)",
    "Conv(x, one weight per channel)",
    _lone_batch_norm,
    ("BatchNormalization",),
    exact=False,
)
