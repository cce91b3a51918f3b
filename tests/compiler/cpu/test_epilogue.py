"""Chains that are computed while a convolution's results are still in registers."""

from typing import Any

import numpy as np
import pytest

from accelc.compiler.cpu import compile_graph, host_target
from accelc.compiler.cpu.gemm import emit_gemm
from accelc.compiler.cpu.lower import lower_graph
from accelc.compiler.cpu.plan import KernelCall
from accelc.compiler.graph import Graph, Node, TensorType
from accelc.compiler.integer_reference import evaluate

FLOAT, INT8 = np.dtype(np.float32), np.dtype(np.int8)


def network(
    rng: np.random.Generator, depthwise: bool, pads: int, outputs: tuple[str, ...]
) -> Graph:
    """``x -> Conv a -> Relu b -> Clip c -> QuantizeLinear d``."""
    group = 6 if depthwise else 1
    constants: dict[str, Any] = {
        "w": rng.standard_normal((6, 6 // group, 3, 3)).astype(np.float32),
        "bias": rng.standard_normal(6).astype(np.float32),
        "low": np.float32(0.25),
        "high": np.float32(3.0),
        "scale": np.float32(0.02),
        "zero": np.int8(-100),
    }
    constants = {name: np.asarray(value) for name, value in constants.items()}
    conv = {"pads": (pads,) * 4, "group": group}
    nodes = (
        Node("Conv", "conv", ("x", "w", "bias"), ("a",), conv),
        Node("Relu", "relu", ("a",), ("b",)),
        Node("Clip", "clip", ("b", "low", "high"), ("c",)),
        Node("QuantizeLinear", "quantize", ("c", "scale", "zero"), ("d",)),
    )
    size = 7 + 2 * pads
    types = {n: TensorType(a.shape, a.dtype) for n, a in constants.items()}
    types |= {n: TensorType((1, 6, size, size + 2), FLOAT) for n in "abc"}
    types |= {
        "x": TensorType((1, 6, 9, 11), FLOAT),
        "d": TensorType((1, 6, size, size + 2), INT8),
    }
    return Graph("test", nodes, types, constants, ("x",), outputs, 17)


def gemm_epilogues(graph: Graph) -> list[int]:
    """Operations fused behind each matrix product."""
    steps = lower_graph(graph, host_target()).steps
    products = [s for s in steps if isinstance(s, KernelCall) and s.emit is emit_gemm]
    return [len(getattr(step.params, "epilogue", ())) for step in products]


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("pads", [0, 1])
def test_chain_behind_convolution(depthwise: bool, pads: int, rng: np.random.Generator) -> None:
    graph = network(rng, depthwise, pads, ("d",))
    assert gemm_epilogues(graph) == [3]
    x = rng.standard_normal((1, 6, 9, 11)).astype(np.float32)
    got = compile_graph(graph).run({"x": x})["d"]
    want = evaluate(graph, {"x": x})["d"]
    # the sums' order may move a value across a rounding boundary
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
    assert (got != want).mean() < 0.01


@pytest.mark.parametrize("outputs", [("a", "d"), ("b", "d")])
def test_values_somebody_else_needs(outputs: tuple[str, ...], rng: np.random.Generator) -> None:
    graph = network(rng, False, 1, outputs)
    assert gemm_epilogues(graph) == [0 if "a" in outputs else 1]
    x = rng.standard_normal((1, 6, 9, 11)).astype(np.float32)
    got, want = compile_graph(graph).run({"x": x}), evaluate(graph, {"x": x})
    np.testing.assert_allclose(got[outputs[0]], want[outputs[0]], rtol=1e-5, atol=1e-5)


def test_residual_is_no_epilogue(rng: np.random.Generator) -> None:
    """A second tensor is read by a kernel of its own, after both convolutions."""
    weights = rng.standard_normal((4, 4, 1, 1)).astype(np.float32)
    nodes = (
        Node("Conv", "first", ("x", "w"), ("a",)),
        Node("Conv", "second", ("x", "w"), ("b",)),
        Node("Add", "add", ("a", "b"), ("c",)),
        Node("Relu", "relu", ("c",), ("y",)),
    )
    types = {n: TensorType((1, 4, 5, 5), FLOAT) for n in "xabcy"}
    types["w"] = TensorType(weights.shape, FLOAT)
    graph = Graph("test", nodes, types, {"w": weights}, ("x",), ("y",), 17)
    assert gemm_epilogues(graph) == [0, 0]
    x = rng.standard_normal((1, 4, 5, 5)).astype(np.float32)
    got, want = compile_graph(graph).run({"x": x})["y"], evaluate(graph, {"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_diamond_behind_a_convolution_is_an_epilogue(rng: np.random.Generator) -> None:
    """``x * HardSigmoid(x)``: all that reads the convolution's result is behind it."""
    constants = {"w": rng.standard_normal((6, 6, 3, 3)).astype(np.float32)}
    types = {name: TensorType((1, 6, 7, 9), FLOAT) for name in "aby"}
    types |= {"x": TensorType((1, 6, 9, 11), FLOAT), "w": TensorType((6, 6, 3, 3), FLOAT)}
    nodes = (
        Node("Conv", "conv", ("x", "w"), ("a",)),
        Node("HardSigmoid", "gate", ("a",), ("b",)),
        Node("Mul", "mul", ("a", "b"), ("y",)),
    )
    graph = Graph("test", nodes, types, constants, ("x",), ("y",), 17)
    assert gemm_epilogues(graph) == [2]
    x = rng.standard_normal((1, 6, 9, 11)).astype(np.float32)
    np.testing.assert_allclose(
        compile_graph(graph).run({"x": x})["y"], evaluate(graph, {"x": x})["y"], atol=1e-4
    )
