"""Fold Pad into the window operator that reads it."""

import numpy as np

from accelc.compiler.graph import Node
from accelc.compiler.passes.quantized import pad_value
from accelc.compiler.rewrite import Replacement, Rule, Scope


def spatial_pads(pad: Node, scope: Scope) -> tuple[int, ...] | None:
    """Begins and ends of the spatial axes, if nothing else is padded, by nothing negative."""
    rank = len(scope.shape(pad.inputs[0]))
    if pad.attrs.get("mode", "constant") != "constant":
        return None
    if "pads" in pad.attrs:
        amounts = list(pad.attrs["pads"])
    else:
        array = scope.constant(pad.inputs[1])
        if array is None:
            return None
        amounts = [int(v) for v in array.reshape(-1)]
    if pad.input(3):
        axes = scope.constant(pad.inputs[3])
        if axes is None:
            return None
        spread = [0] * (2 * rank)
        for k, axis in enumerate(int(a) % rank for a in axes.reshape(-1)):
            spread[axis], spread[axis + rank] = amounts[k], amounts[k + axes.size]
        amounts = spread
    begins, ends = amounts[:rank], amounts[rank:]
    if any((*begins[:2], *ends[:2])) or min(amounts) < 0:
        return None
    return (*begins[2:], *ends[2:])


def _fold(node: Node, scope: Scope) -> Replacement | None:
    """The padded value must be the one the operator pads with: a real 0 for convolutions (the zero
    point when quantized) and for averages that count padding, the lowest value for maxima.
    """
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "") or node.attrs.get("ceil_mode", 0):
        return None
    source = node.inputs[0]
    dequantize = scope.producer(source, "DequantizeLinear") if node.op != "QLinearConv" else None
    pad = scope.producer(source if dequantize is None else dequantize.inputs[0], "Pad")
    if pad is None:
        return None
    value = pad_value(pad, scope)
    added = spatial_pads(pad, scope)
    if value is None or added is None or value != _own_value(node, dequantize, pad, scope):
        return None
    attrs = dict(node.attrs)
    own = tuple(attrs.get("pads") or (0,) * len(added))
    if node.op == "AveragePool":
        if any(own) and not attrs.get("count_include_pad", 0):
            return None
        attrs["count_include_pad"] = 1
    attrs.pop("auto_pad", None)
    attrs["pads"] = tuple(a + b for a, b in zip(own, added, strict=True))
    first = pad.inputs[0]
    if dequantize is not None:
        first = scope.emit(
            "DequantizeLinear",
            (first, *dequantize.inputs[1:]),
            type(scope.types[source])(scope.shape(first), scope.types[source].dtype),
            dequantize.attrs,
            name=f"{node.name}/dequantize",
        )
    scope.emit(node.op, (first, *node.inputs[1:]), node.outputs[0], attrs, name=node.name)
    return scope.done()


def _own_value(node: Node, dequantize: Node | None, pad: Node, scope: Scope) -> float | None:
    """The value, in the padded tensor's type, that ``node`` itself pads with."""
    dtype = scope.types[pad.inputs[0]].dtype
    if node.op == "MaxPool":
        if dequantize is not None:
            return None
        return float("-inf") if dtype.kind == "f" else float(np.iinfo(dtype).min)
    quantized = dequantize if dequantize is not None else node if node.op == "QLinearConv" else None
    if quantized is None:
        return 0.0
    if not quantized.input(2):
        return 0.0
    zero = scope.constant(quantized.inputs[2])
    return None if zero is None or zero.size != 1 else float(zero.reshape(()))


PADS = (
    Rule(
        "pad-into-window",
        "Conv(Pad(x, q), pads p); likewise QLinearConv, AveragePool, MaxPool",
        "Conv(x, pads p + q)",
        _fold,
        ("Conv", "QLinearConv", "AveragePool", "MaxPool"),
    ),
)
