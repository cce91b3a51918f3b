"""Parameter registers of the compute engines, and the rows that follow from them."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value
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
        Go to the nest's first position, from the second cycle on.
    step : ``In(1)``
        Go to the next position, from the next cycle on; from the last only a restart leads on.
    row : ``Out(16)``
        The row to read at this position.
    last : ``Out(4)``
        Per loop, outermost first: it is at its last value. All are before a restart.
    written_restart, written_step, written_line : ``In(1)``
        Go to the first row to write, to the next of the line, or to the first of the next line,
        from the second cycle on: the first of them wins.
    written_row : ``Out(16)``
    written_still : ``Out(1)``
        The written row does not move along a line.
    lines_meet : ``Out(1)``
        The first row written of a line may be the last of the line before it: known after the
        first line since the parameters were set, which must not differ in that from start to start.
    tile_restart, tile_step : ``In(1)``
        Begin to count tiles; count one, in the cycle after its ``restart`` at the earliest, and let
        the next ``restart`` begin at the next tile's row.
    last_tile : ``Out(1)``
        The tile counted last is the last one.
    table_step : ``In(1)``
        Name the next tile's row in wgt.
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
    table_step: Signal
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

        def stepped(index: int, stride: int, step: Value) -> Signal:
            """A parameter that moves from tile to tile."""
            register = Signal(ROW_BITS, name=f"param_{index}", reset_less=True)
            setting, moved = is_set(index), register + parameter(stride, ROW_BITS)
            with m.If(setting | step):
                m.d.sync += register.eq(Mux(setting, self.set.value, moved))
            return register

        m.d.comb += [
            self.flags.eq(parameter(AluParam.FLAGS, len(self.flags))),
            self.a_zero.eq(parameter(AluParam.A_ZERO, 8)),
            self.a_min.eq(parameter(AluParam.A_MIN, 8)),
            self.a_max.eq(parameter(AluParam.A_MAX, 8)),
            self.table.eq(stepped(GemmParam.WGT, GemmParam.WGT_K, self.table_step)),
        ]
        base = stepped(GemmParam.INP, GemmParam.INP_K, self.tile_step)
        written_base = parameter(AluParam.DST, ROW_BITS)
        counts = [parameter(AluParam.N_1 + k, bits) for k, bits in enumerate(COUNT_BITS)]
        strides = [parameter(AluParam.SRC_1 + k, ROW_BITS) for k in range(LOOPS)]
        written_strides = [parameter(AluParam.DST_1 + k, ROW_BITS) for k in range(WRITTEN_LOOPS)]

        # Whoever asks is an engine of two: restarts and written rows get registers of their own.
        restart, written_restart, written_wraps, written_line, written_step = (
            Signal(name=f"{name}_q")
            for name in (
                "restart",
                "written_restart",
                "written_wraps",
                "written_line",
                "written_step",
            )
        )
        m.d.sync += [
            restart.eq(self.restart),
            written_restart.eq(self.written_restart),
            written_line.eq(self.written_line),
            written_step.eq(self.written_restart | self.written_step | self.written_line),
            written_wraps.eq(self.written_restart | self.written_line),
        ]

        # A loop advances or wraps when all loops inside it are at their last value. They all are so
        # behind the last position, too: a restart is a step from there.
        step = self.step | restart
        for k, count in enumerate(counts):
            # what the loop's index will be next, counted from 1: so is compared ahead
            ahead = Signal(len(count), name=f"loop_{k}_ahead", init=2, reset_less=True)
            single = Signal(name=f"loop_{k}_single")
            last = Signal(name=f"loop_{k}_last", init=1)
            m.d.sync += single.eq(count == 1)
            with m.If(step & self.last[k + 1 :].all() if k + 1 < LOOPS else step):
                m.d.sync += ahead.eq(Mux(last, 2, ahead + 1))
                with m.If(restart):
                    m.d.sync += last.eq(single)
                with m.Elif(self.last.all()):
                    m.d.sync += last.eq(1)
                with m.Else():
                    m.d.sync += last.eq(Mux(last, single, ahead == count))
            m.d.comb += self.last[k].eq(last)
        tiles = parameter(GemmParam.N_K, TILE_COUNT_BITS)
        tile = Signal(TILE_COUNT_BITS, reset_less=True)
        with m.If(self.tile_restart):
            m.d.sync += tile.eq(1)
        with m.Elif(self.tile_step):
            m.d.sync += [tile.eq(tile + 1), self.last_tile.eq(tile == tiles)]
        m.d.comb += [
            self.written_still.eq(~written_strides[-1].any()),
        ]
        row, _ = _rows(m, "row", restart, base, strides, step, list(self.last))
        written, (next_line, _) = _rows(
            m,
            "written",
            written_restart,
            written_base,
            written_strides,
            written_step,
            [Const(0), written_wraps],
        )
        m.d.comb += [self.row.eq(row), self.written_row.eq(written)]
        with m.If(self.tile_restart):
            m.d.sync += self.lines_meet.eq(1)
        with m.Elif(written_line & ~written_restart):
            bits = self.written_bits
            m.d.sync += self.lines_meet.eq(next_line[:bits] == written[:bits])
        return m


def _rows(
    m: Module,
    name: str,
    restart: Value,
    base: Value,
    strides: list[Signal],
    step: Value,
    lasts: Sequence[Value],
) -> tuple[Value, list[Signal]]:
    """The row at the nest's position, and per loop the row at its next value.

    ``step`` advances the outermost loop inside which all loops are at their last value; all are
    with ``restart``, which comes with ``step``.
    """
    bits = len(base)
    row = Signal(bits, name=f"{name}_row", reset_less=True)
    starts = [Signal(bits, name=f"{name}_next_{k}", reset_less=True) for k in range(len(strides))]
    following = Signal(bits, name=f"{name}_following")
    chosen: Value = starts[0]
    for start, last in zip(starts[1:], lasts[1:], strict=True):
        chosen = Mux(last, chosen, start)
    m.d.comb += following.eq(Mux(restart, base, chosen))
    with m.If(step):
        m.d.sync += row.eq(following)
    for k, (start, stride) in enumerate(zip(starts, strides, strict=True)):
        with m.If(step & Cat(lasts[k + 1 :]).all()):
            m.d.sync += start.eq(following + stride)
    return row, starts
