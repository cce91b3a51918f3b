"""The table of passes as a whole: every pass can be left out, and none takes quadratic time."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from accelc.compiler.accelerator import LowerOptions, lower
from accelc.compiler.graph import Graph, Node, TensorType
from accelc.compiler.integer import Post
from accelc.compiler.integer_reference import evaluate
from accelc.compiler.passes.table import BY_NAME, ORDER, PassReport, run_passes
from accelc.compiler.random_graphs import GraphBuilder, random_graph
from accelc.compiler.random_networks import random_network
from accelc.isa.config import PRESETS
from accelc.isa.errors import ConfigError

F32 = np.dtype(np.float32)
SWITCHABLE = [name for name in BY_NAME if not BY_NAME[name].needed]
#: Passes over large graphs may take this much longer for twice the nodes; quadratic takes 4.
GROWTH = 3.0


def feeds(graph: Graph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    result: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        found = graph.types[name]
        if found.dtype.kind == "f":
            result[name] = rng.normal(size=found.shape).astype(found.dtype)
        else:
            result[name] = rng.integers(-128, 128, found.shape).astype(found.dtype)
    return result


def agree(ours: Graph, theirs: Graph, seed: int) -> None:
    """Outputs on one input: integers equal, floats within 1e-4 of the largest."""
    given = feeds(theirs, np.random.default_rng(seed))
    results = evaluate(ours, given)
    for name, expected in evaluate(theirs, given).items():
        if expected.dtype.kind == "f":
            limit = 1e-4 * max(1.0, float(np.abs(expected).max(initial=0)))
            np.testing.assert_allclose(results[name], expected, rtol=0, atol=limit)
        else:
            np.testing.assert_array_equal(results[name], expected)


@pytest.mark.parametrize("name", ["", *SWITCHABLE])
def test_random_networks_with_each_pass_left_out(name: str) -> None:
    for seed in range(5):
        print(f"seed {seed}, without {name or 'nothing'}")
        graph = random_network(seed)
        reports: list[PassReport] = []
        after = run_passes(graph, disable=[name] if name else [], reports=reports)
        assert name not in {report.name for report in reports}
        agree(after, graph, seed)


@pytest.mark.parametrize("name", ["", *SWITCHABLE])
def test_random_integer_graphs_with_each_pass_left_out(name: str) -> None:
    for seed in range(3):
        print(f"seed {seed}, without {name or 'nothing'}")
        graph = random_graph(seed, PRESETS["1x4x4"])
        agree(run_passes(graph, disable=[name] if name else []), graph, seed)


def test_a_rule_alone_can_be_left_out() -> None:
    graph = random_network(3)
    reports: list[PassReport] = []
    run_passes(graph, disable=["no-op-identity"], reports=reports)
    assert all("no-op-identity" not in report.fired for report in reports)
    assert [report.name for report in reports] == list(ORDER)
    assert all(report.milliseconds >= 0 for report in reports)
    assert reports[-1].nodes_after <= reports[0].nodes_before
    with pytest.raises(ConfigError, match="did you mean no-op-identity"):
        run_passes(graph, disable=["no-op-identitty"])


def test_back_end_passes_can_be_left_out() -> None:
    builder = GraphBuilder(PRESETS["1x4x4"], np.random.default_rng(0))
    config = builder.config
    x = builder.input((1, 4, 4, 8))
    halves = [builder.lookup(x) for _ in range(2)]
    channels = 16
    same = [builder.constant("p", np.full(channels, v, np.int32)) for v in (0, 1, 0)]
    y = builder.emit("int.concat", (*halves, *same), (1, 4, 4, channels), post=Post())
    graph = builder.graph(builder.lookup(builder.lookup(y)))
    joined = lower(graph, config)
    apart = lower(graph, config, options=LowerOptions(in_place=False))
    alone = lower(graph, config, options=LowerOptions(share_memory=False))
    assert set(joined.in_place) == {*halves} and not apart.in_place
    assert len(joined.program.instructions) < len(apart.program.instructions)
    assert joined.plan.lower_bound_bytes <= joined.plan.peak_bytes < alone.plan.peak_bytes


def chain(count: int) -> Graph:
    """Nodes that every float pass has something to do with, one behind the other."""
    kinds = ("Identity", "Relu", "Transpose", "Neg", "Add", "Mul", "Transpose", "Reshape")
    nodes: list[Node] = []
    types = {"x": TensorType((3, 3), F32)}
    constants: dict[str, np.ndarray] = {
        "c": np.array([0.5, -1, 2], np.float32),
        "s": np.array([3, 3], np.int64),
    }
    value = "x"
    for number in range(count):
        op = kinds[number % len(kinds)]
        more = {"Add": ("c",), "Mul": ("c",), "Reshape": ("s",)}.get(op, ())
        attrs = {"perm": (1, 0)} if op == "Transpose" else {}
        out = f"v{number}"
        nodes.append(Node(op, out, (value, *more), (out,), attrs))
        types[out] = types["x"]
        value = out
    return _closed(nodes, types, constants, (value,))


def comb(count: int) -> Graph:
    """One value that every node reads, and one node that reads every value."""
    nodes = [
        Node(("Neg", "Identity", "Relu")[k % 3], f"v{k}", ("x",), (f"v{k}",), {})
        for k in range(count)
    ]
    types = {name: TensorType((1, 2), F32) for name in ("x", *(f"v{k}" for k in range(count)))}
    types["y"] = TensorType((count, 2), F32)
    names = tuple(node.outputs[0] for node in nodes)
    nodes.append(Node("Concat", "y", names, ("y",), {"axis": 0}))
    return _closed(nodes, types, {}, ("y",))


def ladder(count: int) -> Graph:
    """Transposes that sink past one another's branches: a sum behind every step."""
    nodes: list[Node] = []
    types = {"x": TensorType((2, 3), F32), "z": TensorType((3, 2), F32)}
    value = "x"
    for k in range(count // 4):
        t, u, v, w = (f"{c}{k}" for c in "tuvw")
        nodes += [
            Node("Transpose", t, (value,), (t,), {"perm": (1, 0)}),
            Node("Sigmoid", u, (t,), (u,), {}),
            Node("Transpose", v, (u,), (v,), {"perm": (1, 0)}),
            Node("Add", w, (v, value), (w,), {}),
        ]
        types |= {t: types["z"], u: types["z"], v: types["x"], w: types["x"]}
        value = w
    return _closed(nodes, types, {}, (value,))


def integers(count: int) -> Graph:
    """Quantized tables and sums, one behind the other."""
    nodes: list[Node] = []
    types = {"x": TensorType((1, 4), np.dtype(np.int8))}
    constants = {"s": np.array(0.1, np.float32), "z": np.array(3, np.int8)}
    value = "x"
    for k in range(count // 4):
        a, b, c, d = (f"{letter}{k}" for letter in "abcd")
        nodes += [
            Node("DequantizeLinear", a, (value, "s", "z"), (a,), {}),
            Node("Tanh", b, (a,), (b,), {}),
            Node("Add", c, (a, b), (c,), {}),
            Node("QuantizeLinear", d, (c, "s", "z"), (d,), {}),
        ]
        types |= {n: TensorType((1, 4), F32) for n in (a, b, c)} | {d: types["x"]}
        value = d
    return _closed(nodes, types, constants, (value,))


def _closed(
    nodes: list[Node],
    types: dict[str, TensorType],
    constants: dict[str, np.ndarray],
    outputs: tuple[str, ...],
) -> Graph:
    types = types | {name: TensorType(a.shape, a.dtype) for name, a in constants.items()}
    return Graph("large", tuple(nodes), types, constants, ("x",), outputs, 17)


@pytest.mark.parametrize(
    ("make", "count"), [(chain, 3000), (comb, 3000), (ladder, 3000), (integers, 160)]
)
def test_no_pass_is_quadratic(make: Callable[[int], Graph], count: int) -> None:
    run_passes(make(count // 16))  # imports, first use of caches
    seconds: list[float] = []
    for size in (count // 2, count):
        graph = make(size)
        best = float("inf")
        for _ in range(2):
            start = time.process_time()
            run_passes(graph)
            best = min(best, time.process_time() - start)
        seconds.append(best)
    print(f"{make.__name__}: {count} nodes in {seconds[1]:.2f} s, half in {seconds[0]:.2f} s")
    assert seconds[1] < GROWTH * seconds[0] + 0.2
