"""Operators that map rows to rows: add, per-channel scale, look-up, nearest-neighbour resize."""

from collections.abc import Iterator
from dataclasses import replace

from accelc.compiler.footprint import Space
from accelc.compiler.graph import Node
from accelc.compiler.integer import Post
from accelc.compiler.layout import View
from accelc.compiler.region import Parameters, RegionBuilder, ranges
from accelc.compiler.task import Block
from accelc.compiler.tile_cost import MAX_COUNT
from accelc.isa.errors import DoesNotFitError, UnsupportedOpError
from accelc.isa.spec import Alu, Source

#: Rows that a vector instruction should process, so that its overhead is small and units overlap.
TILE_ROWS = 512


def row_tiles(
    pixels: int, blocks: int, capacity: int, depth: int = MAX_COUNT
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges of pixels and of at most ``depth`` blocks whose rows fit ``capacity``."""
    depth = min(blocks, capacity, depth)
    count = max(1, min(capacity, max(TILE_ROWS, depth)) // depth)
    for columns in ranges(pixels, min(count, MAX_COUNT)):
        for part in ranges(blocks, depth):
            yield columns, part


def map_rows(
    builder: RegionBuilder,
    x: View,
    y: View,
    fields: dict[str, int],
    *,
    table: tuple[Block, ...] = (),
    params: Parameters | None = None,
    first_params: int = 0,
    addend: View | None = None,
) -> None:
    """Append steps that run every row of ``x`` through the vector unit to the same place of ``y``.

    ``addend`` is the second operand; one pixel of it serves all pixels if it has no more.
    """
    config = builder.config
    x, y = x.flat(), y.flat()
    blocks = y.blocks // config.vec_inp_rows
    same = addend is not None and addend.flat() == x
    broadcast = addend is not None and addend.flat().w == 1 and x.w > 1
    capacity = min(config.vin_rows // 4, config.out_rows // 2, MAX_COUNT)
    most_blocks = MAX_COUNT if params is None else config.prm_rows // 2
    kept: dict[tuple[int, int], Block] = {}
    for columns, depth in row_tiles(x.w, blocks, capacity, most_blocks):
        n1, n0 = columns[1] - columns[0], depth[1] - depth[0]
        source = builder.load_rows(x, 0, (0, 1), columns, depth)
        out = Block(Space.OUT, n0 * n1)
        rows = [("src", source), ("dst", out)]
        instruction = Alu(
            source=Source.VIN,
            n0=n0,
            n1=1,
            n2=n1,
            src_0=1,
            src_2=n0,
            dst_0=1,
            dst_2=n0,
            **fields,
        )
        if params is not None:
            block, first = params.rows((first_params + depth[0], first_params + depth[1]))
            instruction = replace(instruction, scale=1, prm=first, prm_0=1)
            rows.append(("prm", block))
        if addend is not None:
            if same:
                second = source
            elif broadcast:
                if depth not in kept:
                    kept[depth] = builder.load_rows(addend.flat(), 0, (0, 1), (0, 1), depth)
                second = kept[depth]
            else:
                second = builder.load_rows(addend.flat(), 0, (0, 1), columns, depth)
            instruction = replace(instruction, vin_0=1, vin_2=0 if broadcast else n0)
            rows.append(("vin", second))
        builder.step(instruction, *rows, also=table)
        builder.store_rows(y, out, 0, (0, 1), columns, depth)


def lower_add(builder: RegionBuilder, node: Node) -> None:
    """Append the steps of an ``int.add``.

    Raises:
        UnsupportedOpError: one pixel, computed at run time for one image, is to be added to
        several.
    """
    a, b = node.inputs[:2]
    post: Post = node.attrs["post"]
    if (
        builder.config.batch > 1
        and builder.shape(a)[0] > 1
        and builder.shape(b)[0] == 1
        and b not in builder.graph.constants
    ):
        raise UnsupportedOpError(
            f"{node.name}: adding one image's {b} to a batch needs batch = 1 or a constant; "
            "broadcast it before"
        )
    map_rows(
        builder,
        builder.views[a],
        builder.views[node.outputs[0]],
        builder.post_fields(node, post),
        table=builder.table(node, post),
        addend=builder.views[b],
    )


def lower_scale(builder: RegionBuilder, node: Node) -> None:
    """Append the steps of an ``int.scale``."""
    post: Post = node.attrs["post"]
    map_rows(
        builder,
        builder.views[node.inputs[0]],
        builder.views[node.outputs[0]],
        builder.post_fields(node, post),
        table=builder.table(node, post),
        params=builder.parameters(node, (node.inputs[1], node.inputs[2], node.inputs[3])),
    )


def lower_lookup(builder: RegionBuilder, node: Node) -> None:
    """Append the steps of an ``int.lookup``."""
    post: Post = replace(node.attrs["post"], table=True)
    map_rows(
        builder,
        builder.views[node.inputs[0]],
        builder.views[node.outputs[0]],
        builder.post_fields(node, post),
        table=builder.table(node, post),
    )


def lower_resize(builder: RegionBuilder, node: Node) -> None:
    """Append the steps of an ``int.resize``: pixels repeat in the vector unit, lines in STOREs.

    Raises:
        DoesNotFitError: one pixel, repeated, is larger than ``out``.
    """
    config = builder.config
    fh, fw = node.attrs["factors"]
    x, y = builder.views[node.inputs[0]], builder.views[node.outputs[0]]
    blocks = y.blocks // config.vec_inp_rows
    capacity = min(config.vin_rows // 2, config.out_rows // (2 * fw))
    if not capacity or fw > MAX_COUNT:
        raise DoesNotFitError(
            f"{node.name}: a pixel repeated {fw} times exceeds half of out's {config.out_rows} "
            "rows; "
            "raise out_rows or resize in two steps"
        )
    depth_size = min(blocks, capacity)
    columns_size = max(1, min(x.w, MAX_COUNT, max(1, TILE_ROWS // fw // depth_size)))
    columns_size = max(1, min(columns_size, capacity // depth_size))
    for group in range(x.groups):
        for line in range(x.h):
            for columns in ranges(x.w, columns_size):
                for depth in ranges(blocks, depth_size):
                    n1, n0 = columns[1] - columns[0], depth[1] - depth[0]
                    source = builder.load_rows(x, group, (line, line + 1), columns, depth)
                    out = Block(Space.OUT, n0 * n1 * fw)
                    instruction = Alu(
                        source=Source.VIN,
                        n0=n0,
                        n1=n1,
                        n2=fw,
                        src_0=1,
                        src_1=n0,
                        dst_0=1,
                        dst_1=fw * n0,
                        dst_2=n0,
                    )
                    builder.step(instruction, ("src", source), ("dst", out))
                    target = columns[0] * fw, columns[1] * fw
                    for repeat in range(fh):
                        at = line * fh + repeat
                        builder.store_rows(y, out, group, (at, at + 1), target, depth)
