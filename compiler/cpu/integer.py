"""The ``int.*`` operators, bit for bit as ``isa.spec.Alu`` and GEMM define them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accelc.compiler.cpu.copies import table_copy
from accelc.compiler.cpu.int_conv import (
    ConvShape,
    Pad,
    emit_conv,
    emit_depthwise,
    emit_pad,
    pack_weights,
    post_emitter,
)
from accelc.compiler.cpu.int_post import PostKernel, Scale, kernel_of, numbers, scale_of, scales
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT8, INT32, Val
from accelc.compiler.cpu.plan import NotNative, Plan
from accelc.compiler.graph import Node
from accelc.compiler.integer import ConvAttrs, Post


def padded(plan: Plan, name: str, conv: ConvAttrs, dtype: str, slack: int) -> str:
    """``x`` with its border, widened to ``dtype``; ``slack`` elements after the end may be read."""
    n, h, w, c = plan.shape(name)
    top, left, bottom, right = conv.pads
    if dtype == "int8" and not any(conv.pads):
        return name
    hp, wp = h + top + bottom, w + left + right
    temporary = plan.temporary((n * hp * wp * c + slack,), dtype)
    pad = Pad((n, h, w, c), conv.pads, dtype, conv.pad_value)
    plan.call(emit_pad, pad, [name], [temporary])
    return temporary


def lower_conv(plan: Plan, node: Node) -> None:
    conv: ConvAttrs = node.attrs["conv"]
    post: Post = node.attrs["post"]
    depthwise = bool(node.attrs.get("depthwise", False))
    x, w_name, *rest = node.inputs
    out = node.outputs[0]
    w = plan.known(w_name)
    if w is None:
        raise NotNative(f"weights {w_name} are not a constant")
    weights = w.astype(np.int64)
    spread = np.abs(weights).sum(axis=(0, 1) if depthwise else (1, 2, 3)) * 128
    bias, mult, shift, *extra = rest
    scale = scale_of(plan, (bias, mult, shift), spread)
    kernel = kernel_of(post, scale)
    n, h, w_in, c = plan.shape(x)
    on, oh, ow, outputs = plan.shape(out)
    if (oh, ow) != conv.output_size(h, w_in):
        raise NotNative(f"{out} is {oh} by {ow}, the window gives {conv.output_size(h, w_in)}")
    if post.add is not None and plan.shape(extra[0]) != plan.shape(out):
        raise NotNative(f"residual {extra[0]} has another shape than {out}")
    flat = conv.kernel == (1, 1) and conv.stride == (1, 1) and not any(conv.pads)
    if flat and n * h * w_in > 1:
        # without a window pixels are alike: lines of a size that tiles well
        total = n * h * w_in
        line = next(size for size in range(min(total, 64), 0, -1) if total % size == 0)
        if line < 8:
            line = ow
        n, oh, ow, hp, wp = 1, total // line, line, total // line, line
    else:
        hp, wp = h + conv.pads[0] + conv.pads[2], w_in + conv.pads[1] + conv.pads[3]
    shape = ConvShape(
        n=n,
        hp=hp,
        wp=wp,
        c=c,
        oh=oh,
        ow=ow,
        outputs=outputs,
        kernel=conv.kernel,
        stride=conv.stride,
        dilation=conv.dilation,
        post=kernel,
        lanes=max(1, plan.target.vector_bytes // 4),
    )
    temporary = padded(plan, x, conv, "int16", slack=2)
    if depthwise:
        packed, pitch = w.astype(np.int16), c
        biases = scale.bias.astype(np.int32)
    else:
        packed, pitch = pack_weights(w, shape), shape.blocks * shape.lanes
        biases = np.zeros(pitch, np.int32)
        biases[:outputs] = scale.bias
    plan.call(
        emit_depthwise if depthwise else emit_conv,
        shape,
        [
            temporary,
            plan.constant(packed),
            plan.constant(biases),
            numbers(plan, post, kernel),
            *scales(plan, scale, kernel),
            *extra,
        ],
        [plan.temporary((ow, pitch), np.int32), out],
    )


@dataclass(frozen=True)
class MaxPool:
    """Maximum over windows of the padded input ``(n, hp, wp, c)``, then clamp and table."""

    n: int
    hp: int
    wp: int
    c: int
    oh: int
    ow: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    post: PostKernel


def emit_maxpool(k: Kernel, s: MaxPool) -> None:
    x, *rest, out = k.args
    post, _ = post_emitter(k, s.post, rest)
    lanes = k.lanes_of(INT8) if not s.post.table else 16
    lanes = min(lanes, 32)
    while lanes > s.c:
        lanes //= 2
    post.prepare(lanes)

    def pixel(at: tuple[Index, ...]) -> None:
        n, y, px = at

        def channels(c: Index, lanes: int) -> None:
            def line(ky: Index, best: Val) -> Val:
                def tap(kx: Index, best: Val) -> Val:
                    row = k.affine((n, s.hp), (y, s.stride[0]), (ky, s.dilation[0]))
                    column = k.affine((px, s.stride[1]), (kx, s.dilation[1]))
                    index = k.iadd(k.imul(k.affine((row, s.wp), (column, 1)), s.c), c)
                    value = k.load(x, INT8, index, lanes)
                    return value.maximum(best)

                return k.loop(s.kernel[1], tap, [best])[0]

            best = k.loop(s.kernel[0], line, [k.value(-128, INT8, lanes)])[0]
            index = k.iadd(k.imul(k.affine((n, s.oh * s.ow), (y, s.ow), (px, 1)), s.c), c)
            k.store(post.lanes(best, (), None), out, index)

        k.strips(s.c, lanes, channels)

    k.nest((s.n, s.oh, s.ow), pixel)


def lower_maxpool(plan: Plan, node: Node) -> None:
    conv: ConvAttrs = node.attrs["conv"]
    post: Post = node.attrs["post"]
    x, *extra = node.inputs
    n, h, w, c = plan.shape(x)
    oh, ow = plan.shape(node.outputs[0])[1:3]
    if (oh, ow) != conv.output_size(h, w):
        raise NotNative(f"the window gives {conv.output_size(h, w)}, not {(oh, ow)}")
    kernel = kernel_of(post, None)
    top, left, bottom, right = conv.pads
    shape = MaxPool(
        n,
        h + top + bottom,
        w + left + right,
        c,
        oh,
        ow,
        conv.kernel,
        conv.stride,
        conv.dilation,
        kernel,
    )
    source = padded(plan, x, conv, "int8", slack=0)
    plan.call(emit_maxpool, shape, [source, numbers(plan, post, kernel), *extra], [node.outputs[0]])


@dataclass(frozen=True)
class Pointwise:
    """Post on int8 pixels ``(n, pixels, c)``, written as channels ``first...`` of ``out_c``."""

    n: int
    pixels: int
    c: int
    first: int
    out_c: int
    #: Element strides of the second operand for image and pixel; 0 repeats it.
    other: tuple[int, int]
    bias: bool
    post: PostKernel


def emit_pointwise(k: Kernel, s: Pointwise) -> None:
    """Pointers: x, [bias], numbers, [scale...], [other], [table], out."""
    x, *rest, out = k.args
    bias = rest.pop(0) if s.bias else None
    post, other = post_emitter(k, s.post, rest)
    lanes = 16 if k.target.vector_bytes > 4 else 1
    while lanes > s.c:
        lanes //= 2
    post.prepare(lanes)

    def channels(c: Index, lanes: int) -> None:
        scale = post.channel_scale(c, lanes)
        added = None if bias is None else k.load(bias, INT32, c, lanes)

        def pixel(at: tuple[Index, ...]) -> None:
            n, p = at
            number = k.affine((n, s.pixels), (p, 1))
            value = k.load(x, INT8, k.iadd(k.imul(number, s.c), c), lanes).convert(INT32)
            if added is not None:
                value = value + added
            second = None
            if other is not None:
                index = k.affine((n, s.other[0]), (p, s.other[1]), (c, 1))
                second = k.load(other, INT8, index, lanes)
            index = k.iadd(k.iadd(k.imul(number, s.out_c), c), s.first)
            k.store(post.lanes(value, scale, second), out, index)

        k.nest((s.n, s.pixels), pixel)

    k.strips(s.c, lanes, channels)


def pointwise(
    plan: Plan,
    x: str,
    out: str,
    post: Post,
    scale: Scale | None,
    extra: list[str],
    first: int = 0,
) -> None:
    """Append one call; ``extra`` are second operand and table, as far as ``post`` has them."""
    n, h, w, c = plan.shape(x)
    kernel = kernel_of(post, scale)
    pixels, out_c = h * w, plan.shape(out)[3]
    strides = (0, 0)
    if post.add is not None:
        bn, bh, bw, bc = plan.shape(extra[0])
        if bc != c or bn not in (1, n) or (bh, bw) not in ((1, 1), (h, w)):
            raise NotNative(f"{plan.shape(extra[0])} does not broadcast to {(n, h, w, c)}")
        whole = (bh, bw) == (h, w)
        strides = (0 if bn == 1 else bh * bw * bc, bc if whole else 0)
    if n > 1 and (post.add is None or strides == (pixels * c, c)):
        n, pixels = 1, n * pixels
    if scale is None and out_c == c and n == 1 and strides in ((0, 0), (pixels * c, c), (0, c)):
        if post.add is None or strides[1]:
            # nothing depends on the channel: one long line
            pixels, c, out_c, strides = 1, pixels * c, pixels * c, (0, 0)
    shape = Pointwise(n, pixels, c, first, out_c, strides, scale is not None, kernel)
    reads = [x]
    if scale is not None:
        reads.append(plan.constant(scale.bias.astype(np.int32)))
    reads.append(numbers(plan, post, kernel))
    if scale is not None:
        reads += scales(plan, scale, kernel)
    plan.call(emit_pointwise, shape, [*reads, *extra], [out])


def lower_add(plan: Plan, node: Node) -> None:
    a, *extra = node.inputs
    pointwise(plan, a, node.outputs[0], node.attrs["post"], None, extra)


def lower_scale(plan: Plan, node: Node) -> None:
    x, bias, mult, shift, *extra = node.inputs
    scale = scale_of(plan, (bias, mult, shift), 128)
    pointwise(plan, x, node.outputs[0], node.attrs["post"], scale, extra)


def lower_lookup(plan: Plan, node: Node) -> None:
    x, table = node.inputs
    pointwise(plan, x, node.outputs[0], node.attrs["post"], None, [table])


def lower_concat(plan: Plan, node: Node) -> None:
    *inputs, bias, mult, shift = node.inputs
    post: Post = node.attrs["post"]
    whole = scale_of(plan, (bias, mult, shift), 128)
    first = 0
    for name in inputs:
        c = plan.shape(name)[3]
        part = slice(first, first + c)
        scale = Scale(whole.bias[part], whole.mult[part], whole.shift[part], whole.bound[part])
        pointwise(plan, name, node.outputs[0], post, scale, [], first)
        first += c


def lower_resize(plan: Plan, node: Node) -> None:
    fh, fw = node.attrs["factors"]
    n, h, w, c = plan.shape(node.inputs[0])
    tables = (None, np.arange(h * fh) // fh, np.arange(w * fw) // fw, None)
    table_copy(plan, node.inputs[0], node.outputs[0], tables)


LOWERINGS: dict[str, Callable[[Plan, Node], None]] = {
    "int.conv": lower_conv,
    "int.maxpool": lower_maxpool,
    "int.add": lower_add,
    "int.scale": lower_scale,
    "int.lookup": lower_lookup,
    "int.concat": lower_concat,
    "int.resize": lower_resize,
}
