"""LOAD against isa.semantics, under stalls, and its throughput."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.layouts import row_beats_log2
from accelc.hw.load import Load
from accelc.hw.testbench import AxiMemory, sends, stream_bus
from accelc.isa import semantics, spec
from accelc.isa.codec import encode
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import Buffer

SMALL = replace(PRESETS["1x4x4"], inp_rows=64, wgt_rows=16, prm_rows=8, vin_rows=32)
WIDE = replace(
    PRESETS["2x16x16"], inp_rows=64, wgt_rows=8, prm_rows=8, vin_rows=32, max_burst_beats=8
)
MEMORY_BYTES = 8192


class Bench:
    """A Load unit with a memory, and what it wrote to the scratchpads."""

    def __init__(self, config: AccelConfig, *, base: int = 0, **memory: Any) -> None:
        self.config = config
        self.base = base
        self.dut = Load(config)
        bus = stream_bus(config, ar=self.dut.ar, r=self.dut.r)
        self.memory = AxiMemory(bus, MEMORY_BYTES, **memory)
        self.written: list[tuple[int, int, int, int]] = []
        self.done: list[int] = []
        self.cycle = 0

    async def _watch(self, ctx: SimulatorContext) -> None:
        ports = self.dut.scratch
        signals = [s for port in ports for s in (port.en, port.addr, port.data)]
        while True:
            _, _, done, *sample = await ctx.tick().sample(self.dut.done, *signals)
            self.cycle += 1
            if done:
                self.done.append(self.cycle)
            for buffer in Buffer:
                enable, address, word = sample[3 * buffer : 3 * buffer + 3]
                if enable:
                    self.written.append((self.cycle, buffer, address, word))

    def run(self, loads: list[spec.Load], *, stall: float = 0.0, cycles: int = 4000) -> ErrorCode:
        error = ErrorCode.NONE
        words = [int.from_bytes(encode(load), "little") for load in loads]

        async def finish(ctx: SimulatorContext) -> None:
            nonlocal error
            ctx.set(self.dut.memory_base, self.base)
            ctx.set(self.dut.memory_bytes, MEMORY_BYTES)
            for _ in range(cycles):
                await ctx.tick()
                error = ErrorCode(ctx.get(self.dut.error))
                if error or len(self.done) == len(loads):
                    return
            raise AssertionError(f"{len(self.done)} of {len(loads)} done in {cycles} cycles")

        sim = Simulator(self.dut)
        sim.add_clock(1e-8)
        sim.add_testbench(self._watch, background=True)
        sim.add_testbench(self.memory.run, background=True)
        sim.add_testbench(sends(self.dut.i, words, stall=stall), background=True)
        sim.add_testbench(finish)
        sim.run()
        return error

    def check(self, loads: list[spec.Load]) -> None:
        """The scratchpads hold what the semantics say, and nothing else was written."""
        state = semantics.State(self.config, np.frombuffer(bytes(self.memory.data), np.uint8), 1)
        mirror = semantics.State(self.config, state.memory, 1)
        for load in loads:
            semantics.load(load, state)
        width = self.config.bus_bytes
        for _, buffer, address, word in self.written:
            flat = mirror.buffer(Buffer(buffer)).reshape(-1)
            beat = np.frombuffer(word.to_bytes(width, "little"), np.uint8)
            flat[address * width : (address + 1) * width] = beat
        for buffer in Buffer:
            np.testing.assert_array_equal(mirror.buffer(buffer), state.buffer(buffer))


def random_load(rng: random.Random, config: AccelConfig) -> spec.Load:
    buffer = rng.choice(list(Buffer))
    row_bytes, rows = config.row_bytes(buffer), config.rows(buffer)
    bus = config.bus_bytes
    if buffer == Buffer.LUT:
        dram = rng.randrange(0, MEMORY_BYTES - 256, bus)
        return spec.Load(buffer=buffer, row=0, dram=dram, stride1=0, stride2=0)
    while True:
        n0, n1, n2 = (rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(3))
        pads = [0, 0, 0, 0]
        if buffer in (Buffer.INP, Buffer.VIN):
            pads = [rng.choice((0, 0, 1, 2, 3)) for _ in range(4)]
        stride1 = rng.choice((n0 * row_bytes, row_bytes * 3, bus * 2, 0))
        stride2 = rng.choice((n0 * row_bytes, n1 * stride1, row_bytes * 7, bus))
        need = n2 * (pads[2] + n1 * n0 + pads[3]) + pads[0] + pads[1]
        size = (max(n2, 1) - 1) * stride2 + (max(n1, 1) - 1) * stride1 + n0 * row_bytes
        if need <= rows and size <= MEMORY_BYTES:
            break
    return spec.Load(
        buffer=buffer,
        pad_value=rng.randrange(-128, 128),
        row=rng.randrange(rows - need + 1) if rows > need else 0,
        dram=rng.randrange(0, MEMORY_BYTES - size + 1, bus),
        n0=n0,
        n1=n1,
        n2=n2,
        stride1=stride1,
        stride2=stride2,
        pad_top=pads[0],
        pad_bottom=pads[1],
        pad_left=pads[2],
        pad_right=pads[3],
    )


@pytest.mark.parametrize("config", [SMALL, WIDE], ids=lambda c: c.name)
@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_random_loads(config: AccelConfig, stall: float) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    loads = [random_load(rng, config) for _ in range(40)]
    bench = Bench(config, latency=rng.choice((1, 20)), stall=stall, seed=seed)
    assert bench.run(loads, stall=stall, cycles=20000) == ErrorCode.NONE
    bench.check(loads)


def strided(n: int, **fields: int) -> spec.Load:
    defaults = {"buffer": Buffer.INP, "row": 0, "dram": 0, "stride1": 0, "stride2": 0}
    return spec.Load(**{**defaults, **fields, "n1": n})


@pytest.mark.parametrize(
    ("loads", "bubbles"),
    [
        pytest.param([strided(1, n0=64)] * 4, 0, id="contiguous"),
        pytest.param([strided(16, n0=2, stride1=64)] * 4, 0, id="runs of two beats"),
        pytest.param([strided(1, n0=10, dram=64 * i) for i in range(16)], 0, id="small loads"),
        pytest.param(
            [strided(8, n0=4, n2=1, stride1=32, pad_left=3, pad_right=2, pad_top=1)] * 4,
            0,
            id="padded",
        ),
        # one address and one beat a cycle, but 64 outstanding bursts in 66 cycles of round trip
        pytest.param([strided(32, n0=1, stride1=64)] * 4, 8, id="single beats"),
    ],
)
def test_one_beat_per_cycle_at_64_cycles_latency(loads: list[spec.Load], bubbles: int) -> None:
    bench = Bench(SMALL, latency=64)
    assert bench.run(loads) == ErrorCode.NONE
    bench.check(loads)
    cycles = [cycle for cycle, *_ in bench.written]
    pads_first = loads[0].pad_top + loads[0].pad_left  # written while the first data are awaited
    busy = cycles[-1] - cycles[pads_first] + 1
    assert busy - (len(cycles) - pads_first) <= bubbles
    assert cycles[pads_first] <= 64 + 12
    assert bench.done[-1] == cycles[-1] + 1


def test_contiguous_runs_share_bursts() -> None:
    bench = Bench(SMALL)
    loads = [
        strided(4, n0=4, n2=1, stride1=16, dram=64),
        # planes that follow one another, padded apart in the scratchpad
        strided(1, n0=4, n2=4, stride2=16, pad_left=2, dram=128),
        strided(3, n0=4, stride1=20, dram=512),
    ]
    assert bench.run(loads) == ErrorCode.NONE
    bench.check(loads)
    assert bench.memory.reads == [(64, 16), (128, 16), (512, 4), (532, 4), (552, 4)]


def test_long_runs_end_at_burst_boundaries() -> None:
    bench = Bench(SMALL)
    assert bench.run([strided(1, n0=60, dram=4096 - 20)]) == ErrorCode.NONE
    assert bench.memory.reads == [(4076, 5), (4096, 32), (4096 + 128, 23)]


def test_memory_base_is_added() -> None:
    bench = Bench(SMALL, base=1024)
    assert bench.run([strided(1, n0=4, dram=64)]) == ErrorCode.NONE
    assert bench.memory.reads == [(1024 + 64, 4)]


@pytest.mark.parametrize(
    ("load", "error"),
    [
        (strided(1, n0=4, dram=MEMORY_BYTES - 12), ErrorCode.ADDRESS_OUT_OF_RANGE),
        (strided(1, n0=4, dram=2), ErrorCode.ADDRESS_OUT_OF_RANGE),
        (strided(2, n0=1, stride1=6), ErrorCode.ADDRESS_OUT_OF_RANGE),
        (strided(4, n0=1, n2=2, stride1=1 << 31), ErrorCode.ADDRESS_OUT_OF_RANGE),
        (strided(1, n0=1, n2=3, stride2=0xFFFF_FFFC), ErrorCode.ADDRESS_OUT_OF_RANGE),
        (strided(1, n0=4, row=61), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(1, n0=65), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(1, n0=0xFFFF), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(0xFFFF, n0=1, n2=0xFFFF), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(1, n0=4, pad_bottom=61), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(1, n0=1, n2=0, row=60, pad_top=5), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(1, n0=1, row=0xFFFF), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(1, n0=1, buffer=Buffer.LUT, row=1), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(1, n0=1, buffer=Buffer.WGT, pad_left=1), ErrorCode.ILLEGAL_FIELD),
        (strided(1, n0=1, buffer=Buffer.PRM, pad_top=1), ErrorCode.ILLEGAL_FIELD),
        (strided(2, n0=1, buffer=Buffer.LUT), ErrorCode.ILLEGAL_FIELD),
        (strided(1, n0=1, buffer=5), ErrorCode.ILLEGAL_FIELD),
        (strided(1, n0=4, dram=2048), ErrorCode.READ_RESPONSE),
    ],
)
def test_faults_are_reported(load: spec.Load, error: ErrorCode) -> None:
    bench = Bench(SMALL, bad_reads=range(2048, 2100))
    good = strided(1, n0=4)
    assert bench.run([good, load, good]) == error
    assert len(bench.done) <= 1
    beats = {Buffer(b): SMALL.rows(b) << row_beats_log2(SMALL, b) for b in Buffer}
    assert all(address < beats[Buffer(buffer)] for _, buffer, address, _ in bench.written)


def test_a_configuration_without_table_refuses_its_load() -> None:
    bench = Bench(replace(SMALL, lut=False))
    assert bench.run([strided(1, n0=1, buffer=Buffer.LUT)]) == ErrorCode.ILLEGAL_FIELD
