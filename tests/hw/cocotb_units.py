"""cocotb testbenches of the four units, each alone: scratchpads and bus are Python models.

Run by test_cocotb.py, one unit at a time. Programs are stepped through by the golden semantics;
what belongs to the unit runs on the hardware, from the same state, and must leave the same state.
Inputs change after the rising edge, everything is sampled at the falling edge of the same cycle.
"""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge

from accelc.hw.scratchpad import READ_CYCLES
from accelc.isa.codec import encode
from accelc.isa.config import PRESETS
from accelc.isa.registers import ErrorCode
from accelc.isa.semantics import State, execute
from accelc.isa.spec import Alu, Buffer, Gemm, Instruction, Load, Store, Unit
from accelc.sim.random_programs import random_program

CONFIG = PRESETS["1x4x4"]
BUS = CONFIG.bus_bytes
SEED = int(os.environ["ACCELC_SEED"])
PROGRAMS = int(os.environ["ACCELC_PROGRAMS"])
UNIT = Unit[os.environ["ACCELC_UNIT"].upper()]
MEMORY_BASE = 0x1000
#: No instruction of a random program takes so long, whatever the stalls.
CYCLE_LIMIT = 20_000


def pack(data: np.ndarray) -> int:
    return int.from_bytes(data.tobytes(), "little")


class ReadPort:
    """A scratchpad's read port: ``data`` follows ``en`` by ``latency``, then holds or is zero."""

    def __init__(
        self,
        dut: Any,
        name: str,
        look: Callable[[int], int],
        *,
        latency: int = READ_CYCLES,
        holds: bool = True,
    ) -> None:
        self.en, self.addr = getattr(dut, f"{name}_en"), getattr(dut, f"{name}_addr")
        self.data = getattr(dut, f"{name}_data")
        self.ready = getattr(dut, f"{name}_ready", None)
        self.look = look
        self.holds = holds
        self.coming: list[int | None] = [None] * latency

    def drive(self, rng: random.Random, stall: float) -> None:
        if self.coming[0] is not None:
            self.data.value = self.coming[0]
        elif not self.holds:
            self.data.value = 0
        if self.ready is not None:
            self.ready.value = rng.random() >= stall

    def sample(self) -> None:
        taken = bool(self.en.value) and (self.ready is None or bool(self.ready.value))
        word = self.look(int(self.addr.value)) if taken else None
        self.coming = [*self.coming[1:], word]


class Bench:
    """One unit with an instruction port; subclasses attach what is around it."""

    def __init__(self, dut: Any, state: State) -> None:
        self.dut = dut
        self.state = state
        self.rng = random.Random(SEED)
        self.stall = 0.0
        self.ports: list[ReadPort] = []

    def drive(self) -> None:
        """Set the inputs of the cycle that begins."""

    def sample(self) -> None:
        """Take the outputs of the cycle that ends."""

    async def reset(self) -> None:
        Clock(self.dut.clk, 10, unit="ns").start()
        self.dut.i_valid.value = 0
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 3)
        await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0

    async def cycle(self) -> None:
        await RisingEdge(self.dut.clk)
        for port in self.ports:
            port.drive(self.rng, self.stall)
        self.drive()
        await FallingEdge(self.dut.clk)
        self.sample()
        for port in self.ports:
            port.sample()

    async def run(self, instructions: list[Instruction]) -> None:
        """Feed ``instructions`` and wait until all are done."""
        waiting, done, cycles = list(instructions), 0, 0
        offered = False
        while done < len(instructions):
            await RisingEdge(self.dut.clk)
            if waiting and (offered or self.rng.random() >= self.stall):
                word = encode(replace(waiting[0], wait=0, signal=0))
                self.dut.i_payload.value = int.from_bytes(word, "little")
                self.dut.i_valid.value = 1
                offered = True
            else:
                self.dut.i_valid.value = 0
            for port in self.ports:
                port.drive(self.rng, self.stall)
            self.drive()
            await FallingEdge(self.dut.clk)
            if offered and self.dut.i_ready.value:
                waiting.pop(0)
                offered = False
            done += int(self.dut.done.value)
            self.sample()
            for port in self.ports:
                port.sample()
            assert int(self.dut.error.value) == ErrorCode.NONE, instructions
            cycles += 1
            assert cycles < CYCLE_LIMIT, f"{len(instructions) - done} instructions never ended"
        self.dut.i_valid.value = 0


