"""Where each node runs, and why it is not the accelerator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from accelc.compiler.cpu import supports
from accelc.compiler.dynamic import representative
from accelc.compiler.graph import Graph, Node
from accelc.compiler.passes.lower import VIEWS, quantized_inputs
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
    graph = representative(graph)
    surroundings = Surroundings.of(graph)
    result: dict[str, Placement] = {}
    for node in graph.nodes:
        if target == "vta" and node.op.startswith("int."):
            result[node.name] = Placement("accelerator")
            continue
        reason = reason_for(node, surroundings) if target == "vta" else "the target is the CPU"
        native = supports(node, _alone(node, graph))
        result[node.name] = Placement("native" if native else "reference", reason)
    return result


def _alone(node: Node, graph: Graph) -> Graph:
    """The graph of ``node`` alone: what is asked about one node must not cost a look at all."""
    names = [name for name in (*node.inputs, *node.outputs) if name]
    return graph.with_(
        nodes=(node,),
        types={name: graph.types[name] for name in names if name in graph.types},
        constants={name: graph.constants[name] for name in names if name in graph.constants},
    )


@dataclass(frozen=True)
class Surroundings:
    """A graph, who computes and who reads its values, and which of them quantize its inputs."""

    graph: Graph
    producer: Mapping[str, Node]
    consumers: Mapping[str, list[Node]]
    quantized_inputs: frozenset[str]

    @classmethod
    def of(cls, graph: Graph) -> "Surroundings":
        return cls(graph, graph.producer(), graph.consumers(), quantized_inputs(graph))


def reason_for(node: Node, around: Surroundings) -> str:
    """Why ``node``, which is no integer operator, is not on the accelerator."""
    graph = around.graph
    if node.name in graph.reasons:
        return graph.reasons[node.name]
    outputs = [graph.types[name] for name in node.outputs if name]
    source = graph.types[node.input(0)] if node.input(0) else None
    if "captured" in node.attrs:
        return "control flow"
    if any(-1 in found.shape for found in outputs):
        return "its shape depends on data"
    if node.op in ("QuantizeLinear", "DequantizeLinear"):
        return _conversion_reason(node, around)
    if node.op in VIEWS:
        return "layout at the edge of the accelerator's region"
    if source is not None and source.dtype.kind == "f":
        return f"computes on {source.dtype}, not on quantized data"
    return f"{node.op} has no integer operator"


def _conversion_reason(node: Node, around: Surroundings) -> str:
    producer = around.producer.get(node.inputs[0])
    uses = around.consumers.get(node.outputs[0], [])
    if node.op == "QuantizeLinear":
        if producer is not None and producer.op == "DequantizeLinear":
            return "conversion between uint8 and int8 at the network's edge"
        early = node.outputs[0] in around.quantized_inputs
        return "quantization of an input" if early else "quantizes floats"
    if any(use.op == "QuantizeLinear" for use in uses):
        return "conversion between uint8 and int8 at the network's edge"
    return "feeds a float operator" if uses else "dequantization of an output"
