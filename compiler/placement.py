"""Decides where each node runs, and says why when that is not the accelerator."""

from accelc.compiler.accelerator import LOWERINGS
from accelc.compiler.cpu import supports
from accelc.compiler.graph import Graph, Node
from accelc.compiler.integer import Post
from accelc.compiler.partition import Place, Placement
from accelc.isa.config import AccelConfig

#: Reasons for operators that are what they are on purpose.
_BY_OPERATOR = {
    "QuantizeLinear": "float to integer at the network's edge",
    "DequantizeLinear": "integer to float at the network's edge",
    "int.signed": "uint8 to int8 at the network's edge",
    "int.unsigned": "int8 to uint8 at the network's edge",
    "Transpose": "changes the layout at the network's edge",
    "Reshape": "changes the shape at the network's edge",
    "Flatten": "changes the shape at the network's edge",
    "Squeeze": "changes the shape at the network's edge",
    "Unsqueeze": "changes the shape at the network's edge",
}


def _missing_unit(node: Node, config: AccelConfig) -> str | None:
    post = node.attrs.get("post", Post())
    if (post.table or node.op == "int.lookup") and not config.lut:
        return f"configuration {config.name} has no look-up table"
    if post.add is not None and not config.add:
        return f"configuration {config.name} has no add stage"
    return None


def _wide_multipliers(graph: Graph, node: Node, config: AccelConfig) -> str | None:
    first = {"int.conv": 2, "int.scale": 1, "int.concat": len(node.inputs) - 3}.get(node.op)
    if first is None:
        return None
    mult = graph.constants[node.inputs[first + 1]]
    if mult.size and int(mult.max()) >= 1 << config.mult_bits:
        return f"its multipliers exceed the {config.mult_bits} bits of configuration {config.name}"
    return None


def refusal(graph: Graph, node: Node, config: AccelConfig) -> str | None:
    """Why ``node`` cannot run on an accelerator of ``config``; None if it can."""
    if node.op in _BY_OPERATOR:
        return _BY_OPERATOR[node.op]
    if not node.op.startswith("int."):
        return f"{node.op} has no integer form: not quantized, or not linear"
    if node.op not in LOWERINGS:
        return f"the accelerator has no {node.op}"
    return _missing_unit(node, config) or _wide_multipliers(graph, node, config)


def place_nodes(graph: Graph, target: str, config: AccelConfig | None) -> tuple[Placement, ...]:
    """Decide for every node where it runs; with ``config`` None that is the CPU."""

    def place(node: Node) -> Placement:
        reason = f"target is {target}" if config is None else refusal(graph, node, config)
        if reason is None:
            return Placement(node.name, node.op, Place.ACCELERATOR)
        rare = not supports(node, graph)
        return Placement(node.name, node.op, Place.CPU, reason, rare)

    return tuple(place(node) for node in graph.nodes)
