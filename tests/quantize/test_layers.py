"""Which layers are found in a float graph, and which of them are quantized."""

from collections.abc import Callable

import numpy as np

from accelc.compiler.graph import Graph
from accelc.compiler.quantize.layers import Layer, find_layers
from accelc.compiler.quantize.plan import make_plan

W = np.ones((4, 4, 1, 1), np.float32)
ROW = np.ones((4, 4), np.float32)
MakeGraph = Callable[..., Graph]


def kinds(graph: Graph) -> dict[str, str]:
    return {layer.root.op: str(layer.kind) for layer in find_layers(graph)}


def layers(graph: Graph) -> dict[str, Layer]:
    return {layer.name: layer for layer in find_layers(graph)}


def active(graph: Graph, *keep: str) -> set[str]:
    return set(make_plan(graph, find_layers(graph), keep).active)


def test_clamps_and_bias_belong_to_the_layer_before(float_graph: MakeGraph) -> None:
    graph = float_graph(
        """(float[1,4,5,5] x) => (float[1,4,5,5] y) {
        [c] a = Conv (x, w) [b] s = Add (a, bias) [r] t = Relu (s) [k] y = Clip (t, lo, hi) }""",
        w=W, bias=np.arange(4.0).reshape(4, 1, 1), lo=np.float32(0), hi=np.float32(6),
    )  # fmt: skip
    (layer,) = find_layers(graph)
    assert (layer.name, layer.nodes, layer.outputs) == ("c", ("c", "r", "k"), ("y",))
    assert graph.constants[layer.bias].tolist() == [0, 1, 2, 3]


def test_the_bias_of_a_product_of_three_axes(float_graph: MakeGraph) -> None:
    graph = float_graph(
        "(float[1,3,4] x) => (float[1,3,4] y) { [m] a = MatMul (x, w) [b] y = Add (bias, a) }",
        w=ROW, bias=np.ones(4),
    )  # fmt: skip
    (layer,) = find_layers(graph)
    assert (layer.nodes, layer.axis, layer.bias) == (("m", "b"), 1, "bias")


def test_a_clamp_that_others_see_past_is_a_layer_of_its_own(float_graph: MakeGraph) -> None:
    graph = float_graph(
        """(float[1,4,5,5] x) => (float[1,4,5,5] y, float[1,4,5,5] z) {
        [c] a = Conv (x, w) [r] y = Relu (a) [d] z = Conv (a, w) }""",
        w=W,
    )
    assert {k: str(v.kind) for k, v in layers(graph).items()} == {
        "c": "linear", "r": "function", "d": "linear",
    }  # fmt: skip


def test_kinds(float_graph: MakeGraph) -> None:
    graph = float_graph(
        """(float[1,4,6,6] x) => (float[1,8] y) {
        a = Conv (x, w) b = Add (a, x) c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
        d = AveragePool <kernel_shape = [3, 3]> (c) e = Concat <axis = 1> (d, d)
        y = Flatten (e) }""",
        w=W,
    )
    assert kinds(graph) == {
        "Conv": "linear", "Add": "add", "MaxPool": "movement", "AveragePool": "average",
        "Concat": "concat", "Flatten": "movement",
    }  # fmt: skip


def test_what_the_accelerator_cannot_do_is_no_layer(float_graph: MakeGraph) -> None:
    graph = float_graph(
        """(float[1,4,6,6] x, float[1,4,1,1] g) => (float[1,4,6,6] y) {
        a = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
        b = Mul (a, g) c = LpNormalization <axis = 1> (b) y = Softmax <axis = 1> (c) }"""
    )
    assert kinds(graph) == {}


def test_functions_reach_from_value_to_value(float_graph: MakeGraph) -> None:
    """x * sigmoid(x) is one function of x, a table, not a product of two values."""
    graph = float_graph(
        """(float[1,4,5,5] x) => (float[1,4,5,5] y) {
        [c] a = Conv (x, w) [s] g = Sigmoid (a) [m] h = Mul (a, g) [d] y = Conv (h, w) }""",
        w=W,
    )
    found = layers(graph)["m"]
    assert (found.reads, set(found.nodes), found.outputs) == (("a",), {"s", "m"}, ("h",))
    assert active(graph) == {"c", "m", "d"}


def test_functions_between_floats_stay_float(float_graph: MakeGraph) -> None:
    graph = float_graph(
        """(float[1,4] x) => (float[1,4] y) {
        [t] a = Tanh (x) [c] b = MatMul (a, w) [s] d = Sigmoid (b) [m] y = Softmax (d) }""",
        w=ROW,
    )
    assert active(graph) == {"c"}


def test_sums_are_quantized_where_an_operand_is(float_graph: MakeGraph) -> None:
    graph = float_graph(
        """(float[1,4] x) => (float[1,4] y, float[1,4] z) {
        [a] s = Add (x, x2) [c] b = MatMul (x, w) [d] y = Add (b, x) [n] z = Softmax (s) }""",
        w=ROW, x2=np.ones((1, 4)),
    )  # fmt: skip
    assert active(graph) == {"c", "d"}


def test_kept_layers_stay_float(float_graph: MakeGraph) -> None:
    graph = float_graph(
        """(float[1,4,5,5] x) => (float[1,4,5,5] y) {
        [c] a = Conv (x, w) [d] b = Conv (a, w) [e] y = Add (a, b) }""",
        w=W,
    )
    assert active(graph, "d") == {"c", "e"}
    assert active(graph, "c", "d") == set()


def test_movement_keeps_the_scale_and_a_join_gives_its_own(float_graph: MakeGraph) -> None:
    graph = float_graph(
        """(float[1,4,6,6] x) => (float[1,8,3,3] y, float[1,4,3,3] z) {
        [c] a = Conv (x, w) [p] b = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
        [d] e = Conv (b, w) [k] y = Concat <axis = 1> (b, e) [f] z = Conv (b, w) }""",
        w=W,
    )
    source = make_plan(graph, find_layers(graph)).source
    # e is read by the join alone; b also elsewhere
    assert (source["b"], source["e"], source["a"]) == ("a", "y", "a")
