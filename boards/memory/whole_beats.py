"""Bytes into a memory that can only write whole beats."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.axi import Axi4
from accelc.isa.config import AccelConfig


class WholeBeats(wiring.Component):
    """Reads a beat, puts what is written into it, and writes it back.

    For hosts, which write byte by byte and know nothing of what lies beside it. Reads pass; a write
    takes the time of a read more.

    Members
    -------
    i : In(Axi4)
        One access of one beat at a time; of a write, data and address stay until both were taken.
    o : Out(Axi4)
        The same, with every strobe set.
    """

    i: wiring.PureInterface
    o: wiring.PureInterface

    def __init__(self, config: AccelConfig) -> None:
        super().__init__({"i": In(Axi4(config)), "o": Out(Axi4(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        i, o = self.i, self.o
        merged = Signal.like(o.wdata, reset_less=True)
        first = Signal()  # the read of a write
        for name, member in o.signature.members.items():
            if member.flow is Out and not name.endswith(("valid", "ready")):
                m.d.comb += getattr(o, name).eq(getattr(i, name))
            elif member.flow is In and not name.endswith(("valid", "ready")):
                m.d.comb += getattr(i, name).eq(getattr(o, name))
        m.d.comb += [
            o.araddr.eq(Mux(first, i.awaddr, i.araddr)),
            o.arlen.eq(0),
            o.wdata.eq(merged),
            o.wstrb.eq(~0),
            o.wlast.eq(1),
        ]
        lanes = [
            Mux(strobe, i.wdata.word_select(lane, 8), o.rdata.word_select(lane, 8))
            for lane, strobe in enumerate(i.wstrb)
        ]
        with m.FSM():
            with m.State("reads"):
                m.d.comb += [
                    o.arvalid.eq(i.arvalid),
                    i.arready.eq(o.arready),
                    i.rvalid.eq(o.rvalid),
                    o.rready.eq(i.rready),
                ]
                with m.If(i.awvalid & i.wvalid):
                    m.next = "read"
            with m.State("read"):
                m.d.comb += [first.eq(1), o.arvalid.eq(1)]
                with m.If(o.arready):
                    m.next = "merge"
            with m.State("merge"):
                m.d.comb += o.rready.eq(1)
                m.d.sync += merged.eq(Cat(lanes))
                with m.If(o.rvalid):
                    m.next = "write"
            with m.State("write"):
                # where the read was an error the write is one, too, and answers so
                m.d.comb += [
                    o.awvalid.eq(i.awvalid),
                    i.awready.eq(o.awready),
                    o.wvalid.eq(i.wvalid),
                    i.wready.eq(o.wready),
                    i.bvalid.eq(o.bvalid),
                    o.bready.eq(i.bready),
                ]
                with m.If(o.bvalid & i.bready):
                    m.next = "reads"
        return m
