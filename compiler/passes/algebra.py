"""Algebra on single nodes and pairs: what gives the same numbers with less work.

``EXACT`` keeps every result; it runs before quantized patterns are looked for, which it may not
disturb. ``REASSOCIATION`` changes how floats round and runs on what is left to the CPU.
"""

from collections.abc import Callable

import numpy as np

from accelc.compiler.graph import Array, Node
from accelc.compiler.rewrite import Match, Replacement, Rule, Scope

#: ``f(f(x)) = f(x)``.
_IDEMPOTENT = ("Relu", "Abs", "Ceil", "Floor", "Round", "Sign")
#: ``f(f(x)) = x``.
_INVOLUTIONS = ("Neg", "Not")
#: Their results are never below zero.
_NON_NEGATIVE = ("Relu", "Abs", "Sigmoid", "Softmax", "Exp", "Sqrt", "HardSigmoid", "Softplus")


def keeps_type(scope: Scope, value: str, out: str) -> bool:
    """Whether ``out`` can be ``value``: equal shape and element type."""
    a, b = scope.types[value], scope.types[out]
    return a.shape == b.shape and a.dtype == b.dtype and -1 not in a.shape


def constant_operand(node: Node, scope: Scope) -> tuple[str, Array, int] | None:
    """The other operand of a binary node with one constant operand, the constant, its position."""
    for position in (1, 0):
        array = scope.constant(node.input(position))
        other = node.input(1 - position)
        if array is not None and scope.constant(other) is None:
            return other, array, position
    return None


def _neutral(value: float, *, either: bool) -> Match:
    """``f(x, value) = x``; with ``either`` the operands may be swapped."""

    def match(node: Node, scope: Scope) -> Replacement | None:
        found = constant_operand(node, scope)
        if found is None or (found[2] == 0 and not either) or not found[1].size:
            return None
        if not bool((found[1] == value).all()) or not keeps_type(scope, found[0], node.outputs[0]):
            return None
        return scope.done({node.outputs[0]: found[0]})

    return match


def _twice(node: Node, scope: Scope) -> Replacement | None:
    if scope.producer(node.inputs[0], node.op) is None:
        return None
    return scope.done({node.outputs[0]: node.inputs[0]})


def _undone(node: Node, scope: Scope) -> Replacement | None:
    inner = scope.producer(node.inputs[0], node.op)
    return None if inner is None else scope.done({node.outputs[0]: inner.inputs[0]})


def _relu_of_positive(node: Node, scope: Scope) -> Replacement | None:
    if scope.producer(node.inputs[0], *_NON_NEGATIVE) is None:
        return None
    return scope.done({node.outputs[0]: node.inputs[0]})


def _even_of_neg(node: Node, scope: Scope) -> Replacement | None:
    inner = scope.producer(node.inputs[0], "Neg")
    if inner is None:
        return None
    scope.emit(node.op, (inner.inputs[0],), node.outputs[0], node.attrs, name=node.name)
    return scope.done()


def clip_bounds(node: Node, scope: Scope) -> tuple[float, float] | None:
    """Constant bounds of a Clip or Relu on floats; ``None`` where they are computed."""
    if node.op == "Relu":
        return 0.0, float("inf")
    found = [float(node.attrs.get("min", -np.inf)), float(node.attrs.get("max", np.inf))]
    for k, value in enumerate(node.inputs[1:3]):
        if value:
            bound = scope.constant(value)
            if bound is None or bound.size != 1:
                return None
            found[k] = float(bound.reshape(()))
    return found[0], found[1]


def _merged_clips(node: Node, scope: Scope) -> Replacement | None:
    inner = scope.producer(node.inputs[0], "Clip", "Relu")
    dtype = scope.types[node.outputs[0]].dtype
    if inner is None or (inner.op == "Relu" and node.op == "Relu") or dtype.kind != "f":
        return None
    a, b = clip_bounds(inner, scope), clip_bounds(node, scope)
    if a is None or b is None or not (a[0] <= a[1] and b[0] <= b[1]) or scope.opset < 11:
        return None
    low, high = (min(max(bound, b[0]), b[1]) for bound in a)
    bounds = [scope.add_constant(f"{node.name}/bound", np.array(v, dtype)) for v in (low, high)]
    scope.emit("Clip", (inner.inputs[0], *bounds), node.outputs[0], name=node.name)
    return scope.done()


def _merged_casts(node: Node, scope: Scope) -> Replacement | None:
    inner = scope.producer(node.inputs[0], "Cast")
    if inner is None:
        return None
    first, middle, last = (
        scope.types[name].dtype for name in (inner.inputs[0], node.inputs[0], node.outputs[0])
    )
    if first.kind not in "biuf" or middle.kind not in "iuf" or last.kind not in "iuf":
        return None
    if middle.kind == "f" and last.kind != "f" or not np.can_cast(first, middle, "safe"):
        return None
    scope.emit("Cast", (inner.inputs[0],), node.outputs[0], node.attrs, name=node.name)
    return scope.done()


