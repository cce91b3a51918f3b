"""Lowered regions run on the golden semantics and compared with the integer reference."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from accelc.compiler.accelerator import LoweredRegion, LowerOptions, lower
from accelc.compiler.graph import Graph
from accelc.compiler.integer_reference import evaluate
from accelc.compiler.layout import pack, unpack
from accelc.isa.config import AccelConfig
from accelc.isa.semantics import State, execute

Feeds = Mapping[str, NDArray[np.int8]]
Check = Callable[..., LoweredRegion]


def random_feeds(graph: Graph, rng: np.random.Generator) -> dict[str, NDArray[np.int8]]:
    return {
        name: rng.integers(-128, 128, graph.types[name].shape, np.int64).astype(np.int8)
        for name in graph.inputs
    }


def run_region(lowered: LoweredRegion, feeds: Feeds, state: State) -> dict[str, NDArray[np.int8]]:
    """Outputs of ``lowered`` on a state whose memory already holds the program."""
    program, config = lowered.program, lowered.program.config
    for region in program.inputs:
        packing = lowered.packings[region.name]
        data = np.frombuffer(pack(feeds[packing.value], packing, config), np.uint8)
        assert data.size == region.nbytes
        state.memory[region.address : region.address + region.nbytes] = data
    for instruction in program.instructions:
        execute(instruction, state)
    outputs: dict[str, NDArray[np.int8]] = {}
    for region in program.outputs:
        data = state.memory[region.address : region.address + region.nbytes].tobytes()
        outputs[region.name] = unpack(data, lowered.packings[region.name], config)
    return outputs


@pytest.fixture
def check() -> Check:
    """Lower, verify, run twice on noise, compare both runs with the reference."""

    def run(
        graph: Graph, config: AccelConfig, seed: int = 0, options: LowerOptions | None = None
    ) -> LoweredRegion:
        print(f"seed {seed}, configuration {config.name}")
        rng = np.random.default_rng(seed)
        lowered = lower(graph, config, options=options)
        program = lowered.program
        memory = np.frombuffer(rng.bytes(program.memory_bytes), np.uint8).copy()
        for address, data in program.segments():
            memory[address : address + len(data)] = np.frombuffer(data, np.uint8)
        state = State(config, memory, seed)
        for _ in range(2):
            feeds = random_feeds(graph, rng)
            expected = evaluate(graph, feeds)
            outputs = run_region(lowered, feeds, state)
            assert set(outputs) == set(expected)
            for name, value in expected.items():
                np.testing.assert_array_equal(outputs[name], value, err_msg=name)
        return lowered

    return run
