"""The accelerator core: everything wired together."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from amaranth.hdl import Cat, Elaboratable, Module, ResetInserter, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import connect, flipped
from amaranth.utils import exact_log2

from accelc.hw.alu import AluUnit
from accelc.hw.arbiter import ReadArbiter
from accelc.hw.axi import CACHE_BUFFERABLE, Burst
from accelc.hw.control import FETCH, Control
from accelc.hw.dispatch import Dispatcher
from accelc.hw.fetch import Fetch
from accelc.hw.gemm import GemmUnit
from accelc.hw.load import Load
from accelc.hw.mac import MacArray
from accelc.hw.ports import core_members
from accelc.hw.queue import InstructionQueue
from accelc.hw.registers import RegisterBlock
from accelc.hw.scratchpad import (
    AccScratchpad,
    InpScratchpad,
    OutScratchpad,
    PrmScratchpad,
    VinScratchpad,
    WgtScratchpad,
)
from accelc.hw.store import Store
from accelc.hw.tokens import Tokens
from accelc.isa.config import AccelConfig
from accelc.isa.spec import Buffer, Opcode, Unit

if TYPE_CHECKING:
    from accelc.hw.sequential.core import SequentialCore

UNIT_OPCODES = {
    Unit.LOAD: Opcode.LOAD,
    Unit.GEMM: Opcode.GEMM,
    Unit.ALU: Opcode.ALU,
    Unit.STORE: Opcode.STORE,
}


class Core(wiring.Component):
    """An accelerator of a given configuration; one clock domain, ``sync``.

    Members
    -------
    m_axi : Out(Axi4)
        Memory. All reads and writes have ID 0, INCR bursts of whole beats.
    s_axil : In(Axi4Lite)
        Registers.
    irq : Out(1)
        The run is over: done or error, until the next start or clear.
    busy, failed : Out(1)
        Bits of the register ``status``. The core uses ``m_axi`` only while ``busy``.
    {unit}_start, {unit}_retire : Out(1)
        One cycle for each instruction that began with its tokens, or was done; for profiling.
    """

    m_axi: wiring.PureInterface
    s_axil: wiring.PureInterface
    irq: Signal
    busy: Signal
    failed: Signal

    def __init__(self, config: AccelConfig, *, array: MacArray | None = None) -> None:
        """Build the core.

        Parameters
        ----------
        config
            Every width and depth.
        array
            The matrix array, if not the portable one.
        """
        self.config = config
        self._array = array
        super().__init__(core_members(config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.control = control = Control()
        m.submodules.registers = registers = RegisterBlock(config)

        # Everything below is reset by every start and clear. Scratchpads and what moves data belong
        # to one group, every other unit has its own.
        groups = {"gemm": 1, "alu": 2, "store": 3}

        def add(name: str, part: Elaboratable) -> None:
            group = groups.get(name.split("_")[0], 0)
            m.submodules[name] = ResetInserter(control.clear[group])(part)

        load, store = Load(config), Store(config)
        gemm, alu = GemmUnit(config, array=self._array), AluUnit(config)
        units = (load, gemm, alu, store)
        fetch, arbiter, tokens = Fetch(config), ReadArbiter(config), Tokens(config)
        reused = () if config.lookahead else (Unit.GEMM, Unit.ALU)
        queues = [
            InstructionQueue(config, UNIT_OPCODES[unit], reused=unit in reused) for unit in Unit
        ]
        dispatchers = [Dispatcher() for _ in Unit]
        for unit in Unit:
            name = unit.name.lower()
            add(name, units[unit])
            add(f"{name}_queue", queues[unit])
            add(f"{name}_dispatch", dispatchers[unit])
            connect(m, fetch.o[unit], queues[unit].i)
            connect(m, queues[unit].o, dispatchers[unit].i)
            connect(m, dispatchers[unit].o, units[unit].i)
            connect(m, dispatchers[unit].tokens, tokens.unit[unit])
            m.d.comb += [
                dispatchers[unit].enable.eq(control.run),
                dispatchers[unit].done.eq(units[unit].done),
                control.error[unit].eq(units[unit].error),
                getattr(self, f"{name}_start").eq(dispatchers[unit].start),
                getattr(self, f"{name}_retire").eq(units[unit].done),
            ]
        if not config.lookahead:
            m.d.comb += [queues[Unit.GEMM].hold.eq(gemm.held), queues[Unit.ALU].hold.eq(alu.held)]
        add("fetch", fetch)
        add("arbiter", arbiter)
        add("tokens", tokens)
        connect(m, fetch.ar, arbiter.fetch)
        connect(m, load.ar, arbiter.load)
        connect(m, arbiter.o_fetch, fetch.r)
        connect(m, arbiter.o_load, load.r)

        self._scratchpads(m, add, load, gemm, alu, store)
        self._memory(m, arbiter, store)
        self._control(m, control, registers, fetch)
        connect(m, flipped(self.s_axil), registers.bus)

        for user in (fetch, load, store):
            m.d.comb += [
                user.memory_base.eq(registers.memory_base),
                user.memory_bytes.eq(registers.memory_bytes),
            ]
        m.d.comb += [arbiter.enable.eq(control.run), store.enable.eq(control.run)]

        def bits(signals: Iterable[Signal]) -> Value:
            return Cat(signals)

        # A single instruction may take long: what it reads and writes is progress, too.
        progress = [d.start for d in dispatchers] + [unit.done for unit in units]
        progress += [gemm.inp_read.en, alu.vin_read.en, alu.out_write.en]
        progress += [port.en for port in load.scratch]
        progress += [arbiter.beat, store.beat, store.b.valid]
        waiting = bits(d.waiting for d in dispatchers)
        m.d.comb += [
            control.waiting.eq(waiting),
            control.progress.eq(bits(progress).any()),
            control.idle.eq(
                bits(q.empty for q in queues).all() & ~bits(d.running for d in dispatchers).any()
            ),
            control.at_rest.eq(arbiter.idle & store.idle),
            registers.retired.eq(bits(unit.done for unit in units)),
            registers.events.cycles.eq(control.busy),
            registers.events.gemm_issue.eq(gemm.issue),
            registers.events.gemm_stall.eq(gemm.stall),
            registers.events.read_bytes.eq(arbiter.beat),
            registers.events.write_bytes.eq(store.beat),
        ]
        for unit in Unit:
            name = unit.name.lower()
            m.d.comb += [
                registers.events[f"{name}_busy"].eq(dispatchers[unit].running),
                registers.events[f"{name}_wait"].eq(dispatchers[unit].waiting & control.run),
            ]
        return m

    def _scratchpads(
        self, m: Module, add, load: Load, gemm: GemmUnit, alu: AluUnit, store: Store
    ) -> None:
        config = self.config
        inp, wgt, prm = InpScratchpad(config), WgtScratchpad(config), PrmScratchpad(config)
        vin, out, acc = VinScratchpad(config), OutScratchpad(config), AccScratchpad(config)
        parts = {"inp": inp, "wgt": wgt, "prm": prm, "vin": vin, "out": out, "acc": acc}
        for name, part in parts.items():
            add(f"{name}_scratchpad", part)
        connect(m, load.scratch[Buffer.INP], inp.write)
        connect(m, load.scratch[Buffer.WGT], wgt.write)
        connect(m, load.scratch[Buffer.PRM], prm.write)
        connect(m, load.scratch[Buffer.VIN], vin.write)
        if config.lut:
            connect(m, load.scratch[Buffer.LUT], alu.lut_write)
        connect(m, gemm.inp_read, inp.read)
        connect(m, gemm.wgt_read, wgt.read)
        connect(m, gemm.acc_read, acc.gemm_read)
        connect(m, gemm.acc_write, acc.gemm_write)
        connect(m, alu.acc_read, acc.alu_read)
        connect(m, alu.vin_read, vin.read)
        connect(m, alu.prm_read, prm.read)
        connect(m, alu.out_write, out.write)
        connect(m, store.out_read, out.read)

    def _memory(self, m: Module, arbiter: ReadArbiter, store: Store) -> None:
        bus = self.m_axi

        def address(prefix: str, burst: stream.Interface) -> None:
            fields = {
                "addr": burst.payload.addr,
                "len": burst.payload.len,
                "size": exact_log2(self.config.bus_bytes),
                "burst": Burst.INCR,
                "id": 0,
                "lock": 0,
                "cache": CACHE_BUFFERABLE,
                "prot": 0,
                "valid": burst.valid,
            }
            for name, value in fields.items():
                m.d.comb += getattr(bus, prefix + name).eq(value)
            m.d.comb += burst.ready.eq(getattr(bus, f"{prefix}ready"))

        address("ar", arbiter.ar)
        address("aw", store.aw)
        m.d.comb += [
            arbiter.r.valid.eq(bus.rvalid),
            arbiter.r.payload.data.eq(bus.rdata),
            arbiter.r.payload.resp.eq(bus.rresp),
            arbiter.r.payload.last.eq(bus.rlast),
            bus.rready.eq(arbiter.r.ready),
            bus.wvalid.eq(store.w.valid),
            bus.wdata.eq(store.w.payload.data),
            bus.wstrb.eq(store.w.payload.strb),
            bus.wlast.eq(store.w.payload.last),
            store.w.ready.eq(bus.wready),
            store.b.valid.eq(bus.bvalid),
            store.b.payload.eq(bus.bresp),
            bus.bready.eq(store.b.ready),
        ]

    def _control(self, m: Module, control: Control, registers: RegisterBlock, fetch: Fetch) -> None:
        m.d.comb += [
            control.start.eq(registers.start),
            control.abort.eq(registers.abort),
            control.watchdog_cycles.eq(registers.watchdog_cycles),
            control.error[FETCH].eq(fetch.error),
            control.fetched.eq(fetch.fetched),
            control.finished.eq(fetch.finished),
            fetch.enable.eq(control.run),
            fetch.address.eq(registers.program_address),
            fetch.length.eq(registers.program_length),
            registers.busy.eq(control.busy),
            registers.done.eq(control.done),
            registers.failed.eq(control.failed),
            registers.error.eq(control.code),
            registers.error_info.eq(control.info),
            registers.clear.eq(control.clear[0] & control.busy),
            self.irq.eq(control.done | control.failed),
            self.busy.eq(control.busy),
            self.failed.eq(control.failed),
        ]


def core_for(config: AccelConfig, *, array: MacArray | None = None) -> "Core | SequentialCore":
    """The core ``config`` asks for: four units with queues, or one instruction at a time."""
    if not config.sequential:
        return Core(config, array=array)
    from accelc.hw.sequential.core import SequentialCore

    return SequentialCore(config, array=array)
