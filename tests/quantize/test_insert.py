"""The QDQ form: valid ONNX, integer operators once compiled, the float network's results nearly."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, helper

import accelc
from accelc.compiler.onnx_write import to_model
from accelc.compiler.random_networks import random_network

W = np.random.default_rng(1).standard_normal((4, 4, 3, 3)) / 6
POINT = np.random.default_rng(2).standard_normal((6, 4, 1, 1)) / 2
ROW = np.random.default_rng(3).standard_normal((4, 5)) / 2
MakeModel = Callable[..., ModelProto]
CNN = "(float[N,4,8,8] x) => (float[N,?,?,?] y) "
NHWC = "(float[N,8,8,4] x) => (float[N,?,?,?] y) "
TWO = "(float[N,4] x) => (float[N,5] z, float[N,5] y) "
NORM = {"s": [1.0, 2, 3, -4], "b": [0.0, 1, 2, 3], "m": [0.5, 0, 0, 1], "v": [1.0, 2, 3, 4]}

#: Name: graph, constants, nodes that must be left on the CPU once compiled.
NETWORKS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "convolution": (CNN + "{ y = Conv <pads = [1, 1, 1, 1]> (x, w, b) }",
                    {"w": W, "b": np.arange(4.0)}, set()),
    "clamped": (CNN + "{ a = Conv (x, w) b = Relu (a) y = Clip (b, lo, hi) }",
                {"w": W, "lo": np.float32(0.0), "hi": np.float32(1.0)}, set()),
    "depthwise": (CNN + "{ a = Conv <group = 4> (x, d) y = Conv (a, p) }",
                  {"d": W[:, :1], "p": POINT}, set()),
    "residual": (CNN + """{ a = Conv <pads = [1, 1, 1, 1]> (x, w) r = Relu (a)
                 b = Conv <pads = [1, 1, 1, 1]> (r, w) c = Add (b, r) y = Relu (c) }""",
                 {"w": W}, set()),
    "difference": (CNN + "{ a = Conv <pads = [1, 1, 1, 1]> (x, w) y = Sub (a, x) }",
                   {"w": W}, set()),
    "join": (CNN + """{ a = Conv (x, w) b = Conv (x, p) c = Conv (b, q)
             y = Concat <axis = 1> (a, c) }""",
             {"w": W[:, :, :1, :1], "p": POINT, "q": POINT[:, :1].reshape(1, 6, 1, 1)}, set()),
    "pools": (CNN + """{ a = Conv (x, w) b = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
              c = AveragePool <kernel_shape = [2, 2]> (b) y = GlobalAveragePool (c) }""",
              {"w": W}, set()),
    "swish": (CNN + "{ a = Conv (x, w) s = Sigmoid (a) m = Mul (a, s) y = Conv (m, p) }",
              {"w": W, "p": POINT}, set()),
    "transposed": (NHWC + "{ a = Transpose <perm = [0, 3, 1, 2]> (x) y = Conv (a, w) }",
                   {"w": W}, set()),
    "perceptron": ("(float[N,4] x) => (float[N,5] y) { y = Gemm (x, w, b) }",
                   {"w": ROW, "b": np.arange(5.0)}, set()),
    "turned": ("(float[N,4] x) => (float[N,5] y) { y = Gemm <transB = 1> (x, w, b) }",
               {"w": ROW.T, "b": np.arange(5.0)[None]}, set()),
    "tokens": ("(float[N,3,4] x) => (float[N,3,5] y) { a = MatMul (x, w) y = Add (a, b) }",
               {"w": ROW, "b": np.arange(5.0)}, set()),
    "signal": ("(float[N,4,16] x) => (float[N,?,?] y) { y = Conv <strides = [2]> (x, w) }",
               {"w": W[..., 0]}, set()),
    "float tail": ("(float[N,4] x) => (float[N,5] y) { a = MatMul (x, w) y = Softmax (a) }",
                   {"w": ROW}, {"Softmax"}),
    "inner output": (TWO + "{ z = Gemm (x, w, b) a = Relu (z) y = Gemm (a, v) }",
                     {"w": ROW, "v": np.eye(5), "b": np.ones(5)},
                     set()),
    "lone batch normalization": (
        CNN + "{ n = BatchNormalization (x, s, b, m, v) y = Conv (n, w) }",
        {"w": W, **NORM}, set()),
}  # fmt: skip


def calibration(model: ModelProto, rng: np.random.Generator, count: int = 24) -> list[Any]:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(count)]


def onnxruntime(model: ModelProto, x: Any) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {"x": x})


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, make_model: MakeModel, rng: np.random.Generator) -> None:
    text, constants, on_cpu = NETWORKS[name]
    model = make_model(text, **constants)
    samples = calibration(model, rng)
    result = accelc.quantize(model, samples, observer="min-max", equalization="none")
    onnx.checker.check_model(result.model, full_check=True)
    assert result.report.output_sqnr_db > 25

    artifact = accelc.compile(result.model)
    moving = {"QuantizeLinear", "DequantizeLinear", "Transpose", "Reshape"}
    assert {p.op for p in artifact.model.placements if p.place == "cpu"} - moving == on_cpu

    # the quantized model is symbolic as the float one was: onnxruntime runs it on a batch
    x = np.stack(samples[:3])
    expected, found = onnxruntime(model, x), onnxruntime(result.model, x)
    session = accelc.load(artifact)
    for index, (exact, theirs) in enumerate(zip(expected, found, strict=True)):
        ours = np.concatenate([[*session.run({"x": s[None]}).values()][index] for s in x])
        step = np.ptp(exact) / 255
        assert np.abs(theirs - exact).max() < 8 * step
        # an element may fall to the other side of a rounding, and a step becomes some in a table
        assert np.abs(ours - theirs).max() <= 3.1 * step


def test_a_symbolic_batch_stays_symbolic(make_model: MakeModel, rng: np.random.Generator) -> None:
    model = make_model(NETWORKS["perceptron"][0], **NETWORKS["perceptron"][1])
    result = accelc.quantize(model, calibration(model, rng))
    for value in (*result.model.graph.input, *result.model.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "N"


def test_computed_shapes_fix_the_dimensions(
    make_model: MakeModel, rng: np.random.Generator
) -> None:
    model = make_model(
        """(float[N,2,2] x) => (float[N,5] y) { s = Shape (x) n = Gather (s, zero)
        u = Unsqueeze (n, axes) t = Concat <axis = 0> (u, four) r = Reshape (x, t)
        y = MatMul (r, w) }""",
        w=ROW, zero=np.int64(0), axes=np.array([0]), four=np.array([4]),
    )  # fmt: skip
    result = accelc.quantize(model, calibration(model, rng))
    assert [d.dim_value for d in result.model.graph.input[0].type.tensor_type.shape.dim] == [
        1,
        2,
        2,
    ]
    assert any("fixed" in note for note in result.report.notes)
    onnxruntime(result.model, np.zeros((1, 2, 2), np.float32))


def test_a_raised_softmax_keeps_the_batch(make_model: MakeModel, rng: np.random.Generator) -> None:
    """onnx converts it to one that restores the shape, which it asks for."""
    model = make_model(
        "(float[N,2,4] x) => (float[N,2,5] y) { a = MatMul (x, w) y = Softmax <axis = 1> (a) }",
        opset=11, w=ROW,
    )  # fmt: skip
    result = accelc.quantize(model, calibration(model, rng), observer="min-max")
    assert "Shape" in {node.op_type for node in result.model.graph.node}
    x = rng.standard_normal((3, 2, 4)).astype(np.float32)
    (found,), (exact,) = onnxruntime(result.model, x), onnxruntime(model, x)
    np.testing.assert_allclose(found, exact, atol=0.05)


def test_old_operator_sets_are_raised(make_model: MakeModel, rng: np.random.Generator) -> None:
    model = make_model(NETWORKS["turned"][0], opset=9, **NETWORKS["turned"][1])
    result = accelc.quantize(model, calibration(model, rng))
    assert max(o.version for o in result.model.opset_import) == 13


def test_integers_are_what_the_page_says(make_model: MakeModel, rng: np.random.Generator) -> None:
    """int8 activations, int8 weights symmetric per channel, int32 biases; a clamp hides in q."""
    model = make_model(NETWORKS["clamped"][0], **NETWORKS["clamped"][1])
    graph = accelc.quantize(model, calibration(model, rng), bias_correction=True).model.graph
    values = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    quantizers = [n for n in graph.node if n.op_type == "QuantizeLinear"]
    assert {values[n.input[2]].dtype for n in quantizers} == {np.dtype(np.int8)}
    assert values[quantizers[-1].input[2]] == -128
    weights = next(
        n for n in graph.node if n.op_type == "DequantizeLinear" and n.input[0] in values
    )
    assert values[weights.input[0]].dtype == np.int8 and values[weights.input[1]].shape == (4,)
    assert not values[weights.input[2]].any()
    assert {"Relu", "Clip"} <= {n.op_type for n in graph.node}
    assert [a.dtype for a in values.values() if a.dtype == np.int32]


def test_bodies_keep_the_values_they_capture(
    make_model: MakeModel, rng: np.random.Generator
) -> None:
    model = make_model(
        """(float[1,4] x, bool c) => (float[1,5] y) { a = Gemm (x, w) b = Relu (a)
        y = If (c) <then_branch = yes () => (float[1,5] t) { t = Neg (b) },
                    else_branch = no () => (float[1,5] e) { e = Identity (b) }> }""",
        w=ROW,
    )  # fmt: skip
    samples = [{"x": s[None], "c": np.array(True)} for s in calibration(model, rng, 8)]
    result = accelc.quantize(model, samples)
    session = ort.InferenceSession(result.model.SerializeToString())
    x = samples[0]["x"]
    exact = np.maximum(x @ ROW, 0)
    for flag, sign in ((True, -1), (False, 1)):
        (found,) = session.run(None, {"x": x, "c": np.array(flag)})
        np.testing.assert_allclose(np.asarray(found), sign * exact, atol=0.1)


@pytest.mark.parametrize("seed", [1, 6, 8, 9, 11])
def test_random_networks(seed: int) -> None:
    """Valid models of which accelc and onnxruntime compute the same."""
    graph = random_network(seed)

    def value(name: str) -> onnx.ValueInfoProto:
        found = graph.types[name]
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(found.dtype), found.shape
        )

    interface = helper.make_graph(
        [], "net", [value(n) for n in graph.inputs], [value(n) for n in graph.outputs]
    )
    opset = helper.make_opsetid("", graph.opset)
    template = helper.make_model(interface, opset_imports=[opset], ir_version=8)
    rng = np.random.default_rng(seed)
    samples = [
        {n: rng.standard_normal(graph.types[n].shape).astype(np.float32) for n in graph.inputs}
        for _ in range(8)
    ]
    model = to_model(graph, template, symbolic=False)
    quantized = accelc.quantize(model, samples, observer="min-max").model
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = ort.InferenceSession(quantized.SerializeToString(), options).run(None, samples[0])
    ours = accelc.load(accelc.compile(quantized), "cpu").run(samples[0])
    for a, b in zip(ours.values(), theirs, strict=True):
        exact = np.asarray(b, np.float64)
        assert np.abs(a - exact).max() <= 3.1 / 255 * max(np.ptp(exact), 1e-6)
