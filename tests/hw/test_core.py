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
from accelc.isa.codec import encode
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.program import Program
from accelc.isa.registers import IDENTITY, ErrorCode
from accelc.isa.spec import (
    ISA_VERSION,
    Alu,
    Buffer,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    Unit,
)
from accelc.sim.random_programs import random_program

SMALL = replace(
    PRESETS["1x4x4"], inp_rows=64, wgt_rows=16, acc_rows=64, vin_rows=64, out_rows=64, prm_rows=16
)
SEQUENTIAL = replace(
    SMALL, name="sequential", sequential=True, vector_lanes=1, mult_bits=14, add=False, lut=False
)
both = pytest.mark.parametrize("config", [SMALL, SEQUENTIAL], ids=lambda c: c.name)
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


@both
def test_identity_registers(config: AccelConfig) -> None:
    bench = CoreBench(config, 4096)

    async def host(ctx: SimulatorContext) -> None:
        assert await bench.master.read(ctx, "id") == IDENTITY
        assert await bench.master.read(ctx, "version") == ISA_VERSION
        assert await bench.master.read(ctx, "config") == config.digest
        assert await bench.master.read(ctx, "shape") == 0x04_04_04_01
        assert await bench.master.read(ctx, "status") == 0

    bench.run(host)


@both
@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_loads_and_stores_move_and_count(config: AccelConfig, stall: float) -> None:
    bench = CoreBench(config, MEMORY_BYTES, stall=stall, seed=5)
    p = program(
        load(), load(32, row=16, dram=256), store(20, signal=bit(Unit.LOAD)),
        load(8, wait=bit(Unit.STORE)), store(4, dram=4800), Finish(),
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
        waited = await bench.counter(ctx, "load_wait")
        assert waited == 0 if config.sequential else 0 < waited < cycles
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


@pytest.mark.parametrize(
    "config", [SMALL, replace(SMALL, lookahead=False), SEQUENTIAL], ids=["", "plain", "sequential"]
)
@pytest.mark.parametrize("index", range(4))
def test_random_programs_equal_the_semantics(index: int, config: AccelConfig) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    p = random_program(config, seed)
    stall = (0.0, 0.2)[index % 2]
    bench = run_one(p, latency=(2, 30)[index // 2], stall=stall, seed=seed)
    assert bytes(bench.memory.data) == golden(p)


FETCH_UNIT = 4
#: Bytes that the memory refuses to read or write in the tests of errors.
REFUSED = range(6144, 6208)


def words(*instructions: Instruction | int) -> list[int]:
    """Encoded instructions; integers stand for words no encoder would make."""
    return [i if isinstance(i, int) else int.from_bytes(encode(i), "little") for i in instructions]


def altered(instruction: Instruction, bits: int) -> int:
    return words(instruction)[0] | bits


GOOD = words(load(), store(8), Finish())
#: name: (instructions, error, unit, other registers)
FAULTS: dict[str, tuple[list[int], ErrorCode, int, dict[str, int]]] = {
    "erased memory": ([0] * 4, ErrorCode.ILLEGAL_INSTRUCTION, FETCH_UNIT, {}),
    "unknown opcode": (words(6, Finish()), ErrorCode.ILLEGAL_INSTRUCTION, FETCH_UNIT, {}),
    "header bit": (
        words(altered(load(), 1 << 12), Finish()),
        ErrorCode.ILLEGAL_INSTRUCTION,
        FETCH_UNIT,
        {},
    ),
    "last bit": (
        words(load(), altered(Finish(), 1 << 511)),
        ErrorCode.ILLEGAL_INSTRUCTION,
        FETCH_UNIT,
        {},
    ),
    "bit after the fields": (
        words(altered(store(), 1 << 176), Finish()),
        ErrorCode.ILLEGAL_INSTRUCTION,
        FETCH_UNIT,
        {},
    ),
    "token from itself": (
        words(altered(load(), 1 << 4 + Unit.LOAD), Finish()),
        ErrorCode.ILLEGAL_INSTRUCTION,
        FETCH_UNIT,
        {},
    ),
    "finish with a token": (
        words(altered(Finish(), 1 << 8)),
        ErrorCode.ILLEGAL_INSTRUCTION,
        FETCH_UNIT,
        {},
    ),
    "no finish": (words(load()), ErrorCode.MISSING_FINISH, FETCH_UNIT, {}),
    "no program": ([], ErrorCode.MISSING_FINISH, FETCH_UNIT, {}),
    "program beyond memory": (
        GOOD,
        ErrorCode.ADDRESS_OUT_OF_RANGE,
        FETCH_UNIT,
        {"program_length": 1 << 26},
    ),
    "misaligned base": (GOOD, ErrorCode.ADDRESS_OUT_OF_RANGE, FETCH_UNIT, {"memory_base": 2}),
    "program refused": (
        GOOD,
        ErrorCode.READ_RESPONSE,
        FETCH_UNIT,
        {"program_address": REFUSED.start},
    ),
    "load address": (
        words(load(), load(dram=MEMORY_BYTES), load(), Finish()),
        ErrorCode.ADDRESS_OUT_OF_RANGE,
        Unit.LOAD,
        {},
    ),
    "load row": (words(load(row=60), Finish()), ErrorCode.ROW_OUT_OF_RANGE, Unit.LOAD, {}),
    "load field": (words(load(buffer=7), Finish()), ErrorCode.ILLEGAL_FIELD, Unit.LOAD, {}),
    "load refused": (
        words(*[load(64)] * 3, load(dram=REFUSED.start), *[load(64)] * 3, Finish()),
        ErrorCode.READ_RESPONSE,
        Unit.LOAD,
        {},
    ),
    "gemm row": (
        words(Gemm(inp=60, wgt=0, acc=0, n_x=8, inp_x=1), Finish()),
        ErrorCode.ROW_OUT_OF_RANGE,
        Unit.GEMM,
        {},
    ),
    "alu field": (
        words(Alu(source=0, scale=0, src=0, dst=0, vin=0, prm=0), Finish()),
        ErrorCode.ILLEGAL_FIELD,
        Unit.ALU,
        {},
    ),
    "store address": (
        words(store(dram=MEMORY_BYTES - 32), Finish()),
        ErrorCode.ADDRESS_OUT_OF_RANGE,
        Unit.STORE,
        {},
    ),
    "store row": (words(store(row=56), Finish()), ErrorCode.ROW_OUT_OF_RANGE, Unit.STORE, {}),
    "store refused": (
        words(store(64), store(dram=REFUSED.start), store(64), Finish()),
        ErrorCode.WRITE_RESPONSE,
        Unit.STORE,
        {},
    ),
    "missing token": (
        words(load(), load(wait=bit(Unit.STORE)), Finish()),
        ErrorCode.WATCHDOG,
        Unit.LOAD,
        {},
    ),
    "silent partner": (
        words(load(), store(wait=bit(Unit.GEMM)), Finish()),
        ErrorCode.WATCHDOG,
        Unit.STORE,
        {},
    ),
}


@pytest.mark.parametrize(
    ("stall", "clear"), [(0.0, False), (0.3, True)], ids=["restart", "clear, stalls"]
)
@both
def test_faults_are_reported_and_recovered_from(
    config: AccelConfig, stall: float, clear: bool
) -> None:
    bench = CoreBench(
        config, MEMORY_BYTES, stall=stall, latency=20, bad_reads=REFUSED, bad_writes=REFUSED
    )
    master = bench.master

    async def run(ctx: SimulatorContext, instructions: list[int], registers: dict[str, int]) -> int:
        for index, word in enumerate(instructions):
            at = PROGRAM + 64 * index
            bench.memory.data[at : at + 64] = word.to_bytes(64, "little")
        settings = {
            "program_address": PROGRAM,
            "program_length": len(instructions),
            "memory_base": 0,
            "memory_bytes": MEMORY_BYTES,
            "watchdog_cycles": 300,
            **registers,
        }
        for name, value in settings.items():
            await master.write(ctx, name, value)
        await master.write(ctx, "control", CONTROL_START)
        return await bench.wait(ctx)

    async def host(ctx: SimulatorContext) -> None:
        for name, (instructions, error, unit, registers) in FAULTS.items():
            status = await run(ctx, instructions, registers)
            code = ErrorCode(await master.read(ctx, "error"))
            info = await master.read(ctx, "error_info")
            assert (status, code, info >> 24) == (STATUS_ERROR, error, unit), name
            assert info & 0xFF_FFFF <= len(instructions)
            if clear:
                await master.write(ctx, "control", CONTROL_ABORT)
                assert await master.read(ctx, "status") == 0
                assert await master.read(ctx, "error") == 0
            bench.memory.data[4096:4128] = b"x" * 32
            assert await run(ctx, GOOD, {}) == STATUS_DONE, name
            assert await master.read(ctx, "load_retired") == 1
            assert await master.read(ctx, "store_retired") == 1
            # the simulator starts the never written scratchpad from zeros
            assert bench.memory.data[4096:4128] == bytes(32)

    bench.run(host)


@both
def test_abort_leaves_the_bus_at_rest(config: AccelConfig) -> None:
    bench = CoreBench(config, MEMORY_BYTES, stall=0.2, latency=40)
    moving = [load(64), store(64)] * 12
    p, good = program(*moving, Finish()), program(load(), store(8), Finish())

    async def host(ctx: SimulatorContext) -> None:
        for delay in (0, 60, 111, 230):
            bench.place(p)
            await bench.start(ctx, p)
            await ctx.tick().repeat(delay + 1)
            assert await bench.master.read(ctx, "status") == STATUS_BUSY
            await bench.master.write(ctx, "control", CONTROL_ABORT)
            for _ in range(1000):
                if await bench.master.read(ctx, "status") == 0:
                    break
            else:
                raise AssertionError("abort did not finish")
            # What is still on the bus would now arrive unasked and spoil the next run.
            bench.place(good)
            await bench.start(ctx, good)
            assert await bench.wait(ctx) == STATUS_DONE
            assert await bench.counter(ctx, "read_bytes") == 64 + 3 * 64

    bench.run(host)


@both
def test_parameters_stand_still_while_busy(config: AccelConfig) -> None:
    bench = CoreBench(config, MEMORY_BYTES, latency=50)
    p = program(load(), Finish())
    bench.place(p)

    async def host(ctx: SimulatorContext) -> None:
        await bench.start(ctx, p)
        await bench.master.write(ctx, "memory_base", 4096)
        await bench.master.write(ctx, "watchdog_cycles", 77)
        await bench.master.write(ctx, "control", CONTROL_START)
        assert await bench.wait(ctx) == STATUS_DONE
        assert await bench.master.read(ctx, "memory_base") == 0
        assert await bench.master.read(ctx, "watchdog_cycles") == 77
        assert await bench.master.read(ctx, "load_retired") == 1

    bench.run(host)


@both
def test_long_instructions_do_not_wake_the_watchdog(config: AccelConfig) -> None:
    """Hundreds of cycles without a token or a beat on the bus, but none without work."""
    bench = CoreBench(config, MEMORY_BYTES, latency=20)
    window = Gemm(window=1, inp=0, wgt=0, acc=0, n_y=60, n_x=4, inp_x=1, first=4, step=1, n_t=1)
    padding = load(0, n2=0, pad_top=64)
    p = program(load(64), window, padding, padding, padding, padding, padding, Finish())
    bench.place(p)

    async def host(ctx: SimulatorContext) -> None:
        await bench.master.write(ctx, "watchdog_cycles", 90)
        await bench.start(ctx, p)
        assert await bench.wait(ctx) == STATUS_DONE
        assert await bench.counter(ctx, "cycles") > 400

    bench.run(host)
