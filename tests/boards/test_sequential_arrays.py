"""Vendors' arrays of the sequential core against the portable one, with models of their cells."""

import ctypes
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from accelc.boards.board import Family
from accelc.boards.gate_level import cell_models
from accelc.boards.primitives.arrays import mac_array, simulated_array
from accelc.hw.sequential.array import SequentialArray, array_members
from accelc.hw.verilog import component_rtlil, to_verilog
from accelc.isa.config import PRESETS, AccelConfig
from accelc.sim.verilator import build_library

CYCLES = 4000
#: Registers have no reset: cycles until all of both arrays hold what they were given.
WARM_UP = 16
STIMULUS_BITS = 128

HARNESS = """
#include "Vaccel.h"
#include <cstdint>
extern "C" void run(const uint32_t* words, int cycles, uint32_t* result) {
    VerilatedContext context;
    Vaccel top{&context};
    top.rst = 0;
    for (int cycle = 0; cycle < cycles; ++cycle) {
        for (int i = 0; i < 4; ++i) top.stimulus[i] = *words++;
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
    }
    result[0] = top.nonzero;
    result[1] = top.different;
}
double sc_time_stamp() { return 0; }
"""


def sequential(**changes: object) -> AccelConfig:
    values = dict(
        sequential=True, block_in=4, block_out=4, bus_bytes=4, vector_lanes=1, add=False, lut=False
    )
    return AccelConfig(**{**values, **changes})  # type: ignore[arg-type]


class Comparison(wiring.Component):
    """Both arrays, given the same ``stimulus``; counts cycles with ``nonzero`` sums and others."""

    stimulus: Signal
    nonzero: Signal
    different: Signal

    def __init__(self, family: Family, config: AccelConfig) -> None:
        mine, other = mac_array(family, config), simulated_array(family, config)
        assert isinstance(mine, SequentialArray) and isinstance(other, SequentialArray)
        self._arrays = mine, other
        members = array_members(config, mine.rows_per_load)
        #: Names and widths of an array's inputs, in the order of the stimulus.
        self.inputs = {
            name: len(getattr(mine, name)) for name, port in members.items() if port.flow == In
        }
        assert sum(self.inputs.values()) <= STIMULUS_BITS
        super().__init__({"stimulus": In(STIMULUS_BITS), "nonzero": Out(32), "different": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.mine, m.submodules.other = mine, other = self._arrays
        for array in self._arrays:
            m.d.comb += Cat(getattr(array, name) for name in self.inputs).eq(self.stimulus)
        cycle = Signal(range(WARM_UP + 1))
        with m.If(cycle != WARM_UP):
            m.d.sync += cycle.eq(cycle + 1)
        with m.Else():
            equal = Cat(a == b for a, b in zip(mine.sums, other.sums, strict=True)).all()
            m.d.sync += self.different.eq(self.different + ~equal)
            m.d.sync += self.nonzero.eq(self.nonzero + Cat(s.any() for s in other.sums).all())
        return m


def stimuli(config: AccelConfig, inputs: dict[str, int], rng: random.Random) -> np.ndarray:
    """``(CYCLES, STIMULUS_BITS / 32)`` uint32: whole tiles of weights first, then anything."""
    words: list[bytes] = []
    for cycle in range(CYCLES):
        values = {name: rng.getrandbits(bits) for name, bits in inputs.items()}
        values["mask"] = (1 << rng.randint(1, config.block_in)) - 1
        for name in ("row", "load_data"):
            if rng.random() < 0.5:
                # the widest products and sums
                extremes = rng.choices([0x80, 0x80, 0x80, 0x7F, 0x81], k=inputs[name] // 8)
                values[name] = int.from_bytes(bytes(extremes), "little")
        if cycle < WARM_UP // 2:
            values |= {"load_en": 1, "load_part": cycle, "row_en": 1, "window": 0}
        word, offset = 0, 0
        for name, bits in inputs.items():
            word |= (int(values[name]) & ((1 << bits) - 1)) << offset
            offset += bits
        words.append(word.to_bytes(STIMULUS_BITS // 8, "little"))
    return np.frombuffer(b"".join(words), np.uint32)


@pytest.mark.rtl
@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make")
@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize(
    ("family", "cell", "cells", "block_out"),
    [(Family.ICE40, "SB_MAC16", 8, 4), (Family.GOWIN, "MULT9X9", 32, 8)],
)
def test_same_sums_as_the_portable_array(
    family: Family, cell: str, cells: int, block_out: int, window: bool, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    config = sequential(block_out=block_out, window=window)
    dut = Comparison(family, config)
    design = to_verilog(component_rtlil(dut))
    assert design.count(f"{cell} ") == cells
    harness = tmp_path / "harness.cpp"
    harness.write_text(HARNESS)
    source = design + cell_models(family)
    library = ctypes.CDLL(str(build_library(source, harness, what="two arrays")))
    words = stimuli(config, dut.inputs, random.Random(seed))
    result = np.zeros(2, np.uint32)
    pointer = ctypes.POINTER(ctypes.c_uint32)
    library.run(words.ctypes.data_as(pointer), CYCLES, result.ctypes.data_as(pointer))
    nonzero, different = result.tolist()
    assert different == 0
    assert nonzero > CYCLES // 2


@pytest.mark.parametrize(
    "config",
    [
        PRESETS["1x4x4"],
        sequential(block_out=8),
        sequential(block_in=8, block_out=8),
    ],
)
def test_what_does_not_fit_is_left_to_the_portable_array(config: AccelConfig) -> None:
    assert mac_array(Family.ICE40, config) is None
