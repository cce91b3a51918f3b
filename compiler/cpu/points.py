"""Gathers and scatters: element addresses partly computed from indices at run time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu.copies import CARRIERS, strided_copy
from accelc.compiler.cpu.elementwise import contiguous, single
from accelc.compiler.cpu.expressions import OPERATORS
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT64, Val
from accelc.compiler.cpu.move import native
from accelc.compiler.cpu.narrow import dtype_named
from accelc.compiler.cpu.parse import Operand, require, text
from accelc.compiler.cpu.plan import Plan, copy
from accelc.compiler.graph import Node


@dataclass(frozen=True)
class Points:
    """A loop nest over ``extents`` whose every point is a block of ``inner`` elements.

    The block lies at ``sum(i * base)`` in the packed array and, in the other one, at
    ``sum(i * move)`` plus each of the point's indices, which lie at ``sum(i * index)`` and
    behind, times its stride; negative indices count from the end. All in elements.
    """

    extents: tuple[int, ...]
    base: tuple[int, ...]
    move: tuple[int, ...]
    index: tuple[int, ...]
    #: Extent and stride of the axes that the indices of a point select from.
    axes: tuple[tuple[int, int], ...]
    inner: int
    dtype: str
    index_dtype: str
    #: How a scatter combines; empty for a gather.
    combine: str = ""


def _combined(kind: str, old: Val, new: Val) -> Val:
    match kind:
        case "add":
            return old + new
        case "mul":
            return old * new
        case "max":
            return old.call("maximum", new) if old.is_float else old.maximum(new)
        case "min":
            return old.call("minimum", new) if old.is_float else old.minimum(new)
    return new


def emit_points(k: Kernel, s: Points) -> None:
    """Pointers: data, indices, out (gather); or indices, updates, out (scatter).

    Indices beyond the ends are clamped.
    """
    scatter = bool(s.combine)
    indices, packed, far = k.args if scatter else (k.args[1], k.args[2], k.args[0])
    plain = s.combine in ("", "none")
    dtype = CARRIERS[dtype_named(s.dtype).itemsize] if plain else dtype_named(s.dtype)

    def point(at: tuple[Index, ...]) -> None:
        near = k.affine(*zip(at, s.base, strict=True))
        address = k.affine(*zip(at, s.move, strict=True))
        first = k.affine(*zip(at, s.index, strict=True))
        for number, (extent, stride) in enumerate(s.axes):
            index = k.load(indices, np.dtype(s.index_dtype), k.iadd(first, number)).convert(INT64)
            index = (index < 0).select(index + extent, index).clamp(0, extent - 1)
            address = k.iadd(address, k.imul(index.value, stride))

        def strip(i: Index, lanes: int) -> None:
            if not scatter:
                k.store(k.load(far, dtype, k.iadd(address, i), lanes), packed, k.iadd(near, i))
                return
            value = k.load(packed, dtype, k.iadd(near, i), lanes)
            if not plain:
                value = _combined(s.combine, k.load(far, dtype, k.iadd(address, i), lanes), value)
            k.store(value, far, k.iadd(address, i), dtype)

        if plain:
            k.strips(s.inner, k.lanes_of(dtype), strip)
        else:  # strips may overlap, and adding twice is wrong
            k.loop(s.inner, lambda i: strip(i, 1))

    k.nest(s.extents, point)


def _elementwise_points(plan: Plan, data: str, indices: str, axis: int, combine: str) -> Points:
    """GatherElements and its kin: one index for every element, along ``axis``."""
    shape, extents = plan.shape(data), plan.shape(indices)
    strides = contiguous(shape)
    require(len(shape) == len(extents) and len(shape) > 0, "rank of the indices")
    packed = contiguous(extents)
    moved = tuple(0 if a == axis else s for a, s in enumerate(strides))
    return Points(
        extents,
        packed,
        moved,
        packed,
        ((shape[axis], strides[axis]),),
        1,
        plan.dtype(data).name,
        plan.dtype(indices).name,
        combine,
    )


def _block_points(plan: Plan, data: str, indices: str, batch: int, combine: str) -> Points:
    """GatherND and ScatterND: rows of indices that each select a block."""
    shape, rows = plan.shape(data), plan.shape(indices)
    strides = contiguous(shape)
    width = rows[-1]
    inner = math.prod(shape[batch + width :])
    batches, points = math.prod(rows[:batch]), math.prod(rows[batch:-1])
    axes = tuple(zip(shape[batch : batch + width], strides[batch : batch + width], strict=True))
    return Points(
        (batches, points),
        (points * inner, inner),
        (math.prod(shape[batch:]), 0),
        (points * width, width),
        axes,
        inner,
        plan.dtype(data).name,
        plan.dtype(indices).name,
        combine,
    )


def _gather(plan: Plan, points: Points, data: str, indices: str, out: str) -> None:
    native(plan, data, indices)
    require(all(extent > 0 for extent, _ in points.axes), "gather from nothing")
    plan.call(emit_points, points, [data, indices], [out])


def _scatter(plan: Plan, points: Points, node: Node) -> None:
    """A copy of the data, then the updates in their order."""
    data, indices, updates = node.inputs[:3]
    out = node.outputs[0]
    native(plan, data, indices)
    require(plan.dtype(data).kind != "b" or points.combine == "none", "reduction of bool")
    copy(plan, data, out)
    if plan.size(updates):
        plan.call(emit_points, points, [indices, updates], [out])


def lower_gather_elements(plan: Plan, node: Node) -> None:
    data, indices = node.inputs
    axis = int(node.attrs.get("axis", 0)) % max(1, len(plan.shape(data)))
    _gather(
        plan, _elementwise_points(plan, data, indices, axis, ""), data, indices, node.outputs[0]
    )


def lower_gather_nd(plan: Plan, node: Node) -> None:
    data, indices = node.inputs
    batch = int(node.attrs.get("batch_dims", 0))
    _gather(plan, _block_points(plan, data, indices, batch, ""), data, indices, node.outputs[0])


def lower_scatter_elements(plan: Plan, node: Node) -> None:
    data, indices = node.inputs[:2]
    axis = int(node.attrs.get("axis", 0)) % max(1, len(plan.shape(data)))
    combine = text(node.attrs.get("reduction", "none"))
    _scatter(plan, _elementwise_points(plan, data, indices, axis, combine), node)


def lower_scatter_nd(plan: Plan, node: Node) -> None:
    data, indices = node.inputs[:2]
    combine = text(node.attrs.get("reduction", "none"))
    _scatter(plan, _block_points(plan, data, indices, 0, combine), node)


def one_hot(
    plan: Plan, indices: str, depth: int, axis: int, off: Operand, on: Operand, out: str
) -> None:
    """``on`` where the number along ``axis`` is the index there, ``off`` elsewhere."""
    shape = plan.shape(indices)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis:])
    numbers = plan.constant(np.arange(depth, dtype=np.int64))
    operands: list[Operand] = [
        (indices, (outer, 1, inner)),
        (numbers, (depth, 1)),
        off,
        on,
    ]
    single(plan, "OneHot", operands, (depth,), out, (outer, depth, inner))


def lower_one_hot(plan: Plan, node: Node) -> None:
    indices, depth, values = node.inputs
    out = node.outputs[0]
    native(plan, indices, values, out)
    size = plan.needed(depth, "depth")
    axis = int(node.attrs.get("axis", -1))
    rank = len(plan.shape(indices))
    axis = axis + rank + 1 if axis < 0 else axis
    off, on = (plan.temporary((), plan.dtype(values)) for _ in range(2))
    for number, name in enumerate((off, on)):
        strided_copy(plan, values, name, (1,), (1,), (1,), read_start=number)
    one_hot(plan, indices, int(size.reshape(-1)[0]), axis, (off, ()), (on, ()), out)


def lower_reverse_sequence(plan: Plan, node: Node) -> None:
    """The first so many of every line turned round: computed source positions, then a gather."""
    x, lengths = node.inputs
    out = node.outputs[0]
    native(plan, x, lengths)
    shape = plan.shape(x)
    time, batch = int(node.attrs.get("time_axis", 0)), int(node.attrs.get("batch_axis", 1))
    require(sorted((time, batch)) == [0, 1], "axes")
    steps, items = shape[time], shape[batch]
    numbers = plan.constant(np.arange(steps, dtype=np.int64))
    sources = plan.temporary(shape[:2], np.int64)
    views = ((steps, 1), (items,)) if time == 0 else ((steps,), (items, 1))
    operands: list[Operand] = [(numbers, views[0]), (lengths, views[1])]
    single(plan, "Reversed", operands, (), sources, shape[:2])
    strides = contiguous(shape)
    inner = math.prod(shape[2:])
    points = Points(
        shape[:2],
        (strides[0], strides[1]),
        tuple(0 if a == time else strides[a] for a in range(2)),
        contiguous(shape[:2]),
        ((steps, strides[time]),),
        inner,
        plan.dtype(x).name,
        "int64",
    )
    plan.call(emit_points, points, [x, sources], [out])


def _one_hot(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """Indices, numbers along the axis, off, on; ``p`` is the depth."""
    index = v[0].convert(INT64)
    index = (index < 0).select(index + p[0], index)
    return index.equals(v[1]).select(v[3], v[2])


def _reversed(v: Sequence[Val], p: tuple[Any, ...], d: np.dtype[Any]) -> Val:
    """Positions, lengths."""
    length = v[1].convert(INT64)
    return (v[0] < length).select(length - 1 - v[0], v[0])


OPERATORS.update({"OneHot": _one_hot, "Reversed": _reversed})
LOWERINGS: dict[str, Callable[[Plan, Node], Any]] = {
    "GatherElements": lower_gather_elements,
    "GatherND": lower_gather_nd,
    "OneHot": lower_one_hot,
    "ReverseSequence": lower_reverse_sequence,
    "Scatter": lower_scatter_elements,
    "ScatterElements": lower_scatter_elements,
    "ScatterND": lower_scatter_nd,
}
#: Of these, the ones that move elements of any type.
MOVES: Sequence[str] = ("GatherElements", "GatherND", "ReverseSequence")
