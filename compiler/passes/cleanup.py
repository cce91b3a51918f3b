"""Constant folding, nodes without effect, common subexpressions."""

import hashlib

import numpy as np

from accelc.compiler.contrib import CONTRIB
from accelc.compiler.graph import Array, Graph, Node
from accelc.compiler.onnx_node import run
from accelc.compiler.passes.operands import reshape
from accelc.compiler.rewrite import Replacement, Scope, prune, rewrite
from accelc.isa.errors import ModelError

#: Folding must not blow up the model: larger results stay computations of smaller inputs.
FOLD_LIMIT_BYTES = 1 << 20
_RANDOM = ("Random", "Bernoulli", "Multinomial")
_LAYOUT = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def fold_constants(graph: Graph, *, dequantize: bool = False) -> Graph:
    """Evaluate nodes whose inputs are all constant.

    ``Add(2, 3) = y`` becomes the constant ``y = 5``, ``Shape(x)`` the constant shape of ``x``.
    ``DequantizeLinear`` of a constant is kept unless ``dequantize``: lowering needs the integers.
    """
    constants = dict(graph.constants)
    nodes: list[Node] = []
    for node in graph.nodes:
        results = _evaluated(node, graph, constants, dequantize)
        if results is None:
            nodes.append(node)
        else:
            constants.update(results)
    types = dict(graph.types)
    for name, array in constants.items():
        if (types[name].shape, types[name].dtype) != (array.shape, array.dtype):
            types[name] = type(types[name])(array.shape, array.dtype, types[name].quant)
    return prune(graph.with_(nodes=tuple(nodes), constants=constants, types=types))


def _evaluated(
    node: Node, graph: Graph, constants: dict[str, Array], dequantize: bool
) -> dict[str, Array] | None:
    if node.op in CONTRIB or node.op.startswith(("int.", *_RANDOM)) or "captured" in node.attrs:
        return None
    if any(output in graph.outputs for output in node.outputs):
        return None
    if node.op in ("Shape", "Size"):
        shape = graph.types[node.inputs[0]].shape
        if -1 in shape:
            return None
        inputs: list[Array | None] = [np.broadcast_to(np.zeros((), np.int8), shape)]
    elif all(not name or name in constants for name in node.inputs):
        if node.op == "DequantizeLinear" and not dequantize:
            return None
        inputs = [constants[name] if name else None for name in node.inputs]
    else:
        return None
    sizes = [graph.types[o] for o in node.outputs if o]
    needed = sum(abs(int(np.prod(t.shape, dtype=np.int64))) * t.dtype.itemsize for t in sizes)
    given = sum(array.nbytes for array in inputs if array is not None)
    if needed > max(FOLD_LIMIT_BYTES, 4 * given):
        return None
    try:
        results = run(node, inputs, graph.opset)
    except ModelError:
        return None  # left to the runtime, which reports it with the node's name
    if not all(isinstance(array, np.ndarray) for array in results):
        return None
    return {name: array for name, array in zip(node.outputs, results, strict=False) if name}


def eliminate_no_ops(graph: Graph) -> Graph:
    """Remove what changes nothing: Identity, Dropout, Cast to the same type, Pad by 0, Expand or
    Reshape to the same shape, Concat of one; merge Reshape chains and Transpose chains.

    ``Reshape(Reshape(x, a), b)`` becomes ``Reshape(x, b)``; Flatten, Squeeze and Unsqueeze are
    Reshapes; a Transpose that only moves axes of size 1 is a Reshape.
    """
    return prune(_keep_output_names(rewrite(graph, _no_op, _static_reshape, _merged_transpose)))


def _no_op(node: Node, scope: Scope) -> Replacement | None:
    if not node.input(0) or any(node.outputs[1:]) and node.op != "Dropout":
        return None
    source, out = node.inputs[0], node.outputs[0]
    same_shape = scope.types[source].shape == scope.types[out].shape and -1 not in scope.shape(out)
    match node.op:
        case "Identity":
            # at the model's interface it is what gives the value its name
            holds = out not in scope.graph_outputs
        case "Dropout":
            training = scope.constant(node.input(2))
            always = not node.input(2)
            unused = not any(scope.use_count(o) for o in node.outputs[1:])
            holds = unused and (always or (training is not None and not training.any()))
        case "Cast":
            holds = scope.types[source].dtype == scope.types[out].dtype
        case "Reshape" | "Expand":
            holds = same_shape
        case "Transpose":
            rank = len(scope.shape(source))
            holds = tuple(node.attrs.get("perm", range(rank)[::-1])) == tuple(range(rank))
        case "Concat":
            holds = len(node.inputs) == 1
        case "Pad":
            holds = (
                same_shape
                and node.attrs.get("mode", "constant") == "constant"
                and not _crops(node, scope)
            )
        case _:
            holds = False
    return scope.done({out: source}) if holds else None


