"""The matrix engine: one reduction loop of weight tiles over the inner loops of GEMM."""

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.mac import MacArray
from accelc.hw.scratchpad import ACC_BITS, AccRead, AccWrite, InpRead, WgtRead
from accelc.hw.sequential.links import AddressPort, ArrayPort
from accelc.hw.sequential.scratchpad import READ_CYCLES
from accelc.isa.config import AccelConfig

#: Rows that fire in consecutive cycles must not name the same accumulator: the addition has only
#: the cycle between its read and its write.
HAZARD_CYCLES = 1


class GemmEngine(wiring.Component):
    """Loads a weight tile, streams its rows past it, and so on to the last tile.

    There is one tile in the array: the next one is read when the last row of its predecessor is on
    its way. A row that reads the accumulator written by the row before it waits a cycle, and so
    does every first row of a line, which might.

    Cycles: ``block_out`` per tile, one per row, and about one per line. From the last row's issue
    to idle ``array.latency + 3``.

    Members
    -------
    start : ``In(1)``
        Only while ``idle``.
    idle : ``Out(1)``
        All sums are written.
    range_error : ``Out(1)``
        Held: a row lies beyond its scratchpad. The engine stands still.
    issue : ``Out(1)``
        A row was issued that makes the array compute.
    addresses : ``Out(AddressPort())``
        Flag 0: clear. Flag 1: window mode, with ``a_zero`` first, ``a_min`` step, ``a_max`` taps.
    array : ``Out(ArrayPort(config, array))``
    inp_read, wgt_read, acc_read, acc_write : ``Out``
        Scratchpad ports; reads take one cycle.
    """

    start: Signal
    idle: Signal
    range_error: Signal
    issue: Signal
    addresses: wiring.PureInterface
    array: wiring.PureInterface
    inp_read: wiring.PureInterface
    wgt_read: wiring.PureInterface
    acc_read: wiring.PureInterface
    acc_write: wiring.PureInterface

    def __init__(self, config: AccelConfig, array: MacArray) -> None:
        self.config = config
        self.array_latency = array.latency
        super().__init__(
            {
                "start": In(1),
                "idle": Out(1),
                "range_error": Out(1),
                "issue": Out(1),
                "addresses": Out(AddressPort()),
                "array": Out(ArrayPort(config, array)),
                "inp_read": Out(InpRead(config)),
                "wgt_read": Out(WgtRead(config)),
                "acc_read": Out(AccRead(config)),
                "acc_write": Out(AccWrite(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config, array, addresses = self.config, self.array, self.addresses
        clear = addresses.flags[0]
        window = addresses.flags[1] if config.window else Const(0)
        first, step_columns, taps = addresses.a_zero, addresses.a_min, addresses.a_max

        # Cycles after a row's issue: its data reach the array, the accumulator is read, the sums
        # are there and written.
        at_array = READ_CYCLES
        sums_at = at_array + self.array_latency
        read_at = sums_at - READ_CYCLES

        idle, loading, running = Signal(init=1), Signal(), Signal()
        first_tile, first_row = Signal(), Signal()
        m.d.comb += self.idle.eq(idle & ~self.range_error)

        # What is in flight, by cycles since its issue: whether it fires, and ends a line.
        fires = [Signal(name=f"fires_{s}") for s in range(sums_at + 1)]
        ends_line = [Signal(name=f"ends_line_{s}") for s in range(read_at + 1)]
        for flow in (fires, ends_line):
            m.d.sync += [new.eq(old) for old, new in zip(flow, flow[1:], strict=False)]
        to_read = Cat(*fires[1 : read_at + 1], *ends_line[1:]).any()
        in_flight = Cat(to_read, *fires[read_at + 1 :]).any()

        # Weights: one row of the tile a cycle, then wait until the written row may start again.
        o = Signal(range(config.block_out))
        read_all = Signal()
        reading = loading & ~read_all
        m.d.comb += [
            self.wgt_read.en.eq(reading),
            self.wgt_read.addr.eq(Cat(o, addresses.table)),
            addresses.restart.eq(loading & (read_all | (o == config.block_out - 1)) & ~to_read),
        ]
        arrived, arrived_o = Signal(), Signal.like(o)
        m.d.sync += [arrived.eq(reading), arrived_o.eq(o)]
        weights = self.wgt_read.data
        if config.window:
            mask = Cat((~window | (taps > j)).replicate(8) for j in range(config.block_in))
            weights = weights & mask
        m.d.comb += [
            array.shadow_en.eq(arrived),
            array.shadow_row.eq(arrived_o),
            array.shadow_data.eq(weights),
        ]

        # Rows.
        column_ends = addresses.last[2:].all()
        line_ends = addresses.last[1:].all()
        fire = Signal()
        new_line = Signal()
        if config.window:
            column, fired = Signal(8, reset_less=True), Signal(reset_less=True)
            due = column == Mux(fired, step_columns, first)
            m.d.comb += fire.eq(column_ends & (~window | due))
            with m.If(addresses.restart | (addresses.step & line_ends)):
                m.d.sync += [column.eq(1), fired.eq(0)]
            with m.Elif(addresses.step & column_ends):
                m.d.sync += column.eq(Mux(due, 1, column + 1))
                with m.If(due):
                    m.d.sync += fired.eq(1)
        else:
            m.d.comb += fire.eq(1)
        accumulates = Signal()
        hazard = (
            fire
            & accumulates
            & (new_line | addresses.written_still)
            & Cat(fires[1 : 1 + HAZARD_CYCLES]).any()
        )
        advance = running & ~hazard & ~self.range_error
        ends = advance & addresses.last.all()
        m.d.comb += [
            addresses.step.eq(advance),
            fires[0].eq(advance & fire),
            ends_line[0].eq(advance & line_ends),
            self.issue.eq(fires[0]),
            self.inp_read.en.eq(running),
            self.inp_read.addr.eq(addresses.row),
        ]
        with m.If(advance):
            m.d.sync += first_row.eq(0)
            with m.If(line_ends):
                m.d.sync += new_line.eq(1)
            with m.Elif(fire):
                m.d.sync += new_line.eq(0)

        row_en, swap = Signal(), Signal()
        m.d.sync += [row_en.eq(advance), swap.eq(advance & first_row)]
        m.d.comb += [
            array.row_en.eq(row_en),
            array.row.eq(self.inp_read.data),
            array.window.eq(window),
            array.fire.eq(fires[at_array]),
            array.swap.eq(swap),
        ]

        # Add.
        written = Signal(len(self.acc_write.addr), reset_less=True)
        m.d.sync += written.eq(addresses.written_row)
        before = self.acc_read.data
        totals = [
            Mux(
                accumulates,
                before.word_select(lane, ACC_BITS).as_signed() + array.sums[lane],
                array.sums[lane],
            )[:ACC_BITS]
            for lane in range(config.block_out)
        ]
        m.d.comb += [
            addresses.written_step.eq(fires[read_at]),
            addresses.written_line.eq(ends_line[read_at]),
            self.acc_read.en.eq(fires[read_at] & accumulates),
            self.acc_read.addr.eq(addresses.written_row),
            self.acc_write.en.eq(fires[sums_at]),
            self.acc_write.addr.eq(written),
            self.acc_write.data.eq(Cat(totals)),
        ]

        # What comes next.
        with m.If(self.start):
            m.d.comb += addresses.tile_restart.eq(1)
            m.d.sync += [idle.eq(0), loading.eq(1), first_tile.eq(1), o.eq(0), read_all.eq(0)]
        with m.If(reading):
            m.d.sync += o.eq(o + 1)
            with m.If(o == config.block_out - 1):
                m.d.sync += read_all.eq(1)
        with m.If(addresses.restart):
            m.d.sync += [loading.eq(0), running.eq(1), first_row.eq(1), new_line.eq(0)]
            # of the tile before, no row is left that would ask
            m.d.sync += accumulates.eq(~(clear & first_tile))
        with m.If(ends):
            m.d.sync += running.eq(0)
            with m.If(~addresses.last_tile):
                m.d.comb += addresses.tile_step.eq(1)
                m.d.sync += [loading.eq(1), first_tile.eq(0), o.eq(0), read_all.eq(0)]
        with m.If(~loading & ~running & ~self.start & ~in_flight & ~fires[0]):
            m.d.sync += idle.eq(1)

        beyond = (
            (reading & addresses.table[config.wgt_rows.bit_length() - 1 :].any())
            | (running & addresses.row[len(self.inp_read.addr) :].any())
            | (fires[read_at] & addresses.written_row[len(self.acc_read.addr) :].any())
        )
        with m.If(beyond):
            m.d.sync += self.range_error.eq(1)
        return m
