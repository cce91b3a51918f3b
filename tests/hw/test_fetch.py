"""Fetch: order, prefetch, back pressure, and the checks every instruction passes."""

import random
from dataclasses import replace

import pytest
from amaranth.hdl import Const
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.fetch import PREFETCH, Fetch, reserved_mask
from accelc.hw.testbench import AxiMemory, receives, stream_bus
from accelc.isa.codec import encode
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import (
    FIELDS,
    INSTRUCTIONS,
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Opcode,
    Store,
    Unit,
)

NARROW = PRESETS["1x4x4"]
WIDE = replace(PRESETS["1x16x16"], block_in=64, block_out=64, bus_bytes=64)
PROGRAM = 0x1FC0  # bursts meet a page boundary


def random_instruction(rng: random.Random) -> Instruction:
    cls = rng.choice((Load, Gemm, Alu, Store))
    fields = {
        spec.name: rng.randrange(spec.minimum, spec.maximum + 1) for spec in FIELDS[cls.opcode]
    }
    assert cls.unit is not None
    others = 0b1111 & ~(1 << cls.unit)
    return cls(wait=rng.randrange(16) & others, signal=rng.randrange(16) & others, **fields)


class Bench:
    """Fetch with a memory; what each unit got, as instruction words."""

    def __init__(self, config: AccelConfig, words: list[int], *, stall: float = 0.0) -> None:
        self.config = config
        self.dut = Fetch(config)
        bus = stream_bus(config, ar=self.dut.ar, r=self.dut.r)
        self.memory = AxiMemory(bus, 1 << 14, stall=stall, latency=20)
        for index, word in enumerate(words):
            at = PROGRAM + 64 * index
            self.memory.data[at : at + 64] = word.to_bytes(64, "little")
        self.length = len(words)
        self.beats: list[list[int]] = [[] for _ in Unit]
        self.stall = stall
        self.blocked: set[Unit] = set()
        self.cycles = 0

    def run(self, *, limit: int = 10_000) -> ErrorCode:
        dut = self.dut
        error = ErrorCode.NONE

        async def wait(ctx: SimulatorContext) -> None:
            nonlocal error
            ctx.set(dut.address, PROGRAM)
            ctx.set(dut.length, self.length)
            ctx.set(dut.memory_bytes, 1 << 14)
            ctx.set(dut.enable, 1)
            while not ctx.get(dut.finished) and not error and self.cycles < limit:
                await ctx.tick()
                self.cycles += 1
                error = ErrorCode(ctx.get(dut.error))
            # what is accepted in this very cycle
            await ctx.tick().repeat(2)
            self.fetched = ctx.get(dut.fetched)

        sim = Simulator(dut)
        sim.add_clock(1e-8)
        sim.add_testbench(self.memory.run, background=True)
        for unit in Unit:
            if unit not in self.blocked:
                sink = receives(dut.o[unit], self.beats[unit], stall=self.stall, seed=unit)
                sim.add_testbench(sink, background=True)
        sim.add_testbench(wait)
        sim.run()
        return error

    def words(self, unit: Unit) -> list[int]:
        width = self.config.bus_bytes
        data = b"".join(beat.to_bytes(width, "little") for beat in self.beats[unit])
        return [int.from_bytes(data[i : i + 64], "little") for i in range(0, len(data), 64)]


def word(instruction: Instruction) -> int:
    return int.from_bytes(encode(instruction), "little")


@pytest.mark.parametrize("config", [NARROW, WIDE], ids=["4 bytes", "64 bytes"])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_every_unit_gets_its_instructions_in_order(config: AccelConfig, stall: float) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    instructions = [random_instruction(rng) for _ in range(30)]
    words = [word(i) for i in [*instructions, Finish(), Load(buffer=0, row=0, dram=0)]]
    bench = Bench(config, words, stall=stall)
    assert bench.run() == ErrorCode.NONE
    assert bench.fetched == 31
    for unit in Unit:
        assert bench.words(unit) == [word(i) for i in instructions if i.unit == unit]
    if not stall and config is NARROW:
        # One beat a cycle once the first has come. A wide bus has its prefetched instructions in
        # fewer cycles than the memory takes to answer.
        assert bench.cycles <= 31 * 16 + 20 + 20


def test_prefetch_never_asks_for_more_than_it_can_hold() -> None:
    """A full queue holds back what follows; the read channel must stay free for load."""
    store = Store(row=0, dram=0, stride1=0, stride2=0)
    bench = Bench(NARROW, [word(store)] * 40 + [word(Finish())])
    bench.blocked = {Unit.STORE}
    assert bench.run(limit=2000) == ErrorCode.NONE
    # what it holds, and what has left for the decoder
    assert sum(beats for _, beats in bench.memory.reads) <= (PREFETCH + 1) * 16
    assert bench.memory.read_beats == sum(beats for _, beats in bench.memory.reads)


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda o: o.name)
def test_every_reserved_bit_is_checked(opcode: Opcode) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    mask = reserved_mask(opcode)
    bits = [bit for bit in range(512) if mask >> bit & 1]
    fields = {spec.name: spec.maximum for spec in FIELDS[opcode]}
    instruction = INSTRUCTIONS[opcode](**fields)
    unit = instruction.unit
    for bit in {bits[0], bits[-1], *rng.sample(bits, 3)}:
        bench = Bench(NARROW, [word(instruction) | 1 << bit, word(Finish())])
        assert bench.run() == ErrorCode.ILLEGAL_INSTRUCTION, f"bit {bit}"
        assert bench.fetched == 0
        if unit is not None:
            assert len(bench.beats[unit]) < 16, "the instruction became complete"


def test_reserved_bits_are_what_no_field_covers() -> None:
    for opcode in Opcode:
        width = len(Const(reserved_mask(opcode)))
        assert width <= 512
        assert reserved_mask(opcode) & word(INSTRUCTIONS[opcode](**{
            spec.name: spec.minimum for spec in FIELDS[opcode]
        })) == 0  # fmt: skip
