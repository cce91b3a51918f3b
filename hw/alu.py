"""The vector unit: accumulators and vectors to int8 rows, one chunk a cycle."""

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from accelc.hw.delay import Delay
from accelc.hw.layouts import ScratchWrite, instruction_layout
from accelc.hw.loops import LoopNest, any_of
from accelc.hw.requantize import SETTINGS, Flow, Requantize, ScaledAdd
from accelc.hw.scratchpad import (
    ACC_BITS,
    READ_CYCLES,
    AccChunkRead,
    OutWrite,
    PrmRead,
    VinRead,
    row_chunks,
)
from accelc.isa.config import LUT_ENTRIES, AccelConfig
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import INSTRUCTION_BITS, Opcode, Source

#: Loop: field of its count. Chunks of a row are a loop inside the rows, around the window.
COUNTS = {"i0": "n0", "i1": "n1", "i2": "n2", "ky": "n_ky", "kx": "n_kx"}
STRIDES = {
    "src": {"i0": "src_0", "i1": "src_1", "i2": "src_2", "ky": "src_ky", "kx": "src_kx"},
    "vin": {"i0": "vin_0", "i1": "vin_1", "i2": "vin_2"},
    "dst": {"i0": "dst_0", "i1": "dst_1", "i2": "dst_2"},
    "prm": {"i0": "prm_0"},
}
#: Instructions whose rows may be in the pipeline at the same time: as many as settings are kept.
BANKS = 2


