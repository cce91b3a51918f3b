"""Where each node runs, and why it is not the accelerator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from accelc.compiler.cpu import supports
from accelc.compiler.graph import Graph, Node
from accelc.compiler.passes.lower import VIEWS, starts_network
from accelc.isa.errors import ConfigError

Tier = Literal["accelerator", "native", "reference"]
TARGETS = ("vta", "cpu")


@dataclass(frozen=True)
class Placement:
    """``tier``: the accelerator, generated native code, or ``onnx.reference``; ``reason`` is empty
    on the accelerator, else why the node is not there."""

    tier: Tier
    reason: str = ""


def placements(graph: Graph, target: str = "vta") -> Mapping[str, Placement]:
    """Placement of every node, by name, of a graph the front end has finished.

    ``target`` is ``vta`` (integer operators on the accelerator) or ``cpu`` (all on the CPU).
    """
    if target not in TARGETS:
        raise ConfigError(f"target must be one of {', '.join(TARGETS)}, not {target!r}")
    consumers = graph.consumers()
    result: dict[str, Placement] = {}
    for node in graph.nodes:
        if target == "vta" and node.op.startswith("int."):
            result[node.name] = Placement("accelerator")
            continue
        reason = reason_for(node, graph, consumers) if target == "vta" else "the target is the CPU"
        result[node.name] = Placement("native" if supports(node, graph) else "reference", reason)
    return result


def reason_for(node: Node, graph: Graph, consumers: Mapping[str, list[Node]]) -> str:
    """Why ``node``, which is no integer operator, is not on the accelerator."""
    if node.name in graph.reasons:
        return graph.reasons[node.name]
    outputs = [graph.types[name] for name in node.outputs if name]
    source = graph.types[node.input(0)] if node.input(0) else None
    if "captured" in node.attrs:
        return "control flow"
    if any(-1 in found.shape for found in outputs):
        return "its shape depends on data"
    if node.op in ("QuantizeLinear", "DequantizeLinear"):
        return _conversion_reason(node, graph, consumers)
    if node.op in VIEWS:
        return "layout at the edge of the accelerator's region"
    if source is not None and source.dtype.kind == "f":
        return f"computes on {source.dtype}, not on quantized data"
    return f"{node.op} has no integer operator"


def _conversion_reason(node: Node, graph: Graph, consumers: Mapping[str, list[Node]]) -> str:
    producer = graph.producer().get(node.inputs[0])
    uses = consumers.get(node.outputs[0], [])
    if node.op == "QuantizeLinear":
        if producer is not None and producer.op == "DequantizeLinear":
            return "conversion between uint8 and int8 at the network's edge"
        return "quantization of an input" if starts_network(node, graph) else "quantizes floats"
    if any(use.op == "QuantizeLinear" for use in uses):
        return "conversion between uint8 and int8 at the network's edge"
    return "feeds a float operator" if uses else "dequantization of an output"
