"""The golden model against the loop nests of the instructions' docstrings, in plain integers."""

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from accelc.isa.config import AccelConfig
from accelc.isa.errors import EncodingError
from accelc.isa.semantics import PRM_DTYPE, State, execute, round_shift
from accelc.isa.spec import Alu, Buffer, Finish, Gemm, Instruction, Load, Source, Store

CONFIGS = {
    "1x4x4": AccelConfig(
        block_in=4, block_out=4, bus_bytes=4, vector_lanes=4,
        inp_rows=64, wgt_rows=64, acc_rows=64, vin_rows=64, out_rows=64, prm_rows=16,
    ),
    "2x4x8": AccelConfig(
        batch=2, block_in=4, block_out=8, bus_bytes=4, vector_lanes=4,
        inp_rows=64, wgt_rows=64, acc_rows=64, vin_rows=64, out_rows=64, prm_rows=16,
    ),
}  # fmt: skip
MEMORY_BYTES = 1 << 14
SEEDS = range(25)


@pytest.fixture(params=CONFIGS.values(), ids=list(CONFIGS))
def config(request: pytest.FixtureRequest) -> AccelConfig:
    return request.param


def new_state(config: AccelConfig, seed: int) -> State:
    memory = np.random.default_rng(seed + 1000).integers(0, 256, MEMORY_BYTES, np.uint8)
    state = State(config, memory, seed=seed)
    # a shift of 63 is legal but makes everything zero; keep some in a range where results vary
    state.prm["scale"] = (state.prm["scale"] & 0xFFFFFF) | (
        np.random.default_rng(seed).integers(0, 48, state.prm.shape, np.uint32) << 24
    )
    return state


def loops(*counts: int) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(count) for count in counts))


def wrap32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def round_half_even(value: Fraction) -> int:
    return round(value)  # Fraction's round is half to even


def expect_load(i: Load, s: State) -> None:
    buffer = s.buffer(Buffer(i.buffer))
    row_bytes = buffer.shape[1]
    row = i.row

    def fill(count: int) -> None:
        nonlocal row
        for _ in range(count):
            buffer[row] = i.pad_value & 0xFF
            row += 1

    fill(i.pad_top)
    for i2 in range(i.n2):
        fill(i.pad_left)
        for i1, i0 in loops(i.n1, i.n0):
            address = i.dram + i2 * i.stride2 + i1 * i.stride1 + i0 * row_bytes
            buffer[row] = s.memory[address : address + row_bytes]
            row += 1
        fill(i.pad_right)
    fill(i.pad_bottom)


def expect_store(i: Store, s: State) -> None:
    row = i.row
    for i2, i1, i0 in loops(i.n2, i.n1, i.n0):
        data = s.out[row].reshape(-1).view(np.uint8)
        address = i.dram + i2 * i.stride2 + i1 * i.stride1 + i0 * data.size
        s.memory[address : address + data.size] = data
        row += 1


def expect_gemm(i: Gemm, s: State) -> None:
    c = s.config
    window = [[[0] * c.block_in for _ in range(c.batch)] for _ in range(c.block_in)]
    for io, i0, i1, i2 in loops(i.n_o, i.n_k0, i.n_k1, i.n_k2):
        w = s.wgt[(i.wgt + io * i.wgt_o + i0 * i.wgt_k0 + i1 * i.wgt_k1 + i2 * i.wgt_k2) & 0xFFFF]
        clear = not i.accumulate and i0 == i1 == i2 == 0
        a = i.inp + io * i.inp_o + i0 * i.inp_k0 + i1 * i.inp_k1 + i2 * i.inp_k2
        base = i.acc + io * i.acc_o
        for iy in range(i.n_y):
            iz = 0
            for ix in range(i.n_x):
                if not i.window:
                    x = s.inp[(a + iy * i.inp_y + ix * i.inp_x) & 0xFFFF]
                    d = (base + iy * i.acc_y + ix * i.acc_x) & 0xFFFF
                    for b, o in loops(c.batch, c.block_out):
                        total = sum(int(x[b, k]) * int(w[o, k]) for k in range(c.block_in))
                        s.acc[d, b, o] = wrap32((0 if clear else int(s.acc[d, b, o])) + total)
                    continue
                for it in range(i.n_t):
                    row = s.inp[(a + iy * i.inp_y + ix * i.inp_x + it * i.inp_t) & 0xFFFF]
                    window = [row.tolist(), *window[:-1]]
                if ix >= i.first - 1 and (ix - (i.first - 1)) % i.step == 0:
                    d = (base + iy * i.acc_y + iz * i.acc_x) & 0xFFFF
                    iz += 1
                    for b, o in loops(c.batch, c.block_out):
                        total = sum(
                            int(w[o, j]) * window[j][b][o % c.block_in]
                            for j in range(i.first * i.n_t)
                        )
                        s.acc[d, b, o] = wrap32((0 if clear else int(s.acc[d, b, o])) + total)