def _crops(node: Node, scope: Scope) -> bool:
    """Whether a Pad that keeps the shape shifts the data: pads that cancel each other."""
    pads = node.attrs.get("pads")
    if pads is None:
        array = scope.constant(node.input(1))
        if array is None:
            return True
        pads = array.reshape(-1).tolist()
    return any(pads)


def _static_reshape(node: Node, scope: Scope) -> Replacement | None:
    """Any Reshape-like node to ``Reshape`` by a constant shape, from the first value of a chain."""
    if node.op not in _LAYOUT and node.op != "Transpose":
        return None
    source, out = node.inputs[0], node.outputs[0]
    shape = scope.shape(out)
    if -1 in shape or -1 in scope.shape(source):
        return None
    if node.op == "Transpose":
        perm = node.attrs.get("perm", tuple(range(len(shape)))[::-1])
        moved = [p for p in perm if scope.shape(source)[p] != 1]
        if moved != sorted(moved):
            return None
    inner = scope.producer(source, "Reshape")
    if inner is not None and -1 not in scope.shape(inner.inputs[0]):
        source = inner.inputs[0]
    elif node.op == "Reshape" and _is_static(node, scope, shape):
        return None
    reshape(scope, source, shape, node.name, out)
    return scope.done()


def _is_static(node: Node, scope: Scope, shape: tuple[int, ...]) -> bool:
    array = scope.constant(node.inputs[1])
    return array is not None and tuple(array.tolist()) == shape


def _merged_transpose(node: Node, scope: Scope) -> Replacement | None:
    if node.op != "Transpose":
        return None
    inner = scope.producer(node.inputs[0], "Transpose")
    if inner is None:
        return None
    rank = len(scope.shape(inner.inputs[0]))
    reverse = tuple(range(rank))[::-1]
    outer_perm, inner_perm = (tuple(n.attrs.get("perm", reverse)) for n in (node, inner))
    perm = tuple(inner_perm[p] for p in outer_perm)
    if perm == tuple(range(rank)) and node.outputs[0] not in scope.graph_outputs:
        return scope.done({node.outputs[0]: inner.inputs[0]})
    scope.emit("Transpose", (inner.inputs[0],), node.outputs[0], {"perm": perm}, name=node.name)
    return scope.done()


def _keep_output_names(graph: Graph) -> Graph:
    """``y = f(x); out = Identity(y)`` becomes ``out = f(x)`` where nothing stands in the way."""
    producers = graph.producer()
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "Identity" or node.outputs[0] not in graph.outputs:
            continue
        source = node.inputs[0]
        if source in producers and source not in graph.outputs and source not in renamed:
            renamed[source] = node.outputs[0]
    if not renamed:
        return graph
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "Identity" and renamed.get(node.inputs[0]) == node.outputs[0]:
            continue
        nodes.append(
            node.with_(
                inputs=tuple(renamed.get(n, n) for n in node.inputs),
                outputs=tuple(renamed.get(n, n) for n in node.outputs),
            )
        )
    return graph.with_(nodes=tuple(nodes))


def share_common(graph: Graph) -> Graph:
    """Compute equal things once: nodes of equal operator, inputs and attributes; equal constants.

    ``y = Relu(x); z = Relu(x)`` becomes ``y = Relu(x)`` with every use of ``z`` reading ``y``.
    """
    renamed: dict[str, str] = {}
    first: dict[object, str] = {}
    for name, array in graph.constants.items():
        if array.dtype == object or name in graph.outputs:
            continue
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest()
        found = first.setdefault(
            (array.dtype.str, array.shape, digest, repr(graph.types[name].quant)), name
        )
        if found != name:
            renamed[name] = found
    seen: dict[object, Node] = {}
    nodes: list[Node] = []
    for original in graph.nodes:
        node = original.with_(inputs=tuple(renamed.get(n, n) for n in original.inputs))
        key = _key(node)
        other = seen.get(key) if key is not None else None
        if other is None or any(o in graph.outputs for o in node.outputs):
            nodes.append(node)
            if key is not None:
                seen.setdefault(key, node)
            continue
        renamed.update(zip(node.outputs, other.outputs, strict=True))
    return prune(graph.with_(nodes=tuple(nodes)))


def _key(node: Node) -> object | None:
    """What makes two nodes compute the same; ``None`` for nodes that never do."""
    if node.op.startswith(_RANDOM) or "captured" in node.attrs or not node.inputs:
        return None
    attrs: list[object] = []
    for name, value in sorted(node.attrs.items()):
        if isinstance(value, np.ndarray):
            attrs.append((name, value.dtype.str, value.shape, value.tobytes()))
        elif hasattr(value, "SerializeToString"):
            return None
        else:
            attrs.append((name, value))
    return (
        node.op,
        node.inputs,
        tuple(attrs),
        len(node.outputs),
        tuple(bool(o) for o in node.outputs),
    )
