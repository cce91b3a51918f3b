"""The matrix array on ECP5: an MULT18X18D for each product the device has one for, else LUTs."""

from amaranth.hdl import (
    ClockSignal,
    Const,
    Elaboratable,
    Instance,
    Module,
    Signal,
    Value,
    signed,
)

from accelc.boards.primitives.ecp5_lut_multiplier import lut_multiplier
from accelc.hw.mac import MacArray
from accelc.isa.config import AccelConfig

#: Width of the multiplier's operands and of its product.
OPERAND_BITS, PRODUCT_BITS = 18, 36


def mult18x18d(a: Value, b: Value, product: Value) -> Instance:
    """A signed 18 x 18 multiplier with registers at both operands and at the product.

    ``product`` follows the operands by two cycles; the registers always move and have no reset.
    """
    ports: dict[str, object] = {}
    for name, value, bits in (
        ("i_A", a, OPERAND_BITS),
        ("i_B", b, OPERAND_BITS),
        ("i_C", Const(0, OPERAND_BITS), OPERAND_BITS),
        ("o_P", product, PRODUCT_BITS),
    ):
        ports |= {f"{name}{bit}": value[bit] for bit in range(bits)}
    return Instance(
        "MULT18X18D",
        p_REG_INPUTA_CLK="CLK0",
        p_REG_INPUTB_CLK="CLK0",
        p_REG_PIPELINE_CLK="NONE",
        p_REG_OUTPUT_CLK="CLK0",
        p_SOURCEB_MODE="B_SHIFT",
        p_GSR="DISABLED",
        i_CLK0=ClockSignal(),
        i_CE0=1,
        i_RST0=0,
        i_SIGNEDA=1,
        i_SIGNEDB=1,
        i_SOURCEA=0,
        i_SOURCEB=0,
        **ports,
    )


#: Multipliers from which on an array is too wide for one register per control.
_SPREAD_FROM = 128


class Ecp5MacArray(MacArray):
    """The portable array with an adder level per register and vendor multipliers.

    The first ``dsps`` multipliers, output by output, are MULT18X18D, the others LUTs.
    """

    def __init__(self, config: AccelConfig, *, dsps: int) -> None:
        super().__init__(config, levels_per_register=1, multiply_cycles=2)
        self.gated = False
        # Where a control reaches two thousand flip-flops all over the chip, routing gives up.
        self.spread = config.macs_per_cycle >= _SPREAD_FROM
        self._dsps = dsps
        self._used = 0

    def elaborate(self, platform: object) -> Elaboratable:
        self._used = 0
        return super().elaborate(platform)

    def copies(self, m: Module, value: Value, name: str) -> list[Value]:
        if not self.spread:
            return super().copies(m, value, name)
        copied = Signal(self.config.block_out, name=name)
        for lane in range(self.config.block_out):
            # a cell of the device: of equal registers synthesis makes one
            m.submodules[f"{name}_{lane}"] = Instance(
                "TRELLIS_FF",
                p_GSR="DISABLED",
                p_CEMUX="1",
                p_CLKMUX="CLK",
                p_LSRMUX="LSR",
                p_REGSET="RESET",
                i_CLK=ClockSignal(),
                i_CE=1,
                i_LSR=0,
                i_DI=value,
                o_Q=copied[lane],
            )
        return list(copied)

    def multiply(self, m: Module, x: Value, w: Value, en: Value, name: str) -> Value:
        if self._used == self._dsps:
            return self._multiply_in_luts(m, x, w, name)
        self._used += 1
        product = Signal(PRODUCT_BITS, name=name)
        # Operands at the upper end: a sign extended over ten more bits is ten more wires.
        zeros = OPERAND_BITS - 8
        m.submodules[f"dsp_{name}"] = mult18x18d(
            Value.cast(x) << zeros, Value.cast(w) << zeros, product
        )
        return product[2 * zeros :][:16].as_signed()

    def _multiply_in_luts(self, m: Module, x: Value, w: Value, name: str) -> Value:
        x_q = Signal(signed(8), name=f"{name}_x", reset_less=True)
        w_q = Signal(signed(8), name=f"{name}_w", reset_less=True)
        product = Signal(signed(16), name=name, reset_less=True)
        m.d.sync += [x_q.eq(x), w_q.eq(w), product.eq(lut_multiplier(m, x_q, w_q, name))]
        return product


def array(config: AccelConfig, *, dsps: int | None = None) -> MacArray:
    """The array for a device that has ``dsps`` multipliers for it; by default one for each."""
    wanted = config.macs_per_cycle
    return Ecp5MacArray(config, dsps=wanted if dsps is None else min(dsps, wanted))
