"""Explains a network before and after compilation: placement, reasons, work, memory."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelc.artifact import Artifact
from accelc.compiler.graph import Graph
from accelc.compiler.partition import Place, Placement, multiply_accumulates
from accelc.compiler.pipeline import build_graph, place_nodes
from accelc.isa.config import AccelConfig
from accelc.isa.program import Program
from accelc.predict import predict_program


def _values(graph: Graph, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "dtype": str(graph.types[name].dtype),
            "shape": list(graph.types[name].shape),
        }
        for name in names
    ]


def _explain(
    graph: Graph, target: str, config: AccelConfig | None, placements: tuple[Placement, ...]
) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    for node, placement in zip(graph.nodes, placements, strict=True):
        constants = [graph.constants[n] for n in node.inputs if n in graph.constants]
        nodes.append(
            {
                "name": node.name,
                "op": node.op,
                "place": str(placement.place),
                "reason": placement.reason,
                "reference": placement.reference,
                "macs": multiply_accumulates(graph, node),
                "constant_bytes": sum(array.nbytes for array in constants),
            }
        )
    macs = sum(node["macs"] for node in nodes)
    on_it = sum(node["macs"] for node in nodes if node["place"] == Place.ACCELERATOR)
    return {
        "network": graph.name,
        "target": target,
        "config": None if config is None else config.name,
        "notes": list(graph.notes),
        "inputs": _values(graph, graph.inputs),
        "outputs": _values(graph, graph.outputs),
        "macs": macs,
        "accelerator_mac_share": on_it / macs if macs else 0.0,
        "constant_bytes": sum(array.nbytes for array in graph.constants.values()),
        "nodes": nodes,
    }


def explain_model(
    path: Path, config: AccelConfig | None, dims: Mapping[str, int]
) -> dict[str, Any]:
    """What compiling the model at ``path`` would do; ``config`` None means for the CPU."""
    target = "cpu" if config is None else "vta"
    graph = build_graph(path, config, dims)
    return _explain(graph, target, config, place_nodes(graph, target, config))


def explain_artifact(artifact: Artifact) -> dict[str, Any]:
    """What is in an artifact, its programs included."""
    model = artifact.model
    report = _explain(model.graph, model.target, model.config, model.placements)
    report["programs"] = [_explain_program(program) for program in artifact.programs]
    return report


def _explain_program(program: Program) -> dict[str, Any]:
    counters, layers = predict_program(program)
    macs = sum(layer.macs for layer in layers)
    peak = counters.cycles * program.config.macs_per_cycle
    return {
        "memory_bytes": program.memory_bytes,
        "constant_bytes": sum(len(data) for _, data in program.constants),
        "instructions": dict(Counter(i.opcode.name for i in program.instructions)),
        "predicted_cycles": counters.cycles,
        "predicted_utilisation": macs / peak if peak else 0.0,
        "layers": [dataclasses.asdict(layer) for layer in layers],
    }
