"""The compiler's account of what instructions touch, against the semantics and a second account."""

from dataclasses import replace

import numpy as np
import pytest

from accelc.compiler.footprint import Space, footprint
from accelc.compiler.verify import verify
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.program import Region
from accelc.isa.spec import Gemm, Load, Store
from accelc.sim import effects
from accelc.sim.random_programs import random_program


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
def test_random_programs_touch_what_the_simulator_says(config: AccelConfig) -> None:
    for seed in range(8):
        print(f"seed {seed}")
        program = random_program(config, seed)
        for instruction in program.instructions:
            ours: dict[tuple[str, bool], set[int]] = {}
            for access in footprint(instruction, config):
                key = access.space.name.lower(), access.write
                ours.setdefault(key, set()).update(access.rows.tolist())
            both = effects.effects(instruction, config)
            theirs = {
                (space.value, write): set(rows.tolist())
                for write, sets in ((False, both.reads), (True, both.writes))
                for space, rows in sets.items()
            }
            assert {k: v for k, v in ours.items() if v} == {k: v for k, v in theirs.items() if v}


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
def test_random_programs_are_sound(config: AccelConfig) -> None:
    """Programs synchronised by the simulators' own generator pass the verifier."""
    for seed in range(8):
        print(f"seed {seed}")
        program = random_program(config, seed)
        # they overwrite their own data, which only inputs may be
        data = tuple(
            Region(name=f"x{i}", address=address, nbytes=len(data))
            for i, (address, data) in enumerate(program.constants)
        )
        program = replace(program, constants=(), inputs=(*program.inputs, *data))
        report = verify(program)
        assert sum(report.instructions.values()) == len(program.instructions) - 1


def test_padding_and_data_of_a_load_are_one_run() -> None:
    config = PRESETS["1x16x16"]
    load = Load(buffer=0, row=5, dram=64, n0=2, n1=3, n2=2, stride1=64, stride2=512, pad_top=1,
                pad_left=2, pad_right=1, pad_bottom=4)  # fmt: skip
    memory, rows = footprint(load, config)
    assert rows.space is Space.INP and rows.write
    np.testing.assert_array_equal(rows.rows, np.arange(5, 5 + 1 + 2 * (2 + 6 + 1) + 4))
    starts = [64 + a * 512 + b * 64 for a in range(2) for b in range(3)]
    expected = [start // 8 + beat for start in starts for beat in range(4)]
    np.testing.assert_array_equal(memory.rows, expected)


def test_a_fill_reads_no_memory() -> None:
    memory, rows = footprint(Load(buffer=0, row=0, dram=0, n2=0, pad_top=7), PRESETS["1x16x16"])
    assert memory.rows.size == 0 and rows.rows.size == 7


def test_accumulating_reads_the_sums() -> None:
    gemm = Gemm(inp=0, wgt=0, acc=10, n_y=2, n_x=3, acc_y=3, acc_x=1, accumulate=1)
    accesses = footprint(gemm, PRESETS["1x16x16"])
    sums = [a for a in accesses if a.space is Space.ACC]
    assert [a.write for a in sums] == [False, True]
    assert all(sorted(a.rows.tolist()) == list(range(10, 16)) for a in sums)


def test_store_moves_vector_rows() -> None:
    rows, memory = footprint(Store(row=3, dram=80, n0=2), PRESETS["1x4x8"])
    assert rows.rows.tolist() == [3, 4]
    assert memory.rows.tolist() == [20, 21, 22, 23]
