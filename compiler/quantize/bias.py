"""Bias correction: what rounding the weights adds to a layer's mean is taken from its bias."""

import numpy as np

from accelc.compiler.geometry import explicit_pads
from accelc.compiler.graph import Array, Graph
from accelc.compiler.onnx_node import run
from accelc.compiler.quantize.layers import Layer
from accelc.compiler.quantize.parameters import Weights


def takes_correction(layer: Layer) -> bool:
    """Whether the layer has a bias, or could have one."""
    return bool(layer.bias) or layer.root.op in ("Conv", "Gemm")


def correction(graph: Graph, layer: Layer, weights: Weights, mean: Array) -> Array:
    """``(channels,)`` float32 to add to the bias of ``layer``.

    A linear layer's mean over the samples is the layer applied to the mean sample, so the shift is
    the layer with the weights' rounding errors, applied to the mean of its input over the
    calibration samples: exact for the float input, borders included.

    Args:
        mean: the mean of the layer's input, in its shape.
    """
    error = (weights.real - graph.constants[layer.weights]).astype(np.float32)
    attrs = dict(layer.root.attrs)
    node = layer.root.with_(inputs=("x", "w"), outputs=("y",), attrs=attrs)
    if layer.root.op == "Conv":
        attrs["pads"] = explicit_pads(attrs, mean.shape[2:], error.shape[2:])
        attrs.pop("auto_pad", None)
    shift = run(node, [mean.astype(np.float32), error], graph.opset)[0]
    axis = 1 if layer.root.op == "Conv" else shift.ndim - 1
    others = tuple(a for a in range(shift.ndim) if a != axis)
    return -shift.mean(axis=others, dtype=np.float64).astype(np.float32)
