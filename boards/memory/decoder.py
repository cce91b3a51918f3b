"""Two memories behind one AXI4 port, chosen by address."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.hw.axi import ADDRESS_BITS, PAGE_BYTES, Axi4
from accelc.isa.config import AccelConfig

#: Bursts of one direction that may be outstanding.
OUTSTANDING = 127
#: Signals of each channel that travel with `valid`, other than towards the master.
_FORWARD = {
    channel: [f"a{channel}{name}" for name in ("id", "addr", "len", "size", "burst", "lock")]
    + [f"a{channel}{name}" for name in ("cache", "prot")]
    for channel in ("r", "w")
}


class Decoder(wiring.Component):
    """Sends bursts below ``boundary`` to ``low`` and all others to ``high``.

    Answers keep the order of their requests because a direction changes sides only when nothing
    of it is outstanding. Data of a write pass once its address has.

    Throughput: as the memory behind. Latency: none, but for changing sides.

    Members
    -------
    bus : In(Axi4)
    low, high : Out(Axi4)
    """

    bus: wiring.PureInterface
    low: wiring.PureInterface
    high: wiring.PureInterface

    def __init__(self, config: AccelConfig, boundary: int) -> None:
        """``boundary`` is a multiple of a page, which no burst leaves."""
        self._boundary = boundary
        axi = Axi4(config)
        super().__init__({"bus": In(axi), "low": Out(axi), "high": Out(axi)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, sides = self.bus, (self.low, self.high)
        write_side, write_open = self._addresses(m, "w", bus.bvalid & bus.bready)
        read_side, _ = self._addresses(m, "r", bus.rvalid & bus.rready & bus.rlast)

        # Write data follow their addresses: as many bursts as were accepted and not yet filled.
        unfilled = Signal(range(OUTSTANDING + 1))
        filled = bus.wvalid & bus.wready & bus.wlast
        m.d.sync += unfilled.eq(unfilled + write_open - filled)
        flow = unfilled != 0
        for index, side in enumerate(sides):
            for name in ("wdata", "wstrb", "wlast"):
                m.d.comb += getattr(side, name).eq(getattr(bus, name))
            m.d.comb += [
                side.wvalid.eq(bus.wvalid & flow & (write_side == index)),
                side.bready.eq(bus.bready & (write_side == index)),
                side.rready.eq(bus.rready & (read_side == index)),
            ]
        m.d.comb += bus.wready.eq(Mux(write_side, self.high.wready, self.low.wready) & flow)
        for channel, chosen in (("b", write_side), ("r", read_side)):
            names = ("id", "resp", "valid") + (("data", "last") if channel == "r" else ())
            for name in names:
                low, high = (getattr(side, channel + name) for side in sides)
                m.d.comb += getattr(bus, channel + name).eq(Mux(chosen, high, low))
        return m

    def _addresses(self, m: Module, channel: str, answered: object) -> tuple[Signal, object]:
        """The side a direction is on, and whether a burst is accepted now."""
        bus = self.bus
        address = getattr(bus, f"a{channel}addr")
        valid, ready = (getattr(bus, f"a{channel}{name}") for name in ("valid", "ready"))
        side = Signal(name=f"{channel}_side")
        wanted = Signal(name=f"{channel}_wanted")
        outstanding = Signal(range(OUTSTANDING + 1), name=f"{channel}_outstanding")
        idle = Signal(name=f"{channel}_idle")
        page_log2 = exact_log2(PAGE_BYTES)
        m.d.comb += [
            wanted.eq(address[page_log2:ADDRESS_BITS] >= self._boundary // PAGE_BYTES),
            idle.eq(outstanding == 0),
        ]
        with m.If(idle & valid):
            m.d.sync += side.eq(wanted)
        go = (wanted == side) & (outstanding != OUTSTANDING)
        for index, port in enumerate((self.low, self.high)):
            for name in _FORWARD[channel]:
                m.d.comb += getattr(port, name).eq(getattr(bus, name))
            m.d.comb += getattr(port, f"a{channel}valid").eq(valid & go & (side == index))
        chosen_ready = Mux(
            side, getattr(self.high, f"a{channel}ready"), getattr(self.low, f"a{channel}ready")
        )
        m.d.comb += ready.eq(chosen_ready & go)
        accepted = valid & ready
        m.d.sync += outstanding.eq(outstanding + accepted - answered)
        return side, accepted
