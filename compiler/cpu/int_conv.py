"""Integer convolution: int16 pairs multiplied and added into int32 lanes of output channels.

The input is widened to int16 and padded once; each output line is accumulated in a scratch line
``(ow, channels)`` int32 and then requantized. Sums are exact modulo 2**32, as in hardware.
"""

from dataclasses import dataclass

import llvmlite.ir as ll
import numpy as np

from accelc.compiler.cpu.int_post import PostEmitter, PostKernel
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import I32, INT8, INT16, INT32, Val
from accelc.compiler.graph import Array


@dataclass(frozen=True)
class Pad:
    """Copy ``(n, h, w, c)`` int8 into ``(n, top + h + bottom, left + w + right, c)``."""

    shape: tuple[int, int, int, int]
    pads: tuple[int, int, int, int]
    dtype: str
    value: int


def emit_pad(k: Kernel, pad: Pad) -> None:
    (n, h, w, c), (top, left, bottom, right) = pad.shape, pad.pads
    source, target = k.args
    dtype = np.dtype(pad.dtype)
    lanes = min(32, k.lanes_of(dtype))
    line = (left + w + right) * c

    def fill(start: Index, count: int) -> None:
        k.strips(
            count,
            lanes,
            lambda i, m: k.store(k.value(pad.value, dtype, m), target, k.iadd(start, i)),
        )

    def image(i: Index) -> None:
        start = k.imul(i, (top + h + bottom) * line)
        fill(start, top * line)

        def row(y: Index) -> None:
            first = k.iadd(start, k.imul(k.iadd(y, top), line))
            fill(first, left * c)
            read = k.affine((i, h * w * c), (y, w * c))
            inside = k.iadd(first, left * c)
            k.strips(
                w * c,
                lanes,
                lambda j, m: k.store(
                    k.load(source, INT8, k.iadd(read, j), m).convert(dtype),
                    target,
                    k.iadd(inside, j),
                ),
            )
            fill(k.iadd(inside, w * c), right * c)

        k.loop(h, row)
        fill(k.iadd(start, (top + h) * line), bottom * line)

    k.loop(n, image)


@dataclass(frozen=True)
class ConvShape:
    """Geometry over the padded input ``(n, hp, wp, c)``; ``outputs`` channels, lines of ``ow``."""

    n: int
    hp: int
    wp: int
    c: int
    oh: int
    ow: int
    outputs: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    post: PostKernel
    #: Lanes of int32 in one accumulator register.
    lanes: int
    #: Images of one line are heads: each has weights of its own, a pixel of the output has all.
    heads: bool = False

    @property
    def segments(self) -> tuple[int, int]:
        """Contiguous runs of the input for one line of the window: how many, and their elements."""
        if self.dilation[1] == 1:
            return 1, self.kernel[1] * self.c
        return self.kernel[1], self.c

    @property
    def blocks(self) -> int:
        return -(-self.outputs // self.lanes)


def pack_weights(w: Array, shape: ConvShape) -> Array:
    """``(o, kh, kw, c)`` int8 to int16 ``(block, kh, segment, pair, lane, 2)``, padded with 0."""
    count, length = shape.segments
    pairs = -(-length // 2)
    o, kh = w.shape[:2]
    packed = np.zeros((shape.blocks * shape.lanes, kh, count, pairs * 2), np.int16)
    packed[:o, :, :, :length] = w.reshape(o, kh, count, length)
    split = packed.reshape(shape.blocks, shape.lanes, kh, count, pairs, 2)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 4, 1, 5))


def dot_pairs(k: Kernel, total: Val, x: Val, w: Val) -> Val:
    """``total[i] + x[2i] * w[2i] + x[2i+1] * w[2i+1]`` in int32; x, w int16 of twice the lanes."""
    intrinsics = {
        ("avx512bw", 16): "llvm.x86.avx512.pmaddw.d.512",
        ("avx2", 8): "llvm.x86.avx2.pmadd.wd",
        ("sse2", 4): "llvm.x86.sse2.pmadd.wd",
    }
    for (feature, lanes), name in intrinsics.items():
        if (
            k.target.is_x86
            and total.lanes == lanes
            and (feature == "sse2" or k.target.has(feature))
        ):
            signature = ll.FunctionType(total.value.type, [x.value.type, w.value.type])
            product = k.b.call(k.declare(name, signature), [x.value, w.value])
            return total + Val(k, product, INT32)
    products = x.convert(INT32) * w.convert(INT32)
    if total.lanes == 1:
        return total + k.lane(products, 0) + k.lane(products, 1)
    undefined = ll.Constant(products.value.type, ll.Undefined)
    for first in (0, 1):
        mask = ll.Constant(ll.VectorType(I32, total.lanes), list(range(first, 2 * total.lanes, 2)))
        half = k.b.shuffle_vector(products.value, undefined, mask)
        total = total + Val(k, half, INT32)
    return total


