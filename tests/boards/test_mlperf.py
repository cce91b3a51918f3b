"""The MLPerf Tiny protocol: the processor, its program, and the page that holds the network."""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator, SimulatorContext

from accelc.boards.mlperf.assembler import AssemblyError, Firmware, Op, assemble
from accelc.boards.mlperf.layout import (
    EXPONENTIAL_ONE,
    MAX_OUTPUTS,
    NAME_BYTES,
    PAGE_BYTES,
    Page,
    float_order,
    page_address,
)
from accelc.boards.mlperf.processor import STACK_DEPTH, MlperfProcessor, firmware
from accelc.compiler.layout import GATHER_CONSTANT
from accelc.hw.testbench import CONTROL_START, STATUS_DONE, STATUS_ERROR, AxiMemory
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.errors import DoesNotFitError
from accelc.isa.registers import BY_NAME

MEMORY_BYTES = 1 << 14
RAW, PACKED, GATHER, OUTPUTS = 0x100, 0x200, 0x300, 0x400
CLASSES = 3
#: Softmax of a step of this between neighbouring int8 values.
STEP = 0.125
CLOCK_HZ = 1_000_000


@dataclass
class FakeCore:
    """Answers the registers of a core; a run puts sums of its input where the outputs belong."""

    bus: Any
    memory: AxiMemory
    fails: bool = False
    registers: dict[int, int] = field(default_factory=dict)
    runs: int = 0

    def _start(self) -> None:
        self.runs += 1
        data = self.memory.data
        for index in range(CLASSES):
            data[OUTPUTS + index] = (data[PACKED + index] + data[PACKED + 3]) & 0xFF
        status = STATUS_ERROR if self.fails else STATUS_DONE
        self.registers[BY_NAME["status"].offset] = status
        self.registers[BY_NAME["error"].offset] = 5

    async def run(self, ctx: SimulatorContext) -> None:
        bus = self.bus
        ctx.set(bus.arready, 1)
        ctx.set(bus.awready, 1)
        ctx.set(bus.wready, 1)
        while True:
            _, _, ar, araddr, aw, awaddr, data = await ctx.tick().sample(
                bus.arvalid, bus.araddr, bus.awvalid, bus.awaddr, bus.wdata
            )
            ctx.set(bus.rvalid, ar)
            ctx.set(bus.rdata, self.registers.get(araddr, 0))
            ctx.set(bus.bvalid, aw)
            if aw:
                self.registers[awaddr] = data
                if awaddr == BY_NAME["control"].offset and data & CONTROL_START:
                    self._start()


