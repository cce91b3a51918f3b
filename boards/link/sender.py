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
    """Stuffs bytes and keeps their CRC; 10 cycles for a byte of content, 2 for a delimiter.

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
        # The byte on its way out; then the CRC takes it bit by bit.
        byte = Signal(8)
        border, check = Signal(), Signal()
        sending, summing = Signal(), Signal()
        special, escaped = Signal(), Signal()
        index = Signal(3)
        m.d.comb += [
            self.i.ready.eq(~sending & ~summing),
            special.eq(((byte == DELIMITER) | (byte == ESCAPE)) & ~border & ~escaped),
            self.o.valid.eq(sending),
            self.o.payload.eq(Mux(special, ESCAPE, byte ^ Mux(escaped, ESCAPE_FLIP, 0))),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                byte.eq(Mux(answer.check, ~crc[:8], answer.byte)),
                border.eq(answer.border),
                check.eq(answer.check),
                sending.eq(self.i.valid),
            ]
        with m.If(sending & self.o.ready):
            m.d.sync += [escaped.eq(special), sending.eq(special), summing.eq(~special & ~border)]
            with m.If(border):
                m.d.sync += crc.eq(CRC_INIT)
        with m.If(summing):
            # Its own lowest bit in place of data shifts the register without feedback.
            bit = Mux(check, crc[0], byte.bit_select(index, 1))
            m.d.sync += [index.eq(index + 1), crc.eq(crc_step(crc, bit))]
            with m.If(index.all()):
                m.d.sync += summing.eq(0)
        return m
