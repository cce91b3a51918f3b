"""Quantizing operators against NumPy and, where it is installed, onnxruntime bit for bit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from accelc.compiler.graph import Array

Check = Callable[..., Any]

TYPES = [np.int8, np.uint8]
#: Powers of two make ties frequent; the others are ordinary.
SCALES = [(0.5, 0.25, 0.5), (0.0234, 0.0121, 0.0437)]


def single(value: float) -> Array:
    return np.array(value, np.float32)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantize_linear(dtype: Any, compile_node: Check, rng: np.random.Generator) -> None:
    """Half to even, the zero point added after rounding, NaN to the lowest value."""
    special = [np.nan, np.inf, -np.inf, 0.25, 0.75, 1.25, -0.25]
    x = np.concatenate([rng.standard_normal(300) * 100, special]).astype(np.float32)
    constants = {"s": single(0.5), "z": np.array(9, dtype)}
    limits = np.iinfo(dtype)
    real = np.rint(np.nan_to_num(x.astype(np.float64) / 0.5, nan=-np.inf)) + 9
    want = real.clip(limits.min, limits.max).astype(dtype)
    module, _ = compile_node("QuantizeLinear", {"x": x}, {"y": (x.shape, dtype)}, {}, constants, 21)
    np.testing.assert_array_equal(module.run({"x": x})["y"], want)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_per_axis(axis: int, dtype: Any, check_node: Check, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((3, 4, 5)) * 50).astype(np.float32)
    extent = x.shape[axis]
    constants = {
        "s": rng.uniform(0.1, 2, extent).astype(np.float32),
        "z": rng.integers(0, 100, extent).astype(dtype),
    }
    q = check_node("QuantizeLinear", {"x": x}, constants=constants, attrs={"axis": axis}, opset=21)
    check_node(
        "DequantizeLinear", {"q": q["y0"]}, constants=constants, attrs={"axis": axis}, opset=21
    )


def test_dequantize_rank_1_bias(compile_node: Check, rng: np.random.Generator) -> None:
    """An int32 bias with one scale a channel and the default axis, 1, that it does not have."""
    q = rng.integers(-(2**30), 2**30, 6).astype(np.int32)
    scale = rng.uniform(1e-4, 1e-3, 6).astype(np.float32)
    module, _ = compile_node(
        "DequantizeLinear", {"q": q}, {"y": ((6,), np.float32)}, {}, {"s": scale}, 13
    )
    np.testing.assert_array_equal(module.run({"q": q})["y"], q.astype(np.float32) * scale)


def onnxruntime_outputs(
    op: str,
    inputs: dict[str, Array],
    constants: dict[str, Array],
    attrs: dict[str, Any],
    outputs: int,
) -> list[Array]:
    """All outputs, graph optimizations off: they move results by one step."""
    runtime = pytest.importorskip("onnxruntime")
    domain, _, name = op.rpartition(".")
    names = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(name, [*inputs, *constants], names, domain=domain, **attrs)
    kinds = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    results = [onnx.ValueInfoProto(name=n) for n in names]
    initializers = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph([node], "node", kinds, results, initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return runtime.InferenceSession(model.SerializeToString(), options).run(None, inputs)


Case = tuple[str, dict[str, Array], dict[str, Array], dict[str, Any]]


def cases(dtype: Any, scales: tuple[float, float, float], rng: np.random.Generator) -> list[Case]:
    limits = np.iinfo(dtype)

    def noise(*shape: int) -> Array:
        return rng.integers(limits.min, limits.max + 1, shape, dtype=dtype)

    def zero(value: int) -> Array:
        return np.array(value, dtype)

    a, b, c = scales
    x = {"xs": single(a), "xz": zero(3)}
    y = {"ys": single(c), "yz": zero(7)}
    lowest = {"ys": single(1 / 256), "yz": zero(limits.min)}
    second = {"b": noise(20000), "bs": single(b), "bz": zero(5)}
    weights = {"ws": single(b / 50), "wz": zero(0 if dtype == np.int8 else 128)}
    bias = rng.integers(-1000, 1000, 16).astype(np.int32)
    parts = {"p": noise(2, 3, 4), "ps": single(a), "pz": zero(3)}
    more = {"r": noise(2, 5, 4), "rs": single(b), "rz": zero(5)}
    wide = {"ys": single(4 * c), "yz": zero(7)}
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    image = {"x": noise(2, 5, 9, 9)}
    return [
        ("com.microsoft.QLinearAdd", {"x": noise(20000)}, {**x, **second, **y}, {}),
        ("com.microsoft.QLinearMul", {"x": noise(20000)}, {**x, **second, **wide}, {}),
        ("com.microsoft.QLinearSigmoid", {"x": noise(999)}, {**x, **lowest}, {}),
        ("com.microsoft.QLinearLeakyRelu", {"x": noise(999)}, {**x, **y}, {"alpha": 0.1}),
        ("com.microsoft.QLinearGlobalAveragePool", image, {**x, **y}, {"channels_last": 0}),
        ("com.microsoft.QLinearConcat", {}, {**y, **parts, **more}, {"axis": 1}),
        ("com.microsoft.QLinearAveragePool", image, {**x, **y}, window),
        (
            "QLinearConv",
            {"x": noise(1, 8, 12, 12)},
            {**x, "w": noise(16, 8, 3, 3), **weights, **y, "b": bias},
            {"pads": [1, 1, 1, 1]},
        ),
        ("QLinearMatMul", {"x": noise(20, 64)}, {**x, "w": noise(64, 30), **weights, **y}, {}),
        (
            "com.microsoft.QGemm",
            {"x": noise(20, 64)},
            {**x, "w": noise(64, 16), **weights, "c": bias, **y},
            {},
        ),
    ]


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("dtype", TYPES)
def test_as_onnxruntime(
    dtype: Any, scales: Any, number: int, compile_node: Check, rng: np.random.Generator
) -> None:
    op, inputs, constants, attrs = cases(dtype, scales, rng)[number]
    (want,) = onnxruntime_outputs(op, inputs, constants, attrs, 1)
    module, _ = compile_node(op, inputs, {"y": (want.shape, want.dtype)}, attrs, constants, 17)
    got = module.run(inputs)["y"]
    if "AveragePool" in op and "Global" not in op:
        # float sums decide ties: see the rounding contract
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
        assert (got != want).mean() < 0.01
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", TYPES)
def test_qlinear_softmax(dtype: Any, compile_node: Check, rng: np.random.Generator) -> None:
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max + 1, (4, 100), dtype=dtype)
    constants = {
        "xs": single(0.07), "xz": np.array(3, dtype),
        "ys": single(1 / 256), "yz": np.array(limits.min, dtype),
    }  # fmt: skip
    attrs = {"axis": -1, "opset": 13}
    op = "com.microsoft.QLinearSoftmax"
    (want,) = onnxruntime_outputs(op, {"x": x}, constants, attrs, 1)
    module, _ = compile_node(op, {"x": x}, {"y": (x.shape, dtype)}, attrs, constants, 17)
    got = module.run({"x": x})["y"]
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_dynamic_quantize(sign: int, compile_node: Check, rng: np.random.Generator) -> None:
    """Mixed signs, all positive, all negative: the range always holds 0."""
    x = rng.standard_normal((4, 50)).astype(np.float32)
    x = np.abs(x) * np.float32(sign) if sign else x
    wants = onnxruntime_outputs("DynamicQuantizeLinear", {"x": x}, {}, {}, 3)
    described = {f"y{n}": (w.shape, w.dtype) for n, w in enumerate(wants)}
    module, _ = compile_node("DynamicQuantizeLinear", {"x": x}, described, {}, {}, 17)
    got = module.run({"x": x})
    for number, want in enumerate(wants):
        np.testing.assert_array_equal(got[f"y{number}"], want)
