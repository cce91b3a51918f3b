"""Partners for simulations of the hardware in Amaranth's simulator: streams, AXI memory, registers.

All of them act on clock edges of ``sync``: they sample what the design showed at the edge and set
what it sees until the next one, so that any number of them run side by side.
"""

import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Const, Signal
from amaranth.lib import stream, wiring
from amaranth.sim import Simulator, SimulatorContext
from amaranth.utils import exact_log2

from accelc.hw.axi import PAGE_BYTES, Axi4, Burst, Response
from accelc.hw.core import core_for
from accelc.isa.config import AccelConfig
from accelc.isa.program import Program
from accelc.isa.registers import BY_NAME

CONTROL_START, CONTROL_ABORT = 1, 2
STATUS_BUSY, STATUS_DONE, STATUS_ERROR = 1, 2, 4


def sends(port: stream.Interface, payloads: Iterable[Any], *, stall: float = 0.0, seed: int = 0):
    """A testbench that offers ``payloads`` in order, pausing before each with chance ``stall``."""
    rng = random.Random(seed)

    async def run(ctx: SimulatorContext) -> None:
        for payload in payloads:
            while rng.random() < stall:
                await ctx.tick()
            ctx.set(port.payload, payload)
            ctx.set(port.valid, 1)
            taken = False
            while not taken:
                _, _, taken = await ctx.tick().sample(port.ready)
            ctx.set(port.valid, 0)

    return run


def receives(port: stream.Interface, into: list, *, stall: float = 0.0, seed: int = 0):
    """A testbench that appends every payload to ``into`` and is not ready with chance ``stall``.

    It checks that an offered payload stays until it is taken.
    """
    rng = random.Random(seed)

    async def run(ctx: SimulatorContext) -> None:
        ready = False
        pending: Any = None
        while True:
            _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
            if pending is not None:
                assert valid, "a stream withdrew what it had offered"
                assert payload == pending, "a stream changed what it had offered"
            pending = payload if valid and not ready else None
            if valid and ready:
                into.append(payload)
            ready = rng.random() >= stall
            ctx.set(port.ready, ready)

    return run


def stream_bus(
    config: AccelConfig,
    *,
    ar: stream.Interface | None = None,
    r: stream.Interface | None = None,
    aw: stream.Interface | None = None,
    w: stream.Interface | None = None,
    b: stream.Interface | None = None,
) -> SimpleNamespace:
    """A unit's streams under the names of an AXI4 port; channels it has not stay idle."""
    bus = SimpleNamespace()
    for name, member in Axi4(config).members.items():
        setattr(bus, name, Signal(member.shape, name=name))
    for prefix, burst in (("ar", ar), ("aw", aw)):
        setattr(bus, f"{prefix}burst", Const(Burst.INCR, 2))
        setattr(bus, f"{prefix}size", Const(exact_log2(config.bus_bytes), 3))
        if burst is not None:
            setattr(bus, f"{prefix}addr", burst.payload.addr)
            setattr(bus, f"{prefix}len", burst.payload.len)
    if r is not None:
        bus.rdata, bus.rresp, bus.rlast = r.payload.data, r.payload.resp, r.payload.last
    if w is not None:
        bus.wdata, bus.wstrb, bus.wlast = w.payload.data, w.payload.strb, w.payload.last
    if b is not None:
        bus.bresp = b.payload
    for prefix, channel in {"ar": ar, "r": r, "aw": aw, "w": w, "b": b}.items():
        if channel is not None:
            setattr(bus, f"{prefix}valid", channel.valid)
            setattr(bus, f"{prefix}ready", channel.ready)
    return bus


@dataclass
class _Read:
    address: int
    beats: int
    due: int


