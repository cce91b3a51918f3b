"""``accelc diff``: executors and models compared tensor by tensor, in the model's own names."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from accelc.isa.config import PRESETS
from accelc.layer_diff import Bounds, as_json, differences, first_outside
from accelc.trace import Model, Tensor

CONFIG = PRESETS["1x4x4"]
SHAPE = [1, 3, 6, 6]
Command = Callable[..., tuple[int, str, str]]


def save(path: Path, nodes: list[Any], constants: dict[str, Any], outputs: list[str]) -> Path:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def network(path: Path, *, quantized: bool, dtype: Any = np.uint8) -> Path:
    """Conv, Relu, Conv, MatMul of the flattened image; as QDQ model, or in float."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.integers(-30, 30, (5, 3, 3, 3)).astype(np.int8),
        "w2": rng.integers(-30, 30, (3, 5, 1, 1)).astype(np.int8),
        "w3": rng.integers(-30, 30, (48, 4)).astype(np.int8),
    }
    zero = 128 if dtype == np.uint8 else 0
    constants: dict[str, Any] = {"s": np.float32(0.02), "z": dtype(zero), "ws": np.float32(0.01)}
    constants |= {"wz": np.int8(0)} | (weights if quantized else {})
    nodes: list[Any] = []
    for name, array in weights.items():
        if quantized:
            nodes.append(helper.make_node("DequantizeLinear", [name, "ws", "wz"], [f"{name}_f"]))
        else:
            constants[f"{name}_f"] = array.astype(np.float32) * np.float32(0.01)
    if not quantized:
        del constants["s"], constants["z"], constants["ws"], constants["wz"]

    def rounded(value: str) -> str:
        if not quantized:
            return value
        nodes.append(helper.make_node("QuantizeLinear", [value, "s", "z"], [f"{value}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{value}_q", "s", "z"], [f"{value}_d"]))
        return f"{value}_d"

    value = rounded("x")
    nodes.append(helper.make_node("Conv", [value, "w1_f"], ["conv1"]))
    nodes.append(helper.make_node("Relu", ["conv1"], ["relu1"]))
    value = rounded("relu1")
    nodes.append(helper.make_node("Conv", [value, "w2_f"], ["conv2"]))
    value = rounded("conv2")
    nodes.append(helper.make_node("Flatten", [value], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "w3_f"], ["logits"]))
    value = rounded("logits")
    nodes.append(helper.make_node("Sigmoid", [value], ["y"]))
    return save(path, nodes, constants, ["y"])


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    return network(tmp_path / "int8.onnx", quantized=True)


def silent(_: str) -> None:
    """Progress for nobody."""


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_compiled_tensors_are_found_under_the_models_names(tmp_path: Path, dtype: Any) -> None:
    model = Model(network(tmp_path / "net.onnx", quantized=True, dtype=dtype), CONFIG)
    inputs = {"x": np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)}
    reference = model.trace("reference", inputs, silent)
    for executor in ("golden", "functional", "cpu"):
        trace = model.trace(executor, inputs, silent)
        assert {"relu1_q", "conv2_q", "logits_q", "y"} <= {*trace}
        for name in ("relu1_q", "conv2_q", "logits_q"):
            ours, theirs = trace[name].array, reference[name].array
            assert ours.dtype == dtype and ours.shape == theirs.shape
            assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1
            assert trace[name].stands_for == (name.removesuffix("_q"),)


def test_each_executor_agrees_with_each_other(command: Command, quantized: Path) -> None:
    for a, b in (("golden", "functional"), ("functional", "cpu"), ("cpu", "reference")):
        code, out, _ = command("diff", quantized, "--a", a, "--b", b, "--config", "1x4x4")
        assert code == 0, out
        assert "tensors are within their bounds" in out


@pytest.mark.rtl
def test_the_hardware_agrees(command: Command, quantized: Path) -> None:
    arguments = ("diff", quantized, "--a", "functional", "--b", "rtl", "--config", "1x4x4")
    code, out, _ = command(*arguments, "--json")
    report = json.loads(out)
    assert code == 0 and report["within"] and report["first_outside"] is None
    integers = [t for t in report["tensors"] if t["kind"] == "integers"]
    assert integers and all(t["differing"] == 0 and t["sqnr_db"] is None for t in integers)


