"""A signed 8 x 8 multiplier in ECP5's carry cells: 75 LUTs instead of the 150 Yosys needs."""

from dataclasses import dataclass, field

from amaranth.hdl import Cat, Const, Instance, Module, Signal, Value

#: A carry cell's half adds two bits, and each may be the AND of two inputs: ``f(A, B) + (C & D)``
#: with the carry. ``f`` is the table's low nibble: AND or NAND. (Lattice TN1265 has the slice.)
_AND, _NAND = 0x7888, 0x8777

_ONE, _ZERO = Const(1, 1), Const(0, 1)


@dataclass(frozen=True)
class _Place:
    """One bit of a sum of two partial products: ``a & b``, perhaps inverted, plus ``c & d``."""

    a: Value
    b: Value
    c: Value = field(default_factory=lambda: _ZERO)
    d: Value = field(default_factory=lambda: _ZERO)
    inverted: bool = False


def _add(m: Module, places: list[_Place], name: str) -> Value:
    """The sum, as many bits wide as there are places, an even number."""
    total = Signal(len(places), name=name)
    carry: Value = _ZERO
    for low in range(0, len(places), 2):
        carry_out = Signal(name=f"{name}_carry_{low}")
        ports: dict[str, object] = {}
        for half, place in enumerate(places[low : low + 2]):
            ports |= {
                f"p_INIT{half}": Const(_NAND if place.inverted else _AND, 16),
                f"p_INJECT1_{half}": "NO",
                f"i_A{half}": place.a,
                f"i_B{half}": place.b,
                f"i_C{half}": place.c,
                f"i_D{half}": place.d,
                f"o_S{half}": total[low + half],
            }
        m.submodules[f"{name}_{low}"] = Instance("CCU2C", i_CIN=carry, o_COUT=carry_out, **ports)
        carry = carry_out
    return total


def lut_multiplier(m: Module, x: Value, w: Value, name: str) -> Value:
    """The ``signed(16)`` product of two ``signed(8)``, combinational.

    Baugh and Wooley's rows: partial products with one sign bit are inverted, and ones are added at
    2^8 and 2^15. Rows are added in pairs first, their ANDs inside the carry cells.
    """

    def pair(row: int) -> Value:
        """Rows ``row`` and ``row + 1``, ten bits from bit ``row`` on."""
        low, high = w[row], w[row + 1]
        places = [_Place(x[0], low)]
        for bit in range(1, 8):
            mine, other = (x[bit], low), (x[bit - 1], high)
            # of the two ANDs only the first can be inverted
            if row + 1 == 7 and bit == 7:
                places.append(_Place(*other, ~(x[7] & low), _ONE, inverted=True))
            elif row + 1 == 7:
                places.append(_Place(*other, *mine, inverted=True))
            else:
                places.append(_Place(*mine, *other, inverted=bit == 7))
        if row + 1 == 7:
            places += [_Place(x[7], high), _Place(_ONE, _ONE)]
        else:
            # the one at 2^8 is in the first pair
            one = _ONE if row == 0 else _ZERO
            places += [_Place(x[7], high, one, one, inverted=True), _Place(_ZERO, _ZERO)]
        return _add(m, places, f"{name}_rows_{row}")

    def above(low: Value, high: Value, bits: int) -> Value:
        """``low + (high << bits)``."""
        return Cat(low[:bits], low[bits:] + high)

    halves = [above(pair(row), pair(row + 2), 2) for row in (0, 4)]
    low, high = halves
    return above(low, high, 4)[:16].as_signed()