class Bench:
    """A processor with a memory, a core, and a terminal."""

    def __init__(
        self,
        config: AccelConfig,
        *,
        fails: bool = False,
        stall: float = 0.0,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.processor = processor = MlperfProcessor(
            config, clock_hz=CLOCK_HZ, memory_bytes=MEMORY_BYTES
        )
        self.memory = AxiMemory(processor.memory, MEMORY_BYTES, latency=2, stall=stall, seed=3)
        self.core = FakeCore(processor.registers, self.memory, fails)
        self.typed: deque[int] = deque()
        self.printed = bytearray()
        # packed: raw bytes 2, 1, 0 and a constant
        gather = [2, 1, 0, GATHER_CONSTANT | 7]
        self.words(GATHER, gather)
        parameters = {
            "raw_bytes": 3,
            "raw_address": RAW,
            "raw_xor": 0x80,
            "packed_address": PACKED,
            "packed_bytes": len(gather),
            "gather_address": GATHER,
            "program_address": 0x1234,
            "program_length": 5,
            "memory_bytes": 0x2000,
        }
        fields: dict[str, Any] = {
            "outputs": tuple(OUTPUTS + index for index in range(CLASSES)),
            "table": tuple(
                round(EXPONENTIAL_ONE * np.exp(-STEP * distance)) for distance in range(256)
            ),
            "device": "bench",
            "model": "kws01",
            **(changes or {}),
        }
        fields["parameters"] = {**parameters, **fields.get("parameters", {})}
        self.memory.data[page_address(MEMORY_BYTES) :] = Page(**fields).encode(MEMORY_BYTES)

    def words(self, address: int, values: list[int]) -> None:
        data = b"".join(value.to_bytes(4, "little") for value in values)
        self.memory.data[address : address + len(data)] = data

    async def _terminal(self, ctx: SimulatorContext) -> None:
        port = self.processor
        ctx.set(port.enable, 1)
        ctx.set(port.send.ready, 1)
        while True:
            ctx.set(port.received.valid, bool(self.typed))
            ctx.set(port.received.payload, self.typed[0] if self.typed else 0)
            _, _, taken, valid, byte = await ctx.tick().sample(
                port.received.ready, port.send.valid, port.send.payload
            )
            if taken and self.typed:
                self.typed.popleft()
            if valid:
                self.printed.append(byte)

    def talk(self, commands: list[str]) -> list[str]:
        """What the device answers to each command, and first what it says unasked."""
        answers: list[str] = []

        async def host(ctx: SimulatorContext) -> None:
            for command in ["", *commands]:
                self.typed.extend(f"{command}%".encode() if command else b"")
                for _ in range(400_000):
                    await ctx.tick()
                    if self.printed.endswith(b"m-ready\r\n"):
                        break
                else:
                    raise AssertionError(f"no answer to {command!r}: {bytes(self.printed)!r}")
                answers.append(self.printed.decode())
                self.printed.clear()

        simulator = Simulator(self.processor)
        simulator.add_clock(1 / CLOCK_HZ)
        for testbench in (self.memory.run, self.core.run, self._terminal):
            simulator.add_testbench(testbench, background=True)
        simulator.add_testbench(host)
        simulator.run()
        return answers


def ready(text: str) -> str:
    return f"{text}m-ready\r\n"


def expected_results(raw: list[int]) -> str:
    """Results of the fake network: softmax in steps of 1/256, three digits, cut."""
    packed = [raw[2] ^ 0x80, raw[1] ^ 0x80, raw[0] ^ 0x80, 7]
    outputs = np.array([(packed[n] + packed[3]) & 0xFF for n in range(CLASSES)], np.uint8)
    logits = outputs.view(np.int8).astype(np.int64)
    powers = np.exp(STEP * (logits - logits.max()))
    steps = np.minimum(np.floor(powers / powers.sum() * 256 + 0.5), 255).astype(int)
    return "m-results-[" + ",".join(f"0.{step * 1000 // 256:03d}" for step in steps) + "]\r\n"


@pytest.mark.parametrize(("preset", "stall"), [("1x4x4", 0.0), ("1x8x8", 0.3), ("1x16x16", 0.0)])
def test_the_benchmarks_dialogue(preset: str, stall: float) -> None:
    bench = Bench(PRESETS[preset], stall=stall)
    raw = [0x12, 0xFE, 0x85]
    hello, name, profile, load, data, printed, infer, results, timestamp = bench.talk(
        [
            "name",
            "profile",
            "db load 3",
            "db 12FE85",
            "db print",
            "infer 3 2",
            "results",
            "timestamp",
        ]
    )
    assert hello == "m-init-done\r\nm-ready\r\n"
    assert name == ready("m-name-dut-[bench]\r\n")
    assert profile == ready("m-profile-[ULPMark for tinyML Firmware V0.0.1]\r\nm-model-[kws01]\r\n")
    assert load == ready("m-[Expecting 3 bytes]\r\n")
    assert data == ready("m-load-done\r\n")
    assert printed == ready("m-buffer-12-fe-85\r\n")
    dialogue = re.fullmatch(
        r"m-warmup-start-2\r\nm-warmup-done\r\nm-infer-start-3\r\nm-lap-us-(\d+)\r\n"
        r"m-lap-us-(\d+)\r\nm-infer-done\r\n(m-results-.*\r\n)m-ready\r\n",
        infer,
    )
    assert dialogue, infer
    first, second = int(dialogue[1]), int(dialogue[2])
    # at 1 MHz a cycle is a microsecond; three runs of a few register accesses lie between
    assert 100 < second - first < 3000
    assert dialogue[3] == expected_results(raw)
    assert results == ready(expected_results(raw))
    assert re.fullmatch(r"m-lap-us-\d+\r\nm-ready\r\n", timestamp)
    assert bench.core.runs == 5
    registers = bench.core.registers
    assert registers[BY_NAME["program_address"].offset] == 0x1234
    assert registers[BY_NAME["program_length"].offset] == 5
    assert registers[BY_NAME["memory_bytes"].offset] == 0x2000
    assert registers[BY_NAME["memory_base"].offset] == 0


VALUES = 0x800
IN_SCALE, IN_ZERO = 0.390625, 89
OUT_SCALE, OUT_ZERO = 0.25, -3


@pytest.mark.parametrize("seed", range(3))
def test_floats_are_quantized_and_compared_with_the_output(seed: int) -> None:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    raw = rng.uniform(-100, 20, 3).astype(np.float32)
    raw[0] = [0.0, -1e30, 1e30 if seed else -1e-30][seed]
    thresholds = (np.arange(-127, 128) - 0.5 - IN_ZERO) * IN_SCALE
    values = np.rint(256 * (np.arange(-128, 128) - OUT_ZERO) * OUT_SCALE).astype(np.int64)
    bench = Bench(
        PRESETS["1x8x8"],
        changes={
            "table": (*(float_order(float(np.float32(t))) for t in thresholds), 0),
            "parameters": {
                "raw_bytes": 12,
                "raw_float": 1,
                "values_address": VALUES,
                "mean_divisor": 256 * CLASSES,
            },
        },
    )
    bench.words(VALUES, [int(value) & 0xFFFF_FFFF for value in values])
    *_, infer = bench.talk(["db load 12", f"db {raw.tobytes().hex()}", "infer 1 0"])
    quantized = np.clip(np.rint(raw / np.float32(IN_SCALE)) + IN_ZERO, -128, 127).astype(np.int8)
    packed = bench.memory.data[PACKED : PACKED + 4]
    assert packed == bytes([*quantized[::-1].view(np.uint8), 7])
    outputs = np.frombuffer(bytes(bench.memory.data[OUTPUTS : OUTPUTS + CLASSES]), np.int8)
    seen = np.clip(np.rint(raw.astype(np.float64) * 256), -0x7FF0, 0x7FF0)
    distance = np.abs(seen - values[outputs.astype(int) + 128]).astype(np.int64)
    total = int(((distance**2 % (1 << 32)) >> 8).sum())
    whole, rest = divmod(total, 256 * CLASSES)
    expected = f"m-results-[{whole}.{rest * 1000 // (256 * CLASSES):03d}]"
    assert infer.splitlines()[-2] == expected


def test_wrong_commands_are_answered() -> None:
    bench = Bench(PRESETS["1x4x4"])
    wrong = {
        "nonsense 1": "e-[Unknown command: nonsense 1]",
        "namely": "e-[Unknown command: namely]",
        "db": "e-[Command 'db' requires a subcommand]",
        "db load": "e-[Command 'db load' must be >0 bytes]",
        "db load 0": "e-[Command 'db load' must be >0 bytes]",
        "db load 490": "e-[The network takes 3 bytes]",
        "db 123": "e-[Insufficent number of hex digits]",
        "infer 1 0": "e-[Input is not loaded]",
        "infer 0": "e-[Inference iterations must be >0]",
        "x" * 300: "e-[Unknown command: " + "x" * 120 + "]",
    }
    answers = bench.talk(list(wrong))
    assert [text.splitlines()[0] for text in answers[1:]] == list(wrong.values())
    assert bench.core.runs == 0


def test_bad_digits_do_not_reach_the_input() -> None:
    bench = Bench(PRESETS["1x4x4"])
    answers = bench.talk(["db load 3", "db 01zz", "db print", "db 0203", "db 0405", "db print"])
    assert answers[2:] == [
        ready("e-[Invalid hex digit]\r\n"),
        ready("m-buffer-01\r\n"),
        ready("m-load-done\r\n"),
        ready(""),
        ready("m-buffer-01-02-03\r\n"),
    ]


def test_an_error_of_the_accelerator_is_no_result() -> None:
    bench = Bench(PRESETS["1x4x4"], fails=True)
    answers = bench.talk(["db load 3", "db 010203", "infer 2 1", "name"])
    assert answers[3] == ready("m-warmup-start-1\r\ne-[Accelerator error 5]\r\n")
    assert answers[4] == ready("m-name-dut-[bench]\r\n")
    assert bench.core.runs == 1


def test_the_program_fits_and_its_calls_fit_the_stack() -> None:
    program = firmware(1 << 17)
    assert _depth(program, 0) <= STACK_DEPTH


def _depth(program: Firmware, start: int) -> int:
    """Deepest nesting of calls from an instruction on."""
    deepest, seen, pending = 0, set(), [start]
    while pending:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        op, operand = Op(program.words[place] >> 11), program.words[place] & 0x7FF
        if op is Op.RET:
            continue
        if op is Op.CALL:
            deepest = max(deepest, 1 + _depth(program, operand))
        elif op in (Op.JMP, Op.JZ, Op.JNZ, Op.JN, Op.JC):
            pending.append(operand)
        if op is not Op.JMP:
            pending.append(place + 1)
    return deepest


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("fly 1", "line 1: there is no operation FLY"),
        ("ldi 2048", "line 1: 2048 does not fit LDI"),
        ("\nadi -1025", "line 2: -1025 does not fit ADI"),
        ("jmp nowhere", "line 1: JMP of unknown 'nowhere'"),
        ("ld x", "line 1: LD of unknown 'x'"),
        ("ldi y", "line 1: 'y' is no number and no symbol"),
        ("ret 1", "line 1: RET has no operand"),
        ("a:\na:", "line 2: a is defined twice"),
    ],
)
def test_the_assembler_names_the_line(text: str, complaint: str) -> None:
    with pytest.raises(AssemblyError, match=re.escape(complaint)):
        assemble(text, {})


def page(**changes: Any) -> Page:
    names = (
        "raw_bytes raw_address raw_xor packed_address packed_bytes gather_address "
        "program_address program_length memory_bytes"
    )
    fields: dict[str, Any] = {
        "parameters": dict.fromkeys(names.split(), 1),
        "outputs": (1, 2),
        "table": (EXPONENTIAL_ONE,) * 256,
        "device": "x",
        "model": "ic01",
    }
    return Page(**{**fields, **changes})


def test_a_page_is_one_page() -> None:
    assert len(page().encode(MEMORY_BYTES)) == PAGE_BYTES


@pytest.mark.parametrize(
    "changes", [{"outputs": (0,) * (MAX_OUTPUTS + 1)}, {"device": "n" * NAME_BYTES}]
)
def test_what_does_not_fit_the_page_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DoesNotFitError):
        page(**changes).encode(MEMORY_BYTES)
