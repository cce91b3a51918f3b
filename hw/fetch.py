"""Reads the program, checks the parts all instructions share and fills the units' queues."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.hw.arbiter import read_beat_layout
from accelc.hw.axi import PAGE_BYTES
from accelc.hw.dma import BURST
from accelc.hw.layouts import HEADER
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import FIELDS, HEADER_BITS, HEADER_FIELDS, INSTRUCTION_BITS, Opcode, Unit

#: Instructions read ahead of the decoder.
PREFETCH = 8


def reserved_mask(opcode: Opcode) -> int:
    """The bits of an instruction that must be 0."""
    used = sum(((1 << spec.bits) - 1) << spec.offset for spec in (*HEADER_FIELDS, *FIELDS[opcode]))
    return (1 << INSTRUCTION_BITS) - 1 & ~used


class Fetch(wiring.Component):
    """Prefetches ``PREFETCH`` instructions in bursts of half as many and hands them out in order.

    Data are asked for only when there is room for them: fetch never makes the read channel wait.
    Instructions pass as beats; a full queue holds back all instructions behind it.

    Throughput: one beat per cycle. Latency: 5 cycles from the memory's beat to the queue.

    Members
    -------
    enable : In(1)
        Run; the program's place must stand still meanwhile.
    address, length, memory_base, memory_bytes : In(32)
        The program (bytes, instructions) and the memory it lies in.
    ar : Out(stream of BURST)
    r : In(stream of read_beat_layout)
    o : Out(stream of bus_bytes * 8) per unit
    fetched : Out(24)
        Instructions handed out, FINISH included.
    finished : Out(1)
        FINISH was decoded; everything before it is in the queues.
    error : Out(4)
        ErrorCode, held.
    """

    enable: Signal
    address: Signal
    length: Signal
    memory_base: Signal
    memory_bytes: Signal
    ar: stream.Interface
    r: stream.Interface
    o: list[stream.Interface]
    fetched: Signal
    finished: Signal
    error: Signal

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        super().__init__(
            {
                "enable": In(1),
                "address": In(32),
                "length": In(32),
                "memory_base": In(32),
                "memory_bytes": In(32),
                "ar": Out(stream.Signature(BURST)),
                "r": In(stream.Signature(read_beat_layout(config))),
                "o": Out(stream.Signature(unsigned(config.bus_bytes * 8))).array(len(Unit)),
                "fetched": Out(24),
                "finished": Out(1),
                "error": Out(unsigned(4)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._config.bus_bytes * 8
        beats_per_instruction = INSTRUCTION_BYTES // self._config.bus_bytes
        m.submodules.prefetched = prefetched = SyncFIFOBuffered(
            width=width, depth=PREFETCH * beats_per_instruction
        )
        read_error = Signal()
        self._issue(m, prefetched)
        m.d.comb += [
            prefetched.w_en.eq(self.r.valid),
            prefetched.w_data.eq(self.r.payload.data),
            self.r.ready.eq(1),
            read_error.eq(self.r.valid & self.r.payload.resp[1]),
        ]
        with m.If(read_error & (self.error == ErrorCode.NONE)):
            m.d.sync += self.error.eq(ErrorCode.READ_RESPONSE)
        self._decode(m, prefetched)
        return m

    def _issue(self, m: Module, prefetched: SyncFIFOBuffered) -> None:
        """Check the program's place, then ask for it burst by burst."""
        beat_log2 = exact_log2(self._config.bus_bytes)
        beats_per_instruction = INSTRUCTION_BYTES // self._config.bus_bytes
        longest = min(
            self._config.max_burst_beats,
            PREFETCH // 2 * beats_per_instruction,
            PAGE_BYTES // self._config.bus_bytes,
        )
        longest_log2 = exact_log2(longest)

        addr = Signal(32, reset_less=True)
        left = Signal(32 + exact_log2(beats_per_instruction), reset_less=True)
        end = Signal(40, reset_less=True)
        #: Beats in the buffer or on their way.
        reserved = Signal(range(prefetched.depth + 1))
        length = Signal(range(longest + 1), reset_less=True)
        room = Signal(range(longest + 1))
        popped = Signal()
        grant = Signal()
        m.d.comb += [
            room.eq(longest - addr[beat_log2 : beat_log2 + longest_log2]),
            popped.eq(prefetched.r_rdy & prefetched.r_en),
            self.ar.payload.addr.eq(addr),
            self.ar.payload.len.eq(length - 1),
        ]
        m.d.sync += reserved.eq(reserved + Mux(grant, length, 0) - popped)
        with m.FSM():
            with m.State("idle"):
                m.d.sync += [
                    addr.eq(self.address + self.memory_base),
                    left.eq(Cat(Const(0, exact_log2(beats_per_instruction)), self.length)),
                    end.eq(self.address + Cat(Const(0, 6), self.length)),
                ]
                with m.If(self.enable):
                    m.next = "check"
            with m.State("check"):
                # The base is checked here for all units: they check what they add to it.
                odd = (self.address | self.memory_base)[:beat_log2].any()
                with m.If((odd | (end > self.memory_bytes)) & (self.error == ErrorCode.NONE)):
                    m.d.sync += self.error.eq(ErrorCode.ADDRESS_OUT_OF_RANGE)
                    m.next = "stopped"
                with m.Else():
                    m.next = "measure"
            with m.State("measure"):
                m.d.sync += length.eq(Mux(left < room, left, room))
                with m.If((left == 0) | self.finished | ~self.enable):
                    m.next = "stopped"
                with m.Elif(reserved <= prefetched.depth - longest):
                    m.next = "ask"
            with m.State("ask"):
                m.d.comb += [self.ar.valid.eq(1), grant.eq(self.ar.ready)]
                with m.If(grant):
                    m.d.sync += [
                        addr.eq(addr + Cat(Const(0, beat_log2), length)),
                        left.eq(left - length),
                    ]
                    m.next = "measure"
            with m.State("stopped"):
                pass

    def _decode(self, m: Module, prefetched: SyncFIFOBuffered) -> None:
        """Take the beats of one instruction after the other, check them, pass them on."""
        width = self._config.bus_bytes * 8
        beats_per_instruction = INSTRUCTION_BYTES // self._config.bus_bytes

        # Stage 0: a register behind the block RAM; which beat of which instruction.
        valid0 = Signal()
        beat0 = Signal(width, reset_less=True)
        index = Signal(range(beats_per_instruction))
        opcode = Signal(HEADER["opcode"].width)
        current = Signal.like(opcode)
        header = HEADER(beat0[:HEADER_BITS])
        step = Signal()
        m.d.comb += [
            current.eq(Mux(index == 0, header.opcode, opcode)),
            prefetched.r_en.eq(~valid0 | step),
        ]
        with m.If(prefetched.r_en):
            m.d.sync += [valid0.eq(prefetched.r_rdy), beat0.eq(prefetched.r_data)]

        # Stage 1: a beat and what may be wrong with it.
        valid1 = Signal()
        beat1 = Signal(width, reset_less=True)
        # one bit per byte in which a reserved bit is set
        reserved1 = Signal(width // 8, reset_less=True)
        last1 = Signal(reset_less=True)
        finish1 = Signal(reset_less=True)
        header1 = Signal(reset_less=True)
        target1 = Signal(len(Unit), reset_less=True)
        bad1 = Signal()
        passed = Signal()
        blocked = Signal()

        allowed = Signal(width)
        header_bad = Signal()
        target = Signal(len(Unit))
        with m.Switch(current):
            for op in (Opcode.LOAD, Opcode.GEMM, Opcode.ALU, Opcode.STORE, Opcode.FINISH):
                with m.Case(op):
                    legal = ~reserved_mask(op)
                    slices = [
                        legal >> (i * width) & ((1 << width) - 1)
                        for i in range(beats_per_instruction)
                    ]
                    m.d.comb += allowed.eq(Array(Const(s, width) for s in slices)[index])
                    own = 0b1111 if op == Opcode.FINISH else 1 << (op - Opcode.LOAD)
                    m.d.comb += header_bad.eq(((header.wait | header.signal) & own).any())
                    if op != Opcode.FINISH:
                        m.d.comb += target.eq(own)
            with m.Default():
                m.d.comb += header_bad.eq(1)
        m.d.comb += [
            blocked.eq((target1 & ~Cat(stream_.ready for stream_ in self.o)).any()),
            bad1.eq(valid1 & (header1 | reserved1.any())),
            passed.eq(valid1 & ~bad1 & ~blocked),
            step.eq(
                valid0 & ~self.finished & (~valid1 | passed)
                & ~(valid1 & last1 & finish1) & (self.error == ErrorCode.NONE)
            ),
        ]  # fmt: skip
        with m.If(step):
            m.d.sync += [
                index.eq(index + 1 if beats_per_instruction > 1 else 0),
                opcode.eq(current),
                beat1.eq(beat0),
                reserved1.eq(
                    Cat((beat0 & ~allowed).word_select(i, 8).any() for i in range(width // 8))
                ),
                last1.eq(index == beats_per_instruction - 1),
                finish1.eq(current == Opcode.FINISH),
                header1.eq((index == 0) & header_bad),
                target1.eq(target),
            ]
        with m.If(step | passed):
            m.d.sync += valid1.eq(step)
        for unit in Unit:
            m.d.comb += [
                self.o[unit].payload.eq(beat1),
                self.o[unit].valid.eq(valid1 & ~bad1 & target1[unit]),
            ]
        with m.If(bad1 & (self.error == ErrorCode.NONE)):
            m.d.sync += self.error.eq(ErrorCode.ILLEGAL_INSTRUCTION)
        handed = Signal(32)
        m.d.comb += self.fetched.eq(handed)
        with m.If(passed & last1):
            m.d.sync += handed.eq(handed + 1)
            with m.If(finish1):
                m.d.sync += self.finished.eq(1)
        ended = self.enable & (handed == self.length) & ~self.finished
        with m.If(ended & (self.error == ErrorCode.NONE)):
            m.d.sync += self.error.eq(ErrorCode.MISSING_FINISH)
