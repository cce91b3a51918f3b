"""Small float networks, and a way to see where their quantized forms run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto, numpy_helper

from accelc.compiler.graph import Graph
from accelc.compiler.onnx import import_model
from accelc.compiler.quantize.prepare import prepare

MODELS = Path(__file__).parents[2] / "models"
SHARED = Path(__file__).parents[3] / "shared" / "models"
SEED = 20

MakeModel = Callable[..., ModelProto]


def build_model(text: str, opset: int = 17, **constants: Any) -> ModelProto:
    """A checked model from ONNX text and constants by name."""
    header = f'<ir_version: 8, opset_import: ["" : {opset}]> net '
    model = onnx.parser.parse_model(header + text)
    for name, value in constants.items():
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.checker.check_model(model)
    return model


@pytest.fixture
def make_model() -> MakeModel:
    return build_model


@pytest.fixture
def float_graph() -> Callable[..., Graph]:
    """The prepared graph of a model."""
    return lambda *args, **constants: prepare(import_model(build_model(*args, **constants)))


@pytest.fixture
def rng() -> np.random.Generator:
    print(f"seed {SEED}")
    return np.random.default_rng(SEED)


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the networks of ../shared/models are not there")
    return SHARED
