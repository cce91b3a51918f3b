"""The matrix array: exact sums, stationary weights and the sliding window."""

import dataclasses
import random

import numpy as np
import pytest
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.mac import MacArray
from accelc.isa.config import PRESETS, AccelConfig

CONFIGS = {
    "1x4x4": PRESETS["1x4x4"],
    "2x4x8": dataclasses.replace(PRESETS["1x4x8"], batch=2),
    "1x8x8": PRESETS["1x8x8"],
    "without window": dataclasses.replace(PRESETS["1x4x4"], window=False),
}


def to_int(array: np.ndarray) -> int:
    return int.from_bytes(array.astype(np.int8).tobytes(), "little")


@pytest.mark.parametrize(("levels_per_register", "spread"), [(1, False), (2, True), (3, False)])
@pytest.mark.parametrize("name", CONFIGS)
def test_rows_tiles_and_windows(name: str, levels_per_register: int, spread: bool) -> None:
    config: AccelConfig = CONFIGS[name]
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    dut = MacArray(config, levels_per_register=levels_per_register)
    dut.spread = spread
    batch, block_in, block_out = config.batch, config.block_in, config.block_out
    want: list[list[int]] = []
    due: list[int] = []
    seen: list[list[int]] = []
    arrived: list[int] = []

    def random_bytes(*shape: int) -> np.ndarray:
        # extremes often, so that the widest sums occur
        values = rng.integers(-128, 128, shape)
        return np.where(rng.random(shape) < 0.3, rng.choice([-128, 127], shape), values)

    async def drive(ctx: SimulatorContext) -> None:
        cycle = 0
        shadow = np.zeros((block_out, block_in), int)
        active = shadow
        window = np.zeros((block_in, batch, block_in), int)
        windowed, in_window = False, 0

        for tile in range(40):
            coming = random_bytes(block_out, block_in)
            # the first tile must be complete; later ones overlap with the rows of the one before
            for o in range(block_out):
                ctx.set(dut.shadow_en, 1)
                ctx.set(dut.shadow_row, o)
                ctx.set(dut.shadow_data, to_int(coming[o]))
                row_en = tile > 0 and rng.random() < 0.8
                if config.window and rng.random() < 0.1:
                    windowed, in_window = not windowed, 0
                fire = rng.random() < 0.7
                swap = o == 0 and tile > 0
                row = random_bytes(batch, block_in)
                ctx.set(dut.row_en, row_en or swap)
                ctx.set(dut.swap, swap)
                # a window needs all its rows
                fire &= not windowed or in_window + 1 >= block_in
                ctx.set(dut.fire, fire)
                ctx.set(dut.window, windowed)
                ctx.set(dut.row, to_int(row))
                if swap:
                    active = shadow
                if row_en or swap:
                    in_window += windowed
                    window = np.concatenate([row[None], window[:-1]])
                    if fire and windowed:
                        lanes = np.arange(block_out) % block_in
                        x = window[:, :, lanes]
                        want.append(np.einsum("jbo,oj->bo", x, active).reshape(-1).tolist())
                    elif fire:
                        want.append((row @ active.T).reshape(-1).tolist())
                    if fire:
                        due.append(cycle + dut.latency)
                await ctx.tick()
                cycle += 1
            shadow = coming
        ctx.set(dut.row_en, 0)
        ctx.set(dut.shadow_en, 0)
        await ctx.tick().repeat(dut.latency + 1)

    async def observe(ctx: SimulatorContext) -> None:
        cycle = 0
        async for _, _, valid, *sums in ctx.tick().sample(dut.sums_valid, *dut.sums):
            if valid:
                seen.append(sums)
                arrived.append(cycle)
            cycle += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.add_testbench(observe, background=True)
    simulator.run()
    assert seen == want
    assert arrived == due


def test_extremes_are_exact() -> None:
    """The largest sum there is: every product 2^14."""
    config = PRESETS["1x4x4"]
    dut = MacArray(config)

    async def drive(ctx: SimulatorContext) -> None:
        ctx.set(dut.shadow_en, 1)
        ctx.set(dut.shadow_data, 0x80808080)
        for o in range(config.block_out):
            ctx.set(dut.shadow_row, o)
            await ctx.tick()
        ctx.set(dut.shadow_en, 0)
        ctx.set(dut.row, 0x80808080)
        for port in (dut.row_en, dut.fire, dut.swap):
            ctx.set(port, 1)
        await ctx.tick().repeat(dut.latency)
        assert ctx.get(dut.sums_valid)
        assert [ctx.get(dut.sums[o]) for o in range(4)] == [4 << 14] * 4

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()
