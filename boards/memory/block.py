"""Block RAM as the accelerator's memory."""

from amaranth.hdl import Cat, Module, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory, ReadPort, WritePort
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.hw.axi import ADDRESS_BITS, PAGE_BYTES, Axi4, Response
from accelc.isa.config import AccelConfig


class BlockMemory(wiring.Component):
    """Two-port RAM behind an AXI4 port: reads and writes do not see each other.

    Throughput: a beat each way per cycle, also from burst to burst. Latency: 3 cycles to the first
    beat. What a read returns of bytes that are written at the same time is undefined.

    Members
    -------
    bus : In(Axi4)
        INCR bursts of whole beats with ID 0; addresses from ``nbytes`` on answer DECERR.
    ready : Out(1)
        Always.
    """

    bus: wiring.PureInterface
    ready: Signal

    def __init__(self, config: AccelConfig, nbytes: int) -> None:
        """``nbytes`` is a multiple of a page."""
        self._config = config
        self._nbytes = nbytes
        super().__init__({"bus": In(Axi4(config)), "ready": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._config.bus_bytes
        depth = self._nbytes // width
        m.submodules.storage = storage = Memory(shape=unsigned(width * 8), depth=depth, init=[])
        write = storage.write_port(granularity=8)
        read = storage.read_port()
        m.d.comb += self.ready.eq(1)
        self._write(m, write)
        self._read(m, read)
        return m

    def _beyond(self, address: Value) -> Value:
        page_log2 = exact_log2(PAGE_BYTES)
        return address[page_log2:ADDRESS_BITS] >= self._nbytes // PAGE_BYTES

    def _write(self, m: Module, port: WritePort) -> None:
        bus = self.bus
        beat_log2 = exact_log2(self._config.bus_bytes)
        active = Signal(name="w_active")
        bad = Signal(name="w_bad", reset_less=True)
        address = Signal.like(port.addr, name="w_address", reset_less=True)
        take, end = Signal(name="w_take"), Signal(name="w_end")
        m.d.comb += [
            bus.wready.eq(active & (~bus.bvalid | bus.bready)),
            take.eq(bus.wvalid & bus.wready),
            end.eq(take & bus.wlast),
            bus.awready.eq(~active | end),
        ]
        # A register before many blocks; a read cannot follow the response fast enough to miss it.
        m.d.sync += [
            port.addr.eq(address),
            port.data.eq(bus.wdata),
            port.en.eq(bus.wstrb & (take & ~bad).replicate(self._config.bus_bytes)),
        ]
        with m.If(take):
            m.d.sync += address.eq(_next_beat(address, beat_log2))
        with m.If(bus.awready):
            m.d.sync += [
                active.eq(bus.awvalid),
                address.eq(bus.awaddr[beat_log2:]),
                bad.eq(self._beyond(bus.awaddr)),
            ]
        with m.If(end):
            m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(bad.replicate(2))]
        with m.Elif(bus.bready):
            m.d.sync += bus.bvalid.eq(0)

    def _read(self, m: Module, port: ReadPort) -> None:
        bus = self.bus
        beat_log2 = exact_log2(self._config.bus_bytes)
        # Stage 0: the address. All stages move together.
        active = Signal(name="r_active")
        bad = Signal(name="r_bad", reset_less=True)
        address = Signal.like(port.addr, name="r_address", reset_less=True)
        left = Signal(8, name="r_left", reset_less=True)
        last = Signal(name="r_last", reset_less=True)
        move = Signal(name="r_move")
        m.d.comb += [
            move.eq(~bus.rvalid | bus.rready),
            bus.arready.eq(~active | (move & last)),
            port.addr.eq(address),
            port.en.eq(move),
        ]
        with m.If(move):
            m.d.sync += [
                address.eq(_next_beat(address, beat_log2)),
                left.eq(left - 1),
                last.eq(left == 1),
            ]
        with m.If(bus.arready):
            m.d.sync += [
                active.eq(bus.arvalid),
                address.eq(bus.araddr[beat_log2:]),
                left.eq(bus.arlen),
                last.eq(bus.arlen == 0),
                bad.eq(self._beyond(bus.araddr)),
            ]
        # Stage 1: the RAM's output; stage 2: the bus.
        valid1 = Signal()
        bad1 = Signal(reset_less=True)
        last1 = Signal(reset_less=True)
        with m.If(move):
            m.d.sync += [
                valid1.eq(active),
                bad1.eq(bad),
                last1.eq(last),
                bus.rvalid.eq(valid1),
                bus.rdata.eq(port.data),
                bus.rresp.eq(bad1.replicate(2)),
                bus.rlast.eq(last1),
            ]


def _next_beat(address: Signal, beat_log2: int) -> Value:
    """The next beat's address; no burst leaves its page, so that the carry is a short one."""
    inside = exact_log2(PAGE_BYTES) - beat_log2
    return Cat((address[:inside] + 1)[:inside], address[inside:])


assert Response.DECERR == 0b11, "an error is its bit twice"