class AluUnit(wiring.Component):
    """Executes ALU instructions, in order.

    A sequencer issues one read a cycle; a pipeline that never waits does the rest. With
    ``source = vin`` a chunk takes ``n_ky * n_kx`` cycles, and one more with ``add``, because
    ``vin`` has one read port; with ``source = acc`` it takes one.

    Throughput as above, about 4 cycles lost between instructions. Two instructions at most are in
    the pipeline, so that of instructions with fewer reads than it has stages two take as long as
    one. Latency from issue to the cycle that writes the chunk: ``latency``.

    Members
    -------
    i : ``In(stream.Signature(unsigned(512)))``
        ALU instructions; the dependency masks are not looked at.
    done : ``Out(1)``
        One pulse per instruction, in order: all its rows are written.
    busy : ``Out(1)``
        An instruction is being executed.
    error : ``Out(4)``
        An ``ErrorCode``; once nonzero, the unit stands still until it is reset.
    held : ``Out(1)``
        An instruction that was taken is being looked at; without ``config.lookahead``, where it
        lies at ``i``, whose payload must stay as it was.
    acc_read, vin_read, prm_read, out_write : ``Out``
        Scratchpad ports; reads take two cycles.
    lut_write : ``In(ScratchWrite)``
        Writes the look-up table, which lies in this unit; ignored without ``config.lut``.
    """

    i: stream.Interface
    done: Signal
    busy: Signal
    error: Signal
    held: Signal
    acc_read: wiring.PureInterface
    vin_read: wiring.PureInterface
    prm_read: wiring.PureInterface
    out_write: wiring.PureInterface
    lut_write: wiring.PureInterface

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        self.requantize = Requantize(config)
        self.scaled_add = ScaledAdd(config) if config.add else None
        self.lookup = Lookup(config) if config.lut else None
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(INSTRUCTION_BITS))),
                "done": Out(1),
                "busy": Out(1),
                "error": Out(4),
                "held": Out(1),
                "acc_read": Out(AccChunkRead(config)),
                "vin_read": Out(VinRead(config)),
                "prm_read": Out(PrmRead(config)),
                "out_write": Out(OutWrite(config)),
                "lut_write": In(ScratchWrite(config)),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a chunk's issue to the cycle that writes it."""
        stages = [self.requantize, self.scaled_add, self.lookup]
        return READ_CYCLES + 1 + sum(stage.latency for stage in stages if stage is not None)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        m.submodules.reads = reads = ReadSequencer(config)

        # An instruction waits here, checked, until the sequencer has taken it.
        layout = instruction_layout(Opcode.ALU)
        fields = Signal(layout, reset_less=True) if config.lookahead else layout(self.i.payload)
        held, checked, empty = self.held, Signal(), Signal()
        # `error` is still 0; a register of its own, because every issue waits for it
        running = Signal(init=1)
        accept = self.i.valid & self.i.ready
        m.d.comb += self.i.ready.eq(~held & running)
        with m.If(accept):
            m.d.sync += held.eq(1)
        if config.lookahead:
            # Not only when accepted, which is known too late for so many registers.
            with m.If(~held):
                m.d.sync += fields.eq(self.i.payload)
        from_acc = fields.source == Source.ACC
        no_window = (fields.n_ky == 0) | (fields.n_kx == 0)
        one_tap = (fields.n_ky == 1) & (fields.n_kx == 1)
        illegal = no_window | (from_acc & (~fields.scale | ~one_tap))
        if not config.add:
            illegal = illegal | fields.add
        if not config.lut:
            illegal = illegal | fields.lut
        with m.If(held & ~checked & running):
            with m.If(illegal):
                m.d.sync += [self.error.eq(ErrorCode.ILLEGAL_FIELD), running.eq(0)]
            with m.Else():
                m.d.sync += checked.eq(1)
                m.d.sync += empty.eq(any_of(fields.n0 == 0, fields.n1 == 0, fields.n2 == 0))

        # The arithmetic's settings, one bank per instruction in the pipeline.
        settings = Signal(data.ArrayLayout(SETTINGS, BANKS), reset_less=True)
        bank = Signal(range(BANKS))
        started = Signal(range(BANKS + 1))
        start = Signal()
        m.d.comb += [
            reads.i.valid.eq(checked & (started != BANKS)),
            reads.i.payload.empty.eq(empty),
            reads.i.payload.bank.eq(bank),
            reads.i.payload.fields.eq(fields),
            start.eq(reads.i.valid & reads.i.ready),
        ]
        m.d.sync += started.eq(started + start - self.done)
        with m.If(start):
            m.d.sync += [bank.eq(bank + 1), held.eq(0), checked.eq(0)]
        # Before the start already: the bank is free, and registers do not wait for `ready`.
        with m.If(reads.i.valid):
            for index in range(BANKS):
                with m.If(bank == index):
                    m.d.sync += _load_settings(settings[index], fields)
        m.d.comb += self.busy.eq(held | (started != 0))

        # Issue.
        m.d.comb += [
            self.acc_read.en.eq(reads.acc_en & running),
            self.acc_read.addr.eq(reads.acc_addr),
            reads.enable.eq(running),
            self.vin_read.en.eq(reads.vin_en),
            self.vin_read.addr.eq(reads.vin_addr),
            self.prm_read.en.eq(reads.prm_en),
            self.prm_read.addr.eq(reads.prm_addr),
        ]
        with m.If(reads.out_of_range & running):
            m.d.sync += [self.error.eq(ErrorCode.ROW_OUT_OF_RANGE), running.eq(0)]

        # Data arrive; stage s holds what belongs to a read s cycles after its issue.
        issued = [Signal(ISSUE, name=f"issue_{s}") for s in range(READ_CYCLES + 2)]
        m.d.comb += issued[0].eq(reads.issue)
        m.d.sync += [new.eq(old) for old, new in zip(issued, issued[1:], strict=False)]
        arrived = issued[READ_CYCLES]
        lanes = config.vector_lanes
        operands = [Signal(signed(ACC_BITS), name=f"x_{n}", reset_less=True) for n in range(lanes)]
        for lane, x in enumerate(operands):
            acc = self.acc_read.data.word_select(lane, ACC_BITS).as_signed()
            v = self.vin_read.data.word_select(lane, 8).as_signed()
            with m.If(arrived.read):
                with m.If(arrived.from_acc):
                    m.d.sync += x.eq(acc)
                with m.Elif(arrived.first_tap | (v > x[:8].as_signed())):
                    m.d.sync += x.eq(v)

        m.submodules.requantize = requantize = self.requantize
        m.d.comb += [
            requantize.en.eq(issued[READ_CYCLES + 1].complete),
            requantize.bank.eq(issued[READ_CYCLES + 1].bank),
            requantize.params_en.eq(arrived.params),
            requantize.params.eq(self.prm_read.data),
            requantize.scale.eq(arrived.scale),
            requantize.settings.eq(settings),
        ]
        m.d.comb += [requantize.x[lane].eq(x) for lane, x in enumerate(operands)]
        valid, bank_o, o = requantize.o_valid, requantize.o_bank, requantize.o

        if self.scaled_add is not None:
            m.submodules.scaled_add = scaled_add = self.scaled_add
            second = self._second_operand(m, issued, requantize.latency)
            m.d.comb += [
                scaled_add.en.eq(valid),
                scaled_add.bank.eq(bank_o),
                scaled_add.settings.eq(settings),
            ]
            for lane in range(lanes):
                m.d.comb += [
                    scaled_add.x[lane].eq(o[lane]),
                    scaled_add.v[lane].eq(second.word_select(lane, 8)),
                ]
            valid, bank_o, o = scaled_add.o_valid, scaled_add.o_bank, scaled_add.o
        if self.lookup is not None:
            m.submodules.lookup = lookup = self.lookup
            wiring.connect(m, wiring.flipped(self.lut_write), lookup.write)
            m.d.comb += [
                lookup.en.eq(valid),
                lookup.bank.eq(bank_o),
                lookup.settings.eq(settings),
            ]
            m.d.comb += [new.eq(old) for new, old in zip(lookup.x, o, strict=True)]
            valid, o = lookup.o_valid, lookup.o

        # Destinations and ends of instructions keep the pipeline company.
        m.submodules.destination = destination = Delay(len(self.out_write.addr), self.latency)
        m.d.comb += destination.i.eq(reads.dst_addr)
        last: Value = reads.issue.last
        for s in range(self.latency):
            last_q = Signal(name=f"last_{s}")
            m.d.sync += last_q.eq(last)
            last = last_q
        m.d.comb += [
            self.out_write.en.eq(valid),
            self.out_write.addr.eq(destination.o),
            self.out_write.data.eq(Cat(o)),
        ]
        m.d.sync += self.done.eq(last)
        return m

    def _second_operand(self, m: Module, issued: list[data.View], cycles: int) -> Value:
        """The second operand's chunk, delayed to meet the result of the requantization.

        It arrives with the first operand if that is an accumulator, else one cycle later.
        """
        early = Signal(self.config.vector_lanes * 8, reset_less=True)
        arrived, operand = issued[READ_CYCLES], issued[READ_CYCLES + 1]
        with m.If(arrived.complete & arrived.add & arrived.from_acc):
            m.d.sync += early.eq(self.vin_read.data)
        m.submodules.second = second = Delay(len(early), cycles)
        m.d.comb += second.i.eq(Mux(operand.from_acc, early, self.vin_read.data))
        return second.o


