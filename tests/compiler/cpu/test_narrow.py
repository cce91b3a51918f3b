"""Element types of 16 bits and fewer against ml_dtypes, every bit pattern of them."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from accelc.compiler.cpu import compile_graph
from accelc.compiler.cpu.narrow import FLOAT_FORMATS, INTEGER_BITS, dtype_named
from accelc.compiler.cpu.target import target_for
from accelc.compiler.graph import Graph, Node, TensorType

FLOAT32 = np.dtype(np.float32)
NAMES = sorted(FLOAT_FORMATS)


def cast(x: Any, to: str, saturate: int = 1) -> Any:
    dtype = dtype_named(to)
    node = Node(
        "Cast",
        "cast",
        ("x",),
        ("y",),
        {"to": helper.np_dtype_to_tensor_dtype(dtype), "saturate": saturate},
    )
    types = {"x": TensorType(x.shape, x.dtype), "y": TensorType(x.shape, dtype)}
    module = compile_graph(Graph("test", (node,), types, {}, ("x",), ("y",), 23))
    assert module.host_nodes == []
    return module.run({"x": x})["y"]


def patterns(name: str) -> Any:
    """Every value of a type."""
    dtype = dtype_named(name)
    bits = 4 if name == "float4_e2m1fn" else 8 * dtype.itemsize
    return np.arange(1 << bits, dtype=f"u{dtype.itemsize}").view(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_every_value_reads_as_it_should(name: str) -> None:
    x = patterns(name)
    np.testing.assert_array_equal(cast(x, "float32"), x.astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_every_value_comes_back(name: str) -> None:
    x = patterns(name)
    wide = x.astype(np.float32)
    back = cast(wide, name)
    numbers = ~np.isnan(wide) & ~np.isinf(wide)
    raw = f"u{x.dtype.itemsize}"
    np.testing.assert_array_equal(back.view(raw)[numbers], x.view(raw)[numbers])
    assert np.isnan(back.astype(np.float32)[np.isnan(wide)]).all()


def nearest(x: Any, name: str) -> Any:
    """What float64 ``x`` rounds to, once: ml_dtypes rounds some types by way of float32."""
    every = patterns(name)
    wide = every.astype(np.float64)
    finite = np.isfinite(wide)
    values, first = np.unique(wide[finite], return_index=True)
    even = every.view(f"u{every.dtype.itemsize}")[finite][first] % 2 == 0
    right = np.searchsorted(values, x).clip(1, len(values) - 1)
    left = right - 1
    below, above = x - values[left], values[right] - x
    take = np.where(
        below == above, np.where(even[left], left, right), np.where(below < above, left, right)
    )
    return values[take]


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_rounding(name: str, source: Any, rng: np.random.Generator) -> None:
    """Halfway cases, their neighbours, and numbers of every size, denormal ones too."""
    x = patterns(name).astype(np.float64)
    x = np.unique(x[np.isfinite(x)])
    middle = ((x[1:] + x[:-1]) / 2).astype(source)
    spread = rng.standard_normal(4096) * np.exp2(rng.uniform(-30, 20, 4096))
    tests = np.concatenate(
        [
            middle,
            np.nextafter(middle, source(-np.inf)),
            np.nextafter(middle, source(np.inf)),
            spread[np.abs(spread) <= x[-1]].astype(source),
        ]
    )
    found = cast(tests, name, saturate=0).astype(np.float64)
    np.testing.assert_array_equal(found, nearest(tests.astype(np.float64), name))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_too_large(name: str) -> None:
    x = np.array([1e9, -1e9, np.inf, -np.inf, 3e38], np.float32)
    want = x.astype(dtype_named(name)).astype(np.float32)
    np.testing.assert_array_equal(cast(x, name, saturate=0).astype(np.float32), want)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("float8")])
def test_saturation(name: str) -> None:
    largest = float(ml_dtypes.finfo(dtype_named(name)).max)
    x = np.array([1e9, -1e9, np.inf, -np.inf, largest * 1.01], np.float32)
    found = cast(x, name).astype(np.float32)
    np.testing.assert_array_equal(found, np.array([1, -1, 1, -1, 1], np.float32) * largest)


@pytest.mark.parametrize("name", sorted(INTEGER_BITS))
def test_small_integers(name: str) -> None:
    bits = INTEGER_BITS[name]
    low, high = (-(1 << -bits - 1), 1 << -bits - 1) if bits < 0 else (0, 1 << bits)
    x = np.arange(low, high, dtype=np.int32)
    narrow = cast(x, name)
    np.testing.assert_array_equal(narrow, x.astype(dtype_named(name)))
    np.testing.assert_array_equal(cast(narrow, "float32"), x.astype(np.float32))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["Add", "Mul", "Div", "Sub"])
def test_arithmetic_rounds_every_result(
    op: str, name: str, rng: np.random.Generator, check_node: Callable[..., Any]
) -> None:
    dtype = dtype_named(name)
    values = {key: rng.standard_normal(333).astype(dtype) for key in ("a", "b")}
    check_node(op, values, rtol=0, atol=0)


def test_chains_round_between_their_operators() -> None:
    """1024 + 0.4 is 1024 in float16, so that subtracting leaves 0."""
    types = {n: TensorType((4,), np.dtype(np.float16)) for n in ("x", "a", "y")}
    nodes = (Node("Add", "add", ("x", "c"), ("a",)), Node("Sub", "sub", ("a", "x"), ("y",)))
    constants = {"c": np.array(0.4, np.float16)}
    types["c"] = TensorType((), np.dtype(np.float16))
    module = compile_graph(Graph("test", nodes, types, constants, ("x",), ("y",), 23))
    x = np.full(4, 1024, np.float16)
    np.testing.assert_array_equal(module.run({"x": x})["y"], np.zeros(4, np.float16))


def test_processors_without_half_floats() -> None:
    """The same code for a processor that cannot convert float16."""
    node = Node("Cast", "cast", ("x",), ("y",), {"to": 1})
    x = patterns("float16")
    types = {"x": TensorType(x.shape, x.dtype), "y": TensorType(x.shape, FLOAT32)}
    graph = Graph("test", (node,), types, {}, ("x",), ("y",), 23)
    back = Node("Cast", "back", ("x",), ("y",), {"to": 10})
    types = {"x": TensorType(x.shape, FLOAT32), "y": TensorType(x.shape, x.dtype)}
    other = Graph("test", (back,), types, {}, ("x",), ("y",), 23)
    target = target_for("x86_64-pc-linux-gnu")
    assert not target.has("f16c")
    wide = compile_graph(graph, target=target).run({"x": x})["y"]
    np.testing.assert_array_equal(wide, x.astype(np.float32))
    numbers = ~np.isnan(wide)
    again = compile_graph(other, target=target).run({"x": wide})["y"]
    np.testing.assert_array_equal(again.view(np.uint16)[numbers], x.view(np.uint16)[numbers])
