"""ONNX files: the model, and the weights it keeps in files beside it."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto

from accelc.compiler.onnx_weights import MAPPED_BYTES, Weights
from accelc.compiler.onnx_wire import WireError, without_weights
from accelc.isa.errors import ModelError

#: Files from this size on are not parsed with the weights in them.
SLIMMED_BYTES = 1 << 20


def one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].endswith(":"):  # onnx goes on with the node, and what is wrong with it
        return " ".join(lines[:3])
    return lines[0] if lines else type(error).__name__


def read_model(path: Path) -> ModelProto:
    """The model in ``path``, external weights loaded.

    Raises:
        ModelError: see ``open_model``.
    """
    proto, weights = open_model(path)
    for tensor in proto.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            weights.load(tensor)
    return proto


def open_model(path: Path) -> tuple[ModelProto, Weights]:
    """The model in ``path``; large constants stay in their files and are external in the model.

    Raises:
        ModelError: missing, unreadable or truncated file, or external data that is missing, too
            short or outside the model's folder.
    """
    try:
        resolved = path.resolve()
        proto = onnx.load_model_from_string(_content(resolved))
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise ModelError(f"{path}: cannot be read: {reason or error}") from None
    except (DecodeError, ValueError) as error:
        raise ModelError(f"{path}: not an ONNX model, or truncated: {one_line(error)}") from None
    if not proto.graph.node and not proto.graph.output:
        raise ModelError(f"{path}: not an ONNX model: it has no graph")
    weights = Weights(str(path), resolved.parent)
    for tensor in proto.graph.initializer:
        if weights.maps_well(tensor):
            weights.place(tensor)
        elif tensor.data_location == TensorProto.EXTERNAL:
            weights.load(tensor)
    for tensor in _attribute_tensors(proto.graph):
        if tensor.data_location == TensorProto.EXTERNAL:
            weights.load(tensor)
    return proto, weights


def _content(path: Path) -> bytes:
    """What protobuf is to parse: the file, large constants left out where they lie."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < SLIMMED_BYTES:
            return file.read()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            try:
                return without_weights(view, path.name, MAPPED_BYTES)
            except WireError:
                return bytes(view)  # what is wrong with it, protobuf says


def tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every constant of a graph and its subgraphs."""
    yield from graph.initializer
    yield from _attribute_tensors(graph)


def _attribute_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.TENSORS:
                yield from attribute.tensors
            elif attribute.type == AttributeProto.GRAPH:
                yield from tensors(attribute.g)
            elif attribute.type == AttributeProto.GRAPHS:
                for subgraph in attribute.graphs:
                    yield from tensors(subgraph)


def require_text(message: Message) -> None:
    """Check that every string of a protobuf message is text; damaged files hold other bytes.

    Raises:
        ModelError: naming the field and its content.
    """
    for field, value in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            continue
        for item in (value,) if isinstance(value, (str, bytes, Message)) else value:
            if isinstance(item, Message):
                require_text(item)
            elif not isinstance(item, str):
                raise ModelError(f"the model is damaged: {field.full_name} is {item!r}, no text")
