"""Builds a board's bitstream: elaborate, synthesise, place and route, pack; cached by content."""

import json
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amaranth.lib import wiring

from accelc.boards.board import Board
from accelc.boards.build.family import TOP, FamilyFlow, Resource, Step, Target, Usage
from accelc.boards.build.flows import flow_for
from accelc.boards.build.netlist import Netlist, elaborate
from accelc.boards.build.tools import YOSYS, FoundTool, find_tool
from accelc.hw.verilog import without_empty_contents
from accelc.isa.errors import DoesNotFitError, ToolError
from accelc.sim.cache import cache_root, cached_folder, content_key

#: Raised when a change of the flow changes what comes out for the same input.
FLOW_VERSION = "1"
#: Tells whoever waits what is being done.
Progress = Callable[[str], None]


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


@dataclass(kw_only=True)
class _Job:
    """What the steps share."""

    flow: FamilyFlow
    tools: dict[str, FoundTool]
    progress: Progress
    #: Where logs of a failed step are kept, or None.
    failed: Path | None
    #: Build even what is in the cache.
    force: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    def cached(self, kind: str, key: str, make: Callable[[Path], None]) -> Path:
        """`cached_folder`, made anew where that is asked for."""
        if self.force:
            shutil.rmtree(cache_root() / kind / key, ignore_errors=True)
        return cached_folder(kind, key, make)

    def run(self, step: Step, folder: Path) -> None:
        """Run one step; on failure its logs are saved before the folder goes.

        Raises:
            ToolError: the tool failed, with its own last error.
        """
        found = self.tools[step.tool.name]
        self.progress(step.title)
        started = time.monotonic()
        code = found.run(step.arguments, folder, step.log, self._tell(step.title))
        self.seconds[step.title] = round(time.monotonic() - started, 2)
        if code != 0:
            text = (folder / step.log).read_text(encoding="utf-8")
            keep_logs(folder, self.failed)
            where = f"; see {self.failed / step.log}" if self.failed else ""
            raise StepError(step, f"{found.command} failed: {last_error(text)}{where}", text)

    def _tell(self, title: str) -> Callable[[str], None]:
        """Tell of the headlines among a tool's lines."""

        def line(text: str) -> None:
            headline = re.match(r"(?:\d+\.\d+\. Executing (.*?)\.?$|Info: (\S.*\.\.)$)", text)
            if headline:
                self.progress(f"{title}: {(headline[1] or headline[2]).rstrip('.')}")

        return line


class StepError(ToolError):
    """A step's tool failed; ``text`` is what it printed."""

    def __init__(self, step: Step, message: str, text: str) -> None:
        super().__init__(message)
        self.step = step
        self.text = text


