"""From nodes to elementwise operators: operands with their broadcast shapes, parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu.expressions import OPERATORS, is_float
from accelc.compiler.cpu.plan import MEMORY_DTYPES, NotNative, Plan
from accelc.compiler.graph import Node

#: A value and the shape it broadcasts with.
Operand = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Parsed:
    """``op`` names the operator when it is not the node's own."""

    operands: tuple[Operand, ...]
    params: tuple[Any, ...] = ()
    op: str = ""


Parser = Callable[[Node, Plan], Parsed]


def text(value: Any) -> str:
    """A string attribute, which importers may leave as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def require(holds: bool, why: str) -> None:
    if not holds:
        raise NotNative(why)


def operands(node: Node, plan: Plan) -> tuple[Operand, ...]:
    return tuple((name, plan.shape(name)) for name in node.inputs if name)


def check_types(node: Node, plan: Plan) -> None:
    for name in (*node.inputs, *node.outputs):
        if name:
            require(plan.dtype(name).name in MEMORY_DTYPES, f"element type of {name}")


def channel_view(name: str, plan: Plan, axis: int, rank: int) -> Operand:
    """A vector along ``axis`` of a tensor of ``rank``; scalars stay scalars."""
    size = plan.size(name)
    if size == 1:
        return name, ()
    return name, tuple(size if i == axis % rank else 1 for i in range(rank))


def _plain(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    if node.attrs.get("broadcast") and "axis" in node.attrs:  # before opset 7
        axis, rank = node.attrs["axis"], len(plan.shape(node.inputs[0]))
        view = plan.shape(node.inputs[1])
        padded = view + (1,) * (rank - axis % rank - len(view))
        return Parsed(((node.inputs[0], plan.shape(node.inputs[0])), (node.inputs[1], padded)))
    return Parsed(operands(node, plan))


def _floats(*attributes: tuple[str, Any]) -> Parser:
    """Operators on float tensors whose ``attributes`` (name, default) are static parameters."""

    def parse(node: Node, plan: Plan) -> Parsed:
        check_types(node, plan)
        require(is_float(plan.dtype(node.inputs[0])), "floats only")
        values = tuple(node.attrs.get(name, default) for name, default in attributes)
        values = tuple(text(v) if isinstance(v, (bytes, str)) else v for v in values)
        return Parsed(operands(node, plan), values)

    return parse


def _mod(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    fmod = int(node.attrs.get("fmod", 0))
    return Parsed(operands(node, plan), (fmod,))


def _pow(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    exponent = plan.known(node.inputs[1])
    if exponent is not None and exponent.size == 1:
        value = float(exponent.reshape(()))

        same_shape = plan.shape(node.inputs[0]) == plan.shape(node.outputs[0])
        if value in (1.0, 2.0, 3.0) and same_shape:
            return Parsed(operands(node, plan)[:1], (value,))
    return Parsed(operands(node, plan))


def _clip(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    x = (node.inputs[0], plan.shape(node.inputs[0]))
    bounds: list[Operand] = []
    present = [False, False]
    for number, attribute in enumerate(("min", "max")):
        name = node.inputs[number + 1] if len(node.inputs) > number + 1 else ""
        if not name and node.attrs.get(attribute) is not None:
            name = plan.constant(np.array(node.attrs[attribute], plan.dtype(node.inputs[0])))
        if name:
            bounds.append((name, ()))
            present[number] = True
    return Parsed((x, *bounds), tuple(present))


def _cast(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    saturate = bool(node.attrs.get("saturate", 1))
    return Parsed(((node.inputs[0], plan.shape(node.inputs[0])),), (saturate,), "Cast")


def _trilu(node: Node, plan: Plan) -> Parsed:
    """A choice between the matrix and zeros by a constant mask."""
    check_types(node, plan)
    x, *rest = node.inputs
    rows, columns = plan.shape(x)[-2:]
    k = int(plan.needed(rest[0], "k").reshape(-1)[0]) if rest else 0
    k = min(max(k, -rows), columns + 1)  # beyond the corners nothing changes, and NumPy overflows
    inside = np.tri(rows, columns, k, dtype=np.bool_)
    if node.attrs.get("upper", 1):
        inside = ~np.tri(rows, columns, k - 1, dtype=np.bool_)
    mask, zero = plan.constant(inside), plan.constant(np.zeros((), plan.dtype(x)))
    operands = ((mask, (rows, columns)), (x, plan.shape(x)), (zero, ()))
    return Parsed(operands, (), "Where")


def _is_inf(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    flags = (node.attrs.get("detect_negative", 1), node.attrs.get("detect_positive", 1))
    return Parsed(operands(node, plan), tuple(bool(f) for f in flags))


def _prelu(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    x, slope = operands(node, plan)
    view = slope[1]
    if len(view) == 1 and len(x[1]) > 1 and view[0] == x[1][1] and view[0] not in (1, x[1][-1]):
        view = (view[0],) + (1,) * (len(x[1]) - 2)  # one slope a channel, before opset 7
    return Parsed((x, (slope[0], view)))


def _bit_shift(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    return Parsed(operands(node, plan), (text(node.attrs["direction"]),))


def _batch_normalization(node: Node, plan: Plan) -> Parsed:
    check_types(node, plan)
    require(len([o for o in node.outputs if o]) == 1, "training outputs")
    require(not node.attrs.get("training_mode"), "training mode")
    require(plan.dtype(node.inputs[0]) == plan.dtype(node.inputs[1]), "mixed precision")
    x, rest = node.inputs[0], node.inputs[1:5]
    shape = plan.shape(x)
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    known = [plan.known(name) for name in rest]
    values = [value for value in known if value is not None]
    rank = len(shape)
    if len(values) == 4:
        scale, bias, mean, variance = values
        factor = scale / np.sqrt(variance + scale.dtype.type(epsilon))
        names = [plan.constant(factor), plan.constant(bias - mean * factor)]
        views = tuple(channel_view(name, plan, 1, rank) for name in names)
        return Parsed(((x, shape), *views), (), "Affine")
    views = tuple(channel_view(name, plan, 1, rank) for name in rest)
    return Parsed(((x, shape), *views), (epsilon,), "Normalize")


_FLOAT_ONLY = (
    "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish IsNaN Log Mean Mish "
    "Reciprocal Round Sigmoid Sin Sinh Softplus Softsign Sqrt Tan Tanh"
).split()

_ANY = (
    "Abs Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Max Min Mul Neg Not Or Relu Sign Sub Sum Where Xor"
).split()

PARSERS: dict[str, Parser] = {
    **{op: _plain for op in _ANY},
    **{op: _floats() for op in _FLOAT_ONLY},
    "BatchNormalization": _batch_normalization,
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": _cast,
    "Celu": _floats(("alpha", 1.0)),
    "Clip": _clip,
    "Elu": _floats(("alpha", 1.0)),
    "Gelu": _floats(("approximate", "none")),
    "HardSigmoid": _floats(("alpha", 0.2), ("beta", 0.5)),
    "IsInf": _is_inf,
    "LeakyRelu": _floats(("alpha", 0.01)),
    "Mod": _mod,
    "Pow": _pow,
    "PRelu": _prelu,
    "Selu": _floats(("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
    "Shrink": _floats(("bias", 0.0), ("lambd", 0.5)),
    "Swish": _floats(("alpha", 1.0)),
    "Trilu": _trilu,
    "ThresholdedRelu": _floats(("alpha", 1.0)),
}

if unknown := {
    op
    for op in PARSERS
    if op not in OPERATORS and op not in ("BatchNormalization", "CastLike", "Trilu")
}:
    raise LookupError(f"no elementwise operator for {sorted(unknown)}")
