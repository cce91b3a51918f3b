"""Convolutions in floating point and in ONNX's integer forms, any number of spatial axes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accelc.compiler.cpu.copies import Fill, emit_fill, strided_copy
from accelc.compiler.cpu.elementwise import Epilogue, contiguous, parse_epilogue, single
from accelc.compiler.cpu.expressions import FLOATS, OPERATORS
from accelc.compiler.cpu.gemm import Gemm, emit_gemm
from accelc.compiler.cpu.lanes import FLOAT32, INT8, INT32, UINT8, Val
from accelc.compiler.cpu.parse import Operand, channel_view, require
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.cpu.planes import Window, planes, require_native, window_of
from accelc.compiler.cpu.quantize import saturate
from accelc.compiler.graph import Node


def run_gemm(
    plan: Plan,
    gemm: Gemm,
    a: str,
    b: str,
    bias: str | None,
    out: str,
    epilogue: Epilogue | None = None,
) -> None:
    """Append the call with the scratch panel it needs."""
    reads = [a, b] + ([bias] if bias else [])
    if epilogue is not None:
        reads += epilogue.scalars
        gemm = replace(gemm, epilogue=epilogue.operations, scalars=epilogue.dtypes)
    panel = gemm.panel_elems(plan.target.vector_bytes)
    writes = [plan.temporary((panel,), gemm.dtype)] if panel else []
    plan.call(emit_gemm, replace(gemm, bias=bool(bias)), reads, [*writes, out])


def convolve(
    plan: Plan,
    x: str,
    w: str,
    bias: str | None,
    out: str,
    window: Window,
    groups: int,
    epilogue: Epilogue | None = None,
) -> None:
    """``out`` of ``x`` ``(n, c, *inputs)`` and ``w`` ``(o, c / groups, *kernel)``, of one type.

    The type of ``out`` may be another when an ``epilogue`` makes it.
    """
    require_native(plan, x, w, out)
    n, c = plan.shape(x)[:2]
    o = plan.shape(out)[1]
    dtype = plan.dtype(x)
    require(c % groups == 0 and o % groups == 0, "groups do not divide the channels")
    known = plan.known(w)
    whole = window.kernel == window.inputs and not any(window.before) and not any(window.after)
    if whole and groups == 1 and set(window.outputs) == {1} and known is not None:
        require(epilogue is None, "epilogue of a matrix product")
        # one output position: a matrix product with the pixels of an image as the reduction
        depth = int(np.prod(plan.shape(w)[1:]))
        right = plan.constant(np.ascontiguousarray(known.reshape(o, depth).T))
        gemm = Gemm(dtype.name, n, o, depth, (0,), o, o)
        target = out if bias is None else plan.temporary((n, o), dtype)
        run_gemm(plan, gemm, x, right, None, target)
        if bias is not None:
            single(plan, "Add", [(target, (n, o)), (bias, (o,))], (), out, (n, o))
        return
    pad = plan.constant(np.zeros((), dtype))
    p = planes(plan, x, n * c, window, pad)
    columns = p.columns(window.outputs)
    pixels = int(np.prod(window.outputs))
    dense = columns == pixels
    target = out if dense else plan.temporary((n * o, columns), plan.dtype(out))
    gemm = Gemm(
        dtype.name,
        rows=o // groups,
        columns=columns,
        outer=c // groups,
        taps=p.taps,
        b_outer=p.channel,
        out_row=columns,
        images=(n,),
        a_image=(0,),
        b_image=(c * p.channel,),
        out_image=(o * columns,),
        groups=groups,
        a_group=o // groups * (c // groups) * len(p.taps),
        b_group=c // groups * p.channel,
        out_group=o // groups * columns,
    )
    run_gemm(plan, gemm, w, p.value, bias, target, epilogue)
    if not dense:
        extents = (n * o, *window.outputs)
        strided_copy(plan, target, out, extents, (columns, *p.pitch), contiguous(extents))


def lower_conv(plan: Plan, node: Node, following: Sequence[Node] = ()) -> None:
    """A convolution, and the elementwise nodes that are the only ones to read its result."""
    x, w, bias = (*node.inputs, "")[:3]
    value = node.outputs[0]
    require(plan.dtype(x) in FLOATS, "element type")
    epilogue = parse_epilogue(plan, value, following) if following else None
    out = following[-1].outputs[0] if following else value
    window = window_of(node, plan.shape(x)[2:], plan.shape(value)[2:], plan.shape(w)[2:])
    groups = int(node.attrs.get("group", 1))
    convolve(plan, x, w, bias or None, out, window, groups, epilogue)


def lower_conv_transpose(plan: Plan, node: Node) -> None:
    """As a convolution of the input with zeros between its elements, by the mirrored weights."""
    x, w, bias = (*node.inputs, "")[:3]
    out = node.outputs[0]
    require(plan.dtype(x) in FLOATS, "element type")
    require_native(plan, x, out)
    groups = int(node.attrs.get("group", 1))
    n, c, *inputs = plan.shape(x)
    rank = len(inputs)
    # onnx infers a result of no axes for an output_shape smaller than the input
    require(len(plan.shape(out)) == 2 + rank, "its result has another rank than its input")
    o, *outputs = plan.shape(out)[1:]
    kernel = plan.shape(w)[2:]
    strides = tuple(int(v) for v in node.attrs.get("strides") or (1,) * rank)
    dilations = tuple(int(v) for v in node.attrs.get("dilations") or (1,) * rank)
    before = transposed_pads(node, inputs, outputs, kernel, strides, dilations)
    spread = [(i - 1) * s + 1 for i, s in zip(inputs, strides, strict=True)]
    # borders of the spread input; what is negative is cropped by starting later
    low = [(k - 1) * d - b for k, d, b in zip(kernel, dilations, before, strict=True)]
    require(all(v >= 0 for v in low), "pads beyond the kernel")
    high = [
        out_size + (k - 1) * d - v - size
        for out_size, k, d, v, size in zip(outputs, kernel, dilations, low, spread, strict=True)
    ]
    stuffed = x
    if any(s > 1 for s in strides):
        stuffed = plan.temporary((n, c, *spread), plan.dtype(x))
        zero = plan.constant(np.zeros((), plan.dtype(x)))
        fill = Fill(plan.size(stuffed), plan.dtype(x).itemsize)
        plan.call(emit_fill, fill, [zero], [stuffed])
        steps = contiguous((n * c, *spread))
        strided_copy(
            plan,
            x,
            stuffed,
            (n * c, *inputs),
            contiguous((n * c, *inputs)),
            (steps[0], *(a * b for a, b in zip(steps[1:], strides, strict=True))),
        )
    ones = (1,) * rank
    reach = [
        (k - 1) * d + out_size - v - size
        for k, d, out_size, v, size in zip(kernel, dilations, outputs, low, spread, strict=True)
    ]
    require(all(v >= 0 for v in high), "cropped output")
    window = Window(
        tuple(spread), tuple(outputs), tuple(kernel), ones, dilations, tuple(low), tuple(reach)
    )
    convolve(plan, stuffed, mirrored(plan, w, groups), bias or None, out, window, groups)


def mirrored(plan: Plan, w: str, groups: int) -> str:
    """Transposed weights ``(c, o / groups, *kernel)`` as ``(o, c / groups, *kernel)``, mirrored."""
    c, per_group, *kernel = plan.shape(w)
    split = (groups, c // groups, per_group, *kernel)
    shape = (groups * per_group, c // groups, *kernel)
    known = plan.known(w)
    if known is not None:
        flipped = np.flip(known.reshape(split).swapaxes(1, 2), tuple(range(3, len(split))))
        return plan.constant(np.ascontiguousarray(flipped.reshape(shape)))
    out = plan.temporary(shape, plan.dtype(w))
    steps = contiguous(split)
    read = (steps[0], steps[2], steps[1], *(-step for step in steps[3:]))
    extents = (groups, per_group, c // groups, *kernel)
    last = int(np.prod(kernel)) - 1
    strided_copy(plan, w, out, extents, read, contiguous(extents), read_start=last)
    return out


def transposed_pads(
    node: Node, inputs: Any, outputs: Any, kernel: Any, strides: Any, dilations: Any
) -> list[int]:
    """Padding at the beginning of every axis of a transposed convolution."""
    rank = len(inputs)
    mode = str(node.attrs.get("auto_pad", "NOTSET"))
    extra = node.attrs.get("output_padding") or (0,) * rank
    given = node.attrs.get("output_shape")
    pads = [int(v) for v in node.attrs.get("pads") or (0,) * (2 * rank)]
    if mode in ("NOTSET", "VALID") and not given:
        return pads[:rank]
    before: list[int] = []
    for axis in range(rank):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (inputs[axis] - 1) + int(extra[axis]) + span - outputs[axis]
        total = max(0, total)
        # an odd rest goes to the beginning unless SAME_UPPER asks otherwise
        before.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
    return before


def recenter(plan: Plan, name: str, zero: str, view: Operand | None) -> str:
    """``name`` minus its zero point as int32; constants are converted now."""
    require(plan.dtype(name) in (INT8, UINT8), "element type")
    shape = plan.shape(name)
    known = plan.known(name)
    known_zero = plan.known(zero) if zero else np.zeros((), np.int32)
    if known is not None and known_zero is not None:
        flat = known_zero.astype(np.int32)
        if flat.size > 1:
            flat = flat.reshape(view[1] if view else (-1,))
        return plan.constant(
            known.astype(np.int32) - flat.reshape(flat.shape if flat.size > 1 else ())
        )
    out = plan.temporary(shape, np.int32)
    operands: list[Operand] = [(name, shape)]
    if zero:
        operands.append(view or (zero, ()))
    single(plan, "Recenter", operands, (), out, shape)
    return out


def _recenter(v: Any, p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    q = v[0].convert(INT32)
    return q - v[1].convert(INT32) if len(v) > 1 else q


def _requantize(v: Any, p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """onnxruntime's order: sums, x scale, w scale, y scale, y zero point, [bias]."""
    total, xs, ws, ys, zero, *bias = v
    if bias:
        total = total + bias[0]
    real = total.convert(FLOAT32) * (xs * ws / ys)
    return saturate(real.rint() + zero.convert(FLOAT32), d)


