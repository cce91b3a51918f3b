"""A graph as text, for people: one line a node, types where they begin."""

import re
from dataclasses import fields
from typing import Any

import numpy as np

from accelc.compiler.graph import Graph, Node, TensorType
from accelc.compiler.integer import AddStage, ConvAttrs, Post

#: Constants up to this many elements are written out.
_SHOWN_ELEMS = 8


def to_text(graph: Graph) -> str:
    """The graph in its order; constants small enough are written where they are used."""
    lines = [f"graph {graph.name!r} opset {graph.opset}"]
    lines += [f"# {note}" for note in graph.notes]
    lines += [f"input {name}: {type_text(graph.types[name])}" for name in graph.inputs]
    lines += [_node(node, graph) for node in graph.nodes]
    lines += [f"output {name}: {type_text(graph.types[name])}" for name in graph.outputs]
    return "\n".join(lines) + "\n"


def type_text(found: TensorType) -> str:
    """``int8[1, 32, 32, 3] * 0.0039 + -128``: element type, shape, scale and zero point."""
    shape = ", ".join("?" if d < 0 else str(d) for d in found.shape)
    text = f"{found.dtype}[{shape}]"
    if found.quant is None:
        return text
    if found.quant.scale.size != 1:
        return f"{text} * per axis {found.quant.axis}"
    scale, zero = float(found.quant.scale.reshape(())), int(found.quant.zero_point.reshape(()))
    return f"{text} * {scale:.6g} zero {zero}"


def _node(node: Node, graph: Graph) -> str:
    inputs = ", ".join(_value(name, graph) for name in node.inputs)
    outputs = ", ".join(
        f"{name or '_'}: {type_text(graph.types[name])}" if name else "_" for name in node.outputs
    )
    attrs = "".join(f" {key}={_attr(value)}" for key, value in sorted(node.attrs.items()))
    return f"{outputs} = {node.op}({inputs}){attrs}  # {node.name}"


def _value(name: str, graph: Graph) -> str:
    if not name:
        return "_"
    array = graph.constants.get(name)
    if array is None:
        return name
    if array.size <= _SHOWN_ELEMS:
        return f"{array.dtype} {_elements(array)}"
    return f"{name}: {type_text(graph.types[name])}"


def _elements(array: np.ndarray[Any, Any]) -> str:
    text = np.array2string(array, separator=",", precision=6, threshold=_SHOWN_ELEMS)
    return re.sub(r"([\[,])\s+", r"\1", text)


def _attr(value: Any) -> str:
    if isinstance(value, (ConvAttrs, Post, AddStage)):
        changed = [
            f"{f.name}={_attr(getattr(value, f.name))}"
            for f in fields(value)
            if getattr(value, f.name) != f.default
        ]
        return f"{value.__class__.__name__}({', '.join(changed)})"
    if isinstance(value, np.ndarray):
        return _elements(value)
    if hasattr(value, "SerializeToString"):
        return f"<graph {value.name}>"
    return repr(value) if isinstance(value, str) else str(value)