#: What of a read travels to the data: ``complete``, it is the last of a chunk's window; ``params``,
#: parameters were read with it; ``last``, it ends its instruction.
ISSUE = data.StructLayout(
    {
        "read": 1,
        "complete": 1,
        "first_tap": 1,
        "params": 1,
        "last": 1,
        "from_acc": 1,
        "scale": 1,
        "add": 1,
        "bank": 1,
    }
)


def _load_settings(settings: data.View, fields: data.View) -> list[Value]:
    """Statements that fill one bank of settings; a stage that is off becomes the identity."""
    add = fields.add
    values = {
        "a_parity": fields.scale & fields.a_inside & fields.a_zero[0],
        "a_zero": Mux(fields.scale, fields.a_zero, 0),
        # limits in the wrong order: the upper one wins
        "a_min": Mux(fields.a_min > fields.a_max, fields.a_max, fields.a_min),
        "a_max": fields.a_max,
        "m1": Mux(add, fields.m1, 1),
        "m2": Mux(add, fields.m2, 0),
        "offset": Mux(add, fields.offset, 0),
        "b_shift": Mux(add, fields.b_shift, 0),
        "b_zero": Mux(add, fields.b_zero, 0),
        "b_min": Mux(
            add, Mux(fields.b_min > fields.b_max, fields.b_max, fields.b_min), Const(-128, 8)
        ),
        "b_max": Mux(add, fields.b_max, Const(127, 8)),
        "lut": fields.lut,
    }
    return [settings[name].eq(value) for name, value in values.items()]