def tile_pixels(ow: int, most: int) -> int:
    """Pixels side by side: fewest tiles of at most ``most``, all alike, the last overlapping."""
    tiles = -(-ow // most)
    return -(-ow // tiles)


def emit_conv(k: Kernel, s: ConvShape) -> None:
    """Pointers: padded x int16, packed w, bias int32 (blocks * lanes), Post's..., line, out."""
    x, weights, bias, *rest = k.args
    line, out = rest[-2:]
    post, other = post_emitter(k, s.post, rest[:-2])
    blocks, lanes = s.blocks, s.lanes
    width = next(v for v in (2, 3, 1) if blocks % v == 0)
    if s.ow == 1:
        width = next(v for v in (8, 4, 6, 5, 3, 2, 1) if blocks % v == 0)
    registers = 24 if k.target.vector_bytes == 64 else 12
    pixels = tile_pixels(s.ow, max(1, registers // width))
    count, length = s.segments
    pairs = -(-length // 2)
    block_elems = s.kernel[0] * count * pairs * lanes * 2
    padded_outputs = blocks * lanes

    def tile(n: Index, y: Index, group: Index, first: Index) -> None:
        block = k.imul(group, width)
        start = [k.load(bias, INT32, k.imul(k.iadd(block, v), lanes), lanes) for v in range(width)]
        totals = [value for _ in range(pixels) for value in start]
        line0 = k.affine((n, s.hp), (y, s.stride[0]))

        def segment(ky: Index, kx: Index, sums: tuple[Val, ...]) -> tuple[Val, ...]:
            row = k.iadd(line0, k.imul(ky, s.dilation[0]))
            column = k.affine((first, s.stride[1]), (kx, s.dilation[1]))
            read = k.imul(k.affine((row, s.wp), (column, 1)), s.c)
            w0 = k.affine(
                (n if s.heads else 0, blocks * block_elems),
                (block, block_elems),
                (ky, count * pairs * lanes * 2),
                (kx, pairs * lanes * 2),
            )

            def pair(j: Index, *sums: Val) -> list[Val]:
                at = k.iadd(w0, k.imul(j, lanes * 2))
                w = [
                    k.load(weights, INT16, k.iadd(at, v * block_elems), lanes * 2)
                    for v in range(width)
                ]
                results: list[Val] = []
                for p in range(pixels):
                    index = k.iadd(k.iadd(read, k.imul(j, 2)), p * s.stride[1] * s.c)
                    address = k.at(x, INT16, index)
                    two = Val(k, k.b.load(address, align=2, typ=I32), INT32)
                    both = k.splat(two, lanes)
                    kind = ll.VectorType(ll.IntType(16), lanes * 2)
                    pairs_x = Val(k, k.b.bitcast(both.value, kind), INT16)
                    results += [
                        dot_pairs(k, sums[p * width + v], pairs_x, w[v]) for v in range(width)
                    ]
                return results

            return k.loop(pairs, pair, sums)

        def window_line(ky: Index, *sums: Val) -> tuple[Val, ...]:
            return k.loop(count, lambda kx, *inner: segment(ky, kx, inner), sums)

        totals = k.loop(s.kernel[0], window_line, totals)
        for p in range(pixels):
            for v in range(width):
                channel = k.imul(k.iadd(block, v), lanes)
                at = k.iadd(k.imul(k.iadd(first, p), padded_outputs), channel)
                k.store(totals[p * width + v], line, at)

    def output_line(n: Index, y: Index) -> None:
        def group(g: Index) -> None:
            def tiles(t: Index) -> None:
                tile(n, y, g, k.imin(k.imul(t, pixels), s.ow - pixels))

            k.loop(-(-s.ow // pixels), tiles)

        k.loop(blocks // width, group)
        where = (n, s.n) if s.heads else (k.imul(k.affine((n, s.oh), (y, 1)), s.ow), 1)
        requantize_line(k, post, line, padded_outputs, other, out, where, s)

    k.nest((s.n, s.oh), lambda at: output_line(*at))


def emit_depthwise(k: Kernel, s: ConvShape) -> None:
    """As ``emit_conv``; weights int16 ``(kh, kw, c)``, one channel in, one out."""
    x, weights, bias, *rest = k.args
    line, out = rest[-2:]
    post, other = post_emitter(k, s.post, rest[:-2])
    kh, kw = s.kernel
    #: unrolled windows keep their weights in registers
    unrolled = kh * kw <= 9

    def channels(n: Index, y: Index, c: Index, lanes: int) -> None:
        start = k.load(bias, INT32, c, lanes)
        row0 = k.affine((n, s.hp), (y, s.stride[0]))
        taps = [(ky, kx) for ky in range(kh) for kx in range(kw)] if unrolled else []
        kept = [k.load(weights, INT16, k.iadd(c, (ky * kw + kx) * s.c), lanes) for ky, kx in taps]

        def product(px: Index, ky: Index, kx: Index, w: Val, total: Val) -> Val:
            row = k.affine((row0, 1), (ky, s.dilation[0]))
            column = k.affine((px, s.stride[1]), (kx, s.dilation[1]))
            at = k.iadd(k.imul(k.affine((row, s.wp), (column, 1)), s.c), c)
            # |int8 * int8| is at most 2**14: int16 holds it
            return total + (k.load(x, INT16, at, lanes) * w).convert(INT32)

        def pixel(px: Index) -> None:
            total = start
            for (ky, kx), w in zip(taps, kept, strict=True):
                total = product(px, ky, kx, w, total)
            if not unrolled:

                def window_line(ky: Index, total: Val) -> Val:
                    def tap(kx: Index, total: Val) -> Val:
                        w = k.load(
                            weights, INT16, k.affine((ky, kw * s.c), (kx, s.c), (c, 1)), lanes
                        )
                        return product(px, ky, kx, w, total)

                    return k.loop(kw, tap, [total])[0]

                total = k.loop(kh, window_line, [total])[0]
            k.store(total, line, k.iadd(k.imul(px, s.c), c))

        k.loop(s.ow, pixel)

    def output_line(n: Index, y: Index) -> None:
        k.strips(s.c, s.lanes, lambda c, lanes: channels(n, y, c, lanes))
        where = k.imul(k.affine((n, s.oh), (y, 1)), s.ow), 1
        requantize_line(k, post, line, s.c, other, out, where, s)

    k.nest((s.n, s.oh), lambda at: output_line(*at))


def post_emitter(
    k: Kernel, kernel: PostKernel, pointers: list[ll.Value]
) -> tuple[PostEmitter, ll.Value | None]:
    """From the pointers numbers, scale..., [residual], [table]: the emitter and the residual."""
    numbers, *rest = pointers
    scale: list[ll.Value] = []
    if kernel.scale:
        count = 1 if kernel.double else 2
        scale, rest = rest[:count], rest[count:]
    other = rest.pop(0) if kernel.add else None
    table = rest.pop(0) if kernel.table else None
    return PostEmitter(k, kernel, numbers, tuple(scale), table), other


def requantize_line(
    k: Kernel,
    post: PostEmitter,
    line: ll.Value,
    pitch: int,
    other: ll.Value | None,
    out: ll.Value,
    where: tuple[Index, int],
    s: ConvShape,
) -> None:
    """A line of the output from its accumulators ``(ow, pitch)`` int32.

    ``where`` are its first pixel and the steps from pixel to pixel.
    """
    first, step = where
    lanes = min(16, s.lanes)
    while lanes > s.outputs:
        lanes //= 2
    post.prepare(lanes)

    def channels(c: Index, lanes: int) -> None:
        scale = post.channel_scale(c, lanes)

        def pixel(px: Index) -> None:
            at = k.iadd(k.imul(k.affine((first, 1), (px, step)), s.outputs), c)
            value = k.load(line, INT32, k.iadd(k.imul(px, pitch), c), lanes)
            second = None if other is None else k.load(other, INT8, at, lanes)
            k.store(post.lanes(value, scale, second), out, at)

        k.loop(s.ow, pixel)

    k.strips(s.outputs, lanes, channels)
