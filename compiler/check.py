"""What every graph must satisfy, checked before and after each pass."""

import math

import numpy as np

from accelc.compiler.graph import Graph, Node
from accelc.compiler.integer import ConvAttrs, MatmulAttrs, Post


class GraphError(AssertionError):
    """A pass produced an illegal graph: a bug in the compiler, never in the user's model."""


#: Inputs every integer operator has, before an optional residual and table.
_FIXED_INPUTS = {
    "int.conv": 5,
    "int.matmul": 5,
    "int.maxpool": 1,
    "int.add": 2,
    "int.scale": 4,
    "int.lookup": 2,
    "int.resize": 1,
    "int.signed": 1,
    "int.unsigned": 1,
}


def _require(holds: bool, node: Node | None, rule: str) -> None:
    if not holds:
        where = f"{node.op} {node.name!r}: " if node else ""
        raise GraphError(f"{where}{rule}")


def check(graph: Graph) -> Graph:
    """Return ``graph`` if it is legal.

    Raises:
        GraphError: a value is used before it is computed, computed twice or has no type, a constant
            contradicts its type, or an integer operator breaks its contract.
    """
    seen = set(graph.inputs) | set(graph.constants)
    _require(
        len(seen) == len(graph.inputs) + len(graph.constants), None, "an input is a constant too"
    )
    for name, array in graph.constants.items():
        _require(name in graph.types, None, f"constant {name!r} has no type")
        found = graph.types[name]
        if found.shape != array.shape or found.dtype != array.dtype:
            actual = f"{array.dtype}{array.shape}"
            _require(False, None, f"constant {name!r} is {actual}, its type says {found}")
    names: set[str] = set()
    for node in graph.nodes:
        _require(node.name not in names, node, "its name is taken")
        names.add(node.name)
        for value in node.inputs:
            _require(not value or value in seen, node, f"input {value!r} is not computed before it")
        for value in node.outputs:
            if value:
                _require(value not in seen, node, f"output {value!r} is computed twice")
                _require(value in graph.types, node, f"output {value!r} has no type")
                seen.add(value)
        if node.op.startswith("int."):
            _check_integer(node, graph)
    for name in graph.outputs:
        _require(name in seen, None, f"output {name!r} is not computed")
    for name in (*graph.inputs, *graph.outputs):
        _require(name in graph.types, None, f"{name!r} has no type")
    return graph


def _check_integer(node: Node, graph: Graph) -> None:
    types = [graph.types[name] for name in node.inputs]
    out = graph.types[node.outputs[0]]
    if node.op in ("int.signed", "int.unsigned"):
        _require(out.shape == types[0].shape, node, "shape changes")
        return
    _require(
        out.dtype == np.int8 and len(out.shape) == 4, node, f"output is {out.dtype}{out.shape}"
    )
    x = types[0]
    _require(x.dtype == np.int8 and len(x.shape) == 4, node, f"input is {x.dtype}{x.shape}")
    post: Post = node.attrs.get("post", Post())
    if node.op == "int.concat":
        _check_concat(node, graph, post)
        return
    _require(node.op in _FIXED_INPUTS, node, "no such integer operator")
    residual = node.op == "int.conv" and post.add is not None
    table = post.table and node.op != "int.lookup"
    expected = _FIXED_INPUTS[node.op] + residual + table
    _require(len(types) == expected, node, f"has {len(types)} inputs, needs {expected}")
    if post.table or node.op == "int.lookup":
        _require(
            types[-1].shape == (256,) and types[-1].dtype == np.int8,
            node,
            "table is not (256,) int8",
        )
    if residual:
        _require(
            types[5].shape == out.shape, node, f"residual is {types[5].shape}, output {out.shape}"
        )
    if node.op in ("int.conv", "int.maxpool"):
        _check_window(node, graph)
    elif node.op == "int.matmul":
        _check_matmul(node, graph, post)
    elif node.op == "int.add":
        _require(post.add is not None, node, "lacks its add stage")
        b = types[1].shape
        _require(
            b in (out.shape, (1, 1, 1, out.shape[3])) and x.shape == out.shape, node, f"adds {b}"
        )
    elif node.op == "int.resize":
        fh, fw = node.attrs["factors"]
        n, h, w, c = x.shape
        _require(out.shape == (n, h * fh, w * fw, c), node, f"resizes {x.shape} to {out.shape}")
    else:
        _require(out.shape == x.shape, node, f"maps {x.shape} to {out.shape}")
        if node.op == "int.scale":
            _check_params(node, graph, 1, x.shape[3])


