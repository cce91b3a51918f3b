"""The instruction queue of a unit: beats in, whole instructions out."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from accelc.hw.layouts import used_bits
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.spec import INSTRUCTION_BITS, Opcode


class InstructionQueue(wiring.Component):
    """Holds ``queue_depth`` instructions of one opcode, and one more assembled at the output.

    Instructions arrive as bus beats and are stored as such, so that the storage is one narrow block
    RAM instead of 512 bits of registers per entry; the beats above the opcode's last field are
    dropped (fetch has checked that they are zero). The next instruction is assembled while the unit
    runs the one before.

    Throughput: a beat in every cycle; an instruction out every ``beats + 2`` cycles, ``beats``
    being those the opcode uses. Latency: 3 cycles from the last beat in to ``o.valid``.

    Members
    -------
    i : In(stream of bus_bytes * 8)
        The beats of every instruction, all of them.
    o : Out(stream of 512)
        Instructions in order.
    empty : Out(1)
        Nothing is stored or on its way to the output.
    """

    i: stream.Interface
    o: stream.Interface
    empty: Signal

    def __init__(self, config: AccelConfig, opcode: Opcode) -> None:
        self._beat_bits = config.bus_bytes * 8
        self._beats = INSTRUCTION_BYTES // config.bus_bytes
        #: Beats that hold fields.
        self.kept = -(-used_bits(opcode) // self._beat_bits)
        self._depth = config.queue_depth * self.kept
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(self._beat_bits))),
                "o": Out(stream.Signature(unsigned(INSTRUCTION_BITS))),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.storage = storage = Memory(
            shape=unsigned(self._beat_bits), depth=self._depth, init=[]
        )
        write = storage.write_port()
        read = storage.read_port()
        level = Signal(range(self._depth + 1))

        def advance(pointer: Signal) -> list:
            return [pointer.eq(Mux(pointer == self._depth - 1, 0, pointer + 1))]

        # Write side: of every instruction keep the first beats.
        index = Signal(range(self._beats))
        keep = Signal()
        pushed = Signal()
        m.d.comb += [
            keep.eq(index < self.kept),
            self.i.ready.eq((level != self._depth) | ~keep),
            pushed.eq(self.i.valid & self.i.ready & keep),
            write.en.eq(pushed),
            write.data.eq(self.i.payload),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += index.eq(index + 1)
        with m.If(pushed):
            m.d.sync += advance(write.addr)

        # Read side: `asked` beats were read from the memory, each arrives a cycle later.
        asked = Signal(range(self.kept + 1))
        arriving = Signal()
        held = Signal(range(self.kept + 1))
        taken = Signal()
        popped = Signal()
        assembled = Signal(self.kept * self._beat_bits, reset_less=True)
        m.d.comb += [
            self.o.valid.eq(held == self.kept),
            taken.eq(self.o.valid & self.o.ready),
            popped.eq((level != 0) & (taken | (asked != self.kept))),
            read.en.eq(popped),
            self.o.payload.eq(assembled),
            self.empty.eq((level == 0) & (asked == 0) & ~arriving & (held == 0)),
        ]
        m.d.sync += arriving.eq(popped)
        with m.If(popped):
            m.d.sync += advance(read.addr)
        with m.If(taken):
            m.d.sync += [asked.eq(popped), held.eq(0)]
        with m.Else():
            m.d.sync += asked.eq(asked + popped)
            with m.If(arriving):
                m.d.sync += held.eq(held + 1)
        with m.If(arriving):
            m.d.sync += assembled.eq(Cat(assembled, read.data)[self._beat_bits :])
        m.d.sync += level.eq(level + pushed - popped)
        return m
