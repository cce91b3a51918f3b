"""Running the steps of a build: progress, logs, times, cache."""

import contextlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelc.boards.build.family import Step
from accelc.boards.build.tools import FoundTool, Tool, find_tool
from accelc.isa.errors import ToolError
from accelc.sim.cache import cache_root, cached_folder

#: Tells whoever waits what is being done.
Progress = Callable[[str], None]


@dataclass(kw_only=True)
class Job:
    """What the steps share."""

    tools: dict[str, FoundTool]
    progress: Progress = lambda _: None
    #: Where logs of a failed step are kept, or None.
    failed: Path | None = None
    #: Build even what is in the cache.
    force: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def timed(self, title: str) -> Iterator[None]:
        """Tell what is being done now, and measure for how long."""
        self.progress(title)
        started = time.monotonic()
        yield
        self.seconds[title] = round(time.monotonic() - started, 2)

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
        with self.timed(step.title):
            code = found.run(step.arguments, folder, step.log, self._tell(step.title))
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


def find_tools(tools: Iterable[Tool]) -> dict[str, FoundTool]:
    """The tools on this machine, by name.

    Raises:
        ToolError: one is missing.
    """
    return {tool.name: find_tool(tool) for tool in tools}


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


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
