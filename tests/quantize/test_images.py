"""A folder of images as calibration data: declared preprocessing, pixel for pixel."""

import re
from pathlib import Path

import numpy as np
import pytest

from accelc.compiler.graph import TensorType
from accelc.isa.errors import InputError
from accelc.quantize_images import Preprocessing, parse_preprocessing, read_images

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
PIXELS = np.random.default_rng(5).integers(0, 256, (6, 4, 3)).astype(np.uint8)
NCHW = {"x": TensorType((1, 3, 6, 4), np.dtype(np.float32))}
NHWC = {"x": TensorType((1, 6, 4, 3), np.dtype(np.float32))}
GRAY = {"x": TensorType((1, 1, 6, 4), np.dtype(np.float32))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    Image.fromarray(PIXELS).save(tmp_path / "b.png")
    Image.fromarray(PIXELS[::-1]).save(tmp_path / "inner" / "a.bmp")
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def first(folder: Path, types: dict[str, TensorType], *assignments: str) -> np.ndarray:
    runs = read_images(folder, types, parse_preprocessing(assignments), None).runs()
    return next(iter(runs)).inputs["x"][0]


def test_every_image_in_order_of_name(folder: Path) -> None:
    runs = list(read_images(folder, NHWC, Preprocessing(scale=1.0), None).runs())
    assert np.array_equal(runs[0].inputs["x"][0], PIXELS)
    assert np.array_equal(runs[1].inputs["x"][0], PIXELS[::-1])
    assert len(runs) == 2


def test_layouts_and_channels(folder: Path) -> None:
    plain = PIXELS.astype(np.float32)
    assert np.array_equal(first(folder, NCHW, "scale=1"), plain.transpose(2, 0, 1))
    assert np.array_equal(first(folder, NHWC, "scale=1", "channels=bgr"), plain[..., ::-1])
    gray = first(folder, GRAY, "scale=1")
    np.testing.assert_allclose(gray[0], plain @ [0.299, 0.587, 0.114], atol=1)


def test_scale_mean_and_std(folder: Path) -> None:
    found = first(folder, NHWC, "scale=1/255", "mean=0.5,0.4,0.3", "std=0.1,0.2,0.5")
    expected = (PIXELS / 255.0 - [0.5, 0.4, 0.3]) / [0.1, 0.2, 0.5]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32


@pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
def test_pictures_of_another_shape_fit(folder: Path, fit: str) -> None:
    wide = np.full((4, 8, 3), 200, np.uint8)
    Image.fromarray(wide).save(folder / "a.png")
    square = {"x": TensorType((1, 4, 4, 3), np.dtype(np.float32))}
    found = first(folder, square, "scale=1", f"fit={fit}")
    assert found.shape == (4, 4, 3)
    assert (found == 200).all() == (fit != "pad") and found.max() == 200


@pytest.mark.parametrize(
    ("assignments", "types", "message"),
    [
        ([], NCHW, "images need --image scale=..."),
        (["scale"], NCHW, "--image needs KEY=VALUE"),
        (["scale=1", "colour=red"], NCHW, "not 'colour=red'"),
        (["scale=bright"], NCHW, "--image scale= does not take 'bright'"),
        (["scale=1/0"], NCHW, "--image scale= does not take '1/0'"),
        (["scale=0"], NCHW, "must not be 0"),
        (["scale=1", "size=0x4"], NCHW, "--image size= does not take '0x4'"),
        (["scale=1", "size=8"], NCHW, "size=8x8 is not that of input 'x', 6x4"),
        (["scale=1", "layout=hwcn"], NCHW, "layout is one of nchw, nhwc, not 'hwcn'"),
        (["scale=1", "layout=nhwc"], NCHW, "has 4 channels as nhwc"),
        (["scale=1", "channels=gray"], NCHW, "has 3 channels"),
        (["scale=1", "mean=1,2"], NCHW, "--image mean= takes 1 or 3 numbers"),
        (["scale=1"], {"x": TensorType((1, 10), np.dtype(np.float32))}, "an input of four axes"),
        (["scale=1"], NCHW | {"y": GRAY["x"]}, "need a network with one input"),
    ],
)  # fmt: skip
def test_errors(
    folder: Path, assignments: list[str], types: dict[str, TensorType], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_images(folder, types, parse_preprocessing(assignments), None)
    assert "\n" not in str(caught.value)


def test_damaged_and_missing_images(folder: Path, tmp_path: Path) -> None:
    (folder / "a.png").write_bytes(b"\x89PNG nothing")
    with pytest.raises(InputError, match="cannot read image"):
        first(folder, NCHW, "scale=1")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="holds no images"):
        first(empty, NCHW, "scale=1")
