"""What came out of a build: one object, the content of ``report.json``."""

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

from accelc.boards.build.build import Build
from accelc.boards.build.path import clock_name, critical_paths

#: Of the report's format; raised when a key changes its meaning.
REPORT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ClockTiming:
    """A clock domain: how fast it has to be and how fast it may be."""

    name: str
    wanted_mhz: float
    achieved_mhz: float

    @property
    def met(self) -> bool:
        return self.achieved_mhz >= self.wanted_mhz


def clock_timings(build: Build) -> tuple[ClockTiming, ...]:
    """Every clock of the design, the slowest first; all are outputs of the board's PLL."""
    wanted = build.board.clock_hz / 1e6
    clocks = [
        ClockTiming(name=clock_name(net), wanted_mhz=wanted, achieved_mhz=fmax["achieved"])
        for net, fmax in build.timing["fmax"].items()
    ]
    return tuple(sorted(clocks, key=lambda clock: clock.achieved_mhz))


def report(build: Build) -> dict[str, Any]:
    """Everything a build is judged by, ready for JSON.

    ``gops`` counts multiplications and additions of the matrix array at the clock the board runs
    with; ``gops_at_fmax`` at the fastest clock this placement would bear.
    """
    board, config = build.board, build.board.config
    clocks = clock_timings(build)
    fmax = min(clock.achieved_mhz for clock in clocks)
    paths = critical_paths(build.timing)
    content = build.bitstream.read_bytes()

    def gops(mhz: float) -> float:
        return round(2 * config.macs_per_cycle * mhz / 1e3, 3)

    return {
        "report_version": REPORT_VERSION,
        "board": board.name,
        "family": board.family.value,
        "device": build.platform.device,
        "package": build.platform.package,
        "config": config.to_dict(),
        "config_digest": f"{config.digest:08x}",
        "clock_mhz": board.clock_hz / 1e6,
        "clocks": [
            dataclasses.asdict(clock)
            | {"achieved_mhz": round(clock.achieved_mhz, 2), "met": clock.met}
            for clock in clocks
        ],
        "fmax_mhz": round(fmax, 2),
        "timing_met": all(clock.met for clock in clocks),
        "macs_per_cycle": config.macs_per_cycle,
        "gops": gops(board.clock_hz / 1e6),
        "gops_at_fmax": gops(fmax),
        "resources": [
            {
                "resource": item.resource.value,
                "cell": item.cell,
                "used": item.used,
                "available": item.available,
            }
            for item in build.usage
        ],
        "cells": dict(sorted(build.cells.items())),
        "critical_paths": [
            dataclasses.asdict(path)
            | {"delay_ns": round(path.delay_ns, 3)}
            | {"hops": [dataclasses.asdict(hop) for hop in path.hops]}
            for path in paths
        ],
        "bitstream": {
            "file": board.name + build.bitstream.suffix,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        },
        "loader": board.loader,
        "seed": build.seed,
        "tools": {found.tool.name: found.version for found in build.tools},
        "seconds": build.seconds,
    }
