"""The matrix arrays on Gowin: an MULT9X9 for each multiplication."""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value, signed

from accelc.hw.mac import MacArray
from accelc.hw.sequential.array import SequentialArray
from accelc.isa.config import AccelConfig

#: Width of the multiplier's operands and of its product.
OPERAND_BITS, PRODUCT_BITS = 9, 18
_ZEROS = OPERAND_BITS - 8


def mult9x9(a: Value, b: Value, product: Value, *, operand_registers: bool) -> Instance:
    """A signed 8 x 8 multiplier with a register at the product, or at the operands as well.

    The 16-bit ``product`` follows the operands by one or two cycles; the registers always move and
    have no reset.
    """
    registers = {
        "AREG": operand_registers,
        "BREG": operand_registers,
        "OUT_REG": True,
        "PIPE_REG": False,
        "ASIGN_REG": False,
        "BSIGN_REG": False,
        "SOA_REG": False,
    }
    # Operands at the upper end: a sign extended is one more wire.
    return Instance(
        "MULT9X9",
        **{f"p_{name}": Const(value, 1) for name, value in registers.items()},
        p_MULT_RESET_MODE="SYNC",
        i_CLK=ClockSignal(),
        i_CE=Const(1),
        i_RESET=Const(0),
        i_A=Cat(Const(0, _ZEROS), a),
        i_B=Cat(Const(0, _ZEROS), b),
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
        m.submodules[f"dsp_{name}"] = mult9x9(x, w, product, operand_registers=True)
        return product[2 * _ZEROS :].as_signed()


class GowinSequentialArray(SequentialArray):
    """The portable array's multipliers in MULT9X9, with the products' registers.

    Weights stay in flip-flops: all registers of an MULT9X9 move together.
    """

    def products(
        self, m: Module, o: int, taps: list[Value], weights: Value, load: Value
    ) -> list[Value]:
        if self.portable:
            return super().products(m, o, taps, weights, load)
        products: list[Value] = []
        for j, tap in enumerate(taps):
            weight = Signal(8, name=f"weight_{o}_{j}", reset_less=True)
            with m.If(load):
                m.d.sync += weight.eq(weights.word_select(j, 8))
            product = Signal(PRODUCT_BITS, name=f"product_{o}_{j}")
            m.submodules[f"dsp_{o}_{j}"] = mult9x9(tap, weight, product, operand_registers=False)
            products.append(product[2 * _ZEROS :].as_signed())
        terms: list[Value] = []
        half = len(products) // 2
        for j, (a, b) in enumerate(zip(products[:half], products[half:], strict=True)):
            term = Signal(signed(17), name=f"term_{o}_{j}", reset_less=True)
            m.d.sync += term.eq(a + b)
            terms.append(term)
        return terms


def array(config: AccelConfig, *, dsps: int | None = None) -> GowinMacArray | GowinSequentialArray:
    """The array for a device that has ``dsps`` multipliers for it; by default one for each."""
    del dsps  # a board's configuration is chosen to fit: fewer MULT9X9 than products fail placement
    return GowinSequentialArray(config) if config.sequential else GowinMacArray(config)
