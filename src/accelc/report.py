"""What a compilation or a run was, as one object for scripts; tables are made from it."""

import dataclasses
from typing import Any

from accelc.artifact import Artifact
from accelc.compiler.cpu import arena_plan
from accelc.compiler.dynamic import is_dynamic
from accelc.compiler.memory_plan import MemoryPlan
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


def compile_report(artifact: Artifact, *, arenas: bool = True) -> dict[str, Any]:
    """What each pass did, and each region of the result; right after the compilation.

    ``arenas``: also the memory of regions on the CPU, which are lowered for that.
    """
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
        "regions": [_region_dict(step, arenas) for step in model.steps],
    }


def _region_dict(step: Step, arenas: bool) -> dict[str, Any]:
    """One region; ``activation_bytes`` is what the memory plan takes, with the least that any
    plan could take beside it: of the accelerator's memory, or of the arena on the CPU, which is
    planned when all shapes are known."""
    result: dict[str, Any] = {"place": str(step.place), "nodes": len(step.nodes)}
    if step.program is None:
        planned = arenas and not is_dynamic(step.graph)
        return result | (_memory_dict(arena_plan(step.graph)) if planned else {})
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
    return result if step.memory is None else result | _memory_dict(step.memory)


def _memory_dict(plan: MemoryPlan) -> dict[str, int]:
    return {
        "activation_bytes": plan.peak_bytes,
        "activation_bytes_at_least": plan.lower_bound_bytes,
    }
