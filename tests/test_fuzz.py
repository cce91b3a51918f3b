"""Damaged models: whatever is wrong with them, the answer is an ``AccelcError``, and soon."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

import accelc
from accelc.artifact import Artifact
from accelc.inputs import random_inputs
from accelc.isa.errors import AccelcError

MODEL = Path(__file__).parents[1] / "models" / "digits_resnet8_int8.onnx"
SOURCE = MODEL.read_bytes()
LIMIT_SECONDS = 10.0
#: Values attributes and dimensions must not have, mostly.
ODD = (-(2**40), -5, -1, 0, 1, 2, 3, 7, 64, 1000, 2**31, 2**62)


def flip_bytes(rng: random.Random) -> bytes:
    data = bytearray(SOURCE)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def flip_names(rng: random.Random) -> bytes:
    """Bytes of text, so that the file still parses more often."""
    text = [i for i in range(len(SOURCE) - 1) if SOURCE[i : i + 2].isalnum()]
    data = bytearray(SOURCE)
    data[rng.choice(text)] = rng.randrange(256)
    return bytes(data)


def truncate(rng: random.Random) -> bytes:
    return SOURCE[: rng.randrange(len(SOURCE))]


def attributes(rng: random.Random) -> bytes:
    model = onnx.load_from_string(SOURCE)
    for _ in range(rng.choice((1, 2, 4))):
        node = rng.choice([node for node in model.graph.node if node.attribute])
        attribute = rng.choice(node.attribute)
        if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(ODD)
            attribute.ints.extend([1] * (rng.random() < 0.2))
        else:
            attribute.i = rng.choice(ODD)
    return model.SerializeToString()


def constants(rng: random.Random) -> bytes:
    model = onnx.load_from_string(SOURCE)
    tensor = rng.choice(model.graph.initializer)
    match rng.randrange(5):
        case 0 if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(ODD)
        case 1:
            tensor.data_type = rng.randrange(25)
        case 2:
            tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
        case 3:
            tensor.raw_data = bytes([rng.choice((0, 127, 128, 255))]) * len(tensor.raw_data)
        case _:
            tensor.name = rng.choice(("", "x", model.graph.initializer[0].name))
    return model.SerializeToString()


def nodes(rng: random.Random) -> bytes:
    model = onnx.load_from_string(SOURCE)
    graph = model.graph
    node = rng.choice(graph.node)
    position = rng.randrange(len(node.input))
    match rng.randrange(7):
        case 0:
            others = ("Conv", "Add", "Loop", "", "MaxPool", "Pad", "Resize", "QuantizeLinear")
            node.op_type = rng.choice(others)
        case 1:
            value = rng.choice(rng.choice(graph.node).output)
            node.input[position] = rng.choice(("", value, rng.choice(graph.initializer).name))
        case 2:
            del node.input[position]
        case 3:
            node.output[0] = rng.choice(("", rng.choice(rng.choice(graph.node).output)))
        case 4:
            graph.node.remove(node)
        case 5:
            node.domain = rng.choice(("com.microsoft", "ai.onnx", "foo", "ai.onnx.ml"))
        case _:
            del node.attribute[:]
    return model.SerializeToString()


def heads(rng: random.Random) -> bytes:
    model: ModelProto = onnx.load_from_string(SOURCE)
    kind = model.graph.input[0].type.tensor_type
    match rng.randrange(7):
        case 0:
            model.opset_import[0].version = rng.choice((0, 1, 5, 9, 13, 99, -1, 2**40))
        case 1:
            del model.opset_import[:]
        case 2:
            kind.shape.dim[rng.randrange(1, 4)].dim_value = rng.choice(ODD)
        case 3:
            kind.elem_type = rng.randrange(25)
        case 4:
            model.graph.input[0].type.Clear()
        case 5:
            del model.graph.output[:]
        case _:
            del model.graph.input[:]
    return model.SerializeToString()


MUTATIONS = (flip_bytes, flip_names, truncate, attributes, constants, nodes, heads)


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda f: f.__name__)
def test_damaged_models(mutate: Callable[[random.Random], bytes], tmp_path: Path) -> None:
    path = tmp_path / "damaged.onnx"
    for seed in range(45):
        path.write_bytes(mutate(random.Random(seed)))
        target, device = (("cpu", "cpu"), ("vta", "functional"))[seed % 2]
        print(f"{mutate.__name__} seed {seed}")
        start = time.process_time()
        try:
            artifact = accelc.compile(path, target, "1x8x8")
            session = accelc.load(Artifact.from_bytes(artifact.to_bytes()), device)
            session.run(random_inputs(session.inputs, seed))
        except AccelcError as error:
            assert "\n" not in str(error)
        assert time.process_time() - start < LIMIT_SECONDS
