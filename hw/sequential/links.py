"""What the engines share: the address generator and the matrix array, as an engine sees them."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.loops import ROW_BITS
from accelc.hw.scratchpad import WordRead
from accelc.hw.sequential.array import SequentialArray, array_members, loads
from accelc.isa.config import PARAM_BYTES, AccelConfig

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
            "written_restart": Out(1),
            "written_step": Out(1),
            "written_line": Out(1),
            "written_row": In(ROW_BITS),
            "written_still": In(1),
            "lines_meet": In(1),
            "tile_restart": Out(1),
            "tile_step": Out(1),
            "table_step": Out(1),
            "last_tile": In(1),
            "table": In(ROW_BITS),
            "flags": In(3),
            "a_zero": In(8),
            "a_min": In(8),
            "a_max": In(8),
        }
    )


def ArrayPort(array: SequentialArray) -> wiring.Signature:
    """The members of an array, seen from who drives them."""
    members = array_members(array.config, array.rows_per_load)
    return wiring.Signature({name: member.flip() for name, member in members.items()})


def WeightRead(array: SequentialArray) -> wiring.Signature:
    """What one load of the array needs of ``wgt``, at ``tile * loads + part``; one cycle."""
    config, rows = array.config, array.rows_per_load
    return WordRead(config.wgt_rows * loads(config, rows), rows * config.block_in * 8)


def ParamRead(config: AccelConfig) -> wiring.Signature:
    """Half of an entry of ``prm``, at ``2 * (row * block_out + lane) + half``; one cycle.

    Half 0 is the bias, half 1 multiplier and shift.
    """
    return WordRead(2 * config.prm_rows * config.block_out, PARAM_BYTES * 8 // 2)
