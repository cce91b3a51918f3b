"""Data movement: from a strided transfer to runs, from runs to bursts, from bursts to the bus."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.hw.axi import ADDRESS_BITS, PAGE_BYTES
from accelc.hw.fifo import Fifo
from accelc.hw.layouts import ScratchRead, beat_address_bits
from accelc.isa.config import AccelConfig

#: Write bursts issued and not yet acknowledged: 16 full ones cover the reference memory's latency.
MAX_WRITES = 16


def transfer_layout(config: AccelConfig) -> data.StructLayout:
    """The addresses of a LOAD or STORE; every count is at least 1.

    ``dram`` and the strides are bytes relative to the memory base, ``beats`` is the length of the
    contiguous run, ``n1`` runs make a plane, ``n2`` planes the transfer.
    """
    return data.StructLayout(
        {
            "dram": unsigned(32),
            "beats": unsigned(beat_address_bits(config) + 1),
            "n1": unsigned(16),
            "n2": unsigned(16),
            "stride1": unsigned(32),
            "stride2": unsigned(32),
        }
    )


def run_layout(config: AccelConfig) -> data.StructLayout:
    """A contiguous piece of memory: bus address and length, at least 1.

    ``joins`` says that it begins where the run before ended, ``last`` that it ends its instruction.
    """
    return data.StructLayout(
        {
            "addr": unsigned(ADDRESS_BITS),
            "beats": unsigned(beat_address_bits(config) + 1),
            "joins": unsigned(1),
            "last": unsigned(1),
        }
    )


#: An AXI burst: ``len`` is beats - 1; ``last`` ends its instruction.
BURST = data.StructLayout({"addr": unsigned(ADDRESS_BITS), "len": unsigned(8), "last": unsigned(1)})


class RunGenerator(wiring.Component):
    """Walks a transfer's two outer loops and checks every address before it leaves.

    Throughput: one run per cycle, also from one transfer to the next. Latency: 3 cycles.

    Members
    -------
    i : In(stream of transfer_layout)
    o : Out(stream of run_layout)
    memory_base, memory_bytes : In(32)
    error : Out(1)
        The next run is misaligned or not within ``memory_bytes``; held, and ``o`` stands still.
    empty : Out(1)
        No run is on its way.
    """

    i: stream.Interface
    o: stream.Interface
    memory_base: Signal
    memory_bytes: Signal
    error: Signal
    empty: Signal

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(transfer_layout(config))),
                "o": Out(stream.Signature(run_layout(config))),
                "memory_base": In(32),
                "memory_bytes": In(32),
                "error": Out(1),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat_log2 = exact_log2(self._config.bus_bytes)
        beats_bits = beat_address_bits(self._config) + 1
        transfer = Signal(transfer_layout(self._config), reset_less=True)

        # Stage 0: the loops. Addresses have a bit more than the bus, so that a sum too large is
        # seen; the first such run stops everything, long before the next bit could be needed.
        active = Signal()
        addr = Signal(ADDRESS_BITS + 1, reset_less=True)
        plane = Signal(ADDRESS_BITS + 1, reset_less=True)
        i1 = Signal(16, reset_less=True)
        i2 = Signal(16, reset_less=True)
        first = Signal(reset_less=True)
        run_bytes = Cat(Const(0, beat_log2), transfer.beats)
        contiguous = Signal()
        planes_contiguous = Signal()
        plane_start = Signal(reset_less=True)
        end_plane = Signal()
        end_transfer = Signal()
        step0 = Signal()
        m.d.comb += [
            contiguous.eq(transfer.stride1 == run_bytes),
            planes_contiguous.eq((transfer.stride2 == run_bytes) & (transfer.n1 == 1)),
            end_plane.eq(i1 == 1),
            end_transfer.eq(end_plane & (i2 == 1)),
            self.i.ready.eq(~active | (step0 & end_transfer)),
        ]
        with m.If(step0):
            m.d.sync += [first.eq(0), plane_start.eq(end_plane)]
            with m.If(end_plane):
                m.d.sync += [
                    addr.eq(plane + transfer.stride2),
                    plane.eq(plane + transfer.stride2),
                    i1.eq(transfer.n1),
                    i2.eq(i2 - 1),
                ]
            with m.Else():
                m.d.sync += [addr.eq(addr + transfer.stride1), i1.eq(i1 - 1)]
        with m.If(self.i.ready):
            m.d.sync += [
                active.eq(self.i.valid),
                transfer.eq(self.i.payload),
                addr.eq(self.i.payload.dram),
                plane.eq(self.i.payload.dram),
                i1.eq(self.i.payload.n1),
                i2.eq(self.i.payload.n2),
                first.eq(1),
                plane_start.eq(1),
            ]

        # Stage 1: bus address and end of the run. Both stages are kept for the proof.
        self.valid1 = valid1 = Signal()
        self.run1 = run1 = Signal(run_layout(self._config), reset_less=True)
        self.end1 = end1 = Signal(ADDRESS_BITS + 2, reset_less=True)
        self.odd1 = odd1 = Signal(reset_less=True)
        step1 = Signal()
        m.d.comb += step0.eq(active & (~valid1 | step1))
        with m.If(step0 | step1):
            m.d.sync += valid1.eq(step0)
        with m.If(step0):
            m.d.sync += [
                run1.addr.eq(addr + self.memory_base),
                run1.beats.eq(transfer.beats),
                run1.joins.eq(~first & Mux(plane_start, planes_contiguous, contiguous)),
                run1.last.eq(end_transfer),
                end1.eq(addr + run_bytes),
                odd1.eq(addr[:beat_log2].any()),
            ]

        # Stage 2: the verdict.
        self.valid2 = valid2 = Signal()
        self.bad2 = bad2 = Signal()
        self.run2 = run2 = Signal(run_layout(self._config), reset_less=True)
        m.d.comb += step1.eq(valid1 & (~valid2 | (self.o.valid & self.o.ready)))
        with m.If(step1 | (self.o.valid & self.o.ready)):
            m.d.sync += valid2.eq(step1)
        with m.If(step1):
            m.d.sync += [run2.eq(run1), bad2.eq(odd1 | (end1 > self.memory_bytes))]
        m.d.comb += [
            self.o.valid.eq(valid2 & ~bad2),
            self.o.payload.eq(run2),
            self.error.eq(valid2 & bad2),
            self.empty.eq(~active & ~valid1 & ~valid2),
        ]
        assert len(run_bytes) == beats_bits + beat_log2
        return m


class BurstSplitter(wiring.Component):
    """Cuts runs into bursts and joins runs that continue each other.

    Bursts end at multiples of their longest length, a power of two that divides a page, so that
    none crosses 4 KiB and only the first of a long run can be shorter. A short rest is held back
    for as long as runs that continue it keep coming.

    Throughput: one run joined or one burst per cycle. Latency: 2 cycles.

    Members
    -------
    i : In(stream of run_layout)
    o : Out(stream of BURST)
    empty : Out(1)
        No burst is on its way.
    """

    i: stream.Interface
    o: stream.Interface
    empty: Signal

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(run_layout(config))),
                "o": Out(stream.Signature(BURST)),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        beat_log2 = exact_log2(config.bus_bytes)
        longest = min(config.max_burst_beats, PAGE_BYTES // config.bus_bytes)
        longest_log2 = exact_log2(longest)
        high_bit = beat_log2 + longest_log2

        # The rest of what came in; shorter than a burst it can grow by one run, no further. Kept
        # for the proof.
        self.valid = valid = Signal()
        self.addr = addr = Signal(ADDRESS_BITS, reset_less=True)
        self.beats = beats = Signal(beat_address_bits(config) + 2, reset_less=True)
        self.last = last = Signal(reset_less=True)
        room = Signal(range(longest + 1))
        full = Signal()
        join = Signal()
        fire = Signal()
        used_up = Signal()
        m.d.comb += [
            room.eq(longest - addr[beat_log2:high_bit]),
            full.eq(beats >= room),
            join.eq(valid & ~full & self.i.valid & self.i.payload.joins),
            fire.eq(valid & ~join & (~self.o.valid | self.o.ready)),
            used_up.eq(~full | (beats == room)),
            self.i.ready.eq(join | ~valid | (fire & used_up)),
            self.empty.eq(~valid & ~self.o.valid),
        ]
        with m.If(join):
            m.d.sync += [beats.eq(beats + self.i.payload.beats), last.eq(self.i.payload.last)]
        with m.Elif(self.i.ready):
            m.d.sync += [
                valid.eq(self.i.valid),
                addr.eq(self.i.payload.addr),
                beats.eq(self.i.payload.beats),
                last.eq(self.i.payload.last),
            ]
        with m.Elif(fire):
            next_high = (addr[high_bit:] + 1)[: ADDRESS_BITS - high_bit]
            m.d.sync += [addr.eq(Cat(Const(0, high_bit), next_high)), beats.eq(beats - room)]

        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += self.o.valid.eq(fire)
        with m.If(fire):
            m.d.sync += [
                self.o.payload.addr.eq(addr),
                self.o.payload.len.eq(Mux(full, room, beats) - 1),
                self.o.payload.last.eq(last & used_up),
            ]
        return m


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

        # Address channel: a register, then the bus.
        accept = Signal()
        m.d.comb += [
            self.i.ready.eq(
                self.enable & lengths.i.ready & acks.i.ready & (~self.aw.valid | self.aw.ready)
            ),
            accept.eq(self.i.valid & self.i.ready),
            lengths.i.valid.eq(accept),
            lengths.i.payload.eq(Cat(self.i.payload.len, self.i.payload.last)),
            acks.i.valid.eq(accept),
            acks.i.payload.eq(self.i.payload.last),
        ]
        with m.If(~self.aw.valid | self.aw.ready):
            m.d.sync += self.aw.valid.eq(accept)
        with m.If(accept):
            m.d.sync += self.aw.payload.eq(self.i.payload)

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


def write_beat_layout(config: AccelConfig) -> data.StructLayout:
    """A beat of the write data channel."""
    return data.StructLayout(
        {
            "data": unsigned(config.bus_bytes * 8),
            "strb": unsigned(config.bus_bytes),
            "last": unsigned(1),
        }
    )
