"""Graphs as models again: interface, metadata, sizes, and operator sets that cannot be raised."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from accelc.compiler import onnx_write
from accelc.compiler.onnx import import_model
from accelc.compiler.onnx_write import at_least_opset, to_model
from accelc.isa.errors import ModelError

MakeModel = Callable[..., ModelProto]
TEXT = "(float[N,4] x) => (float[N,2] y) { [m] y = MatMul (x, w) }"


@pytest.fixture
def model(make_model: MakeModel) -> ModelProto:
    made = make_model(TEXT, w=np.ones((4, 2)))
    made.doc_string = "what it is for"
    helper.set_model_props(made, {"author": "somebody"})
    return made


def sizes(value: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize(("symbolic", "batch"), [(True, "N"), (False, 1)])
def test_the_interface(model: ModelProto, symbolic: bool, batch: int | str) -> None:
    made = to_model(import_model(model), model, symbolic=symbolic)
    assert sizes(made.graph.input[0]) == [batch, 4] and sizes(made.graph.output[0]) == [batch, 2]
    assert [node.name for node in made.graph.node] == ["m"]
    assert [tensor.name for tensor in made.graph.initializer] == ["w"]
    assert made.doc_string == "what it is for" and made.metadata_props[0].value == "somebody"
    assert made.producer_name == "accelc"


def test_newer_operator_sets_stay(model: ModelProto) -> None:
    assert at_least_opset(model, 13, "somebody needs") is model


def test_operator_sets_that_cannot_be_raised(make_model: MakeModel) -> None:
    old = make_model(
        "(float[2,3] x, float[3] s) => (float[2,3] y) "
        "{ y = BatchNormalization <spatial = 0> (x, s, s, s, s) }",
        opset=7,
    )
    with pytest.raises(ModelError) as caught:
        at_least_opset(old, 13, "scales per channel need")
    message = str(caught.value)
    assert "opset 7 cannot be raised to 13, which scales per channel need" in message
    assert "export the model again" in message and "\n" not in message


def test_models_too_large_for_a_file(model: ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_write, "LIMIT_BYTES", 31)
    with pytest.raises(ModelError, match="32 bytes of constants, more than a file may"):
        to_model(import_model(model), model, symbolic=True)
