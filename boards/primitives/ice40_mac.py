"""The matrix array on iCE40 UltraPlus: SB_MAC16 blocks with the weights in their registers."""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value

from accelc.hw.sequential.array import SequentialArray
from accelc.isa.config import AccelConfig

#: Multipliers of 8 x 8 bits in one SB_MAC16, each with a 16-bit adder behind it.
PRODUCTS = 2
#: What an SB_MAC16 puts out: the adders' registers, or the multipliers' (ICE Technology Library,
#: SB_MAC16, TOPOUTPUT_SELECT).
_ADDERS, _MULTIPLIERS = 1, 2
_UNUSED_INPUTS = (
    "AHOLD", "CHOLD", "DHOLD", "IRSTTOP", "IRSTBOT", "ORSTTOP", "ORSTBOT", "OLOADTOP", "OLOADBOT",
    "ADDSUBTOP", "ADDSUBBOT", "OHOLDTOP", "OHOLDBOT", "CI", "ACCUMCI", "SIGNEXTIN",
)  # fmt: skip


def mac16(a: Value, b: Value, b_load: Value, o: Value, added: Value | None = None) -> Instance:
    """Two signed 8 x 8 multipliers, of the high and of the low bytes of ``a`` and ``b``.

    ``b`` is taken into its register with ``b_load`` and multiplied with from the next cycle on.
    ``o`` has the products, each in its half, a cycle after ``a``; or, if there is something to be
    ``added``, their sums with its halves one cycle after that, modulo 2^16.
    """
    high, low = (Const(0, 16), Const(0, 16)) if added is None else (added[16:], added[:16])
    select = Const(_MULTIPLIERS if added is None else _ADDERS, 2)
    return Instance(
        "SB_MAC16",
        p_MODE_8x8=Const(1, 1),
        p_A_SIGNED=Const(1, 1),
        p_B_SIGNED=Const(1, 1),
        p_B_REG=Const(1, 1),
        p_TOP_8x8_MULT_REG=Const(1, 1),
        p_BOT_8x8_MULT_REG=Const(1, 1),
        # multiplier plus C and D
        p_TOPADDSUB_LOWERINPUT=Const(1, 2),
        p_TOPADDSUB_UPPERINPUT=Const(1, 1),
        p_BOTADDSUB_LOWERINPUT=Const(1, 2),
        p_BOTADDSUB_UPPERINPUT=Const(1, 1),
        p_TOPOUTPUT_SELECT=select,
        p_BOTOUTPUT_SELECT=select,
        i_CLK=ClockSignal(),
        i_CE=Const(1),
        i_A=a,
        i_B=b,
        i_C=high,
        i_D=low,
        i_BHOLD=~b_load,
        o_O=o,
        **{f"i_{name}": Const(0) for name in _UNUSED_INPUTS},
    )


class Ice40MacArray(SequentialArray):
    """The portable array's multipliers, weights and first adders in SB_MAC16 blocks.

    An adder has 16 bits only. The one sum of two products that does not fit is 2^15, from four
    factors of -128; -2^15 on the other hand is none. So the sign tells which it was.
    """

    def products(
        self, m: Module, o: int, taps: list[Value], weights: Value, load: Value
    ) -> list[Value]:
        if self.portable:
            return super().products(m, o, taps, weights, load)
        half = len(taps) // 2
        terms: list[Value] = []
        for j in range(0, half, PRODUCTS):
            pair: Value | None = None
            for first in (j, j + half):
                output = Signal(16 * PRODUCTS, name=f"mac_{o}_{first}_o")
                m.submodules[f"mac_{o}_{first}"] = mac16(
                    Cat(taps[first : first + PRODUCTS]),
                    weights[first * 8 : (first + PRODUCTS) * 8],
                    load,
                    output,
                    pair,
                )
                pair = output
            assert pair is not None
            for total in (pair[:16], pair[16:]):
                negative = total[15] & total[:15].any()
                terms.append(Cat(total, negative).as_signed())
        return terms


def array(config: AccelConfig, *, dsps: int = 8) -> Ice40MacArray | None:
    """The array for a device with ``dsps`` SB_MAC16.

    ``None`` if they are not enough, and for the decoupled core: it needs a shadow tile.
    """
    blocks = config.macs_per_cycle // PRODUCTS
    if not config.sequential or blocks > dsps or config.block_in % (2 * PRODUCTS):
        return None
    return Ice40MacArray(config)
