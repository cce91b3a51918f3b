"""Runs a program from start to done, error or abort, and brings the bus to rest in between."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from accelc.isa.registers import ErrorCode
from accelc.isa.spec import Unit

#: The core's parts are reset in so many groups, one a cycle after the other: one wire to all of
#: them would be the longest in the core.
CLEAR_GROUPS = 4
#: Cycles the reset of the first group lasts; in the last but one of them all groups are in reset.
CLEAR_CYCLES = CLEAR_GROUPS + 1

#: Who reports an error: the units, then fetch.
REPORTERS = len(Unit) + 1
FETCH = len(Unit)


class Control(wiring.Component):
    """The core's state: idle, running, or draining after an error or abort.

    Start clears everything inside the core and sets it running. It stops when FINISH
    was fetched, the units are idle and the bus is at rest. The first error, or an abort, withdraws
    ``run``: nothing is issued any more, and what the bus still owes arrives and is thrown away. An
    abort then clears the core and the error; after an error software may also start again at once.

    Members
    -------
    start, abort : In(1)
        From the register block.
    watchdog_cycles : In(32)
        Cycles without ``progress`` after which a run fails; 0 for never.
    error : In(4) per reporter
        ErrorCode of load, gemm, alu, store and fetch.
    waiting : In(4)
        Units whose next instruction waits for tokens; the first is named when the watchdog bites.
    fetched : In(24)
    finished : In(1)
        FINISH was fetched.
    idle : In(1)
        No instruction is queued or in flight.
    at_rest : In(1)
        Nothing is outstanding on the bus.
    progress : In(1)
        Something happened in this cycle.
    clear : Out(CLEAR_GROUPS)
        Reset the core's insides, group by group.
    run : Out(1)
        Fetch, start instructions, issue bursts.
    busy, done, failed : Out(1)
        Bits of ``status``.
    code, info : Out(32)
        Registers ``error`` and ``error_info``.
    """

    start: Signal
    abort: Signal
    watchdog_cycles: Signal
    error: list[Signal]
    waiting: Signal
    fetched: Signal
    finished: Signal
    idle: Signal
    at_rest: Signal
    progress: Signal
    clear: Signal
    run: Signal
    busy: Signal
    done: Signal
    failed: Signal
    code: Signal
    info: Signal

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "abort": In(1),
                "watchdog_cycles": In(32),
                "error": In(4).array(REPORTERS),
                "waiting": In(len(Unit)),
                "fetched": In(24),
                "finished": In(1),
                "idle": In(1),
                "at_rest": In(1),
                "progress": In(1),
                "clear": Out(CLEAR_GROUPS),
                "run": Out(1),
                "busy": Out(1),
                "done": Out(1),
                "failed": Out(1),
                "code": Out(32),
                "info": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        # Cycles left until the watchdog bites, reloaded by every sign of progress.
        patience = Signal(32)
        progress = Signal()
        starved = Signal()
        m.d.sync += [
            progress.eq(self.progress),
            starved.eq((patience == 1) & ~progress & (self.watchdog_cycles != 0)),
        ]
        with m.If(progress | ~self.run):
            m.d.sync += patience.eq(self.watchdog_cycles)
        with m.Elif(patience != 0):
            m.d.sync += patience.eq(patience - 1)

        # Registered, as what software asks for, because all this comes from afar; so is the end of
        # a run, which must not overtake an error.
        start, abort = Signal(), Signal()
        m.d.sync += [start.eq(self.start), abort.eq(self.abort)]
        code = Signal(4, reset_less=True)
        unit = Signal(range(REPORTERS), reset_less=True)
        failed = Signal()
        ended = Signal()
        m.d.sync += [failed.eq(0), ended.eq(self.finished & self.idle & self.at_rest)]
        for reporter in reversed(range(REPORTERS)):
            with m.If(self.error[reporter] != ErrorCode.NONE):
                m.d.sync += [code.eq(self.error[reporter]), unit.eq(reporter), failed.eq(1)]
        starving = Signal(range(REPORTERS), init=FETCH)
        m.d.comb += starving.eq(FETCH)
        for waiter in reversed(Unit):
            with m.If(self.waiting[waiter]):
                m.d.comb += starving.eq(waiter)

        # Every group's reset is a register of its own.
        clear = Signal()
        left = Signal(range(2 * CLEAR_CYCLES), init=2 * CLEAR_CYCLES - 1)
        m.d.sync += self.clear.eq(Cat(clear, self.clear))

        # What an abort asked for is remembered until the bus is at rest.
        aborting = Signal()
        with m.FSM():
            with m.State("idle"):
                m.d.sync += left.eq(left.init)
                with m.If(start):
                    m.d.sync += self.busy.eq(1)
                    m.next = "clear"
                with m.If(start | abort):
                    m.d.sync += [self.done.eq(0), self.failed.eq(0)]
                    m.d.sync += [self.code.eq(0), self.info.eq(0)]
                with m.If(abort):
                    m.next = "clear"
            with m.State("clear"):
                # Reset for half of the time, then until the last group has left it. A start or
                # abort meanwhile begins anew.
                m.d.comb += clear.eq(left >= CLEAR_CYCLES)
                m.d.sync += left.eq(left - 1)
                with m.If(left == 0):
                    m.d.sync += self.run.eq(self.busy)
                    m.next = "idle"
                    with m.If(self.busy):
                        m.next = "run"
                with m.If(start | abort):
                    m.d.sync += [left.eq(left.init), self.busy.eq(start), self.run.eq(0)]
                    m.next = "clear"
            with m.State("run"):
                with m.If(failed | starved | abort):
                    m.d.sync += [self.run.eq(0), aborting.eq(abort)]
                    m.next = "drain"
                    m.d.sync += left.eq(left.init)
                    with m.If(~abort):
                        m.d.sync += [
                            self.failed.eq(1),
                            self.code.eq(Mux(failed, code, ErrorCode.WATCHDOG)),
                            self.info.eq(Cat(self.fetched, Mux(failed, unit, starving))),
                        ]
                with m.Elif(ended):
                    m.d.sync += [self.run.eq(0), self.busy.eq(0), self.done.eq(1)]
                    m.next = "idle"
            with m.State("drain"):
                with m.If(abort):
                    m.d.sync += aborting.eq(1)
                with m.If(self.at_rest & ~abort):
                    m.d.sync += [self.busy.eq(0), aborting.eq(0)]
                    m.next = "idle"
                    with m.If(aborting):
                        m.d.sync += self.failed.eq(0)
                        m.d.sync += [self.code.eq(0), self.info.eq(0)]
                        m.next = "clear"
        return m
