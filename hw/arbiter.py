"""Shares the AXI read channels between fetch and load."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.dma import BURST
from accelc.hw.fifo import Fifo
from accelc.isa.config import AccelConfig

#: Read bursts issued and not yet answered: single beats still cover 64 cycles of latency.
MAX_READS = 64


def read_beat_layout(config: AccelConfig) -> data.StructLayout:
    """A beat of the read data channel."""
    return data.StructLayout(
        {"data": unsigned(config.bus_bytes * 8), "resp": unsigned(2), "last": unsigned(1)}
    )


class ReadArbiter(wiring.Component):
    """Merges two burst streams and sends the data, which come back in order, to whoever asked.

    Fetch goes first: it asks rarely, and only for what it has room for. Up to ``max_reads`` bursts
    are outstanding. While ``enable`` is low no burst is accepted and arriving data are discarded,
    so that the bus always comes to rest.

    Throughput: one burst and one beat per cycle. Latency: 1 cycle for bursts, none for data.

    Members
    -------
    enable : In(1)
    fetch, load : In(stream of BURST)
    ar : Out(stream of BURST)
    r : In(stream of read_beat_layout)
    o_fetch, o_load : Out(stream of read_beat_layout)
    beat : Out(1)
        A beat arrived.
    idle : Out(1)
        Nothing is outstanding.
    """

    enable: Signal
    fetch: stream.Interface
    load: stream.Interface
    ar: stream.Interface
    r: stream.Interface
    o_fetch: stream.Interface
    o_load: stream.Interface
    beat: Signal
    idle: Signal

    def __init__(self, config: AccelConfig, *, max_reads: int = MAX_READS) -> None:
        self._max_reads = max_reads
        beats = stream.Signature(read_beat_layout(config))
        super().__init__(
            {
                "enable": In(1),
                "fetch": In(stream.Signature(BURST)),
                "load": In(stream.Signature(BURST)),
                "ar": Out(stream.Signature(BURST)),
                "r": In(beats),
                "o_fetch": Out(beats),
                "o_load": Out(beats),
                "beat": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # One entry per outstanding burst: 1 when it belongs to load. The oldest is in a register,
        # because data wait for it. Kept for the proof.
        self.owners = Fifo(unsigned(1), depth=self._max_reads - 1)
        m.submodules.owners = owners = self.owners
        self.head = head = Signal()
        is_load = Signal(reset_less=True)
        m.submodules.bursts = self.bursts = bursts = Fifo(BURST, depth=2)
        wiring.connect(m, bursts.o, wiring.flipped(self.ar))
        free = Signal()
        accept = Signal()
        m.d.comb += [
            free.eq(self.enable & owners.i.ready & bursts.i.ready),
            self.fetch.ready.eq(free),
            self.load.ready.eq(free & ~self.fetch.valid),
            accept.eq(free & (self.fetch.valid | self.load.valid)),
            owners.i.valid.eq(accept),
            owners.i.payload.eq(~self.fetch.valid),
            bursts.i.valid.eq(accept),
            bursts.i.payload.eq(
                Mux(self.fetch.valid, self.fetch.payload.as_value(), self.load.payload.as_value())
            ),
        ]

        with m.If(owners.o.ready):
            m.d.sync += [head.eq(owners.o.valid), is_load.eq(owners.o.payload)]
        m.d.comb += [
            self.o_fetch.payload.eq(self.r.payload),
            self.o_load.payload.eq(self.r.payload),
            self.o_fetch.valid.eq(self.r.valid & self.enable & head & ~is_load),
            self.o_load.valid.eq(self.r.valid & self.enable & head & is_load),
            self.r.ready.eq(
                head & (~self.enable | Mux(is_load, self.o_load.ready, self.o_fetch.ready))
            ),
            self.beat.eq(self.r.valid & self.r.ready),
            owners.o.ready.eq(~head | (self.beat & self.r.payload.last)),
            self.idle.eq(~self.ar.valid & ~owners.o.valid & ~head),
        ]
        return m
