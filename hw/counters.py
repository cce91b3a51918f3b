"""Many wide event counters in one small memory."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2


class CounterBank(wiring.Component):
    """64-bit counters, each fed by an event that may come in every cycle.

    A counter is two words of a memory. A scanner visits one word a cycle, round and round, and adds
    what its event has gathered since the last visit; a read waits until the scanner comes by, and
    is exact then. One adder and one block RAM do for all.

    Throughput: an event per counter and cycle. Latency: ``2 * counters + 4`` cycles for a read at
    most.

    Members
    -------
    clear : In(1)
        Zero all counters; events of the same cycle are lost.
    events : In(counters)
        What happened in this cycle.
    ask : In(1)
        Read; held with ``word`` until ``found``.
    word : In(range(2 * counters))
        ``2 * counter + half``, half 0 the low one.
    found : Out(1)
        ``data`` is the word asked for, in this cycle.
    data : Out(32)
    """

    clear: Signal
    events: Signal
    ask: Signal
    word: Signal
    found: Signal
    data: Signal

    def __init__(self, weights: list[int]) -> None:
        """Build a bank.

        Parameters
        ----------
        weights
            Per counter, what one event adds, as a power of two.
        """
        self._weights = weights
        self._words = 2 * len(weights)
        super().__init__(
            {
                "clear": In(1),
                "events": In(len(weights)),
                "ask": In(1),
                "word": In(range(self._words)),
                "found": Out(1),
                "data": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = self._words
        m.submodules.memory = memory = Memory(shape=unsigned(32), depth=words, init=[])
        read, write = memory.read_port(), memory.write_port()

        # Stage 0 reads a word, stage 1 registers it, stage 2 adds and writes it.
        place0 = Signal(range(words))
        place1 = Signal(range(words))
        place2 = Signal(range(words))
        word2 = Signal(32)
        m.d.comb += read.addr.eq(place0)
        m.d.sync += [
            place0.eq(Mux(place0 == words - 1, 0, place0 + 1)),
            place1.eq(place0),
            place2.eq(place1),
        ]

        # Events since the scanner's last visit; they are taken when the low word passes
        # stage 1.
        gathered: list[Value] = []
        for index, weight in enumerate(self._weights):
            count = Signal(ceil_log2(words + 1), name=f"gathered{index}")
            visited = place1 == 2 * index
            with m.If(self.clear):
                m.d.sync += count.eq(0)
            with m.Else():
                m.d.sync += count.eq(Mux(visited, 0, count) + self.events[index])
            gathered.append(Cat(Const(0, weight), count))
        addend2 = Signal(max(len(value) for value in gathered))
        m.d.sync += addend2.eq(Mux(place1[0], 0, Array(gathered)[place1[1:]]))

        # The memory starts with anything: the first round after reset or clear takes it as 0.
        stale = Signal(range(words + 2), init=words + 1)
        with m.If(self.clear):
            m.d.sync += stale.eq(words + 1)
        with m.Elif(stale != 0):
            m.d.sync += stale.eq(stale - 1)
        m.d.sync += word2.eq(Mux(stale != 0, 0, read.data))

        # Compared a cycle ahead; in the first cycle of a read that was another word.
        asked, visited = Signal(), Signal()
        m.d.sync += [asked.eq(self.ask), visited.eq(place1 == self.word)]
        carry = Signal()
        total = Signal(33)
        m.d.comb += [
            total.eq(word2 + Mux(place2[0], carry, addend2)),
            write.addr.eq(place2),
            write.data.eq(total),
            write.en.eq(1),
            self.data.eq(total),
            self.found.eq(self.ask & asked & visited),
        ]
        m.d.sync += carry.eq(total[32] & ~place2[0] & ~self.clear)
        return m
