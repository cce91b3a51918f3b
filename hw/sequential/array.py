"""The matrix array of the sequential core: weights sit in the multipliers, without a shadow."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from accelc.hw.mac import MacArray
from accelc.isa.config import AccelConfig

#: Rows of the weight tile that arrive at once. Two halve the time a tile takes, and the block RAM
#: of the smallest FPGA is as large either way.
ROWS_PER_LOAD = 2
#: Multipliers that share their registers: the unit vendors have.
PAIR = 2


def loads(config: AccelConfig, rows_per_load: int) -> int:
    """Loads that fill the array."""
    return config.block_out // rows_per_load


class SequentialArray(wiring.Component):
    """Dot products of an input row, or of a window of rows, with ``block_out`` weight rows.

    Output ``o`` is the sum of ``weight[o, j] * row[j]``, or in window mode of the taps ``j`` in
    ``mask`` of ``weight[o, j] * window[j][o % block_in]``, where ``window[0]`` is the row given
    last; ``mask`` has the lowest taps, without gaps.

    A register in front of each multiplier holds the operand and is a stage of the window as well.
    Weights are multiplied with from the cycle after ``load_en`` on, a row from the cycle after
    ``row_en``: a load belongs into the cycle after a row's ``row_en`` at the earliest, if that row
    still needs the old weights, and into the cycle of the next row's at the latest.

    Throughput one row a cycle, ``latency`` cycles from ``row_en`` to its sums.

    Members
    -------
    row_en : ``In(1)``
        Take ``row``; in window mode also shift the window.
    row : ``In(block_in * 8)``
        ``(block_in,)`` int8.
    window : ``In(1)``
        With ``row_en``: window mode.
    mask : ``In(block_in)``
        With ``row_en``: taps that count in window mode.
    load_en : ``In(1)``
    load_part : ``In(log2(block_out / rows_per_load))``
        Which rows of the tile: ``rows_per_load`` from ``load_part * rows_per_load`` on.
    load_data : ``In(rows_per_load * block_in * 8)``
        ``(rows_per_load, block_in)`` int8.
    sums : ``Out(signed(sum_bits)).array(block_out)``
        Exact sums.
    """

    rows_per_load = ROWS_PER_LOAD
    #: Cycles a row must come later than described above.
    settle_cycles = 0
    #: From ``row_en``: operand, product, sums of pairs of pairs, sum.
    latency = 4

    row_en: Signal
    row: Signal
    window: Signal
    mask: Signal
    load_en: Signal
    load_part: Signal
    load_data: Signal
    sums: list[Signal]

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        #: Do without the cells of a vendor, for simulation.
        self.portable = False
        super().__init__(array_members(config, self.rows_per_load))

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        block_in = config.block_in
        for o in range(config.block_out):
            taps: list[Value] = []
            for j in range(block_in):
                tap = Signal(8, name=f"tap_{o}_{j}", reset_less=True)
                straight = self.row.word_select(j, 8)
                moved = (
                    taps[-1] & self.mask[j].replicate(8)
                    if j
                    else self.row.word_select(o % block_in, 8)
                )
                with m.If(self.row_en):
                    m.d.sync += tap.eq(
                        Mux(self.window, moved, straight) if config.window else straight
                    )
                taps.append(tap)
            part, row = divmod(o, self.rows_per_load)
            weights = self.load_data.word_select(row, block_in * 8)
            load = self.load_en & (self.load_part == part)
            terms = self.products(m, o, taps, weights, load)
            while len(terms) > 1:
                terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
            total = Signal(signed(len(self.sums[o])), name=f"total_{o}", reset_less=True)
            m.d.sync += total.eq(terms[0])
            m.d.comb += self.sums[o].eq(total)
        return m

    def products(
        self, m: Module, o: int, taps: list[Value], weights: Value, load: Value
    ) -> list[Value]:
        """Terms, at most half as many as taps, whose sum is output ``o``.

        With ``load``, ``weights`` are those of the following cycles; the terms of ``taps`` follow
        two cycles later. Boards override this with their primitive.
        """
        products: list[Signal] = []
        for j, tap in enumerate(taps):
            weight = Signal(signed(8), name=f"weight_{o}_{j}", reset_less=True)
            with m.If(load):
                m.d.sync += weight.eq(weights.word_select(j, 8))
            product = Signal(signed(16), name=f"product_{o}_{j}", reset_less=True)
            m.d.sync += product.eq(tap.as_signed() * weight)
            products.append(product)
        terms: list[Value] = []
        half = len(products) // 2
        for j, (a, b) in enumerate(zip(products[:half], products[half:], strict=True)):
            term = Signal(signed(17), name=f"term_{o}_{j}", reset_less=True)
            m.d.sync += term.eq(a + b)
            terms.append(term)
        return terms


def array_members(config: AccelConfig, rows_per_load: int) -> dict[str, wiring.Member]:
    """The members of :class:`SequentialArray`."""
    return {
        "row_en": In(1),
        "row": In(config.block_in * 8),
        "window": In(1),
        "mask": In(config.block_in),
        "load_en": In(1),
        "load_part": In(ceil_log2(loads(config, rows_per_load))),
        "load_data": In(rows_per_load * config.block_in * 8),
        "sums": Out(signed(16 + ceil_log2(config.block_in))).array(config.block_out),
    }


class ShadowedArray(SequentialArray):
    """An array made for the decoupled core in the role of the sequential core's."""

    rows_per_load = 1
    #: The shadow must be complete before the row that makes it active.
    settle_cycles = 1

    def __init__(self, config: AccelConfig, array: MacArray) -> None:
        super().__init__(config)
        self.array = array
        self.latency = array.latency

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        m.submodules.array = array = self.array
        loaded = Signal()
        with m.If(self.load_en):
            m.d.sync += loaded.eq(1)
        with m.Elif(self.row_en):
            m.d.sync += loaded.eq(0)
        mask = Cat((self.mask[j] | ~self.window).replicate(8) for j in range(config.block_in))
        m.d.comb += [
            array.row_en.eq(self.row_en),
            array.row.eq(self.row),
            array.window.eq(self.window),
            array.fire.eq(1),
            array.swap.eq(self.row_en & loaded),
            array.shadow_en.eq(self.load_en),
            array.shadow_row.eq(self.load_part),
            array.shadow_data.eq(self.load_data & mask if config.window else self.load_data),
        ]
        m.d.comb += [mine.eq(its) for mine, its in zip(self.sums, array.sums, strict=True)]
        return m
