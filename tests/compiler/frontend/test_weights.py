"""Weights in files: where they may be, what is wrong with them, and that they are not copied."""

import mmap
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import accelc
from accelc.compiler import onnx_wire
from accelc.compiler.onnx import import_model
from accelc.compiler.onnx_file import SLIMMED_BYTES, open_model, read_model
from accelc.compiler.onnx_weights import MAPPED_BYTES, release
from accelc.isa.errors import ModelError

#: Rows of a square float32 matrix that is mapped, and of one that is not.
LARGE, SMALL = 160, 8
assert LARGE * LARGE * 4 >= MAPPED_BYTES > SMALL * SMALL * 4


def matrix(rows: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, rows)).astype(np.float32)


def model_of(**constants: Any) -> onnx.ModelProto:
    """``y = x @ a @ b ...`` for the constants ``a``, ``b``..."""
    rows = next(iter(constants.values())).shape[0]
    nodes, value = [], "x"
    for name in constants:
        nodes.append(helper.make_node("MatMul", [value, name], [f"{name}_product"]))
        value = f"{name}_product"
    nodes.append(helper.make_node("Identity", [value], ["y"]))
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [tensor("x", TensorProto.FLOAT, ("n", rows))],
        [tensor("y", TensorProto.FLOAT, ("n", rows))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save(path: Path, model: onnx.ModelProto, **options: Any) -> Path:
    defaults = {"location": "weights.bin", "size_threshold": 0}
    onnx.save(model, path, save_as_external_data=True, **{**defaults, **options})
    return path


def relocate(path: Path, entries: dict[str, str | None], index: int = 0) -> None:
    """Change what the model says of where a constant is; None removes an entry."""
    model = onnx.load(path, load_external_data=False)
    tensor = model.graph.initializer[index]
    kept = {e.key: e.value for e in tensor.external_data} | entries
    del tensor.external_data[:]
    for key, value in kept.items():
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())


