"""The matrix array on Gowin: an MULT9X9 for each multiplication."""

from amaranth.hdl import ClockSignal, Const, Instance, Module, Signal, Value

from accelc.hw.mac import MacArray
from accelc.isa.config import AccelConfig

#: Width of the multiplier's operands and of its product.
OPERAND_BITS, PRODUCT_BITS = 9, 18


def mult9x9(a: Value, b: Value, product: Value) -> Instance:
    """A signed 9 x 9 multiplier with registers at both operands and at the product.

    ``product`` follows the operands by two cycles; the registers always move and have no reset.
    """
    registers = {"p_AREG": 1, "p_BREG": 1, "p_OUT_REG": 1}
    bypassed = {"p_PIPE_REG": 0, "p_ASIGN_REG": 0, "p_BSIGN_REG": 0, "p_SOA_REG": 0}
    return Instance(
        "MULT9X9",
        **{name: Const(value, 1) for name, value in (registers | bypassed).items()},
        p_MULT_RESET_MODE="SYNC",
        i_CLK=ClockSignal(),
        i_CE=Const(1),
        i_RESET=Const(0),
        i_A=a,
        i_B=b,
        i_ASIGN=Const(1),
        i_BSIGN=Const(1),
        # operands from the fabric, not from the neighbour
        i_SIA=Const(0, OPERAND_BITS),
        i_SIB=Const(0, OPERAND_BITS),
        i_ASEL=Const(0),
        i_BSEL=Const(0),
        o_DOUT=product,
    )


class GowinMacArray(MacArray):
    """The portable array with an adder level per register and vendor multipliers.

    Adders of more than two terms would become LUTs in front of the carry chain; with a register
    after every level each flip-flop shares the slice of the sum bit it holds.
    """

    def __init__(self, config: AccelConfig) -> None:
        super().__init__(config, levels_per_register=1, multiply_cycles=2)

    def multiply(self, m: Module, x: Value, w: Value, en: Value, name: str) -> Value:
        product = Signal(PRODUCT_BITS, name=name)
        # Operands at the upper end: a sign extended is one more wire.
        zeros = OPERAND_BITS - 8
        m.submodules[f"dsp_{name}"] = mult9x9(
            (Value.cast(x) << zeros)[:OPERAND_BITS],
            (Value.cast(w) << zeros)[:OPERAND_BITS],
            product,
        )
        return product[2 * zeros :][:16].as_signed()


def array(config: AccelConfig, *, dsps: int | None = None) -> MacArray:
    """The array for a device that has ``dsps`` multipliers for it; by default one for each."""
    del dsps  # a board's configuration is chosen to fit: fewer MULT9X9 than products fail placement
    return GowinMacArray(config)
