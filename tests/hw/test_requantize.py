"""The vector unit's arithmetic stages against the rounding contract, a row every cycle."""

import dataclasses
import random
from collections.abc import Iterator

import numpy as np
import pytest
from amaranth.lib import wiring
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.requantize import NARROW_BITS, Requantize, RoundingShift, ScaledAdd
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.semantics import round_shift

LANES = 4
ROWS = 600


def config(mult_bits: int = 24) -> AccelConfig:
    return dataclasses.replace(PRESETS["1x4x4"], vector_lanes=LANES, mult_bits=mult_bits)


def simulate(dut: wiring.Component, drive: object, observe: object) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)  # type: ignore[arg-type]
    simulator.add_testbench(observe, background=True)  # type: ignore[arg-type]
    simulator.run()


def edge(rng: random.Random, bits: int) -> int:
    """A signed value of so many bits, often one where carries and saturation happen."""
    top = 1 << (bits - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice((-top, top - 1, -1, 0, 1, -top + 1))
    if kind == 1:
        return rng.randrange(-top, top)
    if kind == 2:
        return max(-top, min(top - 1, rng.randint(-600, 600)))
    return rng.randrange(-top, top) >> rng.randrange(bits)


def tie(rng: random.Random, bits: int, shift: int) -> int:
    """A value exactly half-way between two results of a right shift, or right beside."""
    value = (rng.randint(-600, 600) * 2 + 1 << shift) >> 1
    value += rng.choice((-1, 0, 0, 0, 1))
    top = 1 << (bits - 1)
    return max(-top, min(top - 1, value))


@pytest.mark.parametrize("value_bits, shift_bits", [(56, 6), (41, 5), (47, 6), (12, 3)])
def test_rounding_shift(value_bits: int, shift_bits: int) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    dut = RoundingShift(lanes=LANES, value_bits=value_bits, shift_bits=shift_bits)
    rows = []
    for _ in range(ROWS):
        shifts = [rng.randrange(1 << shift_bits) for _ in range(LANES)]
        values = [
            tie(rng, value_bits, s) if rng.random() < 0.5 else edge(rng, value_bits) for s in shifts
        ]
        rows.append((values, shifts))
    parities = [rng.randint(0, 1) for _ in range(ROWS)]
    seen: list[list[int]] = []

    async def drive(ctx: SimulatorContext) -> None:
        ctx.set(dut.en, 1)
        # the parity is wanted in the last stage
        late = [0] * (dut.latency - 1) + parities
        for (values, shifts), parity in zip(
            rows + [rows[-1]] * (dut.latency - 1), late, strict=True
        ):
            for lane in range(LANES):
                ctx.set(dut.value[lane], values[lane])
                ctx.set(dut.shift[lane], shifts[lane])
            ctx.set(dut.parity, parity)
            await ctx.tick()

    async def observe(ctx: SimulatorContext) -> None:
        await ctx.tick().repeat(dut.latency)
        while True:
            seen.append([ctx.get(dut.o[lane]) for lane in range(LANES)])
            await ctx.tick()

    simulate(dut, drive, observe)
    assert len(seen) >= ROWS - 1
    high = (1 << (NARROW_BITS - 1)) - 1
    for (values, shifts), parity, row in zip(rows, parities, seen, strict=False):
        want = round_shift(np.array(values), np.array(shifts), parity)
        for x, w, s, o in zip(values, want, shifts, row, strict=True):
            # Beyond the narrow range only the direction is promised: any int8 zero point keeps it.
            if -high - 1 <= w <= high:
                assert o == w, f"{x} >> {s}, parity {parity}"
            else:
                assert o == (high if w > 0 else -high - 1) or o == w, f"{x} >> {s}"


def settings(rng: random.Random) -> dict[str, int]:
    limits = (-128, 127, 0, 5, -7)
    a_min, a_max = sorted((rng.choice(limits), rng.choice(limits)))
    b_min, b_max = sorted((rng.choice((-128, *limits)), rng.choice((127, *limits))))
    return {
        "a_parity": 0,
        "a_zero": edge(rng, 8),
        "a_min": a_min,
        "a_max": a_max,
        "m1": edge(rng, 25),
        "m2": edge(rng, 25),
        "offset": edge(rng, 40),
        "b_shift": rng.randrange(32),
        "b_zero": edge(rng, 8),
        "b_min": b_min,
        "b_max": b_max,
        "lut": 0,
    }


def bursts(rng: random.Random, rows: int) -> Iterator[bool]:
    """Which cycles hold a row: full speed, with holes here and there."""
    left = rows
    while left:
        row = rng.random() < 0.8
        left -= row
        yield row


@pytest.mark.parametrize("mult_bits", [24, 15, 18])
def test_requantize(mult_bits: int) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    dut = Requantize(config(mult_bits))
    banks = [settings(rng), settings(rng)]
    inside = [rng.randint(0, 1) for _ in banks]
    for bank, flag in zip(banks, inside, strict=True):
        bank["a_parity"] = flag & bank["a_zero"] & 1
    want: list[list[int]] = []
    seen: list[list[int]] = []

    def expected(x: list[int], bank: int, params: list[tuple[int, int, int]]) -> list[int]:
        b = banks[bank]
        out = []
        for value, (bias, mult, shift) in zip(x, params, strict=True):
            total = int(np.array(value + bias, np.int64).astype(np.int32))
            rounded = round_shift(np.array(total * mult), shift, b["a_parity"])
            out.append(int(np.clip(rounded + b["a_zero"], b["a_min"], b["a_max"])))
        return out

    def new_params() -> list[tuple[int, int, int]]:
        params = []
        for _ in range(LANES):
            exponent = rng.randrange(mult_bits)
            if rng.random() < 0.5:
                params.append((edge(rng, 8), 1 << exponent, exponent + rng.randint(0, 3)))
            else:
                mult = rng.randrange(1 << mult_bits)
                params.append((edge(rng, 32), mult, rng.choice((63, 56, 0, rng.randrange(64)))))
        return params

    async def drive(ctx: SimulatorContext) -> None:
        ctx.set(dut.settings, banks)
        params = new_params()
        scale = 1
        pending = True
        for row in bursts(rng, ROWS):
            # parameters for the row of the next cycle may come while this one is taken
            if pending:
                word = sum(
                    (b & 0xFFFFFFFF | m << 32 | s << 56) << 64 * lane
                    for lane, (b, m, s) in enumerate(params)
                )
                ctx.set(dut.params, word)
                ctx.set(dut.scale, scale)
            ctx.set(dut.params_en, pending)
            await ctx.tick()
            current = params if scale else [(0, 1, 0)] * LANES
            pending = rng.random() < 0.3
            if pending:
                params, scale = new_params(), rng.random() < 0.9
            ctx.set(dut.en, row)
            if row:
                x = [edge(rng, rng.choice((9, 32))) for _ in range(LANES)]
                bank = rng.randint(0, 1)
                ctx.set(dut.bank, bank)
                for lane in range(LANES):
                    ctx.set(dut.x[lane], x[lane])
                want.append(expected(x, bank, current))
        await ctx.tick()
        ctx.set(dut.en, 0)
        await ctx.tick().repeat(dut.latency + 2)

    async def observe(ctx: SimulatorContext) -> None:
        async for _, _, valid, *o in ctx.tick().sample(dut.o_valid, *dut.o):
            if valid:
                seen.append(o)

    simulate(dut, drive, observe)
    assert len(seen) == ROWS
    assert seen == want


def test_scaled_add() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    dut = ScaledAdd(config())
    want: list[list[int]] = []
    seen: list[list[int]] = []

    async def drive(ctx: SimulatorContext) -> None:
        for _ in range(30):
            banks = [settings(rng), settings(rng)]
            for bank in banks:
                if rng.random() < 0.6:
                    # halves: ties
                    shift = rng.randint(1, 24)
                    bank.update(b_shift=shift, m1=1 << shift - 1, m2=rng.choice((0, 1)), offset=0)
            ctx.set(dut.settings, banks)
            for row in bursts(rng, ROWS // 30):
                ctx.set(dut.en, row)
                if row:
                    which = rng.randint(0, 1)
                    b = banks[which]
                    x = [edge(rng, 8) for _ in range(LANES)]
                    v = [edge(rng, 8) for _ in range(LANES)]
                    ctx.set(dut.bank, which)
                    for lane in range(LANES):
                        ctx.set(dut.x[lane], x[lane])
                        ctx.set(dut.v[lane], v[lane])
                    total = np.array(x) * b["m1"] + np.array(v) * b["m2"] + b["offset"]
                    y = round_shift(total, b["b_shift"]) + b["b_zero"]
                    want.append(np.clip(y, b["b_min"], b["b_max"]).tolist())
                await ctx.tick()
            ctx.set(dut.en, 0)
            await ctx.tick().repeat(dut.latency)

    async def observe(ctx: SimulatorContext) -> None:
        async for _, _, valid, *o in ctx.tick().sample(dut.o_valid, *dut.o):
            if valid:
                seen.append(o)

    simulate(dut, drive, observe)
    assert len(seen) == len(want) == ROWS
    assert seen == want
