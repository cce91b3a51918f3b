"""Whole boards, simulated, compute what the functional simulator computes, through the UART."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import accelc
from accelc.artifact import Artifact
from accelc.boards.registry import BOARDS
from accelc.inputs import random_inputs, read_labelled
from accelc.session import Session

pytestmark = pytest.mark.rtl

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "models"
DIGITS = (ROOT / "models" / "digits_resnet8_int8.onnx", ROOT / "models" / "digits_test.npz")
#: What a board was made for: network, data, samples, and the bar in milliseconds at its clock.
BARS = {
    "icebreaker": ("t_kws_dscnn_q.onnx", "kws_500.npz", 5, 20.0),
    "ulx3s-25f": ("t_ic_resnet8_q.onnx", "cifar10_250.npz", 3, 6.0),
    "ulx3s-85f": ("t_ic_resnet8_q.onnx", "cifar10_250.npz", 3, 1.6),
}
#: Of a network that is here only to run.
SAMPLES = 2


Inputs = dict[str, NDArray]


def samples(artifact: Artifact, data: Path, count: int) -> list[Inputs]:
    with Session(artifact) as session:
        return [x for x, _ in read_labelled(data, session.inputs, count).batches()]


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
def test_a_small_network_runs_on_every_board(board: str, small_network: onnx.ModelProto) -> None:
    artifact = accelc.compile(small_network, "vta", BOARDS[board].config)
    with Session(artifact) as session:
        inputs = [random_inputs(session.inputs, seed=seed) for seed in range(SAMPLES)]
    assert np.any(inputs[0]["image"] != inputs[1]["image"])
    compare(board, artifact, inputs)


@pytest.mark.parametrize("board", ["icebreaker", "ulx3s-25f"])
def test_the_shipped_network_runs_on_boards_with_room_for_it(board: str) -> None:
    model, data = DIGITS
    artifact = accelc.compile(model, "vta", BOARDS[board].config)
    compare(board, artifact, samples(artifact, data, SAMPLES))


@pytest.mark.parametrize("board", BARS)
def test_mlperf_tiny_within_its_time(board: str) -> None:
    network, data, count, milliseconds = BARS[board]
    model, data_set = SHARED / network, SHARED / "data" / data
    if not (model.is_file() and data_set.is_file()):
        pytest.skip(f"{network} is not in {SHARED}")
    artifact = accelc.compile(model, "vta", BOARDS[board].config)
    cycles = compare(board, artifact, samples(artifact, data_set, count))
    taken = 1e3 * cycles / BOARDS[board].clock_hz
    assert taken < milliseconds
