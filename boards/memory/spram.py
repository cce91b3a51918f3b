"""The iCE40 UltraPlus's single-port RAMs as the accelerator's memory."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from accelc.hw.axi import ADDRESS_BITS, PAGE_BYTES, Axi4
from accelc.isa.config import AccelConfig


class SpramMemory(wiring.Component):
    """Single-port RAM behind an AXI4 port, made for few logic cells and a fast clock.

    One burst at a time, read and write bursts in turn when both are waiting. A write's data must
    not wait for a read: until its last beat no read goes ahead.

    The RAMs sit in the chip's corners, a third of a fast cycle away from everything else: what
    goes there comes from registers, with a level of logic in between where it must.

    Throughput: a beat per cycle; a cycle is lost behind a read, two behind a write. Latency: 2
    cycles to a read's first beat.

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

        # A burst begins when the one before it has ended; the direction served last waits.
        reading, writing, write_last = Signal(), Signal(), Signal()
        # From a write's address to its answer.
        answers = Signal()
        # `stores` is `writing` where there is memory; `bad` says that there is none.
        stores, bad, beyond = Signal(), Signal(reset_less=True), Signal()
        left = Signal(ceil_log2(max(self._config.max_burst_beats, 2)), reset_less=True)
        free, choose_write = Signal(), Signal()
        start_read, start_write = Signal(), Signal()
        put, get = Signal(), Signal()
        m.d.comb += [
            self.ready.eq(1),
            bus.rresp.eq(bad.replicate(2)),
            bus.rdata.eq(read.data),
            bus.bresp.eq(bad.replicate(2)),
            get.eq(bus.rvalid & bus.rready),
            free.eq(~answers & (~reading | (bus.rlast & bus.rready))),
            choose_write.eq(bus.awvalid & (~bus.arvalid | ~write_last)),
            bus.arready.eq(free & ~choose_write),
            bus.awready.eq(free & choose_write),
            start_read.eq(bus.arready & bus.arvalid),
            start_write.eq(bus.awready),
            bus.wready.eq(writing),
            put.eq(writing & bus.wvalid),
            beyond.eq(
                Mux(
                    choose_write,
                    bus.awaddr[size_log2:ADDRESS_BITS].any(),
                    bus.araddr[size_log2:ADDRESS_BITS].any(),
                )
            ),
        ]
        with m.If(free):
            m.d.sync += [
                reading.eq(start_read),
                writing.eq(start_write),
                answers.eq(start_write),
                stores.eq(start_write & ~beyond),
                bad.eq(beyond),
                left.eq(bus.arlen),
            ]
            with m.If(bus.arvalid | bus.awvalid):
                m.d.sync += write_last.eq(choose_write)
        with m.Elif(get):
            m.d.sync += left.eq(left - 1)
        with m.Elif(put):
            m.d.sync += bus.bvalid.eq(bus.wlast)
            with m.If(bus.wlast):
                m.d.sync += [writing.eq(0), stores.eq(0)]
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += [bus.bvalid.eq(0), answers.eq(0)]
        # The last beat is known as such in its own cycles only: `free` waits for it.
        m.d.sync += [
            bus.rvalid.eq(reading & ~free),
            bus.rlast.eq(reading & ~free & (left == get)),
        ]

        # A beat that nobody took is read again. No burst leaves its page: only the low part counts.
        inside = exact_log2(PAGE_BYTES) - beat_log2
        address = Signal(size_log2 - beat_log2, reset_less=True)
        following = Signal(inside, reset_less=True)
        begin, chosen = Signal.like(address), Signal.like(address)
        low, high = address[:inside], address[inside:]
        m.d.comb += [
            begin.eq(Mux(choose_write, bus.awaddr, bus.araddr)[beat_log2:size_log2]),
            chosen.eq(Mux(free, begin, Cat(Mux(get | put, following, low), high))),
            read.addr.eq(Cat(Mux(get, following, low), high)),
            write.addr.eq(read.addr),
            write.data.eq(bus.wdata),
            write.en.eq(bus.wstrb & (stores & bus.wvalid).replicate(width)),
            read.en.eq(~(stores & bus.wvalid)),
        ]
        m.d.sync += [address.eq(chosen), following.eq(chosen[:inside] + 1)]
        return m
