"""Scratchpads against arrays of bytes: addressing and latency."""

import dataclasses
import random
from collections.abc import Callable

import numpy as np
import pytest
from amaranth.lib import wiring
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.scratchpad import (
    READ_CYCLES,
    AccScratchpad,
    BeatScratchpad,
    InpScratchpad,
    OutScratchpad,
    PrmScratchpad,
    VinScratchpad,
    WgtScratchpad,
    row_chunks,
)
from accelc.isa.config import PRESETS, AccelConfig

DEPTHS = dict(inp_rows=16, wgt_rows=4, acc_rows=16, vin_rows=8, out_rows=8, prm_rows=4)


def tiny(preset: str, **changes: object) -> AccelConfig:
    return dataclasses.replace(PRESETS[preset], **{**DEPTHS, **changes})


CONFIGS = [
    tiny("1x16x16"),
    tiny("2x16x16"),
    tiny("1x4x8"),
    tiny("1x4x8", batch=2, vector_lanes=8, name="2x4x8"),
    tiny("1x4x8", batch=4, vector_lanes=2, name="4x4x8, 2 lanes"),
    tiny("1x8x8", vector_lanes=1, name="1x8x8, 1 lane"),
]


def simulate(dut: wiring.Component, bench: Callable) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


def vector_words(rows: np.ndarray, config: AccelConfig) -> np.ndarray:
    """``(rows, block_out/block_in, batch, block_in)`` to ``(rows * chunks, vector_lanes)``."""
    lanes = rows.reshape(-1, config.vec_inp_rows, config.batch, config.block_in)
    return lanes.transpose(0, 2, 1, 3).reshape(-1, config.vector_lanes)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("kind", [InpScratchpad, WgtScratchpad, PrmScratchpad, VinScratchpad])
def test_beats_become_words(
    kind: Callable[[AccelConfig], BeatScratchpad], config: AccelConfig
) -> None:
    dut = kind(config)
    beat = config.bus_bytes
    rng = random.Random(1)
    raw = np.frombuffer(rng.randbytes(dut.size_bytes), np.uint8)
    word_bytes = len(dut.read.data) // 8
    words = vector_words(raw, config) if kind is VinScratchpad else raw.reshape(-1, word_bytes)

    async def bench(ctx: SimulatorContext) -> None:
        ctx.set(dut.write.en, 1)
        addresses = list(range(dut.size_bytes // beat))
        rng.shuffle(addresses)
        for address in addresses:
            ctx.set(dut.write.addr, address)
            data = raw[address * beat : (address + 1) * beat].tobytes()
            ctx.set(dut.write.data, int.from_bytes(data, "little"))
            await ctx.tick()
        ctx.set(dut.write.en, 0)
        ctx.set(dut.write.data, 0)
        # one read a cycle, each arriving two cycles later
        order = [rng.randrange(len(words)) for _ in range(60)]
        for n, address in enumerate([*order, *order[:READ_CYCLES]]):
            ctx.set(dut.read.en, n < len(order))
            ctx.set(dut.read.addr, address)
            if n >= READ_CYCLES:
                want = int.from_bytes(words[order[n - READ_CYCLES]].tobytes(), "little")
                assert ctx.get(dut.read.data) == want
            await ctx.tick()
        held = ctx.get(dut.read.data)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.read.data) == held

    simulate(dut, bench)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_words_become_beats(config: AccelConfig) -> None:
    dut = OutScratchpad(config)
    beat = config.bus_bytes
    rng = random.Random(1)
    raw = np.frombuffer(rng.randbytes(config.out_rows * config.vec_row_bytes), np.uint8)
    words = vector_words(raw, config)

    async def bench(ctx: SimulatorContext) -> None:
        ctx.set(dut.write.en, 1)
        for address in rng.sample(range(len(words)), len(words)):
            ctx.set(dut.write.addr, address)
            ctx.set(dut.write.data, int.from_bytes(words[address].tobytes(), "little"))
            await ctx.tick()
        ctx.set(dut.write.en, 0)
        ctx.set(dut.read.en, 1)
        for address in range(raw.size // beat):
            ctx.set(dut.read.addr, address)
            await ctx.tick()
            want = int.from_bytes(raw[address * beat : (address + 1) * beat].tobytes(), "little")
            assert ctx.get(dut.read.data) == want

    simulate(dut, bench)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_accumulators(config: AccelConfig) -> None:
    """Random reads and writes on all three ports at once."""
    dut = AccScratchpad(config)
    chunks = row_chunks(config)
    row_bits = len(dut.gemm_read.data)
    chunk_bits = row_bits // chunks
    rng = random.Random(1)
    model: list[int | None] = [None] * config.acc_rows

    async def bench(ctx: SimulatorContext) -> None:
        by_gemm: list[int | None] = [None] * READ_CYCLES
        by_alu: list[int | None] = [None] * READ_CYCLES
        for cycle in range(400):
            filling = cycle < config.acc_rows
            write = cycle if filling else rng.randrange(config.acc_rows)
            value = rng.getrandbits(row_bits)
            ctx.set(dut.gemm_write.en, 1)
            ctx.set(dut.gemm_write.addr, write)
            ctx.set(dut.gemm_write.data, value)
            # reading a row in the cycle it is written is undefined, so the test keeps away
            readable = [r for r in range(config.acc_rows) if r != write]
            row, alu_row = rng.choice(readable), rng.choice(readable)
            chunk = rng.randrange(chunks)
            read = not filling and rng.random() < 0.6
            want = not filling and rng.random() < 0.8
            ctx.set(dut.gemm_read.en, read)
            ctx.set(dut.gemm_read.addr, row)
            ctx.set(dut.alu_read.en, want)
            ctx.set(dut.alu_read.addr, alu_row * chunks + chunk)
            by_gemm.append(model[row] if read else None)
            taken = model[alu_row] if want else None
            if taken is not None:
                taken = taken >> chunk * chunk_bits & (1 << chunk_bits) - 1
            by_alu.append(taken)
            expected = by_gemm.pop(0), by_alu.pop(0)
            if expected[0] is not None:
                assert ctx.get(dut.gemm_read.data) == expected[0]
            if expected[1] is not None:
                assert ctx.get(dut.alu_read.data) == expected[1]
            model[write] = value
            await ctx.tick()

    simulate(dut, bench)
