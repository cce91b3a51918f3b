"""The matrix unit: streams input rows past stationary weight tiles and accumulates."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from accelc.hw.layouts import instruction_layout
from accelc.hw.loops import ROW_BITS, LoopNest, any_of
from accelc.hw.mac import MacArray
from accelc.hw.scratchpad import ACC_BITS, READ_CYCLES, AccRead, AccWrite, InpRead, WgtRead
from accelc.hw.weights import TILE_LOOPS, WeightSequencer
from accelc.isa.config import AccelConfig
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import INSTRUCTION_BITS, Opcode

ROW_LOOPS = {**TILE_LOOPS, "y": 12, "x": 12, "t": 8}
ROW_CHANNELS = {"inp": tuple(ROW_LOOPS), "acc": ("o", "y")}

#: Cycles from a row's issue to the array: address register, then the read.
ISSUE_TO_ARRAY = 1 + READ_CYCLES
#: A row must not read an accumulator that one of the last so many cycles' rows is still to write:
#: read, read register, addition, write.
HAZARD_CYCLES = READ_CYCLES + 1


class GemmUnit(wiring.Component):
    """Executes GEMM instructions, in order.

    Two sequencers share an instruction. The weight sequencer runs ahead, also into the next
    instruction, and fills the shadow tile; the row sequencer issues one input row a cycle, which
    after the read, the array and its adders meets the accumulator row it adds to. A row waits when
    its tile is not there yet or an earlier row in flight writes the accumulator row it reads.

    Throughput: a tile takes ``max(rows, block_out)`` cycles; about 4 cycles are lost between
    instructions whose rows hide the weights. Latency: ``MacArray.latency + 5`` cycles from a row's
    issue to its accumulator row being readable; ``block_out + 14`` from a lone instruction to its
    first issue.

    Members
    -------
    i : ``In(stream.Signature(unsigned(512)))``
        GEMM instructions; the dependency masks are not looked at.
    done : ``Out(1)``
        One pulse per instruction, in order: all its rows are written.
    busy : ``Out(1)``
        An instruction is being executed.
    error : ``Out(4)``
        An ``ErrorCode``; once nonzero, the unit stands still until it is reset.
    held : ``Out(1)``
        An instruction that was taken is being looked at; without ``config.lookahead``, where it
        lies at ``i``, whose payload must stay as it was.
    issue : ``Out(1)``
        A row was issued that makes the array compute.
    stall : ``Out(1)``
        A row was ready but waited for weights or an accumulator.
    inp_read, wgt_read, acc_read, acc_write : ``Out``
        Scratchpad ports; reads take two cycles.
    """

    i: stream.Interface
    done: Signal
    busy: Signal
    error: Signal
    held: Signal
    issue: Signal
    stall: Signal
    inp_read: wiring.PureInterface
    wgt_read: wiring.PureInterface
    acc_read: wiring.PureInterface
    acc_write: wiring.PureInterface

    def __init__(self, config: AccelConfig, *, array: MacArray | None = None) -> None:
        """Build the unit.

        Parameters
        ----------
        config
            Every width and depth.
        array
            The matrix array, if not the portable one: boards bring their own multipliers.
        """
        self.config = config
        self.array = MacArray(config) if array is None else array
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(INSTRUCTION_BITS))),
                "done": Out(1),
                "busy": Out(1),
                "error": Out(4),
                "held": Out(1),
                "issue": Out(1),
                "stall": Out(1),
                "inp_read": Out(InpRead(config)),
                "wgt_read": Out(WgtRead(config)),
                "acc_read": Out(AccRead(config)),
                "acc_write": Out(AccWrite(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        m.submodules.weights = weights = WeightSequencer(config)
        m.submodules.rows = rows = RowSequencer(config)
        m.submodules.array = array = self.array

        # An instruction waits here, checked, until both sequencers have taken it.
        layout = instruction_layout(Opcode.GEMM)
        fields = Signal(layout, reset_less=True) if config.lookahead else layout(self.i.payload)
        held, products_done, checked = self.held, Signal(), Signal()
        weights_taken, rows_taken = Signal(), Signal()
        running = self.error == ErrorCode.NONE
        m.d.comb += self.i.ready.eq(~held & running)
        accept = self.i.valid & self.i.ready
        with m.If(accept):
            m.d.sync += held.eq(1)
        if config.lookahead:
            # Not only when accepted, which is known too late for so many registers.
            with m.If(~held):
                m.d.sync += fields.eq(self.i.payload)

        taps = Signal(16, reset_less=True)
        empty, illegal = Signal(), Signal()
        counts = [fields.n_o, fields.n_k0, fields.n_k1, fields.n_k2, fields.n_y, fields.n_x]
        taps_mask = Signal(config.block_in)
        m.d.sync += [
            products_done.eq(held & ~products_done & ~checked),
            taps.eq(fields.first * fields.n_t),
            empty.eq(any_of(*(count == 0 for count in counts))),
        ]
        if config.window:
            # a zero factor makes the product zero; a zero step would fire for ever
            taps_bad = (taps == 0) | (taps > config.block_in) | (fields.step == 0)
            m.d.comb += illegal.eq(fields.window & taps_bad)
            m.d.sync += taps_mask.eq(
                Cat(~fields.window | (taps > j) for j in range(config.block_in))
            )
        else:
            m.d.comb += illegal.eq(fields.window)
            m.d.comb += taps_mask.eq((1 << config.block_in) - 1)
        with m.If(products_done & running):
            with m.If(illegal):
                m.d.sync += self.error.eq(ErrorCode.ILLEGAL_FIELD)
            with m.Else():
                m.d.sync += [checked.eq(1), weights_taken.eq(empty), rows_taken.eq(0)]

        m.d.comb += [
            weights.start.eq(checked & ~weights_taken),
            weights.mask.eq(taps_mask),
            weights.params.base.wgt.eq(fields.wgt),
            rows.i.valid.eq(checked & ~rows_taken),
            rows.i.payload.empty.eq(empty),
            rows.i.payload.fields.eq(fields),
        ]
        for loop in TILE_LOOPS:
            m.d.comb += [
                weights.params.count[loop].eq(fields[f"n_{loop}"]),
                weights.params.stride.wgt[loop].eq(fields[f"wgt_{loop}"]),
            ]
        with m.If(weights.start):
            m.d.sync += weights_taken.eq(1)
        with m.If(rows.i.valid & rows.i.ready):
            m.d.sync += rows_taken.eq(1)
        with m.If(checked & weights_taken & rows_taken & weights.idle):
            m.d.sync += [checked.eq(0), held.eq(0)]

        # Weights to array.
        wiring.connect(m, wiring.flipped(self.wgt_read), weights.wgt_read)
        m.d.comb += [
            array.shadow_en.eq(weights.shadow_en),
            array.shadow_row.eq(weights.shadow_row),
            array.shadow_data.eq(weights.shadow_data),
        ]

        # Issue.
        row = rows.o.payload
        go = Signal()
        m.d.comb += [
            go.eq(rows.o.valid & ~rows.hazard & (~row.swap | weights.ready) & running),
            rows.o.ready.eq(go & ~row.out_of_range),
            weights.take.eq(go & row.swap & ~row.out_of_range),
            self.issue.eq(rows.o.ready & row.fire),
            self.stall.eq(rows.o.valid & ~go & running),
        ]
        with m.If(running & (weights.range_error | (go & row.out_of_range))):
            m.d.sync += self.error.eq(ErrorCode.ROW_OUT_OF_RANGE)

        # Down the pipeline; stage s holds what belongs to a row s cycles after its issue.
        sums_at = ISSUE_TO_ARRAY + array.latency
        flags = [Signal(FLAGS, name=f"flags_{s}") for s in range(sums_at + 2)]
        addresses = [
            Signal(ceil_log2(config.acc_rows), name=f"acc_row_{s}", reset_less=True)
            for s in range(sums_at + 2)
        ]
        m.d.comb += [
            flags[0].read.eq(row.read & rows.o.ready),
            flags[0].fire.eq(row.fire & rows.o.ready),
            flags[0].adds.eq(row.fire & ~row.clear & rows.o.ready),
            flags[0].swap.eq(row.swap & rows.o.ready),
            flags[0].last.eq(row.last & rows.o.ready),
            flags[0].clear.eq(row.clear),
            flags[0].window.eq(row.window),
            addresses[0].eq(row.acc),
        ]
        for s in range(sums_at + 1):
            m.d.sync += [flags[s + 1].eq(flags[s]), addresses[s + 1].eq(addresses[s])]
        inp_row = Signal(ceil_log2(config.inp_rows), reset_less=True)
        with m.If(flags[0].read):
            m.d.sync += inp_row.eq(row.inp)
        m.d.comb += [self.inp_read.en.eq(flags[1].read), self.inp_read.addr.eq(inp_row)]

        at_array = flags[ISSUE_TO_ARRAY]
        m.d.comb += [
            array.row_en.eq(at_array.read),
            array.row.eq(self.inp_read.data),
            array.window.eq(at_array.window),
            array.fire.eq(at_array.fire),
            array.swap.eq(at_array.swap),
        ]

        # Read, add, write back.
        read_at = sums_at - READ_CYCLES
        m.d.comb += [
            self.acc_read.en.eq(flags[read_at].adds),
            self.acc_read.addr.eq(addresses[read_at]),
        ]
        totals: list[Signal] = []
        for lane in range(config.batch * config.block_out):
            total = Signal(signed(ACC_BITS), name=f"total_{lane}", reset_less=True)
            before = self.acc_read.data.word_select(lane, ACC_BITS).as_signed()
            with m.If(array.sums_valid):
                # where a sum starts anew nothing was read: the scratchpad says zero
                m.d.sync += total.eq(before + array.sums[lane])
            totals.append(total)
        m.d.comb += [
            self.acc_write.en.eq(flags[sums_at + 1].fire),
            self.acc_write.addr.eq(addresses[sums_at + 1]),
            self.acc_write.data.eq(Cat(totals)),
        ]
        m.d.sync += self.done.eq(flags[sums_at + 1].last)

        # More instructions than pipeline stages can not be in flight.
        in_flight = Signal(range(sums_at + 8))
        m.d.sync += in_flight.eq(in_flight + accept - self.done)
        m.d.comb += self.busy.eq(in_flight != 0)
        return m


#: What of a row travels down the pipeline beside its accumulator address.
FLAGS = data.StructLayout(
    {"read": 1, "fire": 1, "adds": 1, "swap": 1, "last": 1, "clear": 1, "window": 1}
)


def row_layout(config: AccelConfig) -> data.StructLayout:
    """One input row on its way to the array.

    ``read``: the row is to be read; ``fire``: sums are to be computed; ``swap``: it is the first of
    its tile; ``clear``: the sums replace the accumulator; ``last``: it ends its instruction.
    """
    return data.StructLayout(
        {
            "inp": ceil_log2(config.inp_rows),
            "acc": ceil_log2(config.acc_rows),
            "read": 1,
            "fire": 1,
            "swap": 1,
            "clear": 1,
            "window": 1,
            "last": 1,
            "out_of_range": 1,
        }
    )


class RowSequencer(wiring.Component):
    """Turns a checked GEMM into rows, one a cycle, and finds their accumulator hazards.

    An empty instruction becomes one position that only has ``last``. The first row comes 6 cycles
    after the instruction; 3 cycles are lost between instructions.

    Members
    -------
    i : ``In(stream.Signature({"empty": 1, "fields": GEMM}))``
    o : ``Out(stream.Signature(row_layout))``
    hazard : ``Out(1)``
        The row at ``o`` reads an accumulator that a row taken in the last three cycles writes.
    """

    i: stream.Interface
    o: stream.Interface
    hazard: Signal

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        instruction = data.StructLayout({"empty": 1, "fields": instruction_layout(Opcode.GEMM)})
        super().__init__(
            {
                "i": In(stream.Signature(instruction)),
                "o": Out(stream.Signature(row_layout(config))),
                "hazard": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        m.submodules.nest = nest = LoopNest(ROW_LOOPS, ROW_CHANNELS)
        advance = Signal()
        m.d.comb += [advance.eq(~self.o.valid | self.o.ready), nest.o.ready.eq(advance)]

        # The instruction whose positions are being generated.
        fields = self.i.payload.fields
        params = Signal(nest.params_layout, reset_less=True)
        acc_x = Signal(ROW_BITS, reset_less=True)
        first, step = Signal(8, reset_less=True), Signal(8, reset_less=True)
        window, accumulate, empty = Signal(), Signal(), Signal()
        starting = Signal()
        free = nest.idle & ~starting
        m.d.comb += [
            self.i.ready.eq(free & (~nest.o.valid | advance)),
            nest.start.eq(starting),
            nest.single.eq(empty),
            nest.params.eq(params),
        ]
        m.d.sync += starting.eq(self.i.valid & self.i.ready)
        # While the nest needs none, its parameters may be anything: they do not wait for `ready`.
        with m.If(free):
            m.d.sync += [params.base.inp.eq(fields.inp), params.base.acc.eq(fields.acc)]
            m.d.sync += [
                params.stride[channel][loop].eq(fields[f"{channel}_{loop}"])
                for channel, loops in ROW_CHANNELS.items()
                for loop in loops
            ]
            m.d.sync += [
                params.count[loop].eq(fields[f"n_{loop}"]) for loop in ROW_LOOPS if loop != "t"
            ]
            m.d.sync += params.count.t.eq(Mux(fields.window, fields.n_t, 1))
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                acc_x.eq(fields.acc_x),
                first.eq(fields.first),
                step.eq(fields.step),
                window.eq(fields.window if config.window else 0),
                accumulate.eq(fields.accumulate),
                empty.eq(self.i.payload.empty),
            ]

        # Stage "next": the accumulator row advances per column, in window mode per firing.
        position = nest.o.payload
        entered = position.entered
        new_tile = any_of(entered.start, *(entered[loop] for loop in TILE_LOOPS))
        new_line = new_tile | entered.y
        nxt = Signal(
            data.StructLayout(
                {
                    "valid": 1,
                    "inp": ROW_BITS,
                    "acc": ROW_BITS,
                    "until_fire": 8,
                    "window": 1,
                    "column_ends": 1,
                    "first_step": 1,
                    "accumulate": 1,
                    "new_tile": 1,
                    "empty": 1,
                    "last": 1,
                }
            )
        )
        fired = ~window | (nxt.until_fire == 0)
        with m.If(advance):
            m.d.sync += nxt.valid.eq(nest.o.valid)
            with m.If(nest.o.valid):
                m.d.sync += [
                    nxt.inp.eq(position.row.inp),
                    nxt.window.eq(window),
                    nxt.column_ends.eq(position.last.t),
                    nxt.accumulate.eq(accumulate),
                    nxt.new_tile.eq(new_tile),
                    nxt.empty.eq(empty),
                    nxt.last.eq(position.last.as_value().all()),
                ]
                with m.If(entered.start | entered.o):
                    m.d.sync += nxt.first_step.eq(1)
                with m.Elif(new_tile):
                    m.d.sync += nxt.first_step.eq(0)
                with m.If(new_line):
                    m.d.sync += [nxt.acc.eq(position.row.acc), nxt.until_fire.eq(first - 1)]
                with m.Elif(entered.x):
                    m.d.sync += nxt.until_fire.eq(Mux(fired, step, nxt.until_fire) - 1)
                    with m.If(fired):
                        m.d.sync += nxt.acc.eq(nxt.acc + acc_x)

        # Stage "o": ready to issue.
        row = self.o.payload
        inp_bits, acc_bits = len(row.inp), len(row.acc)
        fire = Signal()
        clear = nxt.first_step & ~nxt.accumulate
        m.d.comb += fire.eq(~nxt.empty & (~nxt.window | (nxt.column_ends & (nxt.until_fire == 0))))
        with m.If(advance):
            m.d.sync += self.o.valid.eq(nxt.valid)
            with m.If(nxt.valid):
                m.d.sync += [
                    row.inp.eq(nxt.inp),
                    row.acc.eq(nxt.acc),
                    row.read.eq(~nxt.empty),
                    row.fire.eq(fire),
                    row.swap.eq(nxt.new_tile & ~nxt.empty),
                    row.clear.eq(clear),
                    row.window.eq(nxt.window),
                    row.last.eq(nxt.last),
                    row.out_of_range.eq(
                        (nxt.inp[inp_bits:].any() & ~nxt.empty) | (nxt.acc[acc_bits:].any() & fire)
                    ),
                ]

        # Hazards, found a cycle ahead: against the rows that will have been taken by then.
        taken = self.o.valid & self.o.ready
        recent: list[tuple[Value, Value]] = [(taken & row.fire, row.acc)]
        for cycle in range(1, HAZARD_CYCLES):
            writes, acc = Signal(name=f"writes_{cycle}"), Signal(acc_bits, name=f"acc_{cycle}")
            m.d.sync += [writes.eq(recent[-1][0]), acc.eq(recent[-1][1])]
            recent.append((writes, acc))

        def collides(reads: Value, acc: Value, others: list[tuple[Value, Value]]) -> Value:
            return reads & any_of(*(writes & (acc == other) for writes, other in others))

        with m.If(advance):
            m.d.sync += self.hazard.eq(
                collides(nxt.valid & fire & ~clear, nxt.acc[:acc_bits], recent)
            )
        with m.Else():
            m.d.sync += self.hazard.eq(collides(row.fire & ~row.clear, row.acc, recent[1:]))
        return m
