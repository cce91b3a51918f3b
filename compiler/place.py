"""Where each node runs, and why it is not the accelerator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from accelc.compiler.contrib import short_name
from accelc.compiler.graph import Graph, Node
from accelc.compiler.passes.lower import refusal
from accelc.compiler.rewrite import Scope
from accelc.isa.config import AccelConfig
from accelc.isa.errors import UnsupportedOpError

Tier = Literal["accelerator", "native", "reference"]
TARGETS = ("vta", "cpu")
_VIEWS = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")
_CHAIN = ("Relu", "Clip", "Add", "DequantizeLinear")


@dataclass(frozen=True)
class Placement:
    """``tier``: the accelerator, generated native code, or ``onnx.reference``; ``reason`` is empty
    on the accelerator, else why the node is not there."""

    tier: Tier
    reason: str = ""


def placements(graph: Graph, config: AccelConfig, target: str = "vta") -> Mapping[str, Placement]:
    """Placement of every node, by name, of a graph the front end has finished.

    ``target`` is ``vta`` (integer operators on the accelerator) or ``cpu`` (everything on the CPU).
    """
    if target not in TARGETS:
        raise UnsupportedOpError(f"no target {target!r}; there are {', '.join(TARGETS)}")
    reasons = _reasons(graph, config) if target == "vta" else {}
    native = _native_support()
    result: dict[str, Placement] = {}
    for node in graph.nodes:
        if target == "vta" and node.op.startswith("int."):
            result[node.name] = Placement("accelerator")
            continue
        reason = reasons.get(node.name, "the target is the CPU")
        tier: Tier = "native" if native(node, graph) else "reference"
        result[node.name] = Placement(tier, reason)
    return result


def _native_support() -> Callable[[Node, Graph], bool]:
    from accelc.compiler.cpu import supports

    return supports


def _reasons(graph: Graph, config: AccelConfig) -> dict[str, str]:
    scope = Scope(graph)
    consumers = graph.consumers()
    reasons: dict[str, str] = {}
    for node in graph.nodes:
        if not node.op.startswith("int."):
            reasons[node.name] = _own_reason(node, graph, consumers)
    for node in graph.nodes:
        if node.op == "QuantizeLinear" or short_name(node.op).startswith("QLinear"):
            found = refusal(node, graph, config, scope)
            if found is not None and not _at_edge(node, graph):
                for part in _pattern(node, scope):
                    reasons[part.name] = found
    return reasons


def _at_edge(node: Node, graph: Graph) -> bool:
    """Whether a QuantizeLinear quantizes an input of the model, through views at most."""
    producers = graph.producer()
    value = node.inputs[0]
    while (inner := producers.get(value)) is not None and inner.op in _VIEWS:
        value = inner.inputs[0]
    return value in graph.inputs


def _pattern(root: Node, scope: Scope) -> list[Node]:
    """The nodes of the quantized pattern that ends in ``root``, as far as they are its own."""
    parts = [root]
    if root.op != "QuantizeLinear":
        return parts
    pending = [root.inputs[0]]
    while pending:
        node = scope.producers.get(pending.pop())
        if (
            node is None
            or node in parts
            or node.op in ("QuantizeLinear",)
            or node.op.startswith("int.")
        ):
            continue
        parts.append(node)
        if node.op in _CHAIN[:3]:
            pending.extend(node.inputs)
        elif node.op != "DequantizeLinear":
            pending.extend(
                value
                for value in node.inputs
                if scope.producer(value, "DequantizeLinear") is not None
            )
    return parts


def _own_reason(node: Node, graph: Graph, consumers: Mapping[str, list[Node]]) -> str:
    source = graph.types[node.inputs[0]] if node.input(0) else None
    outputs = [graph.types[name] for name in node.outputs if name]
    if "captured" in node.attrs:
        return "control flow"
    if any(-1 in t.shape for t in outputs):
        return "its shape depends on data"
    if node.op == "QuantizeLinear":
        return "quantization of an input" if _at_edge(node, graph) else "quantizes a float result"
    if node.op == "DequantizeLinear":
        is_output = node.outputs[0] in graph.outputs or not consumers.get(node.outputs[0])
        return "dequantization of an output" if is_output else "feeds a float operator"
    if node.op in _VIEWS and source is not None:
        return "layout at the edge of the accelerator's region"
    if source is not None and source.dtype.kind == "f":
        quantized = any(t.dtype in (np.int8, np.uint8) for t in outputs)
        return "" if quantized else f"computes on {source.dtype}, not on quantized data"
    return f"{node.op} has no integer operator"
