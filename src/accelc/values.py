"""Turns the compiler's values into JSON and a block of array bytes, and back, exactly.

Tuples, lists, arrays, types and the frozen dataclasses below all come back as what they were;
arrays keep their element type (bfloat16 and int4 too) and their bytes.
"""

import base64
import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from accelc.compiler.graph import Graph, Node, Origin, Quant, TensorType
from accelc.compiler.integer import AddStage, ConvAttrs, MatmulAttrs, Post
from accelc.compiler.layout import Packing
from accelc.compiler.onnx_weights import release
from accelc.compiler.partition import Place, Placement
from accelc.isa.errors import ArtifactError
from accelc.isa.program import Layer, Region

#: Arrays start at multiples of this many bytes, so that they can be used where they lie.
ALIGNMENT = 64
CLASSES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        Graph, Node, Origin, Quant, TensorType, AddStage, ConvAttrs, MatmulAttrs, Post, Packing,
        Placement, Layer, Region,
    )
}  # fmt: skip
_ENUMS: dict[str, type[Place]] = {"Place": Place}
_PROTOS = {
    cls.__name__: cls
    for cls in (
        onnx.AttributeProto,
        onnx.GraphProto,
        onnx.SparseTensorProto,
        onnx.TensorProto,
        onnx.TypeProto,
    )
}


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        return np.dtype(getattr(ml_dtypes, name))


def _dtype_name(dtype: np.dtype[Any]) -> str:
    """What ``_dtype`` reads: types of NumPy with their byte order, of ml_dtypes by name."""
    return dtype.name if dtype.isbuiltin == 2 else dtype.str


class Writer:
    """Collects values; the arrays among them are not copied.

    Members:
        nbytes: of all arrays, one behind the other.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._arrays: list[tuple[int, np.ndarray]] = []

    @property
    def blob(self) -> bytes:
        """The arrays' bytes."""
        return b"".join(self.chunks())

    def chunks(self) -> Iterator[Any]:
        """The arrays' bytes, piece by piece; what was mapped from a file is let go of behind."""
        end = 0
        for offset, array in self._arrays:
            yield bytes(offset - end)
            # as bytes: NumPy does not lend out element types that it does not know itself
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            release(array)
            end = offset + array.nbytes

    def _array(self, array: np.ndarray) -> dict[str, Any]:
        if array.dtype == object:  # strings
            return {"$strings": [self.encode(v) for v in array.reshape(-1)], "shape": array.shape}
        offset = -(-self.nbytes // ALIGNMENT) * ALIGNMENT
        self._arrays.append((offset, array))
        self.nbytes = offset + array.nbytes
        return {"$array": offset, "dtype": _dtype_name(array.dtype), "shape": list(array.shape)}

    def encode(self, value: Any) -> Any:
        """A value ``json.dumps`` accepts.

        Raises:
            TypeError: the value is of a kind that has no form here.
        """
        match value:
            case Place():
                return {"$enum": [type(value).__name__, value.name]}
            case None | bool() | int() | float() | str():
                return value
            case bytes():
                return {"$bytes": base64.b64encode(value).decode()}
            case tuple():
                return [self.encode(v) for v in value]
            case list():
                return {"$list": [self.encode(v) for v in value]}
            case np.ndarray():
                return self._array(value)
            case np.generic():
                return {"$scalar": self._array(np.asarray(value))}
            case np.dtype():
                return {"$dtype": _dtype_name(value)}
        if type(value).__name__ in _PROTOS:
            data = base64.b64encode(value.SerializeToString()).decode()
            return {"$proto": type(value).__name__, "data": data}
        if dataclasses.is_dataclass(value) and type(value).__name__ in CLASSES:
            fields = {
                f.name: self.encode(getattr(value, f.name)) for f in dataclasses.fields(value)
            }
            return {"$class": type(value).__name__, "fields": fields}
        if hasattr(value, "items"):
            return {"$map": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        raise TypeError(f"{type(value).__name__} cannot be stored in an artifact")


class Reader:
    """Reads what :class:`Writer` wrote; arrays are read-only views of ``blob``."""

    def __init__(self, blob: bytes | memoryview) -> None:
        self._blob = blob

    def _array(self, value: dict[str, Any]) -> np.ndarray:
        dtype, shape = _dtype(value["dtype"]), tuple(value["shape"])
        count = int(np.prod(shape, dtype=np.int64))
        flat = (
            np.frombuffer(self._blob, dtype, count, value["$array"])
            if count
            else np.empty(0, dtype)
        )
        return flat.reshape(shape)

    def decode(self, value: Any) -> Any:
        """The value that was encoded.

        Raises:
            ArtifactError: unknown class or malformed content.
        """
        if isinstance(value, list):
            return tuple(self.decode(v) for v in value)
        if not isinstance(value, dict):
            return value
        match next(iter(value), ""):
            case "$array":
                return self._array(value)
            case "$scalar":
                return self._array(value["$scalar"])[()]
            case "$strings":
                array = np.empty(len(value["$strings"]), object)
                array[:] = [self.decode(v) for v in value["$strings"]]
                return array.reshape(tuple(value["shape"]))
            case "$dtype":
                return _dtype(value["$dtype"])
            case "$bytes":
                return base64.b64decode(value["$bytes"])
            case "$list":
                return [self.decode(v) for v in value["$list"]]
            case "$map":
                return {self.decode(k): self.decode(v) for k, v in value["$map"]}
            case "$enum":
                name, member = value["$enum"]
                return _ENUMS[name][member]
            case "$proto":
                proto = _PROTOS[value["$proto"]]()
                proto.ParseFromString(base64.b64decode(value["data"]))
                return proto
            case "$class":
                fields = {name: self.decode(v) for name, v in value["fields"].items()}
                return CLASSES[value["$class"]](**fields)
        raise ArtifactError(f"unknown content {sorted(value)[:1]}")
