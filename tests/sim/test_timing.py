"""The timing model against the Verilated core: whole networks layer by layer, and its own rules."""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from accelc.compiler.pipeline import compile_model
from accelc.isa.codec import encode_all
from accelc.isa.config import PRESETS, REFERENCE, AccelConfig
from accelc.isa.errors import DeviceError
from accelc.isa.program import Program
from accelc.isa.spec import Buffer, Finish, Gemm, Load
from accelc.sim.descriptors import decode_table
from accelc.sim.device import Counters, MemoryModel
from accelc.sim.fault_programs import fault_programs, small_program
from accelc.sim.functional import FunctionalDevice
from accelc.sim.random_programs import random_program
from accelc.sim.rtl import RtlDevice
from accelc.sim.timing import TimingDevice
from accelc.sim.timing_model import predict

ROOT = Path(__file__).parents[2]
needs_rtl = pytest.mark.skipif(
    not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make"
)


def program_of(model: object, config: AccelConfig = REFERENCE) -> Program:
    compiled = compile_model(model, target="vta", config=config)  # pyright: ignore
    (program,) = [step.program for step in compiled.steps if step.program is not None]
    return program


def layer_cycles(program: Program, counters: Counters) -> np.ndarray:
    """Cycles from one layer's last STORE to the next one's."""
    return np.diff([0, *(counters.retired[layer.last] for layer in program.layers)])


def prediction(program: Program, memory: MemoryModel | None = None) -> Counters:
    return predict(program.config, decode_table(encode_all(program.instructions)), memory)


@pytest.mark.rtl
@needs_rtl
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv1"])
def test_every_layer_within_five_percent(networks: ModuleType, name: str) -> None:
    program = program_of(networks.NETWORKS[name](224))
    device = RtlDevice(program.config)
    device.load(program)
    measured, predicted = device.run(program), prediction(program)
    deviation = layer_cycles(program, predicted) / layer_cycles(program, measured) - 1
    for layer, relative in zip(program.layers, deviation, strict=True):
        print(f"{layer.name}: {relative:+.2%}")
        assert abs(relative) <= 0.05, f"{layer.name} is {relative:+.1%} off"
    assert abs(predicted.cycles / measured.cycles - 1) <= 0.01
    for counter in ("gemm_issue", "read_bytes", "write_bytes"):
        assert getattr(predicted, counter) == getattr(measured, counter), counter


@pytest.mark.rtl
@needs_rtl
@pytest.mark.parametrize(
    "memory",
    [
        MemoryModel(),
        MemoryModel(latency_cycles=4, bytes_per_cycle=4),
        MemoryModel(latency_cycles=20, bytes_per_cycle=2),
    ],
    ids=lambda m: f"{m.latency_cycles}-{m.bytes_per_cycle}",
)
def test_a_sequential_core_within_five_percent(memory: MemoryModel) -> None:
    config = PRESETS["1x4x4s"]
    # it has no add stage: the network falls into several programs
    model = ROOT / "models" / "digits_resnet8_int8.onnx"
    compiled = compile_model(model, target="vta", config=config)  # pyright: ignore
    device = RtlDevice(config, memory)
    totals = np.zeros(2)
    for step in compiled.steps:
        if step.program is None:
            continue
        device.load(step.program)
        measured, predicted = device.run(step.program), prediction(step.program, memory)
        totals += predicted.cycles, measured.cycles
        assert abs(predicted.cycles / measured.cycles - 1) <= 0.10
        assert predicted.read_bytes == measured.read_bytes
        assert predicted.write_bytes == measured.write_bytes
    assert abs(totals[0] / totals[1] - 1) <= 0.05


@pytest.mark.rtl
@needs_rtl
@pytest.mark.parametrize(
    "memory",
    [
        MemoryModel(),
        MemoryModel(latency_cycles=10),
        MemoryModel(latency_cycles=200),
        MemoryModel(bytes_per_cycle=4),
        MemoryModel(bytes_per_cycle=16),
        MemoryModel(latency_cycles=20, bytes_per_cycle=2),
    ],
    ids=lambda m: f"{m.latency_cycles}-{m.bytes_per_cycle}",
)
@pytest.mark.parametrize("config", [REFERENCE, PRESETS["1x8x8"]], ids=lambda c: c.name)
def test_shipped_model_behind_other_memories(config: AccelConfig, memory: MemoryModel) -> None:
    program = program_of(ROOT / "models" / "digits_resnet8_int8.onnx", config)
    device = RtlDevice(config, memory)
    device.load(program)
    measured, predicted = device.run(program), prediction(program, memory)
    assert abs(predicted.cycles / measured.cycles - 1) <= 0.05


