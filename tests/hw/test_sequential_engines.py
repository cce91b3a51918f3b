"""The compute engines of the sequential core against the golden semantics, values and cycles."""

import dataclasses
import random
from collections.abc import Iterator

import numpy as np
import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.mac import MacArray
from accelc.hw.sequential.compute import Compute
from accelc.hw.sequential.digit_plan import DigitPlan
from accelc.hw.sequential.ports import AluParam, GemmParam
from accelc.isa import semantics
from accelc.isa.config import AccelConfig
from accelc.isa.errors import RowRangeError
from accelc.isa.semantics import State
from accelc.isa.spec import Alu, Gemm, Source

Start = tuple[bool, dict[int, int]]


def sequential(**changes: object) -> AccelConfig:
    """A sequential configuration with scratchpads small enough to fill in a test."""
    values = dict(
        sequential=True, block_in=4, block_out=4, bus_bytes=4, vector_lanes=1, add=False, lut=False,
        mult_bits=14, inp_rows=64, wgt_rows=16, acc_rows=32, vin_rows=16, out_rows=16, prm_rows=4,
    )  # fmt: skip
    return AccelConfig(**{**values, **changes})  # type: ignore[arg-type]


CONFIGS = {
    "4x4": sequential(),
    "4x4 folded digit": sequential(mult_bits=15),
    "4x4 wide multiplier": sequential(mult_bits=20),
    "4x4 full multiplier": sequential(mult_bits=24),
    "4x4 narrow multiplier": sequential(mult_bits=8),
    "4x8": sequential(block_out=8, mult_bits=24),
    "8x8": sequential(block_in=8, block_out=8, mult_bits=15),
    "without window": sequential(window=False),
}


def gemm_starts(i: Gemm) -> Iterator[Start]:
    """What the sequencer asks of the engine for an instruction: one start per ``io, i0, i1``."""
    if 0 in (i.n_o, i.n_k0, i.n_k1, i.n_k2, i.n_y, i.n_x):
        return
    for io, i0, i1 in np.ndindex(i.n_o, i.n_k0, i.n_k1):
        clear = not i.accumulate and i0 == i1 == 0
        P = GemmParam
        yield False, {
            P.FLAGS: int(clear) | i.window << 1,
            P.INP: i.inp + io * i.inp_o + i0 * i.inp_k0 + i1 * i.inp_k1,
            P.ACC: i.acc + io * i.acc_o,
            P.WGT: i.wgt + io * i.wgt_o + i0 * i.wgt_k0 + i1 * i.wgt_k1,
            P.N_Y: i.n_y, P.N_X: i.n_x, P.N_T: i.n_t if i.window else 1, P.ONE: 1,
            P.INP_Y: i.inp_y, P.INP_X: i.inp_x, P.INP_T: i.inp_t,
            P.ACC_Y: i.acc_y, P.ACC_X: i.acc_x,
            P.FIRST: i.first, P.STEP: i.step, P.TAPS: i.first * i.n_t,
            P.N_K: i.n_k2, P.INP_K: i.inp_k2, P.WGT_K: i.wgt_k2,
        }  # fmt: skip


def alu_starts(i: Alu) -> Iterator[Start]:
    """One start per ``i0``."""
    if 0 in (i.n0, i.n1, i.n2):
        return
    P = AluParam
    for i0 in range(i.n0):
        yield True, {
            P.FLAGS: i.source | i.scale << 1 | i.a_inside << 2,
            P.SRC: i.src + i0 * i.src_0, P.DST: i.dst + i0 * i.dst_0, P.PRM: i.prm + i0 * i.prm_0,
            P.N_1: i.n1, P.N_2: i.n2, P.N_KY: i.n_ky, P.N_KX: i.n_kx,
            P.SRC_1: i.src_1, P.SRC_2: i.src_2, P.SRC_KY: i.src_ky, P.SRC_KX: i.src_kx,
            P.DST_1: i.dst_1, P.DST_2: i.dst_2,
            P.A_ZERO: i.a_zero, P.A_MIN: i.a_min, P.A_MAX: i.a_max,
        }  # fmt: skip


