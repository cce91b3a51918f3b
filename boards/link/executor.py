"""Executes checked requests, byte by byte, and says what goes into the answer."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from accelc.boards.link.protocol import (
    CRC_BYTES,
    DELIMITER,
    PAGE_BYTES,
    REQUEST_HEADER,
    SYNC,
    VERSION,
    Region,
    Status,
)
from accelc.boards.link.sender import ANSWER
from accelc.hw.axi import CACHE_BUFFERABLE, LITE_ADDRESS_BITS, Axi4, Axi4Lite, Burst
from accelc.isa.config import AccelConfig

# Places of the fields of REQUEST_HEADER.
_COMMAND, _SESSION, _SEQUENCE, _TAG, _LENGTH, _ADDRESS = 0, 1, 3, 4, 6, 8
_PAGE_BITS = exact_log2(PAGE_BYTES)
# The end of an answer.
_EXPECTED, _STATUS, _CRC, _BORDER = 0, 1, 2, 2 + CRC_BYTES


class _Source(enum.Enum, shape=2):
    """Where a byte of an answer comes from."""

    STATE = 0
    KEPT = 1
    BUFFER = 2
    BUS = 3


class Executor(wiring.Component):
    """Executes one request after the other.

    A byte of memory or of a register is one access: strobes select it in a write. That takes less
    time than the byte on the line if the bus answers within 20 cycles and a bit takes 4; where it
    does not, the host's next requests find no room and are repeated.

    Members
    -------
    full, damaged : In(1)
        There is a request; there was something else, which is answered too.
    take, excuse : Out(1)
        What is wanted next is the request, or that answer.
    index : Out(8)
        Place of the byte wanted from the request.
    record : Out(1)
        It is wanted from the board's record instead, whose first byte has the index that follows
        a header.
    fetch : In(1)
        ``byte`` follows ``index`` at the end of this cycle; else it keeps its value.
    byte : In(8)
    answer : Out(stream of ANSWER)
    memory : Out(Axi4)
    registers : Out(Axi4Lite)
    core_busy : In(1)
        Refuse accesses to memory.
    mlperf : Out(1)
        For a cycle: the host handed the line over, and knows that it worked.
    """

    full: Signal
    damaged: Signal
    take: Signal
    excuse: Signal
    index: Signal
    record: Signal
    fetch: Signal
    byte: Signal
    answer: stream.Interface
    memory: wiring.PureInterface
    registers: wiring.PureInterface
    core_busy: Signal
    mlperf: Signal

    def __init__(self, config: AccelConfig, memory_bytes: int) -> None:
        self._config = config
        super().__init__(
            {
                "full": In(1),
                "damaged": In(1),
                "take": Out(1),
                "excuse": Out(1),
                "index": Out(8),
                "record": Out(1),
                "fetch": In(1),
                "byte": In(8),
                "answer": Out(stream.Signature(ANSWER)),
                "memory": Out(Axi4(config)),
                "registers": Out(Axi4Lite()),
                "core_busy": In(1),
                "mlperf": Out(1),
            }
        )
        self._byte = Signal(8)
        self._write = Signal()
        self._sync = Signal()
        self._region = Signal(2)
        bits = max(ceil_log2(memory_bytes), LITE_ADDRESS_BITS, exact_log2(PAGE_BYTES))
        self._address = Signal(bits)
        # Ones' complement of the bytes left: all ones are none. It and the address within its page
        # are cleared, then loaded by adding to them: that spares a choice in front of each bit.
        self._left = Signal(_PAGE_BITS)
        self._term = Signal(_PAGE_BITS)
        self._clear = Signal()
        self._load_address = Signal()
        self._load_length = Signal()
        self._status = Signal(Status)
        self._wrong = Signal()
        self._code = Signal(Status)
        # What the board knows from request to request: session, then expected sequence number.
        # It turns by a byte at a time, so that one comparator and one adder serve all of it.
        self._kept = Signal(24)
        self._turn = Signal()
        # What the turning byte becomes: that of the request, or 0, or one more.
        self._adopt = Signal()
        self._zero = Signal()
        self._advance = Signal()
        self._finished = Signal()
        self._source = Signal(_Source)
        # The byte of a bus that is read.
        self._word = Signal(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kept = self._kept
        following = Signal(8)
        m.d.comb += following.eq(kept[:8] + self._advance)
        with m.If(self._turn):
            turned = Mux(self._adopt, self._byte, following)
            m.d.sync += kept.eq(Cat(kept[8:], Mux(self._zero, 0, turned)))

        index, answer = self.index, self.answer
        # Where the answer's next byte is from; what is left over is a status or a delimiter.
        with m.Switch(self._source):
            with m.Case(_Source.KEPT):
                m.d.comb += answer.payload.byte.eq(following)
            with m.Case(_Source.BUFFER):
                m.d.comb += answer.payload.byte.eq(self._byte)
            with m.Case(_Source.BUS):
                m.d.comb += answer.payload.byte.eq(self._word)
            with m.Default():
                state = Mux(answer.payload.border, DELIMITER, self._status)
                m.d.comb += answer.payload.byte.eq(state)
        step, restart, loaded = Signal(), Signal(), Signal()
        # Block RAM is slow: what it gives is not looked at before the next cycle.
        fetched = Signal()
        m.d.sync += [self._byte.eq(self.byte), loaded.eq(fetched)]
        with m.If(step | restart):
            m.d.sync += [fetched.eq(0), loaded.eq(0)]
        with m.Elif(self.fetch):
            m.d.sync += fetched.eq(1)
        with m.If(restart):
            m.d.sync += index.eq(0)
        with m.Elif(step):
            m.d.sync += index.eq(index + 1)

        # Nothing is left to do, or there was an error; and whether a whole write was good. A cycle
        # late, which changes nothing: a byte takes longer than what comes of the one before it.
        over, advance = Signal(), Signal()
        wrong, code = Signal(), Signal(Status)
        good = self._status == Status.OK
        m.d.sync += [
            over.eq(self._sync | self._left.all() | ~good),
            advance.eq(self._write & ~self._sync & good),
        ]
        # Set by an access that is complete in this cycle, with what came of it.
        start, go, done, refused = Signal(), Signal(), Signal(), Signal()
        with m.FSM():
            with m.State("idle"):
                m.d.sync += [self._sync.eq(0), self._status.eq(Status.OK)]
                with m.If(self.full):
                    # from here on bytes are of the other half
                    m.d.comb += [self.take.eq(1), restart.eq(1)]
                    m.next = "border"
                with m.Elif(self.damaged):
                    m.d.comb += self.excuse.eq(1)
                    m.d.sync += self._status.eq(Status.CHECKSUM)
                    m.next = "border"
            with m.State("border"):
                m.d.comb += [self._clear.eq(1), answer.valid.eq(1), answer.payload.border.eq(1)]
                with m.If(answer.ready):
                    m.next = "header"
            with m.State("header"):
                self._header(m, loaded, step)
                m.d.comb += self._source.eq(Mux(index[1], _Source.KEPT, _Source.BUFFER))
                with m.If(step & (index[:4] == REQUEST_HEADER.size - 1)):
                    m.next = "data"
            with m.State("data"):
                with m.If(loaded):
                    with m.If(over):
                        m.d.comb += restart.eq(1)
                        m.next = "end"
                    with m.Elif(wrong | (self.core_busy & (self._region == Region.MEMORY))):
                        m.d.comb += [self._code.eq(Status.BUSY), self._wrong.eq(1)]
                    with m.Else():
                        m.d.comb += start.eq(1)
                        m.next = "access"
                m.d.comb += self.record.eq(self._region[1] & ~self._write)
            with m.State("access"):
                m.d.comb += [go.eq(1), step.eq(done)]
                with m.If(done):
                    m.next = "data"
                m.d.comb += [
                    self.record.eq(self._region[1] & ~self._write),
                    self._source.eq(Mux(self._region[1], _Source.BUFFER, _Source.BUS)),
                ]
            with m.State("end"):
                # it counts where the kept byte turns only
                m.d.comb += [answer.valid.eq(1), self._advance.eq(advance)]
                with m.Switch(index[:3]):
                    with m.Case(_EXPECTED):
                        m.d.comb += [
                            self._source.eq(_Source.KEPT),
                            self._turn.eq(answer.ready),
                        ]
                    with m.Case(_STATUS):
                        pass
                    with m.Case(_BORDER):
                        m.d.comb += answer.payload.border.eq(1)
                    with m.Default():
                        m.d.comb += answer.payload.check.eq(1)
                m.d.comb += step.eq(answer.ready)
                with m.If(answer.ready & answer.payload.border):
                    m.d.comb += [restart.eq(1), self._finished.eq(1)]
                    m.next = "idle"
        self._access(m, start, go, done, refused)
        with m.If(done):
            m.d.comb += [self._code.eq(Status.ACCESS), self._wrong.eq(refused)]
        page = self._address[:_PAGE_BITS]
        term = Cat(self._term[0] | done, self._term[1:])
        with m.If(self._clear):
            m.d.sync += [page.eq(0), self._left.eq(0)]
        with m.Else():
            with m.If(self._load_address | done):
                m.d.sync += page.eq(page + term)
            with m.If(self._load_length | done):
                m.d.sync += self._left.eq(self._left + term)
        # The first thing that is wrong counts. A cycle later is early enough: the next look at the
        # status is two cycles away.
        m.d.sync += [wrong.eq(self._wrong), code.eq(self._code)]
        with m.If(wrong & (self._status == Status.OK)):
            m.d.sync += self._status.eq(code)
        return m

    def _header(self, m: Module, loaded: Signal, step: Signal) -> None:
        """Look at a byte of the request's header and answer with parts of it."""
        byte, answer = self._byte, self.answer
        differs = Signal()
        m.d.comb += differs.eq(byte != self._kept[:8])

        def fail(status: Status, when: Value) -> None:
            m.d.comb += [self._code.eq(status), self._wrong.eq(when)]

        with m.If(loaded), m.Switch(self.index[:4]):
            with m.Case(_COMMAND):
                known = Signal()
                m.d.comb += [
                    step.eq(1),
                    known.eq((byte[4:] == VERSION) & ~byte[1:3].all()),
                ]
                m.d.sync += [self._write.eq(byte[0]), self._region.eq(byte[1:3])]
                fail(Status.VERSION, ~known)
                good = known & (self._status == Status.OK)
                m.d.sync += self._sync.eq((byte & SYNC).any() & good)
            with m.Case(_SESSION, _SESSION + 1):
                m.d.comb += [step.eq(1), self._turn.eq(1), self._adopt.eq(self._sync)]
                fail(Status.SESSION, differs)
            with m.Case(_SEQUENCE):
                m.d.comb += [step.eq(1), self._turn.eq(1)]
                with m.If(self._sync):
                    # Nothing is wrong with another session, but then counting starts again.
                    m.d.comb += self._zero.eq(self._status == Status.SESSION)
                    m.d.sync += self._status.eq(Status.OK)
                with m.Else():
                    fail(Status.SEQUENCE, differs)
            with m.Case(_TAG, _TAG + 1):
                m.d.comb += [answer.valid.eq(1), step.eq(answer.ready)]
            for half in range(2):
                with m.Case(_LENGTH + half):
                    m.d.comb += [
                        self._load_length.eq(answer.ready),
                        self._term.eq(~byte << 8 * half),
                        answer.valid.eq(1),
                        step.eq(answer.ready),
                        self._turn.eq(answer.ready),
                    ]
            for quarter in range(4):
                with m.Case(_ADDRESS + quarter):
                    low, width = 8 * quarter, len(self._address)
                    m.d.comb += [
                        step.eq(1),
                        self._load_address.eq(1),
                        self._term.eq(byte << 8 * quarter),
                    ]
                    for place in range(max(low, _PAGE_BITS), min(low + 8, width)):
                        m.d.sync += self._address[place].eq(byte[place - low])
                    fail(Status.ADDRESS, byte[min(max(width - low, 0), 8) :].any())

    def _access(self, m: Module, start: Signal, go: Signal, done: Signal, refused: Signal) -> None:
        """Read or write a byte: asked for in the cycle of ``start``, waited for while ``go``.

        All that goes to the buses and comes from them passes a register: they reach far.
        """
        memory, registers, answer = self.memory, self.registers, self.answer
        config = self._config
        lane_bits = exact_log2(config.bus_bytes)
        lane, register_lane = self._address[:lane_bits], self._address[:2]
        m.d.comb += [
            memory.awaddr.eq(Cat(Const(0, lane_bits), self._address[lane_bits:])),
            memory.araddr.eq(memory.awaddr),
            memory.awsize.eq(lane_bits),
            memory.arsize.eq(lane_bits),
            memory.awburst.eq(Burst.INCR),
            memory.arburst.eq(Burst.INCR),
            memory.awcache.eq(CACHE_BUFFERABLE),
            memory.arcache.eq(CACHE_BUFFERABLE),
            memory.wdata.eq(self._byte.replicate(config.bus_bytes)),
            memory.wstrb.eq(1 << lane),
            memory.wlast.eq(1),
            registers.awaddr.eq(Cat(Const(0, 2), self._address[2:])),
            registers.araddr.eq(registers.awaddr),
            registers.wdata.eq(self._byte.replicate(4)),
            registers.wstrb.eq(1 << register_lane),
        ]
        got = Signal()
        with m.If(done):
            m.d.sync += got.eq(0)
        for region, bus in ((Region.MEMORY, memory), (Region.REGISTERS, registers)):
            here = start & (self._region == region)
            for valid, ready, ours in (
                (bus.awvalid, bus.awready, self._write),
                (bus.wvalid, bus.wready, self._write),
                (bus.arvalid, bus.arready, ~self._write),
            ):
                with m.If(here & ours):
                    m.d.sync += valid.eq(1)
                with m.Elif(ready):
                    m.d.sync += valid.eq(0)
            m.d.comb += [bus.bready.eq(1), bus.rready.eq(1)]
            with m.If(bus.bvalid | bus.rvalid):
                m.d.sync += got.eq(1)
        with m.If(memory.rvalid | registers.rvalid):
            m.d.sync += self._word.eq(
                Mux(
                    self._region[0],
                    registers.rdata.word_select(register_lane, 8),
                    memory.rdata.word_select(lane, 8),
                )
            )
        bad = Signal()
        with m.If(~got):
            responses = [
                Mux(self._write, bus.bresp[1], bus.rresp[1]) for bus in (memory, registers)
            ]
            m.d.sync += bad.eq(Mux(self._region[0], responses[1], responses[0]))
        m.d.comb += refused.eq(bad & ~self._region[1])
        # A line handed over when the answer has left.
        handing = Signal()
        with m.If(go):
            arrived = got | self._region[1]
            with m.If(self._write):
                m.d.comb += done.eq(arrived)
                with m.If(self._region[1]):
                    m.d.sync += handing.eq(self._byte[0])
            with m.Else():
                m.d.comb += [answer.valid.eq(arrived), done.eq(arrived & answer.ready)]
        with m.If(self._finished):
            m.d.comb += self.mlperf.eq(handing)
            m.d.sync += handing.eq(0)
