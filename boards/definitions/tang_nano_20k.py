"""Sipeed Tang Nano 20K: Gowin GW2AR-18 with 8 MB of 32-bit SDRAM in the same package."""

from typing import Any

from accelc.boards.board import Board, BoardMemory, Family
from accelc.boards.memory.chips import SdramChip
from accelc.isa.config import AccelConfig

#: Gowin's data sheet gives the size and 166 MHz. Open designs (LiteX, nand2mario's controller)
#: drive it as an ESMT M12L64322A-6; the times are the longest of that data sheet's grades -6 and -7
#: and of the controller, which is known to work.
_SDRAM = SdramChip(
    name="512K x 32 x 4 SDRAM in the package",
    # not checked against a data sheet: no slower than what these open designs use
    source="LiteX's M12L64322A; nand2mario/sdram-tang-nano-20k",
    data_bits=32,
    bank_bits=2,
    row_bits=11,
    column_bits=8,
    min_period_ns={2: 10.0, 3: 7.0},
    trc_ns=63.0,
    trcd_ns=20.0,
    trp_ns=20.0,
    tras_min_ns=42.0,
    tras_max_ns=100_000.0,
    twr_ns=15.0,
    trrd_ns=14.0,
    trfc_ns=63.0,
    # 4096 refreshes in 64 ms, for 2048 rows
    refresh_ms=32.0,
    init_us=200.0,
)


def _platform() -> Any:
    from accelc.boards.definitions.tang_nano_platforms import TangNano20kPlatform

    return TangNano20kPlatform()


TANG_NANO_20K = Board(
    name="tang-nano-20k",
    title="Sipeed Tang Nano 20K",
    family=Family.GOWIN,
    platform=_platform,
    # A decoupled core of as many MACs takes 17.5 k of the 20.7 k LUTs, counting those that only
    # pass a flip-flop's input on: too many for nextpnr to find places in a reasonable time.
    config=AccelConfig(
        name="tang-nano-20k",
        sequential=True,
        block_in=8,
        block_out=8,
        bus_bytes=8,
        inp_rows=1024,
        wgt_rows=512,
        acc_rows=512,
        vin_rows=256,
        out_rows=512,
        prm_rows=64,
        vector_lanes=1,
        mult_bits=15,
        add=False,
        lut=False,
    ),
    clock_hz=66_000_000,
    memory=BoardMemory(sdram=_SDRAM, io_cycles=2),
    loader="tangnano20k",
    leds=(("led", 0), ("led", 1), ("led", 2)),
    reset=("button", 0),
    url="https://wiki.sipeed.com/hardware/en/tang/tang-nano-20k/nano-20k.html",
)
