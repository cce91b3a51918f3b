"""What a run cost, as one object for scripts; tables for people are made from it."""

import dataclasses
from typing import Any

from accelc.isa.spec import Unit
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
