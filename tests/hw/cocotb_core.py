"""cocotb testbench of the whole core: AXI RAM and AXI-Lite master of cocotbext-axi around it.

Run by test_cocotb.py. Seeds and the configuration's name come in environment variables.
"""

import os
import random
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from accelc.isa.config import PRESETS
from accelc.isa.program import Program
from accelc.isa.registers import BY_NAME, IDENTITY, ErrorCode
from accelc.isa.spec import ISA_VERSION, Gemm, Unit
from accelc.sim.fault_programs import damaged_words, fault_programs
from accelc.sim.golden import GoldenDevice
from accelc.sim.random_programs import random_program

CONFIG = PRESETS[os.environ["ACCELC_CONFIG"]]
SEED = int(os.environ["ACCELC_SEED"])
PROGRAMS = int(os.environ["ACCELC_PROGRAMS"])
MEMORY_BASE = 0x1_0000
START, ABORT = 1, 2
BUSY, DONE, ERROR = 1, 2, 4


def stalls(seed: int, probability: float) -> Iterator[bool]:
    rng = random.Random(seed)
    while True:
        yield rng.random() < probability


class Bench:
    """The core under a clock, with memory and registers attached."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=1 << 18)
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)

    async def reset(self) -> None:
        Clock(self.dut.clk, 10, unit="ns").start()
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)

    def stall(self, probability: float) -> None:
        """Hold back every channel at random."""
        ram, lite = self.ram, self.registers
        channels = (
            ram.write_if.aw_channel,
            ram.write_if.w_channel,
            ram.write_if.b_channel,
            ram.read_if.ar_channel,
            ram.read_if.r_channel,
            lite.write_if.aw_channel,
            lite.write_if.w_channel,
            lite.write_if.b_channel,
            lite.read_if.ar_channel,
            lite.read_if.r_channel,
        )
        for index, channel in enumerate(channels):
            channel.set_pause_generator(stalls(SEED * 16 + index, probability))

    async def read(self, name: str) -> int:
        data = await self.registers.read(BY_NAME[name].offset, 4)
        return int.from_bytes(data.data, "little")

    async def write(self, name: str, value: int) -> None:
        await self.registers.write(BY_NAME[name].offset, value.to_bytes(4, "little"))

    def load(self, program: Program) -> None:
        self.ram.write(MEMORY_BASE, random.Random(SEED).randbytes(program.memory_bytes))
        for address, data in program.segments():
            self.ram.write(MEMORY_BASE + address, data)

    async def start(self, program: Program) -> None:
        for name, value in (
            ("program_address", program.instructions_address),
            ("program_length", len(program.instructions)),
            ("memory_base", MEMORY_BASE),
            ("memory_bytes", program.memory_bytes),
        ):
            await self.write(name, value)
        await self.write("control", START)

    async def run(self, program: Program) -> int:
        """Run to the interrupt, then until the bus is at rest; the status register."""
        await self.start(program)
        if not self.dut.irq.value:
            await with_timeout(RisingEdge(self.dut.irq), 10, "ms")
        while (status := await self.read("status")) & BUSY:
            pass
        return status

    async def check_against_golden(self, program: Program) -> None:
        self.load(program)
        status = await self.run(program)
        assert status == DONE, f"status {status}, error {await self.read('error')}"
        golden = GoldenDevice(CONFIG)
        golden.load(program)
        golden.run(program)
        expected = golden.read(0, program.memory_bytes)
        got = bytes(self.ram.read(MEMORY_BASE, program.memory_bytes))
        assert got == expected, f"first wrong byte at {first_difference(got, expected)}"


def first_difference(a: bytes, b: bytes) -> int:
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)


@cocotb.test()
async def identity_and_defaults(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    assert await bench.read("id") == IDENTITY
    assert await bench.read("version") == ISA_VERSION
    assert await bench.read("config") == CONFIG.digest
    for register in BY_NAME.values():
        if register.reset and register.access.value == "rw":
            assert await bench.read(register.name) == register.reset, register.name
    assert await bench.read("status") == 0


@cocotb.test()
async def random_programs(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    for number in range(PROGRAMS):
        seed = SEED + number
        bench.stall((0.0, 0.3, 0.7)[number % 3])
        cocotb.log.info("random program, seed %d", seed)
        await bench.check_against_golden(random_program(CONFIG, seed))


@cocotb.test()
async def faults_are_reported_and_cleared(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    bench.stall(0.3)
    await bench.write("watchdog_cycles", 2000)
    for name in ("wgt", "out of store", "load address", "taps", "missing token", "missing finish"):
        fault = fault_programs(CONFIG)[name]
        bench.load(fault.program)
        status = await bench.run(fault.program)
        assert status & ERROR, name
        assert ErrorCode(await bench.read("error")) == fault.code, name
        await bench.write("control", ABORT)
        while await bench.read("status") & (BUSY | ERROR):
            pass
        assert await bench.read("error") == 0
    await bench.check_against_golden(random_program(CONFIG, SEED))


@cocotb.test()
async def damaged_words_are_refused(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    program = fault_programs(CONFIG)["wgt"].program
    for name, word in damaged_words().items():
        bench.load(program)
        bench.ram.write(MEMORY_BASE + program.instructions_address + 64, word)
        assert await bench.run(program) & ERROR, name
        assert await bench.read("error") == ErrorCode.ILLEGAL_INSTRUCTION, name
        assert await bench.read("error_info") & 0xFFFFFF == 1, name
        # Starting again clears the error, too.
    await bench.check_against_golden(random_program(CONFIG, SEED))


@cocotb.test()
async def abort_in_the_middle(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    bench.stall(0.5)
    for cycles in (5, 60, 200, 500):
        program = random_program(CONFIG, SEED + cycles)
        bench.load(program)
        await bench.start(program)
        await ClockCycles(dut.clk, cycles)
        await bench.write("control", ABORT)
        while await bench.read("status") & BUSY:
            pass
    await bench.check_against_golden(random_program(CONFIG, SEED))


@cocotb.test()
async def counters_count_what_happened(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    program = random_program(CONFIG, SEED)
    await bench.check_against_golden(program)
    for unit in Unit:
        own = sum(i.unit == unit for i in program.instructions)
        assert await bench.read(f"{unit.name.lower()}_retired") == own
        assert (await bench.read(f"{unit.name.lower()}_busy_low") > 0) == (own > 0)
    if any(isinstance(i, Gemm) for i in program.instructions):
        assert await bench.read("gemm_issue_low") > 0
    assert await bench.read("read_bytes_low") >= 64 * len(program.instructions)