def mapping(array: Any) -> Any:
    """What holds an array's memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def fails(path: Path, *words: str) -> None:
    with pytest.raises(ModelError) as caught:
        import_model(path, dynamic=True)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("files", [1, 3])
def test_constants_stay_in_their_files(tmp_path: Path, files: int) -> None:
    arrays = {name: matrix(LARGE, seed) for seed, name in enumerate("abc")}
    path = save(tmp_path / "m.onnx", model_of(**arrays), all_tensors_to_one_file=files == 1)
    assert len(list(tmp_path.iterdir())) == 1 + files
    graph = import_model(path, dynamic=True)
    for name, array in arrays.items():
        assert isinstance(mapping(graph.constants[name]), mmap.mmap)
        assert np.array_equal(graph.constants[name], array)
        release(graph.constants[name])
        assert np.array_equal(graph.constants[name], array)
    x = matrix(LARGE, 9)[:2]
    inside = accelc.load(accelc.compile(model_of(**arrays), target="cpu"), "cpu")
    outside = accelc.load(accelc.compile(path, target="cpu"), "cpu")
    assert inside.run({"x": x})["y"].tobytes() == outside.run({"x": x})["y"].tobytes()


def test_constants_within_the_model_stay_there(tmp_path: Path) -> None:
    """A file large enough that protobuf is not given the weights in it."""
    rows = 400
    arrays = {"a": matrix(rows, 1), "b": matrix(rows, 2)}
    path = tmp_path / "m.onnx"
    model = model_of(**arrays)
    model.metadata_props.add(key="behind", value="the graph")
    onnx.save(model, path)
    assert path.stat().st_size > SLIMMED_BYTES
    proto, _ = open_model(path)
    assert proto.ByteSize() < 2000
    assert [tuple(entry.value for entry in proto.metadata_props)] == [("the graph",)]
    graph = import_model(path, dynamic=True)
    for name, array in arrays.items():
        assert isinstance(mapping(graph.constants[name]), mmap.mmap)
        assert np.array_equal(graph.constants[name], array)
    assert read_model(path).SerializeToString() == model.SerializeToString()
    session = accelc.load(accelc.compile(path, target="cpu"), "cpu")
    x = matrix(rows, 3)[:2]
    wanted = x @ arrays["a"] @ arrays["b"]
    np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-3, atol=1e-2)
    link = tmp_path / "folder" / "link.onnx"
    link.parent.mkdir()
    link.symlink_to(path)
    assert np.array_equal(import_model(link, dynamic=True).constants["a"], arrays["a"])


def test_offsets_lengths_and_alignment(tmp_path: Path) -> None:
    a = matrix(LARGE)
    path = save(tmp_path / "m.onnx", model_of(a=a))
    (tmp_path / "weights.bin").write_bytes(b"odd" + a.tobytes() + b"behind")
    relocate(path, {"offset": "3", "length": str(a.nbytes)})
    session = accelc.load(accelc.compile(path, target="cpu"), "cpu")
    x = matrix(LARGE, 5)[:3]
    np.testing.assert_allclose(session.run({"x": x})["y"], x @ a, rtol=1e-4, atol=1e-4)
    relocate(path, {"length": None})
    assert np.array_equal(import_model(path, dynamic=True).constants["a"], a)
    relocate(path, {"offset": "10", "length": None})
    fails(path, "'a' has", "needs")
    relocate(path, {"offset": "0", "length": "400"})
    fails(path, "'a' has 400 bytes", "needs")
    relocate(path, {"length": str(a.nbytes + 100)})
    fails(path, "beyond the end")
    relocate(path, {"length": "-4"})
    fails(path, "beyond the end")
    relocate(path, {"offset": "-4", "length": None})
    fails(path, "beyond the end")
    relocate(path, {"offset": "0x10"})
    fails(path, "no numeric offset")


@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_places_that_are_refused(tmp_path: Path, rows: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    data = matrix(rows)
    path = save(folder / "m.onnx", model_of(a=data))
    outside = tmp_path / "outside.bin"
    outside.write_bytes(data.tobytes())
    (folder / "out").symlink_to(outside)
    (folder / "up").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "inside").symlink_to(folder / "weights.bin")
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe")
    for location in (
        "../outside.bin", str(outside), "sub/../../outside.bin", "out", "up/outside.bin", "",
        "/dev/zero",
    ):  # fmt: skip
        relocate(path, {"location": location})
        fails(path, "outside the model's folder")
    for location in ("sub", "pipe", "nowhere", "sub/nowhere"):
        relocate(path, {"location": location})
        fails(path, "'a' is missing", repr(location))
    for location in ("loop", "x" * 5000, "a\0b"):
        relocate(path, {"location": location})
        fails(path, "'a'")
    relocate(path, {"location": "inside"})
    assert np.array_equal(import_model(path, dynamic=True).constants["a"], data)


def test_constants_of_element_types_that_share_bytes(tmp_path: Path) -> None:
    """int4 weights are unpacked, not mapped."""
    q = np.random.default_rng(0).integers(-8, 8, (512, 512)).astype(ml_dtypes.int4)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"]),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "g",
        [value("x", TensorProto.FLOAT, (1, 512))],
        [value("y", TensorProto.FLOAT, (1, 512))],
        [numpy_helper.from_array(q, "q"), numpy_helper.from_array(np.array(0.5, np.float32), "s")],
    )
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    path = save(tmp_path / "m.onnx", model)
    assert np.array_equal(import_model(path).constants["q"], q)


def test_constants_inside_of_nodes(tmp_path: Path) -> None:
    a = matrix(LARGE)
    model = model_of(a=a)
    del model.graph.initializer[:]
    constant = helper.make_node("Constant", [], ["a"], value=numpy_helper.from_array(a, "v"))
    model.graph.node.insert(0, constant)
    path = save(tmp_path / "m.onnx", model, convert_attribute=True)
    assert np.array_equal(import_model(path, dynamic=True).constants["a"], a)


@given(st.integers(0, 2**64 - 1))
def test_varints(value: int) -> None:
    data = onnx_wire.varint(value)
    assert onnx_wire.read_varint(data, 0, len(data)) == (value, len(data))


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_message(data: bytes) -> None:
    """Anything is either left alone or refused, as protobuf would."""
    try:
        slim = onnx_wire.without_weights(data, "m.onnx", 4)
    except onnx_wire.WireError:
        return
    assert isinstance(slim, bytes)


def test_damaged_large_files(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model_of(a=matrix(600)), path)
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], data[:-1], b"\xff" * len(data), bytes(len(data))):
        path.write_bytes(damaged)
        fails(path, "not an ONNX model")
