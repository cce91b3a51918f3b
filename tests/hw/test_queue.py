"""The instruction queue under stalls on both sides."""

import random
from dataclasses import replace

import pytest
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.layouts import used_bits
from accelc.hw.queue import InstructionQueue
from accelc.hw.testbench import receives, sends
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.spec import Opcode

CONFIGS = [
    replace(PRESETS["1x4x4"], queue_depth=3),
    PRESETS["1x16x16"],
    replace(PRESETS["1x16x16"], name="wide bus", block_in=64, block_out=64, bus_bytes=64),
]


def run(
    config: AccelConfig, opcode: Opcode, words: list[int], stalls: tuple[float, float], seed: int
) -> tuple[list[int], int]:
    """The words that came out, and the cycles it took."""
    dut = InstructionQueue(config, opcode)
    mask = (1 << config.bus_bytes * 8) - 1
    beats = [
        word >> shift & mask for word in words for shift in range(0, 512, config.bus_bytes * 8)
    ]
    received: list[int] = []
    cycles = 0

    async def wait(ctx: SimulatorContext) -> None:
        nonlocal cycles
        assert ctx.get(dut.empty)
        while len(received) < len(words):
            await ctx.tick()
            cycles += 1
            assert cycles < 20000
        await ctx.tick()
        assert ctx.get(dut.empty)

    sim = Simulator(dut)
    sim.add_clock(1e-8)
    sim.add_testbench(sends(dut.i, beats, stall=stalls[0], seed=seed), background=True)
    sim.add_testbench(receives(dut.o, received, stall=stalls[1], seed=seed), background=True)
    sim.add_testbench(wait)
    sim.run()
    return received, cycles


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("opcode", [Opcode.LOAD, Opcode.ALU, Opcode.STORE])
@pytest.mark.parametrize("stalls", [(0.0, 0.0), (0.5, 0.0), (0.0, 0.95), (0.3, 0.6)])
def test_instructions_pass_in_order(
    config: AccelConfig, opcode: Opcode, stalls: tuple[float, float]
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    words = [rng.getrandbits(used_bits(opcode)) for _ in range(20)]
    assert run(config, opcode, words, stalls, seed)[0] == words


def test_throughput_is_that_of_the_beats() -> None:
    words = list(range(30))
    for config in CONFIGS:
        beats = 64 // config.bus_bytes
        _, cycles = run(config, Opcode.GEMM, words, (0.0, 0.0), 0)
        # one beat a cycle in; with a single beat a word, one word every third cycle out
        assert cycles <= 30 * max(beats, 3) + 6
