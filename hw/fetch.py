"""Reads the program, checks the parts all instructions share and fills the units' queues."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.hw.arbiter import read_beat_layout
from accelc.hw.axi import PAGE_BYTES
from accelc.hw.dma import BURST
from accelc.hw.fifo import Fifo
from accelc.hw.layouts import HEADER
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import (
    FIELDS,
    HEADER_BITS,
    HEADER_FIELDS,
    INSTRUCTION_BITS,
    INSTRUCTIONS,
    Opcode,
    Unit,
)

#: Instructions read ahead of the decoder.
PREFETCH = 8


def reserved_mask(opcode: Opcode) -> int:
    """The bits of an instruction that must be 0."""
    used = sum(((1 << spec.bits) - 1) << spec.offset for spec in (*HEADER_FIELDS, *FIELDS[opcode]))
    return (1 << INSTRUCTION_BITS) - 1 & ~used


def checked_layout(config: AccelConfig) -> data.StructLayout:
    """A beat of an instruction, where it goes, and what is wrong with it."""
    return data.StructLayout(
        {
            "beat": unsigned(config.bus_bytes * 8),
            "target": unsigned(len(Unit)),
            "last": unsigned(1),
            "finish": unsigned(1),
            # unknown opcode or a mask that must not be; one bit per byte with a reserved bit set
            "header": unsigned(1),
            "reserved": unsigned(config.bus_bytes),
        }
    )


class Fetch(wiring.Component):
    """Prefetches ``PREFETCH`` instructions in bursts of half as many and hands them out in order.

    Data are asked for only when there is room for them: fetch never makes the read channel wait.
    Instructions pass as beats; a full queue holds back all instructions behind it.

    Throughput: one beat per cycle. Latency: 7 cycles from the memory's beat to the queue.

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
        arrived = Signal()
        beat = Signal.like(self.r.payload, reset_less=True)
        m.d.sync += [arrived.eq(self.r.valid), beat.eq(self.r.payload)]
        m.d.comb += [
            prefetched.w_en.eq(arrived),
            prefetched.w_data.eq(beat.data),
            self.r.ready.eq(1),
            read_error.eq(arrived & beat.resp[1]),
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
            # without its sign: two equal bits would look like a loop to simulators
            self.ar.payload.len.eq((length - 1)[: len(length)]),
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
        """Take the beats of one instruction after the other, check them, pass them on.

        A queue of two on either side of the checks keeps their logic short.
        """
        width = self._config.bus_bytes * 8
        beats_per_instruction = INSTRUCTION_BYTES // self._config.bus_bytes
        m.submodules.staged = staged = Fifo(unsigned(width), depth=2)
        self.checked = Fifo(checked_layout(self._config), depth=2)
        m.submodules.checked = checked = self.checked
        m.d.comb += [
            staged.i.valid.eq(prefetched.r_rdy),
            staged.i.payload.eq(prefetched.r_data),
            prefetched.r_en.eq(staged.i.ready),
        ]

        # Which beat of which instruction; what is wrong with it. Nothing passes after FINISH.
        index = Signal(range(beats_per_instruction))
        opcode = Signal(HEADER["opcode"].width)
        current = Signal.like(opcode)
        allowed = Signal(width)
        stop = Signal()
        last = index == beats_per_instruction - 1
        beat = staged.o.payload
        header = HEADER(beat[:HEADER_BITS])
        m.d.comb += current.eq(Mux(index == 0, header.opcode, opcode))
        with m.Switch(current):
            for op in Opcode:
                with m.Case(op):
                    legal = ~reserved_mask(op)
                    slices = [
                        legal >> (i * width) & ((1 << width) - 1)
                        for i in range(beats_per_instruction)
                    ]
                    unit = INSTRUCTIONS[op].unit
                    own = (1 << len(Unit)) - 1 if unit is None else 1 << unit
                    masks = header.wait | header.signal
                    m.d.comb += [
                        allowed.eq(Array(Const(s, width) for s in slices)[index]),
                        checked.i.payload.header.eq((index == 0) & (masks & own).any()),
                        checked.i.payload.target.eq(0 if unit is None else own),
                    ]
            with m.Default():
                m.d.comb += checked.i.payload.header.eq(1)
        reserved = beat & ~allowed
        m.d.comb += [
            checked.i.payload.beat.eq(beat),
            checked.i.payload.reserved.eq(
                Cat(reserved.word_select(i, 8).any() for i in range(width // 8))
            ),
            checked.i.payload.last.eq(last),
            checked.i.payload.finish.eq(last & (current == Opcode.FINISH)),
            checked.i.valid.eq(staged.o.valid & ~stop),
            staged.o.ready.eq(checked.i.ready & ~stop),
        ]
        with m.If(self.error != ErrorCode.NONE):
            m.d.sync += stop.eq(1)
        with m.If(staged.o.valid & staged.o.ready):
            m.d.sync += [index.eq(Mux(last, 0, index + 1)), opcode.eq(current)]
            with m.If(checked.i.payload.finish):
                m.d.sync += stop.eq(1)

        # To the queues. What is bad stays where it is.
        bad = Signal()
        free = Signal()
        passed = Signal()
        head = checked.o.payload
        m.d.comb += [
            bad.eq(head.header | head.reserved.any()),
            free.eq((head.target & ~Cat(port.ready for port in self.o)) == 0),
            checked.o.ready.eq(free & ~bad),
            passed.eq(checked.o.valid & checked.o.ready),
        ]
        for unit in Unit:
            m.d.comb += [
                self.o[unit].payload.eq(head.beat),
                self.o[unit].valid.eq(checked.o.valid & ~bad & head.target[unit]),
            ]
        with m.If(checked.o.valid & bad & (self.error == ErrorCode.NONE)):
            m.d.sync += self.error.eq(ErrorCode.ILLEGAL_INSTRUCTION)

        handed = Signal(32)
        m.d.comb += self.fetched.eq(handed)
        with m.If(passed & head.last):
            m.d.sync += handed.eq(handed + 1)
        with m.If(passed & head.finish):
            m.d.sync += self.finished.eq(1)
        ended = self.enable & (handed == self.length) & ~self.finished
        with m.If(ended & (self.error == ErrorCode.NONE)):
            m.d.sync += self.error.eq(ErrorCode.MISSING_FINISH)
