"""Elementwise operators against onnx.reference."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from accelc.compiler.cpu import compile_graph
from accelc.compiler.cpu.lower import lower_graph
from accelc.compiler.cpu.target import host_target
from accelc.compiler.graph import Graph, Node, TensorType
from accelc.compiler.integer_reference import evaluate

Check = Callable[..., Any]

SHAPES = [
    ((3, 5, 7), (3, 5, 7)),
    ((2, 3, 33), (3, 1)),
    ((1, 4, 1), (5, 1, 19)),
    ((), (3,)),
    ((17,), ()),
]
FLOAT_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor HardSigmoid "
    "HardSwish IsInf IsNaN LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Sigmoid Sign Sin "
    "Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu"
).split()


def domain(op: str, x: np.ndarray) -> np.ndarray:
    """Arguments the operator is defined for."""
    if op in ("Acos", "Asin", "Atanh"):
        return np.tanh(x).astype(x.dtype)
    if op in ("Log", "Sqrt"):
        return np.abs(x) + x.dtype.type(1e-3)
    if op == "Acosh":
        return np.abs(x) + 1
    return x


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", FLOAT_UNARY)
def test_float_unary(op: str, dtype: Any, check_node: Check, rng: np.random.Generator) -> None:
    x = domain(op, (rng.standard_normal((3, 5, 29)) * 3).astype(dtype))
    check_node(op, {"x": x}, opset=20)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Less", "Equal"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_float_binary(op: str, shapes: Any, check_node: Check, rng: np.random.Generator) -> None:
    a, b = (np.asarray(rng.standard_normal(s), np.float32) for s in shapes)
    check_node(op, {"a": np.abs(a) if op == "Pow" else a, "b": b})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Min", "Max", "Greater", "LessOrEqual", "Mod"])
def test_integer_binary(op: str, dtype: Any, check_node: Check, rng: np.random.Generator) -> None:
    limits = np.iinfo(dtype)
    a = rng.integers(limits.min, limits.max, (4, 1, 21), dtype=dtype)
    b = rng.integers(limits.min, limits.max, (3, 21), dtype=dtype)
    b[b == 0] = 1
    check_node(op, {"a": a, "b": b}, opset=18)


def test_integer_division_truncates(compile_node: Check) -> None:
    a = np.array([7, -7, 7, -7, 5, -(2**31)], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1], np.int32)
    module, _ = compile_node("Div", {"a": a, "b": b}, {"y": (a.shape, np.int32)}, {}, {}, 17)
    np.testing.assert_array_equal(module.run({"a": a, "b": b})["y"], [3, -3, -3, 3, 0, -(2**31)])


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str, check_node: Check, rng: np.random.Generator) -> None:
    a, b = rng.integers(0, 2, (2, 3, 19)).astype(bool)
    check_node(op, {"a": a, "b": b})
    check_node("Not", {"a": a})


def test_where_and_select(check_node: Check, rng: np.random.Generator) -> None:
    condition = rng.integers(0, 2, (4, 1)).astype(bool)
    a, b = rng.standard_normal((2, 3, 1, 9)).astype(np.float32)
    check_node("Where", {"c": condition, "a": a, "b": b})


@pytest.mark.parametrize("bounds", [{}, {"low": -0.5}, {"low": -0.5, "high": 0.25}])
def test_clip(bounds: dict[str, float], check_node: Check, rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 11)).astype(np.float32)
    constants = {name: np.array(v, np.float32) for name, v in bounds.items()}
    check_node("Clip", {"x": x}, constants=constants)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str, check_node: Check, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((7, 13)) * 3).astype(np.float32)
    check_node("Gelu", {"x": x}, attrs={"approximate": approximate}, opset=20)


@pytest.mark.parametrize(
    "target", ["bool", "int8", "uint8", "int32", "int64", "float64", "float32"]
)
@pytest.mark.parametrize("source", ["bool", "int8", "uint8", "int32", "int64", "float32"])
def test_cast(source: str, target: str, check_node: Check, rng: np.random.Generator) -> None:
    from onnx import helper

    x = rng.integers(0, 120, (3, 17)).astype(source)
    check_node("Cast", {"x": x}, attrs={"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))})


def test_cast_of_what_does_not_fit(compile_node: Check) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, -1.9, 1.9], np.float32)
    module, _ = compile_node("Cast", {"x": x}, {"y": (x.shape, np.int32)}, {"to": 6}, {}, 17)
    low = -(2**31)
    np.testing.assert_array_equal(module.run({"x": x})["y"], [low, low, low, low, low, -1, 1])


FUNCTIONS = {
    "Exp": (np.exp, -103.0, 88.7),
    "Log": (np.log, 1e-40, 3e38),
    "Tanh": (np.tanh, -12.0, 12.0),
    "Erf": (None, -5.0, 5.0),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -80.0, 80.0),
}


@pytest.mark.parametrize("op", FUNCTIONS)
def test_accuracy_in_ulp(op: str, compile_node: Check, rng: np.random.Generator) -> None:
    function, low, high = FUNCTIONS[op]
    if op == "Erf":
        import math

        function = np.vectorize(math.erf)
    x = np.linspace(low, high, 50021).astype(np.float32)
    x = np.concatenate([x, rng.standard_normal(10000).astype(np.float32) * np.float32(0.1)])
    if op == "Log":
        x = np.concatenate([np.geomspace(1e-40, 3e38, 50021), np.linspace(0.5, 2, 20000)])
        x = x.astype(np.float32)
    module, _ = compile_node(op, {"x": x}, {"y": (x.shape, np.float32)}, {}, {}, 17)
    got = module.run({"x": x})["y"]
    exact = function(x.astype(np.float64))
    spacing = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(got - exact) / spacing) <= 3.0


@pytest.mark.parametrize("op", ["Exp", "Log", "Tanh", "Sigmoid", "Relu", "Sqrt", "Erf", "Softplus"])
def test_special_values(op: str, check_node: Check) -> None:
    x = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 200.0, -200.0, 1.0], np.float32
    )
    if op in ("Log", "Sqrt"):
        x = np.abs(x)
    if op == "Erf":  # the reference rejects NaN
        x = x[~np.isnan(x)]
    check_node(op, {"x": x})


def test_batch_normalization(check_node: Check, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 5, 3, 7)).astype(np.float32)
    parameters = {
        name: rng.uniform(0.5, 2, 5).astype(np.float32) for name in ("s", "b", "mean", "var")
    }
    check_node("BatchNormalization", {"x": x}, constants=parameters)
    check_node("BatchNormalization", {"x": x, **parameters})


def test_prelu(check_node: Check, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 5, 3, 7)).astype(np.float32)
    check_node("PRelu", {"x": x, "slope": rng.standard_normal((5, 1, 1)).astype(np.float32)})


def test_chain_becomes_one_kernel(rng: np.random.Generator) -> None:
    shape = (2, 3, 37)
    kind = TensorType(shape, np.dtype(np.float32))
    nodes = (
        Node("Relu", "r", ("x",), ("a",)),
        Node("Mul", "m", ("a", "s"), ("b",)),
        Node("Sigmoid", "g", ("b",), ("c",)),
        Node("Add", "p", ("c", "x"), ("y",)),
    )
    scale = rng.standard_normal((3, 1)).astype(np.float32)
    types = {name: kind for name in "xabcy"} | {"s": TensorType((3, 1), np.dtype(np.float32))}
    graph = Graph("chain", nodes, types, {"s": scale}, ("x",), ("y",), 17)
    assert len(lower_graph(graph, host_target()).steps) == 1
    x = rng.standard_normal(shape).astype(np.float32)
    want = 1 / (1 + np.exp(-(np.maximum(x, 0) * scale))) + x
    np.testing.assert_allclose(compile_graph(graph).run({"x": x})["y"], want, rtol=1e-6, atol=1e-7)


def elementwise_graph(nodes: tuple[Node, ...], *outputs: str) -> Graph:
    """Nodes over float values ``(3, 5, 7)``, from ``x``."""
    names = {"x", *(name for node in nodes for name in node.outputs)}
    types = {name: TensorType((3, 5, 7), np.dtype(np.float32)) for name in names}
    return Graph("test", nodes, types, {}, ("x",), outputs, 20)


def kernels(graph: Graph) -> int:
    return len(lower_graph(graph, host_target()).steps)


def test_a_diamond_becomes_one_kernel(rng: np.random.Generator) -> None:
    nodes = (
        Node("Neg", "a", ("x",), ("a",)),
        Node("Sigmoid", "b", ("a",), ("b",)),
        Node("Tanh", "c", ("a",), ("c",)),
        Node("Mul", "d", ("b", "a"), ("d",)),
        Node("Add", "y", ("d", "c"), ("y",)),
    )
    x = rng.standard_normal((3, 5, 7)).astype(np.float32)
    expected = -x / (1 + np.exp(x)) + np.tanh(-x)
    for outputs, count in ((("y",), 1), (("y", "c"), 3)):
        graph = elementwise_graph(nodes, *outputs)
        assert kernels(graph) == count
        np.testing.assert_allclose(compile_graph(graph).run({"x": x})["y"], expected, atol=1e-6)


def test_what_leaves_a_diamond_is_stored(rng: np.random.Generator) -> None:
    """A value that something not elementwise reads, too, is no part of its post-dominator."""
    nodes = (
        Node("Neg", "a", ("x",), ("a",)),
        Node("Softmax", "b", ("a",), ("b",)),
        Node("Mul", "y", ("b", "a"), ("y",)),
    )
    graph = elementwise_graph(nodes, "y")
    x = rng.standard_normal((3, 5, 7)).astype(np.float32)
    e = np.exp(-x)
    expected = -x * e / e.sum(-1, keepdims=True)
    np.testing.assert_allclose(compile_graph(graph).run({"x": x})["y"], expected, atol=1e-6)


def test_random_networks_of_elementwise_nodes(rng: np.random.Generator) -> None:
    for _ in range(10):
        values = ["x"]
        nodes: list[Node] = []
        for number in range(30):
            out = f"v{number}"
            recent = values[-6:]
            if rng.random() < 0.5:
                op, inputs = str(rng.choice(["Tanh", "Neg", "Abs"])), (str(rng.choice(recent)),)
            else:
                op = str(rng.choice(["Add", "Mul", "Max"]))
                inputs = (str(rng.choice(recent)), str(rng.choice(recent)))
            nodes.append(Node(op, out, inputs, (out,)))
            values.append(out)
        used = {name for node in nodes for name in node.inputs}
        ends = [name for name in values if name not in used]
        graph = elementwise_graph(tuple(nodes), *ends)
        x = rng.standard_normal((3, 5, 7)).astype(np.float32)
        expected = evaluate(graph, {"x": x})
        for name, ours in compile_graph(graph).run({"x": x}).items():
            np.testing.assert_allclose(ours, expected[name], rtol=1e-4, atol=1e-4)


def test_empty_tensor(compile_node: Check) -> None:
    x = np.zeros((0, 3), np.float32)
    module, _ = compile_node("Relu", {"x": x}, {"y": ((0, 3), np.float32)}, {}, {}, 17)
    assert module.run({"x": x})["y"].shape == (0, 3)
