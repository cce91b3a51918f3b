"""Registers between a memory and its masters, for fast clocks on large chips."""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.axi import Axi4
from accelc.hw.fifo import Fifo
from accelc.isa.config import AccelConfig

#: Places of a channel's queue. Two take something in every cycle, one in every other: enough for
#: what comes once per burst.
_DEPTH = {"ar": 1, "aw": 1, "w": 2, "r": 2, "b": 1}
#: Every channel's payload that differs from beat to beat. All else is constant or not looked at.
_PAYLOAD = {
    "ar": ("addr", "len"),
    "aw": ("addr", "len"),
    "w": ("data", "strb", "last"),
    "r": ("data", "resp", "last"),
    "b": ("resp",),
}
_CONSTANT = {
    "ar": ("id", "size", "burst", "lock", "cache", "prot"),
    "aw": ("id", "size", "burst", "lock", "cache", "prot"),
    "w": (),
    "r": ("id",),
    "b": ("id",),
}


class BusBuffer(wiring.Component):
    """A short queue in each of the five channels, so that no signal passes in the same cycle.

    Throughput: data in every cycle, addresses and answers in every other. Latency: 1 cycle each
    way.

    Members
    -------
    i : In(Axi4)
        INCR bursts of whole beats with ID 0.
    o : Out(Axi4)
    """

    i: wiring.PureInterface
    o: wiring.PureInterface

    def __init__(self, config: AccelConfig) -> None:
        super().__init__({"i": In(Axi4(config)), "o": Out(Axi4(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for channel, names in _PAYLOAD.items():
            source, target = (self.o, self.i) if channel in "rb" else (self.i, self.o)
            before = Cat(getattr(source, channel + name) for name in names)
            after = Cat(getattr(target, channel + name) for name in names)
            m.submodules[channel] = queue = Fifo(len(before), depth=_DEPTH[channel])
            m.d.comb += [
                queue.i.valid.eq(getattr(source, f"{channel}valid")),
                queue.i.payload.eq(before),
                getattr(source, f"{channel}ready").eq(queue.i.ready),
                getattr(target, f"{channel}valid").eq(queue.o.valid),
                after.eq(queue.o.payload),
                queue.o.ready.eq(getattr(target, f"{channel}ready")),
            ]
            for name in _CONSTANT[channel]:
                m.d.comb += getattr(target, channel + name).eq(getattr(source, channel + name))
        return m