def test_a_wrong_layer_is_named_and_not_those_behind_it(quantized: Path) -> None:
    model = Model(quantized, CONFIG)
    inputs = {"x": np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)}
    reference = model.trace("reference", inputs, silent)
    faulty = dict(reference)
    broken = reference["conv2_q"].array.copy()
    broken[0, 1, 2, 3] = 250 if broken[0, 1, 2, 3] < 128 else 3
    values = dict(model.relay(inputs, {"conv2_q": replace(reference["conv2_q"], array=broken)}))
    faulty |= {name: values[name] for name in ("logits_q", "logits_d", "y")}
    faulty["conv2_q"] = replace(reference["conv2_q"], array=broken)
    del faulty["conv2_d"], faulty["flat"], faulty["logits"]
    found = differences(reference, faulty, Bounds(), relayed=model.relay(inputs, faulty))
    outside = [d.name for d in found if not d.within]
    assert outside == ["conv2_q"]
    first = first_outside(found)
    assert first is not None and first.index == (0, 1, 2, 3)
    assert (first.a, first.b) == (reference["conv2_q"].array[0, 1, 2, 3], broken[0, 1, 2, 3])
    assert first.differing == 1 and first.alone == first.worst > 1
    later = next(d for d in found if d.name == "logits_q")
    assert later.differing > 0 and later.alone == 0


def test_a_float_model_and_its_quantized_one(
    command: Command, tmp_path: Path, quantized: Path
) -> None:
    floats = network(tmp_path / "float.onnx", quantized=False)
    for b in ("reference", "functional"):
        arguments = ("diff", floats, quantized, "--b", b, "--config", "1x4x4")
        code, out, _ = command(*arguments, "--sqnr", 8, "--json")
        report = json.loads(out)
        names = [tensor["name"] for tensor in report["tensors"]]
        assert code == 0 and {"relu1_q", "conv2_q", "logits_q", "y"} <= {*names}
        assert all(8 < (tensor["sqnr_db"] or 99) for tensor in report["tensors"])
        code, out, _ = command(*arguments, "--sqnr", 90)
        assert code == 1 and "the first of" in out and "SQNR" in out


def test_numbers_are_what_they_say() -> None:
    x = np.array([[1.0, -2.0], [4.0, 0.5]], np.float32)
    y = x + np.array([[0, 0], [0.1, 0]], np.float32)
    a, b = ({"t": Tensor("t", "Add", array)} for array in (x, y))
    (found,) = differences(a, b, Bounds(tolerance=0.02))
    assert found.index == (1, 0) and found.differing == 1 and not (found.worst - 0.1) > 1e-6
    assert found.limit == pytest.approx(0.08) and not found.within
    assert found.sqnr_db == pytest.approx(10 * np.log10((x**2).sum() / 0.01), rel=1e-3)
    (equal,) = differences(a, a, Bounds())
    assert equal.within and as_json(equal)["sqnr_db"] is None
    nan = {"t": Tensor("t", "Add", np.array([[np.nan, np.inf], [1, 2]], np.float32))}
    (same,) = differences(nan, nan, Bounds())
    assert same.within and same.differing == 0
    (other,) = differences(a, nan, Bounds())
    assert not other.within and as_json(other)["worst"] is None


def test_mistakes_are_explained(command: Command, tmp_path: Path, quantized: Path) -> None:
    def fails(*arguments: object) -> str:
        code, out, err = command("diff", *arguments)
        assert code == 2 and not out
        return err

    assert "no executor 'rtx'; there are reference, golden" in fails(quantized, "--b", "rtx")
    assert "both cpu; a comparison needs two" in fails(quantized, "--a", "cpu", "--b", "cpu")
    assert "no such file" in fails(tmp_path / "none.onnx")
    np.save(tmp_path / "x.npy", np.zeros((1, 2), np.float32))
    given = ("--input", f"x={tmp_path / 'x.npy'}")
    assert "input 'x' must be float32 [1, 3, 6, 6]" in fails(quantized, *given)
    assert "no input 'v'" in fails(quantized, "--input", f"v={tmp_path / 'x.npy'}")
    node = helper.make_node("Relu", ["x"], ["other"])
    apart = save(tmp_path / "apart.onnx", [node], {}, ["other"])
    assert "no tensor in common" in fails(quantized, apart)
