"""Parameter registers of the compute engines, and the rows that follow from them."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from accelc.hw.loops import ROW_BITS
from accelc.hw.sequential.links import LOOPS, AddressPort
from accelc.hw.sequential.ports import AluParam, GemmParam, ParamWrite

#: Bits of the counts of the four loops, outermost first: the wider of what GEMM and ALU have.
COUNT_BITS = (12, 12, 8, 8)
#: Loops in which the written row has a stride.
WRITTEN_LOOPS = 2
#: Bits of the count of weight tiles.
TILE_COUNT_BITS = 12


class Addresses(wiring.Component):
    """Names the row to read at every position of four nested loops, and the row to write.

    The row read steps through the nest; the row written is told separately when to step, as many
    cycles later as the engine takes. Around the nest is the loop over weight tiles. Arithmetic
    wraps at 16 bits.

    Members
    -------
    set : ``In(ParamWrite())``
    restart : ``In(1)``
        Go to the nest's first position, from the next cycle on. Not in the cycle after a ``set``.
    step : ``In(1)``
        Go to the next position, from the next cycle on; after the last comes the first.
    row : ``Out(16)``
        The row to read at this position.
    last : ``Out(4)``
        Per loop, outermost first: it is at its last value.
    written_restart, written_step, written_line : ``In(1)``
        Go to the first row to write, to the next of the line, or to the first of the next line: the
        first of them wins.
    written_row : ``Out(16)``
    written_still : ``Out(1)``
        The written row does not move along a line.
    lines_meet : ``Out(1)``
        The first row written of a line may be the last of the line before it: known after the
        first line since the parameters were set, which must not differ in that from start to start.
    tile_restart, tile_step : ``In(1)``
        Begin to count tiles, not in the cycle after a ``set``; go to the next tile, for the next
        ``restart``.
    last_tile : ``Out(1)``
    table : ``Out(16)``
        The tile's row in wgt, or the row in prm.
    flags : ``Out(3)``
    a_zero, a_min, a_max : ``Out(8)``
        Parameters as they are.
    """

    set: wiring.PureInterface
    restart: Signal
    step: Signal
    row: Signal
    last: Signal
    written_restart: Signal
    written_step: Signal
    written_line: Signal
    written_row: Signal
    written_still: Signal
    lines_meet: Signal
    tile_restart: Signal
    tile_step: Signal
    last_tile: Signal
    table: Signal
    flags: Signal
    a_zero: Signal
    a_min: Signal
    a_max: Signal

    def __init__(self, *, written_bits: int = ROW_BITS) -> None:
        """Build the registers; written rows that are used differ in their ``written_bits``."""
        self.written_bits = written_bits
        super().__init__({"set": In(ParamWrite()), **AddressPort().flip().members})

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()

        def is_set(index: int) -> Value:
            return self.set.en & (self.set.index == index)

        def parameter(index: int, bits: int) -> Signal:
            register = Signal(bits, name=f"param_{index}", reset_less=True)
            with m.If(is_set(index)):
                m.d.sync += register.eq(self.set.value)
            return register

        def stepped(index: int, stride: int) -> Signal:
            """A parameter that moves from tile to tile."""
            register = Signal(ROW_BITS, name=f"param_{index}", reset_less=True)
            setting, moved = is_set(index), register + parameter(stride, ROW_BITS)
            with m.If(setting | self.tile_step):
                m.d.sync += register.eq(Mux(setting, self.set.value, moved))
            return register

        m.d.comb += [
            self.flags.eq(parameter(AluParam.FLAGS, len(self.flags))),
            self.a_zero.eq(parameter(AluParam.A_ZERO, 8)),
            self.a_min.eq(parameter(AluParam.A_MIN, 8)),
            self.a_max.eq(parameter(AluParam.A_MAX, 8)),
            self.table.eq(stepped(GemmParam.WGT, GemmParam.WGT_K)),
        ]
        base = stepped(GemmParam.INP, GemmParam.INP_K)
        written_base = parameter(AluParam.DST, ROW_BITS)
        counts = [parameter(AluParam.N_1 + k, bits) for k, bits in enumerate(COUNT_BITS)]
        strides = [parameter(AluParam.SRC_1 + k, ROW_BITS) for k in range(LOOPS)]
        written_strides = [parameter(AluParam.DST_1 + k, ROW_BITS) for k in range(WRITTEN_LOOPS)]

        # A loop advances or wraps when all loops inside it are at their last value.
        advances: list[Value] = [
            self.step & self.last[k + 1 :].all() if k + 1 < LOOPS else self.step
            for k in range(LOOPS)
        ]
        for k, count in enumerate(counts):
            last = _counter(m, f"loop_{k}", count, self.restart, advances[k])
            m.d.comb += self.last[k].eq(last)
        tiles = parameter(GemmParam.N_K, TILE_COUNT_BITS)
        m.d.comb += self.last_tile.eq(_counter(m, "tile", tiles, self.tile_restart, self.tile_step))
        m.d.comb += [
            self.written_still.eq(~written_strides[-1].any()),
        ]
        row, _ = _chain(m, "row", self.restart, base, strides, advances)
        line_moves = self.written_line
        written, (next_line, _) = _chain(
            m,
            "written",
            self.written_restart,
            written_base,
            written_strides,
            [line_moves, self.written_step | line_moves],
        )
        m.d.comb += [self.row.eq(row), self.written_row.eq(written)]
        with m.If(self.tile_restart):
            m.d.sync += self.lines_meet.eq(1)
        with m.Elif(line_moves & ~self.written_restart):
            bits = self.written_bits
            m.d.sync += self.lines_meet.eq(next_line[:bits] == written[:bits])
        return m


def _counter(m: Module, name: str, count: Signal, restart: Value, advance: Value) -> Signal:
    """Whether a loop is at its last value, from a register: the comparison is made ahead.

    ``restart`` at least two cycles after ``count`` changed.
    """
    # what the loop's index will be next, counted from 1
    ahead = Signal(len(count), name=f"{name}_ahead", init=2, reset_less=True)
    single, last = Signal(name=f"{name}_single"), Signal(name=f"{name}_last")
    m.d.sync += single.eq(count == 1)
    with m.If(restart | (advance & last)):
        m.d.sync += [ahead.eq(2), last.eq(single)]
    with m.Elif(advance):
        m.d.sync += [ahead.eq(ahead + 1), last.eq(ahead == count)]
    return last


def _chain(
    m: Module,
    name: str,
    restart: Value,
    base: Value,
    strides: list[Signal],
    advances: list[Value],
) -> tuple[Value, list[Signal]]:
    """One register per loop: where its current iteration starts; the innermost is the row.

    Gives the row, and what each register becomes if its loop or one around it advances.

    When a loop advances, it and all inside it take its next start. ``advances[k]`` implies
    ``advances[k + 1]``.
    """
    outer, outer_moves = base, restart
    start = base
    nexts: list[Signal] = []
    for k, (stride, advance) in enumerate(zip(strides, advances, strict=True)):
        start = Signal(len(base), name=f"{name}_{k}", reset_less=True)
        following = Signal(len(base), name=f"{name}_{k}_next")
        m.d.comb += following.eq(Mux(outer_moves, outer, start + stride))
        with m.If(restart | advance):
            m.d.sync += start.eq(following)
        nexts.append(following)
        outer, outer_moves = following, restart | advance
    return start, nexts
