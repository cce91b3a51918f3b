"""What the engines share: the address generator and the matrix array, as an engine sees them."""

from amaranth.hdl import signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from accelc.hw.loops import ROW_BITS
from accelc.hw.mac import MacArray
from accelc.isa.config import AccelConfig

#: Loops of the address generator, outermost first.
LOOPS = 4


def AddressPort() -> wiring.Signature:
    """The members of :class:`accelc.hw.sequential.addresses.Addresses`, without ``set``."""
    return wiring.Signature(
        {
            "restart": Out(1),
            "step": Out(1),
            "row": In(ROW_BITS),
            "last": In(LOOPS),
            "written_step": Out(1),
            "written_line": Out(1),
            "written_row": In(ROW_BITS),
            "written_still": In(1),
            "tile_restart": Out(1),
            "tile_step": Out(1),
            "last_tile": In(1),
            "table": In(ROW_BITS),
            "flags": In(3),
            "a_zero": In(8),
            "a_min": In(8),
            "a_max": In(8),
        }
    )


def ArrayPort(config: AccelConfig, array: MacArray) -> wiring.Signature:
    """The members of :class:`accelc.hw.mac.MacArray`, seen from who drives them.

    Between the last row of one tile and the first of the next no row is in the array's multipliers
    when weights are written: an array may do without a shadow tile.
    """
    return wiring.Signature(
        {
            "row_en": Out(1),
            "row": Out(config.inp_row_bytes * 8),
            "window": Out(1),
            "fire": Out(1),
            "swap": Out(1),
            "shadow_en": Out(1),
            "shadow_row": Out(ceil_log2(config.block_out)),
            "shadow_data": Out(config.block_in * 8),
            "sums": In(signed(array.sum_bits)).array(config.block_out),
        }
    )
