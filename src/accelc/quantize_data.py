"""Calibration data, whatever it comes as, in the form a network takes it.

A source yields *samples*: one array per input, each with or without the batch axis. What a network
is run on is a *run*: full inputs, a batch of samples filled up with the last one.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.graph import TensorType
from accelc.inputs import UNREADABLE
from accelc.isa.errors import InputError

Array = NDArray[Any]
Types = Mapping[str, TensorType]


@dataclass(frozen=True)
class Run:
    """Inputs of one run; ``labels`` ``(count,)`` of the samples in it, the rest is filling."""

    inputs: dict[str, Array]
    count: int
    labels: Array | None


@dataclass(frozen=True)
class Sample:
    """One sample: arrays in the shape of the network's inputs, or without their first axis."""

    arrays: dict[str, Array]
    label: int | None = None


class Samples:
    """Data that can be gone through again and again.

    Members:
        notes: what was done to the data on the way, for the user to know.
    """

    def __init__(
        self,
        types: Types,
        open_source: Callable[[], Iterable[Sample]],
        limit: int | None,
    ) -> None:
        self.types = types
        self.notes: list[str] = []
        firsts = {kind.shape[0] if kind.shape else 1 for kind in types.values()}
        #: Whether a sample is all of the inputs: they have no batch axis in common.
        self._whole = len(firsts) > 1
        self._batch = 1 if self._whole else max(firsts, default=1)
        self._open = open_source
        self._limit = limit

    def runs(self) -> Iterator[Run]:
        """Everything, in order.

        Raises:
            InputError: a sample that does not fit the network, is not finite, or lacks its label;
                no samples at all.
        """
        batch = self._batch
        waiting: list[Sample] = []
        count = 0
        for sample in self._fitting():
            count += 1
            waiting.append(sample)
            if len(waiting) == batch:
                yield self._run(waiting, batch)
                waiting = []
            if count == self._limit:
                break
        if waiting:
            yield self._run(waiting, batch)
        if not count:
            raise InputError("the calibration data is empty; give at least one sample")

    def _run(self, samples: Sequence[Sample], batch: int) -> Run:
        filled = [*samples, *[samples[-1]] * (batch - len(samples))]
        inputs = {
            name: np.stack([s.arrays[name] for s in filled]).reshape(kind.shape)
            for name, kind in self.types.items()
        }
        given = [s.label for s in samples if s.label is not None]
        return Run(inputs, len(samples), np.array(given) if given else None)

    def _fitting(self) -> Iterator[Sample]:
        """Samples without batch axis, of the right type; batches of a source taken apart."""
        number = 0
        for sample in self._open():
            parts = {
                name: self._parts(name, kind, sample, number) for name, kind in self.types.items()
            }
            if extra := sorted(set(sample.arrays) - set(parts)):
                names = ", ".join(self.types)
                raise InputError(f"there is no input {extra[0]!r}; the network's are {names}")
            sizes = {name: len(part) for name, part in parts.items()}
            if len(set(sizes.values())) > 1:
                raise InputError(f"sample {number} has {sizes} samples per input, not one number")
            for index in range(next(iter(sizes.values()))):
                arrays = {name: part[index] for name, part in parts.items()}
                yield Sample(arrays, sample.label)
                number += 1

    def _parts(self, name: str, kind: TensorType, sample: Sample, number: int) -> Array:
        """The array of one input as ``(samples, ...)`` in the network's element type."""
        if name not in sample.arrays:
            raise InputError(
                f"sample {number} has no input {name!r}, only {', '.join(sample.arrays) or 'none'}"
            )
        array = self._converted(name, kind, np.asarray(sample.arrays[name]), number)
        one = kind.shape if self._whole else kind.shape[1:]
        if array.shape == one:
            return array[None]
        if not self._whole and array.ndim == len(kind.shape) and array.shape[1:] == one:
            return array
        if array.size == int(np.prod(one)):
            self._note(f"{name}: samples reshaped from {list(array.shape)} to {list(one)}")
            return array.reshape(1, *one)
        raise InputError(
            f"sample {number} of input {name!r} is {list(array.shape)}, the network takes"
            f" {list(one)}; reshape the data, or set the network's dimensions with --dim NAME=N"
        )

    def _converted(self, name: str, kind: TensorType, array: Array, number: int) -> Array:
        want = np.dtype(kind.dtype)
        if array.dtype != want:
            safe = array.dtype.kind in "iuf" and want.kind == "f"
            safe = safe or (array.dtype.kind in "iu" and want.kind in "iu")
            if not safe:
                raise InputError(
                    f"sample {number} of input {name!r} is {array.dtype}, the network takes {want};"
                    " convert the data"
                )
            self._note(f"{name}: {array.dtype} data taken as {want}")
            array = array.astype(want)
        if want.kind == "f" and not np.isfinite(array).all():
            raise InputError(
                f"sample {number} of input {name!r} holds NaN or infinity; repair it or leave it"
                " out"
            )
        return array

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


