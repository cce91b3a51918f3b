"""Finds requests in the bytes from the host and checks them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from accelc.boards.link.protocol import (
    CRC_BYTES,
    CRC_INIT,
    CRC_POLYNOMIAL,
    CRC_RESIDUE,
    DELIMITER,
    ESCAPE,
    ESCAPE_FLIP,
    REQUEST_BYTES,
    REQUEST_HEADER,
)

#: Bytes of each half of the buffer; REQUEST_BYTES of them hold a request.
HALF_BYTES = 256
# What makes "long enough" and "too long" a look at a few bits of the counter.
assert REQUEST_HEADER.size + CRC_BYTES == 16 and HALF_BYTES - REQUEST_BYTES == 32


def crc_step(crc: Signal, bit) -> Cat:
    """The CRC's register after one more bit."""
    feedback = crc[0] ^ bit
    taps = (
        crc[n + 1] ^ feedback if CRC_POLYNOMIAL >> n & 1 else crc[n + 1]
        for n in range(len(crc) - 1)
    )
    return Cat(*taps, feedback)


class FrameReceiver(wiring.Component):
    """Writes frames into one half of a buffer while a checked one may wait in the other.

    A byte takes 9 cycles, as the CRC takes it bit by bit. While ``full``, what arrives is lost.

    Members
    -------
    i : In(stream of 8)
    clear : In(1)
        Ignore everything up to the next delimiter.
    address, data, enable : Out(8), Out(8), Out(1)
        Write port of the half that is being filled.
    full : Out(1)
        It holds a good frame; until ``take``.
    damaged : Out(1)
        Something that was no good frame has ended; until ``excuse``.
    take, excuse : In(1)
    """

    i: stream.Interface
    clear: Signal
    address: Signal
    data: Signal
    enable: Signal
    full: Signal
    damaged: Signal
    take: Signal
    excuse: Signal

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "clear": In(1),
                "address": Out(8),
                "data": Out(8),
                "enable": Out(1),
                "full": Out(1),
                "damaged": Out(1),
                "take": In(1),
                "excuse": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        byte = self.i.payload
        escaped = Signal()
        # The rest of the frame has no place or no meaning.
        lost = Signal()
        index = Signal(3)
        crc = Signal(32, init=CRC_INIT)
        count = self.address
        # What a byte is becomes known a cycle before it counts.
        seen, delimits, escapes, passes, whole = (
            Signal(name=name) for name in ("seen", "delimits", "escapes", "passes", "whole")
        )
        m.d.sync += [
            seen.eq(self.i.valid & ~self.i.ready),
            delimits.eq(byte == DELIMITER),
            escapes.eq(byte == ESCAPE),
            passes.eq(lost | self.full | count[5:].all()),
            whole.eq((crc == CRC_RESIDUE) & count[4:].any() & ~escaped),
        ]
        m.d.comb += self.data.eq(byte ^ Mux(escaped, ESCAPE_FLIP, 0))
        with m.If(self.take):
            m.d.sync += self.full.eq(0)
        with m.If(self.excuse):
            m.d.sync += self.damaged.eq(0)
        with m.If(seen):
            with m.If(delimits):
                m.d.comb += self.i.ready.eq(1)
                with m.If(~self.full):
                    m.d.sync += [count.eq(0), crc.eq(CRC_INIT)]
                m.d.sync += [escaped.eq(0), lost.eq(0)]
                with m.If(lost):
                    m.d.sync += self.damaged.eq(1)
                with m.Elif(~self.full & count.any()):
                    with m.If(whole):
                        m.d.sync += self.full.eq(1)
                    with m.Else():
                        m.d.sync += self.damaged.eq(1)
            with m.Elif(passes):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += lost.eq(1)
            with m.Elif(escapes):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += escaped.eq(1)
            with m.Else():
                m.d.sync += [
                    index.eq(index + 1),
                    crc.eq(crc_step(crc, self.data.bit_select(index, 1))),
                ]
                with m.If(index.all()):
                    m.d.comb += [self.i.ready.eq(1), self.enable.eq(1)]
                    m.d.sync += [count.eq(count + 1), escaped.eq(0)]
        with m.If(self.clear):
            m.d.sync += lost.eq(1)
        return m
