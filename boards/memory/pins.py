"""The pins of an SDR SDRAM, seen from its controller."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from accelc.boards.memory.chips import SdramChip


def _resting_high(bits: int) -> wiring.Member:
    return Out(bits, init=(1 << bits) - 1)  # pyright: ignore (amaranth-stubs lack init)


class SdramPins(wiring.Signature):
    """Command, address and data of one chip; its clock is the wrapper's business.

    Outputs are registered by the controller and change together. Whoever adds registers between
    controller and pins adds as many to every output, and says how many cycles the way there and
    back became longer (:attr:`accelc.boards.board.BoardMemory.io_cycles`).

    Members
    -------
    cke : Out(1)
    cs_n, ras_n, cas_n, we_n : Out(1)
    ba : Out(bank_bits)
    a : Out(row_bits)
    dqm : Out(data_bits / 8)
    dq_o : Out(data_bits)
        Data to write, driven while ``dq_oe`` is high.
    dq_oe : Out(1)
    dq_i : In(data_bits)
    """

    def __init__(self, chip: SdramChip) -> None:
        super().__init__(
            {
                "cke": _resting_high(1),
                "cs_n": _resting_high(1),
                "ras_n": _resting_high(1),
                "cas_n": _resting_high(1),
                "we_n": _resting_high(1),
                "ba": Out(chip.bank_bits),
                "a": Out(chip.row_bits),
                "dqm": _resting_high(chip.data_bits // 8),
                "dq_o": Out(chip.data_bits),
                "dq_oe": Out(1),
                "dq_i": In(chip.data_bits),
            }
        )
