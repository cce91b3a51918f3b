"""What an SDRAM is told, and when."""

import enum

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.boards.memory.chips import SdramChip
from accelc.boards.memory.requests import segment_layout, words_per_beat
from accelc.boards.memory.timing import SdramTiming
from accelc.isa.config import AccelConfig

#: Refreshes after power-up; the most any data sheet asks for.
POWER_UP_REFRESHES = 8
#: Refreshes are made when nothing else is to do, or when so many are due.
FORCED_REFRESHES = 4
#: In PRECHARGE this address bit means all banks, in READ and WRITE that the row closes behind it.
ALL_BANKS = 10


class Command(enum.IntEnum):
    """RAS#, CAS# and WE#, from the highest bit."""

    MODE_REGISTER_SET = 0b000
    REFRESH = 0b001
    PRECHARGE = 0b010
    ACTIVATE = 0b011
    WRITE = 0b100
    READ = 0b101
    NO_OPERATION = 0b111


class _Phase(enum.IntEnum):
    """What the whole chip does."""

    POWER_UP = 0
    CLOSE = 1
    REFRESH = 2
    RUN = 3


class _Step(enum.IntEnum):
    """What is done to open a row."""

    LOOK = 0
    PRECHARGE = 1
    ACTIVATE = 2
    OPENING = 3


def mode_register(timing: SdramTiming) -> int:
    """Sequential bursts of ``burst`` words in both directions."""
    return timing.cas << 4 | exact_log2(timing.burst)


