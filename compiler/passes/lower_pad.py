"""Padding that no window operator absorbed, to ``int.conv``."""

import numpy as np

from accelc.compiler.integer import ConvAttrs
from accelc.compiler.passes.lower_conv import Linear, lower_linear
from accelc.compiler.passes.operands import Context, Operand, Target, features_view, require_int8
from accelc.compiler.passes.pads import spatial_pads
from accelc.compiler.passes.quantized import pad_value
from accelc.compiler.rewrite import Refusal


def lower_pad(context: Context) -> None:
    """``Pad`` of int8 or uint8 features to a depthwise convolution of one point with weight 1.

    ``Pad(x, v)`` becomes ``int.conv(x)`` that pads with ``v`` and multiplies by 1: a copy.
    """
    scope, node = context.scope, context.node
    found = scope.types[node.inputs[0]]
    offset = 128 if found.dtype == np.uint8 else 0
    pads, value = spatial_pads(node, scope), pad_value(node, scope)
    if pads is None or value is None:
        raise Refusal("pads that are no constant border of the spatial axes")
    if len(found.shape) == 3:
        pads = (0, pads[0], 0, pads[1])
    if len(pads) != 4:
        raise Refusal(f"features of rank {len(found.shape)}")
    # the zero point of a copy is free: the padded value makes the border what it must be
    zero = np.array(int(value))
    x = require_int8(
        Operand(node.inputs[0], found.shape, found.dtype, np.array(1, np.float32), zero)
    )
    out = scope.types[node.outputs[0]]
    view = features_view(found.shape)
    channels = view.shape[3]
    copy = Linear(
        x=x,
        weights=np.ones((channels, 1, 1, 1), np.int64),
        bias=np.zeros(channels, np.int64),
        real=np.ones(channels),
        conv=ConvAttrs(kernel=(1, 1), pads=(pads[0], pads[1], pads[2], pads[3])),
        groups=channels,
    )
    result = Target(node.outputs[0], out.shape, out.dtype, np.float32(1), int(value) - offset)
    lower_linear(context, copy, result, view, features_view(out.shape))
