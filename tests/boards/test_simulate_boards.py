"""Whole boards, simulated, compute what the functional simulator computes, through the UART."""

import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import accelc
from accelc.artifact import Artifact
from accelc.boards.registry import BOARDS
from accelc.inputs import random_inputs, read_labelled
from accelc.session import Session

pytestmark = [
    pytest.mark.rtl,
    pytest.mark.skipif(
        "ACCELC_WHOLE_BOARDS" not in os.environ,
        reason="whole boards take long to build; set ACCELC_WHOLE_BOARDS=1 to run them",
    ),
]

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "models"
DIGITS = (ROOT / "models" / "digits_resnet8_int8.onnx", ROOT / "models" / "digits_test.npz")
#: What a board was made for: network, data, and the bar in cycles: 20 ms at 40 MHz, 6 ms at 62.5,
#: 1.6 ms at 75.
BARS = {
    "icebreaker": ("t_kws_dscnn_q.onnx", "kws_500.npz", 800_000),
    "ulx3s-25f": ("t_ic_resnet8_q.onnx", "cifar10_250.npz", 375_000),
    "ulx3s-85f": ("t_ic_resnet8_q.onnx", "cifar10_250.npz", 120_000),
}
SAMPLES = 3


Inputs = dict[str, NDArray]


def small_network() -> onnx.ModelProto:
    """Three convolutions, one of them depthwise, on 8 x 8 pixels: a few KiB of memory."""
    path = ROOT / "benchmarks" / "networks.py"
    spec = importlib.util.spec_from_file_location("networks", path)
    assert spec is not None and spec.loader is not None
    networks = sys.modules["networks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(networks)
    builder = networks.Builder(seed=3)
    x = builder.conv_relu(builder.input("image", 4, 8), "conv1", 8, 3)
    x = builder.conv_relu(x, "conv2", 8, 3, 2, groups=8)
    x = builder.conv_relu(x, "conv3", 4, 1)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 4, 8, 8])
    result = helper.make_tensor_value_info(x.name, TensorProto.FLOAT, [1, 4, 4, 4])
    graph = helper.make_graph(builder.nodes, "small", [image], [result], builder.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def samples(artifact: Artifact, data: Path) -> list[Inputs]:
    with Session(artifact) as session:
        return [x for x, _ in read_labelled(data, session.inputs, SAMPLES).batches()]


def compare(board: str, artifact: Artifact, inputs: Iterable[Inputs]) -> int:
    """Run samples on both, which must agree to the bit; cycles of one on the board."""
    cycles = 0
    # leaving the simulation is an error if a rule of the memory chip was broken
    with Session(artifact) as expected, Session(artifact, f"sim:{board}") as session:
        for values in inputs:
            right, outputs = expected.run(values), session.run(values)
            assert {name: value.tobytes() for name, value in outputs.items()} == {
                name: value.tobytes() for name, value in right.items()
            }
            cycles = max(cycles, session.cycles)
    assert cycles > 0
    return cycles


@pytest.mark.parametrize("board", BOARDS)
def test_a_small_network_runs_on_every_board(board: str) -> None:
    artifact = accelc.compile(small_network(), "vta", BOARDS[board].config)
    with Session(artifact) as session:
        inputs = [random_inputs(session.inputs, seed=seed) for seed in range(SAMPLES)]
    assert np.any(inputs[0]["image"] != inputs[1]["image"])
    compare(board, artifact, inputs)


@pytest.mark.parametrize("board", [name for name, board in BOARDS.items() if board.memory.sdram])
def test_the_shipped_network_runs_on_boards_with_a_memory_chip(board: str) -> None:
    model, data = DIGITS
    artifact = accelc.compile(model, "vta", BOARDS[board].config)
    compare(board, artifact, samples(artifact, data))


@pytest.mark.parametrize("board", BARS)
def test_mlperf_tiny_within_its_time(board: str) -> None:
    network, data, limit = BARS[board]
    model, data_set = SHARED / network, SHARED / "data" / data
    if not (model.is_file() and data_set.is_file()):
        pytest.skip(f"{network} is not in {SHARED}")
    artifact = accelc.compile(model, "vta", BOARDS[board].config)
    assert compare(board, artifact, samples(artifact, data_set)) < limit
