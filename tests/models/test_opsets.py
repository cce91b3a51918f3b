"""One small quantized network in every operator set and form that ONNX has for it."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import version_converter

NEWEST = onnx.defs.onnx_opset_version()
#: First with QuantizeLinear, and first with it per channel.
OLDEST, PER_CHANNEL = 10, 13
#: What onnxruntime reads for certain, where it lags behind onnx.
ORACLE = 21


def qdq(net: Any) -> None:
    axis = 0 if net.opset >= PER_CHANNEL else None
    x = net.dq(net.input(1, 3, 12, 12), 0.05, 3)
    x = net.node("Relu", net.conv(x, (8, 3, 3, 3), axis=axis, pads=[1, 1, 1, 1]))
    x = net.qdq(x, 0.03, -128)
    y = net.qdq(net.conv(x, (8, 8, 3, 3), axis=axis, x_scale=0.03, pads=[1] * 4), 0.04, 6)
    x = net.qdq(net.node("Add", x, y), 0.05, -20)
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.qdq(net.node("GlobalAveragePool", net.qdq(x, 0.05, -20)), 0.03, -20)
    x = net.node("Flatten", x)
    w = net.weights((8, 10), None)
    x = net.node("Gemm", net.qdq(x, 0.03, -20), w, net.bias(10, 0.03))
    net.output(net.node("Softmax", net.qdq(x, 0.02, 1)), np.float32)


def qlinear(net: Any, contrib: bool) -> None:
    def quantized(scale: float, zero: int) -> tuple[str, str]:
        return net.const(net.odd(scale)), net.const(np.int8(zero))

    rng, first = net.rng, quantized(0.05, 3)
    x = net.input(1, 3, 12, 12)
    channels = 3
    for scale, zero in ((0.03, -128), (0.04, 6)):
        w = rng.integers(-127, 128, (8, channels, 3, 3)).astype(np.int8)
        bias = rng.integers(-2000, 2000, 8).astype(np.int32)
        w_scale = rng.uniform(0.001, 0.004, 8).astype(np.float32)
        weights = (net.const(w), net.const(w_scale), net.const(np.zeros(8, np.int8)))
        result = quantized(scale, zero)
        operands = (x, *first, *weights, *result, net.const(bias))
        before, x = (x, *first), net.node("QLinearConv", *operands, pads=[1] * 4)
        first, channels = result, 8
    if contrib:
        total = quantized(0.06, -9)
        x = net.node("com.microsoft.QLinearAdd", x, *first, *before, *total)
        first = total
        mean = quantized(0.02, -30)
        x = net.node("com.microsoft.QLinearGlobalAveragePool", x, *first, *mean)
        first = mean
    else:
        x = net.node("MaxPool", x, kernel_shape=[12, 12]) if net.opset >= 12 else x
    x = net.node("Reshape", x, net.const(np.array([1, -1], np.int64)))
    inputs = 8 if contrib or net.opset >= 12 else 8 * 144
    w = rng.integers(-127, 128, (inputs, 10)).astype(np.int8)
    weights = (net.const(w), *quantized(0.05 / np.sqrt(inputs), 0))
    net.output(net.node("QLinearMatMul", x, *first, *weights, *quantized(0.2, 7)))


@pytest.mark.parametrize("opset", range(OLDEST, NEWEST + 1))
def test_qdq(new_net: Any, check_net: Any, opset: int) -> None:
    net, oracle = new_net(opset=opset), new_net(opset=min(opset, ORACLE))
    qdq(net)
    qdq(oracle)
    artifact = check_net(net, oracle=oracle.model())
    assert len(artifact.programs) == 1


@pytest.mark.parametrize("contrib", [False, True])
@pytest.mark.parametrize("opset", range(OLDEST, NEWEST + 1))
def test_qlinear(new_net: Any, check_net: Any, opset: int, contrib: bool) -> None:
    net = new_net(opset=opset)
    qlinear(net, contrib)
    artifact = check_net(net)
    assert len(artifact.programs) == 1


@pytest.mark.parametrize("opset", range(PER_CHANNEL + 1, NEWEST + 1))
def test_converted(new_net: Any, check_net: Any, opset: int) -> None:
    """As onnx itself converts it from opset 13."""
    net = new_net(opset=PER_CHANNEL)
    qdq(net)
    original = net.model()
    converted = version_converter.convert_version(original, opset)
    net.model = lambda: converted
    check_net(net, oracle=original)
