"""The whole core in Amaranth's simulator: programs against isa.semantics, errors, recovery."""

import random
from dataclasses import replace

import numpy as np
import pytest
from amaranth.sim import SimulatorContext

from accelc.hw.testbench import (
    CONTROL_ABORT,
    CONTROL_START,
    STATUS_BUSY,
    STATUS_DONE,
    STATUS_ERROR,
    CoreBench,
)
from accelc.isa import semantics
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.program import Program
from accelc.isa.registers import IDENTITY, ErrorCode
from accelc.isa.spec import ISA_VERSION, Buffer, Finish, Instruction, Load, Store, Unit
from accelc.sim.random_programs import random_program

SMALL = replace(
    PRESETS["1x4x4"], inp_rows=64, wgt_rows=16, acc_rows=64, vin_rows=64, out_rows=64, prm_rows=16
)
MEMORY_BYTES = 1 << 14
PROGRAM = 1 << 13


def program(*instructions: Instruction, config: AccelConfig = SMALL) -> Program:
    return Program(
        config=config,
        instructions=instructions,
        instructions_address=PROGRAM,
        memory_bytes=MEMORY_BYTES,
    )


def load(n0: int = 16, **fields: int) -> Load:
    return Load(**{"buffer": Buffer.INP, "row": 0, "dram": 0, **fields, "n0": n0})


def store(n0: int = 16, **fields: int) -> Store:
    return Store(**{"row": 0, "dram": 4096, **fields, "n0": n0})


def bit(*units: Unit) -> int:
    return sum(1 << unit for unit in units)


def test_identity_registers() -> None:
    bench = CoreBench(SMALL, 4096)

    async def host(ctx: SimulatorContext) -> None:
        assert await bench.master.read(ctx, "id") == IDENTITY
        assert await bench.master.read(ctx, "version") == ISA_VERSION
        assert await bench.master.read(ctx, "config") == SMALL.digest
        assert await bench.master.read(ctx, "shape") == 0x04_04_04_01
        assert await bench.master.read(ctx, "status") == 0

    bench.run(host)


@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_loads_and_stores_move_and_count(stall: float) -> None:
    bench = CoreBench(SMALL, MEMORY_BYTES, stall=stall, seed=5)
    p = program(
        load(), load(32, row=16, dram=256), store(20, signal=bit(Unit.LOAD)), store(4, dram=4800),
        load(8, wait=bit(Unit.STORE)), Finish(),
    )  # fmt: skip
    bench.place(p)

    async def host(ctx: SimulatorContext) -> None:
        await bench.start(ctx, p)
        assert await bench.wait(ctx) == STATUS_DONE
        assert await bench.master.read(ctx, "error") == 0
        assert await bench.counter(ctx, "read_bytes") == 4 * (16 + 32 + 8) + 6 * 64
        assert await bench.counter(ctx, "write_bytes") == 4 * (20 + 4)
        assert await bench.master.read(ctx, "load_retired") == 3
        assert await bench.master.read(ctx, "store_retired") == 2
        assert await bench.master.read(ctx, "gemm_retired") == 0
        cycles = await bench.counter(ctx, "cycles")
        assert 0 < await bench.counter(ctx, "load_wait") < cycles
        assert 0 < await bench.counter(ctx, "store_busy") < cycles
        assert await bench.counter(ctx, "cycles") == cycles

    bench.run(host)
    assert bench.memory.write_beats == 24


def run_one(p: Program, **memory: object) -> CoreBench:
    """Run one program to its successful end."""
    bench = CoreBench(p.config, p.memory_bytes, **memory)
    bench.place(p)

    async def host(ctx: SimulatorContext) -> None:
        await bench.start(ctx, p)
        status = await bench.wait(ctx)
        error = ErrorCode(await bench.master.read(ctx, "error"))
        assert status == STATUS_DONE, f"{error.name} {await bench.master.read(ctx, 'error_info'):x}"

    bench.run(host)
    return bench


def golden(p: Program) -> bytes:
    state = semantics.State(p.config, np.zeros(p.memory_bytes, np.uint8), 7)
    for address, data in p.segments():
        state.memory[address : address + len(data)] = np.frombuffer(data, np.uint8)
    for instruction in p.instructions:
        semantics.execute(instruction, state)
    return state.memory.tobytes()


@pytest.mark.parametrize("index", range(4))
def test_random_programs_equal_the_semantics(index: int) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    p = random_program(SMALL, seed)
    stall = (0.0, 0.2)[index % 2]
    bench = run_one(p, latency=(2, 30)[index // 2], stall=stall, seed=seed)
    assert bytes(bench.memory.data) == golden(p)
