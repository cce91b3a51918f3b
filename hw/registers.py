"""The AXI4-Lite register block, built from ``isa.registers``."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.hw.axi import LITE_ADDRESS_BITS, Axi4Lite, Response
from accelc.hw.counters import CounterBank
from accelc.isa.config import AccelConfig
from accelc.isa.registers import BY_NAME, REGISTERS, Access, identity_registers
from accelc.isa.spec import Unit

#: Counters in the register map, without the ``_low`` and ``_high`` of their two halves.
COUNTERS: tuple[str, ...] = tuple(
    register.name.removesuffix("_low") for register in REGISTERS if register.name.endswith("_low")
)
#: What each counter counts in a cycle: one bit each; the byte counters get one per beat.
EVENTS = data.StructLayout({name: unsigned(1) for name in COUNTERS})
#: Which register each word of the counter bank is; instruction counters show only their low half.
BANK_WORDS: tuple[str | None, ...] = (
    *(f"{name}_{half}" for name in COUNTERS for half in ("low", "high")),
    *(name for unit in Unit for name in (f"{unit.name.lower()}_retired", None)),
)
#: Registers software sets before a run.
PARAMETERS: tuple[str, ...] = tuple(r.name for r in REGISTERS if r.access == Access.READ_WRITE)


class RegisterBlock(wiring.Component):
    """Registers, counters and their AXI4-Lite slave.

    One read and one write are handled at a time: a write takes 2 cycles, a read 4, a counter's up
    to 40. Addresses without a register read as 0. Parameters can not be written while ``busy``,
    except ``watchdog_cycles``: the units rely on them to stand still.

    Members
    -------
    bus : In(Axi4Lite)
    start, abort : Out(1)
        Software asks for it, one cycle.
    program_address, program_length, memory_base, memory_bytes, watchdog_cycles : Out(32)
    busy, done, failed : In(1)
        Bits of ``status``.
    error, error_info : In(32)
    clear : In(1)
        Zero all counters.
    events : In(EVENTS)
        What happened in this cycle.
    retired : In(4)
        Units that finished an instruction in this cycle.
    """

    bus: wiring.PureInterface
    start: Signal
    abort: Signal
    program_address: Signal
    program_length: Signal
    memory_base: Signal
    memory_bytes: Signal
    watchdog_cycles: Signal
    busy: Signal
    done: Signal
    failed: Signal
    error: Signal
    error_info: Signal
    clear: Signal
    events: data.View
    retired: Signal

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        super().__init__(
            {
                "bus": In(Axi4Lite()),
                "start": Out(1),
                "abort": Out(1),
                # amaranth-stubs lack init
                **{n: Out(32, init=BY_NAME[n].reset) for n in PARAMETERS},  # pyright: ignore
                "busy": In(1),
                "done": In(1),
                "failed": In(1),
                "error": In(32),
                "error_info": In(32),
                "clear": In(1),
                "events": In(EVENTS),
                "retired": In(len(Unit)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        identity = identity_registers(self._config)
        values: dict[str, Value] = {name: Const(value, 32) for name, value in identity.items()}
        values |= self._status()
        values |= {name: getattr(self, name) for name in PARAMETERS}
        self._write(m)
        self._read(m, values, self._count(m))
        return m

    def _count(self, m: Module) -> CounterBank:
        """Counters of EVENTS, then those of ``retired``."""
        beat_log2 = exact_log2(self._config.bus_bytes)
        weights = [beat_log2 if name.endswith("_bytes") else 0 for name in COUNTERS]
        m.submodules.bank = bank = CounterBank([*weights, *(0 for _ in Unit)])
        m.d.comb += bank.clear.eq(self.clear)
        # Registered, because they come from all over the core.
        m.d.sync += bank.events.eq(Cat(self.events, self.retired))
        return bank

    def _status(self) -> dict[str, Value]:
        return {
            "status": Cat(self.busy, self.done, self.failed),
            "error": self.error,
            "error_info": self.error_info,
        }

    def _write(self, m: Module) -> None:
        bus = self.bus
        address = Signal(LITE_ADDRESS_BITS - 2, reset_less=True)
        word = Signal(32, reset_less=True)
        strobe = Signal(4, reset_less=True)
        got_address = Signal()
        got_word = Signal()
        perform = Signal()
        m.d.comb += [
            bus.awready.eq(~got_address),
            bus.wready.eq(~got_word),
            bus.bresp.eq(Response.OKAY),
            perform.eq(got_address & got_word & ~bus.bvalid),
        ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [got_address.eq(1), address.eq(bus.awaddr[2:])]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [got_word.eq(1), word.eq(bus.wdata), strobe.eq(bus.wstrb)]
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(perform):
            m.d.sync += [got_address.eq(0), got_word.eq(0), bus.bvalid.eq(1)]
            with m.Switch(address):
                with m.Case(BY_NAME["control"].offset // 4):
                    m.d.comb += [
                        self.start.eq(strobe[0] & word[0] & ~word[1]),
                        self.abort.eq(strobe[0] & word[1]),
                    ]
                for name in PARAMETERS:
                    with m.Case(BY_NAME[name].offset // 4):
                        signal = getattr(self, name)
                        with m.If(~self.busy | (name == "watchdog_cycles")):
                            for lane in range(4):
                                with m.If(strobe[lane]):
                                    m.d.sync += signal.word_select(lane, 8).eq(
                                        word.word_select(lane, 8)
                                    )

    def _read(self, m: Module, values: dict[str, Value], bank: CounterBank) -> None:
        bus = self.bus
        address = Signal(LITE_ADDRESS_BITS - 2, reset_less=True)
        asked = Signal()
        m.d.comb += [bus.arready.eq(~asked & ~bus.rvalid), bus.rresp.eq(Response.OKAY)]
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [asked.eq(1), address.eq(bus.araddr[2:])]
        # One cycle to decode the address, then the answer, from the counters when they have it.
        decoded, counter = Signal(), Signal(reset_less=True)
        word = Signal(32, reset_less=True)
        place = Signal.like(bank.word, reset_less=True)
        m.d.sync += [decoded.eq(asked), counter.eq(0), word.eq(0)]
        with m.Switch(address):
            for name, value in values.items():
                with m.Case(BY_NAME[name].offset // 4):
                    m.d.sync += word.eq(value)
            for index, name in enumerate(BANK_WORDS):
                if name is not None:
                    with m.Case(BY_NAME[name].offset // 4):
                        m.d.sync += [place.eq(index), counter.eq(1)]
        m.d.comb += [bank.word.eq(place), bank.ask.eq(asked & decoded & counter)]
        with m.If(asked & decoded & (~counter | bank.found)):
            m.d.sync += [asked.eq(0), bus.rvalid.eq(1)]
            m.d.sync += bus.rdata.eq(Mux(counter, bank.data, word))
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)