def _subtracted(node: Node, scope: Scope) -> Replacement | None:
    found = constant_operand(node, scope)
    if found is None or found[2] != 1 or found[1].dtype.kind != "f":
        return None
    negated = scope.add_constant(f"{node.name}/negated", -found[1])
    scope.emit("Add", (found[0], negated), node.outputs[0], name=node.name)
    return scope.done()


def _where(node: Node, scope: Scope) -> Replacement | None:
    condition = scope.constant(node.inputs[0])
    if condition is None or not condition.size or condition.all() != condition.any():
        return None
    chosen = node.inputs[1] if condition.all() else node.inputs[2]
    if not keeps_type(scope, chosen, node.outputs[0]):
        return None
    return scope.done({node.outputs[0]: chosen})


def _power(node: Node, scope: Scope) -> Replacement | None:
    exponent = scope.constant(node.inputs[1])
    x, out = node.inputs[0], node.outputs[0]
    if exponent is None or exponent.size != 1 or not keeps_type(scope, x, out):
        return None
    if scope.types[x].dtype.kind != "f":
        return None
    match float(exponent.reshape(())):
        case 2.0:
            scope.emit("Mul", (x, x), out, name=node.name)
        case 0.5:
            scope.emit("Sqrt", (x,), out, name=node.name)
        case -1.0:
            scope.emit("Reciprocal", (x,), out, name=node.name)
        case _:
            return None
    return scope.done()


def _divided(node: Node, scope: Scope) -> Replacement | None:
    found = constant_operand(node, scope)
    if found is None or found[2] != 1 or found[1].dtype.kind != "f":
        return None
    with np.errstate(all="ignore"):
        inverse = (1 / found[1]).astype(found[1].dtype)
    tiny = np.finfo(inverse.dtype).tiny
    if not (np.isfinite(inverse).all() and (np.abs(inverse) >= tiny).all()):
        return None
    made = scope.add_constant(f"{node.name}/inverse", inverse)
    scope.emit("Mul", (found[0], made), node.outputs[0], name=node.name)
    return scope.done()


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {"Add": np.add, "Mul": np.multiply}


def _combined(op: str, a: Array, b: Array) -> Array | None:
    """The two constants as one that is no larger, in the arithmetic of float64 where they are
    floats; ``None`` if it overflows."""
    dtype = a.dtype
    wide = np.float64 if dtype.kind == "f" else dtype
    with np.errstate(all="ignore"):
        result = _COMBINE[op](a.astype(wide), b.astype(wide)).astype(dtype)
    if result.size > max(a.size, b.size):
        return None
    if dtype.kind == "f" and not np.isfinite(result).all():
        return None
    return result


def _reassociated(node: Node, scope: Scope) -> Replacement | None:
    """``(x + a) + b = x + (a + b)``; products alike."""
    outer = constant_operand(node, scope)
    if outer is None:
        return None
    inner = scope.producer(outer[0], node.op)
    if inner is None or not scope.sole_use(outer[0]):
        return None
    found = constant_operand(inner, scope)
    if found is None or found[1].dtype != outer[1].dtype:
        return None
    combined = _combined(node.op, found[1], outer[1])
    if combined is None:
        return None
    made = scope.add_constant(f"{node.name}/constant", combined)
    scope.emit(node.op, (found[0], made), node.outputs[0], name=node.name)
    return scope.done()


def _distributed(node: Node, scope: Scope) -> Replacement | None:
    """``(x * a + b) * c = x * (a * c) + b * c``, where x * a is a node that takes c in."""
    outer = constant_operand(node, scope)
    if outer is None or outer[1].dtype.kind != "f":
        return None
    added = scope.producer(outer[0], "Add")
    if added is None or not scope.sole_use(outer[0]):
        return None
    inner = constant_operand(added, scope)
    if inner is None or not scope.sole_use(inner[0]):
        return None
    product = scope.producer(inner[0], "Mul", "Conv", "MatMul", "Gemm")
    if product is None or not any(scope.constant(n) is not None for n in product.inputs[:2]):
        return None
    combined = _combined("Mul", inner[1], outer[1])
    if combined is None or scope.shape(outer[0]) != scope.shape(node.outputs[0]):
        return None
    factor = node.inputs[outer[2]]
    scaled = scope.emit(
        "Mul", (inner[0], factor), scope.types[outer[0]], name=node.name, hint=f"{inner[0]}/scaled"
    )
    made = scope.add_constant(f"{node.name}/constant", combined)
    scope.emit("Add", (scaled, made), node.outputs[0], name=added.name)
    return scope.done()


