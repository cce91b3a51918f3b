"""Weights in files: mapped into memory, not read, so that only what is used takes memory."""

import mmap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from accelc.compiler.graph import Array
from accelc.isa.errors import ModelError

#: Smaller constants are copied: a mapping costs a page and its bookkeeping.
MAPPED_BYTES = 1 << 16
#: Element types of which several share a byte, or whose bytes are no numbers.
_PACKED = frozenset(
    getattr(TensorProto, name)
    for name in ("INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2", "FLOAT6E2M3", "FLOAT6E3M2")
    if hasattr(TensorProto, name)
) | {TensorProto.STRING, TensorProto.UNDEFINED}


@dataclass(frozen=True)
class Place:
    """Where a constant's bytes are; ``length`` is ``None`` where the model does not say it."""

    file: Path
    offset: int
    length: int | None


@dataclass(frozen=True)
class Weights:
    """The files beside one model.

    Members:
        what: the model's name, for errors.
        folder: the model's folder, which the files must not leave, links followed.
    """

    what: str
    folder: Path
    maps: dict[Path, mmap.mmap] = field(default_factory=dict)

    def place(self, tensor: TensorProto) -> Place:
        """Where the bytes of a constant with external data are.

        Raises:
            ModelError: the file is missing, outside the folder, or too short.
        """
        info = {entry.key: entry.value for entry in tensor.external_data}
        location = info.get("location", "")
        what = f"{self.what}: external data of {tensor.name!r}"
        try:
            file = (self.folder / location).resolve()
            outside = Path(location).is_absolute() or not file.is_relative_to(self.folder)
            present = file.is_file()
        except (OSError, ValueError, RuntimeError) as error:  # too long, a null byte, a loop
            raise ModelError(f"{what} has no possible location {location!r}: {error}") from None
        if not location or outside:
            raise ModelError(f"{what} leads outside the model's folder: {location!r}")
        if not present:
            raise ModelError(f"{what} is missing: {location!r}")
        try:
            offset = int(info.get("offset") or 0)
            length = int(info["length"]) if info.get("length") else None
        except ValueError:
            raise ModelError(f"{what} has no numeric offset and length") from None
        size = file.stat().st_size
        if offset < 0 or (length or 0) < 0 or offset + (length or 0) > size:
            raise ModelError(f"{what} ends beyond the end of {location!r}")
        return Place(file, offset, length)

    def maps_well(self, tensor: TensorProto) -> bool:
        """Whether the constant is worth mapping, and its bytes are an array as they are."""
        if tensor.data_location != TensorProto.EXTERNAL or tensor.data_type in _PACKED:
            return False
        return _elements(tensor) * _dtype(tensor).itemsize >= MAPPED_BYTES

    def load(self, tensor: TensorProto) -> None:
        """Put the bytes of a constant into the model.

        Raises:
            ModelError: the file is missing or cannot be read.
        """
        place = self.place(tensor)
        try:
            with open(place.file, "rb") as file:
                file.seek(place.offset)
                tensor.raw_data = file.read(-1 if place.length is None else place.length)
        except OSError as error:
            raise ModelError(f"{place.file}: cannot be read: {error.strerror}") from None
        tensor.ClearField("data_location")
        del tensor.external_data[:]

    def array(self, tensor: TensorProto) -> Array:
        """The constant as a read-only view of its file.

        Raises:
            ModelError: the file is missing, or its bytes are not what the shape needs.
        """
        place = self.place(tensor)
        dtype = _dtype(tensor)
        count = _elements(tensor)
        needed = count * dtype.itemsize
        held = place.file.stat().st_size - place.offset if place.length is None else place.length
        if held < needed or (place.length is not None and held != needed):
            raise ModelError(
                f"{self.what}: external data of {tensor.name!r} has {held} bytes,"
                f" {list(tensor.dims)} {dtype} needs {needed}"
            )
        if place.file not in self.maps:
            try:
                with open(place.file, "rb") as file:
                    self.maps[place.file] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise ModelError(f"{place.file}: cannot be mapped: {error}") from None
        array = np.frombuffer(self.maps[place.file], dtype, count, place.offset)
        return array.reshape(tuple(tensor.dims))


def _elements(tensor: TensorProto) -> int:
    count = 1
    for extent in tensor.dims:
        if extent < 0:
            raise ModelError(f"constant {tensor.name!r} has the shape {list(tensor.dims)}")
        count *= extent
    return count


def _dtype(tensor: TensorProto) -> np.dtype[Any]:
    try:
        return helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except (KeyError, ValueError):
        raise ModelError(
            f"constant {tensor.name!r} has the unknown element type {tensor.data_type}"
        ) from None


def release(array: Array) -> None:
    """Give the memory of a mapped array back; it is read again where it is used again.

    Arrays that are not mapped are left alone.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, mmap.mmap) or not hasattr(base, "madvise") or not array.nbytes:
        return
    start = array.ctypes.data - np.frombuffer(base, np.uint8, 1).ctypes.data
    page = mmap.PAGESIZE
    # pages at the ends are shared with what lies beside
    first, last = -(-start // page) * page, (start + array.nbytes) // page * page
    if last > first:
        base.madvise(mmap.MADV_DONTNEED, first, last - first)
