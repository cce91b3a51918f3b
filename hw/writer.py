"""The writing end of data movement: bursts and scratchpad rows become AXI writes."""

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.dma import BURST
from accelc.hw.fifo import Fifo
from accelc.hw.layouts import ScratchRead, beat_address_bits
from accelc.isa.config import AccelConfig

#: Write bursts issued and not yet acknowledged: 16 full ones cover the reference memory's latency.
MAX_WRITES = 16


def write_beat_layout(config: AccelConfig) -> data.StructLayout:
    """A beat of the write data channel."""
    return data.StructLayout(
        {
            "data": unsigned(config.bus_bytes * 8),
            "strb": unsigned(config.bus_bytes),
            "last": unsigned(1),
        }
    )


class WriteEngine(wiring.Component):
    """Issues write bursts and feeds them from a scratchpad read row after row.

    Addresses run ahead of data, up to ``MAX_WRITES`` bursts are unacknowledged. Once a burst is
    issued its data follow without help from outside, so the bus is never left waiting.

    Throughput: one beat per cycle. Latency: 4 cycles from burst to first data.

    Members
    -------
    enable : In(1)
        Issue bursts; when low, what was issued completes with its strobes low.
    i : In(stream of BURST)
        ``last`` ends an instruction.
    i_start : In(stream of beat_address_bits)
        Scratchpad beat at which the next instruction begins.
    limit : In(beat_address_bits + 1)
        Beats of the scratchpad.
    scratch : Out(ScratchRead)
    aw, w, b : AXI channels
    acknowledged : Out(1)
        An instruction's last burst was acknowledged: one cycle per instruction.
    beat : Out(1)
        A beat was written.
    range_error, response_error : Out(1)
        A row beyond the scratchpad was about to be written (its strobes are low); the memory
        answered with an error. One cycle each.
    idle : Out(1)
        Nothing is outstanding.
    """

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        super().__init__(
            {
                "enable": In(1),
                "i": In(stream.Signature(BURST)),
                "i_start": In(stream.Signature(unsigned(beat_address_bits(config)))),
                "limit": In(beat_address_bits(config) + 1),
                "scratch": Out(ScratchRead(config)),
                "aw": Out(stream.Signature(BURST)),
                "w": Out(stream.Signature(write_beat_layout(config))),
                "b": In(stream.Signature(unsigned(2))),
                "acknowledged": Out(1),
                "beat": Out(1),
                "range_error": Out(1),
                "response_error": Out(1),
                "idle": Out(1),
            }
        )

    enable: Signal
    i: stream.Interface
    i_start: stream.Interface
    limit: Signal
    scratch: wiring.PureInterface
    aw: stream.Interface
    w: stream.Interface
    b: stream.Interface
    acknowledged: Signal
    beat: Signal
    range_error: Signal
    response_error: Signal
    idle: Signal

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.lengths = lengths = Fifo(unsigned(9), depth=MAX_WRITES)
        # Kept for the proof: bursts without acknowledgement, beats read and not written.
        m.submodules.unacknowledged = self.acks = acks = Fifo(unsigned(1), depth=MAX_WRITES)

        # Address channel: a short queue, so that nothing here waits for the bus's answer.
        m.submodules.bursts = self.bursts = bursts = Fifo(BURST, depth=2)
        wiring.connect(m, bursts.o, wiring.flipped(self.aw))
        accept = Signal()
        m.d.comb += [
            self.i.ready.eq(self.enable & lengths.i.ready & acks.i.ready & bursts.i.ready),
            bursts.i.valid.eq(accept),
            bursts.i.payload.eq(self.i.payload),
            accept.eq(self.i.valid & self.i.ready),
            lengths.i.valid.eq(accept),
            lengths.i.payload.eq(Cat(self.i.payload.len, self.i.payload.last)),
            acks.i.valid.eq(accept),
            acks.i.payload.eq(self.i.payload.last),
        ]

        # Reader: one burst after the other, instructions begin at their own row.
        m.submodules.beats = self.beats = beats = Fifo(write_beat_layout(config), depth=4)
        active = Signal()
        fresh = Signal(init=1)
        left = Signal(8, reset_less=True)
        addr = Signal(beat_address_bits(config) + 1, reset_less=True)
        read = Signal()
        end_burst = Signal()
        take = Signal()
        self.arriving = arriving = Signal()
        arriving_last = Signal(reset_less=True)
        arriving_valid = Signal(reset_less=True)
        within = Signal()
        m.d.comb += [
            # one beat may be on its way from the scratchpad
            read.eq(active & (beats.level + arriving < 4)),
            end_burst.eq(left == 0),
            within.eq(addr < self.limit),
            self.scratch.en.eq(read),
            self.scratch.addr.eq(addr),
            self.range_error.eq(read & ~within),
            take.eq(
                (~active | (read & end_burst)) & lengths.o.valid & (~fresh | self.i_start.valid)
            ),
            lengths.o.ready.eq(take),
            self.i_start.ready.eq(take & fresh),
        ]
        with m.If(read):
            m.d.sync += [addr.eq(addr + 1), left.eq(left - 1)]
            with m.If(end_burst):
                m.d.sync += active.eq(0)
        with m.If(take):
            m.d.sync += [active.eq(1), Cat(left, fresh).eq(lengths.o.payload)]
            with m.If(fresh):
                m.d.sync += addr.eq(self.i_start.payload)
        m.d.sync += [
            arriving.eq(read),
            arriving_last.eq(end_burst),
            arriving_valid.eq(within & self.enable),
        ]
        m.d.comb += [
            beats.i.valid.eq(arriving),
            beats.i.payload.data.eq(self.scratch.data),
            beats.i.payload.last.eq(arriving_last),
            beats.i.payload.strb.eq(arriving_valid.replicate(config.bus_bytes)),
        ]

        # Data channel.
        wiring.connect(m, wiring.flipped(self.w), beats.o)
        m.d.comb += self.beat.eq(self.w.valid & self.w.ready)

        # Response channel: acknowledgements come in order, all bursts have the same ID.
        m.d.comb += [
            self.b.ready.eq(1),
            acks.o.ready.eq(self.b.valid),
            self.acknowledged.eq(self.b.valid & acks.o.payload),
            self.response_error.eq(self.b.valid & self.b.payload[1]),
            self.idle.eq(~self.aw.valid & ~acks.o.valid & ~self.w.valid),
        ]
        return m
