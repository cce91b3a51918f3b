"""The integer operators: the few linear-algebra primitives that networks are lowered to.

They are what accelerator and CPU have in common: both compute them bit for bit alike, by the
arithmetic of ``isa.spec.Alu``. Activations are int8 tensors in *logical* NHWC, shape
``(n, h, w, c)``; how a device lays them out in its memory is its own business.

==================== ======================= ===================================================
op                   inputs                  attrs
==================== ======================= ===================================================
``int.conv``         x, w, bias, mult, shift ``conv``: ConvAttrs; ``post``: Post;
                     [, residual][, table]   ``depthwise``: bool
``int.matmul``       a, b, bias, mult, shift ``matmul``: MatmulAttrs; ``post``: Post without
                     [, table]               ``add``
``int.maxpool``      x [, table]             ``conv``: ConvAttrs (pad_value -128); ``post``: Post
``int.add``          a, b [, table]          ``post``: Post with ``add`` set; b may be (1, 1, 1, c)
``int.scale``        x, bias, mult, shift    ``post``: Post; int8 to int8, per channel
                     [, table]
``int.lookup``       x, table                ``post``: Post (pass-through clamp)
``int.concat``       x0, x1, ... and then    ``post``: Post; joins channels (last axis); every input
                     bias, mult, shift       requantized with its own slice of bias/mult/shift (c,)
``int.resize``       x                       ``factors``: (fh, fw) integers; nearest neighbour
==================== ======================= ===================================================

Constants: ``w`` int8 ``(o, kh, kw, c)``, depthwise ``(kh, kw, c)``; ``bias`` int32 ``(o,)``, zero
points of input and weights folded in; ``mult`` int32 ``(o,)`` (< 2^mult_bits) and ``shift`` int32
``(o,)`` of the requantization; ``table`` int8 ``(256,)``, entry ``q + 128``. Fully connected layers
are convolutions of ``(n, 1, 1, c)``; average pooling is a depthwise convolution with weights 1.

``int.matmul`` multiplies two activations, head by head: a ``(m, 1, heads, k)``, b ``(o, 1, heads,
k)``, result ``(m, 1, heads, o)``. Either operand may be constant. b has the axes of ``w``, because
that is its part: the device has to be given it as it is given weights, see ``AS_WEIGHTS``.

Order within one operator: accumulate (or maximum, or pass), requantize with ``a_*`` of Post, clamp,
then ``add`` with the residual, clamp, then the table. ``post.table`` says whether the last input
is one.
Padding of ``int.conv`` is ``conv.pad_value``, the input's zero point.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

#: Operand that the device takes as tiles of weights, by operator: only a host can lay it out so.
AS_WEIGHTS: Mapping[str, int] = {"int.matmul": 1}


@dataclass(frozen=True, kw_only=True)
class ConvAttrs:
    """Window geometry; pads are top, left, bottom, right and may differ. Pools use it too."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    pad_value: int = 0

    def output_size(self, h: int, w: int) -> tuple[int, int]:
        """Lines and columns of the output for an input of ``h`` by ``w``."""
        top, left, bottom, right = self.pads
        span_h = (self.kernel[0] - 1) * self.dilation[0] + 1
        span_w = (self.kernel[1] - 1) * self.dilation[1] + 1
        return (
            (h + top + bottom - span_h) // self.stride[0] + 1,
            (w + left + right - span_w) // self.stride[1] + 1,
        )


@dataclass(frozen=True, kw_only=True)
class MatmulAttrs:
    """``y[i, 0, h, j] = sum over k of (a[i, 0, ha, k] - a_zero) * (b[j, 0, hb, k] - b_zero)``.

    Heads are the places of ``a_batch`` and ``b_batch``, axes of equal number that broadcast with
    each other as NumPy has it, the last one fastest; the result has the heads of both.
    """

    a_batch: tuple[int, ...] = (1,)
    b_batch: tuple[int, ...] = (1,)
    a_zero: int = 0
    b_zero: int = 0

    @property
    def batch(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self.a_batch, self.b_batch)

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """``(ha, hb)`` of every head of the result."""
        a, b = (
            np.broadcast_to(np.arange(math.prod(batch)).reshape(batch), self.batch).reshape(-1)
            for batch in (self.a_batch, self.b_batch)
        )
        return tuple(zip(a.tolist(), b.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True)
class AddStage:
    """``y = clamp(round((a*m1 + b*m2 + offset) / 2**shift) + zero, min, max)``.

    Fields as ``b_*`` of isa Alu.
    """

    m1: int
    m2: int
    offset: int
    shift: int
    zero: int = 0
    min: int = -128
    max: int = 127


@dataclass(frozen=True, kw_only=True)
class Post:
    """What follows the accumulation; fields as in isa Alu a_*."""

    zero: int = 0
    inside: bool = False
    min: int = -128
    max: int = 127
    add: AddStage | None = None
    table: bool = False
