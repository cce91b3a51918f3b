"""How tensors lie in device memory: the packed layouts, with NumPy as their definition.

A logical int8 tensor ``(n, h, w, c)`` is packed as ``[n / batch][h][w][c_pad /
block_in][batch][block_in]``: images are grouped by ``batch``, channels are cut in blocks, and one
block of one pixel is one row of the ``inp`` scratchpad. ``c_pad`` is ``c`` rounded up to
``block_out``, so that the same bytes are whole rows of ``vin`` and ``out`` too. What the padding
channels and padding images hold is arbitrary.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.integer import ConvAttrs
from accelc.isa.config import AccelConfig
from accelc.isa.errors import InputError

Int8 = NDArray[np.int8]


def ceil_div(value: int, unit: int) -> int:
    return -(-value // unit)


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How the bytes of one program input or output follow from a logical tensor.

    ``nhwc`` is the layout of this module. ``patch`` serves one convolution with few input channels:
    its pixels are windows of some lines of the kernel, ``(patch_lines, kw, c)`` bytes padded to
    whole ``block_in`` rows, with the pad value where a window leaves the image. Patches of the
    whole kernel are the output's pixels; smaller ones begin at every padded input line, so that
    the lines of the kernel that remain are taps of a ``(n, 1)`` convolution. ``tiles`` are rows of
    ``wgt``: ``[n / block_out][h][w][c / block_in][block_out][block_in]``, the weights of ``n``
    output channels; padding is 0.
    """

    #: The graph value that is packed; several regions may hold one value in different layouts.
    value: str
    #: Logical shape ``(n, h, w, c)``.
    shape: tuple[int, int, int, int]
    kind: Literal["nhwc", "patch", "tiles"] = "nhwc"
    conv: ConvAttrs | None = None
    patch_lines: int = 0

    def patch_conv(self) -> ConvAttrs:
        """The convolution of the patches that does the work of ``conv``."""
        if self.conv is None:
            raise AssertionError(f"{self.value} is not packed as patches")
        steps = ceil_div(self.conv.kernel[0], self.patch_lines)
        if steps == 1:
            return ConvAttrs(kernel=(1, 1))
        return ConvAttrs(
            kernel=(steps, 1),
            stride=(self.conv.stride[0], 1),
            dilation=(self.conv.dilation[0] * self.patch_lines, 1),
        )

    def packed_shape(self, config: AccelConfig) -> tuple[int, int, int, int, int, int]:
        """``(n / batch, h, w, blocks, batch, block_in)``; ``patch``: lines of patches, ``ow``;
        ``tiles``: ``block_out`` instead of ``batch``."""
        n, h, w, c = self.shape
        if self.kind == "tiles":
            outputs, blocks = ceil_div(n, config.block_out), ceil_div(c, config.block_in)
            return outputs, h, w, blocks, config.block_out, config.block_in
        groups = ceil_div(n, config.batch)
        if self.conv is None:
            blocks = ceil_div(c, config.block_out) * config.vec_inp_rows
            return groups, h, w, blocks, config.batch, config.block_in
        oh, ow = self.conv.output_size(h, w)
        walk = self.patch_conv()
        lines = (oh - 1) * walk.stride[0] + (walk.kernel[0] - 1) * walk.dilation[0] + 1
        blocks = ceil_div(self.patch_lines * self.conv.kernel[1] * c, config.block_in)
        return groups, lines, ow, blocks, config.batch, config.block_in

    def nbytes(self, config: AccelConfig) -> int:
        return int(np.prod(self.packed_shape(config)))


def patches(array: NDArray[Any], packing: Packing) -> NDArray[Any]:
    """Windows of ``array`` ``(n, h, w, c)``, padded, ``(n, lines, ow, patch_lines * kw * c)``."""
    conv = packing.conv
    if conv is None:
        raise AssertionError(f"{packing.value} is not packed as patches")
    n, h, w, c = array.shape
    oh, ow = conv.output_size(h, w)
    walk = packing.patch_conv()
    step = conv.stride[0] if walk.kernel[0] == 1 else 1
    lines = (oh - 1) * walk.stride[0] + (walk.kernel[0] - 1) * walk.dilation[0] + 1
    top, left, _, right = conv.pads
    # the last patches may begin so low that their last lines lie beyond the padding
    height = (lines - 1) * step + (packing.patch_lines - 1) * conv.dilation[0] + 1
    padded = np.full((n, max(height, top + h), w + left + right, c), conv.pad_value, array.dtype)
    padded[:, top : top + h, left : left + w] = array
    kw = conv.kernel[1]
    result = np.empty((n, lines, ow, packing.patch_lines, kw, c), array.dtype)
    for y in range(packing.patch_lines):
        y0 = y * conv.dilation[0]
        rows = slice(y0, y0 + (lines - 1) * step + 1, step)
        for x in range(kw):
            x0 = x * conv.dilation[1]
            columns = slice(x0, x0 + (ow - 1) * conv.stride[1] + 1, conv.stride[1])
            result[:, :, :, y, x] = padded[:, rows, columns]
    return result.reshape(n, lines, ow, -1)