class Scheduler(wiring.Component):
    """Opens rows, moves beats and refreshes; every signal is a decision of this cycle.

    While a segment's beats move, the row of the next one is opened, if that is in another bank or
    open already: then its beats follow without a gap. Rows stay open until another row of their
    bank is wanted or a refresh closes all.

    Throughput: a beat per ``timing.burst`` cycles, also across segments.

    Members
    -------
    i : In(stream of segment_layout)
    ready : Out(1)
        The chip is initialised.
    read_room : In(1)
        A beat that is read can be taken.
    write_data : In(1)
        A beat to write is there.
    write_room : In(1)
        The end of a write burst can be acknowledged.
    write_whole : In(1)
        The beat to write is to be written; else it is passed over.
    beat : Out(1)
        A beat of ``segment`` moves; its first word is written in this cycle.
    segment : Out(segment_layout)
    end : Out(1)
        It is the last beat of its segment.
    word : Out(range(burst))
        The word within the beat, while one moves.
    writing : Out(1)
        A beat is taken from the data to write: from ``beat`` to its last word.
    driving : Out(1)
        A word is written.
    command : Out(3)
    bank, address : Out
    """

    i: stream.Interface
    ready: Signal
    read_room: Signal
    write_data: Signal
    write_room: Signal
    write_whole: Signal
    beat: Signal
    segment: wiring.PureInterface
    end: Signal
    word: Signal
    writing: Signal
    driving: Signal
    command: Signal
    bank: Signal
    address: Signal

    def __init__(self, config: AccelConfig, chip: SdramChip, timing: SdramTiming) -> None:
        self._config = config
        self._chip = chip
        self._timing = timing
        layout = segment_layout(config, chip)
        super().__init__(
            {
                "i": In(stream.Signature(layout)),
                "ready": Out(1),
                "read_room": In(1),
                "write_data": In(1),
                "write_room": In(1),
                "write_whole": In(1),
                "beat": Out(1),
                "segment": Out(layout),
                "end": Out(1),
                "word": Out(range(max(words_per_beat(config, chip), 2))),
                "writing": Out(1),
                "driving": Out(1),
                "command": Out(3),
                "bank": Out(chip.bank_bits),
                "address": Out(chip.row_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = 1 << self._chip.bank_bits
        bank_bits = self._chip.bank_bits
        #: Beats may move and rows be opened.
        self._run = Signal()
        #: A refresh waits: nothing new begins.
        self._stop = Signal()
        #: Every row is closed in this cycle.
        self._close_all = Signal()
        #: What is done to the rows, in this cycle.
        self._precharge, self._activate = Signal(), Signal()
        self._row_bank, self._open_row = Signal(bank_bits), Signal(self._chip.row_bits)
        self._is_open = Array(Signal(name=f"is_open{bank}") for bank in range(banks))
        #: Cycles until a bank may be precharged, and the others of its kind.
        longest = max(
            self._timing.active, self._timing.read_to_precharge, self._timing.write_to_precharge
        )
        self._busy = [Signal(range(longest), name=f"busy{bank}") for bank in range(banks)]
        timing = self._timing
        longest = max(timing.precharge, timing.refresh, timing.activate, timing.mode)
        self._wait = Signal(range(longest))
        self._beats(m)
        self._rows(m)
        idle = Signal()
        m.d.comb += idle.eq(~self._current & ~self.i.valid)
        self._chip_commands(m, idle)
        self._pins(m)
        return m

    def _beats(self, m: Module) -> None:
        """The segment whose beats move."""
        timing, segment = self._timing, self.segment
        current, current_open = Signal(), Signal()
        self._current, self._current_open = current, current_open
        self._next_open = Signal()
        end = Signal(reset_less=True)

        # The words of a beat; a segment's next beat follows the last one.
        word, moving_write, moving_real = Signal(self.word.shape()), Signal(), Signal()
        free = Signal()
        if timing.burst == 1:
            m.d.comb += free.eq(1)
        else:
            m.d.comb += free.eq(word == 0)
            with m.If(self.beat | ~free):
                m.d.sync += word.eq(word + 1)
        turn = Signal(range(timing.read_to_write))
        with m.If(turn != 0):
            m.d.sync += turn.eq(turn - 1)

        can_write = self.write_data & self.write_room & (turn == 0)
        can_move = Signal()
        real = Signal()
        m.d.comb += [
            can_move.eq(
                current
                & current_open
                & free
                & self._run
                & Mux(segment.write, can_write, self.read_room)
            ),
            # With bursts of one word there is no free place between two of them.
            self.beat.eq(
                can_move & ~(self._activate | self._precharge) if timing.burst == 1 else can_move
            ),
            real.eq(~segment.bad & (~segment.write | self.write_whole)),
            self.end.eq(end),
            self.word.eq(word),
            self.writing.eq(Mux(free, self.beat & segment.write, moving_write)),
            self.driving.eq(Mux(free, self.beat & segment.write & real, moving_real)),
        ]
        self._read, self._write = Signal(), Signal()
        m.d.comb += [
            self._read.eq(self.beat & ~segment.write & real),
            self._write.eq(self.beat & segment.write & real),
        ]
        with m.If(self.beat):
            m.d.sync += [
                segment.column.eq(segment.column + 1),
                segment.left.eq(segment.left - 1),
                end.eq(segment.left == 1),
                moving_write.eq(segment.write),
                moving_real.eq(segment.write & real),
            ]
            with m.If(end):
                m.d.sync += current.eq(0)
        with m.If(self._read):
            m.d.sync += turn.eq(timing.read_to_write - 1)

        m.d.comb += self.i.ready.eq(self._next_open & self._run & (~current | (self.beat & end)))
        with m.If(self._close_all):
            m.d.sync += current_open.eq(segment.bad)
        with m.If(self.i.ready):
            m.d.sync += [
                current.eq(1),
                current_open.eq(1),
                segment.eq(self.i.payload),
                end.eq(self.i.payload.left == 0),
            ]

    def _rows(self, m: Module) -> None:
        """Opens the row of the next segment, or of the current one after a refresh."""
        chip, timing = self._chip, self._timing
        segment, following = self.segment, self.i.payload
        m.submodules.open_rows = open_rows = Memory(
            shape=unsigned(chip.row_bits), depth=1 << chip.bank_bits, init=[]
        )
        read, write = open_rows.read_port(domain="comb"), open_rows.write_port()
        again = Signal()
        step = Signal(_Step)
        same_bank = Signal()
        may_close = Signal()
        slot = Signal()
        wait_over = Signal()
        m.d.comb += [
            self._row_bank.eq(Mux(again, segment.bank, following.bank)),
            read.addr.eq(self._row_bank),
            write.addr.eq(self._row_bank),
            write.en.eq(self._activate),
            self._open_row.eq(Mux(again, read.data, following.row)),
            write.data.eq(self._open_row),
            same_bank.eq(self._current & (segment.bank == following.bank)),
            may_close.eq(Array(count == 0 for count in self._busy)[self._row_bank]),
            # An open row's beats go first, but for bursts of a word, which leave no place.
            slot.eq(1 if timing.burst == 1 else ~self.beat),
            wait_over.eq(self._wait == 0),
        ]
        with m.If(~wait_over):
            m.d.sync += self._wait.eq(self._wait - 1)
        hit = self._is_open[following.bank] & (read.data == following.row)
        with m.Switch(step):
            with m.Case(_Step.LOOK):
                with m.If(self._run & self._current & ~self._current_open):
                    m.d.sync += [again.eq(1), step.eq(_Step.ACTIVATE)]
                with m.Elif(self._run & self.i.valid & ~self._next_open & ~again):
                    with m.If(following.bad | hit):
                        m.d.sync += self._next_open.eq(1)
                    with m.Elif(self._is_open[following.bank]):
                        m.d.sync += step.eq(_Step.PRECHARGE)
                    with m.Else():
                        m.d.sync += step.eq(_Step.ACTIVATE)
                with m.Else():
                    m.d.sync += again.eq(0)
            with m.Case(_Step.PRECHARGE):
                with m.If(self._stop):
                    m.d.sync += step.eq(_Step.LOOK)
                with m.Elif(~same_bank & may_close & slot):
                    m.d.comb += self._precharge.eq(1)
                    m.d.sync += [
                        self._is_open[self._row_bank].eq(0),
                        self._wait.eq(timing.precharge - 1),
                        step.eq(_Step.ACTIVATE),
                    ]
            with m.Case(_Step.ACTIVATE):
                with m.If(wait_over & slot):
                    m.d.comb += self._activate.eq(1)
                    m.d.sync += [
                        self._is_open[self._row_bank].eq(1),
                        # The next segment takes a cycle to become the current one.
                        self._wait.eq(Mux(again, timing.activate - 2, max(timing.activate - 3, 0))),
                        step.eq(_Step.OPENING),
                    ]
                    if timing.activate == 2:
                        with m.If(~again):
                            m.d.sync += [step.eq(_Step.LOOK), self._next_open.eq(1)]
            with m.Case(_Step.OPENING):
                with m.If(wait_over):
                    m.d.sync += step.eq(_Step.LOOK)
                    with m.If(again):
                        m.d.sync += self._current_open.eq(1)
                    with m.Else():
                        m.d.sync += self._next_open.eq(1)
        with m.If(self.i.ready):
            m.d.sync += self._next_open.eq(0)
        self._at_rest = Signal()
        m.d.comb += self._at_rest.eq(step == _Step.LOOK)
        with m.If(self._close_all):
            m.d.sync += self._next_open.eq(0)
            m.d.sync += [is_open.eq(0) for is_open in self._is_open]

        for bank, busy in enumerate(self._busy):
            with m.If(busy != 0):
                m.d.sync += busy.eq(busy - 1)
            with m.If(self._activate & (self._row_bank == bank)):
                m.d.sync += busy.eq(timing.active - 1)
            with m.If((self._read | self._write) & (segment.bank == bank)):
                m.d.sync += busy.eq(
                    Mux(segment.write, timing.write_to_precharge - 1, timing.read_to_precharge - 1)
                )

    def _chip_commands(self, m: Module, idle: Signal) -> None:
        """Power-up and refresh."""
        timing = self._timing
        timer = Signal(range(timing.refresh_interval), init=timing.refresh_interval - 1)
        tick = Signal()
        owed = Signal(range(POWER_UP_REFRESHES * 2))
        m.d.comb += tick.eq(timer == 0)
        m.d.sync += timer.eq(Mux(tick, timing.refresh_interval - 1, timer - 1))
        power_up_ticks = -(-timing.power_up // timing.refresh_interval)
        ticks = Signal(range(power_up_ticks + 1), init=power_up_ticks)

        phase = Signal(_Phase)
        refresh = Signal()
        quiet, initialised = Signal(), Signal()
        self._refresh, self._mode = refresh, Signal()
        m.d.comb += [
            self._run.eq((phase == _Phase.RUN) & ~self._stop),
            self.ready.eq(initialised),
            quiet.eq(~Cat(busy.any() for busy in self._busy).any()),
        ]
        m.d.sync += owed.eq(owed + tick - refresh)
        with m.Switch(phase):
            with m.Case(_Phase.POWER_UP):
                with m.If(tick):
                    m.d.sync += ticks.eq(ticks - 1)
                with m.If(ticks == 0):
                    m.d.sync += [owed.eq(POWER_UP_REFRESHES), phase.eq(_Phase.CLOSE)]
            with m.Case(_Phase.CLOSE):
                with m.If(quiet):
                    m.d.comb += self._close_all.eq(1)
                    m.d.sync += [
                        self._wait.eq(timing.precharge - 1),
                        phase.eq(_Phase.REFRESH),
                    ]
            with m.Case(_Phase.REFRESH):
                with m.If(self._wait == 0):
                    with m.If(owed != 0):
                        m.d.comb += refresh.eq(1)
                        m.d.sync += self._wait.eq(timing.refresh - 1)
                    with m.Elif(initialised):
                        m.d.sync += [phase.eq(_Phase.RUN), self._stop.eq(0)]
                    with m.Else():
                        m.d.comb += self._mode.eq(1)
                        m.d.sync += [
                            initialised.eq(1),
                            self._wait.eq(timing.mode - 1),
                        ]
            with m.Case(_Phase.RUN):
                with m.If((owed >= FORCED_REFRESHES) | ((owed != 0) & idle)):
                    m.d.sync += self._stop.eq(1)
                with m.If(self._stop & self._at_rest):
                    m.d.sync += phase.eq(_Phase.CLOSE)

    def _pins(self, m: Module) -> None:
        segment = self.segment
        row = self._open_row
        column = Cat(Const(0, exact_log2(self._timing.burst)), segment.column)
        closing = self._precharge | self._close_all
        with m.If(self.beat):
            m.d.comb += [self.bank.eq(segment.bank), self.address.eq(_column_address(column))]
        with m.Elif(self._mode):
            m.d.comb += self.address.eq(mode_register(self._timing))
        with m.Else():
            all_banks = Mux(closing, self._close_all, row[ALL_BANKS])
            m.d.comb += [
                self.bank.eq(self._row_bank),
                self.address.eq(Cat(row[:ALL_BANKS], all_banks, row[ALL_BANKS + 1 :])),
            ]
        m.d.comb += self.command.eq(Command.NO_OPERATION)
        for happens, command in (
            (self._read, Command.READ),
            (self._write, Command.WRITE),
            (self._activate, Command.ACTIVATE),
            (closing, Command.PRECHARGE),
            (self._refresh, Command.REFRESH),
            (self._mode, Command.MODE_REGISTER_SET),
        ):
            with m.If(happens):
                m.d.comb += self.command.eq(command)


def _column_address(column: Value) -> Value:
    """The column without automatic precharge: a tenth bit would be the next address line."""
    return Cat(column[:ALL_BANKS], Const(0, 1), column[ALL_BANKS:])
