"""1BitSquared iCEBreaker: iCE40UP5K, whose four SPRAMs are the accelerator's memory."""

from typing import Any

from accelc.boards.board import Board, BoardMemory, Family, OnChip, OnChipKind
from accelc.isa.config import AccelConfig


def _platform() -> Any:
    from amaranth_boards.icebreaker import ICEBreakerPlatform

    return ICEBreakerPlatform()


ICEBREAKER = Board(
    name="icebreaker",
    title="1BitSquared iCEBreaker",
    family=Family.ICE40,
    platform=_platform,
    # 16 MACs are the chip's eight DSP blocks. The scratchpads are 22 of its 30 block RAMs, the
    # microcode and the link have the rest.
    config=AccelConfig(
        name="icebreaker",
        sequential=True,
        block_in=4,
        block_out=4,
        bus_bytes=4,
        inp_rows=512,
        wgt_rows=128,
        acc_rows=256,
        vin_rows=64,
        out_rows=256,
        prm_rows=32,
        vector_lanes=1,
        mult_bits=15,
        add=False,
        lut=False,
    ),
    clock_hz=40_500_000,
    memory=BoardMemory(
        on_chip=OnChip(kind=OnChipKind.SPRAM, nbytes=128 << 10),
        buffered=True,
    ),
    # its processor and second serial port do not fit beside the accelerator
    mlperf=False,
    loader="ice40_generic",
    # the two on the main board; those of the break-off part may be gone
    leds=(("led_g", 0), None, ("led_r", 0)),
    reset=("button", 0),
    url="https://docs.icebreaker-fpga.org",
)
