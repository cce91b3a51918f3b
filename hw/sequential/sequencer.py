"""A tiny microprogrammed processor: one accumulator, a register file in block RAM, jumps."""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Const, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from accelc.hw.sequential.assembler import TARGET_BITS, Microprogram
from accelc.hw.sequential.words import WORDS, Condition, Device, Operation

WORD_BITS = 16
_ADDRESS_BITS = ceil_log2(WORDS)
#: Conditions that depend on A or the carry, which the operation before may have changed.
_LATE = (Condition.ALWAYS, Condition.ZERO, Condition.CARRY)
_NEVER = 1 << 15 | 1 << 14


def WordStore() -> wiring.Signature:
    """A word of the register file is written at the clock edge, by byte lanes."""
    return wiring.Signature({"en": Out(2), "addr": Out(_ADDRESS_BITS), "data": Out(WORD_BITS)})


class Sequencer(wiring.Component):
    """Runs a :class:`Microprogram`, an operation a cycle; a jump that is taken costs three.

    Stage 0 reads the microprogram, stage 1 the register file, stage 2 acts: what a store changes is
    seen by the next operation but one, everything else by the next. The assembler knows this.
    Devices act a cycle after the store, and a jump asks what a condition was a cycle before it: two
    cycles after a store its own effects are seen.

    Members
    -------
    conditions : In(13)
        By ``Condition``; the sequencer's own are ignored.
    time, traffic : In(16)
        What ``stt`` and ``stb`` store.
    accumulator : Out(16)
    stored : Out(WordStore())
        What the microprogram wrote in the cycle before, for the devices.
    commands : Out(1)
        That was the mover's command.
    other : In(WordStore())
        Somebody else's writes, which are done in cycles in which
    other_ready : Out(1)
        is high.
    written : Out(WordStore())
        All writes of the register file.
    """

    conditions: Signal
    time: Signal
    traffic: Signal
    accumulator: Signal
    stored: wiring.PureInterface
    commands: Signal
    other: wiring.PureInterface
    other_ready: Signal
    written: wiring.PureInterface

    def __init__(self, program: Microprogram, contents: Sequence[int]) -> None:
        """Build the sequencer.

        Parameters
        ----------
        program
            What it runs from reset on.
        contents
            The register file at power-up, constants and all.
        """
        self.program = program
        self.contents = tuple(contents)
        super().__init__(
            {
                "conditions": In(len(Condition)),
                "time": In(WORD_BITS),
                "traffic": In(WORD_BITS),
                "accumulator": Out(WORD_BITS),
                "stored": Out(WordStore()),
                "commands": Out(1),
                "other": In(WordStore()),
                "other_ready": Out(1),
                "written": Out(WordStore()),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        pc = Signal(TARGET_BITS)
        taken = Signal()
        a, index = self.accumulator, Signal(_ADDRESS_BITS)

        # Stage 0: what was read in the cycle of a jump, and in that before, is not done.
        m.submodules.microprogram = rom = memory.Memory(
            shape=WORD_BITS, depth=1 << TARGET_BITS, init=self.program.words
        )
        fetch = rom.read_port()
        m.d.comb += fetch.addr.eq(pc)
        valid1, valid2 = Signal(), Signal()
        m.d.sync += [valid1.eq(~taken), valid2.eq(valid1 & ~taken)]

        # Stage 1: the register file. Jumps read whatever they name.
        word1 = Value.cast(fetch.data)
        address1 = Signal(_ADDRESS_BITS)
        m.d.comb += address1.eq(
            word1[:_ADDRESS_BITS] ^ (index & (word1[8] & ~word1[15]).replicate(_ADDRESS_BITS))
        )
        m.submodules.words = words = memory.Memory(shape=WORD_BITS, depth=WORDS, init=self.contents)
        read, write = words.read_port(), words.write_port(granularity=WORD_BITS // 2)
        m.d.comb += read.addr.eq(address1)
        address2 = Signal(_ADDRESS_BITS)
        code2 = Signal(WORD_BITS - _ADDRESS_BITS, init=_NEVER >> _ADDRESS_BITS)
        #: A store, or it would be one if it were done; early, because others wait for it.
        storing2 = Signal()
        m.d.sync += [
            address2.eq(address1),
            code2.eq(word1[_ADDRESS_BITS:]),
            storing2.eq(~word1[15] & Mux(word1[14], word1[9], word1[13] & ~word1[10])),
        ]
        word2 = Cat(address2, code2)

        # Stage 2.
        word, held = Value.cast(read.data), Signal(WORD_BITS)
        carry = Signal()
        is_jump, is_extraction = word2[15], ~word2[15] & word2[14]
        operation = word2[9:14]
        calculates = valid2 & ~word2[15] & (word2[14] | ~operation[4])
        stores = valid2 & storing2
        inverted = word ^ operation[2].replicate(WORD_BITS)
        addend = inverted & (a | ~operation[0].replicate(WORD_BITS))
        augend = a & operation[3].replicate(WORD_BITS)
        carry_in = Mux(operation[1], carry, operation[2])
        total = Signal(WORD_BITS + 2)
        m.d.comb += total.eq(Cat(Const(1, 1), augend) + Cat(carry_in, addend))
        extracted = Cat(held, word) >> word2[10:14]
        with m.If(calculates):
            m.d.sync += a.eq(Mux(is_extraction, extracted, total[1:]))
        with m.If(calculates & is_extraction):
            m.d.sync += held.eq(word)
        with m.If(calculates & ~is_extraction & operation[3]):
            m.d.sync += carry.eq(total[-1])

        # Jumps. What others know is looked up a cycle early, and so is which condition is asked
        # for: only what the operation before may have changed is left for the jump's own cycle.
        late: dict[Condition, Value] = {
            Condition.ZERO: ~a.any(),
            Condition.CARRY: carry,
        }
        assert {*late, Condition.ALWAYS} == set(_LATE)
        early = [
            self.conditions[k] if k < len(Condition) and k not in _LATE else Const(0)
            for k in range(16)
        ]
        early[Condition.ALWAYS] = Const(1)
        asks = {condition: Signal(name=f"asks_{condition.name.lower()}") for condition in late}
        is_late, returns, early2 = Signal(), Signal(), Signal()
        m.d.comb += [
            is_late.eq(Cat(word1[10:14] == condition for condition in late).any()),
            returns.eq(~word1[15] & ~word1[14] & word1[13] & word1[10]),
        ]
        jumps_early = word1[15] & ~is_late & (Array(early)[word1[10:14]] ^ word1[14])
        m.d.sync += early2.eq(jumps_early | returns)
        m.d.sync += [
            asked.eq(word1[15] & (word1[10:14] == condition)) for condition, asked in asks.items()
        ]
        jumps_late = [asks[condition] & (value ^ word2[14]) for condition, value in late.items()]
        m.d.comb += taken.eq(valid2 & (early2 | Cat(jumps_late).any()))
        m.d.sync += pc.eq(Mux(taken, Mux(is_jump, word2[:TARGET_BITS], a[:TARGET_BITS]), pc + 1))

        # Stores, and those of others in between.
        m.d.sync += [
            self.stored.en.eq(stores.replicate(2)),
            self.stored.addr.eq(address2),
            self.stored.data.eq(a),
            self.commands.eq(stores & (address2 == Device.MOVE)),
        ]
        m.d.comb += self.other_ready.eq(~storing2)
        with m.If(storing2):
            is_time, is_traffic = ~word2[14] & operation[0], ~word2[14] & operation[2]
            m.d.comb += [
                self.written.en.eq(valid2.replicate(2)),
                self.written.addr.eq(address2),
                self.written.data.eq(Mux(is_time, self.time, Mux(is_traffic, self.traffic, a))),
            ]
        with m.Else():
            m.d.comb += [
                self.written.en.eq(self.other.en),
                self.written.addr.eq(self.other.addr),
                self.written.data.eq(self.other.data),
            ]
        m.d.comb += [
            write.en.eq(self.written.en),
            write.addr.eq(self.written.addr),
            write.data.eq(self.written.data),
        ]
        with m.If(stores & (address2 == Device.INDEX)):
            m.d.sync += index.eq(a)
        return m


assert Operation.STORE_TIME & 1 and Operation.JUMP & 2 and Operation.STORE_TRAFFIC & 4
