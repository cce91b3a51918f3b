"""Hostile models, made by seed from sound ones; what the fuzz tests and ``fuzz.py`` try.

A mutation takes a generator of random numbers and the bytes of a model, and returns the bytes of
another one, which may be no model at all.
"""

import random
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from accelc.compiler.onnx_wire import message

Mutation = Callable[[random.Random, bytes], bytes]

#: Values attributes and dimensions must not have, mostly.
INTS = (
    -(2**63), -(2**40), -(2**31), -5, -2, -1, 0, 1, 2, 3, 7, 64, 1000, 2**31 - 1, 2**31, 2**40,
    2**62, 2**63 - 1,
)  # fmt: skip
FLOATS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e-45, 1e38)
TEXTS = (b"", b"x", b"SAME_UPPER", b"\xff\xfe", b"a" * 10_000, b"%s\n\0")
#: Numbers of element types, and one beyond.
ELEMENT_TYPES = 25
OPERATORS = (
    "Conv", "Add", "Loop", "If", "", "MaxPool", "Pad", "Resize", "QuantizeLinear", "Reshape",
    "Slice", "Gather", "Transpose", "Concat", "Gemm", "MatMul", "Softmax", "Expand", "Tile",
    "ReduceSum", "Split", "Cast",
)  # fmt: skip
_KIND = AttributeProto.AttributeType


def extremes(attribute: AttributeProto) -> Iterator[AttributeProto]:
    """The attribute at values it mostly must not have."""
    values: list[Any]
    match attribute.type:
        case _KIND.INT:
            values = list(INTS)
        case _KIND.FLOAT:
            values = list(FLOATS)
        case _KIND.STRING:
            values = list(TEXTS)
        case _KIND.INTS | _KIND.FLOATS:
            old = list(attribute.ints or attribute.floats)
            odd = INTS if attribute.type == _KIND.INTS else FLOATS
            values = [[], old * 2, old[:-1]] + [[v, *old[1:]] for v in odd] + [[v] * 7 for v in odd]
        case _:
            return
    for value in values:
        changed = AttributeProto(name=attribute.name, type=attribute.type)
        match attribute.type:
            case _KIND.INT:
                changed.i = value
            case _KIND.FLOAT:
                changed.f = value
            case _KIND.STRING:
                changed.s = value
            case _KIND.INTS:
                changed.ints.extend(value)
            case _:
                changed.floats.extend(value)
        yield changed


