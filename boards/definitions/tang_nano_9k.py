"""Sipeed Tang Nano 9K: Gowin GW1NR-9 with block RAM as the accelerator's memory."""

from typing import Any

from accelc.boards.board import Board, BoardMemory, Family, OnChip, OnChipKind
from accelc.isa.config import AccelConfig


def _platform() -> Any:
    from accelc.boards.definitions.tang_nano_platforms import TangNano9kPlatform

    return TangNano9kPlatform()


TANG_NANO_9K = Board(
    name="tang-nano-9k",
    title="Sipeed Tang Nano 9K",
    family=Family.GOWIN,
    platform=_platform,
    # 16 MACs in 16 of 40 multipliers. The PSRAM in the package is left alone: 26 block RAMs of
    # 2 KiB are the scratchpads and the memory.
    config=AccelConfig(
        name="tang-nano-9k",
        sequential=True,
        block_in=4,
        block_out=4,
        bus_bytes=4,
        inp_rows=512,
        wgt_rows=128,
        acc_rows=256,
        vin_rows=4,
        out_rows=256,
        prm_rows=32,
        vector_lanes=1,
        mult_bits=15,
        add=False,
        lut=False,
    ),
    clock_hz=45_000_000,
    memory=BoardMemory(on_chip=OnChip(kind=OnChipKind.BLOCK, nbytes=16 << 10)),
    mlperf=False,
    loader="tangnano9k",
    reset=("button", 0),
    url="https://wiki.sipeed.com/hardware/en/tang/Tang-Nano-9K/Nano-9K.html",
)
