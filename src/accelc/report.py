"""What a compilation or a run was, as one object for scripts; tables are made from it."""

import dataclasses
from typing import Any

from accelc.artifact import Artifact
from accelc.compiler.partition import Place
from accelc.compiler.pipeline import Step
from accelc.isa.spec import Unit
from accelc.predict import predict_program
from accelc.session import TIMED, Session
from accelc.sim.device import Counters


def memory_dict(session: Session) -> dict[str, Any] | None:
    """The memory model behind a timed device; None where time does not pass."""
    return dataclasses.asdict(session.memory) if session.device in TIMED else None


def _counters_dict(counters: Counters) -> dict[str, Any]:
    """The counters of a whole program by name; what is counted per unit by unit."""
    values = {
        field.name: getattr(counters, field.name)
        for field in dataclasses.fields(counters)
        if field.name not in ("started", "retired")
    }
    for name in ("busy", "wait"):
        units = (unit.name.lower() for unit in Unit)
        values[name] = dict(zip(units, values[name], strict=True))
    return values


def run_report(session: Session) -> dict[str, Any]:
    """The last run of ``session``: totals and one entry per accelerator layer."""
    config = session.artifact.config
    layers = [dataclasses.asdict(layer) for layer in session.layers]
    macs = sum(layer["macs"] for layer in layers)
    cycles = session.cycles
    peak = config.macs_per_cycle if config is not None else 0
    return {
        "network": session.graph.name,
        "device": session.device,
        "config": None if config is None else config.name,
        "memory": memory_dict(session),
        "cycles": cycles,
        "device_seconds": cycles / session.clock_hz if session.clock_hz else None,
        "macs": macs,
        "utilisation": macs / (cycles * peak) if cycles and peak else 0.0,
        "dram_bytes": sum(c.read_bytes + c.write_bytes for c in session.counters),
        "limit_cycles": sum(layer["limit_cycles"] for layer in layers),
        "counters": [_counters_dict(counters) for counters in session.counters],
        "layers": layers,
    }


def compile_report(artifact: Artifact) -> dict[str, Any]:
    """What each pass did, and each region of the result; right after the compilation."""
    model = artifact.model
    places = {place: sum(p.place is place for p in model.placements) for place in Place}
    return {
        "network": model.graph.name,
        "target": model.target,
        "config": None if model.config is None else model.config.name,
        "nodes": {str(place): count for place, count in places.items()},
        "macs": model.macs,
        "notes": list(model.graph.notes),
        "passes": [dataclasses.asdict(report) for report in model.passes],
        "regions": [_region_dict(step) for step in model.steps],
    }


def _region_dict(step: Step) -> dict[str, Any]:
    """One region; ``activation_bytes`` is what the memory plan takes, with the least that any
    plan could take beside it."""
    result: dict[str, Any] = {"place": str(step.place), "nodes": len(step.nodes)}
    if step.program is None:
        return result
    counters, layers = predict_program(step.program)
    macs = sum(layer.macs for layer in layers)
    peak = counters.cycles * step.program.config.macs_per_cycle
    result |= {
        "instructions": len(step.program.instructions),
        "memory_bytes": step.program.memory_bytes,
        "in_place": list(step.in_place),
        "predicted_cycles": counters.cycles,
        "predicted_utilisation": macs / peak if peak else 0.0,
    }
    if step.memory is not None:
        result |= {
            "activation_bytes": step.memory.peak_bytes,
            "activation_bytes_at_least": step.memory.lower_bound_bytes,
        }
    return result