def forget_shapes(model: ModelProto) -> None:
    """Drop what the model states of its outputs, which a mutation may have made untrue."""
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """``graph`` and the bodies of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
                yield from graphs_of(body)


def _nodes(model: ModelProto) -> list[NodeProto]:
    return [node for graph in graphs_of(model.graph) for node in graph.node]


def flip_bytes(rng: random.Random, source: bytes) -> bytes:
    data = bytearray(source)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def flip_names(rng: random.Random, source: bytes) -> bytes:
    """A byte of text, so that the file still parses more often."""
    data = bytearray(source)
    for _ in range(1000):
        at = rng.randrange(len(data) - 1)
        if source[at : at + 2].isalnum():
            data[at] = rng.randrange(256)
            break
    return bytes(data)


def truncate(rng: random.Random, source: bytes) -> bytes:
    return source[: rng.randrange(len(source))]


def attributes(rng: random.Random, source: bytes) -> bytes:
    """Up to four attributes at their extremes, in bodies too."""
    model = onnx.load_from_string(source)
    found = [(n, k) for n in _nodes(model) for k in range(len(n.attribute))]
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not found:
            break
        node, position = rng.choice(found)
        if values := list(extremes(node.attribute[position])):
            node.attribute[position].CopyFrom(rng.choice(values))
    if rng.random() < 0.7:
        forget_shapes(model)
    return model.SerializeToString()


def operands(rng: random.Random, source: bytes) -> bytes:
    """Inputs of integers become constants of odd values: sizes, axes, indices, steps."""
    model = onnx.load_from_string(source)
    graph = model.graph
    whole = [v for v in graph.input if v.type.tensor_type.elem_type in (6, 7)]
    for value in rng.sample(whole, rng.randrange(1, len(whole) + 1)) if whole else ():
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        count = int(np.prod(shape, dtype=np.int64))
        if not 0 <= count <= 1000:
            continue
        dtype = np.int32 if value.type.tensor_type.elem_type == 6 else np.int64
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        odd = [n for n in INTS if low <= n <= high]
        small = rng.random() < 0.5
        numbers = [rng.randrange(-3, 6) if small else rng.choice(odd) for _ in range(count)]
        name = value.name
        graph.input.remove(value)
        graph.initializer.append(
            numpy_helper.from_array(np.array(numbers, dtype).reshape(shape), name)
        )
    forget_shapes(model)
    return model.SerializeToString()


def constants(rng: random.Random, source: bytes) -> bytes:
    """One constant of another size, element type, content or name."""
    model = onnx.load_from_string(source)
    found = [tensor for graph in graphs_of(model.graph) for tensor in graph.initializer]
    found += [a.t for node in _nodes(model) for a in node.attribute if a.type == _KIND.TENSOR]
    if not found:
        return flip_bytes(rng, source)
    tensor = rng.choice(found)
    match rng.randrange(6):
        case 0 if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(INTS)
        case 1:
            tensor.data_type = rng.randrange(ELEMENT_TYPES)
        case 2:
            tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
        case 3:
            tensor.raw_data = bytes([rng.choice((0, 127, 128, 255))]) * len(tensor.raw_data)
        case 4:
            _resize(rng, tensor)
        case _:
            tensor.name = rng.choice(("", "x", rng.choice(found).name))
    return model.SerializeToString()


def _resize(rng: random.Random, tensor: TensorProto) -> None:
    """Another size, with the data that it needs."""
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError):
        return
    shape = [max(0, d + rng.choice((-1, 0, 0, 1))) for d in array.shape]
    if rng.random() < 0.3:
        shape.insert(rng.randrange(len(shape) + 1), rng.choice((0, 1, 2)))
    if array.size and array.dtype.kind != "O":
        tensor.CopyFrom(numpy_helper.from_array(np.resize(array, shape), tensor.name))


def nodes(rng: random.Random, source: bytes) -> bytes:
    """Nodes lost, exchanged, of another operator, or with other inputs and outputs."""
    model = onnx.load_from_string(source)
    for _ in range(rng.choice((1, 1, 2, 3))):
        graph = rng.choice(list(graphs_of(model.graph)))
        if graph.node:
            _change_node(rng, graph)
    if rng.random() < 0.5:
        forget_shapes(model)
        del model.graph.value_info[:]
    return model.SerializeToString()


def _change_node(rng: random.Random, graph: GraphProto) -> None:
    node, other = rng.choice(graph.node), rng.choice(graph.node)
    values = [name for n in graph.node for name in (*n.output, *n.input)] + [""]
    match rng.randrange(10):
        case 0:
            node.op_type = rng.choice(OPERATORS)
        case 1:
            node.op_type, other.op_type = other.op_type, node.op_type
        case 2 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(values)
        case 3 if node.input:
            del node.input[rng.randrange(len(node.input))]
        case 4 if node.output:
            node.output[rng.randrange(len(node.output))] = rng.choice(values)
        case 5 if node.input and node.output:  # as if it had never been there
            source, result = node.input[0], node.output[0]
            graph.node.remove(node)
            for reader in graph.node:
                for position, name in enumerate(reader.input):
                    if name == result:
                        reader.input[position] = source
            for value in graph.output:
                if value.name == result:
                    value.name = source
        case 6:
            graph.node.remove(node)
        case 7:
            node.domain = rng.choice(("com.microsoft", "ai.onnx", "foo", "ai.onnx.ml"))
        case 8 if len(node.input) > 1:
            order = rng.sample(list(node.input), len(node.input))
            node.input[:] = order
        case _:
            del node.attribute[:]


def heads(rng: random.Random, source: bytes) -> bytes:
    """Other operator sets, inputs of other shapes and types, or none."""
    model: ModelProto = onnx.load_from_string(source)
    inputs = [v for v in model.graph.input if v.type.HasField("tensor_type")]
    kind = rng.choice(inputs).type.tensor_type if inputs else None
    match rng.randrange(8):
        case 0 if model.opset_import:
            model.opset_import[0].version = rng.choice((0, 1, 5, 9, 13, 99, -1, 2**40))
        case 1:
            del model.opset_import[:]
        case 2 | 3 if kind and kind.shape.dim:
            dim = rng.choice(kind.shape.dim)
            dim.dim_value = rng.choice((*INTS, dim.dim_value + 1, dim.dim_value * 2))
            forget_shapes(model)
        case 4 if kind:
            kind.elem_type = rng.randrange(ELEMENT_TYPES)
        case 5 if model.graph.input:
            model.graph.input[0].type.Clear()
        case 6:
            del model.graph.output[:]
        case _:
            del model.graph.input[:]
    return model.SerializeToString()


MUTATIONS: dict[str, Mutation] = {
    "bytes": flip_bytes,
    "names": flip_names,
    "truncated": truncate,
    "attributes": attributes,
    "operands": operands,
    "constants": constants,
    "nodes": nodes,
    "heads": heads,
}


def wires(rng: random.Random, depth: int = 0) -> bytes:
    """A random protobuf message, most of it well formed."""
    parts = b""
    for _ in range(rng.randrange(6)):
        number, kind = rng.randrange(1, 22), rng.choice((0, 2, 2, 2, 5, 1))
        if kind == 0:
            parts += bytes([number << 3 & 127]) + bytes([rng.randrange(128)])
        elif kind == 2:
            content = wires(rng, depth + 1) if depth < 6 else rng.randbytes(rng.randrange(9))
            parts += message(number, content)
        else:
            parts += bytes([(number << 3 | kind) & 127]) + rng.randbytes(4 if kind == 5 else 8)
    return parts


def noise(rng: random.Random) -> bytes:
    """Bytes that never were a model."""
    kind = rng.randrange(3)
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    data = wires(rng)
    return b"\x08\x08B\x02\x10\x11" + message(7, data) if kind == 1 else data


@cache
def operator_tests() -> dict[str, ModelProto]:
    """The models of onnx's own tests of its operators, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases compute their expected values with overflows
        cases = collect_testcases(None)
    return {case.name: case.model for case in cases if case.model is not None}
