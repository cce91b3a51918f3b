"""Artifacts with many constants: streamed into the file, mapped from it."""

import mmap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import accelc
from accelc.artifact import ARRAYS, MAPPED_BYTES, Artifact
from accelc.isa.errors import ArtifactError
from accelc.values import ALIGNMENT

ROWS = 600


def matrix(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((ROWS, ROWS)).astype(np.float32)


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "a"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, ("n", ROWS))],
        [value("y", TensorProto.FLOAT, ("n", ROWS))],
        [numpy_helper.from_array(matrix(0), "a"), numpy_helper.from_array(matrix(1)[0], "b")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return accelc.compile(helper.make_model(graph, opset_imports=opsets), target="cpu")


def holder(array: Any) -> Any:
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def test_constants_are_mapped_where_they_lie(artifact: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "m.accel"
    artifact.save(path)
    assert path.read_bytes() == artifact.to_bytes()
    loaded = Artifact.load(path)
    for name, array in artifact.model.graph.constants.items():
        found = loaded.model.graph.constants[name]
        assert isinstance(holder(found), mmap.mmap) and found.ctypes.data % ALIGNMENT == 0
        assert np.array_equal(found, array)
    x = matrix(2)[:3]
    ours = accelc.load(loaded, "cpu").run({"x": x})["y"]
    assert ours.tobytes() == accelc.load(artifact, "cpu").run({"x": x})["y"].tobytes()
    assert loaded.to_bytes() == artifact.to_bytes()
    loaded.save(path)  # onto the very file its constants lie in
    assert np.array_equal(accelc.load(path, "cpu").run({"x": x})["y"], ours)


def test_damage_is_noticed(artifact: Artifact, tmp_path: Path) -> None:
    data = artifact.to_bytes()
    path = tmp_path / "m.accel"
    artifact.save(path)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(ARRAYS)
    assert info.file_size >= MAPPED_BYTES
    for at in (info.header_offset + 200, info.header_offset + info.file_size):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ArtifactError, match="damaged"):
            Artifact.load(path)
    for damaged in (data[:-100], data[: len(data) // 2], data[len(data) // 2 :]):
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError, match="damaged"):
            Artifact.load(path)
