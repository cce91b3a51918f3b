"""The integer operators: the few linear-algebra primitives that networks are lowered to.

They are what accelerator and CPU have in common: both compute them bit for bit alike, by the
arithmetic of ``isa.spec.Alu``. Activations are int8 tensors in *logical* NHWC, shape
``(n, h, w, c)``; how a device lays them out in its memory is its own business.

==================== ======================= ===================================================
op                   inputs                  attrs
==================== ======================= ===================================================
``int.conv``         x, w, bias, mult, shift ``conv``: ConvAttrs; ``post``: Post;
                     [, residual][, table]   ``depthwise``: bool
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

Order within one operator: accumulate (or maximum, or pass), requantize with ``a_*`` of Post, clamp,
then ``add`` with the residual, clamp, then the table. ``post.table`` says whether the last input
is one.
Padding of ``int.conv`` is ``conv.pad_value``, the input's zero point.
"""

from dataclasses import dataclass


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
