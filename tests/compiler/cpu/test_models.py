"""Whole networks against onnxruntime and the golden pairs that came with them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from accelc.compiler.cpu import compile_graph
from accelc.compiler.graph import Array, Graph
from accelc.compiler.onnx import import_model

ROOT = Path(__file__).resolve().parents[3]
#: Networks that are not part of the repository.
SHARED = ROOT.parent / "shared" / "models"

MODELS = {
    "mnist_8": 1e-4,
    "super_resolution_10": 1e-4,
    "ultraface_slim320_nopost": 1e-4,
    "deeploy_cct_fp32_32_op20": 1e-4,
    "dory_frontnet_int": 0.0,
    "mlon_kws_m_qoperator": 0.0,
}


def shared_model(name: str) -> Path:
    path = SHARED / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"needs {name}.onnx, which is not part of the repository")
    return path


def random_inputs(graph: Graph, rng: np.random.Generator) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for name in graph.inputs:
        kind = graph.types[name]
        if kind.dtype.kind == "f":
            feeds[name] = rng.integers(0, 256, kind.shape).astype(kind.dtype)
        else:
            limits = np.iinfo(kind.dtype)
            feeds[name] = rng.integers(limits.min, limits.max + 1, kind.shape, dtype=kind.dtype)
    return feeds


def compare(path: Path, tolerance: float, rng: np.random.Generator) -> None:
    """``tolerance`` is relative to the largest value of an output."""
    runtime = pytest.importorskip("onnxruntime")
    graph = import_model(path)
    module = compile_graph(graph)
    assert module.reference_nodes == []
    feeds = random_inputs(graph, rng)
    if "ultraface" in path.name:
        feeds = {name: (array - 127) / 128 for name, array in feeds.items()}
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options)
    wants = session.run(list(graph.outputs), feeds)
    for _ in range(2):  # the arena keeps what the first inference left
        got = module.run(feeds)
        for name, want in zip(graph.outputs, wants, strict=True):
            assert got[name].dtype == want.dtype
            error = np.abs(got[name].astype(np.float64) - want).max()
            assert error <= tolerance * np.abs(want).max()


@pytest.mark.parametrize("name", MODELS)
def test_as_onnxruntime(name: str, rng: np.random.Generator) -> None:
    compare(shared_model(name), MODELS[name], rng)


@pytest.mark.parametrize("name", ["digits_float", "digits_resnet8_int8"])
def test_digits(name: str, rng: np.random.Generator) -> None:
    compare(ROOT / "models" / f"{name}.onnx", 1e-4, rng)


@pytest.mark.parametrize("name", ["mnist_8", "super_resolution_10"])
def test_golden_pairs(name: str) -> None:
    graph = import_model(shared_model(name))
    folders = sorted((SHARED / "data" / name).glob("test_data_set_*"))
    if not folders:
        pytest.skip(f"needs the golden pairs of {name}, which are not part of the repository")
    module = compile_graph(graph)
    for folder in folders:
        x, y = (
            numpy_helper.to_array(onnx.load_tensor(str(folder / f"{end}_0.pb")))
            for end in ("input", "output")
        )
        got = module.run({graph.inputs[0]: x.reshape(graph.types[graph.inputs[0]].shape)})
        np.testing.assert_allclose(
            got[graph.outputs[0]], y, rtol=1e-3, atol=1e-4 * float(np.abs(y).max())
        )
