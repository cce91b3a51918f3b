"""The vector unit with its scratchpads against the golden semantics, values and cycles."""

import dataclasses
import random

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.alu import AluUnit
from accelc.hw.layouts import ScratchRead, ScratchWrite
from accelc.hw.scratchpad import (
    AccRead,
    AccScratchpad,
    AccWrite,
    OutScratchpad,
    PrmScratchpad,
    VinScratchpad,
)
from accelc.isa import semantics
from accelc.isa.codec import encode
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.errors import EncodingError, RowRangeError
from accelc.isa.registers import ErrorCode
from accelc.isa.semantics import State
from accelc.isa.spec import INSTRUCTION_BITS, Alu, Source

#: Cycles an instruction may take beyond its reads: sequencer start and pipeline.
OVERHEAD_CYCLES = 40


def small(preset: str, **changes: object) -> AccelConfig:
    """A preset with scratchpads small enough to fill and read back in a test."""
    depths = dict(inp_rows=16, wgt_rows=16, acc_rows=32, vin_rows=64, out_rows=64, prm_rows=4)
    return dataclasses.replace(PRESETS[preset], **{**depths, **changes})


class Bench(wiring.Component):
    """AluUnit and the scratchpads it uses."""

    def __init__(self, config: AccelConfig) -> None:
        self.unit = AluUnit(config)
        self.acc = AccScratchpad(config)
        self.vin = VinScratchpad(config)
        self.prm = PrmScratchpad(config)
        self.out = OutScratchpad(config)
        super().__init__(
            {
                "vin_write": In(ScratchWrite(config)),
                "prm_write": In(ScratchWrite(config)),
                "lut_write": In(ScratchWrite(config)),
                "acc_write": In(AccWrite(config)),
                "acc_read": In(AccRead(config)),
                "out_read": In(ScratchRead(config)),
                "i": In(stream.Signature(unsigned(INSTRUCTION_BITS))),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.unit = self.unit
        m.submodules.acc = self.acc
        m.submodules.vin = self.vin
        m.submodules.prm = self.prm
        m.submodules.out = self.out
        wiring.connect(m, self.unit.acc_read, self.acc.alu_read)
        wiring.connect(m, self.unit.vin_read, self.vin.read)
        wiring.connect(m, self.unit.prm_read, self.prm.read)
        wiring.connect(m, self.unit.out_write, self.out.write)
        wiring.connect(m, wiring.flipped(self.vin_write), self.vin.write)
        wiring.connect(m, wiring.flipped(self.prm_write), self.prm.write)
        wiring.connect(m, wiring.flipped(self.lut_write), self.unit.lut_write)
        wiring.connect(m, wiring.flipped(self.acc_write), self.acc.gemm_write)
        wiring.connect(m, wiring.flipped(self.acc_read), self.acc.gemm_read)
        wiring.connect(m, wiring.flipped(self.out_read), self.out.read)
        wiring.connect(m, wiring.flipped(self.i), self.unit.i)
        m.d.comb += self.done.eq(self.unit.done)
        return m


class Run:
    """One simulation: fill the scratchpads, execute, count, read ``out`` back.

    ``gap`` is the chance of an idle cycle before an instruction; ``contention`` that of a read by
    the matrix unit in a cycle.
    """

    def __init__(
        self,
        config: AccelConfig,
        state: State,
        instructions: list[Alu],
        gap: float = 0.0,
        contention: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.config = config
        self.state = state
        self.instructions = instructions
        self.gap = gap
        self.contention = contention
        self.rng = random.Random(seed)
        self.dut = Bench(config)
        self.cycle = 0
        self.accepted: list[int] = []
        self.done: list[int] = []
        self.error = 0
        self.out = np.zeros_like(state.out)
        self._running = False
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-8)
        simulator.add_testbench(self._drive)
        simulator.add_testbench(self._observe, background=True)
        if contention:
            simulator.add_testbench(self._contend, background=True)
        simulator.run()

    async def _fill(self, ctx: SimulatorContext) -> None:
        beat = self.config.bus_bytes
        state, dut = self.state, self.dut
        for port, array in (
            (dut.vin_write, state.vin),
            (dut.prm_write, state.prm),
            (dut.lut_write, state.lut),
        ):
            raw = array.tobytes()
            ctx.set(port.en, 1)
            for address in range(len(raw) // beat):
                data = int.from_bytes(raw[address * beat : (address + 1) * beat], "little")
                ctx.set(port.addr, address)
                ctx.set(port.data, data)
                await ctx.tick()
            ctx.set(port.en, 0)
        ctx.set(dut.acc_write.en, 1)
        for row in range(self.config.acc_rows):
            ctx.set(dut.acc_write.addr, row)
            ctx.set(dut.acc_write.data, int.from_bytes(state.acc[row].tobytes(), "little"))
            await ctx.tick()
        ctx.set(dut.acc_write.en, 0)

    async def _drive(self, ctx: SimulatorContext) -> None:
        await self._fill(ctx)
        self._running = True
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
        beat = self.config.bus_bytes
        raw = bytearray()
        ctx.set(self.dut.out_read.en, 1)
        for address in range(self.out.nbytes // beat):
            ctx.set(self.dut.out_read.addr, address)
            await ctx.tick()
            raw += ctx.get(self.dut.out_read.data).to_bytes(beat, "little")
        self.out = np.frombuffer(bytes(raw), np.int8).reshape(self.out.shape)

    async def _observe(self, ctx: SimulatorContext) -> None:
        unit = self.dut.unit
        async for _, _, done in ctx.tick().sample(unit.done):
            self.cycle += 1
            if done:
                self.done.append(self.cycle)

    async def _contend(self, ctx: SimulatorContext) -> None:
        rng = random.Random(self.rng.random())
        while True:
            ctx.set(self.dut.acc_read.en, rng.random() < self.contention)
            ctx.set(self.dut.acc_read.addr, rng.randrange(self.config.acc_rows))
            await ctx.tick()


def place(rng: random.Random, depth: int, *counts: int, steps: int = 3) -> tuple[int, list[int]]:
    """Random base and strides, modulo 2^16, that keep a loop nest within ``depth`` rows."""
    while True:
        strides = [rng.randint(-steps, steps) for _ in counts]
        low = sum(min(0, (n - 1) * s) for n, s in zip(counts, strides, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(counts, strides, strict=True))
        if high - low < depth:
            return rng.randint(-low, depth - 1 - high), [s & 0xFFFF for s in strides]


def int8s(rng: random.Random) -> int:
    return rng.choice((-128, -1, 0, 1, 3, 127, rng.randint(-128, 127)))


def random_alu(rng: random.Random, config: AccelConfig, source: Source | None = None) -> Alu:
    """Any legal ALU instruction with few rows."""
    if source is None:
        source = rng.choice((Source.ACC, Source.VIN))
    n0, n1, n2 = (rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 3)), rng.choice((1, 2, 5)))
    n_ky = n_kx = 1
    if source == Source.VIN:
        n_ky, n_kx = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))
    depth = config.acc_rows if source == Source.ACC else config.vin_rows
    src, s = place(rng, depth, n0, n1, n2, n_ky, n_kx)
    vin, v = place(rng, config.vin_rows, n0, n1, n2)
    dst, d = place(rng, config.out_rows, n0, n1, n2)
    prm_0 = rng.choice((0, 1)) if n0 <= config.prm_rows else 0
    prm = rng.randrange(config.prm_rows - prm_0 * (n0 - 1))
    if rng.random() < 0.1:
        n1 = 0
    return Alu(
        source=source, scale=int(source == Source.ACC or rng.random() < 0.5),
        add=int(config.add and rng.random() < 0.5), lut=int(config.lut and rng.random() < 0.3),
        a_inside=rng.randint(0, 1), a_zero=int8s(rng),
        a_min=rng.choice((-128, -128, int8s(rng))), a_max=rng.choice((127, 127, int8s(rng))),
        b_zero=int8s(rng), b_min=rng.choice((-128, int8s(rng))),
        b_max=rng.choice((127, int8s(rng))), b_shift=rng.randrange(32),
        m1=rng.choice((-(1 << 24), (1 << 24) - 1, rng.randint(-1000, 1000))),
        m2=rng.choice((-(1 << 24), (1 << 24) - 1, rng.randint(-1000, 1000))),
        offset=rng.choice((-(1 << 39), (1 << 39) - 1, 0, rng.randint(-(1 << 20), 1 << 20))),
        src=src, vin=vin, dst=dst, prm=prm, n0=n0, n1=n1, n2=n2, n_ky=n_ky, n_kx=n_kx, prm_0=prm_0,
        src_0=s[0], src_1=s[1], src_2=s[2], src_ky=s[3], src_kx=s[4],
        vin_0=v[0], vin_1=v[1], vin_2=v[2], dst_0=d[0], dst_1=d[1], dst_2=d[2],
    )  # fmt: skip


def random_state(config: AccelConfig, seed: int) -> State:
    """Noise, with parameters that also produce small results and ties."""
    state = State(config, np.zeros(0, np.uint8), seed=seed)
    rng = np.random.default_rng(seed)
    shape = state.prm.shape
    exponent = rng.integers(0, config.mult_bits, shape)
    ties = rng.random(shape) < 0.5
    mult = np.where(ties, 1 << exponent, rng.integers(0, 1 << config.mult_bits, shape))
    shift = np.where(ties, exponent + rng.integers(0, 5, shape), rng.integers(0, 64, shape))
    state.prm["scale"] = mult | shift << 24
    narrow = rng.random(state.acc.shape) < 0.5
    state.acc[narrow] >>= rng.integers(8, 31, state.acc.shape)[narrow]
    wide = rng.random(shape) < 0.5
    state.prm["bias"][wide] >>= rng.integers(8, 31, shape)[wide]
    state.out[:] = 0
    return state


def check(
    config: AccelConfig,
    instructions: list[Alu],
    gap: float = 0.0,
    contention: float = 0.0,
    seed: int = 0,
) -> Run:
    """Execute on both and compare every row of ``out``."""
    state = random_state(config, seed)
    run = Run(config, state, instructions, gap, contention, seed)
    assert run.error == ErrorCode.NONE
    for instruction in instructions:
        semantics.execute(instruction, state)
    wrong = np.argwhere((run.out != state.out).any(axis=(1, 2, 3))).reshape(-1)
    assert not wrong.size, f"rows {wrong.tolist()} differ: {run.out[wrong]} not {state.out[wrong]}"
    return run


CONFIGS = [
    small("1x4x4"),
    small("1x8x8", mult_bits=15),
    small("1x4x8"),
    small("1x4x4", block_out=8, vector_lanes=8, batch=2, name="2x4x8"),
    small("1x4x4", vector_lanes=2, name="2 lanes"),
    small("1x4x4", add=False, lut=False, name="without add and lut"),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("gap, contention", [(0.0, 0.0), (0.5, 0.5)])
def test_random_instructions(config: AccelConfig, gap: float, contention: float) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    instructions = [random_alu(rng, config) for _ in range(30)]
    run = check(config, instructions, gap, contention, seed)
    assert len(run.done) == len(instructions)


def rows_alu(source: Source, rows: int, **changes: int) -> Alu:
    """Consecutive rows to consecutive rows, as most instructions have them."""
    alu = Alu(source=source, scale=1, n2=rows, src_2=1, vin_2=1, dst_2=1)
    return dataclasses.replace(alu, **changes)


@pytest.mark.parametrize(
    "source, changes, cycles_per_row",
    [
        (Source.ACC, {}, 1),
        (Source.ACC, {"add": 1, "m1": 1, "m2": 1}, 1),
        (Source.ACC, {"lut": 1}, 1),
        (Source.VIN, {"scale": 0}, 1),
        (Source.VIN, {"add": 1, "m1": 1, "m2": 1}, 2),
        (Source.VIN, {"n_ky": 2, "n_kx": 2, "src_ky": 2, "src_kx": 1}, 4),
    ],
)
def test_rows_per_cycle(source: Source, changes: dict[str, int], cycles_per_row: int) -> None:
    config = small("1x4x4")
    run = check(config, [rows_alu(source, 24, **changes)])
    assert run.done[0] - run.accepted[0] <= 24 * cycles_per_row + OVERHEAD_CYCLES


def test_channel_blocks_and_lines_follow_without_a_gap() -> None:
    config = small("1x4x4")
    alu = rows_alu(Source.ACC, 1, n0=4, n1=8, prm_0=1, src_0=8, src_1=1, dst_0=8, dst_1=1)
    run = check(config, [alu])
    assert run.done[0] - run.accepted[0] <= 32 + OVERHEAD_CYCLES


def test_narrow_unit_takes_a_cycle_per_chunk() -> None:
    config = small("1x8x8", vector_lanes=2)
    run = check(config, [rows_alu(Source.ACC, 20)])
    assert 80 <= run.done[0] - run.accepted[0] <= 80 + OVERHEAD_CYCLES


def test_instructions_follow_each_other() -> None:
    config = small("1x4x4")
    run = check(config, [rows_alu(Source.ACC, 32, a_zero=n) for n in range(6)])
    gaps = np.diff(run.done)
    assert (gaps <= 32 + 4).all(), gaps


def test_short_instructions_share_the_pipeline() -> None:
    config = small("1x4x4")
    run = check(config, [rows_alu(Source.ACC, 1, a_zero=n) for n in range(9)])
    assert run.done[-1] - run.done[0] <= 4 * (run.dut.unit.latency + 12)


def test_the_matrix_units_reads_cost_nothing() -> None:
    config = small("1x4x4")
    alone, beside = (
        check(config, [rows_alu(Source.ACC, 32)], contention=contention)
        for contention in (0.0, 1.0)
    )
    assert beside.done[0] - beside.accepted[0] == alone.done[0] - alone.accepted[0]


def test_empty_instructions_retire() -> None:
    config = small("1x4x4")
    empty = [rows_alu(Source.ACC, 4, n0=0), rows_alu(Source.VIN, 4, n1=0), rows_alu(Source.VIN, 0)]
    run = check(config, [*empty, rows_alu(Source.ACC, 4), *empty])
    assert len(run.done) == 7
    assert run.done == sorted(set(run.done))


@pytest.mark.parametrize(
    "changes, code",
    [
        ({"scale": 0}, ErrorCode.ILLEGAL_FIELD),
        ({"n_kx": 2}, ErrorCode.ILLEGAL_FIELD),
        ({"n_ky": 2}, ErrorCode.ILLEGAL_FIELD),
        ({"source": int(Source.VIN), "n_kx": 0}, ErrorCode.ILLEGAL_FIELD),
        ({"source": int(Source.VIN), "n_ky": 0, "n0": 0}, ErrorCode.ILLEGAL_FIELD),
        ({"src": 29}, ErrorCode.ROW_OUT_OF_RANGE),
        ({"src_2": 0xFFFF}, ErrorCode.ROW_OUT_OF_RANGE),
        ({"dst": 61}, ErrorCode.ROW_OUT_OF_RANGE),
        ({"prm": 4}, ErrorCode.ROW_OUT_OF_RANGE),
        ({"add": 1, "vin": 61}, ErrorCode.ROW_OUT_OF_RANGE),
        ({"source": int(Source.VIN), "src": 61}, ErrorCode.ROW_OUT_OF_RANGE),
    ],
)
def test_errors(changes: dict[str, int], code: ErrorCode) -> None:
    config = small("1x4x4")
    bad = dataclasses.replace(rows_alu(Source.ACC, 4), **changes)
    state = random_state(config, 1)
    run = Run(config, state, [rows_alu(Source.ACC, 4), bad, rows_alu(Source.ACC, 4)])
    assert run.error == code
    assert len(run.done) <= 1
    with pytest.raises(RowRangeError if code == ErrorCode.ROW_OUT_OF_RANGE else EncodingError):
        semantics.execute(bad, state)


@pytest.mark.parametrize("feature", ["add", "lut"])
def test_absent_features_are_illegal(feature: str) -> None:
    config = small("1x4x4", **{feature: False})
    run = Run(config, random_state(config, 1), [rows_alu(Source.ACC, 4, **{feature: 1})])
    assert run.error == ErrorCode.ILLEGAL_FIELD
