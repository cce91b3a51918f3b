"""Operators that move elements, against onnx.reference."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Check = Callable[..., Any]


def numbers(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float32
) -> np.ndarray:
    return rng.integers(-100, 100, shape).astype(dtype)


def vector(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64, np.float64])
@pytest.mark.parametrize("perm", [None, (0, 2, 3, 1), (3, 1, 0, 2), (0, 1, 3, 2), (1, 0, 2, 3)])
def test_transpose(perm: Any, dtype: Any, check_node: Check, rng: np.random.Generator) -> None:
    attrs = {} if perm is None else {"perm": list(perm)}
    check_node("Transpose", {"x": numbers(rng, (2, 3, 5, 19), dtype)}, attrs=attrs)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_and_split(axis: int, check_node: Check, rng: np.random.Generator) -> None:
    parts: dict[str, np.ndarray] = {}
    for number, extent in enumerate((2, 5, 1)):
        shape = [3, 4, 7]
        shape[axis] = extent
        parts[f"x{number}"] = numbers(rng, tuple(shape))
    check_node("Concat", parts, attrs={"axis": axis})
    whole = np.concatenate(list(parts.values()), axis=axis)
    sizes = {"s": vector(2, 5, 1)}
    check_node("Split", {"x": whole}, constants=sizes, attrs={"axis": axis}, outputs=3)


SLICES = [
    ((1, 0), (3, 5), (0, 1), None),
    ((-2,), (100,), (2,), None),
    ((5, -1), (0, -100), (0, 2), (-2, -3)),
    ((0, 1, 2), (3, 4, 9), None, (1, 2, 3)),
]


@pytest.mark.parametrize("case", SLICES)
def test_slice(case: Any, check_node: Check, rng: np.random.Generator) -> None:
    starts, ends, axes, steps = case
    constants = {"starts": vector(*starts), "ends": vector(*ends)}
    if axes is not None:
        constants["axes"] = vector(*axes)
    elif steps is not None:
        constants["axes"] = vector(*range(len(starts)))
    if steps is not None:
        constants["steps"] = vector(*steps)
    check_node("Slice", {"x": numbers(rng, (6, 5, 17))}, constants=constants)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad(mode: str, check_node: Check, rng: np.random.Generator) -> None:
    constants = {"pads": vector(1, 0, 2, 2, 1, 3)}
    if mode == "constant":
        constants["value"] = np.array(7, np.float32)
    x = numbers(rng, (4, 3, 9))
    check_node("Pad", {"x": x}, constants=constants, attrs={"mode": mode}, opset=19)


def test_pad_crops(compile_node: Check, rng: np.random.Generator) -> None:
    x = numbers(rng, (4, 5, 9))
    pads = {"pads": vector(-1, 0, -2, 1, -2, -3)}
    module, _ = compile_node("Pad", {"x": x}, {"y": ((4, 3, 4), np.float32)}, {}, pads, 17)
    want = np.pad(x[1:, :3, 2:6], ((0, 1), (0, 0), (0, 0)))
    np.testing.assert_array_equal(module.run({"x": x})["y"], want)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_gather(axis: int, index: Any, check_node: Check, rng: np.random.Generator) -> None:
    indices = rng.integers(-3, 3, (2, 4)).astype(index)
    check_node("Gather", {"x": numbers(rng, (3, 5, 7)), "i": indices}, attrs={"axis": axis})


def test_expand_and_tile(check_node: Check, rng: np.random.Generator) -> None:
    check_node("Expand", {"x": numbers(rng, (3, 1, 5))}, constants={"s": vector(2, 1, 4, 5)})
    check_node("Tile", {"x": numbers(rng, (3, 2, 5))}, constants={"r": vector(2, 1, 3)})


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str, check_node: Check, rng: np.random.Generator) -> None:
    x = numbers(rng, (2, 12, 3, 5))
    check_node("DepthToSpace", {"x": x}, attrs={"blocksize": 2, "mode": mode})
    check_node("SpaceToDepth", {"x": numbers(rng, (2, 3, 4, 6))}, attrs={"blocksize": 2})


@pytest.mark.parametrize("op", ["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"])
def test_views(op: str, check_node: Check, rng: np.random.Generator) -> None:
    constants = {
        "Reshape": {"s": vector(0, -1)},
        "Squeeze": {"a": vector(1)},
        "Unsqueeze": {"a": vector(0, -1)},
    }.get(op, {})
    got = check_node(op, {"x": numbers(rng, (3, 1, 5))}, constants=constants)
    assert got["y0"].flags.owndata


TRANSFORMS = [
    "half_pixel",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "half_pixel_symmetric",
]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.25, 0.5), (1, 1, 1.5, 2.25)])
def test_resize_nearest(
    transform: str, rounding: str, scales: Any, check_node: Check, rng: np.random.Generator
) -> None:
    attrs = {"coordinate_transformation_mode": transform, "nearest_mode": rounding}
    constants = {"roi": np.zeros(0, np.float32), "scales": np.array(scales, np.float32)}
    check_node(
        "Resize", {"x": numbers(rng, (1, 2, 8, 8))}, constants=constants, attrs=attrs, opset=19
    )


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("sizes", [(1, 2, 10, 24), (1, 2, 3, 5), (1, 2, 7, 1)])
def test_resize_linear(
    transform: str, sizes: Any, check_node: Check, rng: np.random.Generator
) -> None:
    attrs = {"coordinate_transformation_mode": transform, "mode": "linear"}
    empty = np.zeros(0, np.float32)
    constants = {"roi": empty, "scales": empty, "sizes": vector(*sizes)}
    x = numbers(rng, (1, 2, 5, 8))
    check_node("Resize", {"x": x}, constants=constants, attrs=attrs, opset=19, atol=1e-4)


def test_shape(check_node: Check, rng: np.random.Generator) -> None:
    check_node("Shape", {"x": numbers(rng, (2, 3, 4))}, attrs={"start": -2})