def expect_alu(i: Alu, s: State) -> None:
    c = s.config
    results: list[tuple[int, int, int, int]] = []
    for i0, i1, i2 in loops(i.n0, i.n1, i.n2):
        src = i.src + i0 * i.src_0 + i1 * i.src_1 + i2 * i.src_2
        dst = (i.dst + i0 * i.dst_0 + i1 * i.dst_1 + i2 * i.dst_2) & 0xFFFF
        for b, o in loops(c.batch, c.block_out):
            block, lane = divmod(o, c.block_in)
            if i.source == Source.ACC:
                x = int(s.acc[src & 0xFFFF, b, o])
            else:
                x = max(
                    int(s.vin[(src + iy * i.src_ky + ix * i.src_kx) & 0xFFFF, block, b, lane])
                    for iy, ix in loops(i.n_ky, i.n_kx)
                )
            if i.scale:
                p = s.prm[i.prm + i0 * i.prm_0, o]
                mult, shift = int(p["scale"]) & 0xFFFFFF, int(p["scale"]) >> 24 & 0x3F
                exact = Fraction(wrap32(x + int(p["bias"])) * mult, 1 << shift)
                inside, after = (i.a_zero, 0) if i.a_inside else (0, i.a_zero)
                x = round_half_even(exact + inside) + after
            x = min(max(x, i.a_min), i.a_max)
            if i.add:
                row = (i.vin + i0 * i.vin_0 + i1 * i.vin_1 + i2 * i.vin_2) & 0xFFFF
                v = int(s.vin[row, block, b, lane])
                exact = Fraction(x * i.m1 + v * i.m2 + i.offset, 1 << i.b_shift)
                x = min(max(round_half_even(exact) + i.b_zero, i.b_min), i.b_max)
            if i.lut:
                x = int(s.lut[0, x + 128])
            results.append((dst, b, o, x))
    for dst, b, o, x in results:
        block, lane = divmod(o, c.block_in)
        s.out[dst, block, b, lane] = x


EXPECT = {Load: expect_load, Store: expect_store, Gemm: expect_gemm, Alu: expect_alu}


def check(instruction: Instruction, config: AccelConfig, seed: int) -> None:
    actual, expected = new_state(config, seed), new_state(config, seed)
    execute(instruction, actual)
    EXPECT[type(instruction)](instruction, expected)
    for name in ("memory", "inp", "wgt", "acc", "vin", "out", "prm", "lut"):
        a, e = getattr(actual, name), getattr(expected, name)
        assert np.array_equal(a, e), f"seed {seed}: {name} differs after {instruction}"


