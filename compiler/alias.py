"""Concatenations that need no work: their inputs are computed in place, as slices of the output."""

from collections.abc import Mapping

import numpy as np

from accelc.compiler.graph import Graph, Node
from accelc.compiler.integer import Post
from accelc.isa.config import AccelConfig
from accelc.isa.semantics import round_shift


def slices(graph: Graph, config: AccelConfig) -> dict[str, tuple[str, int]]:
    """Values that can live within a concatenation: value to output and first channel there.

    A value qualifies if it comes unchanged, starts at a whole block of ``block_out`` channels, as
    all values beside it do, is computed by the region, joined only once, and no output itself.
    """
    produced = {name for node in graph.nodes for name in node.outputs}
    uses: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "int.concat":
            for name in node.inputs[:-3]:
                uses[name] = uses.get(name, 0) + 1
    result: dict[str, tuple[str, int]] = {}
    for node in graph.nodes:
        if node.op != "int.concat":
            continue
        offsets = _offsets(graph, node)
        if any(offset % config.block_out for offset in offsets.values()):
            continue
        for name, offset in offsets.items():
            channels = graph.types[name].shape[3]
            if (
                name in produced
                and uses[name] == 1
                and name not in graph.outputs
                and _unchanged(graph, node, offset, channels)
            ):
                result[name] = node.outputs[0], offset
    # a concatenation inside another one would be a slice of a slice: it keeps its own memory
    return {name: where for name, where in result.items() if where[0] not in result}


def _offsets(graph: Graph, node: Node) -> Mapping[str, int]:
    offsets: dict[str, int] = {}
    offset = 0
    for name in node.inputs[:-3]:
        offsets[name] = offset
        offset += graph.types[name].shape[3]
    return offsets


def _unchanged(graph: Graph, node: Node, offset: int, channels: int) -> bool:
    """Whether requantization gives every int8 value of these channels back."""
    post: Post = node.attrs["post"]
    params = np.stack(
        [graph.constants[name].reshape(-1)[offset : offset + channels] for name in node.inputs[-3:]]
    ).astype(np.int64)
    x = np.arange(-128, 128, dtype=np.int64)[:, None]
    bias, mult, shift = np.unique(params, axis=1)
    y = round_shift((x + bias) * mult, shift, post.zero if post.inside else 0) + post.zero
    return bool((np.clip(y, post.min, post.max) == x).all())
