"""Operators that move elements without computing: views, transposes, slices, joins, pads, gathers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu.elementwise import broadcast_strides, collapse, contiguous
from accelc.compiler.cpu.ir import INT64, NATIVE_DTYPES, Index, Kernel
from accelc.compiler.cpu.parse import require, text
from accelc.compiler.cpu.plan import NotNative, Plan
from accelc.compiler.graph import Array, Node

#: Elements are moved as unsigned integers of their size.
_CARRIERS = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}


def carrier(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return _CARRIERS[dtype.itemsize]


@dataclass(frozen=True)
class StridedCopy:
    """A loop nest of moves; strides and starts in elements of ``itemsize`` bytes."""

    extents: tuple[int, ...]
    read: tuple[int, ...]
    write: tuple[int, ...]
    read_start: int
    write_start: int
    itemsize: int


def emit_strided_copy(k: Kernel, s: StridedCopy) -> None:
    source, target = k.args
    dtype = _CARRIERS[s.itemsize]
    *outer, inner = s.extents
    lanes = (
        min(32, k.lanes_of(dtype)) if s.read[-1] == s.write[-1] == 1 else min(8, k.lanes_of(dtype))
    )

    def body(at: tuple[Index, ...]) -> None:
        read = k.affine(*zip(at, s.read, strict=False), (s.read_start, 1))
        write = k.affine(*zip(at, s.write, strict=False), (s.write_start, 1))

        def strip(first: Index, count: int) -> None:
            start = k.iadd(read, k.imul(first, s.read[-1]))
            value = k.load_strided(source, dtype, start, s.read[-1], count)
            k.store_strided(value, target, k.iadd(write, k.imul(first, s.write[-1])), s.write[-1])

        k.strips(inner, lanes, strip)

    k.nest(outer, body)


def strided_copy(
    plan: Plan,
    source: str,
    output: str,
    extents: Sequence[int],
    read: Sequence[int],
    write: Sequence[int],
    read_start: int = 0,
    write_start: int = 0,
) -> None:
    """Copy a box of elements between two strided places, inner loop along the shortest write stride."""
    if 0 in extents:
        return
    order = sorted(range(len(extents)), key=lambda axis: (-abs(write[axis]), axis))
    merged, (reads, writes) = collapse(
        [extents[i] for i in order], [[read[i] for i in order], [write[i] for i in order]]
    )
    itemsize = plan.dtype(output).itemsize
    copy = StridedCopy(merged, reads, writes, read_start, write_start, itemsize)
    plan.call(emit_strided_copy, copy, [source], [output])


@dataclass(frozen=True)
class TableCopy:
    """``out[i0, i1...] = in[o0 + o1 + ...]``; an offset is ``stride * i`` or looked up in a table."""

    extents: tuple[int, ...]
    strides: tuple[int | None, ...]
    itemsize: int


def emit_table_copy(k: Kernel, s: TableCopy) -> None:
    """Pointers: source, one int64 table for each stride that is None, out."""
    source, *tables, target = k.args
    dtype = _CARRIERS[s.itemsize]
    pointers = [tables.pop(0) if stride is None else None for stride in s.strides]
    writes = contiguous(s.extents)

    def offset(axis: int, i: Index) -> Index:
        stride, table = s.strides[axis], pointers[axis]
        return k.load(table, INT64, i).value if stride is None else k.imul(i, stride)

    def level(axis: int, read: Index, write: Index) -> None:
        if axis < len(s.extents) - 1:
            k.loop(
                s.extents[axis],
                lambda i: level(
                    axis + 1,
                    k.iadd(read, offset(axis, i)),
                    k.iadd(write, k.imul(i, writes[axis])),
                ),
            )
            return
        stride, table = s.strides[axis], pointers[axis]
        lanes = k.lanes_of(dtype) if stride == 1 else min(8, k.lanes_of(dtype))

        def strip(first: Index, count: int) -> None:
            if stride is None:
                base = k.splat(k.value(0, INT64), count)
                indices = k.load(table, INT64, first, count) + base
                value = k.load_indexed(k.at(source, dtype, read), dtype, indices)
            else:
                start = k.iadd(read, k.imul(first, stride))
                value = k.load_strided(source, dtype, start, stride, count)
            k.store(value, target, k.iadd(write, first))

        k.strips(s.extents[axis], lanes, strip)

    level(0, 0, 0)


def table_copy(plan: Plan, source: str, output: str, tables: Sequence[Array | None]) -> None:
    """Gather along every axis: ``tables[axis]`` are source indices (``(extent,)``), None all of them.

    Identity axes next to each other are merged.
    """
    shape, strides = plan.shape(output), contiguous(plan.shape(source))
    extents: list[int] = []
    kinds: list[int | None] = []
    constants: list[str] = []
    for axis, table in enumerate(tables):
        if table is None and extents and kinds[-1] == strides[axis] * shape[axis]:
            extents[-1] *= shape[axis]
            kinds[-1] = strides[axis]
            continue
        extents.append(shape[axis])
        kinds.append(strides[axis] if table is None else None)
        if table is not None:
            constants.append(plan.constant(np.asarray(table, np.int64) * strides[axis]))
    if not extents:
        extents, kinds = [1], [1]
    itemsize = plan.dtype(output).itemsize
    copy = TableCopy(tuple(extents), tuple(kinds), itemsize)
    plan.call(emit_table_copy, copy, [source, *constants], [output])


@dataclass(frozen=True)
class Fill:
    """``count`` elements of ``itemsize`` bytes, all equal to the first pointer's element."""

    count: int
    itemsize: int


def emit_fill(k: Kernel, s: Fill) -> None:
    dtype = _CARRIERS[s.itemsize]
    value = k.load(k.args[0], dtype)
    lanes = k.lanes_of(dtype)
    while lanes > s.count:
        lanes //= 2
    filled = k.splat(value, lanes)
    k.strips(s.count, lanes, lambda first, _: k.store(filled, k.args[1], first))


def native(plan: Plan, *names: str) -> None:
    for name in names:
        require(plan.dtype(name).name in NATIVE_DTYPES, f"element type of {name}")


def known_ints(plan: Plan, name: str, what: str) -> list[int]:
    """A constant integer vector.

    Raises:
        NotNative: it is computed at run time.
    """
    array = plan.known(name)
    require(array is not None, f"{what} not known at compile time")
    return [int(v) for v in np.asarray(array).reshape(-1)]


def lower_view(plan: Plan, node: Node) -> None:
    """Operators that only change the shape."""
    require(not any(node.outputs[1:]), "second output")
    source, output = node.inputs[0], node.outputs[0]
    require(plan.size(source) == plan.size(output), "sizes differ")
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


def permute(
    plan: Plan, source: str, output: str, shape: Sequence[int], perm: Sequence[int]
) -> None:
    """``output`` is ``source``, seen as ``shape``, with its axes in the order ``perm``."""
    strides = contiguous(shape)
    extents = [shape[axis] for axis in perm]
    read = [strides[axis] for axis in perm]
    merged, (walked,) = collapse(extents, [read])
    if len(merged) == 1 and walked[0] in (0, 1):
        plan.alias(output, source)
        return
    strided_copy(plan, source, output, extents, read, contiguous(extents))


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
    if node.op == "SpaceToDepth":
        permute(plan, source, output, (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4))
    elif text(node.attrs.get("mode", "DCR")) == "DCR":
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
    """First index and step along every axis."""
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
    """Indices count from the end when negative; beyond the ends they are clamped, never followed."""
    data, indices, target = k.args
    dtype = _CARRIERS[s.itemsize]

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
