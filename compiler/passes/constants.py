"""Constant folding, shape arithmetic included."""

import numpy as np

from accelc.compiler.contrib import CONTRIB
from accelc.compiler.graph import Array, Node
from accelc.compiler.onnx_node import run
from accelc.compiler.rewrite import Replacement, Rule, Scope
from accelc.isa.errors import ModelError

#: Folding must not blow up the model: larger results stay computations of smaller inputs.
FOLD_LIMIT_BYTES = 1 << 20
RANDOM = ("Random", "Bernoulli", "Multinomial")
#: Longest chain of shape arithmetic that is followed up to the value whose shape it takes.
MAX_SHAPE_CHAIN = 8


def _constants(node: Node, scope: Scope) -> Replacement | None:
    # what lowering needs are the integers
    return None if node.op == "DequantizeLinear" else _evaluated(node, scope)


def _evaluated(node: Node, scope: Scope) -> Replacement | None:
    if not node.inputs or not all(not name or name in scope.constants for name in node.inputs):
        return None
    return _folded(node, scope, [scope.constant(name) if name else None for name in node.inputs])


def _foldable(node: Node, scope: Scope) -> bool:
    plain = node.op not in CONTRIB and not node.op.startswith(("int.", *RANDOM))
    return plain and "captured" not in node.attrs and not scope.graph_outputs & {*node.outputs}


def _folded(node: Node, scope: Scope, inputs: list[Array | None]) -> Replacement | None:
    """The node's results as constants, unless they are large or not to be had."""
    if not _foldable(node, scope):
        return None
    types = [scope.types[o] for o in node.outputs if o]
    needed = sum(abs(int(np.prod(t.shape, dtype=np.int64))) * t.dtype.itemsize for t in types)
    given = sum(array.nbytes for array in inputs if array is not None)
    if needed > max(FOLD_LIMIT_BYTES, 4 * given):
        return None
    try:
        results = run(node, inputs, scope.opset)
    except ModelError:
        return None  # left to the runtime, which reports it with the node's name
    if not all(isinstance(array, np.ndarray) for array in results):
        return None
    return _replaced(node, scope, results)


def _replaced(node: Node, scope: Scope, results: list[Array]) -> Replacement:
    aliases: dict[str, str] = {}
    for name, array in zip(node.outputs, results, strict=False):
        if name:
            made = scope.add_constant(f"{name}", array)
            quant = scope.types[name].quant
            scope.types[made] = type(scope.types[made])(array.shape, array.dtype, quant)
            aliases[name] = made
    return scope.done(aliases)


def _known_shape(node: Node, scope: Scope) -> Replacement | None:
    shape = scope.shape(node.inputs[0])
    if -1 in shape or scope.types[node.inputs[0]].dtype == object:
        return None
    # an array of the right shape without its memory
    return _folded(node, scope, [np.broadcast_to(np.zeros((), np.int8), shape)])


def shape_elements(scope: Scope, value: str) -> list[int] | None:
    """What is known of the elements of a 1-dimensional int64 ``value``; -1 where nothing is.

    ``None``: it is not made of shapes and constants. It is followed through Shape, Gather, Slice,
    Concat, Squeeze, Unsqueeze and Cast to int64, ``MAX_SHAPE_CHAIN`` nodes deep.
    """
    return _elements(scope, value, MAX_SHAPE_CHAIN)


def _elements(scope: Scope, value: str, depth: int) -> list[int] | None:
    array = scope.constant(value)
    if array is not None:
        whole = array.dtype.kind == "i" and array.ndim < 2
        return [int(v) for v in array.reshape(-1)] if whole else None
    node = scope.producer(value)
    if node is None or not depth or len(scope.shape(value)) > 1:
        return None
    if node.op == "Shape":
        shape = list(scope.shape(node.inputs[0]))
        if scope.types[node.inputs[0]].dtype == object:
            return None
        return shape[slice(node.attrs.get("start"), node.attrs.get("end"))]
    if node.op == "Concat":
        parts = [_elements(scope, name, depth - 1) for name in node.inputs]
        return None if any(p is None for p in parts) else [v for p in parts for v in p or ()]
    if node.op not in ("Gather", "Slice", "Squeeze", "Unsqueeze", "Cast"):
        return None
    given = _elements(scope, node.inputs[0], depth - 1)
    if given is None or (node.op == "Cast" and scope.types[value].dtype != np.int64):
        return None
    if node.op not in ("Gather", "Slice"):
        return given
    if len(scope.shape(node.inputs[0])) != 1:
        return None
    others = [scope.constant(name) if name else None for name in node.inputs[1:]]
    if any(name and a is None for name, a in zip(node.inputs[1:], others, strict=True)):
        return None
    try:
        (picked,) = run(node, [np.array(given, np.int64), *others], scope.opset)
    except ModelError:
        return None
    return [int(v) for v in np.reshape(picked, -1)]


def _known_elements(node: Node, scope: Scope) -> Replacement | None:
    out = node.outputs[0]
    if scope.types[out].dtype != np.int64 or not _foldable(node, scope):
        return None
    found = shape_elements(scope, out)
    shape = scope.shape(out)
    if found is None or -1 in found or -1 in shape:
        return None
    return _replaced(node, scope, [np.array(found, np.int64).reshape(shape)])


def _reshape_target(node: Node, scope: Scope) -> Replacement | None:
    """A computed target of which all but one element is known, and none of those is 0 or -1."""
    if scope.constant(node.inputs[1]) is not None or node.attrs.get("allowzero", 0):
        return None
    found = shape_elements(scope, node.inputs[1])
    if found is None or found.count(-1) > 1 or 0 in found:
        return None
    shape = scope.add_constant(f"{node.name}/shape", np.array(found, np.int64))
    scope.emit("Reshape", (node.inputs[0], shape), node.outputs[0], node.attrs, name=node.name)
    return scope.done()


FOLD_CONSTANTS = Rule(
    "constant-operands", "Add(2, 3)", "5", _constants
)  # fmt: skip
FOLD_WEIGHTS = Rule(
    "constant-weights", "Conv(x, DequantizeLinear(w))", "Conv(x, w as floats)", _evaluated
)  # fmt: skip
SHAPES = (
    Rule("known-shape", "Shape(x: 2x3)", "[2, 3]", _known_shape, ("Shape", "Size")),
    Rule(
        "known-elements",
        "Gather(Shape(x: ?x3), 1)",
        "3",
        _known_elements,
        ("Gather", "Slice", "Concat", "Squeeze", "Unsqueeze"),
    ),
    Rule(
        "reshape-target",
        "Reshape(x, Concat(Shape(x: ?x3)[0], 3))",
        "Reshape(x, [-1, 3])",
        _reshape_target,
        ("Reshape",),
    ),
)