@pytest.mark.rtl
@needs_rtl
@pytest.mark.parametrize(
    "config",
    [
        PRESETS["1x4x4"],
        PRESETS["1x8x8"],
        replace(PRESETS["1x8x8"], name="no lookahead", bus_bytes=4, lookahead=False),
        PRESETS["1x4x4s"],
    ],
    ids=lambda c: c.name,
)
def test_random_programs_within_ten_percent(config: AccelConfig) -> None:
    device = RtlDevice(config)
    ratios: list[float] = []
    for seed in range(60):
        program = random_program(config, seed)
        device.load(program)
        measured, predicted = device.run(program), prediction(program)
        ratios.append(predicted.cycles / measured.cycles)
        assert abs(ratios[-1] - 1) <= 0.10, f"seed {seed}: {ratios[-1]:.3f}"
    assert abs(np.mean(ratios) - 1) <= 0.02


def test_values_are_the_functional_device_s() -> None:
    config = PRESETS["1x4x8"]
    timing, functional = TimingDevice(config, seed=1), FunctionalDevice(config, seed=2)
    for seed in range(20):
        program = random_program(config, seed)
        images: list[bytes] = []
        for device in (timing, functional):
            device.load(program)
            device.run(program)
            images.append(device.read(0, program.memory_bytes))
        assert images[0] == images[1], f"seed {seed}"


def test_instructions_keep_their_order_and_their_tokens() -> None:
    for config in PRESETS.values():
        for seed in range(30):
            program = random_program(config, seed)
            counters = prediction(program)
            assert (counters.started <= counters.retired).all()
            for unit in range(4):
                own = [k for k, i in enumerate(program.instructions) if i.unit == unit]
                assert (np.diff(counters.started[own]) > 0).all(), (config.name, seed, unit)
            for unit in range(4):
                for other in range(4):
                    send = [
                        k
                        for k, i in enumerate(program.instructions)
                        if i.unit == other and i.signal >> unit & 1
                    ]
                    take = [
                        k
                        for k, i in enumerate(program.instructions)
                        if i.unit == unit and i.wait >> other & 1
                    ]
                    for sender, taker in zip(send, take, strict=True):
                        assert counters.started[taker] > counters.retired[sender]


def test_a_slower_memory_is_never_faster() -> None:
    for seed in range(20):
        program = random_program(PRESETS["1x8x8"], seed)
        cycles = [
            prediction(program, MemoryModel(bytes_per_cycle=b)).cycles for b in (1, 2, 4, 8, 16)
        ]
        # Fetch may meet another order of loads; beyond that, less bandwidth costs time.
        assert all(slow >= 0.98 * fast for slow, fast in zip(cycles, cycles[1:], strict=False))


def test_a_missing_token_is_named() -> None:
    config = PRESETS["1x4x4"]
    stuck = fault_programs(config)["missing token"].program
    with pytest.raises(DeviceError, match="^WATCHDOG in unit gemm at instruction 1"):
        prediction(stuck)
    device = TimingDevice(config)
    device.load(stuck)
    with pytest.raises(DeviceError, match="^WATCHDOG in unit gemm at instruction 1"):
        device.run(stuck)


def test_matrix_work_takes_the_larger_of_rows_and_tile() -> None:
    config = REFERENCE
    for rows, tiles in ((4, 50), (16, 50), (100, 20)):
        program = small_program(
            config,
            Load(buffer=Buffer.INP, n0=256),
            Load(buffer=Buffer.WGT, n0=4, signal=2),
            Gemm(n_k0=tiles, n_x=rows, inp_x=1, acc_x=1, wait=1),
            Finish(),
        )
        counters = prediction(program)
        taken = counters.retired[2] - counters.started[2]
        assert 0 <= taken - tiles * max(rows, config.block_out) <= config.block_out + 20


def test_a_prediction_is_fast_enough_for_a_tuner() -> None:
    program = program_of(ROOT / "models" / "digits_resnet8_int8.onnx")
    whole = Program(
        config=program.config,
        instructions=program.instructions[:-1] * 60 + program.instructions[-1:],
        instructions_address=0,
        memory_bytes=0,
    )
    descriptors = decode_table(encode_all(whole.instructions))
    begin = time.process_time()
    predict(whole.config, descriptors)
    # ResNet-18 has about as many instructions and must take less than a second.
    assert time.process_time() - begin < 1.0
