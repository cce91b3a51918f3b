"""Runs and bursts against the loops they stand for."""

import random
from dataclasses import replace

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.axi import PAGE_BYTES
from accelc.hw.dma import BurstSplitter, RunGenerator
from accelc.hw.testbench import receives, sends
from accelc.isa.config import PRESETS, AccelConfig

CONFIG = replace(PRESETS["1x4x4"], max_burst_beats=8)
WIDE = replace(PRESETS["1x16x16"], block_in=64, block_out=64, bus_bytes=64, max_burst_beats=256)
MEMORY_BYTES = 1 << 20
BASE = 0x4000_0000


def random_transfer(rng: random.Random, width: int) -> dict[str, int]:
    beats, n1, n2 = rng.choice((1, 1, 2, 7, 40)), rng.choice((1, 2, 5)), rng.choice((1, 2, 3))
    stride1 = rng.choice((beats, beats + 3, 0)) * width
    stride2 = rng.choice((beats * width, n1 * stride1, stride1 + 5 * width))
    return {
        "dram": rng.randrange(0, 1 << 16, width),
        "beats": beats,
        "n1": n1,
        "n2": n2,
        "stride1": stride1,
        "stride2": stride2,
    }


def beats_of(transfer: dict[str, int], width: int) -> list[int]:
    return [
        transfer["dram"] + i2 * transfer["stride2"] + i1 * transfer["stride1"] + beat * width
        for i2 in range(transfer["n2"])
        for i1 in range(transfer["n1"])
        for beat in range(transfer["beats"])
    ]


def run(
    config: AccelConfig, transfers: list[dict[str, int]], stall: float, seed: int
) -> tuple[list, int]:
    """The bursts of ``transfers`` and the cycles until the last of them."""
    runs, bursts = RunGenerator(config), BurstSplitter(config)
    m = Module()
    m.submodules.runs, m.submodules.bursts = runs, bursts
    connect(m, runs.o, bursts.i)
    m.d.comb += [runs.memory_base.eq(BASE), runs.memory_bytes.eq(MEMORY_BYTES)]
    received: list = []
    cycles = 0

    async def wait(ctx: SimulatorContext) -> None:
        nonlocal cycles
        while sum(burst.last for burst in received) < len(transfers):
            await ctx.tick()
            cycles += 1
            assert cycles < 20_000
            assert not ctx.get(runs.error)
        await ctx.tick().repeat(10)
        assert ctx.get(runs.empty) and ctx.get(bursts.empty)

    sim = Simulator(m)
    sim.add_clock(1e-8)
    sim.add_testbench(sends(runs.i, transfers, stall=stall, seed=seed), background=True)
    sim.add_testbench(receives(bursts.o, received, stall=stall, seed=seed), background=True)
    sim.add_testbench(wait)
    sim.run()
    return received, cycles


@pytest.mark.parametrize("config", [CONFIG, WIDE], ids=["4 bytes", "64 bytes"])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_bursts_cover_exactly_the_transfers(config: AccelConfig, stall: float) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    width = config.bus_bytes
    transfers = [random_transfer(rng, width) for _ in range(60)]
    bursts, _ = run(config, transfers, stall, seed)
    addresses: list[int] = []
    counts: list[int] = []
    for burst in bursts:
        last = burst.addr + burst.len * width
        assert burst.len < config.max_burst_beats
        assert burst.addr // PAGE_BYTES == last // PAGE_BYTES
        addresses += range(burst.addr - BASE, last - BASE + 1, width)
        if burst.last:
            counts.append(len(addresses))
    expected = [beats_of(transfer, width) for transfer in transfers]
    assert addresses == [beat for beats in expected for beat in beats]
    assert counts == [sum(map(len, expected[: i + 1])) for i in range(len(expected))]


def test_a_run_a_cycle() -> None:
    apart = {"dram": 0, "beats": 1, "n1": 50, "n2": 1, "stride1": 64, "stride2": 0}
    bursts, cycles = run(CONFIG, [apart] * 4, 0.0, 0)
    assert len(bursts) == 200
    assert cycles <= 200 + 8


def test_single_beats_in_a_row_become_full_bursts() -> None:
    joined = {"dram": 64, "beats": 1, "n1": 50, "n2": 1, "stride1": 4, "stride2": 0}
    bursts, _ = run(CONFIG, [joined], 0.0, 0)
    assert [burst.len + 1 for burst in bursts] == [8] * 6 + [2]
