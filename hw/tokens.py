"""Dependency tokens: one counter for every ordered pair of units."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from accelc.isa.config import AccelConfig
from accelc.isa.spec import Unit


class TokenCounter(wiring.Component):
    """Counts tokens sent and not yet taken; ``put`` and ``get`` may come in the same cycle.

    A ``put`` while ``full`` and a ``get`` while not ``available`` are ignored; the dispatcher never
    asks for either, which is proved with it.

    Members
    -------
    put, get : In(1)
    available : Out(1)
        There is a token.
    full : Out(1)
        No further token fits.
    level : Out(bits)
    """

    put: Signal
    get: Signal
    available: Signal
    full: Signal
    level: Signal

    def __init__(self, bits: int) -> None:
        self._bits = bits
        super().__init__(
            {
                "put": In(1),
                "get": In(1),
                "available": Out(1),
                "full": Out(1),
                "level": Out(bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        most = (1 << self._bits) - 1
        put = self.put & ~self.full
        get = self.get & self.available
        # Both flags are registers: starting an instruction hangs on them.
        with m.If(put & ~get):
            m.d.sync += [
                self.level.eq(self.level + 1),
                self.available.eq(1),
                self.full.eq(self.level == most - 1),
            ]
        with m.Elif(get & ~put):
            m.d.sync += [
                self.level.eq(self.level - 1),
                self.available.eq(self.level != 1),
                self.full.eq(0),
            ]
        return m


class TokenPorts(wiring.Signature):
    """A dispatcher's view of the counters; bit ``u`` of every mask is the partner unit ``u``.

    Members
    -------
    available : In(4)
        Units that have sent a token not yet taken.
    take : Out(4)
        Take one token from each of these units.
    full : In(4)
        Units no further token can be sent to.
    send : Out(4)
        Send one token to each of these units.
    """

    def __init__(self) -> None:
        n = len(Unit)
        super().__init__({"available": In(n), "take": Out(n), "full": In(n), "send": Out(n)})


class Tokens(wiring.Component):
    """All counters. A token is available to its receiver in the cycle after it was sent.

    Members
    -------
    unit : In(TokenPorts) per unit
    """

    unit: list[wiring.PureInterface]

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        super().__init__({"unit": In(TokenPorts()).array(len(Unit))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for source in Unit:
            for target in Unit:
                if source == target:
                    # A unit is in order with itself: asking for its own token would wait for ever,
                    # and fetch refuses such an instruction.
                    continue
                counter = TokenCounter(self._config.token_bits)
                m.submodules[f"{source.name.lower()}_to_{target.name.lower()}"] = counter
                m.d.comb += [
                    counter.put.eq(self.unit[source].send[target]),
                    counter.get.eq(self.unit[target].take[source]),
                    self.unit[source].full[target].eq(counter.full),
                    self.unit[target].available[source].eq(counter.available),
                ]
        return m
