"""Pools, sums, joins, tables and enlargements from QDQ graphs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from accelc.isa.config import AccelConfig

SCALE, ZERO = 0.0493, np.int8(-11)
SHAPE = (2, 6, 9, 8)


def quantized(b: Any, shape: tuple[int, ...] = SHAPE, name: str = "x", scale: float = SCALE) -> str:
    return b.dequantize(b.input(shape, name=name), scale, ZERO)


def integer_ops(graph: Any) -> list[str]:
    return [node.op for node in graph.nodes if node.op.startswith("int.")]


def views_only(graph: Any) -> bool:
    return {n.op for n in graph.nodes if not n.op.startswith("int.")} <= {"Transpose", "Reshape"}


POOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "maximum": ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    "maximum, rounded up": ("MaxPool", {"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1}),
    "maximum, dilated": ("MaxPool", {"kernel_shape": [2, 3], "dilations": [2, 1]}),
    "maximum, same": (
        "MaxPool",
        {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ),
    "average": ("AveragePool", {"kernel_shape": [3, 2], "strides": [2, 1]}),
    "average of padding": (
        "AveragePool",
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "global average": ("GlobalAveragePool", {}),
    "global maximum": ("GlobalMaxPool", {}),
}


@pytest.mark.parametrize("same", [False, True], ids=["rescaled", "same scale"])
@pytest.mark.parametrize("case", POOLS)
def test_pools(builder: Any, agree: Any, case: str, same: bool) -> None:
    op, attrs = POOLS[case]
    b = builder(seed=1)
    y = b.node(op, quantized(b), **attrs)
    b.output(b.quantize(y, SCALE if same else 0.031, ZERO if same else np.int8(4)))
    # sums that are exactly half way are decided by float noise in the reference
    graph = agree(b, share=0.1 if "average" in case and same else 0.002)
    assert views_only(graph)
    assert set(integer_ops(graph)) == {"int.conv" if "average" in case else "int.maxpool"}


@pytest.mark.parametrize("axes", [[2, 3], [-1, -2], [1, 2]])
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("keep", [0, 1])
def test_mean_over_space(builder: Any, agree: Any, opset: int, keep: int, axes: list[int]) -> None:
    b = builder(opset=opset)
    x = quantized(b)
    if opset < 18:
        y = b.node("ReduceMean", x, axes=axes, keepdims=keep)
    else:
        y = b.node("ReduceMean", x, b.constant(np.array(axes, np.int64)), keepdims=keep)
    b.output(b.quantize(y, 0.031, np.int8(4)))
    graph = agree(b)
    assert integer_ops(graph) == ["int.conv"] and views_only(graph)


@pytest.mark.parametrize("op", ["Add", "Sub"])
@pytest.mark.parametrize("shape", [SHAPE, (3, 10)])
def test_sum_of_two_scales(builder: Any, agree: Any, op: str, shape: tuple[int, ...]) -> None:
    b = builder(seed=2)
    y = b.node(op, quantized(b, shape), quantized(b, shape, "y", 0.0171))
    b.output(b.quantize(b.node("Relu", y), 0.0617, np.int8(9)))
    graph = agree(b)
    assert integer_ops(graph) == ["int.add"] and views_only(graph)


def test_sum_with_a_constant_per_channel(builder: Any, agree: Any) -> None:
    b = builder(seed=2)
    data = b.rng.integers(-128, 128, (6, 1, 1)).astype(np.int8)
    constant = b.dequantize(b.constant(data), 0.1, np.int8(2))
    b.output(b.quantize(b.node("Add", constant, quantized(b)), 0.0617, np.int8(9)))
    assert integer_ops(agree(b)) == ["int.add"]


def residual_block(b: Any, after: str = "Relu") -> None:
    x = quantized(b)
    y = b.node("Conv", x, b.weights((6, 6, 3, 3))[0], pads=[1, 1, 1, 1])
    y = b.dequantize(b.quantize(y, 0.5, np.int8(3)), 0.5, np.int8(3))
    y = b.quantize(b.node("Add", y, x), 0.45, np.int8(-2))
    if after:
        y = b.node(after, b.dequantize(y, 0.45, np.int8(-2)))
        y = b.quantize(y, 0.3, np.int8(-128))
    b.output(y)


@pytest.mark.parametrize("after", ["", "Relu", "Sigmoid"])
def test_residual_is_part_of_the_convolution(builder: Any, agree: Any, after: str) -> None:
    b = builder(seed=4)
    residual_block(b, after)
    graph = agree(b, lsb=2 if after == "Relu" else 1)
    assert integer_ops(graph) == ["int.conv"]
    layer = next(n for n in graph.nodes if n.op == "int.conv")
    assert layer.attrs["post"].add is not None and layer.attrs["post"].table == bool(after)


def test_without_add_stage_the_sum_is_left_with_a_reason(builder: Any, agree: Any) -> None:
    b = builder(seed=4)
    residual_block(b, "")
    config = AccelConfig(add=False)
    graph = agree(b, config)
    assert "Add" in [n.op for n in graph.nodes] and integer_ops(graph) == ["int.conv"]
    assert any("add stage" in reason for reason in graph.reasons.values())


def _silu(b: Any, x: str) -> str:
    return b.node("Mul", x, b.node("Sigmoid", x))


def _erf_gelu(b: Any, x: str) -> str:
    one, half, root = (b.constant(np.float32(v)) for v in (1, 0.5, np.sqrt(2)))
    inner = b.node("Add", b.node("Erf", b.node("Div", x, root)), one)
    return b.node("Mul", b.node("Mul", x, inner), half)


FUNCTIONS: dict[str, Callable[[Any, str], str]] = {
    **{
        op: (lambda b, x, op=op: b.node(op, x))
        for op in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish", "Elu")
        + ("Softplus", "Abs", "Neg", "Exp", "Selu", "Softsign", "Mish", "Floor")
    },
    "silu": _silu,
    "gelu": _erf_gelu,
    "affine": lambda b, x: b.node("Mul", x, b.constant(np.float32(-0.7))),
    "requantize": lambda b, x: x,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_become_tables(builder: Any, agree: Any, function: str) -> None:
    b = builder(seed=6, opset=18)
    y = FUNCTIONS[function](b, quantized(b))
    b.output(b.quantize(y, 0.02, np.int8(-3)))
    graph = agree(b, lsb=0)
    assert integer_ops(graph) == ["int.lookup"] and views_only(graph)


@pytest.mark.parametrize("function", ["requantize", "Relu"])
def test_linear_functions_need_no_table(builder: Any, agree: Any, function: str) -> None:
    b = builder(seed=6)
    y = FUNCTIONS[function](b, quantized(b))
    b.output(b.quantize(y, 0.02, np.int8(-3)))
    graph = agree(b, AccelConfig(lut=False), lsb=0)
    assert integer_ops(graph) == ["int.scale"]


def test_curved_functions_are_left_without_a_table(builder: Any, agree: Any) -> None:
    b = builder(seed=6)
    b.output(b.quantize(b.node("Sigmoid", quantized(b)), 0.004, np.int8(-128)))
    config = AccelConfig(lut=False)
    graph = agree(b, config)
    assert integer_ops(graph) == []
    assert "look-up table" in graph.reasons[graph.nodes[-1].name]


@pytest.mark.parametrize("same", [False, True])
def test_functions_join_the_operator_before(builder: Any, agree: Any, same: bool) -> None:
    """A Relu of equal scales is a clamp, any other function a table of the convolution."""
    b = builder(seed=7)
    y = b.node("Conv", quantized(b), b.weights((6, 6, 3, 3))[0])
    y = b.dequantize(b.quantize(y, 0.5, np.int8(3)), 0.5, np.int8(3))
    b.output(b.quantize(b.node("Relu", y), 0.5 if same else 0.21, np.int8(3)))
    graph = agree(b, lsb=3)
    assert integer_ops(graph) == ["int.conv"]
    post = next(n.attrs["post"] for n in graph.nodes if n.op == "int.conv")
    assert post.table != same and (not same or post.min == 3)


@pytest.mark.parametrize("axis", [1, -1, 2])
@pytest.mark.parametrize("same", [False, True])
def test_concatenation(builder: Any, agree: Any, axis: int, same: bool) -> None:
    b = builder(seed=8)
    parts = []
    for k, size in enumerate((3, 5, 2)):
        shape = [2, 4, 6, 7]
        shape[axis] = size
        parts.append(quantized(b, tuple(shape), f"x{k}", SCALE if same else 0.02 * (k + 1)))
    b.output(b.quantize(b.node("Concat", *parts, axis=axis), SCALE, ZERO))
    graph = agree(b, lsb=0)
    assert integer_ops(graph)[-1] == "int.concat"


@pytest.mark.parametrize(
    "attrs",
    [
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"coordinate_transformation_mode": "half_pixel"},
        {
            "coordinate_transformation_mode": "pytorch_half_pixel",
            "nearest_mode": "round_prefer_ceil",
        },
    ],
    ids=lambda a: a["coordinate_transformation_mode"],
)
@pytest.mark.parametrize("by_sizes", [False, True])
def test_enlargement(builder: Any, agree: Any, attrs: dict[str, str], by_sizes: bool) -> None:
    b = builder(seed=9)
    if by_sizes:
        sizes = ["", "", b.constant(np.array([2, 6, 18, 24], np.int64))]
    else:
        sizes = ["", b.constant(np.array([1, 1, 2, 3], np.float32))]
    b.output(
        b.quantize(b.node("Resize", quantized(b), *sizes, mode="nearest", **attrs), SCALE, ZERO)
    )
    graph = agree(b, lsb=0)
    assert integer_ops(graph) == ["int.resize"] and views_only(graph)


def _pad(b: Any, x: str, value: float = 0.0) -> str:
    pads = b.constant(np.array([0, 0, 1, 2, 0, 0, 0, 1], np.int64))
    return b.node("Pad", x, pads, b.constant(np.float32(value)))


@pytest.mark.parametrize("quantized_pad", [False, True])
def test_pad_before_a_convolution(builder: Any, agree: Any, quantized_pad: bool) -> None:
    b = builder(seed=10)
    x = _pad(b, quantized(b))
    if quantized_pad:
        x = b.dequantize(b.quantize(x, SCALE, ZERO), SCALE, ZERO)
    w, _ = b.weights((4, 6, 3, 3))
    b.output(b.quantize(b.node("Conv", x, w, pads=[1, 1, 1, 1]), 0.5, np.int8(0)))
    graph = agree(b)
    layer = next(n for n in graph.nodes if n.op == "int.conv")
    assert layer.attrs["conv"].pads == (2, 3, 1, 2) and views_only(graph)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("value", [0.0, "zero point"])
def test_pad_alone(builder: Any, agree: Any, dtype: Any, value: float | str) -> None:
    """On floats the border is 0.0, on integers whatever the model says."""
    b = builder(seed=10)
    zero = np.array(90, dtype)
    x = b.input(SHAPE, dtype)
    pads = b.constant(np.array([0, 0, 1, 2, 0, 0, 0, 1], np.int64))
    if value == 0.0:
        x = b.dequantize(x, SCALE, zero)
        x = b.quantize(b.node("Pad", x, pads), SCALE, zero)
    else:
        x = b.node("Pad", x, pads, b.constant(np.array(17, dtype)))
    b.output(x, dtype)
    graph = agree(b, lsb=0)
    assert integer_ops(graph) == ["int.conv"]


def test_bounds_written_as_maximum_and_minimum(builder: Any, agree: Any) -> None:
    b = builder(seed=12)
    y = b.node("Conv", quantized(b), b.weights((4, 6, 3, 3))[0])
    y = b.node("Max", y, b.constant(np.float32(-2)))
    y = b.node("Min", y, b.constant(np.float32(6)))
    b.output(b.quantize(y, 0.5, np.int8(3)))
    graph = agree(b)
    post = next(n.attrs["post"] for n in graph.nodes if n.op == "int.conv")
    assert (post.min, post.max) == (-1, 15)


def test_every_part_of_a_refused_pattern_is_left_alone(builder: Any, agree: Any) -> None:
    """Reasons of everything that looks quantized but cannot become integers exactly."""
    cases: list[tuple[str, Callable[[Any], str]]] = [
        ("computed at run time", lambda b: b.node("Conv", quantized(b), b.dequantize(
            b.input((4, 6, 3, 3), name="w"), 0.1, np.int8(0)))),
        ("its divisor varies", lambda b: b.node(
            "AveragePool", quantized(b), kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
        ("is computed by Sigmoid", lambda b: b.node("Sigmoid", b.node(
            "Conv", quantized(b), b.weights((4, 6, 3, 3))[0]))),
        ("not a multiple of the accumulator", lambda b: b.node(
            "Conv", quantized(b), b.weights((4, 6, 3, 3))[0],
            b.constant(b.rng.normal(size=4).astype(np.float32)))),
        ("broadcast", lambda b: b.node("Add", quantized(b), quantized(b, (2, 6, 1, 1), "y"))),
        ("concatenation along the batch", lambda b: b.node(
            "Concat", quantized(b), quantized(b, name="y", scale=0.1), axis=0)),
        ("is computed by Mul", lambda b: b.node("Mul", quantized(b), quantized(b, name="y"))),
        ("alpha or beta", lambda b: b.node(
            "Gemm", quantized(b, (3, 4)), b.weights((4, 5), None)[0], alpha=0.5)),
        ("2^24 or more", lambda b: b.node(
            "Conv", quantized(b, scale=3e9), b.weights((4, 6, 1, 1))[0])),
    ]  # fmt: skip
    for expected, make in cases:
        b = builder(seed=11)
        b.output(b.quantize(make(b), 0.3, np.int8(0)))
        graph = agree(b, lsb=1, share=0.01)
        assert integer_ops(graph) == [], expected
        assert expected in graph.reasons[graph.nodes[-1].name]