def pack(array: Int8, packing: Packing, config: AccelConfig) -> bytes:
    """Pack a logical int8 tensor ``(n, h, w, c)``; padding becomes 0.

    Raises:
        InputError: the array has another shape or element type.
    """
    if array.shape != packing.shape or array.dtype != np.int8:
        raise InputError(
            f"{packing.value} must be int8 {packing.shape}, not {array.dtype} {array.shape}"
        )
    return _packed(array, packing, config).tobytes()


def _packed(array: NDArray[Any], packing: Packing, config: AccelConfig) -> NDArray[Any]:
    """Elements of any type in the order of their packed bytes; padding becomes 0."""
    if packing.conv is not None:
        array = patches(array, packing)
    groups, h, w, blocks, batch, block_in = packing.packed_shape(config)
    n, _, _, c = array.shape
    full = np.zeros((groups * batch, h, w, blocks * block_in), array.dtype)
    full[:n, :, :, :c] = array
    rows = full.reshape(groups, batch, h, w, blocks, block_in)
    return np.ascontiguousarray(rows.transpose(0, 2, 3, 4, 1, 5))


#: In :func:`gather_table`: the low byte is the packed byte itself.
GATHER_CONSTANT = 1 << 31


def gather_table(packing: Packing, config: AccelConfig) -> NDArray[np.uint32]:
    """Where every packed byte comes from, for hosts without NumPy, ``(nbytes,)``.

    An entry is the element's place in the logical tensor ``(n, h, w, c)``, last axis fastest, or
    ``GATHER_CONSTANT`` plus a byte that is always the same.
    """
    places = np.arange(1, 1 + np.prod(packing.shape), dtype=np.int64).reshape(packing.shape)
    pad_value = 0
    if packing.conv is not None:
        pad_value = packing.conv.pad_value
        packing = replace(packing, conv=replace(packing.conv, pad_value=-1))
    table = _packed(places, packing, config).reshape(-1)
    padded = np.where(table < 0, pad_value & 0xFF, 0) + GATHER_CONSTANT
    return np.where(table > 0, table - 1, padded).astype(np.uint32)


def unpack(data: bytes, packing: Packing, config: AccelConfig) -> Int8:
    """Read a logical int8 tensor ``(n, h, w, c)`` back from ``nhwc`` bytes.

    Raises:
        InputError: ``data`` has the wrong length, or the packing is ``patch``, which loses the
        image.
    """
    if packing.kind != "nhwc":
        raise InputError(f"{packing.value}: only nhwc regions can be unpacked, not {packing.kind}")
    groups, h, w, blocks, batch, block_in = packing.packed_shape(config)
    expected = packing.nbytes(config)
    if len(data) != expected:
        raise InputError(f"{packing.value}: region has {expected} bytes, not {len(data)}")
    rows = np.frombuffer(data, np.int8).reshape(groups, h, w, blocks, batch, block_in)
    full = rows.transpose(0, 4, 1, 2, 3, 5).reshape(groups * batch, h, w, blocks * block_in)
    n, _, _, c = packing.shape
    return np.ascontiguousarray(full[:n, :, :, :c])


@dataclass(frozen=True, kw_only=True)
class View:
    """A packed tensor in memory as lowerings see it: an array of lines of pixels of blocks.

    ``groups * h`` lines of ``w`` pixels lie densely, one pixel every ``pixel_bytes``; of each pixel
    ``blocks`` rows of ``inp`` belong to the tensor. A view narrower than its pixels is a channel
    slice of a wider tensor: it starts ``address`` within the first pixel.
    """

    #: The value whose memory this is; slices name the value they are a part of.
    value: str
    address: int
    groups: int
    h: int
    w: int
    blocks: int
    pixel_bytes: int
    #: First block of the owner's pixel, in rows of ``out``.
    first_block: int = 0

    @property
    def line_bytes(self) -> int:
        return self.w * self.pixel_bytes

    def flat(self) -> "View":
        """The same pixels as one line."""
        return replace(self, groups=1, h=1, w=self.groups * self.h * self.w)

    def lines(self) -> "View":
        """The same pixels as one group."""
        return replace(self, groups=1, h=self.groups * self.h)

    def part(self, first: int, count: int, config: AccelConfig) -> "View":
        """A channel slice: ``count`` blocks of ``block_out`` channels from block ``first`` on."""
        return replace(
            self,
            address=self.address + first * config.vec_row_bytes,
            blocks=count * config.vec_inp_rows,
            first_block=self.first_block + first,
        )

    def at(self, group: int, y: int, x: int) -> int:
        """Address of a pixel's first block."""
        return self.address + ((group * self.h + y) * self.w + x) * self.pixel_bytes


def packed_view(packing: Packing, address: int, config: AccelConfig) -> View:
    """The whole of a packed tensor at ``address``."""
    groups, h, w, blocks, batch, block_in = packing.packed_shape(config)
    return View(
        value=packing.value,
        address=address,
        groups=groups,
        h=h,
        w=w,
        blocks=blocks,
        pixel_bytes=blocks * batch * block_in,
    )


@dataclass(frozen=True)
class Part:
    """A box of a view: lines counted over all groups, columns, and rows of ``out`` of a pixel."""

    view: View
    lines: tuple[int, int]
    columns: tuple[int, int]
    blocks: tuple[int, int]
