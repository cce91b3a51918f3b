"""Published networks end to end: exact accuracies, and outputs beside onnxruntime's.

The networks and their data are not part of the project: tests skip where ``../shared/models`` is
absent.
"""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import accelc
from accelc.evaluate import evaluate
from accelc.inputs import read_labelled

Array = NDArray[Any]
ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "models"
DIGITS = ROOT / "models" / "digits_resnet8_int8.onnx"


def require(path: Path) -> Path:
    if not path.is_file():
        pytest.skip(f"{path.name} is not here ({path.parent} is not part of the project)")
    return path


@pytest.mark.parametrize(
    ("network", "data", "correct", "samples"),
    [
        (DIGITS, ROOT / "models" / "digits_test.npz", 446, 450),
        (SHARED / "t_kws_dscnn_q.onnx", SHARED / "data" / "kws_500.npz", 459, 500),
        (SHARED / "t_ic_resnet8_q.onnx", SHARED / "data" / "cifar10_250.npz", 219, 250),
        (SHARED / "t_vww_q.onnx", SHARED / "data" / "vww_200.npz", 176, 200),
    ],
    ids=["digits", "kws", "ic", "vww"],
)
def test_accuracy_is_exactly_that_of_the_reference(
    network: Path, data: Path, correct: int, samples: int
) -> None:
    session = accelc.load(accelc.compile(require(network)), "functional")
    labelled = read_labelled(require(data), session.inputs, None)
    (tally,), _ = evaluate([session], labelled.batches(), [None])
    assert (tally.correct, tally.labelled) == (correct, samples)


def predictors(left: int, up: int, corner: int) -> tuple[int, ...]:
    """What the five filters of PNG add to a byte."""
    near = min((left, up, corner), key=lambda v: abs(left + up - corner - v))
    return 0, left, up, (left + up) // 2, near


def read_png(path: Path) -> Array:
    """An 8-bit RGB image without interlacing, ``(h, w, 3)`` uint8."""
    data, position, packed = path.read_bytes(), 8, b""
    width = height = 0
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        kind, body = data[position + 4 : position + 8], data[position + 8 : position + 8 + length]
        if kind == b"IHDR":
            width, height = (int.from_bytes(body[k : k + 4], "big") for k in (0, 4))
            assert body[8:] == bytes([8, 2, 0, 0, 0])
        elif kind == b"IDAT":
            packed += body
        position += length + 12
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 3 * width)
    image = np.zeros((height + 1, 3 * width + 3), np.int64)  # a black line above, a pixel left
    for row, line in enumerate(lines):
        above, here = image[row], image[row + 1]
        for k, value in enumerate(line[1:].tolist(), 3):
            left, up, corner = int(here[k - 3]), int(above[k]), int(above[k - 3])
            here[k] = (value + predictors(left, up, corner)[line[0]]) & 255
    return image[1:, 3:].reshape(height, width, 3).astype(np.uint8)


def shrink(image: Array, size: int) -> Array:
    """Bilinear resampling to ``(size, size, 3)`` uint8, pixels centred."""
    for axis in (0, 1):
        extent = image.shape[axis]
        at = ((np.arange(size) + 0.5) * extent / size - 0.5).clip(0, extent - 1)
        low = np.floor(at).astype(int)
        share = (at - low).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        high = np.minimum(low + 1, extent - 1)
        image = image.take(low, axis) * (1 - share) + image.take(high, axis) * share
    return np.rint(image).astype(np.uint8)


@pytest.mark.parametrize(
    ("photo", "label"), [("cat", 286), ("sunflower", 986), ("bird", 20)], ids=lambda v: str(v)
)
def test_photos_are_recognized(photo: str, label: int) -> None:
    network = require(SHARED / "t_coral_mnv1_05_160_q.onnx")
    image = shrink(read_png(require(SHARED / "data" / "photos" / f"{photo}.png")), 160)
    session = accelc.load(accelc.compile(network), "functional")
    (scores,) = session.run({"input": image[None]}).values()
    assert int(scores.reshape(-1).argmax()) == label


def runtime(path: Path, feeds: dict[str, Array]) -> list[Array]:
    """onnxruntime in the mode that is right for int8 on x86."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = ort.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.parametrize(
    "name",
    [
        "t_ad_q", "mlon_kws_m_qoperator", "t_coral_mnv1_05_160_q", "t_kws_dscnn_q",
        "t_ic_resnet8_q", "t_vww_q",
    ],
)  # fmt: skip
def test_outputs_are_those_of_onnxruntime(name: str) -> None:
    path = require(SHARED / f"{name}.onnx")
    artifact = accelc.compile(path)
    session, on_cpu = accelc.load(artifact, "functional"), accelc.load(artifact, "cpu")
    rng = np.random.default_rng(11)
    differing = total = 0
    for _ in range(20):
        feeds: dict[str, Array] = {}
        for value, kind in session.inputs.items():
            noise = rng.normal(size=kind.shape)
            if kind.dtype.kind != "f":
                limits = np.iinfo(kind.dtype)
                noise = rng.integers(limits.min, limits.max + 1, kind.shape)
            feeds[value] = noise.astype(kind.dtype)
        ours, again = session.run(feeds), on_cpu.run(feeds)
        for (output, found), wanted in zip(ours.items(), runtime(path, feeds), strict=True):
            assert found.tobytes() == again[output].tobytes()
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            differing += int((found != wanted).sum())
            total += found.size
    assert differing <= total / 10_000, f"{differing} of {total}"
