"""Common subexpressions: equal things are computed, and stored, once."""

import hashlib

import numpy as np

from accelc.compiler.graph import Graph, Node
from accelc.compiler.passes.constants import RANDOM
from accelc.compiler.rewrite import prune


def share_constants(graph: Graph) -> tuple[Graph, int]:
    """Constants of equal type and value become one."""
    outputs = frozenset(graph.outputs)
    first: dict[object, str] = {}
    renamed: dict[str, str] = {}
    for name, array in graph.constants.items():
        if array.dtype == object or name in outputs:
            continue
        # as bytes: NumPy does not lend out element types that it does not know itself
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        digest = hashlib.sha256(data.data).digest()
        quant = graph.types[name].quant
        key = (array.dtype.str, array.shape, digest, repr(quant) if quant is not None else "")
        found = first.setdefault(key, name)
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
