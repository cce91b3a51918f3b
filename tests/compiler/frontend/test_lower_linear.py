"""Convolutions and fully connected layers, in every form quantizers write them."""

from typing import Any

import numpy as np
import pytest

from accelc.isa.config import PRESETS, REFERENCE, AccelConfig

X_SCALE, Y_SCALE = 0.05, 0.4


def conv(
    b: Any,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    *,
    activation: str = "",
    unsigned: bool = False,
    w_zero: int = 0,
    axis: int | None = 0,
    bias: bool = True,
    y_scale: float = Y_SCALE,
    **attrs: Any,
) -> None:
    """QDQ convolution of a quantized input to a quantized output."""
    dtype: Any = np.uint8 if unsigned else np.int8
    x_zero, y_zero = (np.array(z + 128 * unsigned, dtype) for z in (3, -7))
    x = b.dequantize(b.input(x_shape, dtype), X_SCALE, x_zero)
    w, w_scale = b.weights(w_shape, axis, np.uint8 if w_zero else np.int8, w_zero)
    inputs = [x, w] + ([b.bias(X_SCALE, w_scale, w_shape[0])] if bias else [])
    y = b.node("Conv", *inputs, name="layer", **attrs)
    if activation == "Clip":
        bounds = (b.constant(np.float32(-1)), b.constant(np.float32(6)))
        y = b.node("Clip", y, *bounds)
    elif activation:
        y = b.node(activation, y)
    b.output(b.quantize(y, y_scale, y_zero), dtype)


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((1, 5, 9, 8), (7, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strided, uneven pads": (
        (2, 4, 11, 10),
        (6, 4, 3, 3),
        {"strides": [2, 2], "pads": [0, 1, 1, 0]},
    ),
    "dilated": ((1, 3, 14, 13), (4, 3, 3, 2), {"dilations": [2, 3], "pads": [2, 0, 2, 3]}),
    "same upper": ((1, 3, 7, 8), (4, 3, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "same lower": ((1, 3, 7, 8), (4, 3, 4, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    "valid": ((1, 3, 7, 8), (4, 3, 4, 2), {"auto_pad": "VALID"}),
    "depthwise": ((1, 6, 9, 7), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    "depth multiplier": ((1, 4, 9, 7), (8, 1, 3, 3), {"group": 4}),
    "grouped": ((1, 6, 6, 6), (4, 3, 3, 3), {"group": 2}),
    "one-dimensional": ((1, 5, 20), (6, 5, 5), {"strides": [2], "pads": [2, 1], "dilations": [2]}),
    "relu": ((1, 5, 6, 6), (7, 5, 3, 3), {"activation": "Relu"}),
    "clip": ((1, 5, 6, 6), (7, 5, 3, 3), {"activation": "Clip"}),
    "per tensor, no bias": ((1, 5, 6, 6), (7, 5, 3, 3), {"axis": None, "bias": False}),
    "uint8": ((1, 5, 6, 6), (7, 5, 3, 3), {"unsigned": True, "pads": [1, 0, 1, 2]}),
    "uint8 weights": ((1, 5, 6, 6), (7, 5, 3, 3), {"unsigned": True, "w_zero": 128}),
    "nine-bit weights": ((1, 5, 6, 6), (7, 5, 3, 3), {"w_zero": 90, "pads": [1, 1, 1, 1]}),
    "nine-bit, dilated": ((1, 5, 8, 9), (7, 5, 2, 3), {"w_zero": 201, "dilations": [1, 2]}),
    "nine-bit depthwise": ((1, 5, 8, 9), (5, 1, 3, 3), {"w_zero": 17, "group": 5}),
    "dead scale": ((1, 5, 6, 6), (7, 5, 3, 3), {"y_scale": 1e9}),
}


@pytest.mark.parametrize("case", CASES)
def test_convolution(builder: Any, agree: Any, case: str) -> None:
    x_shape, w_shape, attrs = CASES[case]
    b = builder(seed=len(case))
    conv(b, x_shape, w_shape, **attrs)
    graph = agree(b)
    ops = {node.op for node in graph.nodes if node.op.startswith("int.")}
    assert "int.conv" in ops and ops <= {"int.conv", "int.resize"}
    rest = {node.op for node in graph.nodes} - ops
    assert rest <= {"Transpose", "Reshape", "DequantizeLinear", "QuantizeLinear"}
    layer = next(node for node in graph.nodes if node.op == "int.conv")
    assert layer.name == "layer"
    assert layer.attrs["depthwise"] == ("depthwise" in case)


@pytest.mark.parametrize(
    "config",
    [*PRESETS.values(), AccelConfig(window=False, add=False, lut=False, mult_bits=24)],
    ids=lambda c: c.name,
)
def test_depthwise_on_every_configuration(builder: Any, agree: Any, config: AccelConfig) -> None:
    b = builder()
    conv(b, *CASES["depthwise"][:2], **CASES["depthwise"][2])
    graph = agree(b, config)
    layer = next(node for node in graph.nodes if node.op == "int.conv")
    assert layer.attrs["depthwise"] == config.window


def test_fewer_multiplier_bits_stay_within_one_step(builder: Any, agree: Any) -> None:
    b = builder()
    conv(b, (1, 8, 24, 24), (16, 8, 3, 3))
    graph = agree(b, AccelConfig(mult_bits=15), share=0.01)
    mult = next(graph.constants[n.inputs[3]] for n in graph.nodes if n.op == "int.conv")
    assert mult.max() < 1 << 15 and mult.min() >= 1 << 14


@pytest.mark.parametrize("kind", ["matmul", "gemm", "gemm transposed", "batched"])
def test_fully_connected(builder: Any, agree: Any, kind: str) -> None:
    b = builder(seed=5)
    shape = (2, 5, 12) if kind == "batched" else (3, 12)
    x = b.dequantize(b.input(shape), X_SCALE, np.int8(-4))
    transposed = kind == "gemm transposed"
    w, w_scale = b.weights((7, 12) if transposed else (12, 7), 0 if transposed else 1)
    bias = b.bias(X_SCALE, w_scale, 7)
    if kind.startswith("gemm"):
        y = b.node("Gemm", x, w, bias, transB=int(transposed))
    else:
        y = b.node("Add", b.node("MatMul", x, w), bias)
    b.output(b.quantize(b.node("Relu", y), 0.3, np.int8(-128)))
    graph = agree(b)
    assert [n.op for n in graph.nodes] == ["Reshape", "int.conv", "Reshape"]


def test_small_channel_scales_multiply_to_zero(builder: Any, agree: Any) -> None:
    b = builder()
    x = b.dequantize(b.input((1, 4, 5, 5)), X_SCALE, np.int8(0))
    data = b.rng.integers(-128, 128, (3, 4, 1, 1)).astype(np.int8)
    scale = np.array([0.01, 1e-9, 1e-30], np.float32)
    w = b.dequantize(b.constant(data), scale, np.zeros(3, np.int8), axis=0)
    b.output(b.quantize(b.node("Conv", x, w), 0.1, np.int8(5)))
    graph = agree(b)
    layer = next(n for n in graph.nodes if n.op == "int.conv")
    assert graph.constants[layer.inputs[3]][2] == 0


def test_float_bias_is_taken_where_exact(builder: Any, agree: Any) -> None:
    b = builder()
    x = b.dequantize(b.input((1, 4, 5, 5)), 0.25, np.int8(0))
    data = b.rng.integers(-128, 128, (3, 4, 1, 1)).astype(np.int8)
    w = b.dequantize(b.constant(data), 0.5, np.int8(0))
    bias = b.constant(np.array([1.0, -2.125, 100.0], np.float32))
    b.output(b.quantize(b.node("Conv", x, w, bias), 3.0, np.int8(5)))
    graph = agree(b)
    layer = next(n for n in graph.nodes if n.op == "int.conv")
    assert graph.constants[layer.inputs[2]].tolist() == [8, -17, 800]


@pytest.mark.parametrize("spatial", [(3, 4), (1, 1)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_flattened_image_to_fully_connected(
    builder: Any, agree: Any, spatial: tuple[int, int], channels_last: bool
) -> None:
    """The flatten order of ONNX, and of TFLite, in the weights rather than in a Transpose."""
    b = builder(seed=2)
    x = b.dequantize(b.input((1, 4, *spatial)), X_SCALE, np.int8(3))
    w, _ = b.weights((5, 4, 1, 1))
    y = b.quantize(b.node("Conv", x, w), Y_SCALE, np.int8(-9))
    y = b.dequantize(y, Y_SCALE, np.int8(-9))
    if channels_last:
        y = b.node("Transpose", y, perm=[0, 2, 3, 1])
    flat = b.node("Reshape", y, b.constant(np.array([1, -1], np.int64)))
    flat = b.dequantize(b.quantize(flat, Y_SCALE, np.int8(-9)), Y_SCALE, np.int8(-9))
    w, _ = b.weights((5 * spatial[0] * spatial[1], 6), None)
    b.output(b.quantize(b.node("MatMul", flat, w), 5.0, np.int8(1)))
    graph = agree(b)
    last = [n for n in graph.nodes if n.op == "int.conv"][-1]
    assert last.attrs["conv"].kernel == spatial
    between = graph.nodes[[n.op for n in graph.nodes].index("int.conv") : graph.nodes.index(last)]
    assert [n.op for n in between] == ["int.conv"]


def test_nhwc_convolutions_without_transposes(builder: Any, agree: Any) -> None:
    """A TFLite network: NHWC at the edges and around every operator."""
    b = builder(seed=3)
    value, channels = b.input((1, 8, 8, 4)), 4
    for out in (6, 5, 3):
        x = b.dequantize(value, X_SCALE, np.int8(3))
        x = b.node("Transpose", x, perm=[0, 3, 1, 2])
        w, _ = b.weights((out, channels, 3, 3))
        y = b.node("Relu", b.node("Conv", x, w, pads=[1, 1, 1, 1]))
        y = b.node("Transpose", y, perm=[0, 2, 3, 1])
        value, channels = b.quantize(y, X_SCALE, np.int8(3)), out
    b.output(value)
    graph = agree(b)
    assert [n.op for n in graph.nodes] == ["int.conv"] * 3


@pytest.mark.parametrize("bits", [8, 9])
def test_accumulators_that_may_overflow_are_named(builder: Any, bits: int) -> None:
    from accelc.compiler.frontend import build

    b = builder()
    conv(b, (1, 16, 1, 1), (1, 16, 1, 1), bias=False)
    assert build(b.model()).notes == ()
    b = builder()
    x = b.dequantize(b.input((1, 1 << 18)), X_SCALE, np.int8(0))
    data = np.full((1 << 18, 1), 127, np.int8)
    w = b.dequantize(b.constant(data), 0.01, np.int8(0))
    b.output(b.quantize(b.node("MatMul", x, w, name="wide"), 100.0, np.int8(0)))
    assert any("wide" in note and "overflow" in note for note in build(b.model()).notes)
    assert REFERENCE.mult_bits == 24
