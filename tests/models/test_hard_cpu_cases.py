"""Operators whose fine print broke other compilers, end to end on the CPU, against onnxruntime."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.parser
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper

import accelc

Array = NDArray[Any]
INF, NAN = np.inf, np.nan


def model(graph: str, opset: int) -> ModelProto:
    """``inputs => outputs { nodes }`` as a model."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> case {graph}'
    return onnx.parser.parse_model(text)


def feeds(proto: ModelProto, given: Mapping[str, Any]) -> dict[str, Array]:
    """Random values for the inputs that are not given."""
    rng = np.random.default_rng(5)
    result: dict[str, Array] = {}
    for value in proto.graph.input:
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        shape = [d.dim_value for d in tensor.shape.dim]
        if value.name in given:
            result[value.name] = np.asarray(given[value.name], dtype)
        elif dtype.kind == "f":
            result[value.name] = rng.normal(size=shape).astype(dtype)
        else:
            lowest = -9 if dtype.kind == "i" else 0
            result[value.name] = rng.integers(lowest, 10, shape).astype(dtype)
    return result


def check(proto: ModelProto, inputs: dict[str, Array]) -> None:
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = session.run(None, inputs)
    for target, device in (("cpu", "cpu"), ("vta", "functional")):
        ours = accelc.load(accelc.compile(proto, target=target), device).run(inputs)
        for (name, found), expected in zip(ours.items(), wanted, strict=True):
            assert found.shape == expected.shape and found.dtype == expected.dtype, name
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6, err_msg=name)


F = "(float[2,3,6,7] x)"
Case = tuple[str, int, Mapping[str, Any]]


def case(graph: str, opset: int, given: Mapping[str, Any] | None = None) -> Case:
    return graph, opset, given or {}


