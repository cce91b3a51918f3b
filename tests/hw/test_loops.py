"""The loop-nest generator against the same loops in Python."""

import itertools
import random

import pytest
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.loops import LoopNest

LOOPS = {"a": 4, "b": 3, "c": 3, "d": 2}
CHANNELS = {"x": ("a", "b", "c", "d"), "y": ("b", "d"), "z": ("c",)}


def expected(params: dict) -> list[dict]:
    """Positions of a nest in order, as dictionaries like the output's payload."""
    counts = [params["count"][loop] for loop in LOOPS]
    positions = []
    previous = None
    for indices in itertools.product(*(range(n) for n in counts)):
        at = dict(zip(LOOPS, indices, strict=True))
        entered = "start"
        if previous is not None:
            entered = next(k for k in LOOPS if at[k] != previous[k])
        rows = {
            channel: (
                params["base"][channel]
                + sum(at[loop] * params["stride"][channel][loop] for loop in strides)
            )
            & 0xFFFF
            for channel, strides in CHANNELS.items()
        }
        last = {loop: int(at[loop] == n - 1) for loop, n in zip(LOOPS, counts, strict=True)}
        positions.append({"row": rows, "entered": entered, "last": last})
        previous = at
    return positions


def random_params(rng: random.Random) -> dict:
    return {
        "count": {loop: rng.choice((1, 1, 2, (1 << bits) - 1)) for loop, bits in LOOPS.items()},
        "base": {channel: rng.randrange(1 << 16) for channel in CHANNELS},
        "stride": {
            channel: {loop: rng.randrange(1 << 16) for loop in strides}
            for channel, strides in CHANNELS.items()
        },
    }


@pytest.mark.parametrize("stalls", [False, True])
def test_positions(stalls: bool) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    dut = LoopNest(LOOPS, CHANNELS)
    nests = [random_params(rng) for _ in range(12)]

    async def drive(ctx: SimulatorContext) -> None:
        for params in nests:
            while not ctx.get(dut.idle):
                await ctx.tick()
            # what waits at the output needs no parameters any more
            ctx.set(dut.params, params)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            await ctx.delay(0)

    async def check(ctx: SimulatorContext) -> None:
        for params in nests:
            want = expected(params)
            cycles = 0
            for position in want:
                while True:
                    ready = not stalls or rng.random() < 0.6
                    ctx.set(dut.o.ready, ready)
                    _, _, valid, payload = await ctx.tick().sample(dut.o.valid, dut.o.payload)
                    cycles += 1
                    if valid and ready:
                        break
                for channel in CHANNELS:
                    assert payload.row[channel] == position["row"][channel]
                for name in ("start", *LOOPS):
                    assert payload.entered[name] == (name == position["entered"])
                assert {loop: payload.last[loop] for loop in LOOPS} == position["last"]
            if not stalls:
                assert cycles <= len(want) + 4

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.add_testbench(check)
    simulator.run()


def test_single_visits_one_position() -> None:
    dut = LoopNest(LOOPS, CHANNELS)
    params = random_params(random.Random(1))
    params["count"] = {loop: 0 for loop in LOOPS}

    async def drive(ctx: SimulatorContext) -> None:
        ctx.set(dut.params, params)
        ctx.set(dut.start, 1)
        ctx.set(dut.single, 1)
        ctx.set(dut.o.ready, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        seen = []
        for _ in range(10):
            _, _, valid, payload = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            if valid:
                seen.append(payload)
        assert len(seen) == 1
        assert seen[0].row.x == params["base"]["x"]
        assert all(seen[0].last[loop] for loop in LOOPS)
        assert ctx.get(dut.idle)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_channels_must_follow_loop_order() -> None:
    with pytest.raises(ValueError, match="channel 'x' must list loops"):
        LoopNest({"a": 4, "b": 4}, {"x": ("b", "a")})