def _factored(node: Node, scope: Scope) -> Replacement | None:
    """``x * c + y * c = (x + y) * c``."""
    if node.inputs[0] == node.inputs[1] or scope.types[node.outputs[0]].dtype.kind != "f":
        return None
    products = [scope.producer(name, "Mul") for name in node.inputs]
    if not all(scope.sole_use(name) for name in node.inputs):
        return None
    a, b = products
    if a is None or b is None:
        return None
    common = [name for name in a.inputs if name in b.inputs]
    if not common:
        return None
    c = common[0]
    x, y = (p.inputs[1] if p.inputs[0] == c else p.inputs[0] for p in (a, b))
    if not keeps_type(scope, x, node.outputs[0]) or not keeps_type(scope, y, node.outputs[0]):
        return None
    total = scope.emit(
        node.op, (x, y), scope.types[node.outputs[0]], name=node.name, hint=f"{node.outputs[0]}/sum"
    )
    scope.emit("Mul", (total, c), node.outputs[0], name=a.name)
    return scope.done()


def _shared_product(node: Node, scope: Scope) -> Replacement | None:
    """``x @ a + x @ b = x @ (a + b)``."""
    if node.inputs[0] == node.inputs[1]:
        return None
    a, b = (scope.producer(name, "MatMul") for name in node.inputs)
    if a is None or b is None or a.inputs[0] != b.inputs[0]:
        return None
    if not all(scope.sole_use(name) for name in node.inputs):
        return None
    left, right = scope.constant(a.inputs[1]), scope.constant(b.inputs[1])
    if left is None or right is None or left.shape != right.shape or left.dtype.kind != "f":
        return None
    total = _combined("Add", left, right)
    if total is None:
        return None
    made = scope.add_constant(f"{node.name}/weights", total)
    scope.emit("MatMul", (a.inputs[0], made), node.outputs[0], name=a.name)
    return scope.done()


EXACT = (
    Rule("add-zero", "x + 0", "x", _neutral(0, either=True), ("Add",)),
    Rule("subtract-zero", "x - 0", "x", _neutral(0, either=False), ("Sub",)),
    Rule("times-one", "x * 1", "x", _neutral(1, either=True), ("Mul",)),
    Rule("divide-by-one", "x / 1, x ** 1", "x", _neutral(1, either=False), ("Div", "Pow")),
    Rule("idempotent", "Relu(Relu(x)); likewise Abs, Ceil, Floor, Round, Sign", "Relu(x)",
         _twice, _IDEMPOTENT),
    Rule("undone", "Neg(Neg(x)), Not(Not(x))", "x", _undone, _INVOLUTIONS),
    Rule("relu-of-positive", "Relu(Sigmoid(x)); likewise Abs, Softmax, Exp, Sqrt", "Sigmoid(x)",
         _relu_of_positive, ("Relu",)),
    Rule("even-of-negated", "Abs(Neg(x)), Cos(Neg(x))", "Abs(x), Cos(x)", _even_of_neg,
         ("Abs", "Cos")),
    Rule("merge-clips", "Clip(Clip(x, a, b), c, d); likewise Relu", "Clip(x, both bounds)",
         _merged_clips, ("Clip", "Relu")),
    Rule("merge-casts", "Cast(Cast(x: int8, int32), float32)", "Cast(x, float32)",
         _merged_casts, ("Cast",)),
    Rule("subtract-as-add", "x - c", "x + (-c)", _subtracted, ("Sub",)),
    Rule("where-constant", "Where(true, x, y)", "x", _where, ("Where",)),
)  # fmt: skip
REASSOCIATION = (
    Rule("power-as-product", "x ** 2, x ** 0.5, x ** -1", "x * x, Sqrt(x), Reciprocal(x)",
         _power, ("Pow",), exact=False),
    Rule("divide-as-product", "x / c", "x * (1 / c)", _divided, ("Div",), exact=False),
    Rule("combine-constants", "(x + a) + b, (x * a) * b", "x + (a + b), x * (a * b)", _reassociated,
         ("Add", "Mul"), exact=False),
    Rule("distribute", "(x * a + b) * c, x * a a node that takes c in", "x * a * c + b * c",
         _distributed, ("Mul",), exact=False),
    Rule("factor", "x * c + y * c, x * c - y * c", "(x + y) * c, (x - y) * c", _factored,
         ("Add", "Sub"), exact=False),
    Rule("share-product", "MatMul(x, a) + MatMul(x, b)", "MatMul(x, a + b)", _shared_product,
         ("Add",), exact=False),
)  # fmt: skip
