"""Delays short and long, in registers and in memory."""

import random

import pytest
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.delay import Delay


@pytest.mark.parametrize("cycles", [1, 5, 6, 7, 16, 17, 18, 40])
def test_values_come_back_after_the_cycles(cycles: int) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    values = [rng.getrandbits(9) for _ in range(100)]
    dut = Delay(9, cycles)

    async def bench(ctx: SimulatorContext) -> None:
        for index, value in enumerate(values):
            ctx.set(dut.i, value)
            if index >= cycles:
                assert ctx.get(dut.o) == values[index - cycles]
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-8)
    sim.add_testbench(bench)
    sim.run()
