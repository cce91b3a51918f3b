"""The functional device against the definition: programs, single instructions, whole state."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from accelc.isa.codec import encode_all
from accelc.isa.config import INSTRUCTION_BYTES, PRESETS, AccelConfig
from accelc.isa.errors import DeviceError
from accelc.isa.spec import Alu, Buffer, Finish, Gemm, Load, Source, Store
from accelc.sim.device import Device
from accelc.sim.fault_programs import damaged_words, fault_programs, small_program
from accelc.sim.functional import FunctionalDevice
from accelc.sim.golden import GoldenDevice
from accelc.sim.random_programs import compare, random_program

SCRATCHPADS = ("inp", "wgt", "acc", "vin", "out", "prm", "lut")
#: Odd shapes beyond the presets: no optional unit, wide rows, narrow multipliers.
CONFIGS = (
    *PRESETS.values(),
    AccelConfig(name="4x8x32", batch=4, block_in=8, block_out=32, vector_lanes=16),
    AccelConfig(name="plain", block_in=8, block_out=8, vector_lanes=2, window=False, add=False,
                lut=False, mult_bits=15, bus_bytes=4),
)  # fmt: skip


def pair(config: AccelConfig) -> tuple[GoldenDevice, FunctionalDevice]:
    return GoldenDevice(config, seed=1), FunctionalDevice(config, seed=2)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_random_programs_agree(config: AccelConfig) -> None:
    devices = pair(config)
    for seed in range(150):
        difference = compare(random_program(config, seed), devices)
        assert difference is None, f"seed {seed}: {difference}"


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_whole_state_agrees_after_every_instruction(config: AccelConfig) -> None:
    golden, functional = GoldenDevice(config, seed=3), FunctionalDevice(config, seed=3)
    for seed in range(1000, 1008):
        whole = random_program(config, seed)
        for device in (golden, functional):
            device.load(whole)
        for instruction in whole.instructions[:-1]:
            single = replace(instruction, wait=0, signal=0)
            step = replace(whole, instructions=(single, Finish()))
            data = encode_all(step.instructions)
            for device in (golden, functional):
                device.write(step.instructions_address, data)
                device.run(step)
            for name in SCRATCHPADS:
                np.testing.assert_array_equal(
                    getattr(golden.state, name),
                    getattr(functional.state, name),
                    err_msg=f"{config.name} seed {seed}: {name} after {single}",
                )
    np.testing.assert_array_equal(golden.state.memory, functional.state.memory)


@pytest.mark.parametrize("shift", [0, 1, 2, 31, 54, 55, 56, 61, 62, 63])
@pytest.mark.parametrize("zero", [-128, -1, 0, 1, 127])
def test_requantization_at_ties_and_limits(shift: int, zero: int) -> None:
    config = PRESETS["1x4x4"]
    golden, functional = GoldenDevice(config, seed=3), FunctionalDevice(config, seed=3)
    rng = np.random.default_rng([shift, zero & 0xFF])
    # Multiples of half the rounding step make ties common; the rest are extremes.
    acc = rng.integers(-64, 64, golden.state.acc.shape) << max(shift - 1, 0) % 32
    acc[:8] = np.array([-(1 << 31), (1 << 31) - 1, -1, 0, 1, 2, 3, 5])[:, None, None]
    for device in (golden, functional):
        device.state.acc[:] = acc.astype(np.int32)
        device.state.prm["bias"] = 0
        device.state.prm["scale"] = (1 if shift < 40 else 0xFFFFFF) | shift << 24
    instructions = tuple(
        Alu(source=Source.ACC, scale=1, a_zero=zero, a_inside=inside, n1=1, n2=256, src_2=1,
            dst=256 * inside, dst_2=1)
        for inside in (0, 1)
    )  # fmt: skip
    tested = small_program(config, *instructions, Finish())
    for device in (golden, functional):
        device.load(tested)
        device.run(tested)
    np.testing.assert_array_equal(golden.state.out, functional.state.out)


@pytest.mark.parametrize("make", [GoldenDevice, FunctionalDevice])
@pytest.mark.parametrize("name", list(fault_programs(PRESETS["1x4x4"])))
def test_faults_are_named_and_survived(make: Callable[..., Device], name: str) -> None:
    config = PRESETS["1x4x4"]
    fault = fault_programs(config)[name]
    device = make(config)
    device.load(fault.program)
    expected = rf"^{fault.code.name} in unit \w+ at instruction {fault.index}\b.*; "
    with pytest.raises(DeviceError, match=expected):
        device.run(fault.program)
    assert compare(random_program(config, 7), [GoldenDevice(config), device]) is None


@pytest.mark.parametrize("make", [GoldenDevice, FunctionalDevice])
@pytest.mark.parametrize("name", list(damaged_words()))
def test_damaged_words_are_refused(make: Callable[..., Device], name: str) -> None:
    config = PRESETS["1x4x4"]
    device = make(config)
    whole = small_program(config, Load(buffer=Buffer.INP), Load(buffer=Buffer.INP), Finish())
    device.load(whole)
    device.write(whole.instructions_address + INSTRUCTION_BYTES, damaged_words()[name])
    with pytest.raises(DeviceError, match="^ILLEGAL_INSTRUCTION in unit fetch at instruction 1"):
        device.run(whole)


def test_memory_outside_the_program_is_refused() -> None:
    device = FunctionalDevice(PRESETS["1x4x4"])
    device.reserve(128)
    with pytest.raises(DeviceError, match="bytes 120 to 130 are outside the 128 bytes"):
        device.write(120, bytes(10))
    with pytest.raises(DeviceError, match="bytes -1 to 1 are outside"):
        device.read(-1, 2)


def test_bytes_are_counted() -> None:
    config = PRESETS["1x4x8"]
    counted = small_program(
        config,
        Load(buffer=Buffer.INP, n0=3, n1=2, pad_left=1),
        Load(buffer=Buffer.WGT, n0=5),
        Store(n0=3, n2=2),
        Finish(),
    )
    device = FunctionalDevice(config)
    device.load(counted)
    counters = device.run(counted)
    assert counters.read_bytes == 6 * 4 + 5 * 32 + 4 * 64
    assert counters.write_bytes == 6 * 8
    assert counters.cycles == 0


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
def test_random_programs_use_everything(config: AccelConfig) -> None:
    seen: set[str] = set()
    for seed in range(60):
        for i in random_program(config, seed).instructions:
            seen.add(type(i).__name__)
            seen |= {f"wait {type(i).__name__}"} if i.wait else set()
            if isinstance(i, Gemm):
                seen |= {f"window {i.window}", f"accumulate {i.accumulate}"}
            if isinstance(i, Alu):
                seen |= {f"{f} {getattr(i, f)}" for f in ("source", "scale", "add", "lut")}
                seen |= {"maximum"} if i.n_kx * i.n_ky > 1 else set()
            if isinstance(i, Load):
                seen |= {f"load {Buffer(i.buffer).name}"} | ({"pad"} if i.pad_left else set())
    expected = {"Load", "Gemm", "Alu", "Store", "Finish", "maximum", "pad"}
    expected |= {
        f"{name} {n}" for name in ("window", "accumulate", "source", "scale") for n in (0, 1)
    }
    for name in ("add", "lut"):
        expected |= {f"{name} {n}" for n in range(1 + getattr(config, name))}
    buffers = [buffer for buffer in Buffer if config.lut or buffer is not Buffer.LUT]
    expected |= {f"load {buffer.name}" for buffer in buffers}
    expected |= {f"wait {name}" for name in ("Load", "Gemm", "Alu", "Store")}
    assert expected <= seen


def test_comparison_sees_a_single_wrong_byte() -> None:
    config = PRESETS["1x4x4"]

    class Broken(FunctionalDevice):
        def read(self, address: int, nbytes: int) -> bytes:
            data = bytearray(super().read(address, nbytes))
            data[5] ^= address == 0
            return bytes(data)

    difference = compare(random_program(config, 1), [GoldenDevice(config), Broken(config)])
    assert difference is not None and "differ in 1 bytes, first at address 5" in difference