class GemmBench(Bench):
    def __init__(self, dut: Any, state: State) -> None:
        super().__init__(dut, state)
        acc = state.acc

        def weights(address: int) -> int:
            return pack(state.wgt[address // CONFIG.block_out, address % CONFIG.block_out])

        self.ports = [
            ReadPort(dut, "inp_read", lambda row: pack(state.inp[row])),
            ReadPort(dut, "wgt_read", weights),
            ReadPort(dut, "acc_read", lambda row: pack(acc[row]), holds=False),
        ]

    def sample(self) -> None:
        if self.dut.acc_write_en.value:
            data = int(self.dut.acc_write_data.value).to_bytes(16, "little")
            row = np.frombuffer(data, np.int32).reshape(1, -1)
            self.state.acc[int(self.dut.acc_write_addr.value)] = row


class AluBench(Bench):
    def __init__(self, dut: Any, state: State) -> None:
        super().__init__(dut, state)
        self.ports = [
            ReadPort(dut, "acc_read", lambda row: pack(state.acc[row])),
            ReadPort(dut, "vin_read", lambda row: pack(state.vin[row])),
            ReadPort(dut, "prm_read", lambda row: pack(state.prm[row])),
        ]
        self.table: bytes | None = None

    async def run(self, instructions: list[Instruction]) -> None:
        table = self.state.lut.tobytes()
        if table != self.table:
            self.table = table
            for beat in range(len(table) // BUS):
                self.dut.lut_write_en.value = 1
                self.dut.lut_write_addr.value = beat
                word = table[beat * BUS : (beat + 1) * BUS]
                self.dut.lut_write_data.value = int.from_bytes(word, "little")
                await self.cycle()
            await RisingEdge(self.dut.clk)
            self.dut.lut_write_en.value = 0
        await super().run(instructions)

    def sample(self) -> None:
        if self.dut.out_write_en.value:
            data = int(self.dut.out_write_data.value).to_bytes(4, "little")
            row = np.frombuffer(data, np.int8).reshape(1, 1, -1)
            self.state.out[int(self.dut.out_write_addr.value)] = row


class LoadBench(Bench):
    def __init__(self, dut: Any, state: State) -> None:
        super().__init__(dut, state)
        dut.memory_base.value = MEMORY_BASE
        dut.memory_bytes.value = state.memory.size
        dut.r_valid.value = 0
        dut.ar_ready.value = 0
        #: Beats asked for: their data and whether they end a burst.
        self.beats: list[tuple[int, int]] = []
        self.shown = False

    def drive(self) -> None:
        self.dut.ar_ready.value = self.rng.random() >= self.stall
        if self.shown or not self.beats or self.rng.random() < self.stall:
            if not self.shown:
                self.dut.r_valid.value = 0
            return
        data, last = self.beats[0]
        self.dut.r_payload.value = data | last << (BUS * 8 + 2)
        self.dut.r_valid.value = 1
        self.shown = True

    def sample(self) -> None:
        if self.shown and self.dut.r_ready.value:
            self.beats.pop(0)
            self.shown = False
        if self.dut.ar_valid.value and self.dut.ar_ready.value:
            burst = int(self.dut.ar_payload.value)
            address, length = burst & 0xFFFF_FFFF, (burst >> 32 & 0xFF) + 1
            assert address // 4096 == (address + length * BUS - 1) // 4096
            for beat in range(length):
                at = address - MEMORY_BASE + beat * BUS
                self.beats.append((pack(self.state.memory[at : at + BUS]), beat == length - 1))
        for buffer in Buffer:
            if getattr(self.dut, f"scratch_{int(buffer)}_en").value:
                address = int(getattr(self.dut, f"scratch_{int(buffer)}_addr").value)
                data = int(getattr(self.dut, f"scratch_{int(buffer)}_data").value)
                beats = CONFIG.row_bytes(buffer) // BUS
                row, beat = divmod(address, beats)
                place = self.state.buffer(buffer)[row, beat * BUS : (beat + 1) * BUS]
                place[:] = np.frombuffer(data.to_bytes(BUS, "little"), np.uint8)


class StoreBench(Bench):
    def __init__(self, dut: Any, state: State) -> None:
        super().__init__(dut, state)
        dut.memory_base.value = MEMORY_BASE
        dut.memory_bytes.value = state.memory.size
        dut.enable.value = 1
        dut.b_valid.value = 0
        dut.b_payload.value = 0
        self.ports = [ReadPort(dut, "out_read", lambda row: pack(state.out[row]), latency=1)]
        self.bursts: list[list[int]] = []
        self.answers = 0
        self.shown = False

    def drive(self) -> None:
        self.dut.aw_ready.value = self.rng.random() >= self.stall
        # Data without their address are not taken; with it, when the memory likes.
        self.dut.w_ready.value = bool(self.bursts) and self.rng.random() >= self.stall
        if not self.shown and self.answers:
            self.shown = self.rng.random() >= self.stall
        self.dut.b_valid.value = self.shown

    def sample(self) -> None:
        if self.shown and self.dut.b_ready.value:
            self.shown = False
            self.answers -= 1
        if self.dut.w_valid.value and self.dut.w_ready.value:
            beat = int(self.dut.w_payload.value)
            data, strobe = beat & 0xFFFF_FFFF, beat >> 32 & 0xF
            assert strobe == 0xF
            burst = self.bursts[0]
            place = self.state.memory[burst[0] : burst[0] + BUS]
            place[:] = np.frombuffer(data.to_bytes(BUS, "little"), np.uint8)
            burst[0] += BUS
            burst[1] -= 1
            assert (burst[1] == 0) == bool(beat >> 36 & 1)
            if not burst[1]:
                self.bursts.pop(0)
                self.answers += 1
        if self.dut.aw_valid.value and self.dut.aw_ready.value:
            burst = int(self.dut.aw_payload.value)
            self.bursts.append([(burst & 0xFFFF_FFFF) - MEMORY_BASE, (burst >> 32 & 0xFF) + 1])


BENCHES: dict[Unit, tuple[type[Bench], type[Instruction]]] = {
    Unit.LOAD: (LoadBench, Load),
    Unit.GEMM: (GemmBench, Gemm),
    Unit.ALU: (AluBench, Alu),
    Unit.STORE: (StoreBench, Store),
}


def runs(instructions: tuple[Instruction, ...], unit: Unit) -> list[list[Instruction]]:
    """Successive instructions, cut where they change between ``unit`` and the others."""
    cut: list[list[Instruction]] = []
    for instruction in instructions:
        if cut and (cut[-1][0].unit == unit) == (instruction.unit == unit):
            cut[-1].append(instruction)
        else:
            cut.append([instruction])
    return cut


@cocotb.test()
async def unit_leaves_the_state_of_its_definition(dut: Any) -> None:
    make, kind = BENCHES[UNIT]
    memory = np.zeros(1 << 15, np.uint8)
    expected = State(CONFIG, memory.copy(), SEED)
    bench = make(dut, State(CONFIG, memory.copy(), SEED))
    await bench.reset()
    tried = 0
    for number in range(PROGRAMS):
        program = random_program(CONFIG, SEED + number)
        bench.stall = (0.0, 0.3, 0.7)[number % 3]
        cocotb.log.info("program of seed %d, stalls %.1f", SEED + number, bench.stall)
        for address, data in program.constants:
            for state in (expected, bench.state):
                state.memory[address : address + len(data)] = np.frombuffer(data, np.uint8)
        for run in runs(program.instructions, UNIT):
            own = isinstance(run[0], kind)
            for instruction in run:
                execute(instruction, expected)
                if not own:
                    execute(instruction, bench.state)
            if own:
                await bench.run(run)
                tried += len(run)
            for name in ("memory", "inp", "wgt", "acc", "vin", "out", "prm", "lut"):
                got, wanted = getattr(bench.state, name), getattr(expected, name)
                assert (got == wanted).all(), f"seed {SEED + number}: {name} after {run}"
    assert tried >= PROGRAMS