def _check_window(node: Node, graph: Graph) -> None:
    conv: ConvAttrs = node.attrs["conv"]
    n, h, w, c = graph.types[node.inputs[0]].shape
    out = graph.types[node.outputs[0]].shape
    size = conv.output_size(h, w)
    _require(out[:3] == (n, *size), node, f"window gives {(n, *size)}, output is {out}")
    if node.op == "int.maxpool":
        _require(out[3] == c, node, "changes the channels")
        return
    weights = graph.types[node.inputs[1]]
    depthwise = node.attrs["depthwise"]
    expected = (*conv.kernel, c) if depthwise else (out[3], *conv.kernel, c)
    _require(weights.shape == expected, node, f"weights are {weights.shape}, need {expected}")
    _require(weights.dtype == np.int8, node, f"weights are {weights.dtype}")
    _require(not depthwise or out[3] == c, node, "depthwise changes the channels")
    _check_params(node, graph, 2, out[3])


def _check_matmul(node: Node, graph: Graph, post: Post) -> None:
    matmul: MatmulAttrs = node.attrs["matmul"]
    a, b = (graph.types[name] for name in node.inputs[:2])
    out = graph.types[node.outputs[0]].shape
    _require(
        b.dtype == np.int8 and len(b.shape) == 4, node, f"second operand is {b.dtype}{b.shape}"
    )
    heads = math.prod(matmul.a_batch), math.prod(matmul.b_batch), math.prod(matmul.batch)
    expected = (
        (a.shape[0], 1, heads[0], a.shape[3]),
        (out[3], 1, heads[1], a.shape[3]),
        (a.shape[0], 1, heads[2], out[3]),
    )
    found = a.shape, b.shape, out
    _require(found == expected, node, f"multiplies {a.shape} and {b.shape} to {out}")
    _require(post.add is None, node, "has an add stage")
    zeros = matmul.a_zero, matmul.b_zero
    _require(all(-128 <= zero <= 127 for zero in zeros), node, f"zero points are {zeros}")
    _check_params(node, graph, 2, out[3])


def _check_params(node: Node, graph: Graph, first: int, channels: int) -> None:
    """Bias, multiplier and shift of a requantization: ``(channels,)`` int32, in range."""
    for name in node.inputs[first : first + 3]:
        found = graph.types[name]
        _require(
            found.shape == (channels,) and found.dtype == np.int32, node, f"{name!r} is {found}"
        )
        _require(name in graph.constants, node, f"{name!r} is not constant")
    mult, shift = (graph.constants[name] for name in node.inputs[first + 1 : first + 3])
    _require(bool((mult >= 0).all() and (mult < 1 << 24).all()), node, "multiplier out of range")
    _require(bool((shift >= 0).all() and (shift <= 63).all()), node, "shift out of range")


def _check_concat(node: Node, graph: Graph, post: Post) -> None:
    out = graph.types[node.outputs[0]].shape
    count = len(node.inputs) - 3
    _require(not post.table and count >= 1, node, "takes no table and at least one input")
    shapes = [graph.types[name].shape for name in node.inputs[:count]]
    _require(all(shape[:3] == out[:3] for shape in shapes), node, f"joins {shapes} to {out}")
    _require(sum(shape[3] for shape in shapes) == out[3], node, f"joins {shapes} to {out}")
    _check_params(node, graph, count, out[3])
