"""Dense convolutions and fully connected layers."""

from dataclasses import dataclass

import numpy as np

from accelc.compiler.dense import Dense, Reduction
from accelc.compiler.footprint import Space
from accelc.compiler.graph import Array, Node
from accelc.compiler.integer import ConvAttrs, Post
from accelc.compiler.layout import View, ceil_div
from accelc.compiler.region import RegionBuilder
from accelc.compiler.task import Block
from accelc.compiler.tile import choose_conv
from accelc.compiler.tile_cost import ConvShape
from accelc.isa.config import AccelConfig
from accelc.isa.spec import Load


def is_pointwise(conv: ConvAttrs) -> bool:
    """Whether output pixel i depends on input pixel i alone, wherever lines begin."""
    return conv.kernel == (1, 1) and conv.stride == (1, 1) and conv.pads == (0, 0, 0, 0)


def weight_tiles(w: Array, config: AccelConfig) -> Array:
    """Weights ``(o, kh, kw, c)`` as tiles, each ``(block_out, block_in)``.

    Shape ``(o / block_out, c / block_in, kh, kw, block_out, block_in)``.
    """
    o, kh, kw, c = w.shape
    bo, bi = config.block_out, config.block_in
    full = np.zeros((ceil_div(o, bo) * bo, kh, kw, ceil_div(c, bi) * bi), np.int8)
    full[:o, :, :, :c] = w
    cut = full.reshape(full.shape[0] // bo, bo, kh, kw, -1, bi)
    return np.ascontiguousarray(cut.transpose(0, 4, 2, 3, 1, 5))


def conv_operands(builder: RegionBuilder, node: Node) -> tuple[View, View, Array, ConvAttrs]:
    """Input and output views, weights and window of a convolution as it is computed.

    A patched first layer works on its patches, and a pointwise one is a single line.
    """
    conv: ConvAttrs = node.attrs["conv"]
    w = builder.constant(node.inputs[1])
    y = builder.views[node.outputs[0]]
    if node.name in builder.own:
        x, packing = builder.own[node.name]
        conv = packing.patch_conv()
        steps, lines = conv.kernel[0], packing.patch_lines
        # lines that complete the last patch count nothing
        w = np.pad(w, ((0, 0), (0, steps * lines - w.shape[1]), (0, 0), (0, 0)))
        w = w.reshape(w.shape[0], steps, 1, -1)
    else:
        x = builder.views[node.inputs[0]]
    if is_pointwise(conv):
        return x.flat(), y.flat(), w, conv
    return x, y, w, conv


def lower_conv(builder: RegionBuilder, node: Node) -> None:
    """Append the steps of an ``int.conv`` that is not depthwise."""
    config = builder.config
    post: Post = node.attrs["post"]
    x, y, w, conv = conv_operands(builder, node)
    tiles = weight_tiles(w, config)
    blocks_out, blocks_in = tiles.shape[:2]
    shape = ConvShape(
        groups=x.groups,
        height=x.h,
        width=x.w,
        blocks_in=blocks_in,
        blocks_out=blocks_out,
        conv=conv,
        pitch=x.pixel_bytes // config.inp_row_bytes,
        residual=post.add is not None,
    )
    tile = choose_conv(shape, config)
    residual = builder.views[node.inputs[5]] if post.add is not None else None
    if residual is not None and y == builder.views[node.outputs[0]].flat():
        residual = residual.flat()
    params = builder.parameters(node, (node.inputs[2], node.inputs[3], node.inputs[4]))
    _Convolution(
        builder=builder,
        node=node,
        shape=shape,
        tile=tile,
        x=x,
        y=y,
        residual=residual,
        params=params,
        tiles=tiles,
    ).run()


@dataclass(kw_only=True)
class _Convolution(Dense):
    #: As ``weight_tiles`` gives them.
    tiles: Array

    def load_weights(self, reduction: Reduction, chunk: tuple[int, int]) -> Block:
        taps = reduction.taps
        tiles = self.tiles[
            slice(*chunk),
            slice(*reduction.blocks),
            taps.y : taps.y + taps.n_y,
            taps.x : taps.x + taps.n_x,
        ]
        count = int(np.prod(tiles.shape[:4]))
        address = self.builder.constants.add(f"{self.node.name}.weights", tiles.tobytes())
        return Block(Space.WGT, count, (Load(buffer=Space.WGT, dram=address, n0=count),))
