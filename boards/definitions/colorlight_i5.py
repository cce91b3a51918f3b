"""Colorlight i5 v7.0 on its extension board: ECP5 with 25 k LUTs and 8 MB of 32-bit SDRAM."""

from dataclasses import replace
from typing import Any

from accelc.boards.board import Board, BoardMemory, Family
from accelc.boards.definitions.ulx3s import ULX3S_25F
from accelc.boards.memory.chips import SdramChip

#: Etron EM638325-6 or ESMT M12L64322A-6 are soldered; every time is the worse of the two.
_SDRAM = SdramChip(
    name="2M x 32 SDRAM",
    source="Etron EM638325 (-6), ESMT M12L64322A (-6)",
    data_bits=32,
    bank_bits=2,
    row_bits=11,
    column_bits=8,
    min_period_ns={2: 10.0, 3: 6.0},
    trc_ns=60.0,
    trcd_ns=18.0,
    trp_ns=18.0,
    tras_min_ns=42.0,
    tras_max_ns=100_000.0,
    twr_ns=15.0,
    trrd_ns=12.0,
    trfc_ns=60.0,
    # 4096 refreshes in 64 ms, for 2048 rows
    refresh_ms=32.0,
    init_us=200.0,
)


def _platform() -> Any:
    from amaranth.build import Attrs, Clock, Pins, PinsN, Resource
    from amaranth.vendor import LatticeECP5Platform
    from amaranth_boards.resources import LEDResources, SDRAMResource, UARTResource

    lvcmos = Attrs(IO_TYPE="LVCMOS33")

    class ColorlightI5Platform(LatticeECP5Platform):
        """Pins as found by the people of github.com/wuxx/Colorlight-FPGA-Projects."""

        device = "LFE5U-25F"
        package = "BG381"
        speed = "6"
        default_clk = "clk25"
        resources = [
            Resource("clk25", 0, Pins("P3", dir="i"), Clock(25e6), lvcmos),
            *LEDResources(pins="U16", invert=True, attrs=lvcmos),
            Resource("button", 0, PinsN("K18", dir="i"), Attrs(IO_TYPE="LVCMOS33", PULLMODE="UP")),
            # the serial port of the CMSIS-DAP probe on the extension board
            UARTResource(0, rx="H18", tx="J17", attrs=lvcmos),
            # chip select and the masks are tied low, clock enable high
            SDRAMResource(
                0,
                clk="B9",
                we_n="A10",
                ras_n="B10",
                cas_n="A9",
                ba="B11 C8",
                a="B13 C14 A16 A17 B16 B15 A14 A13 A12 A11 B12",
                dq="D15 E14 E13 D12 E12 D11 C10 B17 B8 A8 C7 A7 A6 B6 A5 B5 "
                "D5 C5 D6 C6 E7 D7 E8 D8 E9 D9 E11 C11 C12 D13 D14 C15",
                attrs=Attrs(PULLMODE="NONE", DRIVE="4", SLEWRATE="FAST", IO_TYPE="LVCMOS33"),
            ),
        ]
        connectors = []

    return ColorlightI5Platform()


COLORLIGHT_I5 = Board(
    name="colorlight-i5",
    title="Colorlight i5 on its extension board",
    family=Family.ECP5,
    platform=_platform,
    config=replace(ULX3S_25F.config, name="colorlight-i5"),
    clock_hz=62_500_000,
    options=ULX3S_25F.options,
    memory=BoardMemory(sdram=_SDRAM, masks=False, io_cycles=2),
    loader="colorlight-i5",
    leds=(("led", 0),),
    reset=("button", 0),
    url="https://github.com/wuxx/Colorlight-FPGA-Projects",
)
