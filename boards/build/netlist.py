"""From a board's gateware to what Yosys and nextpnr read."""

from dataclasses import dataclass
from typing import Any

from amaranth.lib import wiring

from accelc.boards.board import Board
from accelc.boards.build.family import TOP, FamilyFlow
from accelc.boards.build.wrapper import BoardWrapper


@dataclass(frozen=True, kw_only=True)
class Netlist:
    """A design, elaborated."""

    rtlil: str
    constraints: str
    platform: Any


def elaborate(board: Board, top: wiring.Component, flow: FamilyFlow) -> Netlist:
    """Elaborate ``top`` for its board, with pins, clocks and reset around it.

    Source locations stay out: the same design is the same text on every machine.

    Raises:
        ConfigError: the board's clock cannot be made.
    """
    platform = board.platform()
    plan = platform.build(BoardWrapper(board, top), name=TOP, do_build=False, emit_src=False)
    files = {
        name: content if isinstance(content, str) else content.decode()
        for name, content in plan.files.items()
    }
    return Netlist(
        rtlil=files[f"{TOP}.il"],
        constraints=files[f"{TOP}{flow.constraints_suffix}"],
        platform=platform,
    )
