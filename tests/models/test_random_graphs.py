"""Random small graphs from int.* operators to every device, bit for bit, twice without reset."""

import math

import numpy as np
import pytest

from accelc.compiler.accelerator import lower
from accelc.compiler.graph import Graph
from accelc.compiler.integer import ConvAttrs
from accelc.compiler.integer_reference import evaluate
from accelc.compiler.layout import pack, unpack
from accelc.compiler.random_graphs import GraphBuilder, random_graph, random_matmul
from accelc.isa.config import PRESETS, AccelConfig
from accelc.session import make_device
from accelc.sim.device import Device, MemoryModel

#: One device per configuration for the whole run: what one program leaves, the next one meets.
_devices: dict[tuple[str, str], Device] = {}


def device_of(name: str, config: AccelConfig) -> Device:
    key = (name, config.name)
    if key not in _devices:
        # random stalls on every channel: results must not depend on timing
        memory = MemoryModel(latency_cycles=23, stall_per_65536=12_000, seed=5)
        _devices[key] = make_device(name, config, memory)
    return _devices[key]


def check(graph: Graph, config: AccelConfig, name: str, seed: int) -> None:
    """Run ``graph`` twice on new data and compare with the reference evaluation."""
    device, lowered = device_of(name, config), lower(graph, config)
    program, rng = lowered.program, np.random.default_rng(seed)
    device.load(program)
    for _ in range(2):
        feeds = {
            value: rng.integers(-128, 128, graph.types[value].shape).astype(np.int8)
            for value in graph.inputs
        }
        for region in program.inputs:
            packing = lowered.packings[region.name]
            device.write(region.address, pack(feeds[packing.value], packing, config))
        device.run(program)
        for value, expected in evaluate(graph, feeds).items():
            (region,) = [r for r in program.outputs if r.name == value]
            data = device.read(region.address, region.nbytes)
            result = unpack(data, lowered.packings[value], config)
            assert np.array_equal(result, expected), f"{config.name} seed {seed}: {value} differs"


def larger_than_everything(config: AccelConfig) -> Graph:
    """Two convolutions whose inputs, weights, accumulators and outputs exceed every scratchpad."""
    b = GraphBuilder(config, np.random.default_rng(3))
    channels = 9 * config.block_out
    rows = max(config.inp_rows, config.acc_rows, config.out_rows)
    side = int(np.ceil(np.sqrt(rows / 9))) + 3
    conv = ConvAttrs(kernel=(3, 3), pads=(1, 0, 2, 1), pad_value=-7)
    x = b.input((1, side, side, channels))
    wide = ConvAttrs(kernel=(5, 5), stride=(2, 2), pads=(2, 2, 2, 2))
    return b.graph(b.conv(b.conv(x, channels, conv), channels, wide))


@pytest.mark.parametrize("name", ["functional", pytest.param("rtl", marks=pytest.mark.rtl)])
@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
def test_random_graphs(config: AccelConfig, name: str) -> None:
    for seed in range(20):
        check(random_graph(seed, config), config, name, seed)


def random_product(seed: int, config: AccelConfig) -> Graph:
    """A product of two inputs with ragged sizes, several heads and any zero points."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder(config, rng, name=f"product{seed}")
    rows, depth, outputs = (int(size) for size in rng.integers(1, 4 * config.block_out, 3))
    matmul = random_matmul(rng, int(rng.integers(1, 4)))
    x = b.input((rows, 1, math.prod(matmul.a_batch), depth))
    return b.graph(b.matmul(x, outputs, matmul, table=bool(rng.integers(2))))


@pytest.mark.parametrize("name", ["functional", pytest.param("rtl", marks=pytest.mark.rtl)])
@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
def test_random_products(config: AccelConfig, name: str) -> None:
    for seed in range(8):
        check(random_product(seed, config), config, name, seed)


@pytest.mark.parametrize("name", ["functional", pytest.param("rtl", marks=pytest.mark.rtl)])
@pytest.mark.parametrize("config", ["1x4x4", "1x4x8"])
def test_tensors_larger_than_every_scratchpad(config: str, name: str) -> None:
    check(larger_than_everything(PRESETS[config]), PRESETS[config], name, 0)
