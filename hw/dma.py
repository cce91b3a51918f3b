"""Addresses of data movement: from a strided transfer to runs, from runs to bursts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.hw.axi import ADDRESS_BITS, PAGE_BYTES
from accelc.hw.layouts import beat_address_bits
from accelc.isa.config import AccelConfig


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
        # beats up to the next multiple of the longest burst
        self.room = room = Signal(range(longest + 1), reset_less=True)
        full = Signal()
        join = Signal()
        fire = Signal()
        used_up = Signal()
        m.d.comb += [
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
                room.eq(longest - self.i.payload.addr[beat_log2:high_bit]),
                beats.eq(self.i.payload.beats),
                last.eq(self.i.payload.last),
            ]
        with m.Elif(fire):
            next_high = (addr[high_bit:] + 1)[: ADDRESS_BITS - high_bit]
            m.d.sync += [
                addr.eq(Cat(Const(0, high_bit), next_high)),
                room.eq(longest),
                beats.eq(beats - room),
            ]

        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += self.o.valid.eq(fire)
        with m.If(fire):
            m.d.sync += [
                self.o.payload.addr.eq(addr),
                self.o.payload.len.eq(Mux(full, room, beats) - 1),
                self.o.payload.last.eq(last & used_up),
            ]
        return m