@dataclass
class AxiMemory:
    """A memory behind an AXI4 port that checks the rules of the protocol.

    Answers in order, ``latency`` cycles after the address at the earliest, one beat per cycle.
    """

    bus: Any
    size: int
    latency: int = 8
    #: Chance that a channel pauses in a cycle.
    stall: float = 0.0
    seed: int = 0
    #: Byte ranges that answer with an error.
    bad_reads: range = range(0)
    bad_writes: range = range(0)
    data: bytearray = field(init=False)
    reads: list[tuple[int, int]] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)
    read_beats: int = 0
    write_beats: int = 0

    def __post_init__(self) -> None:
        self.data = bytearray(random.Random(self.seed).randbytes(self.size))
        self.width = len(self.bus.wstrb)

    def _check_burst(self, prefix: str, address: int, beats: int, burst: int, size: int) -> None:
        assert burst == Burst.INCR and 1 << size == self.width
        assert address % self.width == 0, f"{prefix} address {address:#x} is not aligned"
        last = address + beats * self.width - 1
        assert address // PAGE_BYTES == last // PAGE_BYTES, f"{prefix} crosses a page"

    async def run(self, ctx: SimulatorContext) -> None:
        """The testbench; add it as a background one."""
        bus, rng = self.bus, random.Random(self.seed)
        reads: deque[_Read] = deque()
        beat = 0
        aws: deque[tuple[int, int]] = deque()
        ws: deque[tuple[int, int, int]] = deque()
        bs: deque[tuple[int, int]] = deque()
        held: dict[str, Any] = {}
        cycle = 0
        ready = {"ar": 0, "aw": 0, "w": 0}
        r_valid = b_valid = 0
        while True:
            sample = await ctx.tick().sample(
                bus.arvalid, bus.araddr, bus.arlen, bus.arburst, bus.arsize,
                bus.awvalid, bus.awaddr, bus.awlen, bus.awburst, bus.awsize,
                bus.wvalid, bus.wdata, bus.wstrb, bus.wlast, bus.rready, bus.bready,
            )  # fmt: skip
            arv, ara, arl, arb, ars, awv, awa, awl, awb, aws_, *sample = sample[2:]
            wv, wd, wsb, wl, rr, br = sample
            cycle += 1
            offers = {"ar": (arv, (ara, arl)), "aw": (awv, (awa, awl)), "w": (wv, (wd, wsb, wl))}
            for channel, (valid, payload) in offers.items():
                if channel in held:
                    assert valid and held[channel] == payload, f"{channel} was withdrawn"
                    del held[channel]
                if valid and not ready[channel]:
                    held[channel] = payload
            if arv and ready["ar"]:
                self._check_burst("AR", ara, arl + 1, arb, ars)
                self.reads.append((ara, arl + 1))
                reads.append(_Read(ara, arl + 1, cycle + self.latency))
            if awv and ready["aw"]:
                self._check_burst("AW", awa, awl + 1, awb, aws_)
                self.writes.append((awa, awl + 1))
                aws.append((awa, awl + 1))
            if wv and ready["w"]:
                ws.append((wd, wsb, wl))
                self.write_beats += 1
            if r_valid and rr:
                self.read_beats += 1
                r_valid = 0
                beat += 1
                if beat == reads[0].beats:
                    reads.popleft()
                    beat = 0
            if b_valid and br:
                b_valid = 0
                bs.popleft()
            self._write(aws, ws, bs, cycle)
            if not r_valid and reads and reads[0].due <= cycle and rng.random() >= self.stall:
                r_valid = 1
                address = reads[0].address + beat * self.width
                inside = address + self.width <= self.size and address not in self.bad_reads
                word = self.data[address : address + self.width] if inside else b""
                ctx.set(bus.rdata, int.from_bytes(word, "little"))
                ctx.set(bus.rresp, Response.OKAY if inside else Response.SLVERR)
                ctx.set(bus.rlast, beat == reads[0].beats - 1)
            if not b_valid and bs and bs[0][0] <= cycle and rng.random() >= self.stall:
                b_valid = 1
                ctx.set(bus.bresp, bs[0][1])
            ctx.set(bus.rvalid, r_valid)
            ctx.set(bus.bvalid, b_valid)
            for channel in ready:
                ready[channel] = int(rng.random() >= self.stall)
                ctx.set(getattr(bus, f"{channel}ready"), ready[channel])

    def _write(self, aws: deque, ws: deque, bs: deque, cycle: int) -> None:
        """Complete the oldest write burst once all its beats are there."""
        while aws and len(ws) >= aws[0][1]:
            address, beats = aws.popleft()
            response = Response.OKAY
            for index in range(beats):
                word, strobe, last = ws.popleft()
                assert last == (index == beats - 1), "WLAST is not at the burst's end"
                for lane, byte in enumerate(word.to_bytes(self.width, "little")):
                    place = address + index * self.width + lane
                    if not strobe >> lane & 1:
                        continue
                    if place >= self.size or place in self.bad_writes:
                        response = Response.SLVERR
                    else:
                        self.data[place] = byte
            bs.append((cycle + self.latency, response))
        if ws and not aws:
            assert len(ws) <= 256, "data without an address"