# ---- sources -------------------------------------------------------------------------------------


def read_npz(path: Path, types: Types, labels: str | None, limit: int | None) -> Samples:
    """Arrays named by input, samples along the first axis.

    A network with one input may also find its samples as ``x``.

    Raises:
        InputError: the file is unreadable, or its arrays are not the network's inputs.
    """
    try:
        archive = np.load(path, allow_pickle=False)
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read {path} as .npz: {reason}") from error
    if isinstance(archive, np.ndarray):
        arrays = _single(archive, types, path)
    else:
        with archive:
            arrays = _named(archive, types, path, labels)
    found = arrays.pop("", None)
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    counts |= {} if found is None else {labels or "": len(found) if found.ndim else 0}
    if len(set(counts.values())) != 1:
        raise InputError(f"{path}: arrays need one entry per sample each, they have {counts}")
    if found is not None and (
        found.ndim != 1 or found.dtype.kind not in "iuf" or not (found == np.rint(found)).all()
    ):
        raise InputError(
            f"{path}: labels must be one class number per sample, {labels!r} is {found.dtype}"
            f" {list(found.shape)}"
        )

    def source() -> Iterator[Sample]:
        for index in range(next(iter(counts.values()))):
            label = None if found is None else int(found[index])
            yield Sample({name: array[index] for name, array in arrays.items()}, label)

    return Samples(types, source, limit)


def _single(array: Array, types: Types, path: Path) -> dict[str, Array]:
    if len(types) != 1:
        raise InputError(f"{path} is one array, the network has {len(types)} inputs; give an .npz")
    return {next(iter(types)): array}


def _named(archive: Any, types: Types, path: Path, labels: str | None) -> dict[str, Array]:
    names = archive.files
    inputs = {name: name for name in types}
    if len(types) == 1 and not set(types) & set(names) and "x" in names:
        inputs = {next(iter(types)): "x"}
    missing = [name for name in inputs.values() if name not in names]
    if missing:
        raise InputError(
            f"{path} has no array {missing[0]!r} for that input of the network; it has"
            f" {', '.join(names) or 'none'}"
        )
    if labels is not None and labels not in names:
        raise InputError(f"{path} has no labels {labels!r}; it has {', '.join(names) or 'none'}")
    try:
        arrays = {name: archive[key] for name, key in inputs.items()}
        return arrays if labels is None else arrays | {"": archive[labels]}
    except UNREADABLE as error:
        raise InputError(f"cannot read {path}: {error}") from error


def from_iterable(source: Any, types: Types, labels: str | None, limit: int | None) -> Samples:
    """Samples from Python: an iterable, or a function that returns one.

    Each item is a mapping from input (and ``labels``) to array, or, for a network with one input,
    an array. A generator, which can be gone through only once, is written to a temporary file.

    Raises:
        InputError: ``source`` cannot be iterated over.
    """
    if isinstance(source, Mapping):
        raise InputError("calibration data is samples, one mapping each, not one mapping")

    def items() -> Iterator[Sample]:
        opened = source() if callable(source) else source
        if not isinstance(opened, Iterable):
            raise InputError(
                f"calibration data must be a file, a folder or an iterable of samples, not"
                f" {type(opened).__name__}"
            )
        for number, item in enumerate(opened):
            yield _sample(item, types, labels, number)

    if callable(source) or not isinstance(source, Iterator):
        return Samples(types, items, limit)
    return Samples(types, _spooled(items(), limit), limit)


def _sample(item: Any, types: Types, labels: str | None, number: int) -> Sample:
    if isinstance(item, Mapping):
        arrays = {str(name): np.asarray(value) for name, value in item.items()}
        if labels is None:
            return Sample(arrays)
        if labels not in arrays:
            raise InputError(f"sample {number} has no label {labels!r}, only {', '.join(arrays)}")
        label = arrays.pop(labels)
        if label.size != 1:
            raise InputError(f"the label of sample {number} is {list(label.shape)}, not one number")
        return Sample(arrays, int(label.reshape(())))
    if len(types) != 1 or labels is not None:
        names = ", ".join([*types, *([labels] if labels else [])])
        raise InputError(f"sample {number} must be a mapping with {names}")
    return Sample({next(iter(types)): np.asarray(item)})


def _spooled(items: Iterator[Sample], limit: int | None) -> Callable[[], Iterator[Sample]]:
    """The items from a temporary file, where they are written when they first come."""
    file = tempfile.TemporaryFile()  # closed when the last reader forgets it
    layout: list[tuple[tuple[str, ...], int | None]] = []
    for item in items:
        layout.append((tuple(item.arrays), item.label))
        for array in item.arrays.values():
            np.save(file, array, allow_pickle=False)
        if len(layout) == limit:
            break

    def again() -> Iterator[Sample]:
        file.seek(0)
        for names, label in layout:
            yield Sample({name: np.load(file, allow_pickle=False) for name in names}, label)

    return again
