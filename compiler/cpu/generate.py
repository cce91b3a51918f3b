"""Values that follow from shapes and a few numbers: constants once those are known."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from accelc.compiler.cpu.copies import Fill, emit_fill
from accelc.compiler.cpu.move import native
from accelc.compiler.cpu.parse import require
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.graph import Array, Node
from accelc.compiler.onnx_node import numpy_dtype

#: Larger values are filled when they are needed instead of stored.
_STORED_ELEMS = 1 << 16
#: Values that no kernel fills are constants up to this size.
_DEFINED_ELEMS = 1 << 24


def _require_moderate(count: float) -> None:
    require(count <= _DEFINED_ELEMS, "more elements than are kept as a constant")


def _define(plan: Plan, out: str, array: Array) -> None:
    plan.alias(out, plan.constant(np.ascontiguousarray(array)))


def lower_constant_of_shape(plan: Plan, node: Node) -> None:
    out = node.outputs[0]
    native(plan, out)
    value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(())
    require(-1 not in plan.shape(out), "shape not known at compile time")
    size = plan.size(out)
    if size <= _STORED_ELEMS:
        _define(plan, out, np.full(plan.shape(out), value))
        return
    fill = Fill(size, plan.dtype(out).itemsize)
    plan.call(emit_fill, fill, [plan.constant(value)], [out])


def lower_eye_like(plan: Plan, node: Node) -> None:
    out = node.outputs[0]
    rows, columns = plan.shape(out)
    _require_moderate(rows * columns)
    _define(plan, out, np.eye(rows, columns, int(node.attrs.get("k", 0))).astype(plan.dtype(out)))


def lower_range(plan: Plan, node: Node) -> None:
    start, limit, delta = (plan.needed(name, "range").reshape(()) for name in node.inputs)
    dtype = plan.dtype(node.inputs[0])
    wide = np.float64 if dtype.kind not in "iu" else np.int64
    first, end, step = (value.astype(wide) for value in (start, limit, delta))
    count = max(0, math.ceil((end - first) / step))
    _require_moderate(count)
    _define(plan, node.outputs[0], (first + np.arange(count) * step).astype(dtype))


#: Cosine coefficients of the windows signals are cut with.
_WINDOWS = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46),
    "HannWindow": (0.5, -0.5),
}


def lower_window(plan: Plan, node: Node) -> None:
    size = int(plan.needed(node.inputs[0], "size").reshape(-1)[0])
    _require_moderate(size)
    periodic = bool(node.attrs.get("periodic", 1))
    angle = 2 * np.pi * np.arange(size) / (size if periodic else size - 1)
    total = sum(c * np.cos(angle * n) for n, c in enumerate(_WINDOWS[node.op]))
    dtype = numpy_dtype(int(node.attrs.get("output_datatype", TensorProto.FLOAT)))
    _define(plan, node.outputs[0], np.asarray(total).astype(dtype))


LOWERINGS: dict[str, Callable[[Plan, Node], Any]] = {
    "ConstantOfShape": lower_constant_of_shape,
    "EyeLike": lower_eye_like,
    "Range": lower_range,
    **{op: lower_window for op in _WINDOWS},
}
