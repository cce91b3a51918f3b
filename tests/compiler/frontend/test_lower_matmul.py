"""Matrix products of two activations, in every form quantizers write them."""

from typing import Any

import numpy as np
import pytest

#: Shapes of both operands as ONNX's MatMul has them.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "matrices": ((5, 33), (33, 4)),
    "heads": ((2, 3, 7, 20), (2, 3, 20, 9)),
    "one matrix for all": ((2, 3, 7, 20), (20, 9)),
    "one matrix with all": ((7, 20), (3, 20, 9)),
    "heads of both": ((2, 1, 7, 20), (1, 3, 20, 9)),
    "row": ((20,), (3, 20, 9)),
    "column": ((3, 7, 20), (20,)),
    "one number": ((1, 1), (1, 1)),
}
ZEROS = {"symmetric": (0, 0), "first from 0": (-128, 0), "both": (3, -9)}


def parameters(b: Any, dtype: Any, scale: float, zero: int) -> tuple[str, str]:
    shifted = np.array(zero + (128 if dtype == np.uint8 else 0), dtype)
    return b.constant(np.float32(scale)), b.constant(shifted)


def product(b: Any, a: str, c: str, dtype: Any, zeros: tuple[int, int], form: str) -> str:
    left, right = (parameters(b, dtype, 0.05, zero) for zero in zeros)
    result = parameters(b, dtype, 1.7, 5)
    if form == "QLinear":
        return b.node("QLinearMatMul", a, *left, c, *right, *result, name="product")
    x, y = b.node("DequantizeLinear", a, *left), b.node("DequantizeLinear", c, *right)
    return b.node("QuantizeLinear", b.node("MatMul", x, y, name="product"), *result)


@pytest.mark.parametrize("form", ["QDQ", "QLinear"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=["int8", "uint8"])
@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("shapes", SHAPES)
def test_products(builder: Any, agree: Any, shapes: str, zeros: str, dtype: Any, form: str) -> None:
    b = builder(seed=len(shapes))
    a, c = (b.input(s, dtype, n) for s, n in zip(SHAPES[shapes], "ac", strict=True))
    b.output(product(b, a, c, dtype, ZEROS[zeros], form), dtype)
    graph = agree(b, runtime=True, share=0.05)
    layers = [node for node in graph.nodes if node.op.startswith("int.m")]
    assert [(node.op, node.name) for node in layers] == [("int.matmul", "product")]
    assert (layers[0].attrs["matmul"].a_zero, layers[0].attrs["matmul"].b_zero) == ZEROS[zeros]
    views = {"int.matmul", "Reshape", "Transpose"}
    signs = {"DequantizeLinear", "QuantizeLinear"} if dtype == np.uint8 else set[str]()
    assert {node.op for node in graph.nodes} <= views | signs


@pytest.mark.parametrize("side", ["left", "right"])
def test_constants_that_are_no_weights(builder: Any, agree: Any, side: str) -> None:
    """On the left, or one for each head: arranged at compile time."""
    b = builder()
    x = b.input((3, 6, 20) if side == "right" else (3, 20, 6))
    shape = (3, 20, 7) if side == "right" else (7, 20)
    constant = b.constant(b.rng.integers(-128, 128, shape).astype(np.int8))
    pair = (x, constant) if side == "right" else (constant, x)
    b.output(product(b, *pair, np.int8, (3, -9), "QLinear"))
    graph = agree(b, runtime=True)
    layer = next(node for node in graph.nodes if node.op == "int.matmul")
    assert layer.inputs[int(side == "right")] in graph.constants


@pytest.mark.parametrize("transposed", [0, 1])
def test_what_follows_joins_the_product(builder: Any, agree: Any, transposed: int) -> None:
    """A bias, a clamp and a function of the result; both ways round, as Gemm has it."""
    b = builder()
    a = b.dequantize(b.input((5, 12)), 0.05, np.int8(3))
    c = b.input((7, 12) if transposed else (12, 7), name="c")
    bias = b.bias(0.05, np.float32(0.05), 7)
    y = b.node("Gemm", a, b.dequantize(c, 0.05, np.int8(0)), bias, transB=transposed)
    y = b.quantize(b.node("Relu", y), 0.1, np.int8(-128))
    y = b.node("Sigmoid", b.dequantize(y, 0.1, np.int8(-128)))
    b.output(b.quantize(y, 1 / 256, np.int8(-128)))
    graph = agree(b)
    (layer,) = (node for node in graph.nodes if node.op.startswith("int."))
    assert layer.op == "int.matmul" and layer.attrs["post"].table
    assert ("Transpose" in [node.op for node in graph.nodes]) != bool(transposed)


def test_the_transpose_of_keys_cancels(builder: Any, agree: Any) -> None:
    """Queries times keys, as networks have them: a row of either is a token's, as it was before."""
    b = builder()
    q, k = b.input((1, 9, 4, 16), name="q"), b.input((1, 9, 4, 16), name="k")
    q, k = b.node("Transpose", q, perm=[0, 2, 1, 3]), b.node("Transpose", k, perm=[0, 2, 3, 1])
    b.output(product(b, q, k, np.int8, (0, 0), "QLinear"))
    graph = agree(b, runtime=True)
    assert [node.op for node in graph.nodes] == ["Reshape", "Reshape", "int.matmul", "Transpose"]


@pytest.mark.parametrize(
    ("reason", "make"),
    [
        ("operand 'x' is not quantized", lambda b: b.input((4, 4), np.float32)),
        (
            "quantized along axis 0, not output channels",
            lambda b: b.dequantize(
                b.input((4, 5)), np.full(4, 0.1, np.float32), np.zeros(4, np.int8), axis=0
            ),
        ),
        (
            "has a zero point per channel",
            lambda b: b.dequantize(
                b.input((4, 5)), np.full(5, 0.1, np.float32), np.arange(5, dtype=np.int8), axis=1
            ),
        ),
    ],
)
def test_reasons(builder: Any, agree: Any, reason: str, make: Any) -> None:
    b = builder()
    a = b.dequantize(b.input((3, 4), name="a"), 0.05, np.int8(3))
    b.output(b.quantize(b.node("MatMul", a, make(b)), 0.4, np.int8(0)))
    graph = agree(b)
    assert not any(node.op.startswith("int.") for node in graph.nodes)
    assert any(reason in found for found in graph.reasons.values())
