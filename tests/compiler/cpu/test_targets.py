"""The same results from code for narrower vector units than this machine has."""

import dataclasses

import numpy as np
import pytest

from accelc.compiler.cpu import Target, compile_graph, host_target
from accelc.compiler.graph import Graph, Node, TensorType
from accelc.compiler.integer import AddStage, ConvAttrs, Post
from accelc.compiler.integer_reference import evaluate

INT8, FLOAT = np.dtype(np.int8), np.dtype(np.float32)


def x86_targets() -> list[Target]:
    """Levels below the host's: AVX2, SSE2, no vectors at all."""
    host = host_target()
    if not host.is_x86:
        return []
    base = dataclasses.replace(host, cpu="x86-64", features="+sse2", vector_bytes=16)
    targets = [base, dataclasses.replace(base, vector_bytes=4)]
    if host.has("avx2") and host.has("fma"):
        features = "+avx2,+fma,+bmi,+bmi2,+f16c"
        targets.append(dataclasses.replace(base, features=features, vector_bytes=32))
    return targets


@pytest.mark.parametrize("target", x86_targets(), ids=lambda t: f"{t.vector_bytes}bytes")
@pytest.mark.parametrize("inside", [False, True])
def test_integer_convolution(target: Target, inside: bool, rng: np.random.Generator) -> None:
    conv = ConvAttrs(kernel=(3, 3), pads=(1, 1, 1, 1), pad_value=3)
    add = AddStage(m1=300, m2=200, offset=5, shift=9)
    o = 21
    constants = {
        "w": rng.integers(-128, 128, (o, 3, 3, 13), dtype=np.int8),
        "bias": rng.integers(-5000, 5000, o).astype(np.int32),
        "mult": rng.integers(1 << 23, 1 << 24, o).astype(np.int32),
        "shift": np.full(o, 34, np.int32),
        "t": rng.integers(-128, 128, 256, dtype=np.int8),
    }
    post = Post(zero=-3, inside=inside, add=add, table=True)
    attrs = {"conv": conv, "post": post, "depthwise": False}
    names = ("x", "w", "bias", "mult", "shift", "r", "t")
    types = {n: TensorType(a.shape, a.dtype) for n, a in constants.items()}
    types |= {"x": TensorType((1, 7, 9, 13), INT8)}
    types |= {n: TensorType((1, 7, 9, o), INT8) for n in "ry"}
    node = Node("int.conv", "conv", names, ("y",), attrs)
    graph = Graph("test", (node,), types, constants, ("x", "r"), ("y",), 17)
    feeds = {
        "x": rng.integers(-128, 128, (1, 7, 9, 13), dtype=np.int8),
        "r": rng.integers(-128, 128, (1, 7, 9, o), dtype=np.int8),
    }
    got = compile_graph(graph, target=target).run(feeds)["y"]
    np.testing.assert_array_equal(got, evaluate(graph, feeds)["y"])


@pytest.mark.parametrize("target", x86_targets(), ids=lambda t: f"{t.vector_bytes}bytes")
def test_float_network(target: Target, rng: np.random.Generator) -> None:
    constants = {
        "w": rng.standard_normal((19, 5, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(19).astype(np.float32),
    }
    nodes = (
        Node("Conv", "c", ("x", "w", "b"), ("a",), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
        Node("Sigmoid", "s", ("a",), ("e",)),
        Node("Softmax", "m", ("e",), ("y",), {"axis": 1}),
    )
    types = {n: TensorType(a.shape, a.dtype) for n, a in constants.items()}
    types |= {"x": TensorType((1, 5, 9, 11), FLOAT)}
    types |= {n: TensorType((1, 19, 5, 6), FLOAT) for n in "aey"}
    graph = Graph("test", nodes, types, constants, ("x",), ("y",), 17)
    x = rng.standard_normal((1, 5, 9, 11)).astype(np.float32)
    got = compile_graph(graph, target=target).run({"x": x})["y"]
    np.testing.assert_allclose(got, evaluate(graph, {"x": x})["y"], rtol=1e-5, atol=1e-6)
