"""Equalization across layers keeps what the network computes; bias correction restores its mean."""

from collections.abc import Callable

import numpy as np
import pytest

import accelc
from accelc.compiler.cpu import compile_graph
from accelc.compiler.graph import Graph
from accelc.compiler.passes.table import run_passes
from accelc.compiler.quantize.bias import correction
from accelc.compiler.quantize.equalize import equalize, find_pairs
from accelc.compiler.quantize.layers import find_layers
from accelc.compiler.quantize.parameters import affine, quantize_weights

MakeGraph = Callable[..., Graph]
GRAPHS = {
    "rectified": "{ a = Conv (x, w, b) r = Relu (a) y = Conv (r, v) }",
    "strided": "{ a = Conv <strides = [2, 2]> (x, w, b) r = LeakyRelu (a) y = Conv (r, v) }",
    "pooled": """{ a = Conv (x, w, b) p = MaxPool <kernel_shape = [2, 2]> (a) r = Relu (p)
                 q = AveragePool <kernel_shape = [2, 2]> (r) y = Conv (q, v) }""",
    "depthwise": "{ a = Conv (x, w, b) r = Relu (a) d = Conv <group = 4> (r, e) y = Conv (d, v) }",
    "grouped": "{ a = Conv (x, w, b) r = Relu (a) y = Conv <group = 2> (r, g) }",
    "flattened": "{ a = Conv (x, w, b) r = Relu (a) f = Flatten (r) y = Gemm (f, m) }",
}


def constants(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights whose channels differ a thousandfold."""
    spread = 10.0 ** rng.uniform(-1.5, 1.5, 4)
    return {
        "w": rng.standard_normal((4, 3, 3, 3)) * spread[:, None, None, None],
        "b": rng.standard_normal(4) * spread,
        "v": rng.standard_normal((5, 4, 1, 1)) / spread[:, None, None],
        "e": rng.standard_normal((4, 1, 1, 1)),
        "g": rng.standard_normal((6, 2, 1, 1)),
        "m": rng.standard_normal((4 * 36, 5)),
    }


def make(float_graph: MakeGraph, text: str, rng: np.random.Generator) -> Graph:
    used = {k: v for k, v in constants(rng).items() if f" {k})" in text or f" {k}," in text}
    rank = "?,?" if "Gemm" in text else "?,?,?,?"
    return float_graph(f"(float[1,3,8,8] x) => (float[{rank}] y) {text}", **used)


def run(graph: Graph, x: np.ndarray) -> np.ndarray:
    return compile_graph(run_passes(graph)).run({"x": x})["y"]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("by", ["weights", "activations"])
def test_the_network_computes_the_same(
    name: str, by: str, float_graph: MakeGraph, rng: np.random.Generator
) -> None:
    graph = make(float_graph, GRAPHS[name], rng)
    pairs = find_pairs(graph, find_layers(graph))
    assert len(pairs) == (2 if name == "depthwise" else 1)
    reach = None
    if by == "activations":
        size = {pair.value: 4 * pair.repeat for pair in pairs}
        reach = {value: rng.uniform(0.1, 10.0, count) for value, count in size.items()}
    changed = equalize(graph, pairs, reach)
    x = rng.standard_normal((1, 3, 8, 8)).astype(np.float32)
    exact = run(graph, x)
    np.testing.assert_allclose(run(changed, x), exact, atol=1e-4 * np.abs(exact).max())
    first, second = pairs[0].first.weights, pairs[0].second.weights
    assert not np.array_equal(changed.constants[first], graph.constants[first])
    assert not np.array_equal(changed.constants[second], graph.constants[second])


def test_reaches_of_weights_become_equal(float_graph: MakeGraph, rng: np.random.Generator) -> None:
    graph = make(float_graph, GRAPHS["rectified"], rng)
    (pair,) = pairs = find_pairs(graph, find_layers(graph))
    changed = equalize(graph, pairs)
    w = np.abs(changed.constants[pair.first.weights]).max(axis=(1, 2, 3))
    v = np.abs(changed.constants[pair.second.weights]).max(axis=(0, 2, 3))
    np.testing.assert_allclose(w / v, (w / v).mean(), rtol=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "{ a = Conv (x, w, b) s = Sigmoid (a) y = Conv (s, v) }",
        "{ a = Conv (x, w, b) c = Clip (a, lo, hi) y = Conv (c, v) }",
        "{ a = Conv (x, w, b) c = Conv (a, v) d = GlobalAveragePool (a) y = Add (c, d) }",
    ],
)
def test_nothing_passes_what_is_not_homogeneous(text: str, float_graph: MakeGraph) -> None:
    graph = float_graph(
        f"(float[1,3,8,8] x) => (float[?,?,?,?] y) {text}",
        w=np.ones((4, 3, 1, 1)), b=np.ones(4), v=np.ones((4, 4, 1, 1)),
        lo=np.float32(0), hi=np.float32(6),
    )  # fmt: skip
    assert find_pairs(graph, find_layers(graph)) == ()


@pytest.mark.parametrize("by", ["weights", "activations"])
def test_unequal_channels_gain(
    by: str, make_model: Callable[..., object], rng: np.random.Generator
) -> None:
    values = constants(rng)
    model = make_model(
        f"(float[1,3,8,8] x) => (float[?,?,?,?] y) {GRAPHS['rectified']}",
        w=values["w"], b=values["b"], v=values["v"],
    )  # fmt: skip
    samples = [rng.standard_normal((3, 8, 8)).astype(np.float32) for _ in range(16)]
    found = {
        equalization: accelc.quantize(
            model, samples, observer="min-max", equalization=equalization, bias_correction=False
        ).report.output_sqnr_db
        for equalization in ("none", by)
    }
    assert found[by] > found["none"] + 3  # half the noise
    assert accelc.quantize(model, samples).report.chosen.equalization != "none"


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("{ y = Conv <pads = [1, 1, 1, 1]> (x, w, b) }", (1, 3, 8, 8)),
        ('{ y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w, b) }', (1, 3, 7, 7)),
        ("{ y = Gemm (x, m, b) }", (1, 6)),
        ("{ a = MatMul (x, m) y = Add (a, b) }", (1, 5, 6)),
    ],
)
def test_correction_is_the_mean_error_of_the_weights(
    text: str, shape: tuple[int, ...], float_graph: MakeGraph, rng: np.random.Generator
) -> None:
    """Against brute force: both networks run on every sample; with borders padded."""
    weights = {"w": rng.standard_normal((4, 3, 3, 3))} if "Conv" in text else {}
    weights |= {"m": rng.standard_normal((6, 4))} if "Conv" not in text else {}
    dims = ",".join(map(str, shape))
    rank = ",".join("?" * len(shape))
    graph = float_graph(
        f"(float[{dims}] x) => (float[{rank}] y) {text}", b=rng.standard_normal(4), **weights
    )
    (layer,) = find_layers(graph)
    samples = [rng.uniform(0, 2, shape).astype(np.float32) for _ in range(20)]
    name = layer.weights
    coarse = quantize_weights(graph.constants[name], layer.axis, affine(0, 2).scale, None)
    rounded = graph.with_(constants={**graph.constants, name: coarse.real.astype(np.float32)})
    mean = np.asarray(np.mean(samples, axis=0, dtype=np.float64))
    found = correction(graph, layer, coarse, mean)
    axis = 1 if "Conv" in text else len(shape) - 1
    others = tuple(a for a in range(len(shape)) if a != axis)
    errors = [run(graph, x) - run(rounded, x) for x in samples]
    np.testing.assert_allclose(found, np.mean(errors, axis=0).mean(axis=others), atol=1e-6)
