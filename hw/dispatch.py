"""Starts a unit's instructions when their tokens are there and sends tokens when they are done."""

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.fifo import Fifo
from accelc.hw.layouts import HEADER
from accelc.hw.tokens import TokenPorts
from accelc.isa.spec import HEADER_BITS, INSTRUCTION_BITS, Unit

#: Instructions a unit may have begun and not finished; more than any unit takes at the default
#: queue depth, so that this never is what a unit waits for.
MAX_IN_FLIGHT = 16


class Dispatcher(wiring.Component):
    """Stands between a unit's queue and the unit.

    An instruction passes, in the same cycle, once every unit in its wait mask has sent a token, and
    takes those tokens as it passes. When the unit reports it done, a token goes to every unit in
    its signal mask; where a counter is full the token waits here, and no token of a later
    instruction overtakes it. Otherwise its receiver can take it in the cycle after ``done``.

    Members
    -------
    enable : In(1)
        Start instructions.
    i : In(stream of 512)
        From the queue.
    o : Out(stream of 512)
        To the unit.
    done : In(1)
        From the unit: the oldest instruction in flight is done, one cycle each.
    tokens : Out(TokenPorts)
    start : Out(1)
        An instruction passes in this cycle.
    waiting : Out(1)
        An instruction is there whose tokens are not.
    running : Out(1)
        Instructions are in flight.
    """

    enable: Signal
    i: stream.Interface
    o: stream.Interface
    done: Signal
    tokens: wiring.PureInterface
    start: Signal
    waiting: Signal
    running: Signal

    def __init__(self, *, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._max_in_flight = max_in_flight
        instructions = stream.Signature(unsigned(INSTRUCTION_BITS))
        super().__init__(
            {
                "enable": In(1),
                "i": In(instructions),
                "o": Out(instructions),
                "done": In(1),
                "tokens": Out(TokenPorts()),
                "start": Out(1),
                "waiting": Out(1),
                "running": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Kept for the proof: the masks of instructions in flight, `owed` and `sent`.
        self.masks = Fifo(unsigned(len(Unit)), depth=self._max_in_flight)
        self.owed = Signal(range(self._max_in_flight + 1))
        self.sent = Signal(len(Unit))
        m.submodules.masks = masks = self.masks
        header = HEADER(self.i.payload[:HEADER_BITS])

        complete = Signal()
        m.d.comb += [
            complete.eq((header.wait & ~self.tokens.available) == 0),
            self.waiting.eq(self.i.valid & ~complete),
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid & self.enable & complete & masks.i.ready),
            self.i.ready.eq(self.o.ready & self.enable & complete & masks.i.ready),
            self.start.eq(self.o.valid & self.o.ready),
            masks.i.valid.eq(self.start),
            masks.i.payload.eq(header.signal),
        ]
        with m.If(self.start):
            m.d.comb += self.tokens.take.eq(header.wait)

        # `owed` instructions are done but have not sent all their tokens; `sent` are those the
        # oldest of them has.
        owed, sent = self.owed, self.sent
        due = Signal(len(Unit))
        settled = Signal()
        with m.If(self.done | (owed != 0)):
            m.d.comb += [
                due.eq(masks.o.payload & ~sent),
                self.tokens.send.eq(due & ~self.tokens.full),
                settled.eq((due & self.tokens.full) == 0),
            ]
            m.d.sync += sent.eq((sent | self.tokens.send) & ~settled.replicate(len(Unit)))
        m.d.comb += [masks.o.ready.eq(settled), self.running.eq(masks.level != owed)]
        m.d.sync += owed.eq(owed + self.done - settled)
        return m
