"""The matrix array: stationary weight tile, multipliers, adder trees."""

from collections.abc import Sequence
from functools import partial

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from accelc.isa.config import AccelConfig


class MacArray(wiring.Component):
    """Dot products of an input row, or of a window of rows, with ``block_out`` weight rows.

    The active tile stays in registers next to the multipliers while a shadow tile is filled through
    a narrow port, one weight row a cycle; ``swap`` makes the shadow active for the row given in the
    same cycle and all later ones. A shadow row may be rewritten in the cycle of the swap already.

    Cell ``(b, o, j)`` multiplies weight ``[o, j]`` by ``row[b, j]``, or in window mode by
    ``window[j][b, o % block_in]``, where ``window[0]`` is the row given last. Rows not given in
    window mode do not count, and make those before them unusable: weights of taps beyond must be 0.

    Throughput one row a cycle, ``latency`` cycles from ``row_en`` to ``sums_valid``.

    Members
    -------
    row_en : ``In(1)``
        Take ``row``; in window mode also shift the window.
    row : ``In(batch * block_in * 8)``
        ``(batch, block_in)`` int8.
    window : ``In(1)``
        With ``row_en``: window mode.
    fire : ``In(1)``
        With ``row_en``: compute sums of this row or window.
    swap : ``In(1)``
        Make the shadow tile active from this row on.
    shadow_en : ``In(1)``
        Write a row of the shadow tile.
    shadow_row : ``In(log2(block_out))``
        Which row ``o``.
    shadow_data : ``In(block_in * 8)``
        ``(block_in,)`` int8.
    sums_valid : ``Out(1)``
    sums : ``Out(signed(sum_bits)).array(batch * block_out)``
        Exact sums, ``(batch, block_out)``.
    """

    row_en: Signal
    row: Signal
    window: Signal
    fire: Signal
    swap: Signal
    shadow_en: Signal
    shadow_row: Signal
    shadow_data: Signal
    sums_valid: Signal
    sums: list[Signal]

    def __init__(
        self, config: AccelConfig, *, levels_per_register: int = 2, multiply_cycles: int = 1
    ) -> None:
        """Build the array.

        Parameters
        ----------
        config
            Gives ``batch``, ``block_in``, ``block_out`` and whether there is a window.
        levels_per_register
            Adder levels between registers; the last level always has one.
        multiply_cycles
            Registers inside :meth:`multiply`, at least 1: a vendor's multiplier may have several,
            and an array that stands in for it in simulation as many.
        """
        if multiply_cycles < 1:
            raise ValueError(f"multiply_cycles must be at least 1, not {multiply_cycles}")
        self.config = config
        self.multiply_cycles = multiply_cycles
        #: Ignore what a subclass makes of :meth:`multiply`, for simulation.
        self.portable = False
        #: Let what follows the multipliers stand still when it has nothing to do. Simulators save
        #: the work; in an FPGA it is two thousand clock enables on one wire.
        self.gated = True
        #: Begin with a register: of the row, of the weights, and of the controls one for every
        #: output (`copies`), each of which then drives its own multipliers and no others.
        self.spread = False
        self.levels_per_register = levels_per_register
        self.sum_bits = 16 + ceil_log2(config.block_in)
        super().__init__(
            {
                "row_en": In(1),
                "row": In(config.inp_row_bytes * 8),
                "window": In(1),
                "fire": In(1),
                "swap": In(1),
                "shadow_en": In(1),
                "shadow_row": In(ceil_log2(config.block_out)),
                "shadow_data": In(config.block_in * 8),
                "sums_valid": Out(1),
                "sums": Out(signed(self.sum_bits)).array(config.batch * config.block_out),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``row_en`` to ``sums_valid``: operand, multiplier, adder levels."""
        levels = ceil_log2(self.config.block_in)
        return self.spread + 1 + self.multiply_cycles + -(-levels // self.levels_per_register)

    def copies(self, m: Module, value: Value, name: str) -> list[Value]:
        """One bit for every output, ``spread`` cycles later.

        Boards override it where synthesis would make one register of all.
        """
        return [_delayed(m, value, name) if self.spread else value] * self.config.block_out

    def multiply(self, m: Module, x: Value, w: Value, en: Value, name: str) -> Value:
        """One registered signed 8 x 8 multiplier; boards override it with their primitive.

        ``x`` and ``w`` are ``signed(8)`` and belong to ``en``; the ``signed(16)`` product follows
        ``multiply_cycles`` later.
        """
        product = Signal(signed(16), name=name, reset_less=True)
        with m.If(en):
            m.d.sync += product.eq(x * w)
        for cycle in range(1, self.multiply_cycles):
            delayed = Signal(signed(16), name=f"{name}_{cycle}", reset_less=True)
            m.d.sync += delayed.eq(product)
            product = delayed
        return product

    def _lanes(self) -> list[tuple[slice, int]]:
        """Bits of a tap, and which copy of the controls they obey."""
        if self.portable or not self.spread:
            return [(slice(None), 0)]
        block_in = self.config.block_in
        return [
            (slice(8 * place, 8 * place + 8), place % block_in)
            for place in range(self.config.batch * block_in)
        ]

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        block_in, block_out = config.block_in, config.block_out
        row_bits = config.inp_row_bytes * 8

        copies = partial(MacArray.copies, self) if self.portable else self.copies
        swap, row_en = copies(m, self.swap, "swap_q"), copies(m, self.row_en, "row_en_q")
        row, shadow_data = self.row, self.shadow_data
        shadow_en = [self.shadow_en & (self.shadow_row == o) for o in range(block_out)]
        if self.spread:
            row, shadow_data = _delayed(m, row, "row_q"), _delayed(m, shadow_data, "shadow_data_q")
            shadow_en = [_delayed(m, en, f"shadow_en_{o}") for o, en in enumerate(shadow_en)]

        weights: list[Signal] = []
        for o in range(block_out):
            shadow = Signal(block_in * 8, name=f"shadow_{o}", reset_less=True)
            active = Signal(block_in * 8, name=f"weights_{o}", reset_less=True)
            with m.If(shadow_en[o]):
                m.d.sync += shadow.eq(shadow_data)
            with m.If(swap[o]):
                m.d.sync += active.eq(shadow)
            weights.append(active)

        # Per tap, one byte for every output. In window mode all outputs with the same o % block_in
        # see the same rows, else all outputs see the same byte. Chosen as a whole: simulators work
        # on words, not on bytes. Chosen before the register: between it and the multiplier there
        # is nothing, and a choice shares the place of the flip-flop it feeds.
        if config.window:
            windows = copies(m, self.window, "window_q")
            taps = [Signal(row_bits, name=f"tap_{j}", reset_less=True) for j in range(block_in)]
            for bits, lane in self._lanes():
                with m.If(row_en[lane]):
                    for j, tap in enumerate(taps):
                        straight = Cat(
                            _byte(row, b * block_in + j).replicate(block_in)
                            for b in range(config.batch)
                        )
                        older = taps[j - 1] if j else row
                        m.d.sync += tap[bits].eq(Mux(windows[lane], older[bits], straight[bits]))
        else:
            taps = [Signal(row_bits, name="row_0", reset_less=True)]
            with m.If(row_en[0]):
                m.d.sync += taps[0].eq(row)
        fire = self.row_en & self.fire
        en = _delayed(m, _delayed(m, fire, "fire_q") if self.spread else fire, "row_fires")

        def operand(b: int, o: int, j: int) -> Value:
            if config.window:
                return _byte(taps[j], b * block_in + o % block_in)
            return _byte(taps[0], b * block_in + j)

        multiply = partial(MacArray.multiply, self) if self.portable else self.multiply
        terms = [
            [
                multiply(m, operand(b, o, j), _byte(weights[o], j), en, f"product_{b}_{o}_{j}")
                for j in range(block_in)
            ]
            for b in range(config.batch)
            for o in range(block_out)
        ]
        for cycle in range(self.multiply_cycles):
            en = _delayed(m, en, f"product_en_{cycle}")

        level = 0
        while len(terms[0]) > 1:
            level += 1
            terms = [_add_pairs(addends) for addends in terms]
            if level % self.levels_per_register == 0 or len(terms[0]) == 1:
                sums = [
                    [
                        Signal(t.shape(), name=f"sum_{level}_{i}_{j}", reset_less=True)
                        for j, t in enumerate(addends)
                    ]
                    for i, addends in enumerate(terms)
                ]
                with m.If(en if self.gated or self.portable else Const(1)):
                    for registers, addends in zip(sums, terms, strict=True):
                        m.d.sync += [r.eq(t) for r, t in zip(registers, addends, strict=True)]
                terms = sums
                en = _delayed(m, en, f"sum_en_{level}")
        m.d.comb += self.sums_valid.eq(en)
        m.d.comb += [self.sums[i].eq(total) for i, (total,) in enumerate(terms)]
        return m


def _byte(value: Value, index: int) -> Value:
    return value[index * 8 : index * 8 + 8].as_signed()


def _add_pairs(addends: Sequence[Value]) -> list[Value]:
    return [a + b for a, b in zip(addends[::2], addends[1::2], strict=True)]


def _delayed(m: Module, value: Value, name: str) -> Signal:
    register = Signal(len(value), name=name, reset_less=len(value) > 1)
    m.d.sync += register.eq(value)
    return register
