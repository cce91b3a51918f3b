"""Common subexpressions: equal things are computed, and stored, once."""

import hashlib
from collections import Counter

import numpy as np

from accelc.compiler.graph import Array, Graph, Node
from accelc.compiler.onnx_weights import release
from accelc.compiler.passes.constants import RANDOM
from accelc.compiler.rewrite import prune

#: Of each constant's beginning and end, to tell it from others.
_END_BYTES = 64


def _bytes(array: Array) -> Array:
    """As bytes: NumPy does not lend out element types that it does not know itself."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def share_constants(graph: Graph) -> tuple[Graph, int]:
    """Constants of equal type and value become one."""
    outputs = frozenset(graph.outputs)
    first: dict[object, str] = {}
    renamed: dict[str, str] = {}
    looks: dict[str, tuple[object, ...]] = {}
    for name, array in graph.constants.items():
        if array.dtype == object or name in outputs:
            continue
        quant = graph.types[name].quant
        ends = _bytes(array)[:_END_BYTES].tobytes(), _bytes(array)[-_END_BYTES:].tobytes()
        meaning = repr(quant) if quant is not None else ""
        looks[name] = (array.dtype.str, array.shape, ends, meaning)
    often = Counter(looks.values())
    for name, look in looks.items():
        if often[look] == 1:
            continue
        # only of what looks alike the whole is read: weights may be large and still in their file
        digest = hashlib.sha256(_bytes(graph.constants[name]).data).digest()
        release(graph.constants[name])
        found = first.setdefault((look, digest), name)
        if found != name:
            renamed[name] = found
    if not renamed:
        return graph, 0
    nodes = tuple(
        node.with_(inputs=tuple(renamed.get(n, n) for n in node.inputs))
        if any(n in renamed for n in node.inputs)
        else node
        for node in graph.nodes
    )
    return prune(graph.with_(nodes=nodes)), len(renamed)


def share_nodes(graph: Graph) -> tuple[Graph, int]:
    """Nodes of equal operator, inputs and attributes become one, in one walk."""
    outputs = frozenset(graph.outputs)
    renamed: dict[str, str] = {}
    seen: dict[object, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if any(n in renamed for n in node.inputs):
            node = node.with_(inputs=tuple(renamed.get(n, n) for n in node.inputs))
        key = _key(node)
        other = seen.get(key) if key is not None else None
        if other is None or any(o in outputs for o in node.outputs):
            nodes.append(node)
            if key is not None:
                seen.setdefault(key, node)
            continue
        renamed.update(zip(node.outputs, other.outputs, strict=True))
    shared = len(graph.nodes) - len(nodes)
    return (prune(graph.with_(nodes=tuple(nodes))), shared) if shared else (graph, 0)


def _key(node: Node) -> object | None:
    """What makes two nodes compute the same; ``None`` for nodes that never do."""
    if node.op.startswith(RANDOM) or "captured" in node.attrs or not node.inputs:
        return None
    attrs: list[object] = []
    for name, value in sorted(node.attrs.items()):
        if isinstance(value, np.ndarray):
            attrs.append((name, value.dtype.str, value.shape, value.tobytes()))
        elif hasattr(value, "SerializeToString"):
            return None
        else:
            attrs.append((name, value))
    present = tuple(bool(o) for o in node.outputs)
    return (node.op, node.inputs, tuple(attrs), present)