OPERATORS["Recenter"] = _recenter
OPERATORS["Requantize"] = _requantize


def requantize(
    plan: Plan,
    sums: str,
    scales: tuple[Operand, Operand, Operand],
    zero: str,
    bias: Operand | None,
    out: str,
) -> None:
    """int32 ``sums`` to the quantized type of ``out``."""
    if not zero:
        zero = plan.constant(np.zeros((), plan.dtype(out)))
    operands = [(sums, plan.shape(out)), *scales, (zero, ())]
    single(plan, "Requantize", [*operands, *([bias] if bias else [])], (), out, plan.shape(out))


def lower_conv_integer(plan: Plan, node: Node) -> None:
    x, w, xz, wz = (*node.inputs, "", "")[:4]
    out = node.outputs[0]
    rank = len(plan.shape(w))
    left = recenter(plan, x, xz, None)
    right = recenter(plan, w, wz, channel_view(wz, plan, 0, rank) if wz else None)
    window = window_of(node, plan.shape(x)[2:], plan.shape(out)[2:], plan.shape(w)[2:])
    convolve(plan, left, right, None, out, window, int(node.attrs.get("group", 1)))


def lower_qlinear_conv(plan: Plan, node: Node) -> None:
    x, xs, xz, w, ws, wz, ys, yz, bias = (*node.inputs, "")[:9]
    out = node.outputs[0]
    rank = len(plan.shape(w))
    require(all(plan.size(name) == 1 for name in (xs, xz, ys, yz)), "per-channel activations")
    require(plan.dtype(xs) == FLOAT32, "scale type")
    left = recenter(plan, x, xz, None)
    right = recenter(plan, w, wz, channel_view(wz, plan, 0, rank))
    window = window_of(node, plan.shape(x)[2:], plan.shape(out)[2:], plan.shape(w)[2:])
    sums = plan.temporary(plan.shape(out), np.int32)
    convolve(plan, left, right, None, sums, window, int(node.attrs.get("group", 1)))
    scales = ((xs, ()), channel_view(ws, plan, 1, rank), (ys, ()))
    view = channel_view(bias, plan, 1, rank) if bias else None
    requantize(plan, sums, scales, yz, view, out)


LOWERINGS: dict[str, Callable[[Plan, Node], None]] = {
    "Conv": lower_conv,
    "ConvInteger": lower_conv_integer,
    "ConvTranspose": lower_conv_transpose,
    "QLinearConv": lower_qlinear_conv,
}
