"""Matrix products: MatMul, Gemm and their integer forms."""

from collections.abc import Callable

import numpy as np

from accelc.compiler.cpu.conv import recenter, requantize, run_gemm
from accelc.compiler.cpu.copies import permute
from accelc.compiler.cpu.elementwise import broadcast_strides, collapse, contiguous, single
from accelc.compiler.cpu.expressions import FLOATS, OPERATORS
from accelc.compiler.cpu.gemm import Gemm
from accelc.compiler.cpu.lanes import FLOAT32, INT32, INT64
from accelc.compiler.cpu.parse import Operand, require
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.cpu.planes import require_native
from accelc.compiler.graph import Node

_TYPES = (*FLOATS, INT32, INT64, np.dtype(np.uint32), np.dtype(np.uint64))


def multiply(
    plan: Plan, a: str, a_shape: tuple[int, ...], b: str, b_shape: tuple[int, ...], out: str
) -> None:
    """NumPy's ``matmul`` of contiguous arrays of one type, batch axes broadcast."""
    require_native(plan, a, b)
    require(plan.dtype(a) in _TYPES and plan.dtype(a) == plan.dtype(b), "element type")
    if len(a_shape) == 1:
        a_shape = (1, *a_shape)
    if len(b_shape) == 1:
        b_shape = (*b_shape, 1)
    m, k = a_shape[-2:]
    n = b_shape[-1]
    require(b_shape[-2] == k, "inner extents differ")
    if len(b_shape) == 2:
        # the rows of all batches are the rows of one product
        a_shape = (int(np.prod(a_shape[:-1])), k)
        m = a_shape[0]
    batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    extents, (a_strides, b_strides, o_strides) = collapse(
        batch,
        [
            broadcast_strides(a_shape[:-2], batch),
            broadcast_strides(b_shape[:-2], batch),
            contiguous(batch),
        ],
    )
    gemm = Gemm(
        plan.dtype(a).name,
        rows=m,
        columns=n,
        outer=k,
        taps=(0,),
        b_outer=n,
        out_row=n,
        images=extents,
        a_image=tuple(s * m * k for s in a_strides),
        b_image=tuple(s * k * n for s in b_strides),
        out_image=tuple(s * m * n for s in o_strides),
    )
    run_gemm(plan, gemm, a, b, None, out)


def lower_matmul(plan: Plan, node: Node) -> None:
    a, b = node.inputs
    multiply(plan, a, plan.shape(a), b, plan.shape(b), node.outputs[0])


def transposed(plan: Plan, name: str) -> str:
    """The transpose of a matrix; constants are transposed now."""
    rows, columns = plan.shape(name)
    known = plan.known(name)
    if known is not None:
        return plan.constant(np.ascontiguousarray(known.reshape(rows, columns).T))
    out = plan.temporary((columns, rows), plan.dtype(name))
    permute(plan, name, out, (rows, columns), (1, 0))
    return out


def lower_gemm(plan: Plan, node: Node) -> None:
    a, b, c = (*node.inputs, "")[:3]
    out = node.outputs[0]
    require(plan.dtype(a) in FLOATS, "element type")
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    a = transposed(plan, a) if node.attrs.get("transA") else a
    b = transposed(plan, b) if node.attrs.get("transB") else b
    shape = plan.shape(out)
    plain = alpha == 1.0 and (not c or beta == 0.0)
    product = out if plain else plan.temporary(shape, plan.dtype(a))
    multiply(plan, a, plan.shape(a), b, plan.shape(b), product)
    if not plain:
        operands: list[Operand] = [(product, shape)]
        if c and beta != 0.0:
            operands.append((c, plan.shape(c)))
        single(plan, "Blend", operands, (alpha, beta), out, shape)


OPERATORS["Blend"] = lambda v, p, d: (
    v[0] * p[0] + (v[1] if p[1] == 1.0 else v[1] * p[1]) if len(v) > 1 else v[0] * p[0]
)


def zero_view(plan: Plan, zero: str, rank: int, rows: bool) -> Operand | None:
    """How a zero point of a matrix broadcasts: one for all, per row or per column."""
    if not zero:
        return None
    shape = plan.shape(zero)
    if plan.size(zero) == 1:
        return zero, ()
    if len(shape) == 1:
        return zero, ((shape[0], 1) if rows else (shape[0],))
    return zero, shape


def lower_matmul_integer(plan: Plan, node: Node) -> None:
    a, b, az, bz = (*node.inputs, "", "")[:4]
    left = recenter(plan, a, az, zero_view(plan, az, len(plan.shape(a)), True))
    right = recenter(plan, b, bz, zero_view(plan, bz, len(plan.shape(b)), False))
    multiply(plan, left, plan.shape(a), right, plan.shape(b), node.outputs[0])


def lower_qlinear_matmul(plan: Plan, node: Node) -> None:
    a, sa, za, b, sb, zb, sy, zy = node.inputs
    out = node.outputs[0]
    require(all(plan.dtype(s) == FLOAT32 for s in (sa, sb, sy)), "scale type")
    require(plan.size(sy) == 1 and plan.size(zy) == 1, "per-channel output")
    left = recenter(plan, a, za, zero_view(plan, za, len(plan.shape(a)), True))
    right = recenter(plan, b, zb, zero_view(plan, zb, len(plan.shape(b)), False))
    sums = plan.temporary(plan.shape(out), np.int32)
    multiply(plan, left, plan.shape(a), right, plan.shape(b), sums)
    first = zero_view(plan, sa, 2, True) or (sa, ())
    second = zero_view(plan, sb, 2, False) or (sb, ())
    requantize(plan, sums, (first, second, (sy, ())), zy, None, out)


def lower_qgemm(plan: Plan, node: Node) -> None:
    """QGemm: a, sa, za, b, sb, zb, [c], [sy], [zy]; c is int32 at scale sa * sb."""
    a, sa, za, b, sb, zb, c, sy, zy = (*node.inputs, "", "", "")[:9]
    out = node.outputs[0]
    require(not node.attrs.get("transA"), "transposed left side")
    require(float(node.attrs.get("alpha", 1.0)) == 1.0, "alpha")
    right = recenter(
        plan,
        b,
        zb,
        None
        if plan.size(zb) == 1
        else (zb, (plan.size(zb), 1) if node.attrs.get("transB") else (plan.size(zb),)),
    )
    if node.attrs.get("transB"):
        right = transposed(plan, right)
    left = recenter(plan, a, za, None)
    shape = plan.shape(out)
    sums = plan.temporary(shape, np.int32)
    multiply(plan, left, plan.shape(a), right, plan.shape(right), sums)
    bias = (c, plan.shape(c)) if c else None
    second: Operand = (sb, (plan.size(sb),)) if plan.size(sb) > 1 else (sb, ())
    if sy:
        requantize(plan, sums, ((sa, ()), second, (sy, ())), zy, bias, out)
        return
    operands: list[Operand] = [(sums, shape), (sa, ()), second, *([bias] if bias else [])]
    single(plan, "Rescale", operands, (), out, shape)


OPERATORS["Rescale"] = lambda v, p, d: (
    (v[0] + v[3] if len(v) > 3 else v[0]).convert(d) * (v[1] * v[2])
)

LOWERINGS: dict[str, Callable[[Plan, Node], None]] = {
    "Gemm": lower_gemm,
    "MatMul": lower_matmul,
    "MatMulInteger": lower_matmul_integer,
    "QLinearMatMul": lower_qlinear_matmul,
    "com.microsoft.QGemm": lower_qgemm,
}
