"""A UART: 8 data bits, no parity, 1 stop bit, at any rate up to a quarter of the clock."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from accelc.isa.errors import ConfigError

#: Fewer cycles per bit leave no room for the synchroniser's jitter and the line's.
MINIMUM_DIVISOR = 4
#: Start bit, data, stop bit.
_BITS = 10


def bit_cycles(clock_hz: int, baud: int) -> tuple[int, ...]:
    """Cycles of each bit of a byte: whole numbers whose sums are never half a cycle off.

    Raises:
        ConfigError: the clock is too slow for the rate.
    """
    if baud <= 0 or clock_hz < baud * MINIMUM_DIVISOR:
        raise ConfigError(
            f"a clock of {clock_hz} Hz reaches at most {clock_hz // MINIMUM_DIVISOR} baud, "
            f"not {baud}"
        )
    ends = [(2 * n * clock_hz + baud) // (2 * baud) for n in range(_BITS + 1)]
    return tuple(end - start for start, end in zip(ends, ends[1:], strict=False))


class _Timer(wiring.Component):
    """Ticks at the end of each bit; the first is as long as ``first`` says.

    Members
    -------
    active : In(1)
        Else it is at the start of the first bit.
    tick : Out(1)
        This is the last cycle of a bit.
    bit : Out(range(10))
    """

    active: Signal
    tick: Signal
    bit: Signal

    def __init__(self, cycles: tuple[int, ...], first: int) -> None:
        self._cycles = (first, *cycles[1:])
        super().__init__({"active": In(1), "tick": Out(1), "bit": Out(range(_BITS))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        longest = max(self._cycles)
        shorter = min(self._cycles[1:])
        # Counts up to all ones, from one of two values, as that takes the least logic.
        left = Signal(range(longest + 1))
        top = 1 << len(left)
        long_bits = Array(Const(cycles != shorter, 1) for cycles in (*self._cycles[1:], shorter))
        m.d.comb += self.tick.eq(left.all())
        m.d.sync += left.eq(left + 1)
        with m.If(self.tick):
            m.d.sync += [
                left.eq(Mux(long_bits[self.bit], top - shorter - 1, top - shorter)),
                self.bit.eq(self.bit + 1),
            ]
        with m.If(~self.active):
            m.d.sync += [left.eq(top - self._cycles[0]), self.bit.eq(0)]
        return m


class Uart(wiring.Component):
    """Bytes to and from a serial line.

    The receiver looks at a bit once, in its middle, timed from the start bit's edge. With ``d``
    cycles per bit the edge is known to 1 cycle and the middle to half a one, so that over 9.5 bits
    the two ends' rates may differ by ``(0.5 - 1.5 / d) / 9.5``: 4 % at 13 cycles per bit, 1.3 % at
    4. Its own rate is exact.

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
        self._cycles = bit_cycles(clock_hz, baud)
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
        # What counts as a bit here reaches from the middle of one to the middle of the next.
        m.submodules.receive_timer = timer = _Timer(self._cycles, self._cycles[0] // 2)
        bits = Signal(8)
        active = timer.active
        # Set after a bad stop bit until the line is idle again.
        low = Signal()
        with m.If(self.received.ready):
            m.d.sync += self.received.valid.eq(0)
        with m.If(rx):
            m.d.sync += low.eq(0)
        with m.If(~active):
            m.d.sync += active.eq(~rx & ~low)
        with m.Elif(timer.tick):
            m.d.sync += bits.eq(Cat(bits[1:], rx))
            with m.If((timer.bit == 0) & rx):  # no start bit
                m.d.sync += active.eq(0)
            with m.If(timer.bit == _BITS - 1):
                m.d.sync += [active.eq(0), low.eq(~rx)]
                with m.If(rx):
                    m.d.sync += [self.received.valid.eq(1), self.received.payload.eq(bits)]
                m.d.comb += self.line_break.eq(~rx & ~bits.any())

    def _transmit(self, m: Module) -> None:
        m.submodules.transmit_timer = timer = _Timer(self._cycles, self._cycles[0])
        bits = Signal(8)
        active = timer.active
        m.d.comb += self.send.ready.eq(~active)
        with m.If(~active):
            m.d.sync += [bits.eq(self.send.payload), active.eq(self.send.valid)]
            m.d.sync += self.tx.eq(~self.send.valid)
        with m.Elif(timer.tick):
            # Ones follow the data: the stop bit.
            m.d.sync += [self.tx.eq(bits[0]), bits.eq(Cat(bits[1:], 1))]
            with m.If(timer.bit == _BITS - 1):
                m.d.sync += active.eq(0)
