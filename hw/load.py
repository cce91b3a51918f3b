"""LOAD: strided memory to scratchpads, padded on the way."""

from amaranth.hdl import Cat, Const, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.arbiter import read_beat_layout
from accelc.hw.dma import BURST, BurstSplitter, RunGenerator
from accelc.hw.fifo import Fifo
from accelc.hw.layouts import (
    ScratchWrite,
    instruction_layout,
    row_beats_log2,
)
from accelc.hw.receiver import LENGTHS, LoadReceiver, job_layout
from accelc.isa.config import AccelConfig
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import INSTRUCTION_BITS, Buffer, Opcode


class Load(wiring.Component):
    """The LOAD unit: asks for an instruction's data, and a receiver behind it takes them.

    Up to ``queue_depth`` instructions are between the two, so that addresses of later instructions
    leave while data of earlier ones arrive.

    Throughput: one beat per cycle, also from instruction to instruction. Latency: 7 cycles from the
    instruction to its first burst, 4 from its last beat to ``done``.

    Members
    -------
    memory_base, memory_bytes : In(32)
    i : In(stream of 512)
    done, busy : Out(1)
    error : Out(4)
        ErrorCode, held.
    ar : Out(stream of BURST)
    r : In(stream of read_beat_layout)
    scratch : Out(ScratchWrite) per buffer
    """

    memory_base: Signal
    memory_bytes: Signal
    i: stream.Interface
    done: Signal
    busy: Signal
    error: Signal
    ar: stream.Interface
    r: stream.Interface
    scratch: list[wiring.PureInterface]

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        super().__init__(
            {
                "memory_base": In(32),
                "memory_bytes": In(32),
                "i": In(stream.Signature(unsigned(INSTRUCTION_BITS))),
                "done": Out(1),
                "busy": Out(1),
                "error": Out(4),
                "ar": Out(stream.Signature(BURST)),
                "r": In(stream.Signature(read_beat_layout(config))),
                "scratch": Out(ScratchWrite(config)).array(len(Buffer)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.runs = runs = RunGenerator(config)
        m.submodules.bursts = bursts = BurstSplitter(config)
        layout = job_layout(config)
        m.submodules.jobs = jobs = Fifo(layout, depth=config.queue_depth)
        m.submodules.receiver = receiver = LoadReceiver(config)
        m.submodules.between = between = Fifo(runs.o.payload.shape(), depth=2)
        wiring.connect(m, runs.o, between.i)
        wiring.connect(m, between.o, bursts.i)
        wiring.connect(m, wiring.flipped(self.ar), bursts.o)
        # Neither side of the read channel waits for what the other finds out in the same cycle.
        m.submodules.beats = beats = Fifo(read_beat_layout(config), depth=2)
        wiring.connect(m, wiring.flipped(self.r), beats.i)
        wiring.connect(m, beats.o, receiver.r)
        wiring.connect(m, jobs.o, receiver.i)
        for outer, inner in zip(self.scratch, receiver.scratch, strict=True):
            wiring.connect(m, wiring.flipped(outer), inner)
        m.d.comb += [
            runs.memory_base.eq(self.memory_base),
            runs.memory_bytes.eq(self.memory_bytes),
            self.done.eq(receiver.done),
        ]

        # Stage 1: rows become beats, faults are found. The queue in front holds the instruction.
        fields = instruction_layout(Opcode.LOAD)(self.i.payload)
        valid1 = Signal()
        job1 = Signal(layout, reset_less=True)
        transfer1 = Signal(runs.i.payload.shape(), reset_less=True)
        leave1 = Signal()
        accept = Signal()
        m.d.comb += [
            # the queue needs longer than the cycle lost here for its next instruction
            self.i.ready.eq(~valid1),
            accept.eq(self.i.valid & self.i.ready),
        ]
        with m.If(accept | leave1):
            m.d.sync += valid1.eq(accept)
        fault1 = self._fault(m, fields, job1)
        has_data = Signal()
        has_planes = Signal()
        # Stage 1 takes whatever is there while it is empty: `accept` is known too late.
        m.d.comb += [
            has_data.eq((fields.n0 != 0) & (fields.n1 != 0)),
            has_planes.eq(
                (fields.n2 != 0)
                & (has_data | (fields.pad_left != 0) | (fields.pad_right != 0))
            ),
        ]  # fmt: skip
        with m.If(~valid1):
            m.d.sync += [
                job1.buffer.eq(fields.buffer),
                job1.pad_value.eq(fields.pad_value),
                job1.n1.eq(fields.n1),
                job1.n2.eq(fields.n2),
                job1.has_top.eq(fields.pad_top != 0),
                job1.has_left.eq(fields.pad_left != 0),
                job1.has_data.eq(has_data),
                job1.has_right.eq(fields.pad_right != 0),
                job1.has_bottom.eq(fields.pad_bottom != 0),
                job1.has_planes.eq(has_planes),
                transfer1.dram.eq(fields.dram),
                transfer1.n1.eq(fields.n1),
                transfer1.n2.eq(fields.n2),
                transfer1.stride1.eq(fields.stride1),
                transfer1.stride2.eq(fields.stride2),
            ]
            with m.Switch(fields.buffer):
                for buffer in Buffer:
                    with m.Case(buffer):
                        zeros = Const(0, row_beats_log2(config, buffer))
                        m.d.sync += [
                            job1.start.eq(Cat(zeros, fields.row)),
                            job1.top.eq(Cat(zeros, fields.pad_top)),
                            job1.left.eq(Cat(zeros, fields.pad_left)),
                            job1.run.eq(Cat(zeros, fields.n0)),
                            transfer1.beats.eq(Cat(zeros, fields.n0)),
                            job1.right.eq(Cat(zeros, fields.pad_right)),
                            job1.bottom.eq(Cat(zeros, fields.pad_bottom)),
                        ]

        # Stage 1 leaves to the receiver and, when it has data, to the addresses, both at once.
        moves = Signal()
        m.d.comb += [
            moves.eq(job1.has_data & job1.has_planes),
            leave1.eq(
                valid1 & (fault1 == ErrorCode.NONE) & jobs.i.ready & (runs.i.ready | ~moves)
            ),
            jobs.i.valid.eq(leave1),
            jobs.i.payload.eq(job1),
            *(jobs.i.payload[f"one_{name}"].eq(job1[name] == 1) for name in LENGTHS),
            runs.i.valid.eq(
                valid1 & (fault1 == ErrorCode.NONE) & jobs.i.ready & moves
            ),
            runs.i.payload.eq(transfer1),
            self.busy.eq(valid1 | jobs.o.valid | receiver.busy),
        ]  # fmt: skip

        with m.If(self.error == ErrorCode.NONE):
            with m.If(valid1 & (fault1 != ErrorCode.NONE)):
                m.d.sync += self.error.eq(fault1)
            with m.If(runs.error):
                m.d.sync += self.error.eq(ErrorCode.ADDRESS_OUT_OF_RANGE)
            with m.If(receiver.range_error):
                m.d.sync += self.error.eq(ErrorCode.ROW_OUT_OF_RANGE)
            with m.If(self.r.valid & self.r.ready & self.r.payload.resp[1]):
                m.d.sync += self.error.eq(ErrorCode.READ_RESPONSE)
        return m

    def _fault(self, m: Module, fields: data.View, job1: data.View) -> Signal:
        """The fault the accepted fields show on their own; rows are checked again when written.

        A length beyond the depth does not fit the receiver's counters. The comparisons are
        registered with the job, what they mean together is found from the registers.
        """
        config = self._config
        deep = {name: Signal(name=f"{name}_deep") for name in ("block", "plane", "run")}
        with m.Switch(fields.buffer):
            for buffer in Buffer:
                with m.Case(buffer):
                    depth = config.rows(buffer)
                    block = Cat(n > depth for n in (fields.row, fields.pad_top, fields.pad_bottom))
                    plane = Cat(n > depth for n in (fields.pad_left, fields.pad_right))
                    m.d.comb += [
                        deep["block"].eq(block.any()),
                        deep["plane"].eq(plane.any()),
                        deep["run"].eq(fields.n0 > depth),
                    ]
        single1, runs1, planes1 = Signal(), Signal(), Signal()
        deep1 = {name: Signal(name=f"{name}_deep1") for name in deep}
        with m.If(self.i.ready):
            m.d.sync += [deep1[name].eq(signal) for name, signal in deep.items()]
            m.d.sync += [
                single1.eq((fields.n0 == 1) & (fields.n1 == 1) & (fields.n2 == 1)),
                runs1.eq(fields.n1 != 0),
                planes1.eq(fields.n2 != 0),
            ]

        padded1 = job1.has_top | job1.has_left | job1.has_right | job1.has_bottom
        fault1 = Signal(4)
        with m.If(deep1["block"] | (planes1 & (deep1["plane"] | (deep1["run"] & runs1)))):
            m.d.comb += fault1.eq(ErrorCode.ROW_OUT_OF_RANGE)
        with m.Switch(job1.buffer):
            with m.Case(Buffer.INP, Buffer.VIN):
                pass
            with m.Case(Buffer.WGT, Buffer.PRM):
                with m.If(padded1):
                    m.d.comb += fault1.eq(ErrorCode.ILLEGAL_FIELD)
            with m.Case(Buffer.LUT):
                with m.If(padded1 | ~single1 | (not config.lut)):
                    m.d.comb += fault1.eq(ErrorCode.ILLEGAL_FIELD)
            with m.Default():
                m.d.comb += fault1.eq(ErrorCode.ILLEGAL_FIELD)
        return fault1
