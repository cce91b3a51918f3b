"""Radiona ULX3S: ECP5 with 85 k or 25 k LUTs and 32 MB of 16-bit SDRAM."""

from typing import Any

from accelc.boards.board import Board, BoardMemory, Family, OnChip, OnChipKind
from accelc.boards.memory.chips import SdramChip
from accelc.isa.config import AccelConfig

_URL = "https://radiona.org/ulx3s"
#: The manual's list of what is soldered: MT48LC16M16A2-75, IS42S16160G-7 or AS4C32M16SB-7 (of
#: which half is used). Every time is the worst of the three data sheets, so that any works.
_SDRAM = SdramChip(
    name="16M x 16 SDRAM",
    source="Micron 256Mb SDR (MT48LC16M16A2-75), ISSI 42-45S16160G (-7), Alliance AS4C32M16SB (-7)",
    data_bits=16,
    bank_bits=2,
    row_bits=13,
    column_bits=9,
    min_period_ns={2: 10.0, 3: 7.5},
    trc_ns=66.0,
    trcd_ns=21.0,
    trp_ns=21.0,
    tras_min_ns=45.0,
    tras_max_ns=100_000.0,
    twr_ns=15.0,
    trrd_ns=15.0,
    trfc_ns=70.0,
    refresh_ms=64.0,
    init_us=200.0,
)
#: The ESP32's boot pin: its firmware takes the FPGA over when it falls.
_HIGH = (("esp32", 0, "gpio0"),)


def _ulx3s_85f() -> Any:
    from amaranth_boards.ulx3s import ULX3S_85F_Platform

    return ULX3S_85F_Platform()


def _ulx3s_25f() -> Any:
    from amaranth_boards.ulx3s import ULX3S_25F_Platform

    return ULX3S_25F_Platform()


ULX3S_85F = Board(
    name="ulx3s-85f",
    title="Radiona ULX3S with LFE5U-85F",
    family=Family.ECP5,
    platform=_ulx3s_85f,
    # The array's multipliers are in LUTs, which are where their operands are: the chip's lie in
    # three rows across it.
    config=AccelConfig(
        name="ulx3s-85f",
        block_in=16,
        block_out=16,
        bus_bytes=8,
        inp_rows=512,
        wgt_rows=128,
        acc_rows=512,
        vin_rows=512,
        out_rows=512,
        prm_rows=64,
        vector_lanes=2,
    ),
    clock_hz=50_000_000,
    options={"dsps": 0, "nextpnr": ("--router", "router2")},
    memory=BoardMemory(
        on_chip=OnChip(kind=OnChipKind.BLOCK, nbytes=192 << 10),
        sdram=_SDRAM,
        io_cycles=2,
        buffered=True,
    ),
    loader="ulx3s",
    reset=("button_fire", 0),
    high=_HIGH,
    url=_URL,
)

ULX3S_25F = Board(
    name="ulx3s-25f",
    title="Radiona ULX3S with LFE5U-25F",
    family=Family.ECP5,
    platform=_ulx3s_25f,
    # 64 MACs: 19 of the chip's 28 multipliers and 45 in LUTs; the vector unit takes the other 9.
    config=AccelConfig(
        name="ulx3s-25f",
        block_in=8,
        block_out=8,
        bus_bytes=8,
        inp_rows=2048,
        wgt_rows=256,
        acc_rows=512,
        vin_rows=512,
        out_rows=512,
        prm_rows=64,
        vector_lanes=1,
    ),
    clock_hz=62_500_000,
    options={"dsps": 19},
    memory=BoardMemory(sdram=_SDRAM, io_cycles=2),
    loader="ulx3s",
    reset=("button_fire", 0),
    high=_HIGH,
    url=_URL,
)
