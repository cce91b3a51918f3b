"""Every rule of the table of passes: a graph on which it fires, and the same numbers without it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from accelc.compiler.check import check
from accelc.compiler.integer_reference import evaluate
from accelc.compiler.onnx import import_model
from accelc.compiler.passes.manual import manual
from accelc.compiler.passes.table import (
    BACKEND,
    BY_NAME,
    PASSES,
    PassReport,
    disabled_names,
    run_passes,
)
from accelc.isa.errors import ConfigError

F32 = np.float32
#: What floats may differ by, relative to the largest of a tensor, where a rule rounds anew.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Case:
    """``make`` writes a model on which the rule fires once ``prior`` passes have run; the graph's
    operators are then ``after``."""

    make: Callable[[Any], None]
    after: str
    prior: tuple[str, ...] = ()
    opset: int = 17


CASES: dict[str, Case] = {}


def case(name: str, after: str, *prior: str, opset: int = 17) -> Callable[[Any], Any]:
    def enter(make: Callable[[Any], None]) -> Callable[[Any], None]:
        assert name not in CASES
        CASES[name] = Case(make, after, prior, opset)
        return make

    return enter


def normal(b: Any, *shape: int) -> str:
    return b.constant(b.rng.normal(size=shape).astype(F32))


def x23(b: Any) -> str:
    return b.input((2, 3), F32)


def expression(name: str, after: str, make: Callable[[Any, str], str]) -> None:
    """A case of one float input ``(2, 3)``."""

    @case(name, after)
    def _(b: Any) -> None:
        b.output(make(b, x23(b)), F32)


def scalar(b: Any, value: float) -> str:
    return b.constant(F32(value))


# what is known


@case("dead-code", "Relu")
def _(b: Any) -> None:
    x = x23(b)
    b.node("Exp", b.node("Neg", x))
    b.output(b.node("Relu", x), F32)


expression(
    "constant-operands", "Mul", lambda b, x: b.node("Mul", x, b.node("Add", *[scalar(b, 2)] * 2))
)


@case("known-shape", "Reshape")
def _(b: Any) -> None:
    x, y = b.input((2, 3), F32, "x"), b.input((3, 2), F32, "y")
    b.output(b.node("Reshape", x, b.node("Shape", y)), F32)


def compressed(b: Any) -> str:
    """A value ``(?, 3)``: which rows there are is known at run time."""
    kept = b.node("Greater", b.input((2,), F32, "rows"), scalar(b, -99))
    return b.node("Compress", x23(b), kept, axis=0)


@case("known-elements", "Greater Compress Mul")
def _(b: Any) -> None:
    y = compressed(b)
    columns = b.node("Gather", b.node("Shape", y), b.constant(np.array([1])))
    b.output(b.node("Mul", y, b.node("Cast", columns, to=1)), F32)


@case("reshape-target", "Greater Compress Reshape")
def _(b: Any) -> None:
    y = compressed(b)
    rows = b.node("Gather", b.node("Shape", y), b.constant(np.array([0])))
    target = b.node("Concat", b.constant(np.array([3])), rows, axis=0)
    b.output(b.node("Reshape", y, target), F32)


@case("constant-weights", "MatMul")
def _(b: Any) -> None:
    b.output(b.node("MatMul", x23(b), b.weights((3, 4), None)[0]), F32)


# what changes nothing

NO_OPS: dict[str, Callable[[Any, str], str]] = {
    "identity": lambda b, x: b.node("Identity", x),
    "dropout": lambda b, x: b.node("Dropout", x),
    "cast": lambda b, x: b.node("Cast", x, to=1),
    "reshape": lambda b, x: b.node("Reshape", x, b.constant(np.array([2, 3]))),
    "expand": lambda b, x: b.node("Expand", x, b.constant(np.array([2, 1]))),
    "transpose": lambda b, x: b.node("Transpose", x, perm=[0, 1]),
    "concat": lambda b, x: b.node("Concat", x, axis=0),
    "split": lambda b, x: b.node("Split", x, b.constant(np.array([2])), axis=0),
    "pad": lambda b, x: b.node("Pad", x, b.constant(np.zeros(4, np.int64))),
    "slice": lambda b, x: b.node("Slice", x, *(b.constant(np.array([v])) for v in (0, 99, 1, 1))),
}
for _name, _make in NO_OPS.items():
    expression(
        f"no-op-{_name}",
        "Relu Neg",
        lambda b, x, make=_make: b.node("Neg", make(b, b.node("Relu", x))),
    )
expression(
    "static-reshape", "Relu Reshape", lambda b, x: b.node("Flatten", b.node("Relu", x), axis=0)
)
expression(
    "merge-reshapes",
    "Reshape",
    lambda b, x: b.node(
        "Reshape", b.node("Reshape", x, b.constant(np.array([3, 2]))), b.constant(np.array([6, 1]))
    ),
)


@case("merge-transposes", "Transpose")
def _(b: Any) -> None:
    x = b.input((2, 3, 4), F32)
    b.output(b.node("Transpose", b.node("Transpose", x, perm=[1, 2, 0]), perm=[1, 2, 0]), F32)


expression("keep-output-names", "Relu", lambda b, x: b.node("Identity", b.node("Relu", x)))

# what is there twice

expression(
    "equal-constants",
    "Add Add",
    lambda b, x: b.node("Add", b.node("Add", x, scalar(b, 2)), scalar(b, 2)),
)
expression(
    "equal-nodes",
    "Relu Add",
    lambda b, x: b.node("Add", b.node("Relu", x), b.node("Relu", x)),
)

# algebra

expression("add-zero", "Relu", lambda b, x: b.node("Relu", b.node("Add", scalar(b, 0), x)))
expression("subtract-zero", "Relu", lambda b, x: b.node("Relu", b.node("Sub", x, scalar(b, 0))))
expression("times-one", "Relu", lambda b, x: b.node("Relu", b.node("Mul", x, scalar(b, 1))))
expression("divide-by-one", "Relu", lambda b, x: b.node("Relu", b.node("Div", x, scalar(b, 1))))
expression("idempotent", "Abs Neg", lambda b, x: b.node("Neg", b.node("Abs", b.node("Abs", x))))
expression("undone", "Relu", lambda b, x: b.node("Relu", b.node("Neg", b.node("Neg", x))))
expression(
    "relu-of-positive", "Exp Neg", lambda b, x: b.node("Neg", b.node("Relu", b.node("Exp", x)))
)
expression("even-of-negated", "Abs", lambda b, x: b.node("Abs", b.node("Neg", x)))
expression(
    "merge-clips",
    "Clip",
    lambda b, x: b.node("Clip", b.node("Relu", x), scalar(b, -1), scalar(b, 0.5)),
)


@case("merge-casts", "Cast")
def _(b: Any) -> None:
    b.output(b.node("Cast", b.node("Cast", b.input((2, 3), np.int8), to=6), to=1), F32)


expression("subtract-as-add", "Add", lambda b, x: b.node("Sub", x, normal(b, 3)))
expression(
    "where-constant",
    "Neg Relu",
    lambda b, x: b.node(
        "Relu", b.node("Where", b.constant(np.ones((2, 3), bool)), b.node("Neg", x), x)
    ),
)
expression("power-as-product", "Mul", lambda b, x: b.node("Pow", x, scalar(b, 2)))
expression("divide-as-product", "Mul", lambda b, x: b.node("Div", x, scalar(b, 3)))
expression(
    "combine-constants",
    "Add",
    lambda b, x: b.node("Add", normal(b, 3), b.node("Add", x, normal(b, 3))),
)
expression(
    "distribute",
    "Mul Add",
    lambda b, x: b.node(
        "Mul", b.node("Add", b.node("Mul", x, normal(b, 3)), normal(b, 3)), normal(b, 3)
    ),
)


@case("factor", "Sub Mul")
def _(b: Any) -> None:
    c, y = normal(b, 3), b.input((2, 3), F32, "y")
    b.output(b.node("Sub", b.node("Mul", x23(b), c), b.node("Mul", c, y)), F32)


@case("share-product", "MatMul")
def _(b: Any) -> None:
    x = x23(b)
    b.output(b.node("Add", *(b.node("MatMul", x, normal(b, 3, 4)) for _ in range(2))), F32)


# weights


def image(b: Any) -> str:
    return b.input((1, 4, 6, 6), F32)


@case("batch-norm-into-conv", "Conv")
def _(b: Any) -> None:
    y = b.node("Conv", image(b), normal(b, 6, 4, 3, 3))
    params = [b.constant(b.rng.uniform(0.5, 2, 6).astype(F32)) for _ in range(4)]
    b.output(b.node("BatchNormalization", y, *params), F32)


@case("scale-into-weights", "Conv")
def _(b: Any) -> None:
    y = b.node("Conv", image(b), normal(b, 6, 2, 3, 3), normal(b, 6), group=2)
    b.output(b.node("Add", b.node("Mul", y, normal(b, 6, 1, 1)), normal(b, 1, 6, 1, 1)), F32)


@case("scale-before-conv", "Conv")
def _(b: Any) -> None:
    x = b.node("Mul", b.node("Add", image(b), normal(b, 4, 1, 1)), normal(b, 4, 1, 1))
    b.output(b.node("Conv", x, normal(b, 6, 2, 3, 3), group=2), F32)


@case("pad-into-window", "Conv")
def _(b: Any) -> None:
    pads = b.constant(np.array([0, 0, 1, 2, 0, 0, 2, 0]))
    b.output(b.node("Conv", b.node("Pad", image(b), pads), normal(b, 3, 4, 3, 3)), F32)


# transposes


@case("transpose-after-elementwise", "Add Add Clip Transpose")
def _(b: Any) -> None:
    x, y = (b.node("Transpose", b.input((2, 3, 4), F32, n), perm=[1, 2, 0]) for n in "xy")
    total = b.node("Add", b.node("Add", x, normal(b, 4, 2)), y)
    b.output(b.node("Clip", total, scalar(b, -1), scalar(b, 1)), F32)


@case("transpose-after-concat", "Concat Transpose")
def _(b: Any) -> None:
    x, y = (b.node("Transpose", b.input((2, 3, 4), F32, n), perm=[1, 2, 0]) for n in "xy")
    b.output(b.node("Concat", x, y, axis=-1), F32)


@case("transpose-after-softmax", "Softmax Transpose")
def _(b: Any) -> None:
    x = b.node("Transpose", b.input((2, 3, 4), F32), perm=[1, 2, 0])
    b.output(b.node("Softmax", x, axis=1), F32)


@case("transpose-after-reduce", "ReduceMean Transpose")
def _(b: Any) -> None:
    x = b.node("Transpose", b.input((2, 3, 4, 5), F32), perm=[3, 1, 2, 0])
    b.output(b.node("ReduceMean", x, axes=[-1], keepdims=0), F32)


# quantized patterns


def quantized(
    b: Any, shape: tuple[int, ...] = (1, 4, 6, 6), name: str = "x", dtype: Any = np.int8
) -> str:
    return b.dequantize(b.input(shape, dtype, name), 0.05, dtype(3))


@case("cancel-requantization", "Transpose")
def _(b: Any) -> None:
    y = b.quantize(quantized(b), 0.05, np.int8(3))
    b.output(b.node("Transpose", y, perm=[0, 2, 3, 1]))


@case("movement-on-integers", "MaxPool DequantizeLinear")
def _(b: Any) -> None:
    b.output(b.node("MaxPool", quantized(b), kernel_shape=[2, 2]), F32)


@case("quantize-first", "QuantizeLinear Transpose")
def _(b: Any) -> None:
    b.output(b.quantize(b.node("Transpose", image(b), perm=[0, 2, 3, 1]), 0.1, np.int8(3)))


@case("diamond-into-table", "Transpose int.lookup Transpose")
def _(b: Any) -> None:
    x = quantized(b)
    gate = b.dequantize(
        b.quantize(b.node("Sigmoid", x), 1 / 256, np.int8(-128)), 1 / 256, np.int8(-128)
    )
    b.output(b.quantize(b.node("Mul", x, gate), 0.04, np.int8(-3)))


@case("lower-quantize", "Transpose int.conv Transpose")
def _(b: Any) -> None:
    y = b.node("Conv", quantized(b), b.weights((3, 4, 3, 3), None)[0])
    b.output(b.quantize(y, 0.5, np.int8(-3)))


@case("explain-refusals", "DequantizeLinear Erf Softmax QuantizeLinear")
def _(b: Any) -> None:
    b.output(b.quantize(b.node("Softmax", b.node("Erf", quantized(b))), 1 / 256, np.int8(-128)))


def two_scales(b: Any) -> tuple[str, ...]:
    return b.constant(F32(0.05)), b.constant(np.int8(3))


def contrib(name: str, op: str, operands: int, **attrs: Any) -> None:
    """QLinear operators of one quantization, which the reference does not know: no outputs."""

    @case(name, "")
    def _(b: Any) -> None:
        values = [b.input((1, 4, 6, 6), np.int8, n) for n in "xy"[:operands]]
        parts = [p for v in values for p in (v, *two_scales(b))]
        b.output(b.node(f"com.microsoft.{op}", *parts, *two_scales(b), **attrs))


contrib("lower-qlinear-add", "QLinearAdd", 2)
contrib("lower-qlinear-average", "QLinearGlobalAveragePool", 1, channels_last=0)
contrib("lower-qlinear-unary", "QLinearSigmoid", 1)


@case("lower-qlinear-concat", "")
def _(b: Any) -> None:
    parts = [p for n in "xy" for p in (b.input((1, 4, 6, 6), np.int8, n), *two_scales(b))]
    b.output(b.node("com.microsoft.QLinearConcat", *two_scales(b), *parts, axis=1))


@case("lower-qgemm", "")
def _(b: Any) -> None:
    w = b.constant(b.rng.integers(-9, 9, (4, 5)).astype(np.int8))
    parts = (b.input((2, 4)), *two_scales(b), w, b.constant(F32(0.1)), b.constant(np.int8(0)))
    b.output(b.node("com.microsoft.QGemm", *parts, "", *two_scales(b)))


@case("lower-qlinear-conv", "Transpose int.conv Transpose")
def _(b: Any) -> None:
    w = b.constant(b.rng.integers(-9, 9, (3, 4, 3, 3)).astype(np.int8))
    parts = (b.input((1, 4, 6, 6)), *two_scales(b), w, b.constant(F32(0.1)), b.constant(np.int8(0)))
    b.output(b.node("QLinearConv", *parts, *two_scales(b)))


@case("lower-qlinear-matmul", "Reshape int.conv Reshape")
def _(b: Any) -> None:
    w = b.constant(b.rng.integers(-9, 9, (4, 5)).astype(np.int8))
    parts = (b.input((2, 4)), *two_scales(b), w, b.constant(F32(0.1)), b.constant(np.int8(0)))
    b.output(b.node("QLinearMatMul", *parts, *two_scales(b)))


def integer_operator(name: str, after: str, make: Callable[[Any, str], str]) -> None:
    @case(name, after)
    def _(b: Any) -> None:
        b.output(make(b, b.input((1, 4, 6, 6))))


integer_operator(
    "lower-maxpool",
    "Transpose int.maxpool Transpose",
    lambda b, x: b.node("MaxPool", x, kernel_shape=[2, 2]),
)
integer_operator(
    "lower-concat",
    "Transpose Transpose int.concat Transpose",
    lambda b, x: b.node("Concat", x, b.input((1, 3, 6, 6), np.int8, "y"), axis=1),
)
integer_operator(
    "lower-pad",
    "Transpose int.conv Transpose",
    lambda b, x: b.node(
        "Pad", x, b.constant(np.array([0, 0, 1, 1, 0, 0, 0, 0])), b.constant(np.int8(5))
    ),
)
integer_operator(
    "lower-resize",
    "Transpose int.resize Transpose",
    lambda b, x: b.node(
        "Resize", x, "", b.constant(np.array([1, 1, 2, 3], F32)),
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    ),
)  # fmt: skip
integer_operator("lower-clamp", "Transpose int.lookup Transpose", lambda b, x: b.node("Relu", x))

# layout and fusion of integer operators


def conv(b: Any, x: str, channels: int = 4) -> str:
    """An int8 or uint8 convolution 1x1 as QDQ pattern."""
    return b.node("Conv", x, b.weights((channels, 4, 1, 1), None)[0])


def steps(b: Any, dtype: Any, *functions: Callable[[str], str]) -> None:
    value = b.input((1, 4, 5, 5), dtype)
    for function in functions:
        y = function(b.dequantize(value, 0.05, dtype(100)))
        value = b.quantize(y, 0.05, dtype(100))
    b.output(value, dtype)


@case("cancel-signs", "int.signed Transpose int.conv int.conv Transpose int.unsigned", "lower")
def _(b: Any) -> None:
    steps(b, np.uint8, lambda x: conv(b, x), lambda x: conv(b, x))


@case("signed-dequantize", "int.signed Transpose int.conv Transpose DequantizeLinear", "lower")
def _(b: Any) -> None:
    x = b.dequantize(b.input((1, 4, 5, 5), np.uint8), 0.05, np.uint8(100))
    b.output(b.dequantize(b.quantize(conv(b, x), 0.05, np.uint8(100)), 0.05, np.uint8(100)), F32)


@case("signed-before-view", "int.signed int.conv Transpose int.unsigned", "lower")
def _(b: Any) -> None:
    x = b.node("Transpose", b.input((1, 5, 5, 4), np.uint8), perm=[0, 3, 1, 2])
    y = conv(b, b.dequantize(x, 0.05, np.uint8(100)))
    b.output(b.quantize(y, 0.05, np.uint8(100)), np.uint8)


@case("unsigned-after-view", "int.signed Transpose int.conv int.unsigned", "lower")
def _(b: Any) -> None:
    y = conv(b, b.dequantize(b.input((1, 4, 5, 5), np.uint8), 0.05, np.uint8(100)))
    y = b.quantize(y, 0.05, np.uint8(100))
    b.output(b.node("Transpose", y, perm=[0, 2, 3, 1]), np.uint8)


@case("view-after-elementwise", "Reshape int.conv int.lookup Reshape", "lower")
def _(b: Any) -> None:
    y = b.quantize(conv(b, quantized(b, (1, 4, 1, 1))), 0.05, np.int8(3))
    flat = b.node("Reshape", y, b.constant(np.array([1, 4])))
    b.output(b.quantize(b.node("Tanh", b.dequantize(flat, 0.05, np.int8(3))), 0.01, np.int8(0)))


@case("flatten-to-kernel", "Transpose int.conv int.conv Reshape", "lower")
def _(b: Any) -> None:
    y = b.quantize(conv(b, quantized(b, (1, 4, 3, 3))), 0.05, np.int8(3))
    flat = b.dequantize(b.node("Flatten", y), 0.05, np.int8(3))
    b.output(b.quantize(b.node("MatMul", flat, b.weights((36, 5), None)[0]), 0.5, np.int8(3)))


@case(
    "sum-of-one-as-table",
    "Transpose int.conv int.lookup Transpose int.lookup Transpose",
    "lower",
    "choose-layout",
)
def _(b: Any) -> None:
    y = b.dequantize(b.quantize(conv(b, quantized(b)), 0.05, np.int8(3)), 0.05, np.int8(3))
    tanh = b.quantize(b.node("Tanh", y), 0.01, np.int8(0))
    b.output(tanh)
    b.output(b.quantize(b.node("Add", b.dequantize(tanh, 0.01, np.int8(0)), y), 0.05, np.int8(0)))


@case("table-into-host", "Transpose int.conv Transpose", "lower", "choose-layout")
def _(b: Any) -> None:
    y = b.dequantize(b.quantize(conv(b, quantized(b)), 0.05, np.int8(3)), 0.05, np.int8(3))
    b.output(b.quantize(b.node("Tanh", y), 0.01, np.int8(0)))


@case(
    "residual-into-conv", "Transpose int.conv Transpose", "lower", "choose-layout", "share-common"
)
def _(b: Any) -> None:
    x = quantized(b)
    y = b.dequantize(b.quantize(conv(b, x), 0.05, np.int8(3)), 0.05, np.int8(3))
    b.output(b.quantize(b.node("Add", y, x), 0.1, np.int8(0)))


@case("sign-change-as-conversion", "DequantizeLinear QuantizeLinear Transpose int.conv Transpose "
      "DequantizeLinear QuantizeLinear", "lower", "choose-layout")  # fmt: skip
def _(b: Any) -> None:
    steps(b, np.uint8, lambda x: conv(b, x))


@case("contrib-as-standard", "DequantizeLinear Softmax QuantizeLinear")
def _(b: Any) -> None:
    parts = (b.input((2, 4)), *two_scales(b), b.constant(F32(1 / 256)), b.constant(np.int8(-128)))
    b.output(b.node("com.microsoft.QLinearSoftmax", *parts, axis=-1, opset=17))


def home(rule: str) -> str:
    """The pass that a rule belongs to."""
    return next(found.name for found in PASSES if rule in {step.name for step in found.steps})


RULES = {step.name: step for found in PASSES for step in found.steps}


def test_every_rule_has_a_case() -> None:
    assert {*CASES} == {*RULES}


def test_names_are_of_one_thing() -> None:
    names = [*BY_NAME, *RULES, *(found.name for found in BACKEND)]
    assert len(names) == len({*names})
    for found in PASSES:
        for step in found.steps:
            assert RULES[step.name] is step


@pytest.mark.parametrize("name", list(CASES))
def test_rule(builder: Any, runtime_outputs: Any, name: str) -> None:
    found = CASES[name]
    b = builder(seed=5, opset=found.opset)
    found.make(b)
    before = run_passes(import_model(b.model()), order=found.prior)
    reports: list[PassReport] = []
    on = run_passes(before, order=[home(name)], reports=reports)
    assert reports[0].fired.get(name, 0) > 0
    if found.after:
        assert " ".join(node.op for node in on.nodes) == found.after
    if BY_NAME[home(name)].needed:
        off = before
    else:
        off = run_passes(before, order=[home(name)], disable=[name], reports=reports)
        assert name not in reports[1].fired
    feeds = b.feeds()
    if any(node.op.startswith("com.microsoft") for node in off.nodes):
        names = [value.name for value in b.outputs]
        expected = dict(zip(names, runtime_outputs(b.model(), feeds), strict=True))
    else:
        expected = evaluate(check(off), feeds)
    compare(evaluate(check(on), feeds), expected, exact=RULES[name].exact)


def compare(ours: dict[str, Any], theirs: dict[str, Any], *, exact: bool) -> None:
    """Integers are equal up to one step of float rounding, where quantized patterns are lowered."""
    assert {*ours} == {*theirs}
    for output, expected in theirs.items():
        assert ours[output].dtype == expected.dtype and ours[output].shape == expected.shape
        if expected.dtype.kind in "iu":
            delta = np.abs(ours[output].astype(int) - expected.astype(int))
            assert delta.max() <= 1 and (delta > 0).mean() <= 0.01
        else:
            limit = (0.0 if exact else TOLERANCE) * float(np.abs(expected).max())
            np.testing.assert_allclose(ours[output], expected, rtol=0, atol=limit)


def test_the_manual_is_current(pytestconfig: pytest.Config) -> None:
    text = (pytestconfig.rootpath / "docs" / "passes.md").read_text()
    assert text == manual(), "docs/passes.md is stale: run python -m accelc.compiler.passes.manual"
    assert all(name in text for name in (*RULES, *BY_NAME, *(found.name for found in BACKEND)))


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'fold-padz'; did you mean fold-pads"):
        disabled_names(["fold-padz"])
    with pytest.raises(ConfigError, match="'q'; .accelc passes lists"):
        disabled_names(["q"])
    with pytest.raises(ConfigError, match="decompose cannot be disabled: the CPU knows only"):
        disabled_names(["decompose"])
