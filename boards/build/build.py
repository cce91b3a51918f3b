"""Builds a board's bitstream: elaborate, synthesise, place and route, pack; cached by content."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.lib import wiring

from accelc.boards.board import Board
from accelc.boards.build.family import TOP, FamilyFlow, Target, Usage
from accelc.boards.build.flows import flow_for
from accelc.boards.build.job import (
    Job,
    Progress,
    StepError,
    find_tools,
    keep_logs,
    read_json,
    write_json,
)
from accelc.boards.build.netlist import Netlist
from accelc.boards.build.synthesis import (
    FLOW_VERSION,
    Synthesis,
    TooLargeError,
    synthesise,
    usage_of,
)
from accelc.boards.build.tools import FoundTool
from accelc.sim.cache import content_key


@dataclass(frozen=True, kw_only=True)
class Build:
    """A finished build: everything is in ``folder``, which is the cache's and stays as it is."""

    board: Board
    flow: FamilyFlow
    platform: Any
    seed: int
    folder: Path
    tools: tuple[FoundTool, ...]
    #: Counts of mapped cells by type.
    cells: dict[str, int]
    usage: tuple[Usage, ...]
    #: nextpnr's report.
    timing: dict[str, Any]
    #: Seconds each step took when it was run, by title.
    seconds: dict[str, float]

    @property
    def logs(self) -> tuple[Path, ...]:
        return tuple(sorted(self.folder.glob("*.log")))

    @property
    def bitstream(self) -> Path:
        return self.folder / self.flow.bitstream


def _place_and_route(job: Job, synthesis: Synthesis, target: Target) -> Path:
    flow, netlist = synthesis.flow, synthesis.netlist
    constraints = flow.constraints(netlist.constraints, target)
    place, pack = flow.place_and_route(target), flow.pack(target)

    def build(folder: Path) -> None:
        (folder / f"{TOP}{flow.constraints_suffix}").write_text(constraints, encoding="utf-8")
        shutil.copyfile(synthesis.folder / f"{TOP}.json", folder / f"{TOP}.json")
        shutil.copyfile(synthesis.folder / "yosys.log", folder / "yosys.log")
        try:
            job.run(place, folder)
        except StepError as error:
            raise _too_large(flow, netlist, error) or error from error
        job.run(pack, folder)
        (folder / f"{TOP}.json").unlink()  # large, and kept with the synthesis
        write_json(folder / "seconds.json", job.seconds)

    parts = [FLOW_VERSION, constraints, (synthesis.folder / f"{TOP}.json").read_bytes()]
    for step in (place, pack):
        parts += [job.tools[step.tool.name].version, "\0".join(step.arguments)]
    folder = job.cached("bitstreams", content_key(parts), build)
    job.seconds.update(read_json(folder / "seconds.json"))
    return folder


def _too_large(flow: FamilyFlow, netlist: Netlist, error: StepError) -> TooLargeError | None:
    """What nextpnr's failure was about, if it was room."""
    found = re.findall(r"^Info:\s+(\w+):\s+(\d+)/\s*(\d+)\s+\d+%", error.text, re.MULTILINE)
    utilization = {name: {"used": int(used), "available": int(n)} for name, used, n in found}
    try:
        used = flow.placed(utilization)
    except KeyError:
        return None
    usage = usage_of(flow, netlist.platform, used)
    return TooLargeError(netlist.platform.device, usage) if any(u.excess for u in usage) else None


def build(
    board: Board,
    top: wiring.Component,
    *,
    seed: int = 1,
    force: bool = False,
    progress: Progress = lambda _: None,
    failed: Path | None = None,
) -> Build:
    """Build the bitstream of ``top`` on ``board``; timing is measured, not judged.

    ``force`` builds even what is in the cache. ``failed`` is a folder that gets the logs of a step
    that fails.

    Raises:
        ToolError: a tool is missing or failed.
        TooLargeError: the design does not fit.
        ConfigError: the clock cannot be made.
    """
    tools = find_tools(flow_for(board.family).tools)
    job = Job(tools=tools, progress=progress, failed=failed, force=force)
    synthesis = synthesise(board, top, job)
    flow, platform = synthesis.flow, synthesis.netlist.platform
    usage = usage_of(flow, platform, synthesis.used)
    if any(item.excess for item in usage):
        keep_logs(synthesis.folder, failed)
        raise TooLargeError(platform.device, usage)
    target = Target(
        platform=platform,
        clock_mhz=board.clock_hz / 1e6,
        seed=seed,
        extra=tuple(board.options.get("nextpnr", ())),
    )
    folder = _place_and_route(job, synthesis, target)
    timing = read_json(folder / "timing.json")
    used = synthesis.used | flow.placed(timing["utilization"])
    return Build(
        board=board,
        flow=flow,
        platform=platform,
        seed=seed,
        folder=folder,
        tools=tuple(tools.values()),
        cells=synthesis.cells,
        usage=usage_of(flow, platform, used),
        timing=timing,
        seconds=job.seconds,
    )
