"""Measures what cores cost: ``python -m accelc.boards.build.calibrate FAMILY`` prints the table.

Synthesises the accelerator alone for the configurations of `CONFIGS` and prints a line of
`accelc.boards.build.cost.MEASURED` for each. A minute or two per configuration.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, Module

from accelc.boards.board import Family
from accelc.boards.build.family import TOP
from accelc.boards.build.flows import flow_for
from accelc.boards.build.synthesis import cell_counts, synthesis_script
from accelc.boards.build.tools import YOSYS, find_tool
from accelc.boards.primitives.arrays import mac_array
from accelc.hw.core import core_for
from accelc.hw.verilog import without_empty_contents
from accelc.isa.config import AccelConfig
from accelc.isa.errors import ToolError

_SMALL = AccelConfig(
    block_in=8, block_out=8, vector_lanes=2, inp_rows=512, wgt_rows=64, acc_rows=256, vin_rows=256,
    out_rows=256, prm_rows=64,
)  # fmt: skip
_SEQUENTIAL = AccelConfig(
    sequential=True, block_in=4, block_out=4, bus_bytes=4, vector_lanes=1, inp_rows=512,
    wgt_rows=128, acc_rows=256, vin_rows=4, out_rows=256, prm_rows=32, add=False, lut=False,
)  # fmt: skip
#: Every parameter that matters is varied, some of them together.
CONFIGS: dict[bool, tuple[AccelConfig, ...]] = {
    False: (
        _SMALL,
        replace(_SMALL, vector_lanes=1),
        replace(_SMALL, vector_lanes=8),
        replace(_SMALL, block_out=16, vector_lanes=4),
        replace(_SMALL, block_in=4, block_out=4, bus_bytes=4, vector_lanes=1),
        replace(_SMALL, block_in=4, bus_bytes=4),
        replace(_SMALL, add=False, lut=False),
        replace(_SMALL, lookahead=False),
        replace(_SMALL, inp_rows=2048, wgt_rows=256, acc_rows=512, out_rows=1024),
    ),
    True: (
        _SEQUENTIAL,
        replace(_SEQUENTIAL, block_out=8),
        replace(_SEQUENTIAL, block_in=8, block_out=8, bus_bytes=8),
        replace(_SEQUENTIAL, acc_rows=512, inp_rows=1024),
    ),
}


class _Alone(Elaboratable):
    """The core where a board has it: flows find memories by name."""

    def __init__(self, core: Elaboratable) -> None:
        self._core = core

    def elaborate(self, platform: object) -> Module:
        board, m = Module(), Module()
        board.submodules.core = self._core
        m.submodules.board = board
        return m


def measure(family: Family, config: AccelConfig) -> dict[str, int]:
    """Resources of the accelerator alone, by name, after synthesis.

    Raises:
        ToolError: Yosys is missing or failed.
    """
    flow, yosys = flow_for(family), find_tool(YOSYS)
    core = core_for(config, array=mac_array(family, config))
    ports = [signal for _, _, signal in core.signature.flatten(core)]
    text = rtlil.convert(_Alone(core), name=TOP, ports=ports, emit_src=False)
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / f"{TOP}.il").write_text(without_empty_contents(text), encoding="utf-8")
        (folder / f"{TOP}.ys").write_text(synthesis_script(flow), encoding="utf-8")
        if yosys.run(("-q", "-s", f"{TOP}.ys"), folder, "yosys.log"):
            raise ToolError((folder / "yosys.log").read_text(encoding="utf-8")[-500:])
        used = flow.synthesised(cell_counts(folder))
    return {resource.name: count for resource, count in used.items()}


def main() -> None:
    family = Family[sys.argv[1].upper()]
    kinds = [bool(int(sys.argv[2]))] if len(sys.argv) > 2 else list(CONFIGS)
    default = AccelConfig().to_dict()
    for kind in kinds:
        for config in CONFIGS[kind]:
            values = {k: v for k, v in config.to_dict().items() if v != default[k]}
            print(json.dumps([values, measure(family, config)]), flush=True)


if __name__ == "__main__":
    main()