@pytest.mark.parametrize("seed", SEEDS)
def test_load(config: AccelConfig, seed: int) -> None:
    rng = np.random.default_rng(seed)
    buffer = Buffer(int(rng.integers(0, 5)))
    bus = config.bus_bytes
    dram = int(rng.integers(0, 256)) * bus
    if buffer is Buffer.LUT:
        check(Load(buffer=buffer, dram=dram), config, seed)
        return
    pads = (
        [int(n) for n in rng.integers(0, 3, 4)] if buffer in (Buffer.INP, Buffer.VIN) else [0] * 4
    )
    check(
        Load(
            buffer=buffer, pad_value=int(rng.integers(-128, 128)), row=int(rng.integers(0, 3)),
            dram=dram, n0=int(rng.integers(1, 3)), n1=int(rng.integers(1, 3)),
            n2=int(rng.integers(0, 3)), stride1=int(rng.integers(0, 64)) * bus,
            stride2=int(rng.integers(0, 64)) * bus, pad_top=pads[0], pad_bottom=pads[1],
            pad_left=pads[2], pad_right=pads[3],
        ),
        config,
        seed,
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_store(config: AccelConfig, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bus, row_bytes = config.bus_bytes, config.vec_row_bytes
    n0, n1, n2 = (int(n) for n in rng.integers(1, 4, 3))
    # planes and runs apart: two rows at one address have no order
    stride1 = n0 * row_bytes + int(rng.integers(0, 4)) * bus
    stride2 = n1 * stride1 + int(rng.integers(0, 4)) * bus
    check(
        Store(
            row=int(rng.integers(0, 30)), dram=int(rng.integers(0, 256)) * bus,
            n0=n0, n1=n1, n2=n2, stride1=stride1, stride2=stride2,
        ),
        config,
        seed,
    )  # fmt: skip


@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize("seed", SEEDS)
def test_gemm(config: AccelConfig, seed: int, accumulate: int) -> None:
    rng = np.random.default_rng(seed)
    n = {name: int(rng.integers(1, 4)) for name in ("n_o", "n_k0", "n_k1", "n_k2", "n_y", "n_x")}
    strides = {
        name: int(rng.integers(0, 3))
        for name in ("inp_o", "inp_k0", "inp_k1", "inp_k2", "inp_y", "inp_x",
                     "wgt_o", "wgt_k0", "wgt_k1", "wgt_k2")
    }  # fmt: skip
    check(
        Gemm(
            accumulate=accumulate, inp=int(rng.integers(0, 20)), wgt=int(rng.integers(0, 20)),
            acc=int(rng.integers(0, 8)), acc_o=n["n_y"] * n["n_x"], acc_y=n["n_x"], acc_x=1,
            **n, **strides,
        ),
        config,
        seed,
    )  # fmt: skip


@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize(("n_t", "first"), [(1, 1), (1, 3), (2, 2), (4, 1), (3, 1)])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_gemm_window(config: AccelConfig, accumulate: int, n_t: int, first: int, step: int) -> None:
    seed = 100 * n_t + 10 * first + step
    check(
        Gemm(
            accumulate=accumulate, window=1, inp=1, wgt=2, acc=3, n_o=2, n_k0=2, n_y=2, n_x=6,
            n_t=n_t, first=first, step=step, inp_o=1, inp_k0=2, inp_y=3, inp_x=1, inp_t=6,
            wgt_o=2, wgt_k0=1, acc_o=12, acc_y=6, acc_x=1,
        ),
        config,
        seed,
    )  # fmt: skip


def test_gemm_strides_may_be_negative(config: AccelConfig) -> None:
    check(Gemm(inp=10, n_x=5, inp_x=-2 & 0xFFFF, acc=20, acc_x=-1 & 0xFFFF), config, 0)


@pytest.mark.parametrize("source", list(Source))
@pytest.mark.parametrize("stages", range(16))
def test_alu(config: AccelConfig, source: Source, stages: int) -> None:
    scale, add, lut, inside = (stages >> bit & 1 for bit in range(4))
    if source is Source.ACC:
        scale = 1
    for seed in range(4):
        rng = np.random.default_rng(100 * stages + seed)
        a, b = sorted(rng.integers(-128, 128, 2)), sorted(rng.integers(-128, 128, 2))
        n = {name: int(rng.integers(1, 4)) for name in ("n0", "n1", "n2")}
        window = {} if source is Source.ACC else {"n_ky": 2, "n_kx": 3, "src_ky": 4, "src_kx": 1}
        check(
            Alu(
                source=source, scale=scale, add=add, lut=lut, a_inside=inside,
                a_zero=int(rng.integers(-128, 128)), a_min=int(a[0]), a_max=int(a[1]),
                b_zero=int(rng.integers(-128, 128)), b_min=int(b[0]), b_max=int(b[1]),
                b_shift=int(rng.integers(0, 25)), m1=int(rng.integers(-(1 << 20), 1 << 20)),
                m2=int(rng.integers(-(1 << 20), 1 << 20)),
                offset=int(rng.integers(-(1 << 27), 1 << 27)),
                src=int(rng.integers(0, 10)), vin=int(rng.integers(0, 10)), dst=2, prm=3,
                prm_0=1, src_0=5, src_1=3, src_2=1, vin_0=1, vin_1=2, vin_2=3,
                dst_0=n["n1"] * n["n2"], dst_1=n["n2"], dst_2=1, **n, **window,
            ),
            config,
            seed,
        )  # fmt: skip


def test_ties_round_to_even_and_the_zero_point_may_count() -> None:
    values = np.array([-6, -5, -3, -2, -1, 0, 1, 2, 3, 5, 6], np.int64)
    assert round_shift(values, 1).tolist() == [-3, -2, -2, -1, 0, 0, 0, 1, 2, 2, 3]
    # with an odd zero point inside, the sum's parity decides: -2.5 + 1 is -1.5, rounds to -2
    assert (round_shift(values, 1, 1) + 1).tolist() == [-2, -2, 0, 0, 0, 1, 2, 2, 2, 4, 4]
    assert round_shift(np.array([7, -7]), 0).tolist() == [7, -7]


def test_accumulators_wrap(config: AccelConfig) -> None:
    state = new_state(config, 0)
    state.acc[:] = np.int32(2**31 - 1)
    state.inp[:], state.wgt[:] = 1, 1
    execute(Gemm(accumulate=1), state)
    assert int(state.acc[0, 0, 0]) == -(2**31) + config.block_in - 1


def test_the_bias_wraps_before_scaling(config: AccelConfig) -> None:
    state = new_state(config, 0)
    state.acc[:] = np.int32(2**31 - 1)
    state.prm[:] = np.array((1, 1 | 25 << 24), PRM_DTYPE)
    execute(Alu(source=Source.ACC, scale=1), state)
    assert set(state.out[0].reshape(-1).tolist()) == {-64}


def test_finish_changes_nothing(config: AccelConfig) -> None:
    before, state = new_state(config, 3), new_state(config, 3)
    execute(Finish(), state)
    assert np.array_equal(before.memory, state.memory)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (
            Load(buffer=Buffer.INP, row=60, n0=5),
            "^LOAD inp row 64 is beyond the scratchpad's 64 rows$",
        ),
        (
            Load(buffer=Buffer.INP, dram=MEMORY_BYTES),
            "^LOAD ends at address 163.., memory has 16384",
        ),
        (Load(buffer=Buffer.INP, dram=2), "^LOAD address is not a multiple of the bus width, 4$"),
        (Store(row=64), "^STORE out row 64 is beyond the scratchpad's 64 rows$"),
        (Store(dram=MEMORY_BYTES), "^STORE ends at address 16"),
        (Gemm(inp=64), "^GEMM inp row 64 is beyond"),
        (Gemm(wgt=64), "^GEMM wgt row 64 is beyond"),
        (Gemm(acc=64), "^GEMM acc row 64 is beyond"),
        (Gemm(window=1, first=5, n_x=5), "^GEMM: a window of 5 rows exceeds block_in 4; "),
        (Alu(source=Source.ACC), "^ALU: source acc needs scale and no window$"),
        (Alu(source=Source.VIN, src=64), "^ALU vin row 64 is beyond"),
        (Alu(source=Source.VIN, dst=64), "^ALU out row 64 is beyond"),
        (Alu(source=Source.ACC, scale=1, prm=16), "^ALU prm row 16 is beyond"),
    ],
)
def test_what_the_hardware_refuses(instruction: Instruction, message: str) -> None:
    with pytest.raises(EncodingError, match=message):
        execute(instruction, new_state(CONFIGS["1x4x4"], 0))
