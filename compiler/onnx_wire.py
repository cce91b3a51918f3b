"""The wire format of protobuf, as far as it takes to leave weights in the model's file.

protobuf reads a file whole and holds its content twice on the way. Here the bytes of large
constants are left out of what it parses; in their place the constant says, as ONNX has it, that
its data are in an external file: the model itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass

Buffer = bytes | memoryview

#: Numbers of the fields on the way to a constant's bytes, in onnx.proto.
MODEL_GRAPH = 7
GRAPH_INITIALIZER = 5
TENSOR_RAW_DATA = 9
TENSOR_EXTERNAL_DATA = 13
TENSOR_DATA_LOCATION = 14
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class WireError(ValueError):
    """The bytes are no protobuf message."""


@dataclass(frozen=True)
class Field:
    """One field of a message: all of it from ``start`` to ``end``, its value from ``value`` on."""

    number: int
    kind: int
    start: int
    value: int
    end: int


def read_varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """A number and the position behind it."""
    result = 0
    for k in range(_MAX_VARINT_BYTES):
        if at + k >= end:
            break
        byte = data[at + k]
        result |= (byte & 127) << (7 * k)
        if byte < 128:
            return result, at + k + 1
    raise WireError("a number does not end")


def varint(value: int) -> bytes:
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    result.append(value)
    return bytes(result)


def fields(data: Buffer, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in ``data[start:end]``.

    Raises:
        WireError: it is no message.
    """
    at = start
    while at < end:
        first = at
        key, at = read_varint(data, at, end)
        kind = key & 7
        if kind == _VARINT:
            value = at
            _, at = read_varint(data, at, end)
        elif kind == _BYTES:
            size, value = read_varint(data, at, end)
            at = value + size
        elif kind in (_FIXED64, _FIXED32):
            value, at = at, at + (8 if kind == _FIXED64 else 4)
        else:
            raise WireError(f"there is no wire type {kind}")
        if at > end:
            raise WireError("a field is longer than its message")
        yield Field(key >> 3, kind, first, value, at)


def message(number: int, content: Buffer) -> bytes:
    """A field that holds bytes."""
    return varint(number << 3 | _BYTES) + varint(len(content)) + bytes(content)


def without_weights(data: Buffer, location: str, least_bytes: int) -> bytes:
    """A model whose constants of at least ``least_bytes`` refer to the file ``location``, which
    holds ``data``.

    Raises:
        WireError: ``data`` is no protobuf message, or its graph comes in parts.
    """
    graphs = [f for f in fields(data, 0, len(data)) if f.number == MODEL_GRAPH]
    if len(graphs) != 1 or graphs[0].kind != _BYTES:
        raise WireError("there is not one graph")
    (graph,) = graphs
    parts: list[Buffer] = []
    kept = graph.value
    for tensor in fields(data, graph.value, graph.end):
        if tensor.number != GRAPH_INITIALIZER or tensor.kind != _BYTES:
            continue
        if tensor.end - tensor.value < least_bytes:
            continue
        short = _external(data, tensor, location, least_bytes)
        if short is not None:
            parts += [data[kept : tensor.start], message(GRAPH_INITIALIZER, short)]
            kept = tensor.end
    parts.append(data[kept : graph.end])
    content = b"".join(parts)
    return b"".join([data[: graph.start], message(MODEL_GRAPH, content), data[graph.end :]])


def _external(data: Buffer, tensor: Field, location: str, least_bytes: int) -> bytes | None:
    """The message of a constant without its bytes; None where they are not in one place."""
    own = list(fields(data, tensor.value, tensor.end))
    raw = [f for f in own if f.number == TENSOR_RAW_DATA]
    if len(raw) != 1 or raw[0].kind != _BYTES or raw[0].end - raw[0].value < least_bytes:
        return None
    if any(f.number in (TENSOR_EXTERNAL_DATA, TENSOR_DATA_LOCATION) for f in own):
        return None
    offset, length = raw[0].value, raw[0].end - raw[0].value
    entries = (("location", location), ("offset", str(offset)), ("length", str(length)))
    described = [
        message(TENSOR_EXTERNAL_DATA, message(1, key.encode()) + message(2, value.encode()))
        for key, value in entries
    ]
    kept = [bytes(data[f.start : f.end]) for f in own if f.number != TENSOR_RAW_DATA]
    mark = varint(TENSOR_DATA_LOCATION << 3 | _VARINT) + varint(1)
    return b"".join([*kept, *described, mark])
