"""Matrix products against onnx.reference and NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Check = Callable[..., Any]

SHAPES = [
    ((3, 5), (5, 7)),
    ((1, 64), (64, 10)),
    ((33, 17), (17, 65)),
    ((2, 3, 4, 5), (2, 3, 5, 6)),
    ((3, 1, 4, 5), (2, 5, 6)),
    ((2, 9, 5), (5, 6)),
    ((5,), (5, 3)),
    ((4, 5), (5,)),
    ((5,), (5,)),
    ((20, 8), (3, 8, 1)),
]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_matmul(shapes: Any, dtype: Any, check_node: Check, rng: np.random.Generator) -> None:
    a, b = ((rng.standard_normal(s) * 9).astype(dtype) for s in shapes)
    check_node("MatMul", {"a": a, "b": b}, atol=1e-3)


@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("bias", [None, (), (7,), (5, 1), (5, 7)])
@pytest.mark.parametrize("constant", [True, False])
def test_gemm(
    transposed: Any, bias: Any, constant: bool, check_node: Check, rng: np.random.Generator
) -> None:
    a = rng.standard_normal((3, 5) if transposed[0] else (5, 3)).astype(np.float32)
    b = rng.standard_normal((7, 3) if transposed[1] else (3, 7)).astype(np.float32)
    others = {"b": b}
    if bias is not None:
        others["c"] = np.asarray(rng.standard_normal(bias), np.float32)
    attrs = {"transA": transposed[0], "transB": transposed[1], "alpha": 0.5, "beta": 2.0}
    if constant:
        check_node("Gemm", {"a": a}, constants=others, attrs=attrs)
    else:
        check_node("Gemm", {"a": a, **others}, attrs=attrs)


@pytest.mark.parametrize("types", [(np.uint8, np.uint8), (np.int8, np.int8), (np.uint8, np.int8)])
def test_matmul_integer(types: Any, check_node: Check, rng: np.random.Generator) -> None:
    a, b = (
        rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, s, dtype=t)
        for t, s in zip(types, ((5, 9), (9, 6)), strict=True)
    )
    zeros = {"az": np.array(3, types[0]), "bz": np.array(-2 % 128, types[1])}
    check_node("MatMulInteger", {"a": a}, constants={"b": b, **zeros})


def test_known_saturation_vector(compile_node: Check) -> None:
    """The products 16-bit saturating instructions get wrong: -3132, not -3050."""
    a = np.array([[210, 198, 234, 0]], np.uint8)
    b = np.array([[-81], [-80], [127], [0]], np.int8)
    module, _ = compile_node("MatMulInteger", {"a": a}, {"y": ((1, 1), np.int32)}, {}, {"b": b}, 17)
    assert module.run({"a": a})["y"].item() == -3132


@pytest.mark.parametrize("columns", [False, True])
def test_qlinear_matmul(columns: bool, compile_node: Check, rng: np.random.Generator) -> None:
    a = rng.integers(0, 256, (2, 5, 12), dtype=np.uint8)
    b = rng.integers(0, 256, (12, 8), dtype=np.uint8)
    sa, sy = np.float32(0.25), np.float32(2.0)
    sb = (2.0 ** rng.integers(-6, -3, 8)).astype(np.float32) if columns else np.float32(2.0**-5)
    zb = rng.integers(100, 140, 8).astype(np.uint8) if columns else np.uint8(120)
    za, zy = np.uint8(130), np.uint8(113)
    constants = {"sa": sa, "za": za, "b": b, "sb": sb, "zb": zb, "sy": sy, "zy": zy}
    constants = {name: np.asarray(value) for name, value in constants.items()}
    acc = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)
    want = np.clip(np.rint(acc.astype(np.float32) * (sa * sb / sy)) + zy, 0, 255)
    module, _ = compile_node(
        "QLinearMatMul", {"a": a}, {"y": ((2, 5, 8), np.uint8)}, {}, constants, 17
    )
    np.testing.assert_array_equal(module.run({"a": a})["y"], want)


@pytest.mark.parametrize("transposed", [0, 1])
def test_qgemm(transposed: int, compile_node: Check, rng: np.random.Generator) -> None:
    a = rng.integers(-128, 128, (3, 12), dtype=np.int8)
    b = rng.integers(-128, 128, (12, 8), dtype=np.int8)
    c = rng.integers(-1000, 1000, 8).astype(np.int32)
    sa, sb, sy = np.float32(0.5), np.float32(2.0**-6), np.float32(2.0)
    constants = {
        "sa": sa, "za": np.int8(3),
        "b": b.T.copy() if transposed else b, "sb": sb, "zb": np.int8(0),
        "c": c, "sy": sy, "zy": np.int8(7),
    }  # fmt: skip
    constants = {name: np.asarray(value) for name, value in constants.items()}
    acc = (a.astype(np.int64) - 3) @ b.astype(np.int64) + c
    want = np.clip(np.rint(acc.astype(np.float32) * (sa * sb / sy)) + 7, -128, 127)
    module, _ = compile_node(
        "com.microsoft.QGemm",
        {"a": a},
        {"y": ((3, 8), np.int8)},
        {"transB": transposed},
        constants,
        17,
    )
    np.testing.assert_array_equal(module.run({"a": a})["y"], want)
