"""ONNX files: the model, and the weights it keeps in files beside it."""

from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto
from onnx.external_data_helper import load_external_data_for_tensor

from accelc.isa.errors import ModelError


def one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def read_model(path: Path) -> ModelProto:
    """The model in ``path``, external weights loaded.

    Raises:
        ModelError: missing, unreadable or truncated file, or external data that is missing, too
            short or outside the model's folder.
    """
    try:
        proto = onnx.load(str(path), format="protobuf", load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (DecodeError, ValueError) as error:
        raise ModelError(f"{path}: not an ONNX model, or truncated: {one_line(error)}") from None
    if not proto.graph.node and not proto.graph.output:
        raise ModelError(f"{path}: not an ONNX model: it has no graph")
    _load_external(proto, path)
    return proto


def tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every constant of a graph and its subgraphs."""
    yield from graph.initializer
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


def _load_external(proto: ModelProto, path: Path) -> None:
    """Read weights kept in files of their own, which must lie in the model's folder."""
    folder = path.resolve().parent
    external = [t for t in tensors(proto.graph) if t.data_location == TensorProto.EXTERNAL]
    for tensor in external:
        info = {entry.key: entry.value for entry in tensor.external_data}
        location = info.get("location", "")
        file = (folder / location).resolve()
        what = f"{path}: external data of {tensor.name!r}"
        if not location or Path(location).is_absolute() or not file.is_relative_to(folder):
            raise ModelError(f"{what} leads outside the model's folder: {location!r}")
        if not file.is_file():
            raise ModelError(f"{what} is missing: {location!r}")
        try:
            offset, length = int(info.get("offset", 0)), int(info.get("length", 0))
        except ValueError:
            raise ModelError(f"{what} has no numeric offset and length") from None
        if offset < 0 or length < 0 or offset + length > file.stat().st_size:
            raise ModelError(f"{what} ends beyond the end of {location!r}")
    try:
        for tensor in external:
            load_external_data_for_tensor(tensor, str(folder))
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
    except (onnx.checker.ValidationError, OSError, ValueError) as error:
        raise ModelError(f"{path}: external data cannot be read: {one_line(error)}") from None
