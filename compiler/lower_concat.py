"""Concatenation of channels: whole blocks as they are, or lanes moved by the array."""

import numpy as np

from accelc.compiler.footprint import Space
from accelc.compiler.graph import Node
from accelc.compiler.integer import ConvAttrs, Post
from accelc.compiler.layout import View, ceil_div
from accelc.compiler.lower_eltwise import TILE_ROWS, map_rows
from accelc.compiler.region import Parameters, RegionBuilder, ranges, requantize
from accelc.compiler.task import Block
from accelc.compiler.tile_cost import MAX_COUNT
from accelc.compiler.window import Extent, load_window
from accelc.isa.errors import DoesNotFitError
from accelc.isa.spec import Gemm, Load


def lower_concat(builder: RegionBuilder, node: Node) -> None:
    """Append the steps of an ``int.concat``.

    Raises:
        DoesNotFitError: the configuration has too few weight rows to move lanes.
    """
    post: Post = node.attrs["post"]
    names = node.inputs[:-3] if not post.table else node.inputs[:-4]
    after = len(names)
    params = builder.parameters(
        node, (node.inputs[after], node.inputs[after + 1], node.inputs[after + 2])
    )
    fields = builder.post_fields(node, post)
    table = builder.table(node, post)
    y = builder.views[node.outputs[0]]
    offsets: list[int] = []
    offset = 0
    for name in names:
        offsets.append(offset)
        offset += builder.shape(name)[3]
    if all(start % builder.config.block_out == 0 for start in offsets):
        for name, start in zip(names, offsets, strict=True):
            _slice(builder, builder.views[name], y, start, params, fields, table)
        return
    sources = [
        (builder.views[name], start, builder.shape(name)[3])
        for name, start in zip(names, offsets, strict=True)
    ]
    _move_lanes(builder, node, sources, y, params, fields, table)


def _slice(
    builder: RegionBuilder,
    x: View,
    y: View,
    start: int,
    params: Parameters,
    fields: dict[str, int],
    table: tuple[Block, ...],
) -> None:
    """Requantize ``x`` to the channels of ``y`` from ``start``, a multiple of ``block_out``."""
    config = builder.config
    first = start // config.block_out
    part = y.part(first, x.blocks // config.vec_inp_rows, config)
    if part == x:
        return  # computed in place
    map_rows(builder, x, part, fields, table=table, params=params, first_params=first)


def _move_lanes(
    builder: RegionBuilder,
    node: Node,
    sources: list[tuple[View, int, int]],
    y: View,
    params: Parameters,
    fields: dict[str, int],
    table: tuple[Block, ...],
) -> None:
    """Multiply by 0/1 weights that put every input channel on its output lane."""
    config = builder.config
    y = y.flat()
    # an output block draws at most this many input blocks from one input
    span = config.vec_inp_rows + 1
    capacity = min(config.acc_rows // 2, config.out_rows // 2, config.inp_rows // (2 * span))
    pixels = min(capacity, TILE_ROWS, MAX_COUNT)
    if not pixels or 2 * span > config.wgt_rows:
        raise DoesNotFitError(
            f"{node.name}: moving channels needs {2 * span} rows of inp and wgt; "
            "raise inp_rows or wgt_rows"
        )
    blocks = y.blocks // config.vec_inp_rows
    for columns in ranges(y.w, pixels):
        count = columns[1] - columns[0]
        for block in range(blocks):
            acc, out = Block(Space.ACC, count), Block(Space.OUT, count)
            started = False
            for x, start, channels in sources:
                low = max(0, block * config.block_out - start)
                high = min(channels, (block + 1) * config.block_out - start)
                if low >= high:
                    continue
                parts = low // config.block_in, ceil_div(high, config.block_in)
                weights = _selection(builder, node, block, start, (low, high), parts)
                inp = _columns(builder, x.flat(), columns, parts)
                depth = parts[1] - parts[0]
                instruction = Gemm(
                    accumulate=int(started),
                    inp=0,
                    wgt=0,
                    acc=0,
                    n_k0=depth,
                    n_x=count,
                    inp_k0=1,
                    inp_x=depth,
                    wgt_k0=1,
                    acc_x=1,
                )
                builder.step(instruction, ("inp", inp), ("wgt", weights), ("acc", acc))
                started = True
            where = block, block + 1
            requantize(
                builder,
                params,
                fields,
                area=(1, count),
                depth=where,
                chunk=where,
                acc=acc,
                out=out,
                table=table,
            )
            builder.store_rows(y, out, 0, (0, 1), columns, where)


def _selection(
    builder: RegionBuilder,
    node: Node,
    block: int,
    start: int,
    channels: tuple[int, int],
    parts: tuple[int, int],
) -> Block:
    """Weights that copy input ``channels`` to ``block``; channel 0 goes to channel ``start``."""
    config = builder.config
    tiles = np.zeros((parts[1] - parts[0], config.block_out, config.block_in), np.int8)
    c = np.arange(*channels)
    lanes = c + start - block * config.block_out
    tiles[c // config.block_in - parts[0], lanes, c % config.block_in] = 1
    address = builder.constants.add(f"{node.name}.selection", tiles.tobytes())
    load = Load(buffer=Space.WGT, dram=address, n0=tiles.shape[0])
    return Block(Space.WGT, tiles.shape[0], (load,))


def _columns(
    builder: RegionBuilder, x: View, columns: tuple[int, int], parts: tuple[int, int]
) -> Block:
    """Pixels ``columns`` of input blocks ``parts``, ``[pixel][block]``."""
    return load_window(
        x,
        Space.INP,
        builder.config,
        group=0,
        outputs=Extent(y=0, x=columns[0], n_y=1, n_x=columns[1] - columns[0]),
        taps=Extent(y=0, x=0, n_y=1, n_x=1),
        conv=ConvAttrs(kernel=(1, 1)),
        blocks=parts,
    ).block
