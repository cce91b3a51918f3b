"""The host's side of the register file: an AXI4-Lite slave with a copy of its own to read from."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Elaboratable, Module, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.axi import LITE_ADDRESS_BITS, Axi4Lite, Response
from accelc.hw.sequential.sequencer import WORD_BITS, WordStore
from accelc.hw.sequential.words import VISIBLE_WORDS, WORDS
from accelc.isa.registers import BY_NAME, REGISTERS, Access

_CONTROL = BY_NAME["control"].offset // 4
_PARAMETERS = tuple(r.offset // 4 for r in REGISTERS if r.access is Access.READ_WRITE)
_WATCHDOG = BY_NAME["watchdog_cycles"].offset // 4


def _is_one_of(address: Value, words: Sequence[range]) -> Value:
    """Whether a word's address lies in one of ``words``."""
    pattern = [format(word, f"0{len(address)}b") for part in words for word in part]
    return address.matches(*pattern)


class HostPort(wiring.Component):
    """Registers for the host: two words each, low half first.

    A read takes 3 cycles without writes of the sequencer, a write 3, one access of each kind at a
    time. A start, and an abort while not ``busy``, are answered when the sequencer has taken them:
    what the host reads afterwards is up to date. Parameters keep still while ``busy``, except
    ``watchdog_cycles``.

    Members
    -------
    bus : In(Axi4Lite)
    busy : In(1)
    take_start, take_abort : In(1)
        The sequencer has seen
    start, abort : Out(1)
        that software asked for this.
    writes : Out(WordStore())
        Parameters for the register file, written in a cycle in which
    ready : In(1)
        is high.
    written : In(WordStore())
        All writes of the register file, for the copy, which has them a cycle later.
    """

    bus: wiring.PureInterface
    busy: Signal
    take_start: Signal
    take_abort: Signal
    start: Signal
    abort: Signal
    writes: wiring.PureInterface
    ready: Signal
    written: wiring.PureInterface

    def __init__(self, contents: Sequence[int]) -> None:
        """Build the port; ``contents`` is the register file at power-up as the host sees it."""
        self.contents = tuple(contents)
        super().__init__(
            {
                "bus": In(Axi4Lite()),
                "busy": In(1),
                "take_start": In(1),
                "take_abort": In(1),
                "start": Out(1),
                "abort": Out(1),
                "writes": Out(WordStore()),
                "ready": In(1),
                "written": In(WordStore()),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        self._write(m)
        self._read(m)
        return m

    def _write(self, m: Module) -> None:
        bus = self.bus
        got_address, high, answer = Signal(), Signal(), Signal()
        address = Signal(LITE_ADDRESS_BITS - 2)
        # The sequencer's first words are the parameters' values after reset.
        open_ = Signal()
        with m.If(self.take_abort):
            m.d.sync += open_.eq(1)
        m.d.comb += [
            bus.awready.eq(open_ & ~got_address & ~answer),
            bus.bresp.eq(Response.OKAY),
        ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [got_address.eq(1), address.eq(bus.awaddr[2:])]

        # The word stays on the bus until both halves are written.
        performs = got_address & bus.wvalid
        allowed = address.matches(*_PARAMETERS) & (~self.busy | (address == _WATCHDOG))
        lanes = Cat(bus.wstrb).word_select(high, 2)
        m.d.comb += [
            self.writes.en.eq(lanes & (performs & allowed).replicate(2)),
            self.writes.addr.eq(Cat(high, address)),
            self.writes.data.eq(bus.wdata.word_select(high, WORD_BITS)),
            bus.wready.eq(performs & high & self.ready),
        ]
        with m.If(performs & self.ready):
            m.d.sync += high.eq(~high)
        with m.If(bus.wready):
            m.d.sync += [got_address.eq(0), answer.eq(1)]

        # looked at in the cycle of the first half
        asks_start, asks_abort = Signal(), Signal()
        controls = (address == _CONTROL) & bus.wstrb[0]
        m.d.sync += [
            asks_start.eq(controls & bus.wdata[0] & ~bus.wdata[1]),
            asks_abort.eq(controls & bus.wdata[1]),
        ]
        with m.If(self.take_start):
            m.d.sync += self.start.eq(0)
        with m.Elif(bus.wready & asks_start & ~self.busy):
            m.d.sync += self.start.eq(1)
        with m.If(self.take_abort):
            m.d.sync += self.abort.eq(0)
        with m.Elif(bus.wready & asks_abort):
            m.d.sync += self.abort.eq(1)
        settled = self.busy | ~(self.start | self.abort)
        with m.If(answer & settled & ~bus.bvalid):
            m.d.sync += bus.bvalid.eq(1)
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += [bus.bvalid.eq(0), answer.eq(0)]

    def _read(self, m: Module) -> None:
        bus = self.bus
        m.submodules.copy = copy = memory.Memory(shape=WORD_BITS, depth=WORDS, init=self.contents)
        read, write = copy.read_port(), copy.write_port(granularity=WORD_BITS // 2)
        written = Signal(len(self.written.addr) + WORD_BITS + 2)
        m.d.sync += written.eq(Cat(self.written.addr, self.written.data, self.written.en))
        address, lanes = written[: len(self.written.addr)], written[-2:]
        m.d.comb += [
            Cat(write.addr, write.data).eq(written),
            write.en.eq(lanes & _is_one_of(address, VISIBLE_WORDS).replicate(2)),
        ]

        # The address stays on the bus until both halves are read, in cycles without a write.
        low = Signal(WORD_BITS)
        got_low, got_high = Signal(), Signal()
        steps = bus.arvalid & ~bus.rvalid & ~lanes.any()
        m.d.comb += [
            read.addr.eq(Cat(got_low, bus.araddr[2:])),
            read.en.eq(steps & ~got_high),
            bus.arready.eq(got_high),
            bus.rdata.eq(Cat(low, read.data)),
            bus.rresp.eq(Response.OKAY),
        ]
        with m.If(steps & ~got_high):
            m.d.sync += [got_low.eq(1), got_high.eq(got_low)]
            with m.If(got_low):
                m.d.sync += low.eq(read.data)
        with m.If(got_high):
            m.d.sync += [got_low.eq(0), got_high.eq(0), bus.rvalid.eq(1)]
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)
