"""A folder of images as calibration data, by declared preprocessing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.graph import TensorType
from accelc.isa.errors import InputError, ToolError
from accelc.quantize_data import Sample, Samples, Types

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_LAYOUTS = ("nchw", "nhwc")
_CHANNELS = {"gray": "L", "rgb": "RGB", "bgr": "RGB"}
_FITS = ("stretch", "crop", "pad")


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes a network's input: ``(pixel * scale - mean) / std``, pixels 0 to 255.

    Members:
        size: lines and columns; None takes the network's.
        scale: what pixels are multiplied by, 1/255 for networks that take 0 to 1.
        mean, std: one number, or one per channel in the network's order.
        layout: ``nchw`` or ``nhwc``; None finds it in the network's input.
        channels: ``rgb``, ``bgr`` or ``gray``; None takes rgb or gray by the network's input.
        fit: how a picture of another shape fits: ``stretch``, ``crop`` its middle, or ``pad`` with
            black.
    """

    scale: float
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    size: tuple[int, int] | None = None
    layout: str | None = None
    channels: str | None = None
    fit: str = "stretch"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("layout", (None, *_LAYOUTS)), ("channels", (None, *_CHANNELS)), ("fit", _FITS)
        ):  # fmt: skip
            if getattr(self, name) not in allowed:
                choices = ", ".join(str(choice) for choice in allowed if choice)
                raise InputError(
                    f"image preprocessing: {name} is one of {choices}, not {getattr(self, name)!r}"
                )
        if any(s == 0 for s in self.std) or self.scale == 0:
            raise InputError("image preprocessing: scale and std must not be 0")


def parse_preprocessing(assignments: Sequence[str]) -> Preprocessing:
    """``["scale=1/255", "mean=0.5,0.5,0.5"]`` as :class:`Preprocessing`.

    Raises:
        InputError: an unknown key, a malformed value, or no ``scale``.
    """
    values: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if key not in _PARSERS or not equals:
            raise InputError(
                f"--image needs KEY=VALUE, a key of {', '.join(_PARSERS)}; not {text!r}"
            )
        try:
            values[key] = _PARSERS[key](value)
        except (ValueError, ZeroDivisionError):
            raise InputError(f"--image {key}= does not take {value!r}") from None
    if "scale" not in values:
        raise InputError(
            "images need --image scale=..., what their pixels (0 to 255) are multiplied by: 1/255"
            " for a network that takes 0 to 1, 1 for one that takes 0 to 255"
        )
    return Preprocessing(**values)


def _size(text: str) -> tuple[int, int]:
    lines, _, columns = text.partition("x")
    size = int(lines), int(columns or lines)
    if min(size) < 1:
        raise ValueError(text)
    return size


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(Fraction(part)) for part in text.split(","))


_PARSERS = {
    "size": _size,
    "scale": lambda text: float(Fraction(text)),
    "mean": _numbers,
    "std": _numbers,
    "layout": str.lower,
    "channels": str.lower,
    "fit": str.lower,
}


def read_images(
    folder: Path, types: Types, preprocessing: Preprocessing, limit: int | None
) -> Samples:
    """Every image in ``folder`` and the folders in it, in the order of their names.

    Raises:
        ToolError: Pillow is not installed.
        InputError: no images, an unreadable one, or a network that does not take images.
    """
    try:
        import PIL  # noqa: F401
    except ModuleNotFoundError:
        raise ToolError(
            "reading images needs Pillow: pip install 'accelc[images]', or give an .npz file"
        ) from None
    if len(types) != 1:
        raise InputError(f"images need a network with one input, this has {len(types)}; give .npz")
    ((name, kind),) = types.items()
    ready = _resolved(preprocessing, name, kind)
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not paths:
        raise InputError(f"{folder} holds no images ({', '.join(SUFFIXES)})")

    def source() -> Iterator[Sample]:
        for path in paths:
            yield Sample({name: load_image(path, ready).astype(kind.dtype)})

    return Samples(types, source, limit)


def _resolved(asked: Preprocessing, name: str, kind: TensorType) -> Preprocessing:
    """``asked`` with what it leaves open taken from the network's input."""
    if len(kind.shape) != 4:
        raise InputError(
            f"images need an input of four axes, {name!r} is {list(kind.shape)}; give .npz"
        )
    layout = asked.layout
    if layout is None:
        layout = "nchw" if kind.shape[1] in (1, 3) else "nhwc"
    order = kind.shape if layout == "nhwc" else (kind.shape[0], *kind.shape[2:], kind.shape[1])
    count, size = order[3], (order[1], order[2])
    if count not in (1, 3):
        raise InputError(
            f"input {name!r} {list(kind.shape)} has {count} channels as {layout}; images have 1"
            " or 3"
        )
    channels = asked.channels or ("gray" if count == 1 else "rgb")
    if (channels == "gray") != (count == 1):
        raise InputError(f"input {name!r} has {count} channels, --image channels={channels} not")
    for key in ("mean", "std"):
        if len(getattr(asked, key)) not in (1, count):
            raise InputError(f"--image {key}= takes 1 or {count} numbers for input {name!r}")
    if asked.size not in (None, size):
        raise InputError(
            f"--image size={asked.size[0]}x{asked.size[1]} is not that of input {name!r},"
            f" {size[0]}x{size[1]}"
        )
    return replace(asked, layout=layout, channels=channels, size=size)


def load_image(path: Path, ready: Preprocessing) -> NDArray[np.float32]:
    """One image, ``(c, h, w)`` or ``(h, w, c)`` float32; ``ready`` leaves nothing open.

    Raises:
        InputError: Pillow cannot read it.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    assert ready.size is not None and ready.channels is not None
    lines, columns = ready.size
    try:
        with Image.open(path) as opened:
            picture = opened.convert(_CHANNELS[ready.channels])
    except (OSError, UnidentifiedImageError, ValueError) as error:
        raise InputError(f"cannot read image {path}: {error}") from error
    if picture.size != (columns, lines):
        method = Image.Resampling.BILINEAR
        match ready.fit:
            case "crop":
                picture = ImageOps.fit(picture, (columns, lines), method)
            case "pad":
                picture = ImageOps.pad(picture, (columns, lines), method)
            case _:
                picture = picture.resize((columns, lines), method)
    pixels = np.asarray(picture, np.float32).reshape(lines, columns, -1)
    if ready.channels == "bgr":
        pixels = pixels[..., ::-1]
    values: NDArray[np.float32] = (
        pixels * np.float32(ready.scale) - np.array(ready.mean, np.float32)
    ) / np.array(ready.std, np.float32)
    return np.ascontiguousarray(values.transpose(2, 0, 1) if ready.layout == "nchw" else values)