def last_error(text: str) -> str:
    """The last line of a log that speaks of an error, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|Error)\b", line)]
    return (errors or lines or ["it printed nothing"])[-1].removeprefix("ERROR: ")


def keep_logs(folder: Path, destination: Path | None) -> None:
    """Copy the logs of a failed build to where the user finds them."""
    if destination is not None:
        destination.mkdir(parents=True, exist_ok=True)
        for log in folder.glob("*.log"):
            shutil.copyfile(log, destination / log.name)


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


def _synthesise(job: _Job, netlist: Netlist) -> Path:
    script = synthesis_script(job.flow)
    yosys = job.tools[YOSYS.name]
    rtlil = without_empty_contents(netlist.rtlil)

    def build(folder: Path) -> None:
        (folder / f"{TOP}.il").write_text(rtlil, encoding="utf-8")
        (folder / f"{TOP}.ys").write_text(script, encoding="utf-8")
        step = Step(
            title="synthesising", tool=YOSYS, arguments=("-s", f"{TOP}.ys"), log="yosys.log"
        )
        job.run(step, folder)
        _write_json(folder / "seconds.json", job.seconds)

    key = content_key([FLOW_VERSION, yosys.version, script, rtlil])
    folder = job.cached("synthesis", key, build)
    job.seconds.update(_read_json(folder / "seconds.json"))
    return folder


def cell_counts(folder: Path) -> dict[str, int]:
    """Mapped cells by type, from what `synthesis_script` leaves."""
    statistics = _read_json(folder / "cells.json")
    design = statistics.get("design") or statistics["modules"][f"\\{TOP}"]
    counts = design["num_cells_by_type"]
    return {name: n for name, n in counts.items() if not name.startswith("$")}


def _check_fit(flow: FamilyFlow, netlist: Netlist, used: dict[Resource, int]) -> None:
    """Raises:
    TooLargeError: more is needed than the device has.
    """
    usage = _usage(flow, netlist.platform, used)
    if any(item.excess for item in usage):
        raise TooLargeError(netlist.platform.device, usage)


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


def _usage(flow: FamilyFlow, platform: Any, used: dict[Resource, int]) -> tuple[Usage, ...]:
    return tuple(
        Usage(resource=resource, cell=cell, used=used.get(resource, 0), available=available)
        for resource, (cell, available) in flow.available(platform).items()
    )


def _place_and_route(job: _Job, netlist: Netlist, synthesis: Path, target: Target) -> Path:
    constraints = job.flow.constraints(netlist.constraints, target)
    place, pack = job.flow.place_and_route(target), job.flow.pack(target)

    def build(folder: Path) -> None:
        (folder / f"{TOP}{job.flow.constraints_suffix}").write_text(constraints, encoding="utf-8")
        shutil.copyfile(synthesis / f"{TOP}.json", folder / f"{TOP}.json")
        shutil.copyfile(synthesis / "yosys.log", folder / "yosys.log")
        try:
            job.run(place, folder)
        except StepError as error:
            raise _too_large(job.flow, netlist, error) or error from error
        job.run(pack, folder)
        (folder / f"{TOP}.json").unlink()  # large, and kept with the synthesis
        _write_json(folder / "seconds.json", job.seconds)

    parts = [FLOW_VERSION, constraints, (synthesis / f"{TOP}.json").read_bytes()]
    for step in (place, pack):
        parts += [job.tools[step.tool.name].version, "\0".join(step.arguments)]
    folder = job.cached("bitstreams", content_key(parts), build)
    job.seconds.update(_read_json(folder / "seconds.json"))
    return folder


def _too_large(flow: FamilyFlow, netlist: Netlist, error: StepError) -> TooLargeError | None:
    """What nextpnr's failure was about, if it was room."""
    found = re.findall(r"^Info:\s+(\w+):\s+(\d+)/\s*(\d+)\s+\d+%", error.text, re.MULTILINE)
    utilization = {name: {"used": int(used), "available": int(n)} for name, used, n in found}
    try:
        used = flow.placed(utilization)
    except KeyError:
        return None
    usage = _usage(flow, netlist.platform, used)
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
    flow = flow_for(board.family)
    tools = {tool.name: find_tool(tool) for tool in flow.tools}
    job = _Job(flow=flow, tools=tools, progress=progress, failed=failed, force=force)
    progress("elaborating")
    started = time.monotonic()
    netlist = elaborate(board, top, flow)
    job.seconds["elaborating"] = round(time.monotonic() - started, 2)
    synthesis = _synthesise(job, netlist)
    cells = cell_counts(synthesis)
    used = flow.synthesised(cells)
    try:
        _check_fit(flow, netlist, used)
    except TooLargeError:
        keep_logs(synthesis, failed)
        raise
    target = Target(
        platform=netlist.platform,
        clock_mhz=board.clock_hz / 1e6,
        seed=seed,
        extra=tuple(board.options.get("nextpnr", ())),
    )
    folder = _place_and_route(job, netlist, synthesis, target)
    timing = _read_json(folder / "timing.json")
    used |= flow.placed(timing["utilization"])
    return Build(
        board=board,
        flow=flow,
        platform=netlist.platform,
        seed=seed,
        folder=folder,
        tools=tuple(tools.values()),
        cells=cells,
        usage=_usage(flow, netlist.platform, used),
        timing=timing,
        seconds=job.seconds,
    )


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
