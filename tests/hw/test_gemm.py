"""The matrix unit with its scratchpads against the golden semantics, values and cycles."""

import dataclasses
import random

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.gemm import GemmUnit
from accelc.hw.layouts import ScratchWrite
from accelc.hw.scratchpad import (
    AccChunkRead,
    AccScratchpad,
    InpScratchpad,
    WgtScratchpad,
    row_chunks,
)
from accelc.isa import semantics
from accelc.isa.codec import encode
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.errors import EncodingError, RowRangeError
from accelc.isa.registers import ErrorCode
from accelc.isa.semantics import State
from accelc.isa.spec import INSTRUCTION_BITS, Gemm

#: Cycles an instruction may take beyond its tiles: sequencer start, weight lead, pipeline.
OVERHEAD_CYCLES = 40


def small(preset: str, **changes: object) -> AccelConfig:
    """A preset with scratchpads small enough to fill and read back in a test."""
    depths = dict(inp_rows=64, wgt_rows=16, acc_rows=32, vin_rows=16, out_rows=16, prm_rows=4)
    return dataclasses.replace(PRESETS[preset], **{**depths, **changes})


class Bench(wiring.Component):
    """GemmUnit and the scratchpads it uses."""

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        self.unit = GemmUnit(config)
        self.inp = InpScratchpad(config)
        self.wgt = WgtScratchpad(config)
        self.acc = AccScratchpad(config)
        super().__init__(
            {
                "inp_write": In(ScratchWrite(config)),
                "wgt_write": In(ScratchWrite(config)),
                "alu_read": In(AccChunkRead(config)),
                "i": In(stream.Signature(unsigned(INSTRUCTION_BITS))),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.unit = self.unit
        m.submodules.inp = self.inp
        m.submodules.wgt = self.wgt
        m.submodules.acc = self.acc
        wiring.connect(m, self.unit.inp_read, self.inp.read)
        wiring.connect(m, self.unit.wgt_read, self.wgt.read)
        wiring.connect(m, self.unit.acc_read, self.acc.gemm_read)
        wiring.connect(m, self.unit.acc_write, self.acc.gemm_write)
        wiring.connect(m, wiring.flipped(self.inp_write), self.inp.write)
        wiring.connect(m, wiring.flipped(self.wgt_write), self.wgt.write)
        wiring.connect(m, wiring.flipped(self.alu_read), self.acc.alu_read)
        wiring.connect(m, wiring.flipped(self.i), self.unit.i)
        m.d.comb += self.done.eq(self.unit.done)
        return m


class Run:
    """One simulation: fill the scratchpads, execute, count, read the accumulators back."""

    def __init__(
        self,
        config: AccelConfig,
        state: State,
        instructions: list[Gemm],
        gap: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.config = config
        self.state = state
        self.instructions = instructions
        self.gap = gap
        self.rng = random.Random(seed)
        self.dut = Bench(config)
        self.cycle = 0
        self.accepted: list[int] = []
        self.done: list[int] = []
        self.issues: list[int] = []
        self.stalls = 0
        self.error = 0
        self.acc = np.zeros_like(state.acc)
        self._filled = False
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-8)
        simulator.add_testbench(self._drive)
        simulator.add_testbench(self._observe, background=True)
        simulator.run()

    async def _fill(self, ctx: SimulatorContext) -> None:
        beat = self.config.bus_bytes
        for port, array in (
            (self.dut.inp_write, self.state.inp),
            (self.dut.wgt_write, self.state.wgt),
        ):
            raw = array.tobytes()
            ctx.set(port.en, 1)
            for address in range(len(raw) // beat):
                ctx.set(port.addr, address)
                ctx.set(
                    port.data, int.from_bytes(raw[address * beat : (address + 1) * beat], "little")
                )
                await ctx.tick()
            ctx.set(port.en, 0)

    async def _drive(self, ctx: SimulatorContext) -> None:
        await self._fill(ctx)
        self._filled = True
        for instruction in self.instructions:
            while self.rng.random() < self.gap:
                await ctx.tick()
            ctx.set(self.dut.i.payload, int.from_bytes(encode(instruction), "little"))
            ctx.set(self.dut.i.valid, 1)
            while True:
                _, _, ready = await ctx.tick().sample(self.dut.i.ready)
                if ready:
                    break
                if ctx.get(self.dut.unit.error):
                    self.error = ctx.get(self.dut.unit.error)
                    return
            self.accepted.append(self.cycle)
            ctx.set(self.dut.i.valid, 0)
        limit = self.cycle + 20000
        while len(self.done) < len(self.instructions) and not self.error:
            await ctx.tick()
            self.error = ctx.get(self.dut.unit.error)
            assert self.cycle < limit, "the unit hangs"
        if not self.error:
            await ctx.tick()
            assert not ctx.get(self.dut.unit.busy)
        await self._read_back(ctx)

    async def _observe(self, ctx: SimulatorContext) -> None:
        unit = self.dut.unit
        async for _, _, done, issue, stall in ctx.tick().sample(unit.done, unit.issue, unit.stall):
            self.cycle += 1
            if done:
                self.done.append(self.cycle)
            if issue:
                self.issues.append(self.cycle)
            self.stalls += stall

    async def _read_back(self, ctx: SimulatorContext) -> None:
        chunks = row_chunks(self.config)
        port = self.dut.alu_read
        flat = self.acc.reshape(-1, self.config.vector_lanes)
        ctx.set(port.en, 1)
        for address in range(self.config.acc_rows * chunks):
            ctx.set(port.addr, address)
            await ctx.tick().repeat(2)
            data = ctx.get(port.data).to_bytes(4 * self.config.vector_lanes, "little")
            flat[address] = np.frombuffer(data, np.int32)


def place(rng: random.Random, depth: int, *counts: int, steps: int = 3) -> tuple[int, list[int]]:
    """Random base and strides, modulo 2^16, that keep a loop nest within ``depth`` rows."""
    while True:
        strides = [rng.randint(-steps, steps) for _ in counts]
        low = sum(min(0, (n - 1) * s) for n, s in zip(counts, strides, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(counts, strides, strict=True))
        if high - low < depth:
            return rng.randint(-low, depth - 1 - high), [s & 0xFFFF for s in strides]


def random_gemm(rng: random.Random, config: AccelConfig) -> Gemm:
    """Any legal GEMM, biased to few rows and repeated accumulators."""
    n_o, n_k0, n_k1, n_k2 = (rng.choice((1, 1, 2, 3)) for _ in range(4))
    n_y, n_x = rng.choice((1, 1, 2, 3, 5)), rng.choice((1, 2, 3, 4, 7))
    window = config.window and rng.random() < 0.5
    n_t = first = step = 1
    if window:
        n_t = rng.randint(1, min(4, config.block_in))
        first = rng.randint(1, config.block_in // n_t)
        step = rng.choice((1, 1, 2, 3))
        n_x = rng.randint(1, 7)
    fires = len(range(first - 1, n_x, step)) if window else n_x
    inp, i = place(rng, config.inp_rows, n_o, n_k0, n_k1, n_k2, n_y, n_x, n_t)
    wgt, w = place(rng, config.wgt_rows, n_o, n_k0, n_k1, n_k2)
    acc, a = place(rng, config.acc_rows, n_o, n_y, max(fires, 1), steps=rng.choice((0, 1, 4)))
    if rng.random() < 0.1:
        n_k1 = 0
    return Gemm(
        accumulate=rng.randint(0, 1), window=int(window), inp=inp, wgt=wgt, acc=acc,
        n_o=n_o, n_k0=n_k0, n_k1=n_k1, n_k2=n_k2, n_y=n_y, n_x=n_x, n_t=n_t, first=first, step=step,
        inp_o=i[0], inp_k0=i[1], inp_k1=i[2], inp_k2=i[3], inp_y=i[4], inp_x=i[5], inp_t=i[6],
        wgt_o=w[0], wgt_k0=w[1], wgt_k1=w[2], wgt_k2=w[3], acc_o=a[0], acc_y=a[1], acc_x=a[2],
    )  # fmt: skip


def check(config: AccelConfig, instructions: list[Gemm], gap: float = 0.0, seed: int = 0) -> Run:
    """Execute on both and compare every accumulator."""
    state = State(config, np.zeros(0, np.uint8), seed=seed)
    state.acc[:] = 0
    run = Run(config, state, instructions, gap, seed)
    assert run.error == ErrorCode.NONE
    for instruction in instructions:
        semantics.execute(instruction, state)
    wrong = np.argwhere((run.acc != state.acc).any(axis=(1, 2))).reshape(-1)
    assert not wrong.size, f"accumulator rows {wrong.tolist()} differ"
    return run


CONFIGS = [
    small("1x4x4"),
    small("1x8x8"),
    small("1x4x8"),
    small("1x4x4", batch=2, name="2x4x4"),
    small("1x4x4", window=False, name="1x4x4 without window"),
    small("1x4x4", block_out=16, vector_lanes=8, name="1x4x16"),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("gap", [0.0, 0.7])
def test_random_instructions(config: AccelConfig, gap: float) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    instructions = [random_gemm(rng, config) for _ in range(25)]
    run = check(config, instructions, gap, seed)
    assert len(run.done) == len(instructions)


def tile_gemm(rows: int, tiles: int, **changes: int) -> Gemm:
    """A reduction over so many tiles, each streaming consecutive rows."""
    gemm = Gemm(n_k0=tiles, n_x=rows, inp_k0=1, inp_x=1, wgt_k0=1, acc_x=1)
    return dataclasses.replace(gemm, **changes)


@pytest.mark.parametrize("name", ["1x4x4", "1x8x8", "1x4x8"])
@pytest.mark.parametrize("rows", [1, 3, 4, 8, 9, 20])
def test_a_tile_takes_its_rows_or_its_weights(name: str, rows: int) -> None:
    config = small(name)
    tiles = 10
    run = check(config, [tile_gemm(rows, tiles)])
    assert len(run.issues) == rows * tiles
    per_tile = max(rows, config.block_out)
    # the last tile ends with its last row, its weights hide nothing any more
    assert run.issues[-1] - run.issues[0] + 1 == per_tile * (tiles - 1) + rows
    assert run.done[0] - run.accepted[0] <= per_tile * tiles + config.block_out + OVERHEAD_CYCLES
    if rows >= config.block_out:
        assert run.stalls <= config.block_out


def test_weights_load_during_the_instruction_before() -> None:
    config = small("1x8x8")
    run = check(config, [tile_gemm(12, 2) for _ in range(8)])
    assert (np.diff(run.done) <= 24 + 4).all(), run.done


def test_output_blocks_and_lines_follow_without_a_gap() -> None:
    config = small("1x4x4")
    gemm = tile_gemm(3, 2, n_o=3, n_y=3, inp_y=3, acc_o=9, acc_y=3, wgt_o=2)
    run = check(config, [gemm])
    assert run.issues[-1] - run.issues[0] + 1 == 3 * 2 * 9


def test_window_fires_while_it_slides() -> None:
    config = small("1x8x8")
    # a 3x3 depthwise convolution of 12 columns, its three lines side by side in a column
    gemm = tile_gemm(12, 1, window=1, n_t=2, first=3, n_y=2, inp_x=2, inp_t=1, inp_y=24, acc_y=10)
    run = check(config, [gemm])
    assert len(run.issues) == 2 * 10
    assert run.done[0] - run.accepted[0] <= 2 * 12 * 2 + OVERHEAD_CYCLES


@pytest.mark.parametrize("stride", [0, 1])
def test_repeated_accumulators_wait(stride: int) -> None:
    config = small("1x4x4")
    # rows 0 0 0 ... or 0 1 0 1 ...: each waits until the one before it on its row is written
    gemm = tile_gemm(2, 1, n_y=10, accumulate=1, acc_x=stride, inp_y=1)
    run = check(config, [gemm])
    per_row = 4 if stride == 0 else 2
    assert run.issues[-1] - run.issues[0] <= 20 * per_row
    assert run.stalls >= 10


def test_overwriting_does_not_wait() -> None:
    config = small("1x4x4")
    run = check(config, [tile_gemm(20, 1, acc_x=0)])
    assert run.issues[-1] - run.issues[0] + 1 == 20


def test_empty_instructions_retire() -> None:
    config = small("1x4x4")
    empty = [tile_gemm(4, 1, **{n: 0}) for n in ("n_o", "n_k0", "n_k1", "n_k2", "n_y", "n_x")]
    run = check(config, [*empty, tile_gemm(4, 2), *empty])
    assert len(run.done) == 13
    assert run.done == sorted(set(run.done))


WINDOW = {"window": 1, "n_x": 6, "n_t": 1, "first": 2}


@pytest.mark.parametrize(
    "changes, code",
    [
        ({"inp": 61}, ErrorCode.ROW_OUT_OF_RANGE),
        ({"inp_x": 0xFFFF}, ErrorCode.ROW_OUT_OF_RANGE),
        ({"acc": 29}, ErrorCode.ROW_OUT_OF_RANGE),
        ({"wgt": 15}, ErrorCode.ROW_OUT_OF_RANGE),
        ({"wgt_k0": 0x8000}, ErrorCode.ROW_OUT_OF_RANGE),
        ({**WINDOW, "first": 5}, ErrorCode.ILLEGAL_FIELD),
        ({**WINDOW, "first": 0}, ErrorCode.ILLEGAL_FIELD),
        ({**WINDOW, "n_t": 0}, ErrorCode.ILLEGAL_FIELD),
        ({**WINDOW, "step": 0}, ErrorCode.ILLEGAL_FIELD),
        ({**WINDOW, "n_t": 3}, ErrorCode.ILLEGAL_FIELD),
    ],
)
def test_errors(changes: dict[str, int], code: ErrorCode) -> None:
    config = small("1x4x4")
    bad = tile_gemm(4, 2, **changes)
    state = State(config, np.zeros(0, np.uint8), seed=1)
    run = Run(config, state, [tile_gemm(4, 2), bad, tile_gemm(4, 2)])
    assert run.error == code
    assert len(run.done) <= 1
    with pytest.raises(RowRangeError if code == ErrorCode.ROW_OUT_OF_RANGE else EncodingError):
        semantics.execute(bad, state)


def test_rows_that_never_fire_need_no_accumulator() -> None:
    config = small("1x4x4")
    run = check(config, [tile_gemm(1, 1, window=1, first=2, acc=0xFFFF), tile_gemm(4, 1)])
    assert len(run.issues) == 4


def test_absent_window_is_illegal() -> None:
    config = small("1x4x4", window=False)
    state = State(config, np.zeros(0, np.uint8), seed=1)
    run = Run(config, state, [tile_gemm(4, 2, **WINDOW)])
    assert run.error == ErrorCode.ILLEGAL_FIELD
