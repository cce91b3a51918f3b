"""Networks compiled for the boards: the reference's accuracy over the whole data sets.

On the functional simulator, whose outputs those of the boards equal bit for bit
(test_simulate_boards.py). Scales that 15 bits of multiplier round may move an output by a step,
and with it, now and then, the answer.
"""

from pathlib import Path

import pytest

import accelc
from accelc.boards.registry import find
from accelc.evaluate import evaluate
from accelc.inputs import read_labelled

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "models"
#: Network, data, and how many samples the reference gets right.
DIGITS = (ROOT / "models" / "digits_resnet8_int8.onnx", ROOT / "models" / "digits_test.npz", 446)
KWS = (SHARED / "t_kws_dscnn_q.onnx", SHARED / "data" / "kws_500.npz", 459)
IC = (SHARED / "t_ic_resnet8_q.onnx", SHARED / "data" / "cifar10_250.npz", 219)
VWW = (SHARED / "t_vww_q.onnx", SHARED / "data" / "vww_200.npz", 176)


def check(board: str, network: Path, data: Path, correct: int) -> None:
    for path in (network, data):
        if not path.is_file():
            pytest.skip(f"{path.name} is not here ({path.parent} is not part of the project)")
    session = accelc.load(accelc.compile(network, "vta", find(board).config), "functional")
    (tally,), _ = evaluate([session], read_labelled(data, session.inputs, None).batches(), [None])
    assert tally.correct == correct


@pytest.mark.parametrize(
    "board", ["icebreaker", "colorlight-i5", "tang-nano-20k", "ulx3s-25f", "ulx3s-85f"]
)
def test_digits(board: str) -> None:
    check(board, *DIGITS)


@pytest.mark.parametrize("board", ["icebreaker", "tang-nano-20k", "ulx3s-25f", "ulx3s-85f"])
def test_keywords(board: str) -> None:
    check(board, *KWS)


@pytest.mark.parametrize("board", ["ulx3s-25f", "ulx3s-85f"])
def test_images(board: str) -> None:
    check(board, *IC)


def test_images_where_a_multiplier_has_15_bits() -> None:
    network, data, correct = IC
    assert find("tang-nano-20k").config.mult_bits == 15
    check("tang-nano-20k", network, data, correct + 1)


def test_persons() -> None:
    check("ulx3s-25f", *VWW)
