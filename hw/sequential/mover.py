"""Moves runs of beats between memory and scratchpads, and fills scratchpads."""

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.hw.axi import CACHE_BUFFERABLE, PAGE_BYTES, Axi4, Burst
from accelc.hw.layouts import ScratchRead, ScratchWrite, beat_address_bits, row_beats_log2
from accelc.hw.sequential.sequencer import WordStore
from accelc.hw.sequential.words import INSTRUCTION_WORD, Command, Control, Device
from accelc.isa.config import AccelConfig
from accelc.isa.spec import Buffer

#: Bursts without their last answer.
MAX_OUTSTANDING = 7
_ADDRESS_BITS = 32
#: Scratchpads the mover fills from memory.
_TARGETS = (Buffer.INP, Buffer.WGT, Buffer.PRM, Buffer.VIN)


class Mover(wiring.Component):
    """Executes a ``Command``: runs of beats at a stride, one after the other in the scratchpad.

    The sequencer writes its registers (``words.Device``) while it is idle, the command last. Bursts
    end at multiples of their longest length. Reads run ahead of their data; a write burst's data
    follow its address.

    Cycles: three per burst and its data, whichever is more; for writes both. An instruction's words
    take two cycles a beat.

    Members
    -------
    stored : In(WordStore())
        What the sequencer wrote.
    starts : In(1)
        That was ``Device.MOVE``.
    control : In(6)
        ``Control``, one cycle each.
    bus : Out(Axi4)
    inp, wgt, prm, vin : Out(ScratchWrite)
    out : Out(ScratchRead)
    words : Out(WordStore())
        Instructions for the register file, in a cycle in which
    words_ready : In(1)
        is high.
    moving : Out(1)
        Busy, or memory owes an answer.
    limit_fault, row_fault, response_fault : Out(1)
        Since the last command. A run would have begun beyond the limit, and did not; a beat lay
        beyond its scratchpad, and was not written; memory answered with an error.
    progress : Out(1)
        Something happened on the bus since ``TAKE_PROGRESS``.
    traffic : Out(16)
        Bytes of data moved, modulo 2^16; instructions do not count.
    tail : Out(5)
        The last of the instruction's words that is not zero.
    """

    stored: wiring.PureInterface
    starts: Signal
    control: Signal
    bus: wiring.PureInterface
    inp: wiring.PureInterface
    wgt: wiring.PureInterface
    prm: wiring.PureInterface
    vin: wiring.PureInterface
    out: wiring.PureInterface
    words: wiring.PureInterface
    words_ready: Signal
    moving: Signal
    limit_fault: Signal
    row_fault: Signal
    response_fault: Signal
    progress: Signal
    traffic: Signal
    tail: Signal

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        super().__init__(
            {
                "stored": In(WordStore()),
                "starts": In(1),
                "control": In(len(Control)),
                "bus": Out(Axi4(config)),
                **{buffer.name.lower(): Out(ScratchWrite(config)) for buffer in _TARGETS},
                "out": Out(ScratchRead(config)),
                "words": Out(WordStore()),
                "words_ready": In(1),
                "moving": Out(1),
                "limit_fault": Out(1),
                "row_fault": Out(1),
                "response_fault": Out(1),
                "progress": Out(1),
                "traffic": Out(16),
                "tail": Out(5),
            }
        )

    def _writes(self, device: Device) -> Value:
        return self.stored.en[0] & (self.stored.addr == device)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config, bus, stored = self.config, self.bus, self.stored
        bus_log2 = exact_log2(config.bus_bytes)
        longest = min(config.max_burst_beats, PAGE_BYTES // config.bus_bytes)
        longest_log2 = exact_log2(longest)
        half = _ADDRESS_BITS // 2

        def register(device: Device, bits: int = half) -> Signal:
            value = Signal(bits, name=device.name.lower(), reset_less=True)
            with m.If(self.starts if device is Device.MOVE else self._writes(device)):
                m.d.sync += value.eq(stored.data)
            return value

        command = register(Device.MOVE)
        stride = Cat(register(Device.STRIDE_LOW), register(Device.STRIDE_HIGH))[bus_log2:]
        limit = Cat(register(Device.LIMIT_LOW), register(Device.LIMIT_HIGH))[bus_log2:]
        beats = register(Device.BEATS)
        filling = command[exact_log2(Command.FILL)]
        writing = command[exact_log2(Command.WRITE)]
        fetching = command[exact_log2(Command.FETCH)]
        starts = self.starts
        begins = Signal()
        m.d.sync += begins.eq(starts)

        # The walk over runs and bursts. Counts are less one.
        idle, measures, asks, turns, feeds = (Signal(name=f"walk_{n}") for n in "imatf")
        m.d.comb += idle.eq(~(begins | measures | asks | turns | feeds))
        address = Signal(_ADDRESS_BITS - bus_log2, reset_less=True)
        left = Signal(len(beats), reset_less=True)
        runs = Signal(half)
        length = Signal(longest_log2, reset_less=True)
        ends_run = Signal(reset_less=True)
        asked, fed = Signal(), Signal()
        fault = self.limit_fault | self.row_fault | self.response_fault

        # One adder for the next burst and the next run.
        operand = Mux(turns, stride, Cat(length, Const(0, len(address) - longest_log2)))
        total = Signal(len(address) + 2)
        m.d.comb += total.eq(Cat(Const(1, 1), address) + Cat(~turns, operand))
        blocked = Signal()
        with m.If(measures):
            m.d.sync += blocked.eq(((address > limit) & ~fetching) | fault)

        room = ~address[:longest_log2]
        fits = (left[longest_log2:] == 0) & (left[:longest_log2] <= room)
        is_burst = ~filling
        with m.If(begins):
            m.d.sync += [measures.eq(is_burst), feeds.eq(filling)]
        with m.If(measures):
            m.d.sync += [measures.eq(0), asks.eq(1), ends_run.eq(fits)]
            m.d.sync += length.eq(Mux(fits, left[:longest_log2], room))
        with m.If(asks & blocked):
            m.d.sync += [asks.eq(0), self.limit_fault.eq(~self.row_fault & ~self.response_fault)]
        with m.Elif(asked):
            m.d.sync += [
                asks.eq(0),
                feeds.eq(writing),
                turns.eq(~writing & ends_run),
                measures.eq(~writing & ~ends_run),
            ]
        with m.If(turns):
            m.d.sync += [turns.eq(0), measures.eq(runs != 0)]
            with m.If(runs != 0):
                m.d.sync += runs.eq(runs - 1)
        with m.If(asked | turns):
            m.d.sync += address.eq(total[1:-1])
        fills = feeds & filling
        with m.If(begins | turns):
            m.d.sync += left.eq(beats)
        with m.Elif(asked | fills):
            m.d.sync += left.eq(left - (length & (~filling).replicate(len(length))) - 1)

        for part, name in enumerate((Device.ADDRESS_LOW, Device.ADDRESS_HIGH)):
            # also at the second place of these two
            with m.If(self.stored.en[0] & (self.stored.addr.matches(*_alias(name)))):
                low, high = max(half * part - bus_log2, 0), half * (part + 1) - bus_log2
                m.d.sync += address[low:high].eq(stored.data[half - (high - low) :])
        with m.If(self._writes(Device.RUNS)):
            m.d.sync += runs.eq(stored.data)

        # Requests.
        outstanding = Signal(range(MAX_OUTSTANDING + 1))
        # those of the cycle before, which are not counted yet
        more, fewer = Signal(), Signal()
        # a cycle late, which one more burst does not outrun; not to fall while one is asked for
        free = Signal()
        m.d.sync += free.eq(outstanding + more < MAX_OUTSTANDING - 1)
        asking = asks & free & ~blocked
        constants = {
            "size": bus_log2,
            "burst": Burst.INCR,
            "id": 0,
            "lock": 0,
            "cache": CACHE_BUFFERABLE,
            "prot": 0,
        }
        for prefix in ("ar", "aw"):
            for name, value in constants.items():
                m.d.comb += getattr(bus, prefix + name).eq(value)
            m.d.comb += [
                getattr(bus, prefix + "addr").eq(Cat(Const(0, bus_log2), address)),
                getattr(bus, prefix + "len").eq(length),
            ]
        m.d.comb += [
            bus.arvalid.eq(asking & ~writing),
            bus.awvalid.eq(asking & writing),
            asked.eq(asking & Mux(writing, bus.awready, bus.arready)),
        ]
        answered = (bus.rvalid & bus.rready & bus.rlast) | bus.bvalid
        # counted a cycle late: the walk is not idle before
        m.d.sync += [more.eq(asked), fewer.eq(answered)]
        m.d.sync += outstanding.eq(outstanding + more - fewer)
        m.d.comb += self.moving.eq(starts | ~idle | (outstanding != 0))

        # The scratchpad's beat. Beyond its end nothing is written, from the first such beat on.
        row = Signal(beat_address_bits(config) + 1, reset_less=True)
        row_steps = Signal()
        # the first one, then always the one behind: what lies beyond is known a beat ahead
        next_row = Signal.like(row)
        m.d.comb += next_row.eq(row + ~begins)
        with m.If(self._writes(Device.SCRATCH)):
            m.d.sync += row.eq(stored.data)
        with m.Elif(row_steps):
            m.d.sync += row.eq(next_row)
        out_of_rows = Signal()
        with m.If(begins | row_steps):
            m.d.sync += out_of_rows.eq(self._out_of_rows(m, command, next_row, writing))
        strays = Signal()
        m.d.sync += strays.eq(row_steps & out_of_rows & ~fetching)
        with m.If(strays):
            m.d.sync += self.row_fault.eq(1)

        # Beats that arrive, or are made.
        upper = Signal()
        arrives = bus.rvalid & bus.rready
        beat = Mux(filling, command[8:].replicate(config.bus_bytes), bus.rdata)
        keeps = ((bus.rvalid & ~fetching) | fills) & ~fault & ~out_of_rows
        for buffer in _TARGETS:
            port = getattr(self, buffer.name.lower())
            m.d.comb += [
                port.en.eq(keeps & (command[:2] == buffer)),
                port.addr.eq(row),
                port.data.eq(beat),
            ]
        words_per_beat = config.bus_bytes // 2
        part = Signal(range(words_per_beat))
        word_stored = bus.rvalid & fetching & self.words_ready
        with m.If(starts):
            m.d.sync += part.eq(0)
        with m.Elif(word_stored):
            m.d.sync += part.eq(part + 1)
        m.d.comb += [
            upper.eq(part == words_per_beat - 1),
            bus.rready.eq(~fetching | (self.words_ready & upper)),
            self.words.en.eq((bus.rvalid & fetching).replicate(2)),
            self.words.addr.eq(INSTRUCTION_WORD | Cat(part, row)[:5]),
            self.words.data.eq(bus.rdata.word_select(part, 16)),
        ]
        with m.If(starts):
            m.d.sync += self.tail.eq(0)
        with m.Elif(word_stored & self.words.data.any()):
            m.d.sync += self.tail.eq(self.words.addr)

        # Beats that leave.
        left_of_burst = Signal.like(length)
        shown = Signal()
        leaves = bus.wvalid & bus.wready
        last = Signal()
        sends = feeds & writing & (~shown | (leaves & ~last))
        m.d.comb += [
            self.out.en.eq(sends),
            self.out.addr.eq(row),
            bus.wvalid.eq(shown),
            bus.wdata.eq(self.out.data),
            bus.wlast.eq(last),
            fed.eq(leaves & last),
            row_steps.eq(arrives | fills | sends),
        ]
        strobe = Signal()
        with m.If(sends):
            m.d.sync += [shown.eq(1), strobe.eq(~out_of_rows & ~fault)]
        with m.Elif(leaves):
            m.d.sync += shown.eq(0)
        m.d.comb += bus.wstrb.eq(strobe.replicate(config.bus_bytes))
        with m.If(asks):
            m.d.sync += [left_of_burst.eq(length), last.eq(length == 0)]
        with m.Elif(leaves):
            m.d.sync += [left_of_burst.eq(left_of_burst - 1), last.eq(left_of_burst == 1)]
        with m.If(feeds & writing & fed):
            m.d.sync += [feeds.eq(0), turns.eq(ends_run), measures.eq(~ends_run)]
        with m.If(fills & ((left == 0) | fault)):
            m.d.sync += feeds.eq(0)

        # Faults and progress.
        m.d.comb += bus.bready.eq(1)
        with m.If((arrives & bus.rresp[1]) | (bus.bvalid & bus.bresp[1])):
            m.d.sync += self.response_fault.eq(1)
        with m.If(self.control[exact_log2(Control.STOP_MOVER)]):
            m.d.sync += self.row_fault.eq(1)
        with m.If(starts):
            m.d.sync += [
                self.limit_fault.eq(0), self.row_fault.eq(0), self.response_fault.eq(0),
            ]  # fmt: skip
        moved_beats = Signal(16 - bus_log2)
        with m.If((arrives & ~fetching) | leaves):
            m.d.sync += moved_beats.eq(moved_beats + 1)
        m.d.comb += self.traffic.eq(Cat(Const(0, bus_log2), moved_beats))
        happens = Signal()
        m.d.sync += happens.eq(asked | answered | arrives | leaves)
        with m.If(happens):
            m.d.sync += self.progress.eq(1)
        with m.Elif(self.control[exact_log2(Control.TAKE_PROGRESS)]):
            m.d.sync += self.progress.eq(0)
        return m

    def _out_of_rows(self, m: Module, command: Signal, row: Signal, writing: Value) -> Value:
        config = self.config
        beyond = Signal()
        with m.If(writing):
            beats = config.out_rows * config.vec_row_bytes // config.bus_bytes
            m.d.comb += beyond.eq(row[exact_log2(beats) :].any())
        with m.Else():
            with m.Switch(command[:2]):
                for buffer in _TARGETS:
                    with m.Case(buffer):
                        beats = config.rows(buffer) << row_beats_log2(config, buffer)
                        m.d.comb += beyond.eq(row[exact_log2(beats) :].any())
        return beyond


def _alias(device: Device) -> tuple[str, str]:
    """Both places where this part of the address can be written."""
    return format(device, "08b"), format(device | 0x10, "08b")
