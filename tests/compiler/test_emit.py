import numpy as np
import pytest

from accelc.compiler.accelerator import lower
from accelc.compiler.emit import transfer_bytes
from accelc.compiler.integer import ConvAttrs
from accelc.compiler.random_graphs import GraphBuilder, random_graph
from accelc.isa.codec import decode_all
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.spec import Finish, Store


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
def test_layers_partition_the_program(config: AccelConfig) -> None:
    for seed in range(10):
        print(f"seed {seed}")
        graph = random_graph(seed, config)
        program = lower(graph, config).program
        assert [layer.name for layer in program.layers] == [node.name for node in graph.nodes]
        first = 0
        for layer in program.layers:
            assert layer.first == first
            assert isinstance(program.instructions[layer.last], Store)
            first = layer.last + 1
        assert first == len(program.instructions) - 1
        assert isinstance(program.instructions[first], Finish)
        moved = sum(transfer_bytes(i, config) for i in program.instructions)
        assert sum(layer.dram_bytes for layer in program.layers) == moved


def test_segments_hold_constants_and_decodable_instructions() -> None:
    config = PRESETS["1x8x8"]
    program = lower(random_graph(1, config), config).program
    *constants, (address, data) = program.segments()
    assert tuple(constants) == program.constants
    assert address == program.instructions_address
    assert decode_all(data) == program.instructions
    assert address + len(data) <= program.memory_bytes


def test_work_and_traffic_of_a_convolution() -> None:
    config = PRESETS["1x16x16"]
    b = GraphBuilder(config, np.random.default_rng(0))
    x = b.input((1, 8, 8, 24))
    y = b.conv(x, 40, ConvAttrs(kernel=(3, 3), stride=(2, 2), pads=(1, 1, 1, 1)))
    z = b.depthwise(y, ConvAttrs(kernel=(4, 4)))
    program = lower(b.graph(z), config).program
    conv, pool = program.layers
    assert conv.macs == 4 * 4 * 40 * 9 * 24
    assert conv.moved_bytes == 8 * 8 * 24 + 40 * 9 * 24 + 2 * 4 * 40 + 4 * 4 * 40
    assert pool.macs == 16 * 40


def test_what_no_window_touches_need_not_move() -> None:
    config = PRESETS["1x16x16"]
    b = GraphBuilder(config, np.random.default_rng(0))
    x = b.input((1, 9, 8, 16))
    y = b.conv(x, 32, ConvAttrs(kernel=(1, 1), stride=(2, 2)))
    (layer,) = lower(b.graph(y), config).program.layers
    assert layer.moved_bytes == 5 * 4 * 16 + 16 * 32 + 2 * 4 * 32 + 5 * 4 * 32
    assert layer.moved_bytes <= layer.dram_bytes


def test_regions_do_not_overlap_while_alive() -> None:
    config = PRESETS["1x8x8"]
    program = lower(random_graph(4, config, nodes=8), config).program
    fixed = [(a, len(d)) for a, d in program.constants]
    fixed += [(r.address, r.nbytes) for r in program.inputs]
    fixed.append((program.instructions_address, 64 * len(program.instructions)))
    fixed.sort()
    for (start, nbytes), (following, _) in zip(fixed, fixed[1:], strict=False):
        assert start + nbytes <= following
