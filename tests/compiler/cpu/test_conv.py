"""Convolutions against onnx.reference and NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Check = Callable[..., Any]

CONVS = [
    # x, w, attributes
    ((1, 3, 9, 7), (4, 3, 3, 3), {}),
    ((2, 3, 9, 17), (20, 3, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((1, 4, 11, 12), (6, 2, 3, 2), {"group": 2, "pads": [0, 1, 2, 0], "dilations": [2, 3]}),
    ((1, 5, 8, 9), (5, 1, 3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
    ((1, 6, 10, 10), (12, 1, 5, 5), {"group": 6, "strides": [3, 2], "auto_pad": "SAME_LOWER"}),
    ((2, 5, 7, 6), (33, 5, 1, 1), {}),
    ((1, 5, 7, 6), (18, 5, 1, 1), {"strides": [2, 3]}),
    ((3, 4, 5, 5), (9, 4, 5, 5), {}),
    ((1, 2, 23), (3, 2, 4), {"strides": [3], "pads": [2, 1]}),
    ((1, 2, 5, 6, 7), (3, 2, 3, 2, 3), {"strides": [1, 2, 1], "pads": [1, 0, 1, 0, 1, 1]}),
    ((1, 3, 10, 9), (17, 3, 4, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 3, 3, 3), (2, 3, 3, 3), {"pads": [2, 2, 2, 2], "strides": [4, 4]}),
]


@pytest.mark.parametrize("case", CONVS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("constant", [True, False])
def test_conv(
    case: Any, dtype: Any, constant: bool, check_node: Check, rng: np.random.Generator
) -> None:
    x_shape, w_shape, attrs = case
    x = rng.standard_normal(x_shape).astype(dtype)
    parameters = {
        "w": rng.standard_normal(w_shape).astype(dtype),
        "b": rng.standard_normal(w_shape[0]).astype(dtype),
    }
    if "pads" not in attrs and "auto_pad" not in attrs:
        del parameters["b"]
    order = ("x", *parameters)
    if constant:
        check_node("Conv", {"x": x}, constants=parameters, attrs=attrs, order=order, atol=1e-4)
    else:
        check_node("Conv", {"x": x, **parameters}, attrs=attrs, order=order, atol=1e-4)


TRANSPOSED = [
    ((1, 3, 5, 4), (3, 4, 3, 3), {}),
    ((2, 3, 5, 4), (3, 4, 3, 2), {"strides": [2, 3], "pads": [1, 0, 1, 1]}),
    ((1, 4, 5, 4), (4, 2, 3, 3), {"strides": [2, 2], "output_padding": [1, 1]}),
    ((1, 2, 4, 4), (2, 3, 3, 3), {"dilations": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 2, 6), (2, 3, 4), {"strides": [3], "pads": [1, 2]}),
    ((1, 2, 5, 5), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 5, 5), (2, 3, 4, 4), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 2, 3), (2, 1, 2, 2), {"strides": [3, 3]}),
]


@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv_transpose(case: Any, check_node: Check, rng: np.random.Generator) -> None:
    x_shape, w_shape, attrs = case
    x = rng.standard_normal(x_shape).astype(np.float32)
    outputs = w_shape[1] * attrs.get("group", 1)
    constants = {
        "w": rng.standard_normal(w_shape).astype(np.float32),
        "b": rng.standard_normal(outputs).astype(np.float32),
    }
    check_node("ConvTranspose", {"x": x}, constants=constants, attrs=attrs, atol=1e-4)
    check_node("ConvTranspose", {"x": x, **constants}, attrs=attrs, atol=1e-4)


def test_grouped_conv_transpose(compile_node: Check, rng: np.random.Generator) -> None:
    """Against the definition: every input scatters its weights (the reference fails on groups)."""
    x = rng.standard_normal((2, 4, 5, 4)).astype(np.float32)
    w = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    want = np.zeros((2, 6, 12, 10), np.float32)
    for n, c, i, j in np.ndindex(x.shape):
        group = c // 2
        target = want[n, group * 3 : group * 3 + 3, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
        target += x[n, c, i, j] * w[c]
    attrs = {"group": 2, "strides": [2, 2], "output_padding": [1, 1]}
    module, _ = compile_node(
        "ConvTranspose", {"x": x}, {"y": (want.shape, np.float32)}, attrs, {"w": w}, 17
    )
    np.testing.assert_allclose(module.run({"x": x})["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtypes", [(np.uint8, np.uint8), (np.int8, np.int8), (np.uint8, np.int8)])
def test_conv_integer(dtypes: Any, check_node: Check, rng: np.random.Generator) -> None:
    limits = [np.iinfo(t) for t in dtypes]
    x = rng.integers(limits[0].min, limits[0].max, (1, 3, 9, 8), dtype=dtypes[0])
    w = rng.integers(limits[1].min, limits[1].max, (5, 3, 3, 3), dtype=dtypes[1])
    zeros = {"xz": np.array(7, dtypes[0]), "wz": np.array(3, dtypes[1])}
    attrs = {"pads": [1, 1, 0, 2], "strides": [2, 1]}
    check_node("ConvInteger", {"x": x}, constants={"w": w, **zeros}, attrs=attrs)


@pytest.mark.parametrize("dtypes", [(np.uint8, np.uint8), (np.int8, np.int8), (np.uint8, np.int8)])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("group", [1, 4])
def test_qlinear_conv(
    dtypes: Any, per_channel: bool, group: int, compile_node: Check, rng: np.random.Generator
) -> None:
    """Against the contract: float32(acc + bias) * s rounded to even, then the zero point."""
    limits = [np.iinfo(t) for t in dtypes]
    o, c, size = 8, 4, 9
    x = rng.integers(limits[0].min, limits[0].max + 1, (2, c, size, size), dtype=dtypes[0])
    w = rng.integers(limits[1].min, limits[1].max + 1, (o, c // group, 3, 3), dtype=dtypes[1])
    ws = (2.0 ** rng.integers(-9, -6, o if per_channel else ())).astype(np.float32)
    wz = np.zeros(o if per_channel else (), dtypes[1])
    xs, ys = np.float32(0.5), np.float32(0.25)
    xz, yz = np.array(5, dtypes[0]), np.array(11, dtypes[0])
    bias = rng.integers(-500, 500, o).astype(np.int32)
    constants = {
        "xs": np.array(xs), "xz": xz, "w": w, "ws": ws, "wz": wz,
        "ys": np.array(ys), "yz": yz, "b": bias,
    }  # fmt: skip
    acc = np.zeros((2, o, size, size), np.int64)
    padded = np.pad(x.astype(np.int64) - int(xz), ((0, 0), (0, 0), (1, 1), (1, 1)))
    per = c // group
    for number in range(o):
        first = number // (o // group) * per
        for i in range(3):
            for j in range(3):
                part = padded[:, first : first + per, i : i + size, j : j + size]
                acc[:, number] += np.einsum(
                    "nchw,c->nhw", part, w[number, :, i, j].astype(np.int64)
                )
    acc += bias[:, None, None]
    scale = np.broadcast_to((xs * ws) / ys, o)[:, None, None]
    real = acc.astype(np.float32) * scale.astype(np.float32)
    want = np.clip(np.rint(real) + int(yz), limits[0].min, limits[0].max)
    module, _ = compile_node(
        "QLinearConv",
        {"x": x},
        {"y": (acc.shape, dtypes[0])},
        {"pads": [1, 1, 1, 1], "group": group},
        constants,
        17,
    )
    np.testing.assert_array_equal(module.run({"x": x})["y"], want)
