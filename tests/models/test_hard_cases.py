"""Quantized models that broke other compilers, end to end, against onnxruntime.

``check_net`` says what agreement means.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import accelc

#: Adds nodes to a ``Net`` of conftest.
Build = Callable[[Any], None]


def single_conv(
    x: Sequence[int],
    w: Sequence[int],
    *,
    zero: int = -3,
    out_zero: int = 5,
    out_scale: float = 0.04,
    relu: bool = False,
    **options: Any,
) -> Build:
    def build(net: Any) -> None:
        shift = 128 if net.dtype == np.uint8 else 0
        value = net.conv(net.dq(net.input(*x), 0.05, zero + shift), w, **options)
        if relu:
            value = net.node("Relu", value)
        net.output(net.q(value, out_scale, out_zero + shift))

    return build


CONVS: dict[str, Build] = {
    "pad with zero point": single_conv((1, 3, 20, 20), (8, 3, 3, 3), pads=[1, 1, 1, 1], zero=77),
    "pad with lowest zero point": single_conv(
        (1, 3, 20, 20), (8, 3, 3, 3), pads=[2] * 4, zero=-128
    ),
    "pad with highest zero point": single_conv(
        (1, 3, 20, 20), (8, 3, 3, 3), pads=[1] * 4, zero=127
    ),
    "relu in the zero point": single_conv((1, 8, 20, 20), (8, 8, 3, 3), out_zero=-128),
    "relu above another zero point": single_conv((1, 8, 20, 20), (8, 8, 3, 3), relu=True),
    "uneven pads, stride 2": single_conv(
        (1, 5, 19, 21), (9, 5, 3, 3), pads=[0, 0, 1, 1], strides=[2, 2]
    ),
    "very uneven pads": single_conv(
        (1, 5, 12, 11), (9, 5, 4, 3), pads=[3, 0, 1, 2], strides=[2, 3]
    ),
    "same upper": single_conv((1, 4, 17, 18), (6, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    "same lower": single_conv((1, 4, 17, 18), (6, 4, 4, 2), auto_pad="SAME_LOWER", strides=[2, 2]),
    "valid": single_conv((1, 4, 17, 18), (6, 4, 4, 2), auto_pad="VALID"),
    "dilation": single_conv((1, 4, 17, 18), (6, 4, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3]),
    "dilation and stride": single_conv(
        (1, 4, 17, 18), (6, 4, 3, 3), dilations=[3, 2], strides=[2, 3]
    ),
    "window larger than the image": single_conv((1, 4, 3, 3), (6, 4, 5, 5), pads=[2, 2, 2, 2]),
    "grouped": single_conv((1, 12, 9, 9), (8, 3, 3, 3), group=4, pads=[1] * 4),
    "grouped, one input each": single_conv((1, 12, 9, 9), (36, 1, 3, 3), group=12, pads=[1] * 4),
    "depthwise": single_conv((1, 20, 9, 9), (20, 1, 3, 3), group=20, pads=[1] * 4),
    "depthwise, stride 2, uneven": single_conv(
        (1, 33, 11, 9), (33, 1, 3, 3), group=33, pads=[0, 0, 1, 1], strides=[2, 2]
    ),
    "depthwise 5x5 dilated": single_conv(
        (1, 18, 15, 15), (18, 1, 5, 5), group=18, dilations=[2, 2], pads=[4] * 4
    ),
    "depthwise of one channel": single_conv((1, 1, 9, 9), (1, 1, 3, 3), group=1),
    "depthwise, multiplier 2": single_conv((1, 6, 9, 9), (12, 1, 3, 3), group=6, pads=[1] * 4),
    "per tensor": single_conv((1, 6, 9, 9), (12, 6, 3, 3), axis=None),
    "unsigned weights": single_conv((1, 6, 20, 20), (12, 6, 3, 3), axis=None, w_dtype=np.uint8),
    "no bias": single_conv((1, 6, 9, 9), (12, 6, 3, 3), bias=False),
    "batch of 3": single_conv((3, 6, 9, 9), (12, 6, 3, 3)),
    "one dimension": single_conv((1, 6, 40), (12, 6, 3), pads=[1, 2], strides=[2]),
    "three dimensions": single_conv((1, 2, 6, 7, 8), (3, 2, 3, 3, 3), pads=[1] * 6),
    "1x1 image": single_conv((1, 40, 1, 1), (30, 40, 1, 1)),
    "pointwise stride 2": single_conv((1, 40, 7, 7), (30, 40, 1, 1), strides=[2, 2]),
    "stride beyond the window": single_conv((1, 8, 13, 13), (8, 8, 2, 2), strides=[4, 3]),
    "long row": single_conv((1, 3, 2, 700), (5, 3, 1, 9), pads=[0, 4, 0, 4]),
    "long column": single_conv((1, 3, 700, 2), (5, 3, 9, 1), pads=[4, 0, 4, 0]),
    "more channels than scratchpads hold": single_conv(
        (1, 1500, 3, 3), (70, 1500, 3, 3), pads=[1] * 4
    ),
    "first layer of an ImageNet network": single_conv(
        (1, 3, 112, 112), (16, 3, 7, 7), pads=[3] * 4, strides=[2, 2]
    ),
    "scale that saturates nearly everything": single_conv(
        (1, 3, 20, 20), (8, 3, 3, 3), out_scale=0.002
    ),
    "scale that leaves few levels": single_conv((1, 3, 20, 20), (8, 3, 3, 3), out_scale=0.9),
}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=["int8", "uint8"])
@pytest.mark.parametrize("case", CONVS)
def test_convolution(new_net: Any, check_net: Any, case: str, dtype: Any) -> None:
    net = new_net(dtype=dtype)
    CONVS[case](net)
    artifact = check_net(net, "1x8x8")
    if case != "three dimensions":
        assert any(step.program is not None for step in artifact.model.steps)


def flatten_order(net: Any, *how: str) -> None:
    """Convolution to fully connected: the weights see channels before rows before columns."""
    value = net.qdq(net.conv(net.dq(net.input(2, 3, 7, 9), 0.05, 3), (10, 3, 3, 3)), 0.04, -7)
    c, h, w = 10, 5, 7
    if "pool" in how:
        value = net.qdq(net.node("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2]), 0.04, -7)
        h, w = 2, 3
    if "nhwc" in how:
        value = net.node("Transpose", value, perm=[0, 2, 3, 1])
    if "reshape" in how:
        value = net.node("Reshape", value, net.const(np.array([0, -1], np.int64)))
    elif "two steps" in how:
        value = net.node("Reshape", value, net.const(np.array([2, c, h * w], np.int64)))
        value = net.node("Reshape", value, net.const(np.array([-1, c * h * w], np.int64)))
    else:
        value = net.node("Flatten", value)
    value = net.qdq(value, 0.04, -7)
    w_name = net.weights((c * h * w, 11), 1)
    value = net.node("Gemm", value, w_name, net.bias(11, 0.04, axis=0))
    net.output(net.q(value, 0.05, 9))


def two_scales(op: str, shape: Sequence[int], other: Sequence[int], **attrs: Any) -> Build:
    def build(net: Any) -> None:
        shift = 128 if net.dtype == np.uint8 else 0
        a = net.dq(net.input(*shape), 0.031, 11 + shift)
        b = net.dq(net.input(*other), 0.0173, shift - 90)
        net.output(net.q(net.node(op, a, b, **attrs), 0.041, shift - 17))

    return build


def activation_function(op: str, **attrs: Any) -> Build:
    def build(net: Any) -> None:
        value = net.conv(net.dq(net.input(1, 6, 10, 10), 0.05, -5), (9, 6, 3, 3))
        value = net.qdq(value, 0.04, 4)
        net.output(net.q(net.node(op, value, **attrs), 0.02, -60))

    return build


def bounds(net: Any) -> None:
    value = net.conv(net.dq(net.input(1, 6, 10, 10), 0.05, -5), (9, 6, 3, 3))
    low, high = net.const(np.float32(-0.5)), net.const(np.float32(1.7))
    net.output(net.q(net.node("Clip", value, low, high), 0.02, -60))


def pool(op: str, size: Sequence[int] = (1, 6, 13, 14), **attrs: Any) -> Build:
    def build(net: Any) -> None:
        value = net.node(op, net.dq(net.input(*size), 0.05, -100), **attrs)
        net.output(net.q(value, 0.05 if op.endswith("MaxPool") else 0.02, -100))

    return build


def long_skip(net: Any) -> None:
    """A value that is needed again after 12 layers, beside others that live long too."""
    kept = [net.qdq(net.conv(net.dq(net.input(1, 8, 12, 12)), (8, 8, 1, 1)), 0.05, 3)]
    value = kept[0]
    for depth in range(12):
        value = net.qdq(net.conv(value, (8, 8, 3, 3), pads=[1] * 4), 0.05, 3)
        kept += [value] if depth % 4 == 0 else []
    for number, skipped in enumerate(reversed(kept)):
        value = net.qdq(net.node("Add", value, skipped), 0.06 + 0.01 * number, -2)
    net.output(net.q(net.node("Concat", value, *kept, axis=1), 0.1, 2))


def shared(net: Any) -> None:
    """One value quantized in two ways, one weight used twice, an inner value that is an output."""
    x = net.dq(net.input(1, 8, 9, 9), 0.05, 1)
    w = net.weights((8, 8, 3, 3))
    inner = net.q(net.node("Conv", x, w, pads=[1] * 4), 0.05, 5)
    net.output(inner)
    y = net.node("Conv", net.dq(inner, 0.05, 5), w)
    net.output(net.q(y, 0.03, -4))
    net.output(net.q(y, 0.07, 40))


def squeeze_excite(net: Any) -> None:
    x = net.qdq(net.conv(net.dq(net.input(1, 6, 9, 9)), (16, 6, 3, 3)), 0.04, -20)
    gate = net.qdq(net.node("GlobalAveragePool", x), 0.03, -20)
    gate = net.qdq(net.node("Relu", net.conv(gate, (4, 16, 1, 1), x_scale=0.03)), 0.02, -128)
    gate = net.qdq(net.conv(gate, (16, 4, 1, 1), x_scale=0.02), 0.05, 0)
    gate = net.qdq(net.node("Sigmoid", gate), 1 / 256, -128)
    net.output(net.q(net.node("Mul", x, gate), 0.03, -20))


def attention(net: Any) -> None:
    q, k = net.dq(net.input(2, 4, 8, 16), 0.05, 3), net.dq(net.input(2, 4, 16, 8), 0.04, -9)
    scores = net.qdq(net.node("MatMul", q, k), 0.2, 0)
    weights = net.qdq(net.node("Softmax", scores, axis=-1), 1 / 256, -128)
    v = net.dq(net.input(2, 4, 8, 16), 0.05, 3)
    net.output(net.q(net.node("MatMul", weights, v), 0.02, 3))


def resize(
    scales: Sequence[float] = (), sizes: Sequence[int] = (), roi: bool = False, **attrs: Any
) -> Build:
    def build(net: Any) -> None:
        x = net.qdq(net.conv(net.dq(net.input(1, 6, 9, 9)), (16, 6, 3, 3)), 0.04, -20)
        given = [net.const(np.zeros(0, np.float32)) if roi else ""]
        given.append(net.const(np.array(scales, np.float32)) if scales else "")
        given += [net.const(np.array(sizes, np.int64))] if sizes else []
        net.output(net.q(net.node("Resize", x, *given, **attrs), 0.033, -20))

    return build


def transposed(**attrs: Any) -> Build:
    def build(net: Any) -> None:
        x = net.dq(net.input(1, 6, 5, 7), 0.05, 9)
        w = net.weights((6, 4, 3, 3), None)
        net.output(net.q(net.node("ConvTranspose", x, w, **attrs), 0.05, -9))

    return build


def softmax(opset: int, axis: int | None) -> Build:
    def build(net: Any) -> None:
        net.opset = opset
        x = net.conv(net.dq(net.input(1, 6, 5, 5)), (10, 6, 3, 3), axis=None)
        x = net.qdq(x, 0.04, -20)
        attrs = {} if axis is None else {"axis": axis}
        net.output(net.node("Softmax", x, **attrs), np.float32)

    return build


def fully_connected(inputs: int, outputs: int, rows: int = 1) -> Build:
    def build(net: Any) -> None:
        x = net.dq(net.input(rows, inputs), 0.05, 9)
        w = net.weights((inputs, outputs), 1)
        product = net.node("MatMul", x, w)
        net.output(net.q(net.node("Add", product, net.bias(outputs, axis=0)), 0.1, -9))

    return build


def wide(net: Any) -> None:
    """Tensors far larger than every scratchpad, in both directions."""
    x = net.dq(net.input(1, 3, 160, 160), 0.05, 9)
    x = net.qdq(net.conv(x, (32, 3, 3, 3), pads=[1] * 4), 0.05, -3)
    y = net.qdq(net.conv(x, (32, 1, 3, 3), group=32, pads=[1] * 4), 0.05, -3)
    y = net.qdq(net.node("Add", x, y), 0.06, 7)
    y = net.qdq(net.node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 0.06, 7)
    net.output(net.q(net.node("GlobalAveragePool", y), 0.03, -90))
    net.output(net.q(net.conv(y, (8, 32, 1, 1), x_scale=0.06), 0.05, 0))


def both_signs(net: Any) -> None:
    """uint8 activations into signed weights and out as int8, through a requantization."""
    x = net.input(1, 6, 9, 9, dtype=np.uint8)
    x = net.raw_dq(x, net.odd(0.02), np.uint8(131))
    y = net.qdq(net.conv(x, (8, 6, 3, 3), x_scale=0.02), 0.02, -3)
    y = net.node("QuantizeLinear", y, net.const(net.odd(0.02)), net.const(np.uint8(125)))
    net.output(y, np.uint8)


def default_zero(net: Any) -> None:
    """QuantizeLinear without zero point makes uint8; scales of rank 0 and rank 1."""
    x = net.input(1, 6, 9, 9, dtype=np.uint8)
    x = net.node("DequantizeLinear", x, net.const(net.odd(0.02).reshape(1)))
    y = net.conv(x, (8, 6, 3, 3), x_scale=0.02)
    net.output(net.node("QuantizeLinear", y, net.const(net.odd(0.03).reshape(1))), np.uint8)


NETWORKS: dict[str, Build] = {
    "flatten": lambda net: flatten_order(net),
    "flatten after a pool": lambda net: flatten_order(net, "pool"),
    "flatten by reshape": lambda net: flatten_order(net, "reshape"),
    "flatten in two steps": lambda net: flatten_order(net, "two steps"),
    "flatten channels last": lambda net: flatten_order(net, "nhwc", "pool"),
    "add": two_scales("Add", (1, 6, 9, 9), (1, 6, 9, 9)),
    "add per channel": two_scales("Add", (1, 6, 9, 9), (1, 6, 1, 1)),
    "add a row": two_scales("Add", (1, 6, 9, 9), (9,)),
    "add of rank 2": two_scales("Add", (5, 33), (5, 33)),
    "add of rank 1": two_scales("Add", (33,), (33,)),
    "subtract": two_scales("Sub", (1, 6, 9, 9), (1, 6, 9, 9)),
    "multiply": two_scales("Mul", (1, 6, 9, 9), (1, 6, 9, 9)),
    "concatenate channels": two_scales("Concat", (1, 6, 9, 9), (1, 5, 9, 9), axis=1),
    "concatenate rows": two_scales("Concat", (1, 6, 9, 9), (1, 6, 2, 9), axis=2),
    "concatenate batches": two_scales("Concat", (1, 6, 9, 9), (2, 6, 9, 9), axis=0),
    "concatenate vectors": two_scales("Concat", (3, 6), (3, 17), axis=-1),
    "relu": activation_function("Relu"),
    "leaky relu": activation_function("LeakyRelu", alpha=0.3),
    "sigmoid": activation_function("Sigmoid"),
    "tanh": activation_function("Tanh"),
    "hard swish": activation_function("HardSwish"),
    "elu": activation_function("Elu"),
    "clip": bounds,
    "max pool": pool("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "max pool, ceil": pool("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "max pool, uneven": pool("MaxPool", kernel_shape=[3, 2], strides=[2, 3], pads=[2, 0, 1, 1]),
    "max pool, dilated": pool("MaxPool", kernel_shape=[2, 3], dilations=[3, 2]),
    "max pool, same lower": pool("MaxPool", kernel_shape=[2, 2], auto_pad="SAME_LOWER"),
    "average pool": pool("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    "average pool, padded": pool("AveragePool", kernel_shape=[3, 3], pads=[1] * 4),
    "average pool, padding counts": pool(
        "AveragePool", kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1
    ),
    "average pool, ceil": pool("AveragePool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "average pool, ceil and padding": pool(
        "AveragePool", kernel_shape=[3, 3], strides=[3, 3], pads=[1] * 4, ceil_mode=1,
        count_include_pad=1,
    ),
    "global average pool": pool("GlobalAveragePool"),
    "global average pool of a large image": pool("GlobalAveragePool", (1, 5, 61, 67)),
    "global max pool": pool("GlobalMaxPool", (2, 70, 2, 2)),
    "long skips": long_skip,
    "shared values": shared,
    "squeeze and excite": squeeze_excite,
    "attention": attention,
    "enlarge by scales": resize(
        mode="nearest", scales=[1, 1, 2, 3], coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "enlarge by sizes": resize(mode="nearest", sizes=[1, 16, 14, 21]),
    "enlarge by sizes, empty roi": resize(mode="nearest", sizes=[1, 16, 14, 14], roi=True),
    "enlarge by a fraction": resize(mode="nearest", sizes=[1, 16, 10, 11]),
    "shrink": resize(mode="nearest", scales=[1, 1, 0.5, 0.4]),
    "enlarge linearly": resize(mode="linear", scales=[1, 1, 2, 2]),
    "enlarge cubically": resize(mode="cubic", scales=[1, 1, 2, 2]),
    "transposed convolution": transposed(strides=[2, 2]),
    "transposed, output padding": transposed(strides=[2, 3], output_padding=[1, 2], pads=[1] * 4),
    "transposed, same lower": transposed(strides=[2, 2], auto_pad="SAME_LOWER"),
    "transposed, output shape": transposed(strides=[2, 2], output_shape=[10, 13]),
    "softmax 11": softmax(11, None),
    "softmax 11, axis 2": softmax(11, 2),
    "softmax 13": softmax(13, None),
    "softmax 13, axis 1": softmax(13, 1),
    "fully connected": fully_connected(77, 35),
    "fully connected, many rows": fully_connected(77, 35, 50),
    "fully connected, larger than the scratchpads": fully_connected(4096, 260),
    "larger than the scratchpads": wide,
    "both signs": both_signs,
    "default zero point": default_zero,
}  # fmt: skip


@pytest.mark.parametrize("case", NETWORKS)
def test_network(new_net: Any, check_net: Any, case: str) -> None:
    net = new_net(opset=18)
    NETWORKS[case](net)
    check_net(net, "1x8x8")


@pytest.mark.parametrize("scale", [np.nan, np.inf, 0.0, 1e20, 1e-30])
def test_scales_that_mean_nothing(new_net: Any, check_net: Any, recwarn: Any, scale: float) -> None:
    """They stay on the CPU, where they give what onnxruntime gives, without a warning."""
    net = new_net()
    x = net.raw_dq(net.input(1, 3, 8, 8), np.float32(scale), np.int8(3))
    w = net.weights((4, 3, 3, 3), None)
    net.output(net.node("Conv", x, w), np.float32)
    y = net.raw_dq(net.input(1, 3, 8, 8), np.float32(0.1), np.int8(3))
    net.output(net.q(net.node("Conv", y, w), 0.1, 2))
    check_net(net)
    net.output(net.q(net.node("Conv", x, w), 0.1, 2))
    assert len(accelc.compile(net.model()).programs) == 1
    assert not recwarn.list
