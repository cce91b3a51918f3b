"""Nodes that change nothing, chains of views, dead nodes."""

from collections.abc import Callable

from accelc.compiler.graph import Graph, Node
from accelc.compiler.passes.operands import reshape
from accelc.compiler.rewrite import Match, Replacement, Rule, Scope, prune

_LAYOUT = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def _same_shape(node: Node, scope: Scope) -> bool:
    shape = scope.shape(node.outputs[0])
    return scope.shape(node.inputs[0]) == shape and -1 not in shape


def _identity(node: Node, scope: Scope) -> bool:
    # at the model's interface it is what gives the value its name
    return node.outputs[0] not in scope.graph_outputs


def _dropout(node: Node, scope: Scope) -> bool:
    training = scope.constant(node.input(2))
    off = not node.input(2) or (training is not None and not training.any())
    return off and not any(scope.use_count(o) for o in node.outputs[1:])


def _cast(node: Node, scope: Scope) -> bool:
    return scope.types[node.inputs[0]].dtype == scope.types[node.outputs[0]].dtype


def _transpose(node: Node, scope: Scope) -> bool:
    rank = len(scope.shape(node.inputs[0]))
    return permutation(node, rank) == tuple(range(rank))


def _concat(node: Node, scope: Scope) -> bool:
    return len(node.inputs) == 1


def _split(node: Node, scope: Scope) -> bool:
    return len(node.outputs) == 1 and _same_shape(node, scope)


def _pad(node: Node, scope: Scope) -> bool:
    constant = node.attrs.get("mode", "constant") == "constant"
    return constant and _same_shape(node, scope) and not _crops(node, scope)


def _crops(node: Node, scope: Scope) -> bool:
    """Whether a Pad that keeps the shape shifts the data: pads that cancel each other."""
    pads = node.attrs.get("pads")
    if pads is None:
        array = scope.constant(node.input(1))
        if array is None:
            return True
        pads = array.reshape(-1).tolist()
    return any(pads)


def _slice(node: Node, scope: Scope) -> bool:
    """As many elements as before are all of them, unless a negative step reverses them."""
    steps = scope.constant(node.input(4))
    forward = not node.input(4) or (steps is not None and bool((steps > 0).all()))
    return forward and _same_shape(node, scope)


def permutation(node: Node, rank: int) -> tuple[int, ...]:
    """The axes' order a Transpose gives; it reverses them when it does not say."""
    return tuple(node.attrs.get("perm", range(rank)[::-1]))


#: Whether a node of that operator gives its first input back.
_NO_OPS: tuple[tuple[str, str, Callable[[Node, Scope], bool]], ...] = (
    ("Identity", "Identity(x)", _identity),
    ("Dropout", "Dropout(x), not training", _dropout),
    ("Cast", "Cast(x: float32, to float32)", _cast),
    ("Reshape", "Reshape(x: 2x3, [2, 3])", _same_shape),
    ("Expand", "Expand(x: 2x3, [2, 3])", _same_shape),
    ("Transpose", "Transpose(x, axes in order)", _transpose),
    ("Concat", "Concat(x)", _concat),
    ("Split", "Split(x) in one part", _split),
    ("Pad", "Pad(x, by nothing)", _pad),
    ("Slice", "Slice(x, everything)", _slice),
)


def _no_op(holds: Callable[[Node, Scope], bool]) -> Match:
    def match(node: Node, scope: Scope) -> Replacement | None:
        if not node.input(0) or (any(node.outputs[1:]) and node.op != "Dropout"):
            return None
        return scope.done({node.outputs[0]: node.inputs[0]}) if holds(node, scope) else None

    return match


def _static_reshape(node: Node, scope: Scope) -> Replacement | None:
    """Any Reshape-like node to ``Reshape`` by a constant shape."""
    source, out = node.inputs[0], node.outputs[0]
    shape = scope.shape(out)
    if -1 in shape or -1 in scope.shape(source):
        return None
    if node.op == "Transpose":
        moved = [p for p in permutation(node, len(shape)) if scope.shape(source)[p] != 1]
        if moved != sorted(moved):
            return None
    elif node.op == "Reshape" and _is_static(node, scope, shape):
        return None
    reshape(scope, source, shape, node.name, out)
    return scope.done()


def _is_static(node: Node, scope: Scope, shape: tuple[int, ...]) -> bool:
    array = scope.constant(node.inputs[1])
    return array is not None and tuple(array.tolist()) == shape


def _merged_reshape(node: Node, scope: Scope) -> Replacement | None:
    inner = scope.producer(node.inputs[0], "Reshape")
    out = node.outputs[0]
    if inner is None or -1 in scope.shape(out) or -1 in scope.shape(inner.inputs[0]):
        return None
    reshape(scope, inner.inputs[0], scope.shape(out), node.name, out)
    return scope.done()


def _merged_transpose(node: Node, scope: Scope) -> Replacement | None:
    inner = scope.producer(node.inputs[0], "Transpose")
    if inner is None:
        return None
    rank = len(scope.shape(inner.inputs[0]))
    outer_perm, inner_perm = permutation(node, rank), permutation(inner, rank)
    perm = tuple(inner_perm[p] for p in outer_perm)
    if perm == tuple(range(rank)):
        return scope.done({node.outputs[0]: inner.inputs[0]})
    scope.emit("Transpose", (inner.inputs[0],), node.outputs[0], {"perm": perm}, name=node.name)
    return scope.done()


VIEWS = (
    Rule(
        "static-reshape",
        "Flatten(x), Squeeze(x), Unsqueeze(x), Transpose that moves axes of size 1",
        "Reshape(x, constant)",
        _static_reshape,
        (*_LAYOUT, "Transpose"),
    ),
    Rule(
        "merge-reshapes",
        "Reshape(Reshape(x, a), b)",
        "Reshape(x, b)",
        _merged_reshape,
        ("Reshape",),
    ),
    Rule(
        "merge-transposes",
        "Transpose(Transpose(x, p), q)",
        "Transpose(x, p then q), or x",
        _merged_transpose,
        ("Transpose",),
    ),
)
NO_OPS = (
    *(
        Rule(f"no-op-{op.lower()}", before, "x", _no_op(holds), (op,))
        for op, before, holds in _NO_OPS
    ),
    *VIEWS,
)


def keep_output_names(graph: Graph) -> tuple[Graph, int]:
    """``y = f(x); out = Identity(y)`` becomes ``out = f(x)`` where nothing stands in the way."""
    producers = graph.producer()
    outputs = frozenset(graph.outputs)
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "Identity" or node.outputs[0] not in outputs:
            continue
        source = node.inputs[0]
        if source in producers and source not in outputs and source not in renamed:
            renamed[source] = node.outputs[0]
    if not renamed:
        return graph, 0
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "Identity" and renamed.get(node.inputs[0]) == node.outputs[0]:
            continue
        if any(name in renamed for name in (*node.inputs, *node.outputs)):
            node = node.with_(
                inputs=tuple(renamed.get(n, n) for n in node.inputs),
                outputs=tuple(renamed.get(n, n) for n in node.outputs),
            )
        nodes.append(node)
    return prune(graph.with_(nodes=tuple(nodes))), len(renamed)


def remove_dead(graph: Graph) -> tuple[Graph, int]:
    """Nodes, constants and types that no output depends on vanish."""
    kept = prune(graph)
    return kept, len(graph.nodes) - len(kept.nodes)
