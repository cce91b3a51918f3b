"""STORE: rows of ``out`` to strided memory."""

from amaranth.hdl import Cat, Const, Module, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.hw.dma import BURST, BurstSplitter, RunGenerator, transfer_layout
from accelc.hw.fifo import Fifo
from accelc.hw.layouts import ScratchRead, beat_address_bits, instruction_layout
from accelc.hw.writer import WriteEngine, write_beat_layout
from accelc.isa.config import AccelConfig
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import INSTRUCTION_BITS, Opcode


class Store(wiring.Component):
    """The STORE unit: addresses run ahead of data, acknowledgements come behind.

    Throughput: one beat per cycle, also from instruction to instruction; up to ``queue_depth``
    instructions are in flight. Latency: 7 cycles from the instruction to its first burst; ``done``
    comes with the acknowledgement of its last.

    Members
    -------
    enable : In(1)
        Issue bursts; when low, those issued complete and write nothing.
    memory_base, memory_bytes : In(32)
    i : In(stream of 512)
    done, busy : Out(1)
    error : Out(4)
        ErrorCode, held.
    out_read : Out(ScratchRead)
    aw, w, b : AXI write channels
    beat : Out(1)
        A beat was written.
    idle : Out(1)
        No burst is outstanding on the bus.
    """

    enable: Signal
    memory_base: Signal
    memory_bytes: Signal
    i: stream.Interface
    done: Signal
    busy: Signal
    error: Signal
    out_read: wiring.PureInterface
    aw: stream.Interface
    w: stream.Interface
    b: stream.Interface
    beat: Signal
    idle: Signal

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        super().__init__(
            {
                "enable": In(1),
                "memory_base": In(32),
                "memory_bytes": In(32),
                "i": In(stream.Signature(unsigned(INSTRUCTION_BITS))),
                "done": Out(1),
                "busy": Out(1),
                "error": Out(4),
                "out_read": Out(ScratchRead(config)),
                "aw": Out(stream.Signature(BURST)),
                "w": Out(stream.Signature(write_beat_layout(config))),
                "b": In(stream.Signature(unsigned(2))),
                "beat": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        row_beats = exact_log2(config.vec_row_bytes // config.bus_bytes)
        start_bits = beat_address_bits(config)
        m.submodules.runs = runs = RunGenerator(config)
        m.submodules.bursts = bursts = BurstSplitter(config)
        m.submodules.engine = engine = WriteEngine(config)
        m.submodules.starts = starts = Fifo(unsigned(start_bits), depth=config.queue_depth)
        m.submodules.between = between = Fifo(runs.o.payload.shape(), depth=2)
        wiring.connect(m, runs.o, between.i)
        wiring.connect(m, between.o, bursts.i)
        wiring.connect(m, bursts.o, engine.i)
        wiring.connect(m, starts.o, engine.i_start)
        wiring.connect(m, wiring.flipped(self.out_read), engine.scratch)
        wiring.connect(m, wiring.flipped(self.aw), engine.aw)
        wiring.connect(m, wiring.flipped(self.w), engine.w)
        wiring.connect(m, wiring.flipped(self.b), engine.b)
        m.d.comb += [
            runs.memory_base.eq(self.memory_base),
            runs.memory_bytes.eq(self.memory_bytes),
            engine.enable.eq(self.enable),
            engine.limit.eq(config.out_rows << row_beats),
            self.beat.eq(engine.beat),
            self.idle.eq(engine.idle),
        ]

        # Stage 1: rows become beats. The queue in front holds the instruction. The engine checks
        # every row; what does not fit its counters is refused here.
        fields = instruction_layout(Opcode.STORE)(self.i.payload)
        valid1 = Signal()
        empty1 = Signal(reset_less=True)
        beyond1 = Signal(reset_less=True)
        start1 = Signal(start_bits, reset_less=True)
        transfer1 = Signal(transfer_layout(config), reset_less=True)
        empty = Signal()
        leave1 = Signal()
        accept = Signal()
        zeros = Const(0, row_beats)
        m.d.comb += [
            empty.eq((fields.n0 == 0) | (fields.n1 == 0) | (fields.n2 == 0)),
            # the queue needs longer than the cycle lost here for its next instruction
            self.i.ready.eq(~valid1),
            accept.eq(self.i.valid & self.i.ready),
        ]
        with m.If(accept | leave1):
            m.d.sync += valid1.eq(accept)
        # Whatever is there, while stage 1 is empty: `accept` is known too late.
        with m.If(~valid1):
            m.d.sync += [
                empty1.eq(empty),
                beyond1.eq(
                    ~empty & ((fields.row >= config.out_rows) | (fields.n0 > config.out_rows))
                ),
                start1.eq(Cat(zeros, fields.row)),
                transfer1.dram.eq(fields.dram),
                transfer1.beats.eq(Cat(zeros, fields.n0)),
                transfer1.n1.eq(fields.n1),
                transfer1.n2.eq(fields.n2),
                transfer1.stride1.eq(fields.stride1),
                transfer1.stride2.eq(fields.stride2),
            ]

        # An empty instruction is done when all before it are.
        in_flight = Signal(range(config.queue_depth + 1))
        issue = Signal()
        skip = Signal()
        m.d.comb += [
            runs.i.valid.eq(valid1 & ~empty1 & ~beyond1 & (in_flight != config.queue_depth)),
            runs.i.payload.eq(transfer1),
            issue.eq(runs.i.valid & runs.i.ready),
            starts.i.valid.eq(issue),
            starts.i.payload.eq(start1),
            skip.eq(valid1 & empty1 & (in_flight == 0)),
            leave1.eq(issue | skip),
            self.done.eq(engine.acknowledged | skip),
            self.busy.eq(valid1 | (in_flight != 0)),
        ]
        m.d.sync += in_flight.eq(in_flight + issue - engine.acknowledged)

        with m.If(self.error == ErrorCode.NONE):
            with m.If((valid1 & beyond1) | engine.range_error):
                m.d.sync += self.error.eq(ErrorCode.ROW_OUT_OF_RANGE)
            with m.If(runs.error):
                m.d.sync += self.error.eq(ErrorCode.ADDRESS_OUT_OF_RANGE)
            with m.If(engine.response_error):
                m.d.sync += self.error.eq(ErrorCode.WRITE_RESPONSE)
        return m
