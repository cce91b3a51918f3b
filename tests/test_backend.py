"""The onnx.backend interface."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

import accelc.backend as backend
from accelc.isa.errors import InputError

MODEL = Path(__file__).parents[1] / "models" / "digits_resnet8_int8.onnx"


def model_of(*nodes: onnx.NodeProto, shape: list[int | str]) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes),
        "g",
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


RELU = helper.make_node("Relu", ["x"], ["y"])


@pytest.mark.parametrize("device", ["CPU", "VTA", "VTA:golden"])
def test_prepare_and_run(device: str) -> None:
    model = onnx.load(MODEL)
    rng = np.random.default_rng(0)
    x = rng.random((1, 1, 8, 8), np.float32)
    rep = backend.prepare(model, device, config="1x4x4")
    (logits,) = rep.run([x])
    expected = backend.run_model(model, [x], "CPU")
    assert logits.tobytes() == expected.logits.tobytes()


def test_inputs_come_in_three_forms() -> None:
    rep = backend.prepare(model_of(RELU, shape=[3]))
    x = np.array([-1, 0, 2], np.float32)
    for form in ([x], {"x": x}, x):
        assert rep.run(form)[0].tolist() == [0, 0, 2]
    with pytest.raises(InputError, match="^the model takes 1 inputs, not 2$"):
        rep.run([x, x])
    with pytest.raises(InputError, match=r"must be float32 \[3\], not float32 \[4\]"):
        rep.run([np.zeros(4, np.float32)])


def test_symbolic_shapes_follow_the_inputs() -> None:
    rep = backend.prepare(model_of(RELU, shape=["n", "m"]))
    for shape in ((2, 3), (1, 5), (2, 3)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        assert np.array_equal(rep.run([x])[0], np.maximum(x, 0))


def test_run_node() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=-1)
    x = np.array([[1, 2, 3]], np.float32)
    (y,) = backend.run_node(node, [x], opset_version=13)
    expected = np.exp(x) / np.exp(x).sum()
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_devices() -> None:
    for device in ("CPU", "CPU:0", "VTA", "VTA:functional", "VTA:rtl"):
        assert backend.supports_device(device)
    for device in ("CUDA", "CPU:1", "VTA:moon", ""):
        assert not backend.supports_device(device)
    with pytest.raises(InputError, match="^there is no device 'CUDA'; there are CPU, VTA, "):
        backend.prepare(model_of(RELU, shape=[1]), "CUDA")


def test_unknown_operators_say_so_the_standard_way() -> None:
    model = model_of(helper.make_node("Sparkle", ["x"], ["y"], domain="odd"), shape=[1])
    model.opset_import.append(helper.make_opsetid("odd", 1))
    with pytest.raises(BackendIsNotSupposedToImplementIt, match="Sparkle"):
        backend.prepare(model)
    assert not backend.is_compatible(model)
    assert backend.is_compatible(model_of(RELU, shape=[1]))
