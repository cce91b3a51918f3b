"""From a board's top to mapped cells."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.lib import wiring

from accelc.boards.board import Board
from accelc.boards.build.family import TOP, FamilyFlow, Resource, Step, Usage
from accelc.boards.build.flows import flow_for
from accelc.boards.build.job import Job, read_json, write_json
from accelc.boards.build.netlist import Netlist, elaborate
from accelc.boards.build.tools import YOSYS
from accelc.hw.verilog import without_empty_contents
from accelc.isa.errors import DoesNotFitError
from accelc.sim.cache import content_key

#: Raised when a change of the flow changes what comes out for the same input.
FLOW_VERSION = "1"


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """A design as mapped cells; ``folder`` is the cache's and stays as it is."""

    flow: FamilyFlow
    netlist: Netlist
    folder: Path
    #: Counts of mapped cells by type.
    cells: dict[str, int]

    @property
    def used(self) -> dict[Resource, int]:
        return self.flow.synthesised(self.cells)


def synthesise(board: Board, top: wiring.Component, job: Job) -> Synthesis:
    """Elaborate and synthesise ``top`` for ``board``, whether or not it fits.

    Raises:
        ToolError: Yosys failed.
        ConfigError: the clock cannot be made.
    """
    flow = flow_for(board.family)
    with job.timed("elaborating"):
        netlist = elaborate(board, top, flow)
    script = synthesis_script(flow)
    rtlil = without_empty_contents(netlist.rtlil)

    def build(folder: Path) -> None:
        (folder / f"{TOP}.il").write_text(rtlil, encoding="utf-8")
        (folder / f"{TOP}.ys").write_text(script, encoding="utf-8")
        for path in flow.maps:
            shutil.copyfile(path, folder / path.name)
        step = Step(
            title="synthesising", tool=YOSYS, arguments=("-s", f"{TOP}.ys"), log="yosys.log"
        )
        job.run(step, folder)
        write_json(folder / "seconds.json", job.seconds)

    maps = [path.read_text(encoding="utf-8") for path in flow.maps]
    key = content_key([FLOW_VERSION, job.tools[YOSYS.name].version, script, *maps, rtlil])
    folder = job.cached("synthesis", key, build)
    job.seconds.update(read_json(folder / "seconds.json"))
    return Synthesis(flow=flow, netlist=netlist, folder=folder, cells=cell_counts(folder))


def synthesis_script(flow: FamilyFlow) -> str:
    """The whole of Yosys's script."""
    return "\n".join(
        (
            f"read_rtlil {TOP}.il",
            *flow.prepare(),
            *flow.synthesis(),
            # nets driven twice and the like; abc9 once made one
            "check -assert",
            f"tee -q -o cells.json stat -json -top {TOP}",
            # only what nextpnr reads: no names of files, no paths
            "setattr -unset src t:* w:* m:*",
            f"write_json {TOP}.json",
            "",
        )
    )


def cell_counts(folder: Path) -> dict[str, int]:
    """Mapped cells by type, from what `synthesis_script` leaves."""
    statistics = read_json(folder / "cells.json")
    design = statistics.get("design") or statistics["modules"][f"\\{TOP}"]
    counts = design["num_cells_by_type"]
    return {name: n for name, n in counts.items() if not name.startswith("$")}


class TooLargeError(DoesNotFitError):
    """A design needs more of something than the device has."""

    def __init__(self, device: str, usage: tuple[Usage, ...]) -> None:
        self.device = device
        self.usage = usage
        missing = ", ".join(
            f"{item.used} {item.resource.value}s of {item.available} ({item.excess} too many)"
            for item in usage
            if item.excess
        )
        super().__init__(f"the design does not fit into {device}: it needs {missing}")


def usage_of(flow: FamilyFlow, platform: Any, used: Mapping[Resource, int]) -> tuple[Usage, ...]:
    return tuple(
        Usage(resource=resource, cell=cell, used=used.get(resource, 0), available=available)
        for resource, (cell, available) in flow.available(platform).items()
    )