@dataclass
class LiteMaster:
    """Reads and writes registers by name over AXI4-Lite."""

    bus: wiring.PureInterface

    async def write(self, ctx: SimulatorContext, name: str, value: int, strobe: int = 0xF) -> None:
        bus = self.bus
        ctx.set(bus.awaddr, BY_NAME[name].offset)
        ctx.set(bus.awvalid, 1)
        await ctx.tick().until(bus.awready)
        ctx.set(bus.awvalid, 0)
        ctx.set(bus.wdata, value)
        ctx.set(bus.wstrb, strobe)
        ctx.set(bus.wvalid, 1)
        await ctx.tick().until(bus.wready)
        ctx.set(bus.wvalid, 0)
        ctx.set(bus.bready, 1)
        (response,) = await ctx.tick().sample(bus.bresp).until(bus.bvalid)
        ctx.set(bus.bready, 0)
        assert response == Response.OKAY

    async def read(self, ctx: SimulatorContext, name: str) -> int:
        bus = self.bus
        ctx.set(bus.araddr, BY_NAME[name].offset)
        ctx.set(bus.arvalid, 1)
        await ctx.tick().until(bus.arready)
        ctx.set(bus.arvalid, 0)
        ctx.set(bus.rready, 1)
        value, response = await ctx.tick().sample(bus.rdata, bus.rresp).until(bus.rvalid)
        ctx.set(bus.rready, 0)
        assert response == Response.OKAY
        return value


class CoreBench:
    """A core with memory and register master; any number of programs one after the other."""

    def __init__(self, config: AccelConfig, memory_bytes: int, **memory: Any) -> None:
        self.core = core_for(config)
        self.memory = AxiMemory(self.core.m_axi, memory_bytes, **memory)
        self.master = LiteMaster(self.core.s_axil)
        self.simulator = Simulator(self.core)
        self.simulator.add_clock(1e-8)
        self.simulator.add_testbench(self.memory.run, background=True)

    def run(self, host: Callable[[SimulatorContext], Coroutine[Any, Any, None]]) -> None:
        """Simulate until ``host``, the testbench that plays the software, returns."""
        self.simulator.add_testbench(host)
        self.simulator.run()

    def place(self, program: Program) -> None:
        """Write a program's constants and instructions to memory."""
        for address, data in program.segments():
            self.memory.data[address : address + len(data)] = data

    async def start(self, ctx: SimulatorContext, program: Program) -> None:
        """Set the parameters of ``program`` and start it."""
        values = {
            "program_address": program.instructions_address,
            "program_length": len(program.instructions),
            "memory_bytes": program.memory_bytes,
        }
        for name, value in values.items():
            await self.master.write(ctx, name, value)
        await self.master.write(ctx, "control", CONTROL_START)

    async def wait(self, ctx: SimulatorContext, cycles: int = 20_000) -> int:
        """Wait for the interrupt, then until the core is no longer busy; the status register."""
        for _ in range(cycles):
            if ctx.get(self.core.irq):
                break
            await ctx.tick()
        for _ in range(cycles):
            status = await self.master.read(ctx, "status")
            if not status & STATUS_BUSY:
                return status
        raise AssertionError(f"the core is still busy after {cycles} cycles")

    async def counter(self, ctx: SimulatorContext, name: str) -> int:
        low = await self.master.read(ctx, f"{name}_low")
        return low | await self.master.read(ctx, f"{name}_high") << 32