CASES: dict[str, Case] = {
    # Softmax flattens before opset 13 and works along one axis from then on
    **{
        f"{op} of opset {opset}, {attrs or 'default'}": case(
            f"{F} => (float[?,?,?,?] y) {{ y = {op} {attrs} (x) }}", opset, {}
        )
        for opset in (9, 12, 13, 21)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for attrs in ("", "<axis = 0>", "<axis = 2>", "<axis = 3>")
    },
    "softmax of large and infinite values": case(
        "(float[3,4] x) => (float[3,4] y) { y = Softmax (x) }", 13,
        {"x": [[1e30, 1e30, -1e30, 0], [-INF, 0, 1, 2], [90, -90, 88, 89]]}
    ),
    "slice backwards": case(
        f"{F} => (float[?,?,?,?] y) <int64[2] s = {{-1, 5}}, int64[2] e = {{-100, -7}},"
        " int64[2] a = {3, -2}, int64[2] t = {-2, -1}> { y = Slice (x, s, e, a, t) }", 13
    ),
    "slice far beyond the ends": case(
        f"{F} => (float[?,?,?,?] y) <int64[2] s = {{-9223372036854775807, 3}},"
        " int64[2] e = {9223372036854775807, 9223372036854775807}, int64[2] a = {2, 3}>"
        " { y = Slice (x, s, e, a) }", 13
    ),
    "slice to nothing": case(
        f"{F} => (float[?,?,?,?] y) <int64[1] s = {{4}}, int64[1] e = {{4}}, int64[1] a = {{2}}>"
        " { y = Slice (x, s, e, a) }", 13
    ),
    "slice of opset 9": case(
        f"{F} => (float[?,?,?,?] y) {{ y = Slice <axes = [1, 3], starts = [-2, 1], ends = [9, -1]>"
        " (x) }", 9
    ),
    "slice from a start known when running": case(
        "(float[6,7] x, int64[1] s, int64[1] e) => (float[a,b] y) { y = Slice (x, s, e) }", 13,
        {"s": [1], "e": [-1]}
    ),
    "reshape 0 and -1": case(
        f"{F} => (float[?,?,?] y) <int64[3] s = {{0, -1, 7}}> {{ y = Reshape (x, s) }}", 13
    ),
    "reshape allowzero": case(
        "(float[0,3] x) => (float[?,?] y) <int64[2] s = {3, 0}>"
        " { y = Reshape <allowzero = 1> (x, s) }", 14
    ),
    "reshape to a scalar": case(
        "(float[1,1] x) => (float y) <int64[0] s = {}> { y = Reshape (x, s) }", 13
    ),
    "reshape by a shape that is computed": case(
        f"{F} => (float[?,?] y) <int64[1] i = {{0}}, int64[1] m = {{-1}}>"
        " { s = Shape (x) b = Gather (s, i) r = Concat <axis = 0> (b, m) y = Reshape (x, r) }",
        13
    ),
    **{
        f"pad {mode}": case(
            f"{F} => (float[?,?,?,?] y) <int64[8] p = {{0, 1, 2, 3, 0, 0, 1, 2}},"
            f' float v = {{1.5}}> {{ y = Pad <mode = "{mode}"> (x, p, v) }}', 19
        )
        for mode in ("constant", "edge", "reflect", "wrap")
    },
    "pad negative": case(
        f"{F} => (float[?,?,?,?] y) <int64[8] p = {{0, -1, 2, -3, 0, 0, -1, 2}}>"
        " { y = Pad (x, p) }", 13
    ),
    "pad axes": case(
        f"{F} => (float[?,?,?,?] y) <int64[4] p = {{1, -2, 3, 1}}, int64[2] a = {{-1, 1}},"
        " float v = {2.0}> { y = Pad (x, p, v, a) }", 18
    ),
    "pad of opset 10": case(
        f"{F} => (float[?,?,?,?] y)"
        " { y = Pad <pads = [0, 0, 1, 2, 0, 0, 2, 1], value = 3.0> (x) }", 10
    ),
    "pad known when running": case(
        "(float[2,3] x, int64[4] p) => (float[a,b] y) { y = Pad (x, p) }", 13,
        {"p": [1, 0, -1, 2]}
    ),
    **{
        f"{op} {form}": case(
            f"{F} => (float[] y) {axes} {{ y = {op} {attrs} (x{', a' if axes else ''}) }}",
            18
        )
        for op in ("ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd")
        for form, axes, attrs in (
            ("over axes", "<int64[2] a = {-1, 1}>", "<keepdims = 0>"),
            ("over everything", "", ""),
            ("over no axes", "<int64[0] a = {}>", "<noop_with_empty_axes = 0>"),
            ("over no axes, no operation", "<int64[0] a = {}>", "<noop_with_empty_axes = 1>")
        )
    },
    "reduce over axes known when running": case(
        "(float[2,3,4] x, int64[1] a) => (float[] y) { y = ReduceSum <keepdims = 1> (x, a) }", 13,
        {"a": [-2]}
    ),
    "integer division": case(
        "(int64[6] a, int64[6] b) => (int64[6] y, int64[6] z, int64[6] f)"
        " { y = Div (a, b) z = Mod (a, b) f = Mod <fmod = 1> (a, b) }", 13,
        {"a": [7, -7, 7, -7, 9223372036854775807, -9223372036854775807],
         "b": [2, 2, -2, -2, -3, 7]}
    ),
    "32 bit division": case(
        "(int32[4] a, int32[4] b) => (int32[4] y) { y = Div (a, b) }", 13,
        {"a": [7, -7, 7, -7], "b": [2, 2, -2, -2]}
    ),
    "float division by zero": case(
        "(float[4] a, float[4] b) => (float[4] y) { y = Div (a, b) }", 13,
        {"a": [1, -1, 0, INF], "b": [0, 0, 0, INF]}
    ),
    "cast not a number to truth": case(
        "(float[4] x) => (bool[4] y, double[4] z, float16[4] h)"
        " { y = Cast <to = 9> (x) z = Cast <to = 11> (x) h = Cast <to = 10> (x) }", 13,
        {"x": [NAN, INF, -INF, 0.0]}
    ),
    "cast truncates": case(
        "(float[6] x) => (int32[6] y, int64[6] z, uint8[6] u)"
        " { y = Cast <to = 6> (x) z = Cast <to = 7> (x) u = Cast <to = 2> (x) }", 13,
        {"x": [2.9, 0.5, 1.5, 200.7, 0.0, 1e-30]}
    ),
    "maximum and minimum of NaN": case(
        "(float[4] a, float[4] b) => (float[4] y, float[4] z, float[4] r)"
        " { y = Max (a, b) z = Min (a, b) r = Relu (a) }", 13,
        {"a": [NAN, 1, NAN, -1], "b": [1, NAN, NAN, 3]}
    ),
    "if": case(
        "(bool c, float[3] x) => (float[3] y) { y = If (c) <"
        "then_branch = t () => (float[3] a) { a = Neg (x) },"
        "else_branch = e () => (float[3] b) { b = Exp (x) }> }", 13, {"c": True}
    ),
    "loop with scan outputs": case(
        "(float[3] x) => (float[3] y, float[4,3] all) <int64 n = {4}, bool c = {1}> {"
        " y, all = Loop (n, c, x) <body = b (int64 i, bool k, float[3] v)"
        " => (bool k2, float[3] w, float[3] s) { k2 = Identity (k) w = Add (v, x)"
        " s = Mul (w, w) }> }", 13
    ),
    "loop that stops by itself": case(
        "(float x) => (float y) <int64 n = {100}, bool c = {1}, float limit = {50.0}> {"
        " y = Loop (n, c, x) <body = b (int64 i, bool k, float v) => (bool k2, float w)"
        " { w = Add (v, v) k2 = Less (w, limit) }> }", 13, {"x": 3.0}
    ),
    "scan": case(
        "(float[2] h, float[5,2] x) => (float[2] y, float[5,2] z)"
        " { y, z = Scan <num_scan_inputs = 1,"
        " body = b (float[2] s, float[2] e) => (float[2] t, float[2] o)"
        " { t = Add (s, e) o = Tanh (t) }> (h, x) }", 13
    ),
    "transposed convolution, same lower": case(
        "(float[1,4,5,6] x, float[4,3,3,2] w) => (float[?,?,?,?] y)"
        ' { y = ConvTranspose <auto_pad = "SAME_LOWER", strides = [2, 3]> (x, w) }', 13
    ),
    "transposed convolution, output padding": case(
        "(float[1,4,5,6] x, float[4,2,3,3] w, float[4] b) => (float[?,?,?,?] y)"
        " { y = ConvTranspose <strides = [2, 3], output_padding = [1, 2], pads = [1, 0, 0, 2],"
        " group = 2> (x, w, b) }", 13
    ),
    "transposed convolution, output shape": case(
        "(float[1,4,5,6] x, float[4,3,3,3] w) => (float[?,?,?,?] y)"
        " { y = ConvTranspose <strides = [2, 2], output_shape = [10, 12]> (x, w) }", 13
    ),
    "average pool, ceil_mode, padding counts": case(
        f"{F} => (float[?,?,?,?] y) {{ y = AveragePool <kernel_shape = [3, 3], strides = [2, 2],"
        " pads = [1, 1, 1, 1], ceil_mode = 1, count_include_pad = 1> (x) }", 11
    ),
    "max pool, ceil_mode, a window wholly in padding": case(
        f"{F} => (float[?,?,?,?] y) {{ a = MaxPool <kernel_shape = [3, 3], strides = [3, 3],"
        " pads = [1, 1, 1, 1], ceil_mode = 1> (x) y = Softmax (a) }", 13
    ),
    "max pool with indices": case(
        f"{F} => (float[?,?,?,?] y, int64[?,?,?,?] i)"
        " { y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }", 12
    ),
    "resize, cubic, excluding the outside": case(
        "(float[2,3,6,7] x) => (float[?,?,?,?] y) <float[4] s = {1.0, 1.0, 2.5, 0.7}>"
        ' { y = Resize <mode = "cubic", exclude_outside = 1, cubic_coeff_a = -0.5> (x, , s) }',
        13
    ),
    "resize, axes": case(
        "(float[2,3,6,7] x) => (float[?,?,?,?] y) <float[2] s = {2.5, 0.7}>"
        ' { y = Resize <mode = "linear", axes = [3, 2]> (x, , s) }', 18
    ),
    "resize, a region beyond the input": case(
        "(float[1,1,6,7] x) => (float[?,?,?,?] y) <int64[4] z = {1, 1, 9, 8},"
        " float[8] r = {0.0, 0.0, -0.2, 0.1, 1.0, 1.0, 1.1, 0.9}>"
        ' { y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize",'
        " extrapolation_value = 7.5> (x, r, , z) }", 13
    ),
    "gather from the end": case(
        f"{F} => (float[] y) <int64[2,2] i = {{-1, 0, -3, 2}}> {{ y = Gather <axis = 1> (x, i) }}",
        13
    ),
    "a scalar all the way": case(
        "(float x) => (float y) <float c = {2.5}> { a = Mul (x, c) y = Sigmoid (a) }", 13
    ),
    "broadcast of every kind": case(
        "(float[3,1,5] a, float[4,1] b, float c) => (float[3,4,5] y)"
        " { s = Add (a, b) y = Mul (s, c) }", 13
    ),
    "where and comparison": case(
        "(float[4,5] a, float[5] b) => (float[4,5] y)"
        " { m = Greater (a, b) y = Where (m, a, b) }", 13
    ),
    "cumulative sum, exclusive and reversed": case(
        "(float[3,5] x) => (float[3,5] y) <int64 a = {1}>"
        " { y = CumSum <exclusive = 1, reverse = 1> (x, a) }", 14
    ),
    "one hot": case(
        "(int64[3] i) => (float[3,4] y) <int64 d = {4}, float[2] v = {0.25, 1.5}>"
        " { y = OneHot (i, d, v) }", 13, {"i": [0, -1, 3]}
    ),
    "top k": case(
        "(float[3,9] x) => (float[3,4] y, int64[3,4] i) <int64[1] k = {4}>"
        " { y, i = TopK <largest = 0> (x, k) }", 13
    ),
    "non zero": case("(float[3,4] x) => (int64[2,n] y) { y = NonZero (x) }", 13),
    "einsum": case(
        "(float[2,3,4] a, float[2,4,5] b) => (float[2,3,5] y)"
        ' { y = Einsum <equation = "bij,bjk->bik"> (a, b) }', 13
    ),
    "recurrent": case(
        "(float[5,2,3] x, float[1,16,3] w, float[1,16,4] r) => (float[] y, float[] h)"
        " { y, h = LSTM <hidden_size = 4> (x, w, r) }", 14
    ),
    "split into uneven parts": case(
        f"{F} => (float[] a, float[] b) <int64[2] s = {{5, 2}}>"
        " { a, b = Split <axis = -1> (x, s) }", 13
    ),
    "split by number": case(
        f"{F} => (float[] a, float[] b, float[] c)"
        " { a, b, c = Split <axis = 3, num_outputs = 3> (x) }", 18
    ),
    "input as output, output twice, constant output": case(
        "(float[3] x) => (float[3] x, float[3] y, float[2] c) <float[2] c = {1.0, 2.0}>"
        " { y = Identity (x) }", 13
    ),
    "dynamic quantization": case(
        "(float[5,16] x, int8[16,7] w) => (float[5,7] y) <int8 z = {3}, float ws = {0.02}>"
        " { q, s, p = DynamicQuantizeLinear (x) m = MatMulInteger (q, w, p, z)"
        " f = Cast <to = 1> (m) t = Mul (s, ws) y = Mul (f, t) }", 13
    ),
    "quantize halves and extremes": case(
        "(float[9] x) => (int8[9] y, uint8[9] u) <float s = {0.5}, int8 z = {-3}, uint8 v = {7}>"
        " { y = QuantizeLinear (x, s, z) u = QuantizeLinear (x, s, v) }", 13,
        {"x": [0.25, 0.75, -0.25, -0.75, 1e30, -1e30, INF, -INF, 1.25]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    graph, opset, given = CASES[name]
    proto = model(graph, opset)
    check(proto, feeds(proto, given))


TRANSFORMS = (
    "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric",
    "tf_crop_and_resize",
)  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("by", ["s = {1.0, 1.0, 1.5, 2.0}", "s = {1.0, 1.0, 0.6, 0.5}", "sizes"])
def test_resize(transform: str, mode: str, by: str) -> None:
    attrs = f'coordinate_transformation_mode = "{transform}", mode = "{mode}"'
    roi = "float[8] r = {0.0, 0.0, 0.1, 0.2, 1.0, 1.0, 0.8, 0.9}"
    r = "r" if transform == "tf_crop_and_resize" else ""
    if by == "sizes":
        given, arguments = "int64[4] z = {2, 3, 9, 5}", f"x, {r}, , z"
    else:
        given, arguments = f"float[4] {by}", f"x, {r}, s"
    for rounding in ROUNDINGS if mode == "nearest" else ROUNDINGS[:1]:
        resized = f'Resize <{attrs}, nearest_mode = "{rounding}"> ({arguments})'
        proto = model(f"{F} => (float[?,?,?,?] y) <{roi}, {given}> {{ y = {resized} }}", 19)
        check(proto, feeds(proto, {}))
