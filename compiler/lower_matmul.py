"""Products of two activations: a GEMM for each head, its second operand as tiles of weights.

``sum((a - za) * (b - zb)) = sum(a * b) - za * sum(b) - zb * sum(a) + k * za * zb``. The last term
is a bias. The others are products too, of b with rows that hold -za and of a with tiles that hold
-zb, added to the same accumulators: exact, at the price of a GEMM each where a zero point is not 0.
"""

from dataclasses import dataclass

import numpy as np

from accelc.compiler.dense import Dense, Reduction
from accelc.compiler.footprint import Space
from accelc.compiler.graph import Node
from accelc.compiler.integer import AS_WEIGHTS, ConvAttrs, MatmulAttrs
from accelc.compiler.layout import Packing, View, pack, packed_view
from accelc.compiler.region import RegionBuilder
from accelc.compiler.task import Block
from accelc.compiler.tile import choose_conv
from accelc.compiler.tile_cost import ConvShape
from accelc.compiler.window import Extent, Window
from accelc.isa.spec import Load

_POINT = ConvAttrs(kernel=(1, 1))


def lower_matmul(builder: RegionBuilder, node: Node) -> None:
    """Append the steps of an ``int.matmul``."""
    config = builder.config
    matmul: MatmulAttrs = node.attrs["matmul"]
    x, y = (builder.views[name].lines() for name in (node.inputs[0], node.outputs[0]))
    rows, one = x.h, x.w == y.w == 1
    if one:
        x, y = x.flat(), y.flat()
    depth = builder.graph.types[node.inputs[0]].shape[3]
    weights = _tiles(builder, node)
    repeats = [_repeated(zero)[1] for zero in (matmul.a_zero, matmul.b_zero)]
    shape = ConvShape(
        groups=1,
        height=1 if one else rows,
        width=rows if one else 1,
        blocks_in=weights.blocks,
        blocks_out=weights.groups,
        conv=_POINT,
        pitch=x.pixel_bytes // config.inp_row_bytes,
        passes=1 + sum(repeats),
        spare=int(any(repeats)),
    )
    tile = choose_conv(shape, config)
    bias = depth * matmul.a_zero * matmul.b_zero
    params = builder.parameters(node, (node.inputs[2], node.inputs[3], node.inputs[4]), bias)
    for head, (ha, hb) in enumerate(matmul.heads):
        _Head(
            builder=builder,
            node=node,
            shape=shape,
            tile=tile,
            x=x,
            y=y,
            params=params,
            x_column=ha,
            y_column=head,
            matmul=matmul,
            depth=depth,
            weights=weights,
            weights_head=hb,
        ).run()


def _tiles(builder: RegionBuilder, node: Node) -> View:
    """Where the second operand lies as tiles of weights."""
    if node.name in builder.own:
        return builder.own[node.name][0]
    name = node.inputs[AS_WEIGHTS[node.op]]
    packing = Packing(value=name, shape=builder.shape(name), kind="tiles")
    data = pack(builder.constant(name), packing, builder.config)
    address = builder.constants.add(f"{node.name}.weights", data)
    return packed_view(packing, address, builder.config)


def _repeated(zero: int) -> tuple[int, int]:
    """``-zero`` as an int8 value and how often it must be added."""
    if zero == -128:
        return 64, 2
    return -zero, int(zero != 0)


@dataclass(kw_only=True)
class _Head(Dense):
    matmul: MatmulAttrs
    #: Channels that are summed.
    depth: int
    #: Groups are blocks of outputs, columns are heads.
    weights: View
    weights_head: int

    def load_weights(self, reduction: Reduction, chunk: tuple[int, int]) -> Block:
        row_bytes = self.builder.config.wgt_row_bytes
        n0, n1 = reduction.blocks[1] - reduction.blocks[0], chunk[1] - chunk[0]
        rows = n0 * n1
        if n0 * row_bytes == self.weights.line_bytes:
            n0, n1 = rows, 1
        address = self.weights.at(chunk[0], 0, self.weights_head) + reduction.blocks[0] * row_bytes
        stride = self.weights.line_bytes if n1 > 1 else 0
        load = Load(buffer=Space.WGT, dram=address, n0=n0, n1=n1, stride1=stride)
        return Block(Space.WGT, rows, (load,))

    def gemm(
        self,
        area: Extent,
        index: int,
        reduction: Reduction,
        window: Window,
        chunk: tuple[int, int],
        acc: Block,
    ) -> None:
        super().gemm(area, index, reduction, window, chunk, acc)
        first, last = reduction.blocks
        if self.matmul.a_zero:
            value, times = _repeated(self.matmul.a_zero)
            fill = Load(buffer=Space.INP, dram=0, n2=0, pad_top=1, pad_value=value)
            self.multiply(
                area,
                chunk,
                acc,
                Block(Space.INP, 1, (fill,)),
                self.weight_block(index, reduction, chunk),
                accumulate=1,
                n_k0=last - first,
                n_k1=times,
                wgt_o=last - first,
                wgt_k0=1,
            )
        if self.matmul.b_zero:
            value, times = _repeated(self.matmul.b_zero)
            block_in = self.builder.config.block_in
            # channels beyond the tensor's hold anything: there the tile must be 0
            whole = min(last, self.depth // block_in)
            for start, stop in ((first, whole), (max(first, whole), last)):
                if start >= stop:
                    continue
                self.multiply(
                    area,
                    chunk,
                    acc,
                    window.block,
                    self._constant_tile(value, min(block_in, self.depth - start * block_in)),
                    accumulate=1,
                    inp=start - first,
                    n_k0=stop - start,
                    n_k1=times,
                    inp_k0=1,
                    inp_y=window.output_y,
                    inp_x=window.output_x,
                )

    def _constant_tile(self, value: int, channels: int) -> Block:
        config = self.builder.config
        tile = np.zeros((config.block_out, config.block_in), np.int8)
        tile[:, :channels] = value
        address = self.builder.constants.add(f"{self.node.name}.zero", tile.tobytes())
        return Block(Space.WGT, 1, (Load(buffer=Space.WGT, dram=address),))
