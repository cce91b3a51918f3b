"""Bytes written through a memory without byte masks: each arrives, and nothing beside it."""

import random

import pytest
from amaranth.sim import Simulator, SimulatorContext

from accelc.boards.memory.whole_beats import WholeBeats
from accelc.hw.axi import Burst
from accelc.hw.testbench import AxiMemory
from accelc.isa.config import PRESETS

CONFIG = PRESETS["1x8x8"]
MEMORY_BYTES = 1 << 10


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_bytes_arrive_and_nothing_beside_them(stall: float) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    generator = random.Random(seed)
    dut, width = WholeBeats(CONFIG), CONFIG.bus_bytes
    bad = range(512, 520)
    memory = AxiMemory(
        dut.o, MEMORY_BYTES, latency=3, stall=stall, seed=seed, bad_reads=bad, bad_writes=bad
    )
    mirror = bytearray(memory.data)
    bus = dut.i

    async def until(ctx: SimulatorContext, *ready: str) -> None:
        """Offer, on each channel until it is taken."""
        left = set(ready)
        while left:
            taken = await ctx.tick().sample(*(getattr(bus, name) for name in ready))
            for name, was in zip(ready, taken[2:], strict=True):
                if was and name in left:
                    left.remove(name)
                    ctx.set(getattr(bus, name.replace("ready", "valid")), 0)

    async def host(ctx: SimulatorContext) -> None:
        for prefix in ("ar", "aw"):
            ctx.set(getattr(bus, f"{prefix}size"), 3)
            ctx.set(getattr(bus, f"{prefix}burst"), Burst.INCR)
        ctx.set(bus.bready, 1)
        ctx.set(bus.rready, 1)
        for _ in range(200):
            address = generator.randrange(MEMORY_BYTES)
            beat = address - address % width
            is_bad = beat in bad
            if generator.random() < 0.5:
                value = generator.randrange(256)
                ctx.set(bus.awaddr, beat)
                ctx.set(bus.wdata, int.from_bytes(bytes([value] * width), "little"))
                ctx.set(bus.wstrb, 1 << address % width)
                ctx.set(bus.wlast, 1)
                ctx.set(bus.awvalid, 1)
                ctx.set(bus.wvalid, 1)
                await until(ctx, "awready", "wready")
                while not ctx.get(bus.bvalid):
                    await ctx.tick()
                assert bool(ctx.get(bus.bresp) & 2) == is_bad
                await ctx.tick()
                if not is_bad:
                    mirror[address] = value
            else:
                ctx.set(bus.araddr, beat)
                ctx.set(bus.arvalid, 1)
                await until(ctx, "arready")
                while not ctx.get(bus.rvalid):
                    await ctx.tick()
                data = ctx.get(bus.rdata).to_bytes(width, "little")
                assert bool(ctx.get(bus.rresp) & 2) == is_bad
                await ctx.tick()
                assert is_bad or data == mirror[beat : beat + width]

    async def watch(ctx: SimulatorContext) -> None:
        async for *_, valid, strobes in ctx.tick().sample(dut.o.wvalid, dut.o.wstrb):
            assert not valid or strobes == (1 << width) - 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(memory.run, background=True)
    simulator.add_testbench(watch, background=True)
    simulator.add_testbench(host)
    simulator.run()
    assert memory.data == mirror
    assert memory.write_beats
