"""Pools, reductions and normalizations against onnx.reference."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Check = Callable[..., Any]

POOLS = [
    ((1, 3, 9, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((2, 3, 9, 17), {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]}),
    ((1, 2, 7, 7), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ((1, 2, 21), {"kernel_shape": [4], "strides": [3], "pads": [1, 2]}),
    ((1, 2, 5, 6, 7), {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}),
    ((1, 2, 8, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 8, 9), {"kernel_shape": [4, 4], "strides": [3, 2], "auto_pad": "SAME_LOWER"}),
]


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pool(op: str, case: Any, check_node: Check, rng: np.random.Generator) -> None:
    shape, attrs = case
    if op == "MaxPool" and attrs.get("auto_pad") == "SAME_LOWER":
        pytest.skip("the reference pads SAME_LOWER as SAME_UPPER")
    if op == "LpPool" and ("pads" in attrs or len(shape) != 4 or "ceil_mode" in attrs):
        attrs = {"kernel_shape": attrs["kernel_shape"]}
    x = rng.standard_normal(shape).astype(np.float32)
    check_node(op, {"x": x}, attrs=attrs)


def test_average_pool_counts_padding(check_node: Check, rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 2, 7, 6)).astype(np.float32)
    attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    check_node("AveragePool", {"x": x}, attrs={**attrs, "count_include_pad": 1})
    check_node("AveragePool", {"x": x}, attrs={**attrs, "count_include_pad": 0})


def test_max_pool_dilated(check_node: Check, rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 2, 11, 12)).astype(np.float32)
    attrs = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]}
    check_node("MaxPool", {"x": x}, attrs=attrs)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_integers(dtype: Any, compile_node: Check, rng: np.random.Generator) -> None:
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max + 1, (1, 3, 7, 35), dtype=dtype)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=limits.min)
    want = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3)).max(axis=(4, 5))
    attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    module, _ = compile_node("MaxPool", {"x": x}, {"y": (want.shape, dtype)}, attrs, {}, 17)
    np.testing.assert_array_equal(module.run({"x": x})["y"], want)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (1, 3, 41), (1, 33, 1, 1)])
def test_global_pool(op: str, shape: Any, compile_node: Check, rng: np.random.Generator) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    axes = tuple(range(2, x.ndim))
    want = (x.max if op == "GlobalMaxPool" else x.mean)(axis=axes, keepdims=True)
    module, _ = compile_node(op, {"x": x}, {"y": (want.shape, np.float32)}, {}, {}, 17)
    np.testing.assert_allclose(module.run({"x": x})["y"], want, rtol=1e-5, atol=1e-6)


AXES = [None, [0], [1], [-1], [0, 2], [1, 2], [0, 1, 2, 3], [-2, 0]]


@pytest.mark.parametrize("number", range(len(AXES)))
@pytest.mark.parametrize(
    "op",
    ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"],
)
def test_reduce(op: str, number: int, check_node: Check, rng: np.random.Generator) -> None:
    axes, keepdims = AXES[number], number % 2
    x = rng.uniform(0.5, 1.5, (3, 4, 5, 37)).astype(np.float32)
    attrs = {"keepdims": keepdims}
    if op == "Sum":
        constants = {} if axes is None else {"axes": np.array(axes, np.int64)}
        check_node(f"Reduce{op}", {"x": x}, attrs=attrs, constants=constants)
    else:
        if op == "Prod":
            x = x[..., :3].copy()
        named = attrs if axes is None else {**attrs, "axes": axes}
        check_node(f"Reduce{op}", {"x": x}, attrs=named, rtol=2e-5)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMin"])
def test_reduce_integers(op: str, check_node: Check, rng: np.random.Generator) -> None:
    x = rng.integers(-1000, 1000, (3, 41, 5)).astype(np.int32)
    check_node(op, {"x": x}, constants={"axes": np.array([1], np.int64)}, opset=18)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("last", [0, 1])
def test_arg_extreme(
    op: str, axis: int, last: int, check_node: Check, rng: np.random.Generator
) -> None:
    x = rng.integers(-4, 4, (5, 6, 11)).astype(np.float32)
    attrs = {"axis": axis, "select_last_index": last, "keepdims": 0}
    check_node(op, {"x": x}, attrs=attrs)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("opset", [11, 13])
def test_softmax(
    op: str, axis: int, opset: int, compile_node: Check, rng: np.random.Generator
) -> None:
    """Before opset 13 everything from the axis on is one line."""
    x = (rng.standard_normal((3, 5, 37)) * 5).astype(np.float32)
    flat = x.astype(np.float64)
    if opset < 13:
        flat = flat.reshape(int(np.prod(x.shape[: axis % 3])), -1)
    along = -1 if opset < 13 else axis
    powers = np.exp(flat - flat.max(axis=along, keepdims=True))
    want = powers / powers.sum(axis=along, keepdims=True)
    if op == "LogSoftmax":
        want = np.log(want)
    module, _ = compile_node(op, {"x": x}, {"y": (x.shape, np.float32)}, {"axis": axis}, {}, opset)
    np.testing.assert_allclose(
        module.run({"x": x})["y"], want.reshape(x.shape), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_normalization(
    axis: int, bias: bool, check_node: Check, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((3, 5, 37)).astype(np.float32)
    shape = x.shape[axis:]
    constants = {"s": rng.standard_normal(shape).astype(np.float32)}
    if bias:
        constants["b"] = rng.standard_normal(shape).astype(np.float32)
    check_node("LayerNormalization", {"x": x}, constants=constants, attrs={"axis": axis}, atol=1e-5)


def test_instance_normalization(check_node: Check, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 5, 7)).astype(np.float32)
    weights = {n: rng.standard_normal(3).astype(np.float32) for n in "sb"}
    check_node("InstanceNormalization", {"x": x}, constants=weights, atol=1e-5)


def test_group_normalization(check_node: Check, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 6, 5, 7)).astype(np.float32)
    weights = {n: rng.standard_normal(6).astype(np.float32) for n in "sb"}
    check_node(
        "GroupNormalization",
        {"x": x},
        constants=weights,
        attrs={"num_groups": 2},
        opset=21,
        atol=1e-5,
    )
