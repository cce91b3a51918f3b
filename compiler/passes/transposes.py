"""Transposes move towards the outputs, until they meet another one or an operator that cares."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from accelc.compiler.graph import Array, Node
from accelc.compiler.passes.lower_table import ELEMENTWISE
from accelc.compiler.passes.no_ops import permutation
from accelc.compiler.rewrite import Replacement, Rule, Scope

_UNARY = (*sorted(ELEMENTWISE - {"PRelu"}), "Cast", "Not", "IsNaN", "IsInf")
_BINARY = ("And", "Or", "Xor", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
_ELEMENTWISE = tuple(dict.fromkeys((*_UNARY, *_BINARY)))
_REDUCTIONS = tuple(
    f"Reduce{name}" for name in "Mean Sum Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()
)
#: First opset whose softmax works along one axis.
_SOFTMAX_OPSET = 13


def _sunk(
    node: Node,
    scope: Scope,
    inputs: Sequence[str],
    perm: tuple[int, ...],
    attrs: dict[str, object] | None = None,
) -> Replacement:
    """``node`` on ``inputs``, which are not yet transposed, and the Transpose behind it."""
    out = node.outputs[0]
    found = scope.types[out]
    before = tuple(found.shape[k] for k in np.argsort(perm))
    moved = scope.emit(
        node.op,
        inputs,
        replace(found, shape=before),
        node.attrs if attrs is None else attrs,
        name=node.name,
        hint=f"{out}/before",
    )
    scope.emit("Transpose", (moved,), out, {"perm": perm}, name=f"{node.name}/transpose")
    return scope.done()


def _source(value: str, scope: Scope) -> tuple[str, tuple[int, ...]] | None:
    """What a Transpose that nothing else reads turns into ``value``, and how."""
    inner = scope.producer(value, "Transpose")
    if inner is None or not scope.sole_use(value):
        return None
    return inner.inputs[0], permutation(inner, len(scope.shape(value)))


def _elementwise(node: Node, scope: Scope) -> Replacement | None:
    shape = scope.shape(node.outputs[0])
    if len(node.outputs) != 1 or -1 in shape:
        return None
    found = [_source(value, scope) for value in node.inputs]
    perms = {f[1] for f in found if f is not None}
    if len(perms) != 1:
        return None
    (perm,) = perms
    inputs: list[str] = []
    for value, source in zip(node.inputs, found, strict=True):
        if source is not None:
            if scope.shape(value) != shape:
                return None
            inputs.append(source[0])
            continue
        array = scope.constant(value)
        if not value or (array is not None and array.size == 1 and array.ndim <= len(shape)):
            inputs.append(value)
        elif array is not None and node.op != "Clip":
            if array.ndim > len(shape):
                return None
            inputs.append(_turned(value, array, perm, scope))
        else:
            return None
    return _sunk(node, scope, inputs, perm)


def _turned(value: str, array: Array, perm: tuple[int, ...], scope: Scope) -> str:
    """The constant as it must be before the Transpose."""
    full = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
    turned = full.transpose(tuple(int(k) for k in np.argsort(perm)))
    return scope.add_constant(f"{value}/turned", np.ascontiguousarray(turned))


def _concat(node: Node, scope: Scope) -> Replacement | None:
    shape = scope.shape(node.outputs[0])
    if -1 in shape or len(node.inputs) < 2:
        return None
    first = _source(node.inputs[0], scope)
    if first is None:
        return None
    inputs: list[str] = []
    for value in node.inputs:
        found = _source(value, scope)
        if found is None or found[1] != first[1]:
            return None
        inputs.append(found[0])
    axis = first[1][node.attrs["axis"] % len(shape)]
    return _sunk(node, scope, inputs, first[1], {**node.attrs, "axis": axis})


def _softmax(node: Node, scope: Scope) -> Replacement | None:
    found = _source(node.inputs[0], scope)
    if found is None or scope.opset < _SOFTMAX_OPSET or -1 in scope.shape(node.outputs[0]):
        return None
    axis = found[1][node.attrs.get("axis", -1) % len(found[1])]
    return _sunk(node, scope, (found[0],), found[1], {**node.attrs, "axis": axis})


def _reduce(node: Node, scope: Scope) -> Replacement | None:
    found = _source(node.inputs[0], scope)
    shape = scope.shape(node.outputs[0])
    if found is None or -1 in shape or -1 in scope.shape(node.inputs[0]):
        return None
    source, perm = found
    given = node.attrs.get("axes")
    if node.input(1):
        array = scope.constant(node.inputs[1])
        if array is None:
            return None
        given = array.reshape(-1).tolist()
    if not given:
        return None
    axes = [perm[axis % len(perm)] for axis in given]
    attrs = {key: value for key, value in node.attrs.items() if key != "axes"}
    inputs = [source]
    if node.input(1):
        inputs.append(scope.add_constant(f"{node.name}/axes", np.array(axes, np.int64)))
    else:
        attrs["axes"] = tuple(axes)
    if node.attrs.get("keepdims", 1):
        return _sunk(node, scope, inputs, perm, attrs)
    kept = [axis for axis in perm if axis not in axes]
    order = sorted(kept)
    return _sunk(node, scope, inputs, tuple(order.index(axis) for axis in kept), attrs)


TRANSPOSES = (
    Rule(
        "transpose-after-elementwise",
        "Relu(Transpose(x)), Transpose(x) + c, Transpose(x) + Transpose(y)",
        "Transpose(Relu(x)), Transpose(x + c'), Transpose(x + y)",
        _elementwise,
        _ELEMENTWISE,
    ),
    Rule(
        "transpose-after-concat",
        "Concat(Transpose(x, p), Transpose(y, p), axis a)",
        "Transpose(Concat(x, y, axis p[a]), p)",
        _concat,
        ("Concat",),
    ),
    Rule(
        "transpose-after-softmax",
        "Softmax(Transpose(x, p), axis a)",
        "Transpose(Softmax(x, axis p[a]), p)",
        _softmax,
        ("Softmax", "LogSoftmax"),
    ),
    Rule(
        "transpose-after-reduce",
        "ReduceMean(Transpose(x, p), axes a); likewise other reductions",
        "Transpose(ReduceMean(x, axes p[a]), the rest of p)",
        _reduce,
        _REDUCTIONS,
    ),
)
