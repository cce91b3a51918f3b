"""Kernels that move elements: strided boxes, gathers through tables, fills."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accelc.compiler.cpu.elementwise import collapse, contiguous
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT64
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.graph import Array

#: Elements are moved as unsigned integers of their size.
CARRIERS = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}


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
    dtype = CARRIERS[s.itemsize]
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
    """Copy a box between two strided places, innermost along the shortest write stride."""
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
    """``out[i0, i1...] = in[o0 + o1 + ...]``; an offset is ``stride * i`` or comes from a table."""

    extents: tuple[int, ...]
    strides: tuple[int | None, ...]
    itemsize: int


def emit_table_copy(k: Kernel, s: TableCopy) -> None:
    """Pointers: source, one int64 table for each stride that is None, out."""
    source, *tables, target = k.args
    dtype = CARRIERS[s.itemsize]
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
    """Gather along every axis: ``tables[axis]`` are source indices ``(extent,)``, None for all.

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
    dtype = CARRIERS[s.itemsize]
    value = k.load(k.args[0], dtype)
    lanes = k.lanes_of(dtype)
    while lanes > s.count:
        lanes //= 2
    filled = k.splat(value, lanes)
    k.strips(s.count, lanes, lambda first, _: k.store(filled, k.args[1], first))


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
