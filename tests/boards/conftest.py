"""A vendor's matrix array against the portable one, cycle by cycle; a small board; networks."""

import ctypes
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from onnx import TensorProto, helper

from accelc.boards.board import Board, Family
from accelc.boards.gate_level import cell_models
from accelc.boards.primitives.arrays import mac_array, simulated_array
from accelc.boards.registry import find
from accelc.hw.verilog import component_rtlil, to_verilog
from accelc.isa.config import AccelConfig
from accelc.sim.verilator import build_library

CYCLES = 3000
#: Ports of up to 64 bits are numbers in Verilator's C++, wider ones arrays of 32-bit words.
STIMULUS_BITS = 160

HARNESS = """
#include "Vaccel.h"
#include <cstdint>
constexpr int WORDS = STIMULUS_BITS / 32;
extern "C" void run(const uint32_t* words, int cycles, uint32_t* result) {
    VerilatedContext context;
    Vaccel top{&context};
    top.rst = 0;
    for (int cycle = 0; cycle < cycles; ++cycle) {
        for (int i = 0; i < WORDS; ++i) top.stimulus[i] = *words++;
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
    }
    result[0] = top.compared;
    result[1] = top.different;
}
double sc_time_stamp() { return 0; }
"""


class Comparison(wiring.Component):
    """Both arrays, given the same ``stimulus``; counts sums ``compared`` and ``different``."""

    stimulus: Signal
    compared: Signal
    different: Signal

    def __init__(self, family: Family, config: AccelConfig, dsps: int | None) -> None:
        mine, other = mac_array(family, config, dsps=dsps), simulated_array(family, config)
        assert mine is not None and other is not None and mine.latency == other.latency
        self._arrays = mine, other
        super().__init__({"stimulus": In(STIMULUS_BITS), "compared": Out(32), "different": Out(32)})

    @property
    def inputs(self) -> dict[str, int]:
        """Names and widths of an array's inputs, in the order of the stimulus."""
        members = self._arrays[0].signature.members.items()
        return {
            name: len(getattr(self._arrays[0], name))
            for name, member in members
            if member.flow == In
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.mine, m.submodules.other = mine, other = self._arrays
        for array in self._arrays:
            ports = Cat(getattr(array, name) for name in self.inputs)
            m.d.comb += ports.eq(self.stimulus)
        equal = Cat(a == b for a, b in zip(mine.sums, other.sums, strict=True)).all()
        m.d.sync += self.compared.eq(self.compared + other.sums_valid)
        with m.If((mine.sums_valid != other.sums_valid) | (other.sums_valid & ~equal)):
            m.d.sync += self.different.eq(self.different + 1)
        return m


def stimuli(config: AccelConfig, inputs: dict[str, int], seed: int) -> np.ndarray:
    """``(CYCLES, STIMULUS_BITS / 32)`` uint32: whole tiles of weights first, then anything."""
    generator = random.Random(seed)
    filling = 8 * config.block_out
    words = []
    for cycle in range(CYCLES):
        values = {name: generator.getrandbits(bits) for name, bits in inputs.items()}
        for name in ("row", "shadow_data"):
            if generator.random() < 0.5:
                # the widest products
                extremes = generator.choices([0x7F, 0x80, 0x81], k=inputs[name] // 8)
                values[name] = int.from_bytes(bytes(extremes), "little")
        values["swap"] = generator.random() < 0.2
        if cycle < filling:
            # registers without reset get values before sums count
            values["shadow_row"] = cycle % config.block_out
            values |= {"shadow_en": 1, "row_en": 1, "window": 1, "fire": 0}
            values["swap"] = cycle == filling - 1
        word, offset = 0, 0
        for name, bits in inputs.items():
            word |= int(values[name]) << offset
            offset += bits
        words.append(word.to_bytes(STIMULUS_BITS // 8, "little"))
    return np.frombuffer(b"".join(words), np.uint32)


#: What `compare_arrays` is called with: family, configuration, multipliers (None: enough). Returns
#: the array's Verilog.
CompareArrays = Callable[[Family, AccelConfig, int | None], str]


@pytest.fixture
def compare_arrays(tmp_path: Path) -> CompareArrays:
    """Asserts that a family's array gives the portable one's sums, in the same cycles."""

    def compare(family: Family, config: AccelConfig, dsps: int | None) -> str:
        seed = random.randrange(1 << 30)
        print("seed", seed)
        dut = Comparison(family, config, dsps)
        inputs = dut.inputs
        assert sum(inputs.values()) <= STIMULUS_BITS
        harness = tmp_path / "harness.cpp"
        harness.write_text(f"#define STIMULUS_BITS {STIMULUS_BITS}\n{HARNESS}")
        design = to_verilog(component_rtlil(dut))
        source = design + cell_models(family)
        library = ctypes.CDLL(str(build_library(source, harness, what="two arrays")))
        words = stimuli(config, inputs, seed)
        result = np.zeros(2, np.uint32)
        pointer = ctypes.POINTER(ctypes.c_uint32)
        library.run(words.ctypes.data_as(pointer), CYCLES, result.ctypes.data_as(pointer))
        compared, different = result.tolist()
        assert different == 0
        assert compared > CYCLES // 10
        return design

    return compare


@pytest.fixture(scope="session")
def small_board() -> Board:
    """An ULX3S, its SDRAM and its link, with the smallest core any board has."""
    config = replace(find("icebreaker").config, name="small")
    name = "small on ulx3s-25f"
    return replace(find("ulx3s-25f"), name=name, config=config, mlperf=False, options={})


@pytest.fixture(scope="session")
def small_network(networks: ModuleType) -> onnx.ModelProto:
    """Three convolutions, one of them depthwise, on 8 x 8 pixels: a few KiB of memory."""
    builder = networks.Builder(seed=3)
    x = builder.conv_relu(builder.input("image", 4, 8), "conv1", 8, 3)
    x = builder.conv_relu(x, "conv2", 8, 3, 2, groups=8)
    x = builder.conv_relu(x, "conv3", 4, 1)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 4, 8, 8])
    result = helper.make_tensor_value_info(x.name, TensorProto.FLOAT, [1, 4, 4, 4])
    graph = helper.make_graph(builder.nodes, "small", [image], [result], builder.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
