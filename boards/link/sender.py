"""Makes frames of the bytes of an answer."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from accelc.boards.link.protocol import CRC_INIT, DELIMITER, ESCAPE, ESCAPE_FLIP
from accelc.boards.link.receiver import crc_step

#: A byte of an answer. ``border``: it is DELIMITER, goes out as it is, and the CRC starts again.
#: ``check``: the CRC's next byte, low byte first, in its place.
ANSWER = data.StructLayout({"byte": unsigned(8), "border": unsigned(1), "check": unsigned(1)})


class FrameSender(wiring.Component):
    """Stuffs bytes and keeps their CRC; 9 cycles for a byte of content, 1 for a delimiter.

    Members
    -------
    i : In(stream of ANSWER)
    o : Out(stream of 8)
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(ANSWER)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        answer = self.i.payload
        crc = Signal(32, init=CRC_INIT)
        byte = Signal(8)
        special = Signal()
        escaped = Signal()
        # The byte is on its way, now the CRC takes it bit by bit.
        summing = Signal()
        index = Signal(3)
        m.d.comb += [
            byte.eq(Mux(answer.check, ~crc[:8], answer.byte)),
            special.eq(((byte == DELIMITER) | (byte == ESCAPE)) & ~answer.border & ~escaped),
            self.o.valid.eq(self.i.valid & ~summing),
            self.o.payload.eq(Mux(special, ESCAPE, byte ^ Mux(escaped, ESCAPE_FLIP, 0))),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [escaped.eq(special), summing.eq(~special & ~answer.border)]
            with m.If(answer.border):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += crc.eq(CRC_INIT)
        with m.If(summing):
            # Its own lowest bit in place of data shifts the register without feedback.
            bit = Mux(answer.check, crc[0], answer.byte.bit_select(index, 1))
            m.d.sync += [index.eq(index + 1), crc.eq(crc_step(crc, bit))]
            with m.If(index.all()):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += summing.eq(0)
        return m
