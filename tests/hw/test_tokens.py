"""Token counters, and four dispatchers that exchange tokens through them."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.dispatch import Dispatcher
from accelc.hw.testbench import sends
from accelc.hw.tokens import TokenCounter, Tokens
from accelc.isa.config import PRESETS
from accelc.isa.spec import Unit


def test_counter_counts_between_its_ends() -> None:
    dut = TokenCounter(2)
    rng = random.Random(4)

    async def drive(ctx: SimulatorContext) -> None:
        level = 0
        for _ in range(300):
            put, get = rng.random() < 0.6, rng.random() < 0.5
            assert ctx.get(dut.available) == (level > 0)
            assert ctx.get(dut.full) == (level == 3)
            ctx.set(dut.put, put)
            ctx.set(dut.get, get)
            await ctx.tick()
            level += (put and level < 3) - (get and level > 0)
            assert ctx.get(dut.level) == level

    sim = Simulator(dut)
    sim.add_clock(1e-8)
    sim.add_testbench(drive)
    sim.run()


def header(wait: int, signal: int) -> int:
    return wait << 4 | signal << 8


def random_schedule(rng: random.Random, count: int) -> list[list[tuple[int, int]]]:
    """Wait and signal masks per unit that run to the end: each token is sent before it is awaited.

    The list is drawn in an order in which it could run one instruction at a time.
    """
    queues: list[list[tuple[int, int]]] = [[] for _ in Unit]
    pending: Counter[tuple[int, int]] = Counter()
    for _ in range(count):
        unit = rng.choice(list(Unit))
        others = [o for o in Unit if o != unit]
        wait = sum(1 << o for o in others if pending[o, unit] and rng.random() < 0.7)
        signal = sum(1 << o for o in others if pending[unit, o] < 10 and rng.random() < 0.4)
        for other in others:
            pending[other, unit] -= wait >> other & 1
            pending[unit, other] += signal >> other & 1
        queues[unit].append((wait, signal))
    return queues


@pytest.mark.parametrize("bits", [2, 6])
def test_dispatchers_keep_every_dependency(bits: int) -> None:
    """With two bits the counters of a chain fill up: senders must wait, and no token is lost."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    queues = random_schedule(random.Random(seed), 300)
    if bits == 2:
        queues = [
            [(0, 1 << Unit.GEMM)] * 60,
            [(1 << Unit.LOAD, 1 << Unit.ALU)] * 60,
            [(1 << Unit.GEMM, 0)] * 60,
            [],
        ]
    m = Module()
    m.submodules.tokens = tokens = Tokens(replace(PRESETS["1x4x4"], token_bits=bits))
    dispatchers = [Dispatcher(max_in_flight=4) for _ in Unit]
    for unit in Unit:
        m.submodules[unit.name.lower()] = dispatchers[unit]
        connect(m, dispatchers[unit].tokens, tokens.unit[unit])
        m.d.comb += dispatchers[unit].enable.eq(1)
    started: list[list[int]] = [[] for _ in Unit]
    finished: list[list[int]] = [[] for _ in Unit]

    def unit_of(unit: Unit):
        dut = dispatchers[unit]
        random_unit = random.Random(seed + unit)

        async def run(ctx: SimulatorContext) -> None:
            """A unit of two stages that takes its time with every instruction."""
            cycle, left = 0, 0
            ready = False
            while True:
                _, _, valid = await ctx.tick().sample(dut.o.valid)
                cycle += 1
                if ctx.get(dut.done):
                    finished[unit].append(cycle)
                if valid and ready:
                    started[unit].append(cycle)
                    left += 1
                done = left > 0 and random_unit.random() < (0.3 if unit != Unit.ALU else 0.1)
                left -= done
                ctx.set(dut.done, done)
                ready = left < 2 and random_unit.random() < 0.5
                ctx.set(dut.o.ready, ready)

        return run

    async def wait(ctx: SimulatorContext) -> None:
        for _ in range(20_000):
            await ctx.tick()
            if all(len(f) == len(q) for f, q in zip(finished, queues, strict=True)):
                return
        raise AssertionError(f"stuck at {[len(f) for f in finished]}")

    sim = Simulator(m)
    sim.add_clock(1e-8)
    for unit in Unit:
        words = [header(*masks) for masks in queues[unit]]
        sim.add_testbench(sends(dispatchers[unit].i, words), background=True)
        sim.add_testbench(unit_of(unit), background=True)
    sim.add_testbench(wait)
    sim.run()

    # The n-th token from one unit to another is sent by the n-th instruction that signals it.
    for source in Unit:
        for target in Unit:
            if source == target:
                continue
            sent = [
                finished[source][i] for i, (_, s) in enumerate(queues[source]) if s >> target & 1
            ]
            taken = [
                started[target][i] for i, (w, _) in enumerate(queues[target]) if w >> source & 1
            ]
            assert len(taken) <= len(sent)
            assert all(s < t for s, t in zip(sent, taken, strict=False))