class Run:
    """One simulation: fill the scratchpads, execute, count, read acc and out back."""

    def __init__(
        self, config: AccelConfig, state: State, starts: list[Start], array: MacArray | None = None
    ) -> None:
        self.config = config
        self.state = state
        self.starts = starts
        self.dut = Compute(config, array=array)
        #: Cycles from each start to idle.
        self.cycles: list[int] = []
        self.issues = 0
        self.range_error = False
        self.acc = np.zeros_like(state.acc)
        self.out = np.zeros_like(state.out)
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-8)
        simulator.add_testbench(self._drive)
        simulator.run()

    async def _fill(self, ctx: SimulatorContext) -> None:
        beat = self.config.bus_bytes
        for name in ("inp", "wgt", "prm", "vin"):
            port, raw = getattr(self.dut, name), getattr(self.state, name).tobytes()
            ctx.set(port.en, 1)
            for address in range(len(raw) // beat):
                ctx.set(port.addr, address)
                word = raw[address * beat : (address + 1) * beat]
                ctx.set(port.data, int.from_bytes(word, "little"))
                await ctx.tick()
            ctx.set(port.en, 0)
        for row, values in enumerate(self.state.acc):
            ctx.set(self.dut.acc.data[row], int.from_bytes(values.tobytes(), "little"))

    async def _drive(self, ctx: SimulatorContext) -> None:
        await self._fill(ctx)
        compute = self.dut.compute
        for is_alu, parameters in self.starts:
            ctx.set(compute.set.en, 1)
            for index, value in parameters.items():
                ctx.set(compute.set.index, index)
                ctx.set(compute.set.value, value & 0xFFFF)
                await ctx.tick()
            ctx.set(compute.set.en, 0)
            assert ctx.get(compute.idle)
            start = compute.start_alu if is_alu else compute.start_gemm
            ctx.set(start, 1)
            await ctx.tick()
            ctx.set(start, 0)
            assert not ctx.get(compute.idle)
            cycles = 1
            while not ctx.get(compute.idle):
                self.issues += ctx.get(compute.issue)
                await ctx.tick()
                cycles += 1
                if ctx.get(compute.range_error):
                    self.range_error = True
                    await ctx.tick().repeat(40)
                    assert ctx.get(compute.range_error) and not ctx.get(compute.idle)
                    assert not ctx.get(compute.issue)
                    return
                assert cycles < 20_000
            self.cycles.append(cycles)
        await self._read_back(ctx)

    async def _read_back(self, ctx: SimulatorContext) -> None:
        for row in range(self.config.acc_rows):
            raw = ctx.get(Value.cast(self.dut.acc.data[row]))
            words = raw.to_bytes(self.config.block_out * 4, "little")
            self.acc[row] = np.frombuffer(words, np.int32).reshape(self.acc.shape[1:])
        beat, port, raw_out = self.config.bus_bytes, self.dut.out, bytearray()
        ctx.set(port.en, 1)
        for address in range(self.out.nbytes // beat):
            ctx.set(port.addr, address)
            await ctx.tick()
            raw_out += ctx.get(port.data).to_bytes(beat, "little")
        self.out = np.frombuffer(bytes(raw_out), np.int8).reshape(self.out.shape)


def place(rng: random.Random, depth: int, *counts: int, steps: int = 3) -> tuple[int, list[int]]:
    """Random base and strides, modulo 2^16, that keep a loop nest within ``depth`` rows."""
    while True:
        strides = [rng.randint(-steps, steps) for _ in counts]
        low = sum(min(0, (n - 1) * s) for n, s in zip(counts, strides, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(counts, strides, strict=True))
        if high - low < depth:
            return rng.randint(-low, depth - 1 - high), [s & 0xFFFF for s in strides]


def random_gemm(rng: random.Random, config: AccelConfig) -> Gemm:
    """Any legal GEMM instruction with few rows; accumulators often meet again at once."""
    n_o, k0, k1, k2 = (rng.choice((1, 1, 2)) for _ in range(4))
    n_y, n_x = rng.choice((1, 2, 3)), rng.choice((1, 2, 5))
    window = int(config.window and rng.random() < 0.5)
    first = n_t = step = 1
    fires = n_x
    if window:
        first = rng.randint(1, config.block_in)
        n_t = rng.randint(1, config.block_in // first)
        step = rng.randint(1, 3)
        n_x = rng.randint(1, 7)
        fires = max(0, (n_x - first + step) // step)
    inp, i = place(rng, config.inp_rows, n_o, k0, k1, k2, n_y, n_x, n_t)
    wgt, w = place(rng, config.wgt_rows, n_o, k0, k1, k2)
    acc, a = place(rng, config.acc_rows, n_o, n_y, max(fires, 1))
    return Gemm(
        accumulate=rng.randint(0, 1), window=window, inp=inp, wgt=wgt, acc=acc,
        n_o=n_o, n_k0=k0, n_k1=k1, n_k2=k2, n_y=n_y, n_x=n_x, n_t=n_t, first=first, step=step,
        inp_o=i[0], inp_k0=i[1], inp_k1=i[2], inp_k2=i[3], inp_y=i[4], inp_x=i[5], inp_t=i[6],
        wgt_o=w[0], wgt_k0=w[1], wgt_k1=w[2], wgt_k2=w[3],
        acc_o=a[0], acc_y=a[1], acc_x=a[2],
    )  # fmt: skip


def int8s(rng: random.Random) -> int:
    return rng.choice((-128, -1, 0, 1, 3, 127, rng.randint(-128, 127)))


def random_alu(rng: random.Random, config: AccelConfig) -> Alu:
    """Any legal ALU instruction with few rows."""
    source = rng.choice((Source.ACC, Source.VIN))
    n0, n1, n2 = rng.choice((1, 1, 2)), rng.choice((1, 2, 3)), rng.choice((1, 2, 5))
    n_ky = n_kx = 1
    if source == Source.VIN:
        n_ky, n_kx = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))
    depth = config.acc_rows if source == Source.ACC else config.vin_rows
    src, s = place(rng, depth, n0, n1, n2, n_ky, n_kx)
    dst, d = place(rng, config.out_rows, n0, n1, n2)
    prm_0 = rng.choice((0, 1))
    return Alu(
        source=source, scale=int(source == Source.ACC or rng.random() < 0.5),
        a_inside=rng.randint(0, 1), a_zero=int8s(rng),
        a_min=rng.choice((-128, -128, int8s(rng))), a_max=rng.choice((127, 127, int8s(rng))),
        src=src, dst=dst, prm=rng.randrange(config.prm_rows - prm_0 * (n0 - 1)), prm_0=prm_0,
        n0=n0, n1=n1, n2=n2, n_ky=n_ky, n_kx=n_kx,
        src_0=s[0], src_1=s[1], src_2=s[2], src_ky=s[3], src_kx=s[4],
        dst_0=d[0], dst_1=d[1], dst_2=d[2],
    )  # fmt: skip


def random_state(config: AccelConfig, seed: int) -> State:
    """Noise with extremes, and parameters that also produce small results and ties."""
    state = State(config, np.zeros(0, np.uint8), seed=seed)
    rng = np.random.default_rng(seed)
    for array in (state.inp, state.wgt):
        extreme = rng.random(array.shape) < 0.3
        array[extreme] = rng.choice([-128, 127], array.shape)[extreme]
    shape = state.prm.shape
    exponent = rng.integers(0, config.mult_bits, shape)
    ties = rng.random(shape) < 0.5
    mult = np.where(ties, 1 << exponent, rng.integers(0, 1 << config.mult_bits, shape))
    mult[rng.random(shape) < 0.1] = (1 << config.mult_bits) - 1
    shift = np.where(ties, exponent + rng.integers(0, 5, shape), rng.integers(0, 64, shape))
    state.prm["scale"] = mult | shift << 24
    narrow = rng.random(state.acc.shape) < 0.5
    state.acc[narrow] >>= rng.integers(8, 31, state.acc.shape)[narrow]
    wide = rng.random(shape) < 0.5
    state.prm["bias"][wide] >>= rng.integers(8, 31, shape)[wide]
    state.out[:] = 0
    return state


def starts_of(*instructions: Gemm | Alu) -> list[Start]:
    return [
        start
        for i in instructions
        for start in (gemm_starts(i) if isinstance(i, Gemm) else alu_starts(i))
    ]


def check(
    config: AccelConfig,
    instructions: list[Gemm | Alu],
    seed: int = 0,
    array: MacArray | None = None,
) -> Run:
    """Execute on both and compare every row of ``acc`` and ``out`` that was written."""
    state = random_state(config, seed)
    run = Run(config, state, starts_of(*instructions), array)
    assert not run.range_error
    for instruction in instructions:
        semantics.execute(instruction, state)
    for name, got, want in (("acc", run.acc, state.acc), ("out", run.out, state.out)):
        wrong = np.argwhere((got != want).reshape(len(got), -1).any(axis=1)).reshape(-1)
        assert not wrong.size, f"{name} {wrong.tolist()} differ: {got[wrong]} not {want[wrong]}"
    return run


@pytest.mark.parametrize("name", CONFIGS)
def test_random_instructions(name: str) -> None:
    config = CONFIGS[name]
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    check(config, [rng.choice((random_gemm, random_alu))(rng, config) for _ in range(16)], seed)


@pytest.mark.parametrize("name", ["4x4", "4x8"])
def test_an_array_with_a_shadow(name: str) -> None:
    """Boards whose array was made for the decoupled core."""
    config = CONFIGS[name]
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    array = MacArray(config, levels_per_register=1, multiply_cycles=2)
    instructions = [rng.choice((random_gemm, random_alu))(rng, config) for _ in range(12)]
    check(config, instructions, seed, array)


def pointwise(tiles: int, rows: int, **changes: int) -> Gemm:
    """Consecutive rows to consecutive rows, tile after tile, as most instructions have them."""
    gemm = Gemm(n_k2=tiles, inp_k2=rows, wgt_k2=1, n_x=rows, inp_x=1, acc_x=1, accumulate=1)
    return dataclasses.replace(gemm, **changes)


#: Cycles of a start beyond its rows and tiles: before the first row, from the last one to idle.
GEMM_OVERHEAD = 12


@pytest.mark.parametrize(
    "gemm, waits",
    [
        (pointwise(1, 1), 0),
        (pointwise(1, 30), 0),
        (pointwise(6, 10), 0),
        (pointwise(6, 1), 0),
        # lines of five columns, one behind the other
        (pointwise(2, 5, n_y=6, inp_y=5, acc_y=5), 2),
        # every row meets the one before it
        (pointwise(2, 20, acc_x=0), 2 * 20),
        (pointwise(1, 20, acc_x=0, accumulate=0), 0),
        (pointwise(1, 16, window=1, first=3), 0),
    ],
)
def test_gemm_takes_a_cycle_per_row_and_one_per_tile(gemm: Gemm, waits: int) -> None:
    run = check(CONFIGS["4x4"], [gemm])
    rows = gemm.n_k2 * gemm.n_y * gemm.n_x
    assert rows <= run.cycles[0] <= rows + gemm.n_k2 + waits + GEMM_OVERHEAD
    fires = rows - gemm.n_k2 * gemm.n_y * (gemm.first - 1) if gemm.window else rows
    assert run.issues == fires


#: Cycles of a lane beyond its elements: parameters, array. Cycles of a start: the pipeline.
LANE_OVERHEAD, ALU_OVERHEAD = 12, 30


@pytest.mark.parametrize("name", ["4x4", "4x4 folded digit", "4x4 full multiplier", "8x8"])
@pytest.mark.parametrize("source, scale", [(Source.ACC, 1), (Source.VIN, 0)])
def test_alu_takes_a_pass_or_two_per_element(name: str, source: Source, scale: int) -> None:
    config = CONFIGS[name]
    alu = Alu(source=source, scale=scale, n1=2, n2=8, src_1=8, src_2=1, dst_1=8, dst_2=1)
    run = check(config, [alu])
    per_lane = 16 * max(2, DigitPlan(config).passes)
    lanes = config.block_out
    assert lanes * per_lane <= run.cycles[0] <= lanes * (per_lane + LANE_OVERHEAD) + ALU_OVERHEAD


@pytest.mark.parametrize("mult_bits, passes", [(8, 2), (14, 2), (15, 2), (19, 2), (20, 3), (24, 3)])
def test_passes_of_a_4x4_array(mult_bits: int, passes: int) -> None:
    assert DigitPlan(sequential(mult_bits=mult_bits)).passes == passes


_ROWS = {"n2": 4, "src_2": 1, "dst_2": 1, "scale": 1}


@pytest.mark.parametrize(
    "bad",
    [
        pointwise(1, 4, inp=61),
        pointwise(1, 4, inp_x=0xFFFF),
        pointwise(1, 4, wgt=16),
        pointwise(2, 4, wgt=15),
        pointwise(1, 4, acc=29),
        pointwise(1, 4, acc=0xFFFF),
        pointwise(1, 4, n_t=2, inp_t=62, window=1, first=2),
        Alu(src=29, **_ROWS),
        Alu(dst=13, **_ROWS),
        Alu(prm=4, **_ROWS),
        Alu(source=Source.VIN, src=13, **_ROWS),
        Alu(source=Source.VIN, n_ky=2, src_ky=0x8000, **_ROWS),
    ],
)
def test_rows_beyond_a_scratchpad_stop_everything(bad: Gemm | Alu) -> None:
    config = CONFIGS["4x4"]
    state = random_state(config, 1)
    run = Run(config, state, starts_of(pointwise(1, 4), bad, pointwise(1, 4)))
    assert run.range_error
    assert len(run.cycles) == 1
    with pytest.raises(RowRangeError):
        semantics.execute(bad, state)


def test_a_prm_row_beyond_is_no_matter_without_scale() -> None:
    check(CONFIGS["4x4"], [Alu(source=Source.VIN, prm=4, n2=4, src_2=1, dst_2=1)])
