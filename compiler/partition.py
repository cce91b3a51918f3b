"""Splits a graph into regions that run in one piece on the accelerator or on the CPU."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from accelc.compiler.graph import Graph, Node
from accelc.compiler.integer import AS_WEIGHTS


class Place(StrEnum):
    """Where a node runs."""

    ACCELERATOR = "accelerator"
    CPU = "cpu"


@dataclass(frozen=True)
class Placement:
    """One line of the placement report: which node runs where and, if on the CPU, why."""

    node: str
    op: str
    place: Place
    reason: str = ""
    #: Whether the CPU runs it through ``onnx.reference`` for want of a native kernel.
    reference: bool = False


@dataclass(frozen=True)
class Segment:
    """Nodes, by their index in the graph, that run together at ``place``."""

    place: Place
    nodes: tuple[int, ...]


def partition(graph: Graph, places: Sequence[Place]) -> tuple[Segment, ...]:
    """Group nodes into convex segments, in an order that respects every dependency.

    ``places`` gives the place of each node, in the graph's order. A node's stage is the number of
    changes of place on the worst path to it; nodes of one stage and place form a segment. A path
    that leaves a segment raises the stage for good, so no path can come back: segments are convex,
    and sorted by stage they can run one after the other. What the accelerator takes as weights
    comes from the host, so a value on its way there begins a segment, even if the
    accelerator computed it.
    """
    stage_of_value: dict[str, tuple[int, Place]] = {}
    members: dict[tuple[int, Place], list[int]] = {}
    for index, node in enumerate(graph.nodes):
        place = places[index]
        stage = 0
        from_host = AS_WEIGHTS.get(node.op) if place is Place.ACCELERATOR else None
        for position, name in enumerate(node.inputs):
            if name in stage_of_value:
                before, its_place = stage_of_value[name]
                moves = its_place is not place or position == from_host
                stage = max(stage, before + moves)
        for name in node.outputs:
            stage_of_value[name] = (stage, place)
        members.setdefault((stage, place), []).append(index)
    return tuple(Segment(place, tuple(members[stage, place])) for stage, place in sorted(members))


def subgraph(graph: Graph, nodes: Iterable[int], name: str) -> Graph:
    """The part of ``graph`` made of ``nodes``; see ``subgraphs``."""
    return subgraphs(graph, [nodes], [name])[0]


def subgraphs(graph: Graph, parts: Iterable[Iterable[int]], names: Iterable[str]) -> list[Graph]:
    """Parts of ``graph`` that have no node in common, by their nodes' indices.

    A part's inputs are the values that nodes outside produce, in order of first use; its outputs
    those that something outside reads, in order of production.
    """
    listed = [sorted(nodes) for nodes in parts]
    owner = {index: number for number, nodes in enumerate(listed) for index in nodes}
    # who reads a value: a part's number, -1 for several parts or what belongs to none
    reader: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        number = owner.get(index, -1)
        for value in node.inputs:
            if reader.setdefault(value, number) != number:
                reader[value] = -1
    reader.update((value, -1) for value in graph.outputs)
    return [
        _part(graph, number, nodes, name, reader)
        for number, (nodes, name) in enumerate(zip(listed, names, strict=True))
    ]


def _part(
    graph: Graph, number: int, indices: Sequence[int], name: str, reader: Mapping[str, int]
) -> Graph:
    part = tuple(graph.nodes[index] for index in indices)
    produced = {output: None for node in part for output in node.outputs if output}
    used = dict.fromkeys(name for node in part for name in node.inputs if name)
    inputs = tuple(v for v in used if v not in produced and v not in graph.constants)
    outputs = tuple(v for v in produced if reader.get(v, number) != number)
    values = {**used, **produced}
    return graph.with_(
        name=name,
        nodes=part,
        types={v: graph.types[v] for v in values if v in graph.types},
        constants={v: graph.constants[v] for v in values if v in graph.constants},
        inputs=inputs,
        outputs=outputs,
        notes=(),
        origins={},
        reasons={n.name: graph.reasons[n.name] for n in part if n.name in graph.reasons},
    )


def multiply_accumulates(graph: Graph, node: Node) -> int:
    """Useful multiply-accumulates of one node; 0 for what multiplies no matrices.

    Of ONNX's own operators the ones that networks spend their time in are counted.
    """
    shapes = [graph.types[name].shape if name else () for name in node.inputs]
    # an output without a name is one that nobody wants: none of those counted here
    outputs = graph.types[node.outputs[0]].shape if node.outputs[0] else ()
    if node.op == "int.conv":
        per_output = shapes[1][:-1] if node.attrs["depthwise"] else shapes[1][1:]
    elif node.op == "int.matmul":
        per_output = shapes[0][-1:]
    elif node.op in ("Conv", "ConvInteger"):
        per_output = shapes[1][1:]
    elif node.op == "QLinearConv":
        per_output = shapes[3][1:]
    elif node.op == "ConvTranspose":  # every input element meets every weight of its channel
        outputs, per_output = shapes[0], shapes[1][1:]
    elif node.op in ("MatMul", "MatMulInteger", "QLinearMatMul"):
        per_output = shapes[0][-1:]
    elif node.op == "Gemm":
        per_output = shapes[0][:1] if node.attrs.get("transA") else shapes[0][1:]
    else:
        return 0
    sizes = (*outputs, *per_output)
    return 0 if min(sizes, default=0) < 0 else math.prod(sizes)
