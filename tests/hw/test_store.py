"""STORE against isa.semantics, under stalls, and its throughput."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.store import Store
from accelc.hw.testbench import AxiMemory, sends, stream_bus
from accelc.isa import semantics, spec
from accelc.isa.codec import encode
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.registers import ErrorCode

SMALL = replace(PRESETS["1x4x4"], out_rows=64)
WIDE = replace(PRESETS["2x16x16"], out_rows=32, max_burst_beats=8)
MEMORY_BYTES = 8192


class Bench:
    """A Store unit between an ``out`` scratchpad full of noise and a memory."""

    def __init__(self, config: AccelConfig, **memory: Any) -> None:
        self.config = config
        self.dut = Store(config)
        bus = stream_bus(config, aw=self.dut.aw, w=self.dut.w, b=self.dut.b)
        self.memory = AxiMemory(bus, MEMORY_BYTES, **memory)
        self.state = semantics.State(config, np.frombuffer(self.memory.data, np.uint8).copy(), 3)
        self.done: list[int] = []
        self.beats: list[int] = []
        self.starts: list[int] = []
        self.disable_from: int | None = None

    async def _watch(self, ctx: SimulatorContext) -> None:
        cycle = 0
        dut = self.dut
        while True:
            ctx.set(dut.enable, cycle < (self.disable_from or 1 << 30))
            _, _, done, beat, taken = await ctx.tick().sample(
                dut.done, dut.beat, dut.i.valid & dut.i.ready
            )
            cycle += 1
            for happened, log in ((done, self.done), (beat, self.beats), (taken, self.starts)):
                if happened:
                    log.append(cycle)

    def run(self, stores: list[spec.Store], *, stall: float = 0.0, cycles: int = 4000) -> ErrorCode:
        error = ErrorCode.NONE
        words = [int.from_bytes(encode(store), "little") for store in stores]

        async def finish(ctx: SimulatorContext) -> None:
            nonlocal error
            ctx.set(self.dut.memory_bytes, MEMORY_BYTES)
            for cycle in range(cycles):
                await ctx.tick()
                error = ErrorCode(ctx.get(self.dut.error))
                if error and self.disable_from is None:
                    self.disable_from = cycle
                over = error or len(self.done) == len(stores)
                if over and ctx.get(self.dut.idle):
                    return
            raise AssertionError(f"{len(self.done)} of {len(stores)} done in {cycles} cycles")

        m = Module()
        m.submodules.dut = self.dut
        width = self.config.bus_bytes
        flat = self.state.out.reshape(-1).tobytes()
        beats = [flat[i : i + width] for i in range(0, len(flat), width)]
        m.submodules.out = out = Memory(
            shape=8 * width, depth=len(beats), init=[int.from_bytes(b, "little") for b in beats]
        )
        read = out.read_port()
        m.d.comb += [
            read.en.eq(self.dut.out_read.en),
            read.addr.eq(self.dut.out_read.addr),
            self.dut.out_read.data.eq(read.data),
        ]
        sim = Simulator(m)
        sim.add_clock(1e-8)
        sim.add_testbench(self._watch, background=True)
        sim.add_testbench(self.memory.run, background=True)
        sim.add_testbench(sends(self.dut.i, words, stall=stall), background=True)
        sim.add_testbench(finish)
        sim.run()
        return error

    def check(self, stores: list[spec.Store]) -> None:
        for store in stores:
            semantics.store(store, self.state)
        assert bytes(self.memory.data) == self.state.memory.tobytes()


def random_store(rng: random.Random, config: AccelConfig) -> spec.Store:
    row_bytes, bus = config.vec_row_bytes, config.bus_bytes
    while True:
        n0, n1, n2 = (rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(3))
        stride1 = rng.choice((n0 * row_bytes, row_bytes * 3, bus * 2))
        stride2 = rng.choice((n0 * row_bytes, n1 * stride1, row_bytes * 7))
        size = (max(n2, 1) - 1) * stride2 + (max(n1, 1) - 1) * stride1 + n0 * row_bytes
        if n0 * n1 * n2 <= config.out_rows and size <= MEMORY_BYTES:
            break
    return spec.Store(
        row=rng.randrange(config.out_rows - n0 * n1 * n2 + 1) % config.out_rows,
        dram=rng.randrange(0, MEMORY_BYTES - size + 1, bus),
        n0=n0,
        n1=n1,
        n2=n2,
        stride1=stride1,
        stride2=stride2,
    )


@pytest.mark.parametrize("config", [SMALL, WIDE], ids=lambda c: c.name)
@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_random_stores(config: AccelConfig, stall: float) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    stores = [random_store(rng, config) for _ in range(40)]
    bench = Bench(config, latency=rng.choice((1, 20)), stall=stall, seed=seed)
    assert bench.run(stores, stall=stall, cycles=20000) == ErrorCode.NONE
    bench.check(stores)


def strided(n: int, **fields: int) -> spec.Store:
    return spec.Store(**{"row": 0, "dram": 0, "stride1": 0, "stride2": 0, **fields, "n1": n})


@pytest.mark.parametrize(
    ("stores", "bubbles"),
    [
        pytest.param([strided(1, n0=64)] * 4, 0, id="contiguous"),
        pytest.param([strided(8, n0=8, stride1=64)] * 4, 0, id="runs of eight beats"),
        pytest.param([strided(1, n0=16, dram=128 * i) for i in range(12)], 0, id="small stores"),
    ],
)
def test_one_beat_per_cycle_at_64_cycles_latency(stores: list[spec.Store], bubbles: int) -> None:
    bench = Bench(SMALL, latency=64)
    assert bench.run(stores) == ErrorCode.NONE
    bench.check(stores)
    assert bench.beats[-1] - bench.beats[0] + 1 - len(bench.beats) <= bubbles
    assert bench.beats[0] - bench.starts[0] <= 12


def test_done_comes_with_the_last_acknowledgement() -> None:
    bench = Bench(SMALL, latency=30)
    stores = [strided(1, n0=40), strided(1, n0=0), strided(1, n0=4, dram=512)]
    assert bench.run(stores) == ErrorCode.NONE
    assert len(bench.done) == 3
    assert bench.done[0] >= bench.beats[39] + 30
    assert bench.done[1] == bench.done[0] + 1, "an empty STORE waits for those before it"
    assert bench.done[2] >= bench.beats[-1] + 30


def run_addresses(store: spec.Store, row_bytes: int) -> Iterator[int]:
    """Addresses of a store's rows in order; there may be 2^48."""
    for i2 in range(store.n2):
        for i1 in range(store.n1):
            for i0 in range(store.n0):
                yield store.dram + i2 * store.stride2 + i1 * store.stride1 + i0 * row_bytes


