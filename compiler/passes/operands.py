"""How lowering sees quantized tensors: operands, results, and their logical NHWC views.

Every lowered node stands on its own: it converts its operands to int8 NHWC (``int.signed``,
``Reshape``, ``Transpose``), computes, and converts back. ``passes.layout`` then cancels what
neighbours undo, so that conversions remain only where the accelerator's region ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.graph import Array, Node, Origin, Quant, TensorType
from accelc.compiler.rewrite import Refusal, Scope
from accelc.isa.config import AccelConfig

NCHW_TO_NHWC = (0, 2, 3, 1)
NHWC_TO_NCHW = (0, 3, 1, 2)
#: Suffix of values in logical NHWC; what precedes it is the ONNX value's name.
NHWC_SUFFIX = ":nhwc"
_INT8 = (np.dtype(np.int8), np.dtype(np.uint8))


@dataclass(frozen=True)
class Operand:
    """An integer tensor and what it means; ``scale`` and ``zero`` are ``()`` or ``(channels,)``."""

    value: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: NDArray[np.float32]
    zero: NDArray[np.int64]
    axis: int | None = None

    @property
    def scalar_scale(self) -> np.float32:
        if self.scale.size != 1:
            raise Refusal(f"activation {self.value!r} is quantized per channel")
        return np.float32(self.scale.reshape(()))

    @property
    def scalar_zero(self) -> int:
        """Zero point as if the tensor were int8."""
        if self.zero.size != 1:
            raise Refusal(f"activation {self.value!r} is quantized per channel")
        return int(self.zero.reshape(())) - (128 if self.dtype == np.uint8 else 0)


@dataclass(frozen=True)
class Target:
    """The quantized tensor a lowered node computes; ``zero`` as if it were int8."""

    value: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: np.float32
    zero: int

    def quantize(self, real: float) -> int:
        """QuantizeLinear of one number, to int8: ``rint(real / scale) + zero``, clamped."""
        if np.isnan(real):
            raise Refusal("a clamp bound is not a number")
        # float32 throughout, as ONNX computes it
        with np.errstate(over="ignore"):
            scaled = np.rint(np.float32(real) / self.scale)
        return int(np.clip(np.float64(scaled) + self.zero, -128, 127))

    @property
    def quant(self) -> Quant:
        return Quant(np.asarray(self.scale), np.asarray(self.zero, np.int8))


def operand(
    scope: Scope,
    value: str,
    scale: str,
    zero: str,
    axis: int | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Operand:
    """The operand ``value`` with constant ``scale`` and ``zero`` point (``""``: 0).

    Raises:
        Refusal: parameters are computed at run time, of a type other than float32, or by block.
    """
    if attrs and attrs.get("block_size"):
        raise Refusal("quantized by blocks")
    s = scope.constant(scale)
    z = scope.constant(zero) if zero else None
    if s is None or (zero and z is None):
        raise Refusal(f"scale or zero point of {value!r} is computed at run time")
    if s.dtype != np.float32:
        raise Refusal(f"scale of {value!r} is {s.dtype}, not float32")
    if not (np.isfinite(s).all() and (s > 0).all()):
        raise Refusal(f"scale of {value!r} is not positive")
    found = scope.types[value]
    zeros = np.zeros(s.shape, np.int64) if z is None else z.astype(np.int64)
    if s.size == 1:
        return Operand(value, found.shape, found.dtype, s.reshape(()), zeros.reshape(()))
    rank = len(found.shape)
    axis = 1 if axis is None else axis
    return Operand(value, found.shape, found.dtype, s, np.broadcast_to(zeros, s.shape), axis % rank)


def dequantized(scope: Scope, value: str) -> Operand | None:
    """The integer operand behind a float ``value``, if DequantizeLinear computes it."""
    node = scope.producer(value, "DequantizeLinear")
    if node is None:
        return None
    axis = node.attrs.get("axis", 1)
    return operand(scope, node.inputs[0], node.inputs[1], node.input(2), axis, node.attrs)


def activation(scope: Scope, value: str, what: str) -> Operand:
    """The int8 or uint8 operand behind the float activation ``value``."""
    found = dequantized(scope, value)
    if found is None:
        raise Refusal(f"{what} {value!r} is not quantized")
    return require_int8(found)


def require_int8(found: Operand) -> Operand:
    if found.dtype not in _INT8:
        raise Refusal(
            f"{found.value!r} is {found.dtype}; the accelerator computes on int8 and uint8"
        )
    if -1 in found.shape or 0 in found.shape:
        raise Refusal(f"the shape of {found.value!r} depends on data or is empty")
    return found


def target(scope: Scope, value: str, scale: str, zero: str) -> Target:
    """The per-tensor int8 or uint8 result ``value``."""
    found = require_int8(operand(scope, value, scale, zero))
    return Target(value, found.shape, found.dtype, found.scalar_scale, found.scalar_zero)


def quantize_target(node: Node, scope: Scope) -> Target:
    """The result of a QuantizeLinear node."""
    if node.attrs.get("block_size") or node.attrs.get("precision"):
        raise Refusal("quantized by blocks or at another precision")
    return target(scope, node.outputs[0], node.inputs[1], node.input(2))


def signed(scope: Scope, x: Operand, name: str) -> Operand:
    """The operand as int8; uint8 is shifted by 128, data and zero point alike."""
    if x.dtype == np.int8:
        return x
    quant = Quant(x.scale, (x.zero - 128).astype(np.int8), x.axis)
    out = scope.emit(
        "int.signed",
        (x.value,),
        TensorType(x.shape, np.dtype(np.int8), quant),
        name=f"{name}/signed",
        hint=f"{x.value}:signed",
    )
    return replace(x, value=out, dtype=np.dtype(np.int8), zero=x.zero - 128)


def reshape(
    scope: Scope, value: str, shape: Sequence[int], name: str, out: str | None = None
) -> str:
    """``value`` in another shape; itself if it has that shape and ``out`` asks for no name."""
    shape = tuple(int(d) for d in shape)
    if out is None and scope.shape(value) == shape:
        return value
    wanted = scope.add_constant(f"{name}/shape", np.array(shape, np.int64))
    old = scope.types[value]
    attrs = {"allowzero": 1} if 0 in shape else {}
    return scope.emit(
        "Reshape", (value, wanted), out or replace(old, shape=shape), attrs, name=f"{name}/reshape"
    )


def transpose(
    scope: Scope, value: str, perm: Sequence[int], name: str, out: str | None = None
) -> str:
    old = scope.types[value]
    shape = tuple(old.shape[p] for p in perm)
    return scope.emit(
        "Transpose",
        (value,),
        out or replace(old, shape=shape),
        {"perm": tuple(perm)},
        name=f"{name}/transpose",
        hint=f"{value}{NHWC_SUFFIX}" if tuple(perm) == NCHW_TO_NHWC else None,
    )


@dataclass(frozen=True)
class View:
    """How a tensor of one ONNX shape becomes 4-dimensional NHWC.

    ``folded`` is the shape after a first Reshape and ``perm`` the Transpose that follows, if any.
    """

    folded: tuple[int, ...]
    perm: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        n, h, w, c = (self.folded[p] for p in self.perm or range(4))
        return n, h, w, c

    def enter(self, scope: Scope, value: str, name: str) -> str:
        value = reshape(scope, value, self.folded, name)
        return value if self.perm is None else transpose(scope, value, self.perm, name)

    def origin(self, result: Target) -> Origin:
        """That an NHWC value is ``result`` in this view."""
        steps: list[tuple[str, tuple[int, ...]]] = []
        if self.perm is not None:
            steps.append(("Transpose", tuple(int(p) for p in np.argsort(self.perm))))
        if self.folded != result.shape:
            steps.append(("Reshape", result.shape))
        if result.dtype == np.uint8:
            steps.append(("Unsigned", ()))
        return Origin(result.value, tuple(steps))

    def leave(self, scope: Scope, value: str, result: Target, name: str) -> None:
        """Emit the way back from NHWC ``value`` to the ONNX value ``result``."""
        unsigned = result.dtype == np.uint8
        scope.origins[value] = self.origin(result)
        final = None if unsigned else result.value
        if self.perm is not None:
            inverse = tuple(int(p) for p in np.argsort(self.perm))
            last = self.folded == result.shape
            value = transpose(scope, value, inverse, name, final if last else None)
            if not last:
                value = reshape(scope, value, result.shape, name, final)
        elif self.folded != result.shape or final is not None:
            value = reshape(scope, value, result.shape, name, final)
        if unsigned:
            scope.emit("int.unsigned", (value,), result.value, name=f"{name}/unsigned")


def features_view(shape: tuple[int, ...]) -> View:
    """View of ``(n, c, h, w)`` or ``(n, c, l)`` features; one line for the latter."""
    if len(shape) == 4:
        return View(shape, NCHW_TO_NHWC)
    if len(shape) == 3:
        return View((shape[0], shape[1], 1, shape[2]), NCHW_TO_NHWC)
    raise Refusal(f"features of rank {len(shape)}; the accelerator has two spatial axes at most")


def rows_view(shape: tuple[int, ...]) -> View:
    """View of ``(..., channels)``: the last axis is the channels, the first the batch."""
    if not shape:
        return View((1, 1, 1, 1))
    *outer, channels = shape
    n, *middle = outer or [1]
    return View((n, 1, int(np.prod(middle, dtype=np.int64)), channels))


def elementwise_view(shape: tuple[int, ...]) -> View:
    """View for operators that treat all elements alike; what the neighbours are likely to use."""
    return features_view(shape) if len(shape) == 4 else rows_view(shape)


def nhwc_type(shape: Sequence[int], result: Target) -> TensorType:
    return TensorType(tuple(shape), np.dtype(np.int8), result.quant)


def enter(scope: Scope, x: Operand, view: View, name: str) -> str:
    """The operand as int8 NHWC value."""
    return view.enter(scope, signed(scope, x, name).value, name)


@dataclass(frozen=True)
class Context:
    """What every lowering rule is given besides the node."""

    scope: Scope
    config: AccelConfig
    node: Node

    @property
    def name(self) -> str:
        return self.node.name


def int32(array: Array) -> NDArray[np.int32]:
    return np.ascontiguousarray(array, np.int32)
