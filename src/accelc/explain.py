"""Explains a network before and after compilation: placement, reasons, work, cycles, remedies."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelc.artifact import Artifact
from accelc.compiler.graph import Graph
from accelc.compiler.partition import Place, Placement, multiply_accumulates
from accelc.compiler.pipeline import CompiledModel, build_graph, compile_model, place_nodes
from accelc.isa.config import AccelConfig
from accelc.isa.errors import DoesNotFitError
from accelc.isa.program import Program
from accelc.predict import predict_program
from accelc.remedies import remedies

TIERS = ("accelerator", "native", "reference")


def _values(graph: Graph, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "dtype": str(graph.types[name].dtype),
            "shape": list(graph.types[name].shape),
        }
        for name in names
        if name
    ]


def tier(placement: Placement) -> str:
    """``accelerator``, ``native`` (generated CPU code) or ``reference`` (``onnx.reference``)."""
    if placement.place is Place.ACCELERATOR:
        return "accelerator"
    return "reference" if placement.reference else "native"


def _nbytes(graph: Graph, name: str) -> int:
    """Bytes of a value; 0 for what is no tensor or whose size is not known."""
    found = graph.types[name]
    if found.dtype == object or -1 in found.shape:
        return 0
    size = found.dtype.itemsize
    for extent in found.shape:
        size *= extent
    return size


def _explain(
    graph: Graph,
    target: str,
    config: AccelConfig | None,
    placements: tuple[Placement, ...],
    programs: tuple[Program, ...],
    name: str,
) -> dict[str, Any]:
    """The report of the model called ``name``; cycles are predicted from ``programs``."""
    predicted = [predict_program(program) for program in programs]
    costs: Counter[str] = Counter()  # a node that takes several layers gets their sum
    for _, layers in predicted:
        for layer in layers:
            costs[layer.name] += layer.cycles
    nodes: list[dict[str, Any]] = []
    for node, placement in zip(graph.nodes, placements, strict=True):
        names = [n for n in (*node.inputs, *node.outputs) if n]
        constants = [n for n in node.inputs if n in graph.constants]
        macs = multiply_accumulates(graph, node)
        cycles = costs.get(node.name)
        peak = config.macs_per_cycle * cycles if config is not None and cycles else 0
        nodes.append(
            {
                "name": node.name,
                "op": node.op,
                "tier": tier(placement),
                "reason": placement.reason,
                "macs": macs,
                "bytes": sum(_nbytes(graph, n) for n in dict.fromkeys(names)),
                "constant_bytes": sum(graph.constants[n].nbytes for n in constants),
                "cycles": cycles,
                "utilisation": macs / peak if peak else None,
                "inputs": [n for n in node.inputs if n and n not in graph.constants],
                "outputs": _values(graph, node.outputs),
            }
        )
    macs = sum(node["macs"] for node in nodes)
    tiers = {name: [node for node in nodes if node["tier"] == name] for name in TIERS}
    report: dict[str, Any] = {
        "model": name,
        "network": graph.name,
        "target": target,
        "config": None if config is None else config.name,
        "notes": list(graph.notes),
        "inputs": _values(graph, graph.inputs),
        "outputs": _values(graph, graph.outputs),
        "macs": macs,
        "accelerator_mac_share": sum(n["macs"] for n in tiers["accelerator"]) / macs
        if macs
        else 0.0,
        "constant_bytes": sum(array.nbytes for array in graph.constants.values()),
        "cycles": sum(c.cycles for c, _ in predicted) if programs else None,
        "tiers": {
            name: {
                "nodes": len(found),
                "macs": sum(node["macs"] for node in found),
                "cycles": sum(node["cycles"] or 0 for node in found),
            }
            for name, found in tiers.items()
        },
        "nodes": nodes,
    }
    report["remedies"] = [dataclasses.asdict(r) for r in remedies(graph, config, report)]
    return report


def explain_model(
    path: Path, config: AccelConfig | None, dims: Mapping[str, int]
) -> dict[str, Any]:
    """What compiling the model at ``path`` would give; ``config`` None means for the CPU.

    Cycles are predicted from the very programs that compiling makes.
    """
    target = "cpu" if config is None else "vta"
    try:
        model = compile_model(path, target, config, dims=dims, proven=False)
    except DoesNotFitError as error:
        graph = build_graph(path, config, dims)
        graph = graph.with_(notes=(*graph.notes, f"it cannot be compiled: {error}"))
        placed = place_nodes(graph, target, config)
        return _explain(graph, target, config, placed, (), path.name)
    return _explain_compiled(model, path.name)


def _explain_compiled(model: CompiledModel, name: str) -> dict[str, Any]:
    programs = tuple(step.program for step in model.steps if step.program is not None)
    return _explain(model.graph, model.target, model.config, model.placements, programs, name)


def explain_artifact(artifact: Artifact, name: str) -> dict[str, Any]:
    """What is in an artifact, its programs included; ``name`` is its file's."""
    report = _explain_compiled(artifact.model, name)
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
