"""A first-in first-out queue between two streams."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


class Fifo(wiring.Component):
    """Holds ``depth`` payloads in distributed memory; for short queues whose head is looked at.

    Throughput: one payload per cycle. Latency: 1 cycle. A full queue takes nothing in the cycle in
    which it gives something away.

    Members
    -------
    i : In(stream of shape)
    o : Out(stream of shape)
    level : Out(range(depth + 1))
        Payloads inside.
    """

    i: stream.Interface
    o: stream.Interface
    level: Signal
    storage: Memory

    def __init__(self, shape: ShapeLike, *, depth: int) -> None:
        self._depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )
        # Here rather than in `elaborate` for the proofs, which look into the memory.
        self.storage = Memory(shape=shape, depth=depth, init=[])
        self.write = self.storage.write_port()
        self.read = self.storage.read_port(domain="comb")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._depth
        write, read = self.write, self.read
        m.submodules.storage = self.storage
        pushed = Signal()
        popped = Signal()
        # Registers rather than comparisons of the level: much waits for them.
        room = Signal(init=1)
        some = Signal()
        m.d.comb += [
            self.i.ready.eq(room),
            self.o.valid.eq(some),
            pushed.eq(self.i.valid & self.i.ready),
            popped.eq(self.o.valid & self.o.ready),
            write.en.eq(pushed),
            write.data.eq(self.i.payload),
            self.o.payload.eq(read.data),
        ]
        with m.If(pushed):
            m.d.sync += write.addr.eq(Mux(write.addr == depth - 1, 0, write.addr + 1))
        with m.If(popped):
            m.d.sync += read.addr.eq(Mux(read.addr == depth - 1, 0, read.addr + 1))
        with m.If(pushed & ~popped):
            m.d.sync += [
                self.level.eq(self.level + 1),
                room.eq(self.level != depth - 1),
                some.eq(1),
            ]
        with m.Elif(popped & ~pushed):
            m.d.sync += [self.level.eq(self.level - 1), room.eq(1), some.eq(self.level != 1)]
        return m
