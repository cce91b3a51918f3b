"""An SDR SDRAM as the accelerator's memory."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect

from accelc.boards.memory.chips import SdramChip
from accelc.boards.memory.pins import SdramPins
from accelc.boards.memory.requests import Requests, words_per_beat
from accelc.boards.memory.scheduler import Command, Scheduler
from accelc.boards.memory.timing import SdramTiming
from accelc.hw.axi import Axi4, Response
from accelc.hw.fifo import Fifo
from accelc.isa.config import AccelConfig

#: Beats on their way in each direction: they cover the way to the chip and back.
BUFFERED = 16


class SdramMemory(wiring.Component):
    """A controller for one SDR SDRAM behind an AXI4 port.

    Commands, addresses and data leave from registers, data arrive in registers. Reads and writes
    are made in the order their bursts were chosen in: a read that comes after a write's response
    sees what was written. While a write burst waits for its data, reads behind it wait, too.

    Throughput: a beat per ``words_per_beat`` cycles. Latency: 6 cycles, those of a beat, CAS
    latency and ``io_cycles`` from the address of a read to its first beat if the row is open.

    Members
    -------
    bus : In(Axi4)
        INCR bursts of whole beats with ID 0 that stay within 4096 bytes; addresses beyond the chip
        answer DECERR.
    ready : Out(1)
        The chip is initialised; requests that come earlier wait.
    sdram : Out(SdramPins)
    """

    bus: wiring.PureInterface
    ready: Signal
    sdram: wiring.PureInterface

    def __init__(
        self,
        config: AccelConfig,
        chip: SdramChip,
        clock_hz: int,
        *,
        io_cycles: int = 0,
        masks: bool = True,
        timing: SdramTiming | None = None,
    ) -> None:
        """Build the controller.

        Parameters
        ----------
        config
            Its bus is 1, 2, 4 or 8 words of the chip wide.
        chip
        clock_hz
            Clock of controller and chip.
        io_cycles
            Cycles by which registers outside lengthen the way to the chip and back.
        masks
            Whether the chip's byte masks are wired; else a beat is written whole or, when it has
            no strobe set, not at all. One with some of its strobes set answers SLVERR.
        timing
            Other distances than the chip's own.
        """
        self._config = config
        self._chip = chip
        self._io_cycles = io_cycles
        self._masks = masks
        burst = words_per_beat(config, chip)
        self.timing = timing or SdramTiming.of(chip, clock_hz, burst=burst)
        super().__init__({"bus": In(Axi4(config)), "ready": Out(1), "sdram": Out(SdramPins(chip))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.requests = requests = Requests(self._config, self._chip)
        m.submodules.scheduler = scheduler = Scheduler(self._config, self._chip, self.timing)
        connect(m, requests.o, scheduler.i)
        bus = self.bus
        for port, channel in ((requests.read, "ar"), (requests.write, "aw")):
            m.d.comb += [
                port.payload.addr.eq(getattr(bus, f"{channel}addr")),
                port.payload.len.eq(getattr(bus, f"{channel}len")),
                port.valid.eq(getattr(bus, f"{channel}valid")),
                getattr(bus, f"{channel}ready").eq(port.ready),
            ]
        m.d.comb += self.ready.eq(scheduler.ready)
        self._commands(m, scheduler)
        self._write_data(m, requests, scheduler)
        self._read_data(m, scheduler)
        return m

    def _commands(self, m: Module, scheduler: Scheduler) -> None:
        pins = self.sdram
        m.d.comb += [pins.cke.eq(1), pins.cs_n.eq(0)]
        command = Signal(3, init=Command.NO_OPERATION)
        m.d.comb += Cat(pins.we_n, pins.cas_n, pins.ras_n).eq(command)
        m.d.sync += [
            command.eq(scheduler.command),
            pins.ba.eq(scheduler.bank),
            pins.a.eq(scheduler.address),
        ]

    def _write_data(self, m: Module, requests: Requests, scheduler: Scheduler) -> None:
        bus, pins = self.bus, self.sdram
        word_bits, words = self._chip.data_bits, self.timing.burst
        layout = data.StructLayout(
            {
                "data": data.ArrayLayout(unsigned(word_bits), words),
                "strb": data.ArrayLayout(unsigned(word_bits // 8), words),
            }
        )
        m.submodules.written = fifo = Fifo(layout, depth=BUFFERED)
        head = fifo.o.payload
        m.d.comb += [
            fifo.i.valid.eq(bus.wvalid),
            bus.wready.eq(fifo.i.ready),
            fifo.i.payload.data.eq(bus.wdata),
            fifo.i.payload.strb.eq(bus.wstrb),
            fifo.o.ready.eq(scheduler.writing & (scheduler.word == words - 1)),
            requests.write_data.eq(fifo.o.valid),
            scheduler.write_data.eq(fifo.o.valid),
            scheduler.write_room.eq(~bus.bvalid | ~(scheduler.end & scheduler.segment.last)),
        ]
        strobes = Cat(head.strb[word] for word in range(words))
        whole = Signal()
        m.d.comb += [
            whole.eq(strobes.all()),
            scheduler.write_whole.eq(1 if self._masks else whole),
        ]
        word = Array(head.data[i] for i in range(words))[scheduler.word]
        strobe = Array(head.strb[i] for i in range(words))[scheduler.word]
        m.d.sync += [
            pins.dq_oe.eq(scheduler.driving),
            pins.dq_o.eq(word),
            pins.dqm.eq(Mux(scheduler.driving, ~strobe, ~scheduler.ready.replicate(len(pins.dqm)))),
        ]

        segment = scheduler.segment
        torn = Signal()
        cut = Signal()
        write = scheduler.beat & segment.write
        if not self._masks:
            m.d.comb += cut.eq(strobes.any() & ~whole)
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(write):
            m.d.sync += torn.eq(torn | cut)
            with m.If(scheduler.end & segment.last):
                slverr = Mux(torn | cut, Response.SLVERR, Response.OKAY)
                m.d.sync += [
                    bus.bvalid.eq(1),
                    bus.bresp.eq(Mux(segment.bad, Response.DECERR, slverr)),
                    torn.eq(0),
                ]

    def _read_data(self, m: Module, scheduler: Scheduler) -> None:
        bus, pins = self.bus, self.sdram
        words = self.timing.burst
        segment = scheduler.segment
        #: What is known of a beat when its READ is decided.
        marks = data.StructLayout({"last": unsigned(1), "bad": unsigned(1)})
        # From the decision to the registered word: the command's register, the chip, the data's.
        cycles = 1 + self.timing.cas + self._io_cycles + 1
        valid = Signal(cycles)
        last, bad = Signal(cycles), Signal(cycles)
        read = Signal()
        m.d.comb += read.eq(scheduler.beat & ~segment.write)
        m.d.sync += [
            valid.eq(Cat(read, valid)),
            last.eq(Cat(scheduler.end & segment.last, last)),
            bad.eq(Cat(segment.bad, bad)),
        ]
        dq = Signal(self._chip.data_bits, reset_less=True)
        m.d.sync += dq.eq(pins.dq_i)

        # Words are gathered in the buffer: each has a memory of its own.
        write_at, read_at = Signal(range(BUFFERED)), Signal(range(BUFFERED))
        word = Signal(range(max(words, 2)))
        arrives = valid[-1] | (word != 0)
        complete = Signal()
        level = Signal(range(BUFFERED + 1))
        if words == 1:
            m.d.comb += complete.eq(valid[-1])
        else:
            m.d.comb += complete.eq(word == words - 1)
            with m.If(arrives):
                m.d.sync += word.eq(word + 1)
        taken = Signal()
        m.d.comb += [taken.eq(bus.rvalid & bus.rready), bus.rvalid.eq(level != 0)]
        m.d.sync += [
            level.eq(level + complete - taken),
            write_at.eq(write_at + complete),
            read_at.eq(read_at + taken),
        ]
        for index in range(words):
            m.submodules[f"word{index}"] = memory = Memory(
                shape=unsigned(self._chip.data_bits), depth=BUFFERED, init=[]
            )
            write_port, read_port = memory.write_port(), memory.read_port(domain="comb")
            m.d.comb += [
                write_port.addr.eq(write_at),
                write_port.data.eq(dq),
                write_port.en.eq(arrives & (word == index)),
                read_port.addr.eq(read_at),
                bus.rdata.word_select(index, self._chip.data_bits).eq(read_port.data),
            ]
        m.submodules.marks = memory = Memory(shape=marks, depth=BUFFERED, init=[])
        write_port, read_port = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            write_port.addr.eq(write_at),
            write_port.data.last.eq(last[-1]),
            write_port.data.bad.eq(bad[-1]),
            write_port.en.eq(valid[-1]),
            read_port.addr.eq(read_at),
            bus.rlast.eq(read_port.data.last),
            bus.rresp.eq(read_port.data.bad.replicate(2)),
        ]

        # Room for what is in the buffer and what is on its way.
        room = Signal(range(BUFFERED + 1), init=BUFFERED)
        m.d.sync += room.eq(room + taken - read)
        m.d.comb += scheduler.read_room.eq(room != 0)
