"""Testbenches of a board's memory: AXI traffic against a dictionary of bytes.

Run by test_memory.py, which says in environment variables what is under test.
"""

import json
import logging
import os
import random
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiMaster, AxiResp

from accelc.boards.memory.chip_model import describe

SETTINGS = json.loads(os.environ["ACCELC_SETTINGS"])
SEED: int = SETTINGS["seed"]
NBYTES: int = SETTINGS["nbytes"]
WIDTH: int = SETTINGS["width"]
BURST: int = SETTINGS["burst"]
#: Cycles of 1024 beats read or written in order, at most.
SEQUENTIAL: dict[str, int] = SETTINGS["sequential"]
ROUNDS: int = SETTINGS["rounds"]
BOUNDARIES: list[int] = SETTINGS["boundaries"]
MASKS: bool = SETTINGS["masks"]
PAGE = 4096


def stalls(rng: random.Random, probability: float) -> Iterator[bool]:
    while True:
        yield rng.random() < probability


class Bench:
    """The memory under a clock with a master, and what the memory should hold."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.rng = random.Random(SEED)
        self.master = AxiMaster(
            AxiBus.from_prefix(dut, "bus"), dut.clk, dut.rst, max_burst_len=BURST
        )
        logging.getLogger("cocotb.accel.bus").setLevel(logging.WARNING)
        self.held: dict[int, int] = {}

    async def start(self) -> None:
        Clock(self.dut.clk, 10, unit="ns").start()
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)
        if not self.dut.ready.value:
            await with_timeout(RisingEdge(self.dut.ready), 10, "ms")

    def stall(self, probability: float) -> None:
        """Hold back every channel at random."""
        read, write = self.master.read_if, self.master.write_if
        for channel in (
            write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel
        ):  # fmt: skip
            channel.set_pause_generator(stalls(random.Random(self.rng.random()), probability))

    async def write(self, address: int, content: bytes) -> None:
        result = await self.master.write(address, content, awid=0)
        assert result.resp == AxiResp.OKAY
        for index, byte in enumerate(content):
            self.held[address + index] = byte

    async def read(self, address: int, length: int) -> None:
        expected = [self.held.get(address + index) for index in range(length)]
        result = await self.master.read(address, length, arid=0)
        assert all(resp == AxiResp.OKAY for resp in [result.resp])
        for index, (got, want) in enumerate(zip(result.data, expected, strict=True)):
            assert want is None or got == want, (
                f"byte {address + index:#x} is {got:#x}, not {want:#x}"
            )

    def check_chip(self) -> None:
        if not hasattr(self.dut, "violations"):
            return
        report = [
            int(getattr(self.dut, name).value)
            for name in ("violations", "first_rule", "first_time")
        ]
        assert report[0] == 0, describe(*report)


def places(rng: random.Random) -> int:
    """An address near one of the interesting boundaries, or anywhere."""
    if rng.random() < 0.7:
        boundary = rng.choice(BOUNDARIES)
        near = boundary + rng.randrange(-2 * PAGE, 2 * PAGE, WIDTH)
        if 0 <= near < NBYTES - 2 * PAGE:
            return near
    return rng.randrange(0, NBYTES - 2 * PAGE, WIDTH)


@cocotb.test()
async def random_traffic(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    rng = bench.rng
    for number in range(ROUNDS):
        bench.stall((0.0, 0.3, 0.6)[number % 3])
        # Writes of disjoint places at a time, then reads of them among other writes.
        written = {places(rng) // (2 * PAGE): None for _ in range(8)}
        jobs = []
        for block in written:
            address = block * 2 * PAGE + rng.randrange(0, PAGE, WIDTH)
            content = rng.randbytes(WIDTH * rng.choice((1, 1, 2, 3, 8, 17, 40, 200)))
            jobs.append(cocotb.start_soon(bench.write(address, content)))
        for job in jobs:
            await job
        known = sorted(bench.held)
        for _ in range(12):
            address = rng.choice(known) // WIDTH * WIDTH
            length = WIDTH * rng.choice((1, 2, 5, 16, 40, 130))
            jobs.append(cocotb.start_soon(bench.read(address, min(length, NBYTES - address))))
        for job in jobs:
            await job
        bench.check_chip()


@cocotb.test()
async def strobes_write_single_bytes(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    bench.stall(0.3)
    base = BOUNDARIES[0]
    await bench.write(base, bench.rng.randbytes(64 * WIDTH))
    if MASKS:
        for _ in range(40):
            length = bench.rng.randrange(1, 3 * WIDTH)
            address = base + bench.rng.randrange(64 * WIDTH - length)
            await bench.write(address, bench.rng.randbytes(length))
    else:
        before = dict(bench.held)
        result = await bench.master.write(base + 1, bytes(WIDTH), awid=0)
        assert result.resp == AxiResp.SLVERR
        assert bench.held == before
    await bench.read(base, 64 * WIDTH)
    bench.check_chip()


@cocotb.test()
async def beyond_the_end(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    base = NBYTES - PAGE
    await bench.write(base, bench.rng.randbytes(PAGE))
    await bench.write(0, bench.rng.randbytes(PAGE))
    for address in (NBYTES, NBYTES + 5 * PAGE, (1 << 32) - PAGE):
        for length in (WIDTH, 8 * WIDTH):
            result = await bench.master.write(address, bytes(length), awid=0)
            assert result.resp == AxiResp.DECERR
            answer = await bench.master.read(address, length, arid=0)
            assert answer.resp == AxiResp.DECERR
    await bench.read(base, PAGE)
    await bench.read(0, PAGE)
    bench.check_chip()


@cocotb.test()
async def sequential_bandwidth(dut: Any) -> None:
    """Full bursts one after the other, several outstanding."""
    bench = Bench(dut)
    await bench.start()
    beats = 1024

    async def cycles(jobs: list) -> int:
        start = cocotb.utils.get_sim_time("ns")
        running = [cocotb.start_soon(job) for job in jobs]
        for job in running:
            await job
        return round((cocotb.utils.get_sim_time("ns") - start) / 10)

    for base in BOUNDARIES:
        base = base // PAGE * PAGE
        size = BURST * WIDTH
        bursts = [base + index * size for index in range(beats // BURST)]
        if bursts[-1] + size > NBYTES:
            continue
        content = [bench.rng.randbytes(size) for _ in bursts]
        jobs = [bench.write(*job) for job in zip(bursts, content, strict=True)]
        taken = {"write": await cycles(jobs)}
        taken["read"] = await cycles([bench.read(address, size) for address in bursts])
        cocotb.log.info("%d beats from %#x: %s cycles", beats, base, taken)
        for name, most in SEQUENTIAL.items():
            assert taken[name] <= most, f"{name} takes {taken[name]} cycles, not {most}"
    bench.check_chip()


@cocotb.test()
async def neither_direction_waits_for_all_of_the_other(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    size = BURST * WIDTH
    base = BOUNDARIES[0] // PAGE * PAGE
    count = min(24, (NBYTES - base) // size - 1)
    places = [base + index * size for index in range(count + 1)]
    for place in places:
        await bench.write(place, bench.rng.randbytes(size))

    async def reads() -> None:
        for job in [cocotb.start_soon(bench.read(place, size)) for place in places[:-1]]:
            await job

    async def writes() -> None:
        content = bench.rng.randbytes(size)
        for job in [cocotb.start_soon(bench.write(place, content)) for place in places[:-1]]:
            await job

    for many, one in (
        (reads, lambda: bench.write(places[-1], bytes(WIDTH))),
        (writes, lambda: bench.read(places[-1] + WIDTH, WIDTH)),
    ):
        running = cocotb.start_soon(many())
        await ClockCycles(dut.clk, 20)
        start = cocotb.utils.get_sim_time("ns")
        await one()
        waited = (cocotb.utils.get_sim_time("ns") - start) / 10
        assert not running.done()
        assert waited <= SETTINGS["wait"], f"{waited} cycles"
        await running
    bench.check_chip()


@cocotb.test()
async def a_bus_that_stands_still(dut: Any) -> None:
    """For longer than refreshes may be late, in the middle of a read and of a write burst."""
    bench = Bench(dut)
    await bench.start()
    base = BOUNDARIES[0]
    content = bench.rng.randbytes(BURST * WIDTH)
    read, write = bench.master.read_if.r_channel, bench.master.write_if.w_channel
    jobs = (write, bench.write(base, content)), (read, bench.read(base, len(content)))
    for channel, job in jobs:
        running = cocotb.start_soon(job)
        await ClockCycles(dut.clk, 12)
        channel.pause = True
        await ClockCycles(dut.clk, 12_000)
        bench.check_chip()
        assert not running.done()
        channel.pause = False
        await running
    bench.check_chip()
