"""The integer operators, bit for bit, against the NumPy definition."""

from typing import Any

import numpy as np
import pytest

from accelc.compiler.cpu import compile_graph, supports
from accelc.compiler.graph import Graph, Node, TensorType
from accelc.compiler.integer import AddStage, ConvAttrs, MatmulAttrs, Post
from accelc.compiler.integer_reference import evaluate

INT8 = np.dtype(np.int8)


def int8(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def check(
    op: str,
    inputs: dict[str, np.ndarray],
    constants: dict[str, np.ndarray],
    out_shape: tuple[int, ...],
    attrs: dict[str, Any],
    order: tuple[str, ...] | None = None,
) -> np.ndarray:
    names = order or (*inputs, *constants)
    node = Node(op, "node", names, ("y",), attrs)
    types = {n: TensorType(a.shape, a.dtype) for n, a in {**inputs, **constants}.items()}
    types["y"] = TensorType(out_shape, INT8)
    graph = Graph("test", (node,), types, constants, tuple(inputs), ("y",), 17)
    assert supports(node, graph)
    got = compile_graph(graph).run(inputs)["y"]
    np.testing.assert_array_equal(got, evaluate(graph, inputs)["y"])
    return got


def scaling(
    rng: np.random.Generator, c: int, level: float, bits: int = 24
) -> dict[str, np.ndarray]:
    """Bias, multipliers and shifts that bring accumulators of about ``level`` into int8."""
    mult = rng.integers(1 << (bits - 1), 1 << bits, c).astype(np.int32)
    shift = np.maximum(0, np.round(np.log2(mult * level / 40.0))).astype(np.int32)
    bias = rng.integers(-int(level) - 1, int(level) + 1, c).astype(np.int32)
    return {"bias": bias, "mult": mult, "shift": shift}


CONVS = [
    # n, h, w, c, o, kernel, stride, pads, dilation
    (1, 5, 7, 3, 5, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (2, 9, 8, 16, 32, (3, 3), (2, 2), (0, 1, 1, 0), (1, 1)),
    (1, 12, 11, 1, 8, (5, 4), (2, 1), (2, 1, 2, 2), (1, 1)),
    (1, 13, 13, 7, 33, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2)),
    (3, 6, 6, 24, 40, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (1, 7, 7, 33, 17, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    (1, 1, 1, 129, 10, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (5, 1, 1, 64, 100, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (1, 8, 8, 4, 1, (8, 8), (1, 1), (0, 0, 0, 0), (1, 1)),
]


@pytest.mark.parametrize("case", CONVS)
@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("extras", ["", "add", "table", "add table inside"])
def test_conv(case: Any, depthwise: bool, extras: str, rng: np.random.Generator) -> None:
    n, h, w, c, o, kernel, stride, pads, dilation = case
    conv = ConvAttrs(kernel=kernel, stride=stride, pads=pads, dilation=dilation, pad_value=-7)
    o = c if depthwise else o
    oh, ow = conv.output_size(h, w)
    weights = int8(rng, *kernel, c) if depthwise else int8(rng, o, *kernel, c)
    taps = kernel[0] * kernel[1] * (1 if depthwise else c)
    constants = {"w": weights, **scaling(rng, o, 5500.0 * taps**0.5)}
    inputs = {"x": int8(rng, n, h, w, c)}
    order = ["x", "w", "bias", "mult", "shift"]
    add = None
    if "add" in extras:
        add = AddStage(m1=9001, m2=-1234, offset=77, shift=14, zero=3, min=-120)
        inputs["r"] = int8(rng, n, oh, ow, o)
        order.append("r")
    if "table" in extras:
        constants["t"] = int8(rng, 256)
        order.append("t")
    post = Post(
        zero=-5, inside="inside" in extras, min=-128, max=100, add=add, table="table" in extras
    )
    attrs = {"conv": conv, "post": post, "depthwise": depthwise}
    got = check("int.conv", inputs, constants, (n, oh, ow, o), attrs, tuple(order))
    assert len(np.unique(got)) > 5 or got.size < 20


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("zero", [0, 5, -4])
def test_ties(inside: bool, zero: int, rng: np.random.Generator) -> None:
    """Power-of-two scales: one output in four lies between two integers."""
    conv = ConvAttrs(kernel=(1, 1))
    constants = {
        "w": np.eye(8, dtype=np.int8).reshape(8, 1, 1, 8),
        "bias": np.zeros(8, np.int32),
        "mult": np.full(8, 1, np.int32) << np.arange(8, dtype=np.int32),
        "shift": np.arange(2, 10, dtype=np.int32),
    }
    attrs = {"conv": conv, "post": Post(zero=zero, inside=inside), "depthwise": False}
    check("int.conv", {"x": int8(rng, 1, 9, 9, 8)}, constants, (1, 9, 9, 8), attrs)


def test_wrapping_and_extreme_shifts(rng: np.random.Generator) -> None:
    """Biases that overflow int32 and every shift: the int64 form."""
    conv = ConvAttrs(kernel=(1, 1))
    c = 62
    constants = {
        "w": int8(rng, c, 1, 1, 16),
        "bias": rng.choice(np.array([2**31 - 1, -(2**31), 2**30, 0], np.int32), c),
        "mult": rng.integers(0, 1 << 24, c).astype(np.int32),
        "shift": np.arange(c, dtype=np.int32),
    }
    for inside in (False, True):
        attrs = {"conv": conv, "post": Post(zero=3, inside=inside), "depthwise": False}
        check("int.conv", {"x": int8(rng, 1, 5, 7, 16)}, constants, (1, 5, 7, c), attrs)


def test_saturation_vector() -> None:
    """The products that 16-bit saturating instructions get wrong."""
    x = np.full((1, 1, 1, 64), -128, np.int8)
    constants = {
        "w": np.full((16, 1, 1, 64), -128, np.int8),
        "bias": np.arange(16, dtype=np.int32) - 64 * 2**14,
        "mult": np.ones(16, np.int32),
        "shift": np.zeros(16, np.int32),
    }
    attrs = {"conv": ConvAttrs(kernel=(1, 1)), "post": Post(), "depthwise": False}
    got = check("int.conv", {"x": x}, constants, (1, 1, 1, 16), attrs)
    np.testing.assert_array_equal(got.reshape(-1), np.arange(16))


@pytest.mark.parametrize("c", [1, 3, 16, 70])
@pytest.mark.parametrize("table", [False, True])
def test_maxpool(c: int, table: bool, rng: np.random.Generator) -> None:
    conv = ConvAttrs(kernel=(3, 2), stride=(2, 1), pads=(1, 0, 1, 1), pad_value=-128)
    constants = {"t": int8(rng, 256)} if table else {}
    oh, ow = conv.output_size(9, 7)
    attrs = {"conv": conv, "post": Post(min=-100, max=90, table=table)}
    check("int.maxpool", {"x": int8(rng, 2, 9, 7, c)}, constants, (2, oh, ow, c), attrs)


@pytest.mark.parametrize("shape_b", [(2, 5, 6, 19), (1, 1, 1, 19)])
@pytest.mark.parametrize("table", [False, True])
def test_add(shape_b: Any, table: bool, rng: np.random.Generator) -> None:
    constants = {"t": int8(rng, 256)} if table else {}
    post = Post(add=AddStage(m1=3, m2=5, offset=-2, shift=3, zero=1, max=99), table=table)
    inputs = {"a": int8(rng, 2, 5, 6, 19), "b": int8(rng, *shape_b)}
    check("int.add", inputs, constants, (2, 5, 6, 19), {"post": post})


def test_scale(rng: np.random.Generator) -> None:
    constants = scaling(rng, 21, 128.0)
    check(
        "int.scale", {"x": int8(rng, 2, 3, 4, 21)}, constants, (2, 3, 4, 21), {"post": Post(zero=2)}
    )


def test_lookup(rng: np.random.Generator) -> None:
    post = Post(table=True)
    check(
        "int.lookup",
        {"x": int8(rng, 1, 3, 4, 21)},
        {"t": int8(rng, 256)},
        (1, 3, 4, 21),
        {"post": post},
    )


def test_concat(rng: np.random.Generator) -> None:
    inputs = {"a": int8(rng, 2, 3, 4, 5), "b": int8(rng, 2, 3, 4, 16), "c": int8(rng, 2, 3, 4, 1)}
    constants = scaling(rng, 22, 128.0)
    check("int.concat", inputs, constants, (2, 3, 4, 22), {"post": Post(zero=-1)})


@pytest.mark.parametrize("factors", [(2, 2), (1, 3)])
def test_resize(factors: Any, rng: np.random.Generator) -> None:
    out = (2, 3 * factors[0], 4 * factors[1], 5)
    check("int.resize", {"x": int8(rng, 2, 3, 4, 5)}, {}, out, {"factors": factors})


def test_signs(rng: np.random.Generator) -> None:
    x = int8(rng, 3, 41)
    graph = sign_graph("int.unsigned", np.int8, np.uint8)
    y = compile_graph(graph).run({"x": x})["y"]
    np.testing.assert_array_equal(y, evaluate(graph, {"x": x})["y"])
    back = sign_graph("int.signed", np.uint8, np.int8)
    np.testing.assert_array_equal(compile_graph(back).run({"x": y})["y"], x)


def sign_graph(op: str, source: Any, target: Any) -> Graph:
    types = {"x": TensorType((3, 41), np.dtype(source)), "y": TensorType((3, 41), np.dtype(target))}
    return Graph("sign", (Node(op, "s", ("x",), ("y",)),), types, {}, ("x",), ("y",), 17)


MATMULS = [
    # m, k, o, batch of a, batch of b
    (1, 1, 1, (1,), (1,)),
    (7, 33, 18, (1,), (1,)),
    (64, 64, 64, (2,), (2,)),
    (5, 16, 9, (3,), (1,)),
    (5, 17, 9, (2, 1), (1, 3)),
    (1, 129, 70, (1,), (4,)),
]


@pytest.mark.parametrize("case", MATMULS)
@pytest.mark.parametrize("zeros", [(0, 0), (-128, 0), (127, -128)])
@pytest.mark.parametrize("table", [False, True])
def test_matmul(case: Any, zeros: Any, table: bool, rng: np.random.Generator) -> None:
    m, k, o, a_batch, b_batch = case
    matmul = MatmulAttrs(a_batch=a_batch, b_batch=b_batch, a_zero=zeros[0], b_zero=zeros[1])
    heads = [int(np.prod(batch)) for batch in (a_batch, b_batch, matmul.batch)]
    inputs = {"a": int8(rng, m, 1, heads[0], k), "b": int8(rng, o, 1, heads[1], k)}
    constants = scaling(rng, o, 5500.0 * k**0.5 * (1 + (zeros[0] and 2)) * (1 + (zeros[1] and 2)))
    if table:
        constants["table"] = int8(rng, 256)
    attrs = {"matmul": matmul, "post": Post(zero=3, table=table)}
    check("int.matmul", inputs, constants, (m, 1, heads[2], o), attrs)