class ReadSequencer(wiring.Component):
    """Turns a checked ALU instruction into scratchpad reads, one a cycle.

    An empty instruction becomes one position that only has ``last``. The first read comes 5 cycles
    after the instruction; 3 cycles are lost between instructions.

    Members
    -------
    i : ``In(stream.Signature({"empty": 1, "bank": 1, "fields": ALU}))``
    enable : ``In(1)``
        0 stops issuing.
    acc_en, acc_addr, vin_en, vin_addr, prm_en, prm_addr : ``Out``
        As the scratchpads' read ports have them.
    dst_addr : ``Out``
        Destination of the chunk, with ``issue``.
    issue : ``Out(ISSUE)``
        All zero unless a position is issued in this cycle. Of an operand that is read from ``vin``
        in a second cycle nothing is told: it follows.
    out_of_range : ``Out(1)``
        The next position has a row beyond a scratchpad; it is not issued.
    """

    i: stream.Interface
    enable: Signal
    acc_en: Signal
    acc_addr: Signal
    vin_en: Signal
    vin_addr: Signal
    prm_en: Signal
    prm_addr: Signal
    dst_addr: Signal
    issue: data.View
    out_of_range: Signal

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        self.chunk_bits = ceil_log2(row_chunks(config))
        self.part_bits = ceil_log2(config.block_out // config.vector_lanes)
        instruction = data.StructLayout(
            {"empty": 1, "bank": 1, "fields": instruction_layout(Opcode.ALU)}
        )
        super().__init__(
            {
                "i": In(stream.Signature(instruction)),
                "enable": In(1),
                "acc_en": Out(1),
                "acc_addr": Out(ceil_log2(config.acc_rows) + self.chunk_bits),
                "vin_en": Out(1),
                "vin_addr": Out(ceil_log2(config.vin_rows) + self.chunk_bits),
                "prm_en": Out(1),
                "prm_addr": Out(ceil_log2(config.prm_rows) + self.part_bits),
                "dst_addr": Out(ceil_log2(config.out_rows) + self.chunk_bits),
                "issue": Out(ISSUE),
                "out_of_range": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        loops = {"i0": 12, "i1": 12, "i2": 12, "chunk": self.chunk_bits + 1, "ky": 8, "kx": 8}
        channels = {name: tuple(strides) for name, strides in STRIDES.items()}
        m.submodules.nest = nest = LoopNest(loops, {**channels, "chunk": ("chunk",)})
        fields = self.i.payload.fields
        valid, taken = Signal(), Signal()
        advance = Signal()
        m.d.comb += [advance.eq(~valid | taken), nest.o.ready.eq(advance)]

        # The instruction whose positions are being generated.
        params = Signal(nest.params_layout, reset_less=True)
        flags = Signal(data.StructLayout({"from_acc": 1, "scale": 1, "add": 1, "bank": 1}))
        empty, starting = Signal(), Signal()
        take = self.i.valid & self.i.ready
        free = nest.idle & ~starting
        m.d.comb += [
            self.i.ready.eq(free & (~nest.o.valid | advance)),
            nest.start.eq(starting),
            nest.single.eq(empty),
            nest.params.eq(params),
            nest.params.count.chunk.eq(row_chunks(config)),
            nest.params.base.chunk.eq(0),
            nest.params.stride.chunk.chunk.eq(1),
        ]
        m.d.sync += starting.eq(take)
        # While the nest needs none, its parameters may be anything: they do not wait for `ready`.
        with m.If(free):
            m.d.sync += [params.count[loop].eq(fields[name]) for loop, name in COUNTS.items()]
            m.d.sync += [params.base[channel].eq(fields[channel]) for channel in STRIDES]
            m.d.sync += [
                params.stride[channel][loop].eq(fields[name])
                for channel, strides in STRIDES.items()
                for loop, name in strides.items()
            ]
        with m.If(take):
            m.d.sync += [
                flags.from_acc.eq(fields.source == Source.ACC),
                flags.scale.eq(fields.scale),
                flags.add.eq(fields.add if config.add else 0),
                flags.bank.eq(self.i.payload.bank),
                empty.eq(self.i.payload.empty),
            ]

        # One position, ready to issue.
        position = nest.o.payload
        rows = position.row
        entered = position.entered
        depths = {
            "acc": config.acc_rows,
            "vin": config.vin_rows,
            "dst": config.out_rows,
            "prm": config.prm_rows,
        }
        bits = {name: ceil_log2(depth) for name, depth in depths.items()}
        src = Signal(max(bits["acc"], bits["vin"]), reset_less=True)
        vin, dst, prm = (
            Signal(bits[name], name=name, reset_less=True) for name in ("vin", "dst", "prm")
        )
        chunk = Signal(self.chunk_bits, reset_less=True)
        now = Signal(ISSUE)
        read_params, out_of_range, two_cycles = Signal(), Signal(), Signal()
        first_tap = ~any_of(entered.ky, entered.kx)
        new_params = first_tap if self.part_bits else any_of(entered.start, entered.i0)
        src_beyond = Mux(
            flags.from_acc, rows.src[bits["acc"] :].any(), rows.src[bits["vin"] :].any()
        )
        beyond = any_of(
            src_beyond,
            flags.add & rows.vin[bits["vin"] :].any(),
            rows.dst[bits["dst"] :].any(),
            flags.scale & rows.prm[bits["prm"] :].any(),
        )
        complete = position.last.ky & position.last.kx & ~empty
        with m.If(advance):
            m.d.sync += valid.eq(nest.o.valid)
            with m.If(nest.o.valid):
                m.d.sync += [
                    src.eq(rows.src),
                    vin.eq(rows.vin),
                    dst.eq(rows.dst),
                    prm.eq(rows.prm),
                    chunk.eq(rows.chunk),
                    now.read.eq(~empty),
                    now.complete.eq(complete),
                    two_cycles.eq(complete & flags.add & ~flags.from_acc),
                    now.first_tap.eq(first_tap),
                    # without scale nothing is read, but neutral parameters are loaded
                    now.params.eq(new_params & ~empty),
                    read_params.eq(new_params & flags.scale & ~empty),
                    now.last.eq(position.last.as_value().all()),
                    now.from_acc.eq(flags.from_acc & ~empty),
                    now.scale.eq(flags.scale),
                    now.add.eq(flags.add),
                    now.bank.eq(flags.bank),
                    out_of_range.eq(beyond & ~empty),
                ]

        # ``vin`` has one port: a first operand from there puts the second off to another cycle.
        second = Signal()
        issue = Signal()
        m.d.comb += [
            self.out_of_range.eq(valid & out_of_range),
            issue.eq(valid & self.enable & ~second & ~out_of_range),
            self.acc_en.eq(issue & now.from_acc),
            taken.eq(second | (issue & ~two_cycles)),
            self.issue.eq(Mux(issue, now, 0)),
            self.prm_en.eq(issue & read_params),
            self.vin_en.eq(second | (issue & now.read & (~now.from_acc | now.add))),
            self.acc_addr.eq(Cat(chunk, src[: bits["acc"]])),
            self.vin_addr.eq(Cat(chunk, Mux(second | now.from_acc, vin, src[: bits["vin"]]))),
            self.prm_addr.eq(Cat(chunk[: self.part_bits], prm)),
            self.dst_addr.eq(Cat(chunk, dst)),
        ]
        m.d.sync += second.eq(issue & two_cycles)
        return m


class Lookup(wiring.Component):
    """Replaces int8 values by their table entries, or lets them pass.

    One copy of the table per lane. Throughput one row a cycle, ``latency`` cycles: memory, its
    register, choice of the byte.

    Members
    -------
    write : ``In(ScratchWrite)``
        Entries in memory order: entry ``i`` is the image of ``i - 128``.
    en, bank : ``In(1)``
    x : ``In(signed(8)).array(lanes)``
    settings : ``In(ArrayLayout(SETTINGS, 2))``
    o_valid : ``Out(1)``
    o : ``Out(signed(8)).array(lanes)``
    """

    latency = READ_CYCLES + 1

    write: wiring.PureInterface
    en: Signal
    bank: Signal
    x: list[Signal]
    settings: data.View
    o_valid: Signal
    o: list[Signal]

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        super().__init__(
            {
                "write": In(ScratchWrite(config)),
                "en": In(1),
                "bank": In(1),
                "x": In(signed(8)).array(config.vector_lanes),
                "settings": In(data.ArrayLayout(SETTINGS, 2)),
                "o_valid": Out(1),
                "o": Out(signed(8)).array(config.vector_lanes),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        flow = Flow(m, self.en, self.bank, self.settings)
        enabled = flow.setting("lut", 2)
        flow.extend(self.latency)
        byte_bits = ceil_log2(config.bus_bytes)
        for lane in range(config.vector_lanes):
            ram = memory.Memory(
                shape=config.bus_bytes * 8, depth=LUT_ENTRIES // config.bus_bytes, init=[]
            )
            m.submodules[f"table_{lane}"] = ram
            write, read = ram.write_port(), ram.read_port()
            index = Signal(8, name=f"index_{lane}")
            x, x_q = (Signal(8, name=f"{n}_{lane}", reset_less=True) for n in ("x", "x_q"))
            entries = Signal(config.bus_bytes * 8, name=f"entries_{lane}", reset_less=True)
            m.d.comb += [
                # x + 128
                index.eq(self.x[lane].as_unsigned() ^ 0x80),
                write.addr.eq(self.write.addr),
                write.data.eq(self.write.data),
                write.en.eq(self.write.en),
                read.addr.eq(index[byte_bits:]),
                read.en.eq(self.en),
            ]
            with m.If(flow.valid[0]):
                m.d.sync += x.eq(self.x[lane])
            with m.If(flow.valid[1]):
                m.d.sync += [x_q.eq(x), entries.eq(read.data)]
            byte = Cat(x_q[:7], ~x_q[7])[:byte_bits]
            with m.If(flow.valid[2]):
                m.d.sync += self.o[lane].eq(Mux(enabled, entries.word_select(byte, 8), x_q))
        m.d.comb += self.o_valid.eq(flow.valid[-1])
        return m
