"""The sequential core: sequencer, mover, host port and compute engines, wired together."""

from amaranth.hdl import Cat, Elaboratable, Module, ResetInserter, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped
from amaranth.utils import exact_log2

from accelc.hw.mac import MacArray
from accelc.hw.ports import core_members
from accelc.hw.sequential.compute import Compute
from accelc.hw.sequential.host import HostPort
from accelc.hw.sequential.microprogram import microprogram
from accelc.hw.sequential.mover import Mover
from accelc.hw.sequential.sequencer import WORD_BITS, Sequencer
from accelc.hw.sequential.words import (
    COMPUTE_WORD,
    DEPTH_WORD,
    MOMENT_CYCLES,
    WORDS,
    Condition,
    Control,
    Device,
    Status,
    word_names,
)
from accelc.isa.config import AccelConfig
from accelc.isa.registers import BY_NAME, identity_registers
from accelc.isa.spec import Buffer, Unit


def _host_constants(config: AccelConfig) -> dict[int, int]:
    """Words of the registers that never change."""
    return {
        BY_NAME[name].offset // 2 + half: value >> WORD_BITS * half & 0xFFFF
        for name, value in identity_registers(config).items()
        for half in range(2)
    }


class SequentialCore(wiring.Component):
    """An accelerator that executes one instruction at a time, in program order, in little area.

    It has the ports of :class:`accelc.hw.core.Core`, the same registers and the same errors.
    Tokens are counted, but nothing waits for them: a token that is not there when program order
    comes to its instruction is the error WATCHDOG, at once. Counters of waiting and of stalls, and
    ``gemm_issue``, read 0; an instruction's busy cycles include its fetch. High words of the
    counters stay 0: they have 32 bits.

    Members
    -------
    m_axi : Out(Axi4)
    s_axil : In(Axi4Lite)
    irq, busy, failed : Out(1)
    {unit}_start, {unit}_retire : Out(1)
        As those of ``Core``; a retirement is reported when the next instruction is there, too.
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
            Every width and depth; ``sequential``.
        array
            The matrix array, if not the portable one.
        """
        self.config = config
        self._array = array
        super().__init__(core_members(config))

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        program = microprogram(config)
        host_contents = [0] * WORDS
        for word, value in _host_constants(config).items():
            host_contents[word] = value
        contents = list(host_contents)
        for word, value in program.constants.items():
            contents[word] = value
        for buffer in (Buffer.INP, Buffer.WGT, Buffer.PRM, Buffer.VIN):
            contents[DEPTH_WORD + buffer] = config.rows(buffer)

        m.submodules.sequencer = sequencer = Sequencer(program, contents)
        m.submodules.host = host = HostPort(host_contents)
        m.submodules.mover = mover = Mover(config)
        engines_reset = Signal()
        compute = Compute(config, array=self._array)
        m.submodules.compute = ResetInserter(engines_reset)(compute)
        connect(m, flipped(self.s_axil), host.bus)
        connect(m, flipped(self.m_axi), mover.bus)
        for name in ("inp", "wgt", "prm", "vin", "out"):
            connect(m, getattr(mover, name), getattr(compute, name))

        # What the microprogram writes acts on hardware.
        stored = sequencer.stored
        storing = stored.en[0]

        def stores(device: Device) -> Value:
            acts = Signal(name=f"stores_{device.name.lower()}")
            m.d.comb += acts.eq(storing & (stored.addr == device))
            return acts

        control = Signal(len(Control))
        m.d.comb += control.eq(stored.data & stores(Device.CONTROL).replicate(len(control)))

        def told(which: Control) -> Value:
            return control[exact_log2(which)]

        done = Signal()
        status = word_names()["status"]
        with m.If(storing & (stored.addr == status)):
            m.d.sync += Cat(self.busy, done, self.failed).eq(stored.data)
        assert (Status.BUSY, Status.DONE, Status.ERROR) == (1, 2, 4)
        engines, starts = compute.compute, stores(Device.COMPUTE)
        index_bits = len(engines.set.index)
        m.d.comb += [
            self.irq.eq(done | self.failed),
            engines.set.en.eq(storing & (stored.addr[index_bits:] == COMPUTE_WORD >> index_bits)),
            engines.set.index.eq(stored.addr),
            engines.set.value.eq(stored.data),
            engines.start_gemm.eq(starts & stored.data[0]),
            engines.start_alu.eq(starts & stored.data[1]),
            mover.starts.eq(sequencer.commands),
            mover.control.eq(control),
        ]
        m.d.sync += engines_reset.eq(told(Control.RESET_ENGINES))
        connect(m, sequencer.stored, mover.stored)
        begins, retires = stores(Device.UNIT), stores(Device.RETIRE)
        for unit in Unit:
            name = unit.name.lower()
            m.d.comb += [
                getattr(self, f"{name}_start").eq(begins & (stored.data[:3] == unit)),
                getattr(self, f"{name}_retire").eq(retires & (stored.data[2:] == unit + 1)),
            ]

        # Time stands still between runs, so that a run repeats to the cycle.
        time, moment = sequencer.time, Signal()
        with m.If(self.busy):
            m.d.sync += time.eq(time + 1)
        with m.Else():
            m.d.sync += time.eq(0)
        ticks = (time % MOMENT_CYCLES) == MOMENT_CYCLES - 1
        with m.If(ticks):
            m.d.sync += moment.eq(1)
        with m.Elif(told(Control.TAKE_MOMENT)):
            m.d.sync += moment.eq(0)

        conditions = {
            Condition.WORKING: mover.moving | ~engines.idle,
            Condition.LIMIT_FAULT: mover.limit_fault,
            Condition.ROW_FAULT: mover.row_fault,
            Condition.RESPONSE_FAULT: mover.response_fault,
            Condition.PROGRESS: mover.progress | ~engines.idle,
            Condition.MOMENT: moment,
            Condition.START: host.start,
            Condition.ABORT: host.abort,
            Condition.COMPUTE_FAULT: engines.range_error,
            Condition.TAIL: mover.tail >= sequencer.accumulator[: len(mover.tail)],
        }
        m.d.comb += sequencer.traffic.eq(mover.traffic)
        for condition, value in conditions.items():
            m.d.comb += sequencer.conditions[condition].eq(value)

        # The register file: instructions while running, else the host's parameters.
        with m.If(mover.words.en[0]):
            m.d.comb += [
                sequencer.other.en.eq(mover.words.en),
                sequencer.other.addr.eq(mover.words.addr),
                sequencer.other.data.eq(mover.words.data),
            ]
        with m.Else():
            m.d.comb += [
                sequencer.other.en.eq(host.writes.en),
                sequencer.other.addr.eq(host.writes.addr),
                sequencer.other.data.eq(host.writes.data),
                host.ready.eq(sequencer.other_ready),
            ]
        m.d.comb += mover.words_ready.eq(sequencer.other_ready)
        connect(m, sequencer.written, host.written)
        m.d.comb += [
            host.busy.eq(self.busy),
            host.take_start.eq(told(Control.TAKE_START)),
            host.take_abort.eq(told(Control.TAKE_ABORT)),
        ]
        return m
