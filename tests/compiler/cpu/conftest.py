"""How the tests of the CPU back end compile one node and compare it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from accelc.compiler.cpu import CpuModule, compile_graph, supports
from accelc.compiler.cpu.fallback import ReferenceNode
from accelc.compiler.graph import Array, Graph, Node, TensorType

SEED = 20260


@pytest.fixture
def rng() -> np.random.Generator:
    print(f"seed {SEED}")
    return np.random.default_rng(SEED)


def single_node(
    op: str,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, tuple[tuple[int, ...], Any]],
    attrs: Mapping[str, Any],
    constants: Mapping[str, Array],
    opset: int,
    order: tuple[str, ...] | None = None,
) -> Graph:
    names = order or (*inputs, *constants)
    node = Node(op, "node", names, tuple(outputs), attrs)
    types = {name: TensorType(a.shape, a.dtype) for name, a in {**inputs, **constants}.items()}
    for name, (shape, dtype) in outputs.items():
        types[name] = TensorType(tuple(shape), np.dtype(dtype))
    return Graph("test", (node,), types, dict(constants), tuple(inputs), tuple(outputs), opset)


@pytest.fixture
def compile_node() -> Callable[..., tuple[CpuModule, Graph]]:
    """Compile one node that must have a native kernel."""

    def build(*arguments: Any, **named: Any) -> tuple[CpuModule, Graph]:
        graph = single_node(*arguments, **named)
        assert supports(graph.nodes[0], graph)
        module = compile_graph(graph)
        assert module.reference_nodes == []
        return module, graph

    return build


@pytest.fixture
def check_node(
    compile_node: Callable[..., tuple[CpuModule, Graph]],
) -> Callable[..., dict[str, Array]]:
    """Run one node natively and through ``onnx.reference``; compare every output.

    Shapes and types of the outputs are those the reference gives.
    """

    def check(
        op: str,
        inputs: Mapping[str, Array],
        *,
        attrs: Mapping[str, Any] | None = None,
        constants: Mapping[str, Array] | None = None,
        opset: int = 17,
        outputs: int = 1,
        order: tuple[str, ...] | None = None,
        rtol: float = 1e-5,
        atol: float = 1e-6,
    ) -> dict[str, Array]:
        names = [f"y{number}" for number in range(outputs)]
        guess = single_node(
            op,
            inputs,
            {n: ((), np.float32) for n in names},
            attrs or {},
            constants or {},
            opset,
            order,
        )
        reference = ReferenceNode(guess.nodes[0], opset)
        expected = reference.run({**inputs, **(constants or {})})
        described = {n: (e.shape, e.dtype) for n, e in zip(names, expected, strict=True)}
        module, _ = compile_node(op, inputs, described, attrs or {}, constants or {}, opset, order)
        got = module.run(inputs)
        for name, want in zip(names, expected, strict=True):
            assert got[name].dtype == want.dtype
            if want.dtype.kind in "fV":
                np.testing.assert_allclose(got[name], want, rtol=rtol, atol=atol)
            else:
                np.testing.assert_array_equal(got[name], want)
        return got

    return check
