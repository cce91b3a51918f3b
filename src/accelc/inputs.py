"""Arrays to run a network on: from files, from a seed, from a labelled data set."""

import io
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.graph import TensorType
from accelc.compiler.memory_limit import require_memory
from accelc.isa.errors import InputError

Array = NDArray[Any]
#: What NumPy raises for files that are missing, damaged or something else.
UNREADABLE = (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile)


def read_array(path: Path) -> Array:
    """Read one ``.npy`` file.

    Raises:
        InputError: the file is missing or is not one array.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except UNREADABLE as error:
        raise InputError(f"cannot read {path} as .npy: {_reason(error)}") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} holds several arrays; give one .npy per input")
    return array


def _reason(error: Exception) -> str:
    """NumPy's error without the path again, and without the advice to read pickles."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it is no array of numbers" if "pickle" in str(error) else str(error)


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """An ``.npz`` file of ``arrays``; unlike ``numpy.savez`` it takes any name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def read_inputs(assignments: Sequence[str]) -> dict[str, Array]:
    """``["image=cat.npy"]`` as arrays by name."""
    arrays: dict[str, Array] = {}
    for text in assignments:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise InputError(f"--input needs NAME=FILE.npy, not {text!r}")
        if name in arrays:
            raise InputError(f"input {name!r} is given twice")
        arrays[name] = read_array(Path(path))
    return arrays


def count_correct(scores: Array, labels: Array) -> int:
    """How many of ``labels`` ``(n,)`` have the largest score; ``scores`` are ``(at least n, ...)``.

    Raises:
        InputError: a label that is no class.
    """
    scores = scores.reshape(scores.shape[0], -1)[: len(labels)]
    beyond = labels[(labels < 0) | (labels >= scores.shape[1])]
    if len(beyond):
        raise InputError(
            f"label {beyond[0]} is none of the output's {scores.shape[1]} classes, "
            "which count from 0"
        )
    return int((scores.argmax(axis=1) == labels).sum())


def random_inputs(
    types: Mapping[str, TensorType],
    seed: int,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, Array]:
    """Repeatable noise: integers over their whole range, floats standard normal, or uniform over
    the smallest and the largest value that ``ranges`` has for them; an open dimension is 1.

    Raises:
        InputError: an input of an element type there is no noise for, or of no known rank.
        DoesNotFitError: this machine's memory does not hold an input.
    """
    rng = np.random.default_rng(seed)
    arrays: dict[str, Array] = {}
    for name, kind in types.items():
        dtype = np.dtype(kind.dtype)
        shape = tuple(1 if size < 0 else size for size in kind.shape)
        # made as float64 or int64, then converted
        require_memory(math.prod(shape) * (8 + dtype.itemsize), f"a random input {name!r}")
        if dtype.kind in "iu":
            # index-like int32 and int64 inputs stay small
            limits = np.iinfo(dtype) if dtype.itemsize == 1 else None
            low, high = (limits.min, limits.max + 1) if limits else (0, 2)
            arrays[name] = rng.integers(low, high, shape).astype(dtype)
        elif dtype.kind == "b":
            arrays[name] = rng.integers(0, 2, shape).astype(dtype)
        elif dtype.kind == "f" and ranges and name in ranges:
            arrays[name] = rng.uniform(*ranges[name], shape).astype(dtype)
        elif dtype.kind == "f":
            arrays[name] = rng.standard_normal(shape).astype(dtype)
        else:
            raise InputError(f"cannot make random {dtype} for input {name!r}; give it with --input")
    return arrays


@dataclass(frozen=True)
class Labelled:
    """A labelled set ready for a network: ``x`` has the network's element type, batch first."""

    name: str
    #: ``(samples, *shape of one sample)``.
    x: Array
    #: ``(samples,)`` class numbers.
    y: Array
    batch: int
    shape: tuple[int, ...]
    #: What was done to the data on the way, for the user to know.
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.x)

    def batches(self) -> Iterator[tuple[dict[str, Array], Array]]:
        """Inputs and their labels; the last batch is filled up with zeros that have no label."""
        for start in range(0, len(self.x), self.batch):
            part = self.x[start : start + self.batch]
            full = np.zeros((self.batch, *part.shape[1:]), part.dtype)
            full[: len(part)] = part
            yield {self.name: full.reshape(self.shape)}, self.y[start : start + self.batch]


def read_labelled(path: Path, types: Mapping[str, TensorType], limit: int | None) -> Labelled:
    """Read ``x`` and ``y`` of an ``.npz`` file for a network with one input.

    uint8 pixels become float by value, or int8 by subtracting 128, if the network asks for that.

    Raises:
        InputError: the file lacks them, or they do not fit the network's input.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path} must be an .npz with arrays x and y, it is one array")
        with archive:
            x, y = archive["x"], archive["y"]
    except KeyError as error:
        raise InputError(f"{path} must be an .npz with arrays x and y: {error.args[0]}") from error
    except UNREADABLE as error:
        raise InputError(f"{path} must be an .npz with arrays x and y: {_reason(error)}") from error
    if len(types) != 1:
        raise InputError(f"labelled data needs a network with one input, this has {len(types)}")
    ((name, kind),) = types.items()
    if not kind.shape:
        raise InputError(
            f"labelled data needs a network with samples, input {name!r} is one number"
        )
    sample = kind.shape[1:]
    if x.ndim == len(kind.shape):  # open dimensions take what there is
        sizes = zip(sample, x.shape[1:], strict=True)
        sample = tuple(have if want < 0 else want for want, have in sizes)
    if -1 in sample:
        raise InputError(
            f"{path}: samples of {list(x.shape[1:])} leave open dimensions of {list(sample)} open;"
            " give samples of the network's rank"
        )
    batch = max(kind.shape[0], 1)
    if not x.ndim or y.ndim != 1 or len(x) != len(y) or not len(x):
        raise InputError(
            f"{path}: samples x need one label each, x is {list(x.shape)}, y is {list(y.shape)}"
        )
    if y.dtype.kind not in "iuf" or not (y == np.rint(y)).all():
        raise InputError(f"{path}: labels y must be class numbers, not {y.dtype} {y[:3].tolist()}")
    if x[:1].size != int(np.prod(sample)):
        raise InputError(
            f"{path}: a sample is {list(x.shape[1:])}, the network takes {list(sample)}"
        )
    x, y = x[:limit], y[:limit]
    notes: list[str] = []
    if x.shape[1:] != sample:
        notes.append(f"samples reshaped from {list(x.shape[1:])} to {list(sample)}")
        x = x.reshape(len(x), *sample)
    if x.dtype != kind.dtype:
        x = _convert(x, np.dtype(kind.dtype), path, notes)
    return Labelled(name, x, y, batch, (batch, *sample), tuple(notes))


def _convert(x: Array, dtype: np.dtype[Any], path: Path, notes: list[str]) -> Array:
    if x.dtype == np.uint8 and dtype == np.int8:
        notes.append("uint8 data minus 128 is the network's int8 input")
        return (x.astype(np.int16) - 128).astype(np.int8)
    if x.dtype == np.uint8 and dtype.kind == "f":
        notes.append(f"uint8 data taken as {dtype}")
        return x.astype(dtype)
    raise InputError(f"{path}: x is {x.dtype}, the network takes {dtype}")
