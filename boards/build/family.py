"""What a build needs to know about an FPGA family; one file per family answers it."""

import abc
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelc.boards.board import Family
from accelc.boards.build.tools import Tool

#: Name of the design: of its top module and of every file of a build.
TOP = "top"

#: Memories of which no row is read while it is written, or not used then (`accelc.hw.scratchpad`).
#: Else Yosys adds logic to every data bit that makes collisions what a simulator makes of them.
NO_COLLISIONS = (
    "*.core.*_scratchpad",
    "*.core.*_queue",
    "*.core.fetch*",
    "*.core.registers*",
    "*.core.alu.lookup",
)
#: One bit for every write port a memory may have; those too many are ignored.
_EVERY_PORT = f"64'b{(1 << 64) - 1:b}"


class Resource(enum.Enum):
    """What designs use up, whatever the family calls it; the value is how reports call it."""

    LUT = "LUT"
    FF = "FF"
    DSP = "DSP"
    RAM = "block RAM"
    SPRAM = "SPRAM"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """How much of a resource a design uses."""

    resource: Resource
    #: The family's name for one of it.
    cell: str
    used: int
    available: int

    @property
    def excess(self) -> int:
        """How many are missing."""
        return max(0, self.used - self.available)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One run of one tool in the build folder; all names are relative to it."""

    #: What is being done, for whoever waits: "placing and routing".
    title: str
    tool: Tool
    arguments: tuple[str, ...]
    #: File that keeps what the tool prints.
    log: str


@dataclass(frozen=True, kw_only=True)
class Target:
    """What place and route has to know beside the netlist."""

    #: Amaranth's platform: device, package and speed grade.
    platform: Any
    #: Clock without a constraint of its own, in MHz.
    clock_mhz: float
    seed: int
    #: The board's options for this tool (`Board.options["nextpnr"]`), after ours.
    extra: tuple[str, ...] = ()


class FamilyFlow(abc.ABC):
    """From RTLIL to a bitstream with one family's tools.

    The files, all in the build folder: ``top.il`` and ``top`` + `constraints_suffix` come from
    Amaranth; synthesis leaves ``top.json``; place and route reads both and leaves its results and
    ``timing.json`` (nextpnr's ``--report``); packing leaves `bitstream`.
    """

    family: Family
    #: ".pcf", ".lpf", ".cst": the constraint file that Amaranth's platform writes.
    constraints_suffix: str
    #: The file that is loaded into the FPGA.
    bitstream: str
    #: Tools in the order they run: Yosys, nextpnr, the packer.
    tools: tuple[Tool, ...]
    #: Files that the synthesis commands read by name.
    maps: tuple[Path, ...] = ()
    #: Modules whose reads that collide with writes may return anything.
    no_collisions: tuple[str, ...] = NO_COLLISIONS

    def prepare(self) -> tuple[str, ...]:
        """Yosys commands between reading ``top.il``, whose memories that start as zeros say
        nothing of it, and synthesis. Here: reads that collide with writes may return anything."""
        return tuple(
            f"setparam -set COLLISION_X_MASK {_EVERY_PORT} "
            f"{modules}/t:$memrd_v2 {modules}/r:CLK_ENABLE=1 %i"
            for modules in self.no_collisions
        )

    @abc.abstractmethod
    def synthesis(self) -> tuple[str, ...]:
        """Yosys commands from there to mapped cells; then ``check -assert``, ``write_json``."""

    @abc.abstractmethod
    def place_and_route(self, target: Target) -> Step:
        """Reads ``top.json`` and the constraints; must not fail where only timing is missed."""

    @abc.abstractmethod
    def pack(self, target: Target) -> Step:
        """Makes `bitstream`; nothing in it may depend on time, place or user."""

    @abc.abstractmethod
    def available(self, platform: Any) -> dict[Resource, tuple[str, int]]:
        """Name of a cell and how many the device has, by resource."""

    @abc.abstractmethod
    def synthesised(self, cells: Mapping[str, int]) -> dict[Resource, int]:
        """Resources used, from the counts of mapped cells by type in Yosys's ``stat``."""

    @abc.abstractmethod
    def placed(self, utilization: Mapping[str, Mapping[str, int]]) -> dict[Resource, int]:
        """Resources used, from ``utilization`` of nextpnr's report; those it does not tell apart
        from others are left out."""

    def constraints(self, text: str, target: Target) -> str:
        """Amaranth's constraint file, changed where this family's tools want it otherwise."""
        return text
