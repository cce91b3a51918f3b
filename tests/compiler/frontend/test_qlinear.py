"""The QLinear operators of ONNX and com.microsoft, against onnxruntime."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from accelc.isa.config import AccelConfig

Make = Callable[[Any, Any], str]
X, Y = (0.0493, -11), (0.213, 5)


def params(b: Any, dtype: Any, scale: float, zero: int) -> tuple[str, str]:
    shifted = zero + (128 if dtype == np.uint8 else 0)
    return b.constant(np.float32(scale)), b.constant(np.array(shifted, dtype))


def _weights(b: Any, shape: tuple[int, ...], dtype: Any) -> str:
    # weights within 7 bits: wider ones saturate in onnxruntime on x86
    data = b.rng.integers(-63, 64, shape) + (128 if dtype == np.uint8 else 0)
    return b.constant(data.astype(dtype))


def _conv(b: Any, dtype: Any, per_channel: bool = False, **attrs: Any) -> str:
    x = b.input((2, 4, 9, 8), dtype)
    groups = attrs.get("group", 1)
    w = _weights(b, (6 if groups == 1 else 4, 4 // groups, 3, 3), np.int8)
    channels = 6 if groups == 1 else 4
    count = (channels,) if per_channel else ()
    w_scale = b.constant(b.rng.uniform(0.01, 0.02, count).astype(np.float32))
    w_zero = b.constant(np.zeros(count, np.int8))
    bias = b.constant(b.rng.integers(-900, 900, channels).astype(np.int32))
    y = params(b, dtype, *Y)
    return b.node("QLinearConv", x, *params(b, dtype, *X), w, w_scale, w_zero, *y, bias, **attrs)


def _matmul(b: Any, dtype: Any) -> str:
    x = b.input((3, 4, 20), dtype)
    w = _weights(b, (20, 7), dtype)
    inputs = (x, *params(b, dtype, *X), w, *params(b, dtype, 0.02, 0), *params(b, dtype, *Y))
    return b.node("QLinearMatMul", *inputs)


def _gemm(b: Any, dtype: Any) -> str:
    x = b.input((3, 20), dtype)
    w = _weights(b, (7, 20), dtype)
    bias = b.constant(b.rng.integers(-900, 900, 7).astype(np.int32))
    inputs = (x, *params(b, dtype, *X), w, *params(b, dtype, 0.02, 0), bias, *params(b, dtype, *Y))
    return b.node("com.microsoft.QGemm", *inputs, transB=1)


def _binary(b: Any, dtype: Any, op: str, constant: bool = False) -> str:
    x = b.input((2, 4, 9, 8), dtype)
    if constant:
        info = np.iinfo(dtype)
        y = b.constant(b.rng.integers(info.min, info.max, (4, 1, 1)).astype(dtype))
    else:
        y = b.input((2, 4, 9, 8), dtype, "y")
    inputs = (x, *params(b, dtype, *X), y, *params(b, dtype, 0.0171, 20), *params(b, dtype, *Y))
    return b.node(op, *inputs)


def _unary(b: Any, dtype: Any, op: str, **attrs: Any) -> str:
    x = b.input((2, 4, 9, 8), dtype)
    scale, zero = (1 / 256, -128) if op.endswith(("Sigmoid", "Softmax")) else Y
    return b.node(op, x, *params(b, dtype, *X), *params(b, dtype, scale, zero), **attrs)


def _concat(b: Any, dtype: Any) -> str:
    parts: list[str] = []
    for k, scale in enumerate((0.0493, 0.021, 0.213)):
        parts += [b.input((2, 3 + k, 9, 8), dtype, f"x{k}"), *params(b, dtype, scale, k)]
    return b.node("com.microsoft.QLinearConcat", *params(b, dtype, *Y), *parts, axis=1)


MS = "com.microsoft."
CASES: dict[str, tuple[str, Make]] = {
    "convolution": ("int.conv", lambda b, t: _conv(b, t, pads=[1, 0, 2, 1], strides=[2, 1])),
    "per channel": ("int.conv", lambda b, t: _conv(b, t, True, auto_pad="SAME_LOWER")),
    "depthwise": ("int.conv", lambda b, t: _conv(b, t, True, group=4)),
    "matrix product": ("int.conv", _matmul),
    "fully connected": ("int.conv", _gemm),
    "sum": ("int.add", lambda b, t: _binary(b, t, MS + "QLinearAdd")),
    "sum with constant": ("int.add", lambda b, t: _binary(b, t, MS + "QLinearAdd", True)),
    "sigmoid": ("int.lookup", lambda b, t: _unary(b, t, MS + "QLinearSigmoid")),
    "leaky": ("int.lookup", lambda b, t: _unary(b, t, MS + "QLinearLeakyRelu", alpha=0.2)),
    "average": (
        "int.conv",
        lambda b, t: _unary(b, t, MS + "QLinearAveragePool", kernel_shape=[3, 2], strides=[2, 1]),
    ),
    "global average": ("int.conv", lambda b, t: _unary(b, t, MS + "QLinearGlobalAveragePool")),
    "channels last": (
        "int.conv",
        lambda b, t: _unary(b, t, MS + "QLinearGlobalAveragePool", channels_last=1),
    ),
    "concatenation": ("int.concat", _concat),
    "product": ("", lambda b, t: _binary(b, t, MS + "QLinearMul")),
    "softmax": ("", lambda b, t: _unary(b, t, MS + "QLinearSoftmax", axis=-1, opset=13)),
}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=["int8", "uint8"])
@pytest.mark.parametrize("case", CASES)
def test_against_onnxruntime(builder: Any, agree: Any, case: str, dtype: Any) -> None:
    expected, make = CASES[case]
    b = builder(seed=len(case))
    b.output(make(b, dtype), dtype)
    graph = agree(b, runtime=True, lsb=1, share=0.02 if case == "softmax" else 0.002)
    ops = [node.op for node in graph.nodes if node.op.startswith("int.")]
    assert ops[-1:] == ([expected] if expected else [])
    assert not any(node.op.startswith("com.microsoft") for node in graph.nodes)


def test_sum_rounds_the_zero_point_in_as_onnxruntime_does(builder: Any, agree: Any) -> None:
    """Scales that are powers of two make ties common; an odd zero point then matters."""
    b = builder(seed=1)
    x, y = b.input((1, 16, 64, 64)), b.input((1, 16, 64, 64), name="y")
    parts = (params(b, np.int8, s, z) for s, z in ((0.25, 3), (0.5, -7), (1.0, 5)))
    a, c, out = parts
    b.output(b.node(MS + "QLinearAdd", x, *a, y, *c, *out))
    graph = agree(b, runtime=True, lsb=0)
    add = next(n.attrs["post"].add for n in graph.nodes if n.op == "int.add")
    assert add.zero == 0 and add.offset != 0


def test_left_over_operators_become_standard_ones(builder: Any, agree: Any) -> None:
    b = builder()
    b.output(_binary(b, np.int8, MS + "QLinearAdd"))
    graph = agree(b, AccelConfig(add=False), runtime=True)
    assert [n.op for n in graph.nodes] == ["DequantizeLinear"] * 2 + ["Add", "QuantizeLinear"]
    assert any("add stage" in reason for reason in graph.reasons.values())


def test_constant_sum_after_a_layer_joins_it(builder: Any, agree: Any) -> None:
    """A bias that a quantizer turned into a QLinearAdd keeps its own rounding."""
    b = builder(seed=3)
    x = b.input((1, 20))
    inputs = (x, *params(b, np.int8, *X), _weights(b, (20, 7), np.int8))
    y = b.node("QLinearMatMul", *inputs, *params(b, np.int8, 0.02, 0), *params(b, np.int8, *Y))
    bias = b.constant(b.rng.integers(-128, 128, 7).astype(np.int8))
    bias_params = params(b, np.int8, 0.0171, 3)
    result = params(b, np.int8, 0.31, -20)
    b.output(b.node(MS + "QLinearAdd", y, *params(b, np.int8, *Y), bias, *bias_params, *result))
    graph = agree(b, runtime=True, share=0.15)  # one of seven
    assert [n.op for n in graph.nodes] == ["Reshape", "int.conv", "Reshape"]
    assert graph.nodes[1].inputs[5] in graph.constants
