"""Gathers, scatters, running sums, sorting and Einsum against NumPy and onnx.reference."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Check = Callable[..., Any]


def floats(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16, np.float64])
def test_gather_elements(
    axis: int, dtype: Any, compile_node: Check, rng: np.random.Generator
) -> None:
    """Fewer indices than elements along the other axes, some from the end."""
    x = (rng.standard_normal((4, 5, 6)) * 50).astype(dtype)
    indices = rng.integers(-4, 4, (4, 3, 2))
    module, _ = compile_node(
        "GatherElements",
        {"x": x, "i": indices},
        {"y": (indices.shape, dtype)},
        {"axis": axis},
        {},
        17,
    )
    cut = [slice(extent) for extent in indices.shape]
    cut[axis] = slice(None)
    want = np.take_along_axis(x[tuple(cut)], indices % x.shape[axis], axis)
    np.testing.assert_array_equal(module.run({"x": x, "i": indices})["y"], want)


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("width", [1, 2])
def test_gather_nd(batch: int, width: int, check_node: Check, rng: np.random.Generator) -> None:
    indices = rng.integers(0, 3, (3, 7, width))
    check_node(
        "GatherND", {"x": floats(rng, 3, 4, 5, 9), "i": indices}, attrs={"batch_dims": batch}
    )


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_scatters(reduction: str, dtype: Any, check_node: Check, rng: np.random.Generator) -> None:
    x = rng.integers(0, 9, (6, 5)).astype(dtype)
    updates = rng.integers(0, 9, (3, 5)).astype(dtype)
    rows = rng.permutation(6)[:3]
    attrs = {"axis": 0, "reduction": reduction}
    columns = np.repeat(rows[:, None], 5, axis=1)
    given = {"x": x, "i": columns, "u": updates}
    check_node("ScatterElements", given, attrs=attrs, opset=18)
    given = {"x": x, "i": rows[:, None], "u": updates}
    check_node("ScatterND", given, attrs={"reduction": reduction}, opset=18)


def test_scatter_adds_every_update(compile_node: Check, rng: np.random.Generator) -> None:
    """Equal indices, which vectors of updates would lose."""
    indices = rng.integers(0, 3, 40)
    updates = floats(rng, 40, 5)
    want = np.zeros((3, 5), np.float32)
    np.add.at(want, indices, updates)
    module, _ = compile_node(
        "ScatterND",
        {"x": np.zeros((3, 5), np.float32), "i": indices[:, None], "u": updates},
        {"y": ((3, 5), np.float32)},
        {"reduction": "add"},
        {},
        18,
    )
    inputs = {"x": np.zeros((3, 5), np.float32), "i": indices[:, None], "u": updates}
    np.testing.assert_allclose(module.run(inputs)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["CumSum"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_sum(
    op: str, exclusive: int, reverse: int, axis: int, check_node: Check, rng: np.random.Generator
) -> None:
    check_node(
        op,
        {"x": floats(rng, 3, 7, 19)},
        constants={"axis": np.array(axis, np.int64)},
        attrs={"exclusive": exclusive, "reverse": reverse},
    )


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("extent", "kept"), [(1, 1), (2, 2), (7, 3), (64, 64), (1000, 5)])
@pytest.mark.parametrize("axis", [0, 1])
def test_top_k(
    largest: int,
    extent: int,
    kept: int,
    axis: int,
    compile_node: Check,
    rng: np.random.Generator,
) -> None:
    """Few different values, so that most are equal: of those the first comes first."""
    shape = (extent, 3) if axis == 0 else (3, extent)
    x = rng.integers(0, 9, shape).astype(np.float32)
    order = np.argsort(-x if largest else x, axis=axis, kind="stable")
    where = np.take(order, np.arange(kept), axis)
    result = where.shape
    module, _ = compile_node(
        "TopK",
        {"x": x},
        {"v": (result, np.float32), "i": (result, np.int64)},
        {"axis": axis, "largest": largest},
        {"k": np.array([kept])},
        17,
    )
    found = module.run({"x": x})
    np.testing.assert_array_equal(found["i"], where)
    np.testing.assert_array_equal(found["v"], np.take_along_axis(x, where, axis))


EQUATIONS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
    ("ii->i", [(4, 4)]),
    ("bii", [(2, 4, 4)]),
    ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 6)]),
    ("ij,j,ik->k", [(3, 4), (4,), (3, 5)]),
    ("ij->", [(3, 4)]),
    ("i,j->ji", [(3,), (4,)]),
    ("bhwc,bhkc->bhwk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation: str, shapes: Any, check_node: Check, rng: np.random.Generator) -> None:
    inputs = {f"x{n}": floats(rng, *shape) for n, shape in enumerate(shapes)}
    check_node("Einsum", inputs, attrs={"equation": equation}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int, check_node: Check, rng: np.random.Generator) -> None:
    constants = {"d": np.array(7, np.int64), "v": np.array([-1, 2], np.float32)}
    check_node(
        "OneHot", {"i": rng.integers(-9, 9, (3, 4))}, constants=constants, attrs={"axis": axis}
    )
