"""Integer products of two activations: both are widened and arranged, then it is a convolution.

Zero points are taken away while widening to int16, so the sums are those of differences.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accelc.compiler.cpu.int_conv import ConvShape, emit_conv
from accelc.compiler.cpu.int_post import kernel_of, numbers, scale_of, scales
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT8, INT16
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.graph import Node
from accelc.compiler.integer import MatmulAttrs, Post


@dataclass(frozen=True)
class Arrange:
    """An operand ``(rows, 1, heads, c)`` int8 for every head of ``batch``, minus its zero point.

    ``strides`` are heads of the operand from place to place of each axis of ``batch``; ``lanes``
    are rows side by side in tiles of weights.
    """

    rows: int
    heads: int
    c: int
    batch: tuple[int, ...]
    strides: tuple[int, ...]
    zero: int
    lanes: int = 0

    @property
    def pairs(self) -> int:
        return -(-self.c // 2)


def _heads(k: Kernel, s: Arrange, body: Callable[[Index, Index], None]) -> None:
    """``body(head of the result, head of the operand)`` for all heads of ``batch``."""

    def place(at: tuple[Index, ...]) -> None:
        number: Index = 0
        for i, size in zip(at, s.batch, strict=True):
            number = k.affine((number, size), (i, 1))
        body(number, k.affine(*zip(at, s.strides, strict=True)))

    k.nest(s.batch, place)


def emit_rows(k: Kernel, s: Arrange) -> None:
    """To int16 ``(heads of batch, rows, 2 * pairs)``; a last odd channel is followed by 0."""
    source, target = k.args
    lanes = min(32, k.lanes_of(INT16))

    def head(number: Index, own: Index) -> None:
        def row(i: Index) -> None:
            read = k.imul(k.affine((i, s.heads), (own, 1)), s.c)
            write = k.imul(k.affine((number, s.rows), (i, 1)), 2 * s.pairs)

            def strip(first: Index, count: int) -> None:
                value = k.load(source, INT8, k.iadd(read, first), count).convert(INT16)
                k.store(value + -s.zero, target, k.iadd(write, first))

            k.strips(s.c, lanes, strip)
            if s.c % 2:
                k.store(k.value(0, INT16), target, k.iadd(write, s.c))

        k.loop(s.rows, row)

    _heads(k, s, head)


def emit_tiles(k: Kernel, s: Arrange) -> None:
    """To int16 ``(heads of batch, block, pair, lane, 2)`` as ``int_conv.pack_weights`` has it.

    What belongs to no row is left as it is: its sums are not read.
    """
    source, target = k.args
    blocks, pitch = -(-s.rows // s.lanes), 2 * s.lanes

    def head(number: Index, own: Index) -> None:
        def row(block: Index, lane: Index) -> None:
            i = k.affine((block, s.lanes), (lane, 1))
            read = k.imul(k.affine((i, s.heads), (own, 1)), s.c)
            tile = k.imul(k.affine((number, blocks), (block, 1)), s.pairs * pitch)
            write = k.affine((tile, 1), (lane, 2))

            def move(pair: Index, count: int) -> None:
                value = k.load(source, INT8, k.affine((read, 1), (pair, 2)), count).convert(INT16)
                k.store(value + -s.zero, target, k.affine((write, 1), (pair, pitch)))

            k.loop(s.c // 2, lambda pair: move(pair, 2))
            if s.c % 2:
                last = s.c // 2
                move(last, 1)
                k.store(k.value(0, INT16), target, k.affine((write, 1), (last, pitch), (1, 1)))

        whole, rest = divmod(s.rows, s.lanes)
        k.nest((whole, s.lanes), lambda at: row(*at))
        k.loop(rest, lambda lane: row(whole, lane))

    _heads(k, s, head)


def _strides(batch: tuple[int, ...], full: tuple[int, ...]) -> tuple[int, ...]:
    """Heads of an operand from place to place of ``full``, 0 where it is repeated."""
    heads = np.arange(int(np.prod(batch)), dtype=np.int64).reshape(batch)
    steps = np.broadcast_to(heads, full).strides
    return tuple(step // heads.itemsize for step in steps)


def lower_matmul(plan: Plan, node: Node) -> None:
    matmul: MatmulAttrs = node.attrs["matmul"]
    post: Post = node.attrs["post"]
    a, b, bias, mult, shift, *table = node.inputs
    out = node.outputs[0]
    m, _, _, c = plan.shape(a)
    _, _, heads, outputs = plan.shape(out)
    lanes = max(1, plan.target.vector_bytes // 4)

    def arranged(name: str, batch: tuple[int, ...], zero: int, lanes: int = 0) -> Arrange:
        rows, _, own, _ = plan.shape(name)
        strides = _strides(batch, matmul.batch)
        return Arrange(rows, own, c, matmul.batch, strides, zero, lanes)

    left = arranged(a, matmul.a_batch, matmul.a_zero)
    right = arranged(b, matmul.b_batch, matmul.b_zero, lanes)
    spread = c * (128 + abs(matmul.a_zero)) * (128 + abs(matmul.b_zero))
    scale = scale_of(plan, (bias, mult, shift), spread)
    kernel = kernel_of(post, scale)
    shape = ConvShape(
        n=heads,
        hp=1,
        wp=m,
        c=2 * left.pairs,
        oh=1,
        ow=m,
        outputs=outputs,
        kernel=(1, 1),
        stride=(1, 1),
        dilation=(1, 1),
        post=kernel,
        lanes=lanes,
        heads=True,
    )
    rows = plan.temporary((heads, m, shape.c), np.int16)
    tiles = plan.temporary((heads, shape.blocks, left.pairs, lanes, 2), np.int16)
    plan.call(emit_rows, left, [a], [rows])
    plan.call(emit_tiles, right, [b], [tiles])
    pitch = shape.blocks * lanes
    biases = np.zeros(pitch, np.int32)
    biases[:outputs] = scale.bias
    plan.call(
        emit_conv,
        shape,
        [
            rows,
            tiles,
            plan.constant(biases),
            numbers(plan, post, kernel),
            *scales(plan, scale, kernel),
            *table,
        ],
        [plan.temporary((m, pitch), np.int32), out],
    )


LOWERINGS: dict[str, Callable[[Plan, Node], None]] = {"int.matmul": lower_matmul}
