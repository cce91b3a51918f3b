"""Equalize channels across layers (Nagel et al., arXiv 1906.04721, section 4.1).

What lies between two linear layers may be scaled per channel, if the first layer's outputs are
divided by what the second one's inputs are multiplied by: positive factors pass through rectifiers
and pools. Channels of equal reach share one scale without loss.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.graph import Array, Graph
from accelc.compiler.quantize.layers import Kind, Layer
from accelc.compiler.quantize.parameters import along

#: What a positive factor per channel passes through.
_HOMOGENEOUS = frozenset(
    "Relu LeakyRelu MaxPool AveragePool GlobalAveragePool GlobalMaxPool".split()
)
#: The same, after which a channel is a run of elements.
_FLAT = frozenset(("Flatten", "Reshape", "Squeeze"))
#: Rounds after which scaling by weights, where each pair disturbs its neighbours, has settled.
_ROUNDS = 20
#: Largest factor either way: a channel that is nearly dead must not blow up its neighbour.
_LARGEST = 1e4


@dataclass(frozen=True)
class Pair:
    """Two linear layers in a row; ``value`` is what the second one reads.

    ``repeat`` is how many inputs of the second layer one channel of the first became.
    """

    first: Layer
    second: Layer
    value: str
    repeat: int


def find_pairs(graph: Graph, layers: Sequence[Layer]) -> tuple[Pair, ...]:
    """All pairs with nothing between them but what a positive factor passes through."""
    return tuple(
        pair
        for layer in layers
        if layer.kind is Kind.LINEAR and (pair := _pair(graph, layers, layer)) is not None
    )


def _pair(graph: Graph, layers: Sequence[Layer], first: Layer) -> Pair | None:
    consumers = graph.consumers()
    linear = {layer.root.name: layer for layer in layers if layer.kind is Kind.LINEAR}
    behind = {layer.bias for layer in layers if layer.bias}
    channels = graph.constants[first.weights].shape[first.axis]
    value, repeat = first.root.outputs[0], 1
    while True:
        readers = consumers.get(value, [])
        if len(readers) != 1 or value in graph.outputs:
            return None
        (node,) = readers
        second = linear.get(node.name)
        if second is not None:
            reads = node.inputs[0] == value and node.inputs.count(value) == 1
            return Pair(first, second, value, repeat) if reads else None
        out = node.outputs[0]
        shape, after = graph.types[value].shape, graph.types[out].shape
        if node.op == "Add" and behind & set(node.inputs) and node.name in first.nodes:
            value = out
        elif node.op in _HOMOGENEOUS and len(node.outputs) == 1:
            value = out
        elif node.op in _FLAT and shape[:1] == after[:1] and len(after) == 2:
            if len(shape) < 3 or shape[1] != channels:
                return None
            repeat *= int(np.prod(shape[2:]))
            value = out
        else:
            return None


def _input_reach(weights: Array, layer: Layer, inputs: int) -> NDArray[np.float64]:
    """Largest weight that meets each input channel, ``(inputs,)``."""
    if layer.root.op != "Conv":
        return np.abs(weights).max(axis=layer.axis).astype(np.float64)
    groups = layer.root.attrs.get("group", 1)
    parts = np.abs(weights).reshape(groups, weights.shape[0] // groups, weights.shape[1], -1)
    return parts.max(axis=(1, 3)).reshape(inputs).astype(np.float64)


def _scaled_inputs(weights: Array, layer: Layer, factor: NDArray[np.float64]) -> Array:
    if layer.root.op != "Conv":
        scaled = weights * along(factor, 1 - layer.axis, 2)
    else:
        groups = layer.root.attrs.get("group", 1)
        parts = weights.reshape(groups, weights.shape[0] // groups, weights.shape[1], -1)
        scaled = (parts * factor.reshape(groups, 1, -1, 1)).reshape(weights.shape)
    return scaled.astype(weights.dtype)


def equalize(
    graph: Graph, pairs: Sequence[Pair], reach: Mapping[str, NDArray[np.float64]] | None = None
) -> Graph:
    """``W1, b1 -> W2`` becomes ``W1 / s, b1 / s -> W2 * s`` for every pair; outputs stay.

    ``s = sqrt(r1 / r2)`` with ``r2`` the reach of the second layer's weights per input and ``r1``
    that of the first layer's weights per output, or, with ``reach``, of the value between them:
    that is what matters where weights have a scale per channel anyway.
    """
    constants = dict(graph.constants)
    used = Counter(value for node in graph.nodes for value in node.inputs)
    # zeros stay zeros, whoever shares them
    shared = {value for value in constants if used[value] > 1 and constants[value].any()}
    own = [pair for pair in pairs if not shared & {*_parameters(pair.first), pair.second.weights}]
    for _ in range(1 if reach is not None else _ROUNDS):
        for pair in own:
            _equalize(constants, pair, None if reach is None else reach[pair.value])
    types = dict(graph.types)
    for value, array in constants.items():
        types[value] = replace(types[value], shape=array.shape)
    return graph.with_(constants=constants, types=types)


def _parameters(layer: Layer) -> tuple[str, ...]:
    return (layer.weights, layer.bias) if layer.bias else (layer.weights,)


def _equalize(constants: dict[str, Array], pair: Pair, reach: NDArray[np.float64] | None) -> None:
    first, second = pair.first, pair.second
    w1, w2 = constants[first.weights], constants[second.weights]
    others = tuple(a for a in range(w1.ndim) if a != first.axis)
    channels = w1.shape[first.axis]
    r1 = np.abs(w1).max(axis=others).astype(np.float64)
    if reach is not None:
        r1 = reach.reshape(channels, pair.repeat).max(axis=1)
    r2 = _input_reach(w2, second, channels * pair.repeat)
    r2 = r2.reshape(channels, pair.repeat).max(axis=1)
    alive = (r1 > 0) & (r2 > 0)
    factor = np.ones(channels)
    factor[alive] = np.sqrt(r1[alive] / r2[alive])
    # only ratios matter; the geometric mean keeps magnitudes where they were
    if alive.any():
        factor[alive] /= np.exp(np.log(factor[alive]).mean())
        # what the second layer does not look at shall not widen the range
        level = (r1[alive] / factor[alive]).max()
        factor[r2 == 0] = np.maximum(1.0, r1[r2 == 0] / level)
    factor = np.clip(factor, 1 / _LARGEST, _LARGEST)
    constants[first.weights] = (w1 / along(factor, first.axis, w1.ndim)).astype(w1.dtype)
    if first.bias:
        bias = constants[first.bias]
        if bias.any():
            spread = factor.reshape(bias.shape) if bias.size == channels else factor
            constants[first.bias] = (bias / spread).astype(bias.dtype)
    constants[second.weights] = _scaled_inputs(w2, second, np.repeat(factor, pair.repeat))
