"""The Verilated core against the definition, behind memories of every temper."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from accelc.isa.config import INSTRUCTION_BYTES, PRESETS, AccelConfig
from accelc.isa.errors import ConfigError, DeviceError
from accelc.isa.spec import Buffer, Finish, Load, Store
from accelc.sim import rtl
from accelc.sim.device import MemoryModel
from accelc.sim.fault_programs import damaged_words, fault_programs, small_program
from accelc.sim.golden import GoldenDevice
from accelc.sim.random_programs import compare, random_program
from accelc.sim.rtl import RtlDevice
from accelc.sim.verilator import library

pytestmark = [
    pytest.mark.rtl,
    pytest.mark.skipif(
        not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make"
    ),
]

#: The reference memory, a fast one, slow ones, and two that stall at random on every channel.
MEMORIES: tuple[Callable[[int], MemoryModel], ...] = (
    lambda seed: MemoryModel(),
    lambda seed: MemoryModel(latency_cycles=1, bytes_per_cycle=64),
    lambda seed: MemoryModel(latency_cycles=17, bytes_per_cycle=3),
    lambda seed: MemoryModel(stall_per_65536=16_000, seed=seed),
    lambda seed: MemoryModel(latency_cycles=5, stall_per_65536=48_000, seed=seed),
)
#: Random programs per configuration: over 2,000 together.
PROGRAMS = {
    "1x4x4": 900, "1x8x8": 500, "1x16x16": 250, "2x16x16": 200, "1x4x8": 300, "1x4x4s": 900,
}  # fmt: skip
#: The two kinds of core.
KINDS = (PRESETS["1x4x4"], PRESETS["1x4x4s"])
FAULTS = [(config, name) for config in KINDS for name in fault_programs(config)]
_devices: dict[str, RtlDevice] = {}


def device_of(config: AccelConfig) -> RtlDevice:
    """One device per configuration for the whole run: what one test leaves, the next one meets."""
    if config.name not in _devices:
        _devices[config.name] = RtlDevice(config, seed=11)
        _devices[config.name].write_register("watchdog_cycles", 20_000)
    _devices[config.name].set_memory_model(MemoryModel())
    return _devices[config.name]


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
def test_random_programs_agree(config: AccelConfig) -> None:
    device, golden = device_of(config), GoldenDevice(config, seed=1)
    for seed in range(PROGRAMS[config.name]):
        device.set_memory_model(MEMORIES[seed % len(MEMORIES)](seed))
        difference = compare(random_program(config, seed), [golden, device])
        assert difference is None, f"{config.name} seed {seed}: {difference}"


@pytest.mark.parametrize(("config", "name"), FAULTS, ids=lambda c: getattr(c, "name", c))
def test_faults_are_named_and_survived(config: AccelConfig, name: str) -> None:
    device = device_of(config)
    fault = fault_programs(config)[name]
    device.write_register("watchdog_cycles", 3000)
    device.load(fault.program)
    with pytest.raises(DeviceError, match=rf"^{fault.code.name} in unit \w+ at") as caught:
        device.run(fault.program)
    where = str(caught.value)
    assert (
        f"instruction {fault.index}" in where or f"or after instruction {fault.index - 1}" in where
    )
    assert compare(random_program(config, 7), [GoldenDevice(config), device]) is None


@pytest.mark.parametrize("config", KINDS, ids=lambda c: c.name)
@pytest.mark.parametrize("name", list(damaged_words()))
def test_damaged_words_are_refused(config: AccelConfig, name: str) -> None:
    device = device_of(config)
    whole = small_program(config, Load(buffer=Buffer.INP), Load(buffer=Buffer.INP), Finish())
    device.load(whole)
    device.write(whole.instructions_address + INSTRUCTION_BYTES, damaged_words()[name])
    with pytest.raises(DeviceError, match="^ILLEGAL_INSTRUCTION in unit fetch at instruction 1"):
        device.run(whole)
    assert compare(random_program(config, 8), [GoldenDevice(config), device]) is None


@pytest.mark.parametrize(
    ("code", "unit", "first", "last"),
    [
        ("READ_RESPONSE", "load", 256, 260),
        ("WRITE_RESPONSE", "store", 4096, 4100),
        ("READ_RESPONSE", "fetch", 8192 + 64, 8192 + 65),
    ],
)
@pytest.mark.parametrize("stall", [0, 30_000])
@pytest.mark.parametrize("config", KINDS, ids=lambda c: c.name)
def test_bus_errors_are_named_and_survived(
    config: AccelConfig, code: str, unit: str, first: int, last: int, stall: int
) -> None:
    device = device_of(config)
    model = MemoryModel(stall_per_65536=stall, seed=3)
    program = small_program(
        config,
        Load(buffer=Buffer.INP, dram=0, n0=128),
        Store(dram=4096 - 32, n0=16),
        Finish(),
    )
    device.load(program)
    device.set_memory_model(model, errors=(first, last))
    with pytest.raises(DeviceError, match=rf"^{code} in unit {unit} at"):
        device.run(program)
    device.set_memory_model(model)
    device.run(program)
    assert compare(random_program(config, 9), [GoldenDevice(config), device]) is None


@pytest.mark.parametrize("config", [*KINDS, PRESETS["2x16x16"]], ids=lambda c: c.name)
def test_runs_repeat_without_reset(config: AccelConfig) -> None:
    device = device_of(config)
    programs = [random_program(config, seed) for seed in (21, 22)]
    images: list[bytes] = []
    cycles: list[int] = []
    for program in (*programs, *programs):
        device.load(program)
        cycles.append(device.run(program).cycles)
        images.append(device.read(0, program.memory_bytes))
    assert images[:2] == images[2:]
    assert cycles[:2] == cycles[2:]


def test_power_up_is_noise_that_the_seed_repeats() -> None:
    config = PRESETS["1x4x4"]
    unwritten = small_program(config, Store(dram=0, n0=64), Finish())

    def power_up(seed: int) -> bytes:
        device = RtlDevice(config, seed=seed)
        device.load(unwritten)
        device.run(unwritten)
        return device.read(0, 256)

    assert power_up(1) == power_up(1)
    assert power_up(1) != power_up(2)
    assert len(set(power_up(3))) > 64


def test_counters_and_traces_are_consistent() -> None:
    config = PRESETS["1x8x8"]
    device = device_of(config)
    for seed in range(40, 50):
        program = random_program(config, seed)
        device.load(program)
        counters = device.run(program)
        golden = GoldenDevice(config)
        golden.load(program)
        expected = golden.run(program)
        assert counters.write_bytes == expected.write_bytes
        assert counters.read_bytes == expected.read_bytes
        assert (counters.started[:-1] < counters.retired[:-1]).all()
        assert 0 < max(counters.busy) <= counters.cycles
        for unit in range(4):
            own = [k for k, i in enumerate(program.instructions) if i.unit == unit]
            assert (np.diff(counters.started[own]) > 0).all()
            assert (np.diff(counters.retired[own]) > 0).all()
        for later, instruction in enumerate(program.instructions):
            if instruction.wait:
                assert counters.started[later] > counters.started[:later].min()


@pytest.mark.parametrize("bytes_per_cycle", [1, 2, 4, 8, 16])
def test_memory_keeps_to_its_bandwidth_and_latency(bytes_per_cycle: int) -> None:
    config = PRESETS["1x8x8"]
    device = device_of(config)
    device.set_memory_model(MemoryModel(latency_cycles=100, bytes_per_cycle=bytes_per_cycle))
    rows = 512
    program = small_program(config, Load(buffer=Buffer.INP, n0=rows), Finish())
    device.load(program)
    counters = device.run(program)
    least = rows * config.inp_row_bytes / min(bytes_per_cycle, config.bus_bytes)
    # The instruction itself and then its data wait for the latency.
    assert least + 200 <= counters.cycles <= least * 1.05 + 300


def test_a_core_of_another_configuration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other: Path = library(PRESETS["1x4x8"])
    monkeypatch.setattr(rtl, "library", lambda config: other)
    with pytest.raises(ConfigError, match="^register config reads .*'1x4x4' needs"):
        RtlDevice(PRESETS["1x4x4"])


def test_a_program_without_end_is_stopped() -> None:
    config = PRESETS["1x4x4"]
    device = RtlDevice(config, max_cycles=500)
    device.write_register("watchdog_cycles", 0)
    stuck = fault_programs(config)["missing token"].program
    device.load(stuck)
    with pytest.raises(DeviceError, match="did not end within 500 cycles"):
        device.run(stuck)
    device.max_cycles = 1 << 20
    assert compare(random_program(config, 5), [GoldenDevice(config), device]) is None
