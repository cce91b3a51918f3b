"""The register block over AXI4-Lite."""

import random

import pytest
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.counters import CounterBank
from accelc.hw.registers import COUNTERS, PARAMETERS, RegisterBlock
from accelc.hw.testbench import LiteMaster
from accelc.isa.config import PRESETS
from accelc.isa.registers import BY_NAME, REGISTERS, Access

CONFIG = PRESETS["1x8x8"]


def run(test) -> None:
    dut = RegisterBlock(CONFIG)
    sim = Simulator(dut)
    sim.add_clock(1e-8)

    async def bench(ctx: SimulatorContext) -> None:
        await test(ctx, dut, LiteMaster(dut.bus))

    sim.add_testbench(bench)
    sim.run()


def test_reset_values() -> None:
    async def test(ctx: SimulatorContext, dut: RegisterBlock, master: LiteMaster) -> None:
        constant = {"id", "version", "config", "shape"}
        for register in REGISTERS:
            if register.access != Access.WRITE_ONE and register.name not in constant:
                assert await master.read(ctx, register.name) == register.reset, register.name

    run(test)


def test_parameters_are_written_by_byte() -> None:
    async def test(ctx: SimulatorContext, dut: RegisterBlock, master: LiteMaster) -> None:
        for index, name in enumerate(PARAMETERS):
            await master.write(ctx, name, 0x1122_3300 + index)
            assert await master.read(ctx, name) == 0x1122_3300 + index
            await master.write(ctx, name, 0xAABB_CCDD, strobe=0b0110)
            assert await master.read(ctx, name) == 0x11BB_CC00 + index
            assert ctx.get(getattr(dut, name)) == 0x11BB_CC00 + index
        await master.write(ctx, "id", 7)
        assert await master.read(ctx, "id") == int.from_bytes(b"acc1", "little")

    run(test)


@pytest.mark.parametrize(("value", "pulse"), [(1, (1, 0)), (2, (0, 1)), (3, (0, 1)), (4, (0, 0))])
def test_control_pulses(value: int, pulse: tuple[int, int]) -> None:
    async def test(ctx: SimulatorContext, dut: RegisterBlock, master: LiteMaster) -> None:
        bus = dut.bus
        ctx.set(bus.awaddr, BY_NAME["control"].offset)
        ctx.set(bus.wdata, value)
        ctx.set(bus.wstrb, 1)
        ctx.set(bus.awvalid, 1)
        ctx.set(bus.wvalid, 1)
        ctx.set(bus.bready, 1)
        seen = [0, 0]
        for _ in range(8):
            seen[0] += ctx.get(dut.start)
            seen[1] += ctx.get(dut.abort)
            await ctx.tick()
            ctx.set(bus.awvalid, 0)
            ctx.set(bus.wvalid, 0)
        assert tuple(seen) == pulse

    run(test)


def test_counters_count_and_clear() -> None:
    async def test(ctx: SimulatorContext, dut: RegisterBlock, master: LiteMaster) -> None:
        for index, name in enumerate(COUNTERS):
            ctx.set(dut.events[name], 1)
            await ctx.tick().repeat(index + 3)
            ctx.set(dut.events[name], 0)
        ctx.set(dut.retired, 0b1010)
        await ctx.tick().repeat(5)
        ctx.set(dut.retired, 0)
        for index, name in enumerate(COUNTERS):
            scale = CONFIG.bus_bytes if name.endswith("_bytes") else 1
            assert await master.read(ctx, f"{name}_low") == (index + 3) * scale
            assert await master.read(ctx, f"{name}_high") == 0
        assert await master.read(ctx, "gemm_retired") == 5
        assert await master.read(ctx, "alu_retired") == 0
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        for name in COUNTERS:
            assert await master.read(ctx, f"{name}_low") == 0
        assert await master.read(ctx, "gemm_retired") == 0

    run(test)


def test_counters_carry_into_their_high_half() -> None:
    """A bank in which one event adds 2^29 passes 2^32 within eight of them."""
    dut = CounterBank([29, 0, 0])
    sim = Simulator(dut)
    sim.add_clock(1e-8)

    async def read(ctx: SimulatorContext, word: int) -> int:
        ctx.set(dut.ask, 1)
        ctx.set(dut.word, word)
        (value,) = await ctx.tick().sample(dut.data).until(dut.found)
        ctx.set(dut.ask, 0)
        return value

    async def bench(ctx: SimulatorContext) -> None:
        expected = [0, 0, 0]
        rng = random.Random(8)
        for round_ in range(60):
            events = rng.randrange(8)
            for _ in range(rng.randrange(6)):
                ctx.set(dut.events, events)
                await ctx.tick()
                for index, weight in enumerate((29, 0, 0)):
                    expected[index] += (events >> index & 1) << weight
            ctx.set(dut.events, 0)
            if round_ % 5 == 0:
                index = rng.randrange(3)
                low = await read(ctx, 2 * index)
                assert low | await read(ctx, 2 * index + 1) << 32 == expected[index]
            if round_ == 40:
                ctx.set(dut.clear, 1)
                await ctx.tick()
                ctx.set(dut.clear, 0)
                expected = [0, 0, 0]
        assert expected[0] > 1 << 32

    sim.add_testbench(bench)
    sim.run()


def test_slow_master() -> None:
    """Address and data may come in any order, responses may be taken late."""

    async def test(ctx: SimulatorContext, dut: RegisterBlock, master: LiteMaster) -> None:
        bus = dut.bus
        ctx.set(bus.wdata, 0x1234)
        ctx.set(bus.wstrb, 0xF)
        ctx.set(bus.wvalid, 1)
        await ctx.tick()
        ctx.set(bus.wvalid, 0)
        await ctx.tick().repeat(3)
        assert not ctx.get(bus.bvalid)
        ctx.set(bus.awaddr, BY_NAME["memory_base"].offset)
        ctx.set(bus.awvalid, 1)
        await ctx.tick()
        ctx.set(bus.awvalid, 0)
        await ctx.tick().repeat(5)
        assert ctx.get(bus.bvalid)
        ctx.set(bus.bready, 1)
        await ctx.tick()
        ctx.set(bus.bready, 0)
        assert not ctx.get(bus.bvalid)
        ctx.set(bus.araddr, BY_NAME["memory_base"].offset)
        ctx.set(bus.arvalid, 1)
        await ctx.tick()
        ctx.set(bus.arvalid, 0)
        await ctx.tick().repeat(6)
        assert ctx.get(bus.rvalid) and ctx.get(bus.rdata) == 0x1234
        ctx.set(bus.rready, 1)
        await ctx.tick()
        assert not ctx.get(bus.rvalid)

    run(test)
