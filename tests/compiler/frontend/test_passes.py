"""Each pass alone: what it turns a small graph into, and that the outputs stay."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from accelc.compiler.check import check
from accelc.compiler.graph import Graph
from accelc.compiler.integer_reference import evaluate
from accelc.compiler.onnx import import_model
from accelc.compiler.passes.table import run_passes
from accelc.compiler.text import to_text


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def passed(graph: Graph, *passes: str) -> Graph:
    return run_passes(graph, order=passes)


def applied(b: Any, *passes: str, tolerance: float = 0.0) -> Graph:
    """The graph after ``passes``, its outputs compared with those before."""
    before = check(import_model(b.model()))
    after = passed(before, *passes)
    feeds = b.feeds()
    expected = evaluate(before, feeds)
    for name, ours in evaluate(after, feeds).items():
        assert ours.dtype == expected[name].dtype
        np.testing.assert_allclose(ours, expected[name], rtol=tolerance, atol=tolerance)
    return after


def test_constants_are_folded(builder: Any) -> None:
    b = builder()
    x = b.input((2, 3), np.float32)
    total = b.node("Add", b.constant(np.float32(2)), b.constant(np.float32(3)))
    b.output(b.node("Mul", x, total), np.float32)
    graph = applied(b, "fold-constants")
    assert ops(graph) == ["Mul"]
    assert graph.constants[graph.nodes[0].inputs[1]] == 5


def test_weights_stay_integers_until_the_end(builder: Any) -> None:
    b = builder()
    x = b.input((2, 3), np.float32)
    w, _ = b.weights((3, 4), None)
    b.output(b.node("MatMul", x, w), np.float32)
    assert ops(applied(b, "fold-constants")) == ["DequantizeLinear", "MatMul"]
    last = applied(b, "fold-weights")
    assert ops(last) == ["MatMul"]


def test_large_results_are_not_folded(builder: Any) -> None:
    b = builder()
    shape = b.constant(np.array([4096, 4096], np.int64))
    ones = b.node("ConstantOfShape", shape)
    b.output(b.node("ReduceSum", b.node("Mul", ones, b.input((1,), np.float32))), np.float32)
    assert "ConstantOfShape" in ops(passed(import_model(b.model()), "fold-constants"))


@pytest.mark.parametrize(
    "make",
    [
        lambda b, x: b.node("Identity", x),
        lambda b, x: b.node("Dropout", x),
        lambda b, x: b.node("Cast", x, to=1),
        lambda b, x: b.node("Reshape", x, b.constant(np.array([2, -1, 4], np.int64))),
        lambda b, x: b.node("Transpose", x, perm=[0, 1, 2]),
        lambda b, x: b.node("Transpose", b.node("Transpose", x, perm=[2, 0, 1]), perm=[1, 2, 0]),
        lambda b, x: b.node("Flatten", b.node("Squeeze", b.node("Unsqueeze", x, b.constant([0])))),
        lambda b, x: b.node("Concat", x, axis=1),
        lambda b, x: b.node("Pad", x, b.constant(np.zeros(6, np.int64))),
        lambda b, x: b.node("Expand", x, b.constant(np.array([1, 3, 1], np.int64))),
    ],
)
def test_nodes_without_effect_vanish(builder: Any, make: Callable[[Any, str], str]) -> None:
    b = builder()
    value = make(b, b.node("Relu", b.input((2, 3, 4), np.float32)))
    b.output(b.node("Neg", b.node("Reshape", value, b.constant(np.array([2, 3, 4])))), np.float32)
    assert ops(applied(b, "eliminate-no-ops")) == ["Relu", "Neg"]


def test_nodes_with_effect_stay(builder: Any) -> None:
    b = builder()
    x = b.input((2, 3, 4), np.float32)
    shifted = b.node("Pad", x, b.constant(np.array([0, 1, 0, 0, -1, 0], np.int64)))
    b.output(b.node("Transpose", shifted, perm=[1, 0, 2]), np.float32)
    # onnx.reference has no negative pads, so nothing is evaluated here
    assert ops(passed(import_model(b.model()), "eliminate-no-ops")) == ["Pad", "Transpose"]


def test_output_names_survive(builder: Any) -> None:
    b = builder()
    x = b.input((2, 3), np.float32)
    b.output(b.node("Identity", x, name="same"), np.float32)
    b.output(b.node("Identity", b.node("Relu", x), name="positive"), np.float32)
    graph = applied(b, "eliminate-no-ops")
    assert graph.outputs == ("same", "positive")
    assert ops(graph) == ["Identity", "Relu"]


def test_views_merge(builder: Any) -> None:
    b = builder()
    x = b.input((2, 3, 1, 4), np.float32)
    y = b.node("Flatten", b.node("Transpose", x, perm=[0, 2, 1, 3]))
    y = b.node("Unsqueeze", y, b.constant(np.array([2], np.int64)))
    b.output(y, np.float32)
    graph = applied(b, "eliminate-no-ops")
    assert ops(graph) == ["Reshape"]
    assert graph.constants[graph.nodes[0].inputs[1]].tolist() == [2, 12, 1]


def test_equal_nodes_are_shared(builder: Any) -> None:
    b = builder()
    x = b.input((2, 3), np.float32)
    two, also_two = b.constant(np.float32(2)), b.constant(np.float32(2))
    y = b.node("Add", b.node("Mul", x, two), b.node("Mul", x, also_two))
    random = b.node("Add", *(b.node("RandomNormalLike", x, seed=1.0) for _ in range(2)))
    b.output(b.node("Add", y, b.node("Mul", random, b.constant(np.float32(0)))), np.float32)
    graph = applied(b, "share-common")
    assert ops(graph).count("Mul") == 2 and ops(graph).count("RandomNormalLike") == 2


def _norm(b: Any, y: str, channels: int) -> str:
    params = [b.constant(b.rng.uniform(0.5, 2, channels).astype(np.float32)) for _ in range(4)]
    return b.node("BatchNormalization", y, *params)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_batch_normalization_joins_the_convolution(
    builder: Any, runtime_outputs: Any, op: str, groups: int
) -> None:
    b = builder()
    x = b.input((1, 4, 6, 6), np.float32)
    shape = (6, 4 // groups, 3, 3) if op == "Conv" else (4, 6 // groups, 3, 3)
    w = b.constant(b.rng.normal(size=shape).astype(np.float32))
    bias = b.constant(b.rng.normal(size=6).astype(np.float32))
    b.output(_norm(b, b.node(op, x, w, bias, group=groups), 6), np.float32)
    graph = passed(import_model(b.model()), "fold-batch-norm")
    assert ops(graph) == [op]
    # onnx.reference cannot run every grouped transposed convolution, onnxruntime can
    folded = builder()
    x = folded.input((1, 4, 6, 6), np.float32)
    constants = [folded.constant(graph.constants[name]) for name in graph.nodes[0].inputs[1:]]
    folded.output(folded.node(op, x, *constants, group=groups), np.float32)
    feeds = b.feeds()
    ours, theirs = runtime_outputs(folded.model(), feeds), runtime_outputs(b.model(), feeds)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-4)


def test_batch_normalization_of_a_shared_value_stays(builder: Any) -> None:
    b = builder()
    w = b.constant(b.rng.normal(size=(6, 4, 1, 1)).astype(np.float32))
    y = b.node("Conv", b.input((1, 4, 6, 6), np.float32), w)
    b.output(b.node("Add", y, _norm(b, y, 6)), np.float32)
    assert "BatchNormalization" in ops(applied(b, "fold-batch-norm"))


PADS = [0, 0, 1, 2, 0, 0, 2, 0]


@pytest.mark.parametrize(
    ("op", "attrs", "value", "folds"),
    [
        ("Conv", {"pads": [1, 1, 0, 0]}, 0.0, True),
        ("Conv", {}, 1.0, False),
        ("AveragePool", {"kernel_shape": [3, 3]}, 0.0, True),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 0.0, False),
        ("MaxPool", {"kernel_shape": [3, 3]}, -np.inf, True),
        ("MaxPool", {"kernel_shape": [3, 3]}, 0.0, False),
    ],
)
@pytest.mark.parametrize("opset", [10, 17])
def test_pads(builder: Any, op: str, attrs: dict, value: float, folds: bool, opset: int) -> None:
    b = builder(opset=opset)
    x = b.input((1, 4, 8, 8), np.float32)
    if opset < 11:
        x = b.node("Pad", x, pads=PADS, value=float(value))
    else:
        x = b.node("Pad", x, b.constant(np.array(PADS, np.int64)), b.constant(np.float32(value)))
    inputs = [x]
    if op == "Conv":
        inputs.append(b.constant(b.rng.normal(size=(3, 4, 3, 3)).astype(np.float32)))
    b.output(b.node(op, *inputs, **attrs), np.float32)
    assert ops(applied(b, "fold-pads", tolerance=1e-5)) == ([op] if folds else ["Pad", op])


def test_movement_leaves_the_floats(builder: Any) -> None:
    b = builder()
    x = b.dequantize(b.input((1, 6, 6, 4)), 0.1, np.int8(3))
    y = b.node("MaxPool", b.node("Transpose", x, perm=[0, 3, 1, 2]), kernel_shape=[2, 2])
    y = b.node("Reshape", y, b.constant(np.array([1, -1], np.int64)))
    b.output(b.quantize(y, 0.1, np.int8(3)))
    graph = applied(b, "move-into-integers", "eliminate-no-ops")
    assert ops(graph) == ["Transpose", "MaxPool", "Reshape"]


def test_weights_transposed_in_float_keep_their_axis(builder: Any) -> None:
    b = builder()
    w, _ = b.weights((6, 4), 0)
    x = b.input((2, 4), np.float32)
    b.output(b.node("MatMul", x, b.node("Transpose", w, perm=[1, 0])), np.float32)
    graph = applied(b, "move-into-integers", "fold-constants")
    assert ops(graph) == ["DequantizeLinear", "MatMul"]
    assert graph.nodes[0].attrs["axis"] == 1


def test_lowering_surrounds_with_views_that_then_cancel(builder: Any) -> None:
    b = builder(seed=3)
    value = b.input((1, 4, 5, 5), np.uint8)
    for _ in range(2):
        x = b.dequantize(value, 0.05, np.uint8(120))
        y = b.node("Conv", x, b.weights((4, 4, 1, 1), None)[0])
        value = b.quantize(y, 0.3, np.uint8(100))
    b.output(value, np.uint8)
    lowered = passed(import_model(b.model()), "lower")
    around = ["int.signed", "Transpose", "int.conv", "Transpose", "int.unsigned"]
    assert ops(lowered) == around * 2
    graph = passed(lowered, "choose-layout")
    assert ops(graph) == [
        "int.signed",
        "Transpose",
        "int.conv",
        "int.conv",
        "Transpose",
        "int.unsigned",
    ]
    feeds = b.feeds()
    for name, ours in evaluate(graph, feeds).items():
        assert np.array_equal(ours, evaluate(lowered, feeds)[name])


def test_text_of_a_lowered_graph(builder: Any) -> None:
    """The printed form, whole: what ``--emit graph`` shows."""
    b = builder(seed=3)
    x = b.dequantize(b.input((1, 2, 4, 4)), 0.5, np.int8(1))
    w = b.dequantize(b.constant(np.full((3, 2, 1, 1), 2, np.int8)), 0.25, np.int8(0))
    y = b.node("Relu", b.node("Conv", x, w, name="layer"))
    scale, zero = b.constant(np.float32(0.75)), b.constant(np.int8(-5))
    b.output(b.node("QuantizeLinear", y, scale, zero, name="result"))
    graph = passed(import_model(b.model()), "lower", "choose-layout")
    assert to_text(graph) == GOLDEN


GOLDEN = """\
graph 'test' opset 17
input x: int8[1, 2, 4, 4] * 0.5 zero 1
x:nhwc: int8[1, 4, 4, 2] * 0.5 zero 1 = Transpose(x) perm=(0, 2, 3, 1)  # layer/transpose
result:nhwc: int8[1, 4, 4, 3] * 0.75 zero -5 = int.conv(x:nhwc, \
int8 [[[[2,2]]],[[[2,2]]],[[[2,2]]]], \
int32 [-4,-4,-4], int32 [11184811,11184811,11184811], int32 [26,26,26]) \
conv=ConvAttrs(kernel=(1, 1), pad_value=1) depthwise=False post=Post(zero=-5, min=-5)  # layer
result: int8[1, 3, 4, 4] * 0.75 zero -5 = Transpose(result:nhwc) perm=(0, 3, 1, 2)  \
# layer/transpose_2
output result: int8[1, 3, 4, 4] * 0.75 zero -5
"""


def test_check_finds_illegal_graphs(builder: Any) -> None:
    b = builder()
    x = b.dequantize(b.input((1, 4, 5, 5)), 0.05, np.int8(1))
    y = b.node("Conv", x, b.weights((4, 4, 3, 3))[0])
    b.output(b.quantize(y, 0.3, np.int8(0)))
    graph = passed(import_model(b.model()), "lower")
    check(graph)
    conv = next(n for n in graph.nodes if n.op == "int.conv")
    k = graph.nodes.index(conv)

    def broken(**changes: Any) -> Graph:
        nodes = (*graph.nodes[:k], conv.with_(**changes), *graph.nodes[k + 1 :])
        return graph.with_(nodes=nodes)

    for wrong, words in (
        (graph.with_(nodes=graph.nodes[::-1]), "not computed before"),
        (graph.with_(nodes=(*graph.nodes, conv)), "name is taken"),
        (graph.with_(nodes=(*graph.nodes, conv.with_(name="again"))), "computed twice"),
        (graph.with_(outputs=("nothing",)), "not computed"),
        (graph.with_(constants={**graph.constants, "x": np.zeros(1)}), "constant too"),
        (broken(inputs=conv.inputs[:4]), "needs 5"),
        (broken(inputs=(*conv.inputs[:3], *conv.inputs[2:4])), "multiplier out of range"),
        (broken(attrs={**conv.attrs, "depthwise": True}), "weights are"),
        (broken(op="int.magic"), "no such integer operator"),
    ):
        with pytest.raises(AssertionError, match=words):
            check(wrong)
