"""A UART: 8 data bits, no parity, 1 stop bit, at any rate up to a quarter of the clock."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from accelc.isa.errors import ConfigError

#: Fewer cycles per bit leave no room for the synchroniser's jitter and the line's.
MINIMUM_DIVISOR = 4
#: The largest error of the rate this side may contribute.
RATE_TOLERANCE = 0.004
_MAX_PHASE_BITS = 20


def phase_step(clock_hz: int, baud: int) -> tuple[int, int]:
    """Width of a phase accumulator, and what it adds each cycle, so that it wraps once per bit.

    Raises:
        ConfigError: the clock is too slow for the rate.
    """
    if baud <= 0 or clock_hz < baud * MINIMUM_DIVISOR:
        raise ConfigError(
            f"a clock of {clock_hz} Hz reaches at most {clock_hz // MINIMUM_DIVISOR} baud, "
            f"not {baud}"
        )
    for bits in range(2, _MAX_PHASE_BITS + 1):
        step = round(baud * 2**bits / clock_hz)
        if abs(step * clock_hz / (baud * 2**bits) - 1) <= RATE_TOLERANCE:
            return bits, step
    raise ConfigError(f"{baud} baud is too slow for a clock of {clock_hz} Hz")


class Uart(wiring.Component):
    """Bytes to and from a serial line.

    The receiver looks at a bit once, in its middle, timed from the start bit's edge. With ``d``
    cycles per bit the edge is known to 1 cycle, so that over 9.5 bits the two ends' rates may
    differ by ``(0.5 - 1.5 / d) / 9.5``: 4 % at 13 cycles per bit, 1.3 % at 4.

    Members
    -------
    rx : In(1)
        The line, asynchronous; high when idle.
    tx : Out(1)
    received : Out(stream of 8)
        A byte is lost if the next one is complete before it is taken.
    send : In(stream of 8)
    line_break : Out(1)
        For a cycle: the line was low for more than a whole byte.
    """

    rx: Signal
    tx: Signal
    received: stream.Interface
    send: stream.Interface
    line_break: Signal

    def __init__(self, clock_hz: int, baud: int) -> None:
        """Build a UART for ``baud`` bits a second.

        Raises:
            ConfigError: no such rate at this clock.
        """
        self._phase_bits, self._step = phase_step(clock_hz, baud)
        super().__init__(
            {
                "rx": In(1),
                "tx": Out(1, init=1),  # pyright: ignore (amaranth-stubs lack init)
                "received": Out(stream.Signature(8)),
                "send": In(stream.Signature(8)),
                "line_break": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._receive(m)
        self._transmit(m)
        return m

    def _receive(self, m: Module) -> None:
        rx = Signal(init=1)
        m.submodules.synchroniser = FFSynchronizer(self.rx, rx, init=1)
        phase = Signal(self._phase_bits + 1)
        sample = phase[-1]
        # A one goes ahead of the data through the register and tells when all of it is in.
        bits = Signal(9)
        active = Signal()
        starting = Signal()
        # Set after a bad stop bit until the line is idle again.
        low = Signal()
        with m.If(self.received.ready):
            m.d.sync += self.received.valid.eq(0)
        with m.If(rx):
            m.d.sync += low.eq(0)
        with m.If(~active):
            m.d.sync += [
                phase.eq((1 << (self._phase_bits - 1)) + self._step),
                bits.eq(1 << 8),
                starting.eq(1),
                active.eq(~rx & ~low),
            ]
        with m.Else():
            m.d.sync += phase.eq(phase[:-1] + self._step)
            with m.If(sample):
                m.d.sync += starting.eq(0)
                with m.If(starting):
                    m.d.sync += active.eq(~rx)
                with m.Elif(bits[0]):  # this is the stop bit
                    m.d.sync += [active.eq(0), low.eq(~rx)]
                    with m.If(rx):
                        m.d.sync += [self.received.valid.eq(1), self.received.payload.eq(bits[1:])]
                    m.d.comb += self.line_break.eq(~rx & ~bits[1:].any())
                with m.Else():
                    m.d.sync += bits.eq(Cat(bits[1:], rx))

    def _transmit(self, m: Module) -> None:
        phase = Signal(self._phase_bits + 1)
        # What comes after the bit on the line: data, the stop bit, and a one that marks the end.
        bits = Signal(10)
        m.d.comb += self.send.ready.eq(~bits.any())
        with m.If(self.send.ready):
            m.d.sync += phase.eq(self._step)
            with m.If(self.send.valid):
                m.d.sync += [bits.eq(Cat(self.send.payload, Const(0b11, 2))), self.tx.eq(0)]
        with m.Else():
            m.d.sync += phase.eq(phase[:-1] + self._step)
            with m.If(phase[-1]):
                m.d.sync += [bits.eq(bits[1:]), self.tx.eq(bits[0])]
