"""A value that comes out a fixed number of cycles after it went in."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

#: What a distributed RAM of every family holds at least.
_RAM_CYCLES = 16
#: Shorter delays are cheaper in registers.
_MINIMUM = 6


class Delay(wiring.Component):
    """Gives back ``i`` of ``cycles`` cycles ago; what comes out before is anything.

    Most of the way lies in distributed memory, which takes a tenth of as many flip-flops.

    Members
    -------
    i : In(shape)
    o : Out(shape)
    """

    i: Signal
    o: Signal

    def __init__(self, shape: ShapeLike, cycles: int) -> None:
        self._shape = shape
        self._cycles = cycles
        super().__init__({"i": In(shape), "o": Out(shape)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        value = self.i
        left = self._cycles
        if left >= _MINIMUM:
            # The register behind the memory is one cycle, the memory the rest.
            depth = min(left - 1, _RAM_CYCLES)
            m.submodules.ring = ring = Memory(shape=self._shape, depth=depth, init=[])
            write, read = ring.write_port(), ring.read_port(domain="comb")
            place = Signal(range(depth))
            m.d.sync += place.eq(Mux(place == depth - 1, 0, place + 1))
            m.d.comb += [
                write.en.eq(1),
                write.addr.eq(place),
                write.data.eq(value),
                read.addr.eq(place),
            ]
            value = Signal(self._shape, name="out_of_ring", reset_less=True)
            m.d.sync += value.eq(read.data)
            left -= depth + 1
        for stage in range(left):
            value_q = Signal(self._shape, name=f"stage_{stage}", reset_less=True)
            m.d.sync += value_q.eq(value)
            value = value_q
        m.d.comb += self.o.eq(value)
        return m
