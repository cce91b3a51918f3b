"""The instruction queue of a unit: beats in, whole instructions out."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from accelc.hw.layouts import used_bits
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.spec import INSTRUCTION_BITS, Opcode


class WordQueue(wiring.Component):
    """Holds ``depth`` words of ``beats`` beats each, and one more assembled at the output.

    Words arrive as beats and are stored as such, so that the storage is one narrow block RAM; only
    the first ``kept`` beats are stored. The next word is assembled while the one before is used.

    Throughput: a beat in every cycle; a word out every ``kept + 2`` cycles. Latency: 3 cycles from
    the last kept beat in to ``o.valid``.

    With ``reused`` the word at the output can stay in use after it was taken: the next one is not
    assembled over it while ``hold`` is high, from the cycle after the one that takes it.

    Members
    -------
    i : In(stream of beat_bits)
        The beats of every word, first beat first.
    o : Out(stream of word_bits)
        The words in order, first beat lowest, zeros above the kept ones.
    empty : Out(1)
        Nothing is stored or on its way to the output.
    hold : In(1)
        Only with ``reused``: keep the payload.
    """

    i: stream.Interface
    o: stream.Interface
    empty: Signal
    hold: Signal

    def __init__(
        self,
        *,
        beat_bits: int,
        beats: int,
        kept: int,
        depth: int,
        word_bits: int,
        reused: bool = False,
    ) -> None:
        self._beat_bits = beat_bits
        self._beats = beats
        self._kept = kept
        self._depth = depth * kept
        self._limit = self._depth
        self._reused = reused
        ports = {
            "i": In(stream.Signature(unsigned(beat_bits))),
            "o": Out(stream.Signature(unsigned(word_bits))),
            "empty": Out(1),
        }
        super().__init__(ports | {"hold": In(1)} if reused else ports)
        # The state, for the proof to refer to. `level`: beats in the storage; `asked`: beats of the
        # next word read from it, of which one is `arriving` and `held` are assembled.
        self.level = Signal(range(self._depth + 1))
        self.index = Signal(range(beats))
        self.asked = Signal(range(kept + 1))
        self.arriving = Signal()
        self.held = Signal(range(kept + 1))
        self.assembled = Signal(kept * beat_bits, reset_less=True)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.storage = Memory(shape=unsigned(self._beat_bits), depth=self._depth, init=[])
        m.submodules.storage = self.storage
        self.write = write = self.storage.write_port()
        self.read = read = self.storage.read_port()

        # Write side: of every word keep the first beats.
        keep = Signal()
        pushed = Signal()
        m.d.comb += [
            keep.eq(self.index < self._kept),
            self.i.ready.eq((self.level != self._limit) | ~keep),
            pushed.eq(self.i.valid & self.i.ready & keep),
            write.en.eq(pushed),
            write.data.eq(self.i.payload),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += self.index.eq(Mux(self.index == self._beats - 1, 0, self.index + 1))
        with m.If(pushed):
            m.d.sync += write.addr.eq(Mux(write.addr == self._depth - 1, 0, write.addr + 1))

        # Read side: a beat asked for arrives a cycle later.
        taken = Signal()
        popped = Signal()
        # Not in the cycle of `taken` already: much hangs on that, and it is known late.
        wanted = self.asked != self._kept
        if self._reused:
            wanted = wanted & ~self.hold
        m.d.comb += [
            self.o.valid.eq(self.held == self._kept),
            self.o.payload.eq(self.assembled),
            taken.eq(self.o.valid & self.o.ready),
            popped.eq((self.level != 0) & wanted),
            read.en.eq(popped),
            self.empty.eq((self.level == 0) & (self.asked == 0)),
        ]
        with m.If(popped):
            m.d.sync += read.addr.eq(Mux(read.addr == self._depth - 1, 0, read.addr + 1))
        with m.If(self.arriving):
            m.d.sync += self.assembled.eq(Cat(self.assembled, read.data)[self._beat_bits :])
        m.d.sync += [
            self.arriving.eq(popped),
            self.level.eq(self.level + pushed - popped),
            self.asked.eq(Mux(taken, 0, self.asked) + popped),
            self.held.eq(Mux(taken, 0, self.held + self.arriving)),
        ]
        return m


class InstructionQueue(WordQueue):
    """Holds ``queue_depth`` instructions of one opcode, and one more ready to start.

    Beats above the opcode's last field are dropped; fetch has checked that they are zero.
    """

    def __init__(self, config: AccelConfig, opcode: Opcode, *, reused: bool = False) -> None:
        beat_bits = config.bus_bytes * 8
        super().__init__(
            beat_bits=beat_bits,
            beats=INSTRUCTION_BYTES // config.bus_bytes,
            kept=-(-used_bits(opcode) // beat_bits),
            depth=config.queue_depth,
            word_bits=INSTRUCTION_BITS,
            reused=reused,
        )
