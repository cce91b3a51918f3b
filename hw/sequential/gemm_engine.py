"""The matrix engine: one reduction loop of weight tiles over the inner loops of GEMM."""

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from accelc.hw.scratchpad import ACC_BITS, AccRead, AccWrite, InpRead
from accelc.hw.sequential.array import SequentialArray, loads
from accelc.hw.sequential.links import AddressPort, ArrayPort, WeightRead
from accelc.hw.sequential.scratchpad import READ_CYCLES
from accelc.isa.config import AccelConfig


class GemmEngine(wiring.Component):
    """Loads a weight tile, streams its rows past it, and so on to the last tile.

    There is one tile in the array: the next one is read when the last row of its predecessor is on
    its way. A row that reads the accumulator which the row before it writes waits a cycle: read,
    addition and write take one.

    Cycles: one per row, one per load but the first of a tile, two more per start before the first
    row; from the last row's issue to idle ``array.latency + 3``.

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
    array : ``Out(ArrayPort(array))``
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

    def __init__(self, config: AccelConfig, array: SequentialArray) -> None:
        self.config = config
        self._array = array
        super().__init__(
            {
                "start": In(1),
                "idle": Out(1),
                "range_error": Out(1),
                "issue": Out(1),
                "addresses": Out(AddressPort()),
                "array": Out(ArrayPort(array)),
                "inp_read": Out(InpRead(config)),
                "wgt_read": Out(WeightRead(array)),
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
        sums_at = at_array + self._array.latency
        read_at = sums_at - READ_CYCLES

        halted = self.range_error
        idle = Signal(init=1, name="idle_state")
        loading, running = Signal(name="loading"), Signal(name="running")
        first_tile = Signal()
        m.d.comb += self.idle.eq(idle)

        # What is in flight, by cycles since its issue: whether it fires, and ends a line;
        # likewise a tile's beginning, and whether it adds.
        fires = [Signal(name=f"fires_{s}") for s in range(sums_at + 1)]
        ends_line = [Signal(name=f"ends_line_{s}") for s in range(read_at)]
        restarts = [Signal(name=f"restart_{s}") for s in range(read_at + 2)]
        adds = [Signal(name=f"adds_{s}") for s in range(read_at + 2)]
        for flow in (fires, ends_line, restarts, adds):
            m.d.sync += [new.eq(old) for old, new in zip(flow, flow[1:], strict=False)]

        # Weights. The next row may be issued when the array is full by the time it gets there.
        last_load = loads(config, self._array.rows_per_load) - 1
        restart_load = min(max(last_load - 1, 0) + self._array.settle_cycles, last_load)
        load = Signal(range(last_load + 1))
        load_en = Signal()
        load_part = Signal.like(load)
        m.d.sync += [load_en.eq(loading), load_part.eq(load)]
        m.d.comb += [
            self.wgt_read.en.eq(loading),
            self.wgt_read.addr.eq(Cat(load, addresses.table)),
            array.load_en.eq(load_en),
            array.load_part.eq(load_part),
            array.load_data.eq(self.wgt_read.data),
            array.window.eq(window),
            array.mask.eq(Cat(taps > j for j in range(config.block_in))),
            addresses.restart.eq(restarts[0]),
            addresses.tile_restart.eq(self.start),
            # as soon as what this tile needs is taken: in good time for the next
            addresses.tile_step.eq(restarts[1]),
            addresses.table_step.eq(loading & (load == last_load)),
            addresses.written_restart.eq(restarts[read_at]),
        ]

        # Rows. What is compared is compared a cycle ahead.
        _, line_ends, column_ends, _ = addresses.last
        fire = Signal()
        if config.window:
            ahead, target = Signal(8, reset_less=True), Signal(8, reset_less=True)
            fired, due = Signal(name="fired"), Signal(name="due")
            due_first, due_always = Signal(name="due_first"), Signal(name="due_always")
            m.d.sync += [
                due_first.eq(~window | (first == 1)),
                due_always.eq(~window | (step_columns == 1)),
            ]
            m.d.comb += fire.eq(column_ends & due)
            begins_line = restarts[1] | line_ends
            with m.If(restarts[1] | (addresses.step & column_ends)):
                has_fired = ~begins_line & (fired | due)
                m.d.sync += [
                    target.eq(Mux(has_fired, step_columns, first)),
                    ahead.eq(Mux(begins_line | due, 2, ahead + 1)),
                    fired.eq(has_fired),
                    due.eq(Mux(begins_line, due_first, Mux(due, due_always, ahead == target))),
                ]
        else:
            m.d.comb += fire.eq(column_ends)
        accumulates = ~(clear & first_tile)
        still, lines_meet = Signal(name="still"), Signal(name="lines_meet")
        m.d.sync += [
            still.eq(accumulates & addresses.written_still),
            lines_meet.eq(accumulates & addresses.lines_meet),
        ]
        advance, ends, runs_on = Signal(), Signal(), Signal()
        hazard = fires[0] & (still | (ends_line[0] & lines_meet))
        m.d.comb += [
            ends.eq(advance & addresses.last.all()),
            runs_on.eq(~halted & (restarts[1] | (running & ~ends))),
        ]
        m.d.sync += advance.eq(runs_on & ~hazard)
        row_en = Signal()
        m.d.sync += row_en.eq(advance)
        m.d.comb += [
            addresses.step.eq(advance),
            adds[0].eq(accumulates),
            fires[0].eq(advance & fire),
            ends_line[0].eq(advance & line_ends & column_ends),
            self.issue.eq(fires[0]),
            self.inp_read.en.eq(running),
            self.inp_read.addr.eq(addresses.row),
            array.row_en.eq(row_en),
            array.row.eq(self.inp_read.data),
        ]
        # Add. By the time a tile's first row is here, all sums of the tile before are written.
        added = Signal()
        written = Signal(len(self.acc_write.addr), reset_less=True)
        with m.If(restarts[read_at + 1]):
            m.d.sync += added.eq(adds[read_at])
        m.d.sync += written.eq(addresses.written_row)
        before = self.acc_read.data
        totals = [
            Mux(
                added,
                before.word_select(lane, ACC_BITS).as_signed() + array.sums[lane],
                array.sums[lane],
            )[:ACC_BITS]
            for lane in range(config.block_out)
        ]
        m.d.comb += [
            addresses.written_step.eq(fires[read_at - 1]),
            addresses.written_line.eq(ends_line[read_at - 1]),
            self.acc_read.en.eq(fires[read_at] & added),
            self.acc_read.addr.eq(addresses.written_row),
            self.acc_write.en.eq(fires[sums_at]),
            self.acc_write.addr.eq(written),
            self.acc_write.data.eq(Cat(totals)),
        ]

        # What comes next: as plain functions, since enables and resets are longer ways.
        begins = self.start | (ends & ~addresses.last_tile)
        m.d.comb += restarts[0].eq(loading & (load == restart_load - 1) if restart_load else begins)
        m.d.sync += [
            loading.eq(~halted & (begins | (loading & ~addresses.table_step))),
            load.eq(Mux(loading, load + 1, 0)),
            running.eq(runs_on),
            first_tile.eq(self.start | (first_tile & ~ends)),
            idle.eq(~self.start & (idle | ~(loading | running | halted | Cat(fires[1:]).any()))),
        ]

        beyond = (
            (loading & addresses.table[ceil_log2(config.wgt_rows) :].any())
            | (running & addresses.row[len(self.inp_read.addr) :].any())
            | (fires[read_at] & addresses.written_row[len(self.acc_read.addr) :].any())
        )
        with m.If(beyond):
            m.d.sync += self.range_error.eq(1)
        return m
