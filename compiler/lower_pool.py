"""Maximum pools on the vector unit, tap by tap from ``vin``."""

from accelc.compiler.dense import outputs
from accelc.compiler.footprint import Space
from accelc.compiler.graph import Node
from accelc.compiler.integer import ConvAttrs, Post
from accelc.compiler.layout import View
from accelc.compiler.region import RegionBuilder, ranges
from accelc.compiler.task import Block
from accelc.compiler.tile_cost import ConvShape
from accelc.compiler.tile_plane import PlaneTile, choose_pool
from accelc.compiler.window import Extent, load_window
from accelc.isa.errors import DoesNotFitError
from accelc.isa.spec import Alu, Source


def lower_maxpool(builder: RegionBuilder, node: Node) -> None:
    """Append the steps of an ``int.maxpool``.

    Raises:
        DoesNotFitError: a window has more taps than ``vin`` and an ALU instruction can hold;
            ``split_pool`` prevents it.
    """
    config = builder.config
    conv: ConvAttrs = node.attrs["conv"]
    post: Post = node.attrs["post"]
    x, y = builder.views[node.inputs[0]], builder.views[node.outputs[0]]
    blocks = y.blocks // config.vec_inp_rows
    shape = ConvShape(
        groups=x.groups,
        height=x.h,
        width=x.w,
        blocks_in=blocks,
        blocks_out=blocks,
        conv=conv,
        pitch=x.pixel_bytes // config.vec_row_bytes,
    )
    tile = choose_pool(shape, config, *conv.kernel)
    if tile is None:
        raise DoesNotFitError(
            f"{node.name}: a window of {conv.kernel[0]}x{conv.kernel[1]} does not fit vin's "
            f"{config.vin_rows} rows; raise vin_rows"
        )
    table = builder.table(node, post)
    fields = builder.post_fields(node, post)
    _tiles(builder, shape, tile, x, y, fields, table)


def _tiles(
    builder: RegionBuilder,
    shape: ConvShape,
    tile: PlaneTile,
    x: View,
    y: View,
    fields: dict[str, int],
    table: tuple[Block, ...],
) -> None:
    conv = shape.conv
    oh, ow = shape.output_size
    taps = Extent(y=0, x=0, n_y=conv.kernel[0], n_x=conv.kernel[1])
    for plane in outputs(shape.groups, oh, ow, tile.lines, tile.columns):
        for depth in ranges(shape.blocks_out, tile.blocks):
            blocks, area = depth[1] - depth[0], plane.area
            window = load_window(
                x,
                Space.VIN,
                builder.config,
                group=plane.group,
                outputs=area,
                taps=taps,
                conv=conv,
                blocks=depth,
            )
            out = Block(Space.OUT, area.n_y * area.n_x * blocks)
            instruction = Alu(
                source=Source.VIN,
                n0=blocks,
                n1=area.n_y,
                n2=area.n_x,
                n_ky=taps.n_y,
                n_kx=taps.n_x,
                src_0=1,
                src_1=window.output_y,
                src_2=window.output_x,
                src_ky=window.tap_y,
                src_kx=window.tap_x,
                dst_0=1,
                dst_1=area.n_x * blocks,
                dst_2=blocks,
                **fields,
            )
            builder.step(instruction, ("src", window.block), ("dst", out), also=table)
            builder.store_rows(y, out, plane.group, plane.lines, plane.columns, depth)
