"""Regions are convex, in order, and together are the graph."""

import random

import numpy as np
import pytest

from accelc.compiler.graph import Graph, Node, TensorType
from accelc.compiler.partition import Place, multiply_accumulates, partition, subgraph

TYPE = TensorType((1, 2, 2, 4), np.dtype(np.int8))


def random_graph(rng: random.Random, size: int) -> tuple[Graph, list[Place]]:
    """Nodes of one or two inputs and one or two outputs, each at a random place."""
    values = ["x0", "x1"]
    nodes: list[Node] = []
    for index in range(size):
        inputs = tuple(rng.choice(values) for _ in range(rng.randint(1, 2)))
        outputs = tuple(f"v{index}_{n}" for n in range(rng.randint(1, 2)))
        nodes.append(Node("op", f"n{index}", inputs, outputs))
        values += outputs
    graph = Graph(
        name="random",
        nodes=tuple(nodes),
        types=dict.fromkeys(values, TYPE),
        constants={},
        inputs=("x0", "x1"),
        outputs=tuple({values[-1], rng.choice(values[2:])}),
    )
    return graph, [rng.choice(list(Place)) for _ in nodes]


@pytest.mark.parametrize("seed", range(60))
def test_regions_run_one_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    graph, places = random_graph(rng, rng.randint(1, 25))
    segments = partition(graph, places)
    assert sorted(n for s in segments for n in s.nodes) == list(range(len(graph.nodes)))
    # running segment by segment, each needs only what is there already: so they are convex too
    known = set(graph.inputs)
    for number, segment in enumerate(segments):
        assert all(places[n] is segment.place for n in segment.nodes)
        part = subgraph(graph, segment.nodes, f"part{number}")
        assert set(part.inputs) <= known, f"seed {seed}"
        inside = set(part.inputs)
        for node in part.nodes:
            assert set(node.inputs) <= inside
            inside.update(node.outputs)
        assert set(part.outputs) <= inside
        known.update(part.outputs)
        assert set(part.types) == {v for n in part.nodes for v in (*n.inputs, *n.outputs)}
    assert set(graph.outputs) <= known


def test_a_path_through_the_cpu_splits_the_accelerator() -> None:
    nodes = (
        Node("op", "a", ("x",), ("a",)),
        Node("op", "b", ("a",), ("b",)),
        Node("op", "c", ("a", "b"), ("c",)),
        Node("op", "d", ("a",), ("d",)),
    )
    graph = Graph(
        name="g", nodes=nodes, types=dict.fromkeys("xabcd", TYPE), constants={},
        inputs=("x",), outputs=("c", "d"),
    )  # fmt: skip
    accelerator, cpu = Place.ACCELERATOR, Place.CPU
    segments = partition(graph, [accelerator, cpu, accelerator, accelerator])
    assert [(s.place, s.nodes) for s in segments] == [
        (accelerator, (0, 3)),
        (cpu, (1,)),
        (accelerator, (2,)),
    ]
    first = subgraph(graph, segments[0].nodes, "first")
    assert (first.inputs, first.outputs) == (("x",), ("a", "d"))
    assert subgraph(graph, segments[2].nodes, "last").inputs == ("a", "b")


def test_constants_and_reasons_follow_their_nodes() -> None:
    graph = Graph(
        name="g",
        nodes=(Node("op", "a", ("x", "w"), ("a",)), Node("op", "b", ("a", "u"), ("b",))),
        types=dict.fromkeys(("x", "w", "u", "a", "b"), TYPE),
        constants={"w": np.zeros(1), "u": np.ones(1)},
        inputs=("x",),
        outputs=("b",),
        notes=("note",),
        reasons={"a": "why", "b": "because"},
    )
    part = subgraph(graph, (1,), "part")
    assert list(part.constants) == ["u"]
    assert (part.inputs, part.outputs) == (("a",), ("b",))
    assert part.reasons == {"b": "because"}
    assert part.notes == ()


@pytest.mark.parametrize(
    ("op", "depthwise", "weights", "output", "macs"),
    [
        ("int.conv", False, (8, 3, 3, 4), (2, 5, 6, 8), 2 * 5 * 6 * 8 * 36),
        ("int.conv", True, (3, 3, 4), (1, 5, 6, 4), 5 * 6 * 4 * 9),
        ("int.matmul", False, (4, 1, 3, 8), (5, 1, 3, 4), 5 * 3 * 4 * 4),
        ("int.maxpool", False, (1,), (1, 5, 6, 4), 0),
        ("Conv", False, (8, 4, 3, 3), (2, 8, 5, 6), 2 * 8 * 5 * 6 * 36),
        ("Conv", False, (8, 1, 3, 3), (2, 8, 5, 6), 2 * 8 * 5 * 6 * 9),
        ("Conv", False, (8, 4, 3, 3), (2, 8, -1, -1), 0),
    ],
)
def test_multiply_accumulates(
    op: str, depthwise: bool, weights: tuple[int, ...], output: tuple[int, ...], macs: int
) -> None:
    node = Node(op, "n", ("x", "w"), ("y",), {"depthwise": depthwise})
    dtype = np.dtype(np.int8)
    shapes = {"x": output, "w": weights, "y": output}
    types = {name: TensorType(shape, dtype) for name, shape in shapes.items()}
    graph = Graph(name="g", nodes=(node,), types=types, constants={}, inputs=(), outputs=())
    assert multiply_accumulates(graph, node) == macs


@pytest.mark.parametrize(
    ("op", "attrs", "a", "b", "output", "macs"),
    [
        ("MatMul", {}, (3, 5, 7), (7, 2), (3, 5, 2), 3 * 5 * 2 * 7),
        ("MatMul", {}, (7,), (7,), (), 7),
        ("Gemm", {}, (5, 7), (7, 2), (5, 2), 5 * 2 * 7),
        ("Gemm", {"transA": 1}, (7, 5), (7, 2), (5, 2), 5 * 2 * 7),
        ("ConvTranspose", {}, (1, 4, 5, 6), (4, 8, 2, 2), (1, 8, 10, 12), 4 * 5 * 6 * 8 * 4),
    ],
)
def test_multiply_accumulates_of_float_operators(
    op: str,
    attrs: dict[str, int],
    a: tuple[int, ...],
    b: tuple[int, ...],
    output: tuple[int, ...],
    macs: int,
) -> None:
    node = Node(op, "n", ("a", "b"), ("y",), attrs)
    dtype = np.dtype(np.float32)
    types = {name: TensorType(shape, dtype) for name, shape in (("a", a), ("b", b), ("y", output))}
    graph = Graph(name="g", nodes=(node,), types=types, constants={}, inputs=(), outputs=())
    assert multiply_accumulates(graph, node) == macs
