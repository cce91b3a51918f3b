"""The inner product engine of convolutions and matrix products.

``out[m, p] = init[m] + sum over (c, t) of a[m, c, t] * b[c * b_outer + taps[t] + p]``: a matrix
product whose right rows are windows of contiguous memory, so a convolution needs no copy of its
input per tap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import llvmlite.ir as ll
import numpy as np

from accelc.compiler.cpu.elementwise import Operation, compute
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT64, Val

#: Rows of ``a`` from which packing the right side into a contiguous panel pays.
PACKED_ROWS = 16
#: Window taps unrolled with their weights in registers when one row is computed alone.
UNROLLED_TAPS = 16


@dataclass(frozen=True)
class Gemm:
    """Extents and element strides. Loops around it: ``images``, then ``groups``.

    ``b``, ``a`` and ``out`` move by their ``*_image`` and ``*_group`` strides in these loops.
    """

    dtype: str
    rows: int
    columns: int
    outer: int
    #: Offsets of the taps; the values of ``a`` for one ``c`` are ``len(taps)`` apart.
    taps: tuple[int, ...]
    b_outer: int
    out_row: int
    images: tuple[int, ...] = (1,)
    a_image: tuple[int, ...] = (0,)
    b_image: tuple[int, ...] = (0,)
    out_image: tuple[int, ...] = (0,)
    groups: int = 1
    a_group: int = 0
    b_group: int = 0
    out_group: int = 0
    bias: bool = False
    #: What is done to each result before it is stored, and the types of the scalars that needs.
    epilogue: tuple[Operation, ...] = ()
    scalars: tuple[str, ...] = ()

    @property
    def depth(self) -> int:
        return self.outer * len(self.taps)

    def lanes(self, vector_bytes: int) -> int:
        lanes = max(1, vector_bytes // np.dtype(self.dtype).itemsize)
        while lanes > self.columns:
            lanes //= 2
        return lanes

    def tile(self, vector_bytes: int) -> tuple[int, int]:
        """Rows and vectors of a register tile."""
        lanes = self.lanes(vector_bytes)
        vectors = max(1, min(2, self.columns // lanes))
        rows = 8 if vector_bytes == 64 else 6 if vector_bytes == 32 else 4
        rows = min(rows, self.rows)
        if rows == 1:
            vectors = max(1, min(4, self.columns // lanes))
        return rows, vectors

    def panel_elems(self, vector_bytes: int) -> int:
        """Elements of the scratch panel; 0 when the right side is read in place."""
        if self.rows < PACKED_ROWS:
            return 0
        return self.depth * self.tile(vector_bytes)[1] * self.lanes(vector_bytes)


def multiply_add(a: Val, b: Val, total: Val) -> Val:
    return a.muladd(b, total) if a.is_float else total + a * b


def emit_gemm(k: Kernel, s: Gemm) -> None:
    """Pointers: a, b, [bias], scalars..., [panel], out."""
    a, b, *rest, out = k.args
    dtype = np.dtype(s.dtype)
    bias = rest.pop(0) if s.bias else None
    loaded = [k.load(rest.pop(0), np.dtype(name)) for name in s.scalars]
    panel = rest.pop(0) if rest else None
    lanes = s.lanes(k.target.vector_bytes)
    rows, vectors = s.tile(k.target.vector_bytes)
    width = lanes * vectors
    taps = TapOffsets(k, s.taps)
    splats = [k.splat(scalar, lanes) for scalar in loaded]

    def store(value: Val, index: Index) -> None:
        result = compute(s.epilogue, [value, *splats]) if s.epilogue else value
        k.store(result, out, index)

    def body(at: tuple[Index, ...]) -> None:
        *image, group = at
        a0 = k.affine(*zip(image, s.a_image, strict=True), (group, s.a_group))
        b0 = k.affine(*zip(image, s.b_image, strict=True), (group, s.b_group))
        out0 = k.affine(*zip(image, s.out_image, strict=True), (group, s.out_group))
        bias0 = k.imul(group, s.rows)

        def start(m: Index) -> list[Val]:
            """Initial sums of a tile: the bias, or 0."""
            if bias is None:
                return [k.value(0, dtype, lanes)] * (rows * vectors)
            biases = [
                k.splat(k.load(bias, dtype, k.affine((bias0, 1), (m, 1), (r, 1))), lanes)
                for r in range(rows)
            ]
            return [value for value in biases for _ in range(vectors)]

        def finish(m: Index, p: Index, sums: tuple[Val, ...]) -> None:
            for r in range(rows):
                row = k.affine((out0, 1), (m, s.out_row), (r * s.out_row, 1), (p, 1))
                for v in range(vectors):
                    store(sums[r * vectors + v], k.iadd(row, v * lanes))

        def step(m: Index, depth: Index, source: ll.Value, at: Index, sums: Any) -> list[Val]:
            """One value of the reduction: ``rows * vectors`` multiply-adds."""
            right = [k.load(source, dtype, k.iadd(at, v * lanes), lanes) for v in range(vectors)]
            results: list[Val] = []
            for r in range(rows):
                index = k.affine((a0, 1), (m, s.depth), (r * s.depth, 1), (depth, 1))
                left = k.splat(k.load(a, dtype, index), lanes)
                results += [
                    multiply_add(left, right[v], sums[r * vectors + v]) for v in range(vectors)
                ]
            return results

        def in_place(m: Index, p: Index) -> None:
            def channel(c: Index, *sums: Val) -> Any:
                def tap(t: Index, *sums: Val) -> Any:
                    at = k.affine((b0, 1), (c, s.b_outer), (taps[t], 1), (p, 1))
                    return step(m, k.affine((c, len(s.taps)), (t, 1)), b, at, sums)

                return k.loop(len(s.taps), tap, sums)

            finish(m, p, k.loop(s.outer, channel, start(m)))

        def packed(m: Index, p: Index) -> None:
            assert panel is not None

            def deep(depth: Index, *sums: Val) -> Any:
                return step(m, depth, panel, k.imul(depth, width), sums)

            finish(m, p, k.loop(s.depth, deep, start(m)))

        def pack(p: Index) -> None:
            assert panel is not None

            def channel(c: Index) -> None:
                def tap(t: Index) -> None:
                    at = k.affine((b0, 1), (c, s.b_outer), (taps[t], 1), (p, 1))
                    to = k.imul(k.affine((c, len(s.taps)), (t, 1)), width)
                    for v in range(vectors):
                        value = k.load(b, dtype, k.iadd(at, v * lanes), lanes)
                        k.store(value, panel, k.iadd(to, v * lanes))

                k.loop(len(s.taps), tap)

            k.loop(s.outer, channel)

        def columns(i: Index) -> None:
            p = k.imin(k.imul(i, width), s.columns - width)
            if panel is not None:
                pack(p)

            def row_tile(j: Index) -> None:
                m = k.imin(k.imul(j, rows), s.rows - rows)
                if panel is not None:
                    packed(m, p)
                else:
                    in_place(m, p)

            k.loop(-(-s.rows // rows), row_tile)

        if s.rows == 1 and s.outer == 1 and len(s.taps) <= UNROLLED_TAPS:
            unrolled(k, s, lanes, vectors, (a, a0), (b, b0), (store, out0), bias, bias0)
        else:
            k.loop(-(-s.columns // width), columns)

    k.nest((*s.images, s.groups), body)


def unrolled(
    k: Kernel,
    s: Gemm,
    lanes: int,
    vectors: int,
    a: tuple[ll.Value, Index],
    b: tuple[ll.Value, Index],
    out: tuple[Callable[[Val, Index], None], Index],
    bias: ll.Value | None,
    bias0: Index,
) -> None:
    """One row, few taps (depthwise convolution): all weights stay in registers."""
    dtype = np.dtype(s.dtype)
    weights = [k.splat(k.load(a[0], dtype, k.iadd(a[1], t)), lanes) for t in range(len(s.taps))]
    zero = k.value(0, dtype, lanes)
    start = zero if bias is None else k.splat(k.load(bias, dtype, bias0), lanes)
    width = lanes * vectors

    def columns(i: Index) -> None:
        p = k.imin(k.imul(i, width), s.columns - width)
        for v in range(vectors):
            total = start
            for weight, offset in zip(weights, s.taps, strict=True):
                at = k.affine((b[1], 1), (p, 1), (offset + v * lanes, 1))
                total = multiply_add(weight, k.load(b[0], dtype, at, lanes), total)
            out[0](total, k.affine((out[1], 1), (p, 1), (v * lanes, 1)))

    k.loop(-(-s.columns // width), columns)


class TapOffsets:
    """The offset of a tap: folded when it is affine in its number, else read from a table."""

    def __init__(self, k: Kernel, offsets: tuple[int, ...], name: str = "taps") -> None:
        self._k = k
        self._offsets = offsets
        steps = {after - before for before, after in pairwise(offsets)} or {0}
        self._step = steps.pop() if len(steps) == 1 else None
        if self._step is None:
            kind = ll.ArrayType(ll.IntType(64), len(offsets))
            table = ll.GlobalVariable(k.module, kind, f"{k.function.name}_{name}")
            table.linkage = "internal"
            table.global_constant = True
            table.initializer = ll.Constant(kind, list(offsets))
            self._table: Any = table

    def __getitem__(self, tap: Index) -> Index:
        k = self._k
        if isinstance(tap, int):
            return self._offsets[tap]
        if self._step is not None:
            return k.iadd(k.imul(tap, self._step), self._offsets[0])
        return k.load(self._table, INT64, tap).value
