"""Whole boards, simulated, compute what the functional simulator computes, through the UART."""

from pathlib import Path

import pytest

import accelc
from accelc.boards.registry import BOARDS
from accelc.inputs import read_labelled
from accelc.session import Session

pytestmark = pytest.mark.rtl

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "models"
DIGITS = (ROOT / "models" / "digits_resnet8_int8.onnx", ROOT / "models" / "digits_test.npz")
#: What a board was made for: network, data, bar in milliseconds.
BARS = {
    "icebreaker": ("t_kws_dscnn_q.onnx", "kws_500.npz", 20.0),
    "ulx3s-25f": ("t_ic_resnet8_q.onnx", "cifar10_250.npz", 6.0),
    "ulx3s-85f": ("t_ic_resnet8_q.onnx", "cifar10_250.npz", 1.6),
}
SAMPLES = 3


def compare(board: str, model: Path, data: Path) -> float:
    """Run samples on both, which must agree to the bit; milliseconds of one on the board."""
    artifact = accelc.compile(model, "vta", BOARDS[board].config)
    # leaving the simulation is an error if a rule of the memory chip was broken
    with Session(artifact) as expected, Session(artifact, f"sim:{board}") as session:
        cycles = set()
        for inputs, _ in read_labelled(data, session.inputs, SAMPLES).batches():
            right, outputs = expected.run(inputs), session.run(inputs)
            assert {name: value.tobytes() for name, value in outputs.items()} == {
                name: value.tobytes() for name, value in right.items()
            }
            cycles.add(session.cycles)
    assert session.cycles > 0
    return max(cycles) / BOARDS[board].clock_hz * 1e3


@pytest.mark.parametrize("board", BOARDS)
def test_the_shipped_network_runs_on_every_board(board: str) -> None:
    compare(board, *DIGITS)


@pytest.mark.parametrize("board", BARS)
def test_mlperf_tiny_within_its_time(board: str) -> None:
    network, data, limit = BARS[board]
    model, samples = SHARED / network, SHARED / "data" / data
    if not (model.is_file() and samples.is_file()):
        pytest.skip(f"{network} is not in {SHARED}")
    assert compare(board, model, samples) < limit
