"""Registers in front of the memory: a core behind them computes the same, beats keep their pace."""

import random
from collections.abc import Callable, Coroutine
from dataclasses import replace

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.sim import Simulator, SimulatorContext

from accelc.boards.memory.buffer import BusBuffer
from accelc.hw.axi import Axi4, Axi4Lite
from accelc.hw.core import Core
from accelc.hw.testbench import STATUS_DONE, AxiMemory, CoreBench, LiteMaster
from accelc.isa import semantics
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.program import Program
from accelc.isa.spec import Buffer, Finish, Load
from accelc.sim.random_programs import random_program

SMALL = replace(
    PRESETS["1x4x4"], inp_rows=256, wgt_rows=16, acc_rows=64, vin_rows=64, out_rows=64, prm_rows=16
)
LATENCY = 20


class BufferedCore(wiring.Component):
    """A core and the registers behind its memory port."""

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        super().__init__({"m_axi": Out(Axi4(config)), "s_axil": In(Axi4Lite()), "irq": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.core = core = Core(self._config)
        m.submodules.buffer = buffer = BusBuffer(self._config)
        connect(m, core.m_axi, buffer.i)
        connect(m, buffer.o, flipped(self.m_axi))
        connect(m, flipped(self.s_axil), core.s_axil)
        m.d.comb += self.irq.eq(core.irq)
        return m


class Bench(CoreBench):
    """The bench of the core, with another core."""

    def __init__(self, config: AccelConfig, memory_bytes: int, **memory: object) -> None:
        self.core = BufferedCore(config)  # pyright: ignore[reportAttributeAccessIssue]
        self.memory = AxiMemory(self.core.m_axi, memory_bytes, **memory)  # pyright: ignore
        self.master = LiteMaster(self.core.s_axil)
        self.simulator = Simulator(self.core)
        self.simulator.add_clock(1e-8)
        self.simulator.add_testbench(self.memory.run, background=True)


def finishing(
    bench: Bench, program: Program, cycles: list[int]
) -> Callable[[SimulatorContext], Coroutine[None, None, None]]:
    async def host(ctx: SimulatorContext) -> None:
        await bench.start(ctx, program)
        assert await bench.wait(ctx) == STATUS_DONE
        cycles.append(await bench.counter(ctx, "cycles"))

    return host


@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_a_core_behind_it_computes_the_same(stall: float) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    program = random_program(SMALL, seed)
    bench = Bench(program.config, program.memory_bytes, latency=LATENCY, stall=stall, seed=seed)
    bench.place(program)
    state = semantics.State(program.config, np.zeros(program.memory_bytes, np.uint8), 7)
    for address, data in program.segments():
        state.memory[address : address + len(data)] = np.frombuffer(data, np.uint8)
    for instruction in program.instructions:
        semantics.execute(instruction, state)
    bench.run(finishing(bench, program, []))
    assert bytes(bench.memory.data) == state.memory.tobytes()


def test_a_beat_in_every_cycle() -> None:
    rows = SMALL.inp_rows
    program = Program(
        config=SMALL,
        instructions=(Load(buffer=Buffer.INP, row=0, dram=0, n0=rows), Finish()),
        instructions_address=1 << 13,
        memory_bytes=1 << 14,
    )
    bench = Bench(SMALL, 1 << 14, latency=LATENCY)
    bench.place(program)
    cycles: list[int] = []
    bench.run(finishing(bench, program, cycles))
    assert rows <= cycles[0] < rows + 2 * LATENCY + 80
