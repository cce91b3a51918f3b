"""Matrix products of two activations, or with constants that are no plain matrix, to
``int.matmul``."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.fixed_point import ACC_MAX, Unrepresentable, multipliers
from accelc.compiler.integer import MatmulAttrs, Post
from accelc.compiler.passes.operands import (
    Context,
    Operand,
    Target,
    View,
    enter,
    int32,
    nhwc_type,
)
from accelc.compiler.rewrite import Refusal, Scope

#: Transposes of ``(1, heads, rows, columns)``: rows or columns first, the others as channels.
_ROWS, _COLUMNS = (2, 0, 1, 3), (3, 0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Product:
    """``a (..., m, k)`` times ``b (..., k, o)``, or ``(..., o, k)`` if ``transposed``.

    Leading axes broadcast, and one axis is a row or a column, as in ONNX's MatMul. ``bias``
    ``(o,)`` int64 is at the accumulator's scale, without zero points; ``real`` is ``(o,)``, what
    the accumulator is multiplied by.
    """

    a: Operand
    b: Operand
    transposed: bool
    bias: NDArray[np.int64]
    real: NDArray[np.float64]
    low: int = -128
    high: int = 127


def lower_product(context: Context, product: Product, result: Target) -> None:
    """Emit ``int.matmul`` for ``product``, with the views of its operands and result.

    Raises:
        Refusal: zero points of channels differ, or a multiplier or bias does not fit the hardware.
    """
    scope, name = context.scope, context.name
    a, b = product.a, product.b
    if np.unique(b.zero).size != 1:
        raise Refusal(f"{b.value!r} has a zero point per channel, and is no constant matrix")
    try:
        mult, shift = multipliers(product.real, context.config.mult_bits)
    except Unrepresentable as error:
        raise Refusal(str(error)) from None
    if (np.abs(product.bias) > ACC_MAX).any():
        raise Refusal("bias does not fit a 32-bit accumulator")
    zeros = a.scalar_zero, int(b.zero.flat[0]) - (128 if b.dtype == np.uint8 else 0)
    attrs, (a_view, b_view, y_view) = _arranged(product, result, zeros)
    worst = a_view.shape[3] * (128 + abs(zeros[0])) * (128 + abs(zeros[1]))
    if worst + int(np.abs(product.bias).max(initial=0)) > ACC_MAX:
        note = f"{name}: cannot prove that no 32-bit accumulator overflows"
        if note not in scope.notes:
            scope.notes.append(note)
    out = scope.emit(
        "int.matmul",
        (
            _entered(scope, a, a_view, name),
            _entered(scope, b, b_view, name),
            scope.add_constant(f"{name}/bias", int32(product.bias)),
            scope.add_constant(f"{name}/mult", mult),
            scope.add_constant(f"{name}/shift", shift),
        ),
        nhwc_type(y_view.shape, result),
        {"matmul": attrs, "post": Post(zero=result.zero, min=product.low, max=product.high)},
        name=name,
        hint=f"{result.value}:nhwc",
    )
    y_view.leave(scope, out, result, name)


def _arranged(
    product: Product, result: Target, zeros: tuple[int, int]
) -> tuple[MatmulAttrs, tuple[View, View, View]]:
    """Heads and zero points, and the views ``(rows, 1, heads, channels)`` of a, b and result."""
    a_shape, b_shape = product.a.shape, product.b.shape
    if len(a_shape) == 1:
        a_shape = (1, *a_shape)
    if len(b_shape) == 1:
        b_shape = (1, *b_shape) if product.transposed else (*b_shape, 1)
    *a_batch, m, k = a_shape
    *b_batch, first, second = b_shape
    outputs = first if product.transposed else second
    if math.prod(b_batch) == 1:
        # one matrix for all: the rows of all heads are rows of one
        m, a_batch = m * math.prod(a_batch), []
    rank = max(len(a_batch), len(b_batch), 1)
    a_axes, b_axes = ((1,) * (rank - len(batch)) + tuple(batch) for batch in (a_batch, b_batch))
    attrs = MatmulAttrs(a_batch=a_axes, b_batch=b_axes, a_zero=zeros[0], b_zero=zeros[1])
    b_perm = _ROWS if product.transposed else _COLUMNS
    return attrs, (
        _heads_view(math.prod(a_axes), m, k, _ROWS),
        _heads_view(math.prod(b_axes), first, second, b_perm),
        _heads_view(math.prod(attrs.batch), m, outputs, _ROWS),
    )


def _heads_view(heads: int, rows: int, columns: int, perm: tuple[int, ...]) -> View:
    if heads == 1 and perm == _ROWS:
        return View((rows, 1, 1, columns))
    return View((1, heads, rows, columns), perm)


def _entered(scope: Scope, x: Operand, view: View, name: str) -> str:
    """The operand as int8 in ``view``; a constant is arranged here and now."""
    array = scope.constant(x.value)
    if array is None:
        return enter(scope, x, view, name)
    offset = 128 if x.dtype == np.uint8 else 0
    signed = (array.astype(np.int16) - offset).astype(np.int8).reshape(view.folded)
    arranged = signed if view.perm is None else signed.transpose(view.perm)
    return scope.add_constant(f"{name}/operand", np.ascontiguousarray(arranged))
