"""Depthwise convolutions and average pools: sliding windows, or diagonal weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.dense import Output, PlaneLowering, outputs, tap_ranges
from accelc.compiler.footprint import Space
from accelc.compiler.graph import Array, Node
from accelc.compiler.integer import ConvAttrs, Post
from accelc.compiler.region import RegionBuilder, ranges
from accelc.compiler.task import Block
from accelc.compiler.tile_cost import ConvShape, Counts
from accelc.compiler.tile_plane import PlaneTile, choose_depthwise
from accelc.compiler.window import Extent, Window, load_window
from accelc.isa.config import AccelConfig
from accelc.isa.spec import Gemm, Load


@dataclass(frozen=True)
class TapGroup:
    """Taps of one GEMM: from (y, x), ``n_y * n_x`` steps of ``rows * columns`` taps.

    A step of a sliding group is one weight tile for a window of ``rows * columns`` taps; a step of
    a diagonal group is one tap.
    """

    sliding: bool
    y: int
    x: int
    n_y: int
    n_x: int
    rows: int
    columns: int

    @property
    def steps(self) -> int:
        return self.n_y * self.n_x

    def cycles(self, lines: int, columns: int, step: int, least: int) -> int:
        """Cycles of one block of a tile; each weight tile takes at least ``least``."""
        read = lines * columns
        if self.sliding:
            read = lines * ((columns - 1) * step + self.columns) * self.rows
        return self.steps * max(read, least)


def _parts(size: int, part: int) -> list[tuple[int, int, int]]:
    """(start, length, count) of the equal parts of ``size`` and of what is left."""
    count, rest = divmod(size, part)
    parts = [(0, part, count)] if count else []
    return parts + ([(count * part, rest, 1)] if rest else [])


def _sliding(taps: tuple[int, int], rows: int, columns: int) -> tuple[TapGroup, ...]:
    return tuple(
        TapGroup(True, y, x, n_y, n_x, height, width)
        for y, height, n_y in _parts(taps[0], rows)
        for x, width, n_x in _parts(taps[1], columns)
    )


@lru_cache(maxsize=4096)
def tap_groups(
    taps: tuple[int, int],
    outputs: tuple[int, int],
    stride: int,
    dilation: int,
    config: AccelConfig,
) -> tuple[TapGroup, ...]:
    """The cheapest way to reduce ``taps`` for a tile of ``outputs``.

    ``stride`` and ``dilation`` are those along a line.

    Sliding over whole lines of taps reads each column once; with a stride above the kernel's
    width, or a dilation, windows of one column each are what is left.
    """
    kh, kw = taps
    options: list[tuple[TapGroup, ...]] = [(TapGroup(False, 0, 0, kh, kw, 1, 1),)]
    width = config.block_in
    if config.window:
        options.append(_sliding(taps, min(kh, width), 1))
        if kw > 1 and (dilation == 1 or outputs[1] == 1):
            columns = min(kw, width)
            options.append(_sliding(taps, min(kh, width // columns), columns))
    step = stride if kw > 1 and outputs[1] > 1 else 1
    # one window at a time: every output's columns are its own
    return min(options, key=lambda groups: _cycles(groups, outputs, step, config))


def _cycles(
    groups: Sequence[TapGroup], outputs: tuple[int, int], step: int, config: AccelConfig
) -> int:
    return sum(g.cycles(*outputs, step if g.columns > 1 else 1, config.block_out) for g in groups)


def group_weights(w: Array, group: TapGroup, config: AccelConfig) -> NDArray[np.int8]:
    """Weight tiles of ``group`` for ``w`` ``(blocks, block_out, kh, kw)``.

    Shape ``(blocks, block_out / block_in, n_y, n_x, block_out, block_in)``: where ``block_out`` is
    wider than ``block_in``, the lanes of a block are reduced from one input row after the other.
    """
    blocks, bo = w.shape[:2]
    bi, parts = config.block_in, config.vec_inp_rows
    tiles = np.zeros((blocks, parts, group.n_y, group.n_x, bo, bi), np.int8)
    for part in range(parts):
        lanes = np.arange(part * bi, (part + 1) * bi)
        for iy in range(group.n_y):
            for ix in range(group.n_x):
                for row in range(group.rows):
                    for column in range(group.columns):
                        y = group.y + iy * group.rows + row
                        x = group.x + ix * group.columns + column
                        values = w[:, lanes, y, x]
                        if group.sliding:
                            # window[0] is the row read last
                            age = (group.columns - 1 - column) * group.rows + group.rows - 1 - row
                            tiles[:, part, iy, ix, lanes, age] = values
                        else:
                            tiles[:, part, iy, ix, lanes, lanes - part * bi] = values
    return tiles


def lower_depthwise(builder: RegionBuilder, node: Node) -> None:
    """Append the steps of a depthwise ``int.conv``."""
    config = builder.config
    post: Post = node.attrs["post"]
    conv: ConvAttrs = node.attrs["conv"]
    x, y = builder.views[node.inputs[0]], builder.views[node.outputs[0]]
    w = builder.constant(node.inputs[1])
    kh, kw, channels = w.shape
    blocks = builder.vec_blocks(channels)
    full = np.zeros((blocks * config.block_out, kh, kw), np.int8)
    full[:channels] = w.transpose(2, 0, 1)
    shape = ConvShape(
        groups=x.groups,
        height=x.h,
        width=x.w,
        blocks_in=blocks,
        blocks_out=blocks,
        conv=conv,
        pitch=x.pixel_bytes // config.inp_row_bytes,
        residual=post.add is not None,
    )

    def cycles(lines: Counts, columns: Counts, taps_y: int, taps_x: int) -> Counts:
        known: dict[tuple[int, int], int] = {}
        result = np.zeros_like(lines)
        for i, size in enumerate(zip(lines.tolist(), columns.tolist(), strict=True)):
            if size not in known:
                stride, dilation = conv.stride[1], conv.dilation[1]
                groups = tap_groups((taps_y, taps_x), size, stride, dilation, config)
                step = stride if taps_x > 1 and size[1] > 1 else 1
                known[size] = _cycles(groups, size, step, config)
            result[i] = known[size] * config.vec_inp_rows
        return result

    tile = choose_depthwise(shape, config, cycles)
    params = builder.parameters(node, (node.inputs[2], node.inputs[3], node.inputs[4]))
    residual = builder.views[node.inputs[5]] if post.add is not None else None
    weights = full.reshape(blocks, config.block_out, kh, kw)
    _DepthwiseLowering(
        builder=builder,
        node=node,
        shape=shape,
        tile=tile,
        x=x,
        y=y,
        residual=residual,
        weights=weights,
        params=params,
    ).run()


@dataclass(kw_only=True)
class _DepthwiseLowering(PlaneLowering):
    tile: PlaneTile
    weights: Array

    def run(self) -> None:
        builder, shape, tile = self.builder, self.shape, self.tile
        self.taps = list(tap_ranges(shape.conv.kernel, tile.taps_y, tile.taps_x))
        oh, ow = shape.output_size
        planes = list(outputs(shape.groups, oh, ow, tile.lines, tile.columns))
        depths = list(ranges(shape.blocks_out, tile.blocks))
        capacity = builder.config.wgt_rows
        kernel = shape.conv.kernel[0] * shape.conv.kernel[1] * builder.config.vec_inp_rows
        spare = 2 * tile.chunk * tile.taps_y * tile.taps_x * builder.config.vec_inp_rows
        self.kept: dict[tuple[int, int, tuple[TapGroup, ...]], Block] = {}
        if shape.blocks_out * kernel + spare <= capacity:
            for plane in planes:
                for depth in depths:
                    self.tile_steps(plane, depth)
            return
        keep = tile.blocks * kernel + spare <= capacity
        for depth in depths:
            self.kept = {}
            for plane in planes:
                if not keep:
                    self.kept = {}
                self.tile_steps(plane, depth)

    def tile_steps(self, plane: Output, depth: tuple[int, int]) -> None:
        builder, area = self.builder, plane.area
        rows = area.n_y * area.n_x
        blocks = depth[1] - depth[0]
        out = Block(Space.OUT, rows * blocks)
        chunks = [(depth[0] + a, depth[0] + b) for a, b in ranges(blocks, self.tile.chunk)]
        sums = [Block(Space.ACC, (b - a) * rows) for a, b in chunks]
        addend = self.addend(plane, depth)
        v = builder.config.vec_inp_rows
        for index, taps in enumerate(self.taps):
            window = load_window(
                self.x,
                Space.INP,
                builder.config,
                group=plane.group,
                outputs=area,
                taps=taps,
                conv=self.shape.conv,
                blocks=(depth[0] * v, depth[1] * v),
            )
            groups = tap_groups(
                (taps.n_y, taps.n_x),
                (area.n_y, area.n_x),
                self.shape.conv.stride[1],
                self.shape.conv.dilation[1],
                builder.config,
            )
            for chunk, acc in zip(chunks, sums, strict=True):
                weights = self.weight_block(index, taps, groups, chunk)
                offset = 0
                for number, group in enumerate(groups):
                    first = index == 0 and number == 0
                    self.gemm(area, group, window, chunk, depth, (weights, offset), acc, first)
                    offset += group.steps * v * (chunk[1] - chunk[0])
                if index + 1 == len(self.taps):
                    self.requantize(area, depth, chunk, acc, out, addend)
        builder.store_rows(self.y, out, plane.group, plane.lines, plane.columns, depth)

    def weight_block(
        self, index: int, taps: Extent, groups: tuple[TapGroup, ...], chunk: tuple[int, int]
    ) -> Block:
        key = index, chunk[0], groups
        if key not in self.kept:
            kernel = self.weights[
                slice(*chunk), :, taps.y : taps.y + taps.n_y, taps.x : taps.x + taps.n_x
            ]
            config = self.builder.config
            data = b"".join(group_weights(kernel, g, config).tobytes() for g in groups)
            address = self.builder.constants.add(f"{self.node.name}.weights", data)
            count = len(data) // config.wgt_row_bytes
            load = Load(buffer=Space.WGT, dram=address, n0=count)
            self.kept[key] = Block(Space.WGT, count, (load,))
        return self.kept[key]

    def gemm(
        self,
        area: Extent,
        group: TapGroup,
        window: Window,
        chunk: tuple[int, int],
        depth: tuple[int, int],
        weights: tuple[Block, int],
        acc: Block,
        first: bool,
    ) -> None:
        v = self.builder.config.vec_inp_rows
        place = (chunk[0] - depth[0]) * v + group.y * window.tap_y + group.x * window.tap_x
        fields = {
            "n_x": area.n_x,
            "inp_x": window.output_x,
        }
        if group.sliding:
            fields |= {
                "window": 1,
                "n_t": group.rows,
                "first": group.columns,
                "inp_t": window.tap_y,
            }
            if group.columns > 1:
                fields |= {
                    "n_x": (area.n_x - 1) * window.output_step + group.columns,
                    "inp_x": window.tap_x,
                    "step": window.output_step,
                }
        instruction = Gemm(
            accumulate=int(not first),
            inp=place,
            wgt=weights[1],
            acc=0,
            n_o=chunk[1] - chunk[0],
            n_k0=v,
            n_k1=group.n_y,
            n_k2=group.n_x,
            n_y=area.n_y,
            inp_o=v,
            inp_k0=1,
            inp_k1=group.rows * window.tap_y,
            inp_k2=group.columns * window.tap_x,
            inp_y=window.output_y,
            wgt_o=v * group.steps,
            wgt_k0=group.steps,
            wgt_k1=group.n_x,
            wgt_k2=1,
            acc_o=area.n_y * area.n_x,
            acc_y=area.n_x,
            acc_x=1,
            **fields,
        )
        self.builder.step(instruction, ("inp", window.block), ("wgt", weights[0]), ("acc", acc))
