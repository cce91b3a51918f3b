"""Operators that only move elements: views, transposes, slices, joins, pads, gathers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accelc.compiler.cpu.copies import CARRIERS, Fill, emit_fill, permute, strided_copy, table_copy
from accelc.compiler.cpu.elementwise import broadcast_strides, contiguous
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT64
from accelc.compiler.cpu.parse import require, text
from accelc.compiler.cpu.plan import MEMORY_DTYPES, NotNative, Plan
from accelc.compiler.graph import Array, Node


def native(plan: Plan, *names: str) -> None:
    for name in names:
        require(plan.dtype(name).name in MEMORY_DTYPES, f"element type of {name}")


def known_ints(plan: Plan, name: str, what: str) -> list[int]:
    """A constant integer vector.

    Raises:
        NotNative: it is computed at run time.
    """
    array = plan.known(name)
    require(array is not None, f"{what} not known at compile time")
    return [int(v) for v in np.asarray(array).reshape(-1)]


def _nbytes(plan: Plan, name: str) -> int:
    return plan.size(name) * plan.dtype(name).itemsize


def lower_view(plan: Plan, node: Node) -> None:
    """Operators that only change the shape."""
    require(not any(node.outputs[1:]), "second output")
    source, output = node.inputs[0], node.outputs[0]
    require(_nbytes(plan, source) == _nbytes(plan, output), "sizes differ")
    plan.alias(output, source)


def lower_dropout(plan: Plan, node: Node) -> None:
    training = node.inputs[2] if len(node.inputs) > 2 else ""
    if training:
        value = plan.known(training)
        require(value is not None and not value.any(), "training mode")
    lower_view(plan, node)


def lower_shape(plan: Plan, node: Node) -> None:
    shape = plan.shape(node.inputs[0])
    rank = len(shape)
    start, end = int(node.attrs.get("start", 0)), node.attrs.get("end")
    start = min(max(start + rank if start < 0 else start, 0), rank)
    stop = rank if end is None else int(end)
    stop = min(max(stop + rank if stop < 0 else stop, 0), rank)
    plan.alias(node.outputs[0], plan.constant(np.array(shape[start:stop], np.int64)))


def lower_size(plan: Plan, node: Node) -> None:
    plan.alias(node.outputs[0], plan.constant(np.array(plan.size(node.inputs[0]), np.int64)))


def lower_transpose(plan: Plan, node: Node) -> None:
    source, output = node.inputs[0], node.outputs[0]
    native(plan, source)
    shape = plan.shape(source)
    perm = node.attrs.get("perm")
    perm = tuple(range(len(shape)))[::-1] if perm is None else tuple(int(p) for p in perm)
    permute(plan, source, output, shape, perm)


def lower_depth_to_space(plan: Plan, node: Node) -> None:
    source, output = node.inputs[0], node.outputs[0]
    native(plan, source)
    n, c, h, w = plan.shape(source)
    b = int(node.attrs["blocksize"])
    depth_first = text(node.attrs.get("mode", "DCR")) == "DCR"
    if node.op == "SpaceToDepth" and not depth_first:
        permute(plan, source, output, (n, c, h // b, b, w // b, b), (0, 1, 3, 5, 2, 4))
    elif node.op == "SpaceToDepth":
        permute(plan, source, output, (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4))
    elif depth_first:
        permute(plan, source, output, (n, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2))
    else:
        permute(plan, source, output, (n, c // b**2, b, b, h, w), (0, 1, 4, 2, 5, 3))


def lower_concat(plan: Plan, node: Node) -> None:
    output = node.outputs[0]
    native(plan, output)
    shape = plan.shape(output)
    axis = int(node.attrs.get("axis", 1)) % len(shape)
    write = contiguous(shape)
    first = 0
    for name in node.inputs:
        part = plan.shape(name)
        strided_copy(
            plan, name, output, part, contiguous(part), write, write_start=first * write[axis]
        )
        first += part[axis]


def lower_split(plan: Plan, node: Node) -> None:
    source = node.inputs[0]
    native(plan, source)
    shape = plan.shape(source)
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    read = contiguous(shape)
    first = 0
    for name in node.outputs:
        part = plan.shape(name)
        strided_copy(
            plan, source, name, part, read, contiguous(part), read_start=first * read[axis]
        )
        first += part[axis]


def slice_bounds(plan: Plan, node: Node) -> tuple[list[int], list[int]]:
    """First index and step along every axis.

    Raises:
        NotNative: they are computed at run time, or make no sense; the reference says what is
            wrong.
    """
    shape = plan.shape(node.inputs[0])
    rank = len(shape)
    if "starts" in node.attrs:  # before opset 10
        starts = [int(v) for v in node.attrs["starts"]]
        axes = [int(v) for v in node.attrs.get("axes") or range(len(starts))]
        steps = [1] * len(starts)
    else:
        given = (*node.inputs, *("",) * (5 - len(node.inputs)))
        starts = known_ints(plan, given[1], "starts")
        axes = known_ints(plan, given[3], "axes") if given[3] else list(range(len(starts)))
        steps = known_ints(plan, given[4], "steps") if given[4] else [1] * len(starts)
    require(len(starts) == len(axes) == len(steps), "not one start, axis and step each")
    require(all(-rank <= axis < rank for axis in axes), "an axis out of range")
    require(0 not in steps, "a step of 0")
    first, step = [0] * rank, [1] * rank
    for start, axis, stride in zip(starts, axes, steps, strict=True):
        extent = shape[axis]
        start = start + extent if start < 0 else start
        first[axis] = min(max(start, 0), extent - 1 if stride < 0 else extent)
        step[axis] = stride
    return first, step


def lower_slice(plan: Plan, node: Node) -> None:
    source, output = node.inputs[0], node.outputs[0]
    native(plan, source)
    first, step = slice_bounds(plan, node)
    strides = contiguous(plan.shape(source))
    extents = plan.shape(output)
    strided_copy(
        plan,
        source,
        output,
        extents,
        [stride * s for stride, s in zip(strides, step, strict=True)],
        contiguous(extents),
        read_start=sum(f * s for f, s in zip(first, strides, strict=True)),
    )


def lower_expand(plan: Plan, node: Node) -> None:
    source, output = node.inputs[0], node.outputs[0]
    native(plan, source)
    extents = plan.shape(output)
    read = broadcast_strides(plan.shape(source), extents)
    strided_copy(plan, source, output, extents, read, contiguous(extents))


def lower_tile(plan: Plan, node: Node) -> None:
    source, output = node.inputs[0], node.outputs[0]
    native(plan, source)
    shape, out = plan.shape(source), plan.shape(output)
    read, write = contiguous(shape), contiguous(out)
    extents: list[int] = []
    reads: list[int] = []
    writes: list[int] = []
    for axis, extent in enumerate(shape):
        extents += [out[axis] // extent if extent else 0, extent]
        reads += [0, read[axis]]
        writes += [write[axis] * extent, write[axis]]
    strided_copy(plan, source, output, extents, reads, writes)


def pad_amounts(plan: Plan, node: Node) -> tuple[list[int], list[int]]:
    """Padding before and after every axis; negative crops."""
    rank = len(plan.shape(node.inputs[0]))
    if len(node.inputs) > 1:
        pads = known_ints(plan, node.inputs[1], "pads")
    else:
        pads = [int(v) for v in node.attrs.get("pads", node.attrs.get("paddings", ()))]
    axes = list(range(rank))
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = [a % rank for a in known_ints(plan, node.inputs[3], "axes")]
    before, after = [0] * rank, [0] * rank
    for number, axis in enumerate(axes):
        before[axis], after[axis] = pads[number], pads[number + len(axes)]
    return before, after


def lower_pad(plan: Plan, node: Node) -> None:
    source, output = node.inputs[0], node.outputs[0]
    native(plan, source)
    mode = text(node.attrs.get("mode", "constant"))
    before, after = pad_amounts(plan, node)
    shape, out = plan.shape(source), plan.shape(output)
    if mode != "constant":
        require(0 not in shape, "empty input")
        tables: list[Array | None] = []
        for axis, extent in enumerate(shape):
            if not before[axis] and not after[axis]:
                tables.append(None)
                continue
            tables.append(border_table(mode, extent, before[axis], out[axis]))
        table_copy(plan, source, output, tables)
        return
    value = node.inputs[2] if len(node.inputs) > 2 else ""
    if not value:
        number = node.attrs.get("value", 0)
        value = plan.constant(np.array(number, plan.dtype(source)))
    fill = Fill(plan.size(output), plan.dtype(output).itemsize)
    plan.call(emit_fill, fill, [value], [output])
    read, write = contiguous(shape), contiguous(out)
    lows = [max(0, -b) for b in before]
    extents = [
        max(0, extent - low - max(0, -a)) for extent, low, a in zip(shape, lows, after, strict=True)
    ]
    strided_copy(
        plan,
        source,
        output,
        extents,
        read,
        write,
        read_start=sum(low * s for low, s in zip(lows, read, strict=True)),
        write_start=sum(max(0, b) * s for b, s in zip(before, write, strict=True)),
    )


def border_table(mode: str, extent: int, before: int, out: int) -> Array:
    """Source indices of a padded axis."""
    index = np.arange(out) - before
    if mode == "edge":
        return index.clip(0, extent - 1)
    if mode == "wrap":
        return index % extent
    if mode == "reflect":
        period = max(1, 2 * (extent - 1))
        index = np.abs(index) % period
        return np.minimum(index, period - index) if extent > 1 else index * 0
    raise NotNative(f"pad mode {mode}")


@dataclass(frozen=True)
class Gather:
    """``out[o, m] = data[o, indices[m]]``, blocks of ``inner`` elements."""

    outer: int
    extent: int
    count: int
    inner: int
    itemsize: int
    index: str


def emit_gather(k: Kernel, s: Gather) -> None:
    """Indices count from the end when negative; beyond the ends they are clamped."""
    data, indices, target = k.args
    dtype = CARRIERS[s.itemsize]

    def move(at: tuple[Index, ...]) -> None:
        o, m = at
        index = k.load(indices, np.dtype(s.index), m).convert(INT64)
        index = (index < 0).select(index + s.extent, index)
        index = (index > s.extent - 1).select(index.like(s.extent - 1), index)
        index = (index < 0).select(index.like(0), index)
        read = k.imul(k.affine((o, s.extent), (index.value, 1)), s.inner)
        write = k.imul(k.affine((o, s.count), (m, 1)), s.inner)
        k.strips(
            s.inner,
            k.lanes_of(dtype),
            lambda j, n: k.store(k.load(data, dtype, k.iadd(read, j), n), target, k.iadd(write, j)),
        )

    k.nest((s.outer, s.count), move)


def lower_gather(plan: Plan, node: Node) -> None:
    data, indices = node.inputs
    output = node.outputs[0]
    native(plan, data, indices)
    shape = plan.shape(data)
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    require(shape[axis] > 0, "gather from nothing")
    gather = Gather(
        int(np.prod(shape[:axis], dtype=int)),
        shape[axis],
        plan.size(indices),
        int(np.prod(shape[axis + 1 :], dtype=int)),
        plan.dtype(data).itemsize,
        plan.dtype(indices).name,
    )
    plan.call(emit_gather, gather, [data, indices], [output])


LOWERINGS: dict[str, Callable[[Plan, Node], None]] = {
    "BitCast": lower_view,
    "Concat": lower_concat,
    "DepthToSpace": lower_depth_to_space,
    "Dropout": lower_dropout,
    "Expand": lower_expand,
    "Flatten": lower_view,
    "Gather": lower_gather,
    "Identity": lower_view,
    "Pad": lower_pad,
    "Reshape": lower_view,
    "Shape": lower_shape,
    "Size": lower_size,
    "Slice": lower_slice,
    "SpaceToDepth": lower_depth_to_space,
    "Split": lower_split,
    "Squeeze": lower_view,
    "Tile": lower_tile,
    "Transpose": lower_transpose,
    "Unsqueeze": lower_view,
}
