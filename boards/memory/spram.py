"""The iCE40 UltraPlus's single-port RAMs as the accelerator's memory."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from accelc.hw.axi import ADDRESS_BITS, PAGE_BYTES, Axi4
from accelc.isa.config import AccelConfig


class SpramMemory(wiring.Component):
    """Single-port RAM behind an AXI4 port, made for few logic cells.

    One burst at a time, read and write bursts in turn when both are waiting. A write's data must
    not wait for a read: until its last beat no read goes ahead.

    Throughput: a beat per cycle; a cycle is lost behind a read, two behind a write. Latency: 1
    cycle to a read's first beat.

    Members
    -------
    bus : In(Axi4)
        INCR bursts of whole beats with ID 0, up to ``max_burst_beats`` long; addresses from
        ``nbytes`` on answer DECERR.
    ready : Out(1)
        Always.
    """

    bus: wiring.PureInterface
    ready: Signal

    def __init__(self, config: AccelConfig, nbytes: int) -> None:
        """``nbytes`` is a power of two."""
        self._config = config
        self._nbytes = nbytes
        super().__init__({"bus": In(Axi4(config)), "ready": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        width = self._config.bus_bytes
        beat_log2, size_log2 = exact_log2(width), exact_log2(self._nbytes)
        # What Yosys makes an SPRAM of: one address, reading whenever it is not writing, "huge".
        m.submodules.storage = storage = Memory(
            shape=unsigned(width * 8),
            depth=self._nbytes // width,
            init=[],
            attrs={"ram_style": "huge"},
        )
        write = storage.write_port(granularity=8)
        read = storage.read_port()

        reading, writing = Signal(), Signal()
        # The beat at `address` was read or written: the next one is behind it.
        begun = Signal()
        bad = Signal(reset_less=True)
        left = Signal(ceil_log2(max(self._config.max_burst_beats, 2)), reset_less=True)
        write_last = Signal()

        # A burst begins when the one before it has ended; the direction served last waits.
        free, end, choose_write = Signal(), Signal(), Signal()
        start_read, start_write = Signal(), Signal()
        put, get = Signal(), Signal()
        m.d.comb += [
            self.ready.eq(1),
            bus.rvalid.eq(reading),
            bus.rlast.eq(left == 0),
            bus.rresp.eq(bad.replicate(2)),
            bus.rdata.eq(read.data),
            bus.bresp.eq(bad.replicate(2)),
            get.eq(reading & bus.rready),
            end.eq(get & bus.rlast),
            # not in a read's last cycle: the master's answer would reach the RAM's address
            free.eq(~writing & ~bus.bvalid & ~reading),
            choose_write.eq(bus.awvalid & (~bus.arvalid | ~write_last)),
            bus.arready.eq(free & ~choose_write),
            bus.awready.eq(free & choose_write),
            start_read.eq(bus.arready & bus.arvalid),
            start_write.eq(bus.awready),
            bus.wready.eq(writing),
            put.eq(writing & bus.wvalid),
        ]
        with m.If(start_read | start_write):
            m.d.sync += [
                reading.eq(start_read),
                writing.eq(start_write),
                write_last.eq(start_write),
                bad.eq(
                    Mux(
                        choose_write,
                        bus.awaddr[size_log2:ADDRESS_BITS].any(),
                        bus.araddr[size_log2:ADDRESS_BITS].any(),
                    )
                ),
                left.eq(bus.arlen),
                begun.eq(start_read),
            ]
        with m.Elif(end):
            m.d.sync += reading.eq(0)
        with m.Elif(put):
            m.d.sync += [begun.eq(1), writing.eq(~bus.wlast), bus.bvalid.eq(bus.wlast)]
        with m.If(get & ~end):
            m.d.sync += left.eq(left - 1)
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)

        # No burst leaves its page: only the low part counts.
        inside = exact_log2(PAGE_BYTES) - beat_log2
        address, following = Signal.like(read.addr, reset_less=True), Signal.like(read.addr)
        chosen = Mux(choose_write, bus.awaddr, bus.araddr)[beat_log2:size_log2]
        step = begun & (get | put)
        counted = Cat((address[:inside] + step)[:inside], address[inside:])
        m.d.comb += [
            following.eq(Mux(start_read | start_write, chosen, counted)),
            read.addr.eq(following),
            write.addr.eq(following),
            write.data.eq(bus.wdata),
            write.en.eq(bus.wstrb & (put & ~bad).replicate(width)),
            read.en.eq(~(put & ~bad)),
        ]
        m.d.sync += address.eq(following)
        return m