@pytest.mark.parametrize(
    ("store", "error"),
    [
        (strided(1, n0=4, dram=MEMORY_BYTES - 12), ErrorCode.ADDRESS_OUT_OF_RANGE),
        (strided(1, n0=4, dram=1), ErrorCode.ADDRESS_OUT_OF_RANGE),
        (strided(3, n0=1, stride1=1 << 31), ErrorCode.ADDRESS_OUT_OF_RANGE),
        (strided(1, n0=8, row=60, dram=2048), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(1, n0=1, row=64, dram=2048), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(1, n0=0x8000, dram=2048), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(0xFFFF, n0=1, n2=0xFFFF, dram=2048), ErrorCode.ROW_OUT_OF_RANGE),
        (strided(1, n0=4, dram=4096), ErrorCode.WRITE_RESPONSE),
    ],
)
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_faults_write_nothing_wrong(store: spec.Store, error: ErrorCode, stall: float) -> None:
    bench = Bench(SMALL, bad_writes=range(4096, 4200), stall=stall)
    good = strided(1, n0=4)
    assert bench.run([good, store, good]) == error
    # What comes before the fault may be written or not, each row to its place; nothing else may.
    rows = bench.state.out.reshape(SMALL.out_rows, -1).view(np.uint8)
    allowed = [{int(byte)} for byte in bench.state.memory]
    for instruction in (good, store):
        addresses = islice(run_addresses(instruction, SMALL.vec_row_bytes), SMALL.out_rows)
        for row, address in enumerate(addresses, instruction.row):
            fits = row < SMALL.out_rows and address + SMALL.vec_row_bytes <= MEMORY_BYTES
            if fits and address % SMALL.bus_bytes == 0:
                for lane, byte in enumerate(rows[row]):
                    allowed[address + lane].add(int(byte))
    assert all(byte in values for byte, values in zip(bench.memory.data, allowed, strict=True))
