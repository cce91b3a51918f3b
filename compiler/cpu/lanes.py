"""Values in registers: one or more lanes of a NumPy element type, with operators that emit code."""

from typing import Any

import llvmlite.ir as ll
import numpy as np

I1 = ll.IntType(1)
I8 = ll.IntType(8)
I32 = ll.IntType(32)
I64 = ll.IntType(64)
F32 = ll.FloatType()
F64 = ll.DoubleType()
POINTER = ll.PointerType()

_NAMED_TYPES: dict[str, ll.Type] = {
    "bool": I1,
    "int8": I8,
    "uint8": I8,
    "int16": ll.IntType(16),
    "uint16": ll.IntType(16),
    "int32": I32,
    "uint32": I32,
    "int64": I64,
    "uint64": I64,
    "float32": F32,
    "float64": F64,
}
#: Element types native kernels handle; the others run through the reference.
NATIVE_DTYPES = frozenset(_NAMED_TYPES)
# looking up by name would take a third of the time of building a kernel
_LLVM_TYPES = {np.dtype(name): kind for name, kind in _NAMED_TYPES.items()}

BOOL, INT8, UINT8 = np.dtype(np.bool_), np.dtype(np.int8), np.dtype(np.uint8)
INT16, INT32, INT64 = np.dtype(np.int16), np.dtype(np.int32), np.dtype(np.int64)
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def llvm_type(dtype: np.dtype[Any], lanes: int = 1) -> ll.Type:
    """The register type of ``lanes`` elements of ``dtype``."""
    element = _LLVM_TYPES[dtype]
    return element if lanes == 1 else ll.VectorType(element, lanes)


class Splat(ll.Constant):
    """A vector constant of equal lanes, printed as ``splat (type value)``: quick to parse."""

    def __init__(self, element: ll.Constant, lanes: int) -> None:
        super().__init__(ll.VectorType(element.type, lanes), None)
        self._text = f"splat ({element.type} {element.get_reference()})"

    def get_reference(self) -> str:
        return self._text


def constant(value: Any, dtype: np.dtype[Any], lanes: int = 1) -> ll.Value:
    """``value`` in every one of ``lanes`` lanes of ``dtype``."""
    if dtype.kind == "f":
        element = ll.Constant(_LLVM_TYPES[dtype], float(value))
    else:
        element = ll.Constant(_LLVM_TYPES[dtype], int(value))
    return element if lanes == 1 else Splat(element, lanes)


def memory_type(dtype: np.dtype[Any]) -> ll.Type:
    """How one element lies in memory: bool is a byte."""
    return I8 if dtype == BOOL else _LLVM_TYPES[dtype]


class Val:
    """One or more lanes of a NumPy element type; operators emit instructions into kernel ``k``.

    Integers wrap. Comparisons give bool lanes (ordered for floats, except ``!=``).
    """

    __slots__ = ("k", "value", "dtype")

    def __init__(self, k: Any, value: ll.Value, dtype: np.dtype[Any]) -> None:
        self.k, self.value, self.dtype = k, value, dtype

    @property
    def lanes(self) -> int:
        kind = self.value.type
        return kind.count if isinstance(kind, ll.VectorType) else 1

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"

    def like(self, other: Any) -> "Val":
        """``other`` (a number or Val) as a value of this type and these lanes."""
        if isinstance(other, Val):
            return other
        return Val(self.k, constant(other, self.dtype, self.lanes), self.dtype)

    def _new(self, value: ll.Value, dtype: np.dtype[Any] | None = None) -> "Val":
        return Val(self.k, value, dtype or self.dtype)

    def _binary(self, other: Any, float_op: str, int_op: str) -> "Val":
        b = self.k.b
        emit = getattr(b, float_op if self.is_float else int_op)
        return self._new(emit(self.value, self.like(other).value))

    def __add__(self, other: Any) -> "Val":
        return self._binary(other, "fadd", "add")

    def __sub__(self, other: Any) -> "Val":
        return self._binary(other, "fsub", "sub")

    def __rsub__(self, other: Any) -> "Val":
        return self.like(other) - self

    def __mul__(self, other: Any) -> "Val":
        return self._binary(other, "fmul", "mul")

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Val":
        return self._binary(other, "fdiv", "udiv" if self.dtype.kind == "u" else "sdiv")

    def __rtruediv__(self, other: Any) -> "Val":
        return self.like(other) / self

    def __mod__(self, other: Any) -> "Val":
        return self._binary(other, "frem", "urem" if self.dtype.kind == "u" else "srem")

    def __and__(self, other: Any) -> "Val":
        return self._new(self.k.b.and_(self.value, self.like(other).value))

    def __or__(self, other: Any) -> "Val":
        return self._new(self.k.b.or_(self.value, self.like(other).value))

    def __xor__(self, other: Any) -> "Val":
        return self._new(self.k.b.xor(self.value, self.like(other).value))

    def __lshift__(self, other: Any) -> "Val":
        return self._new(self.k.b.shl(self.value, self.like(other).value))

    def __rshift__(self, other: Any) -> "Val":
        shift = self.k.b.lshr if self.dtype.kind == "u" else self.k.b.ashr
        return self._new(shift(self.value, self.like(other).value))

    def __invert__(self) -> "Val":
        return self._new(self.k.b.not_(self.value))

    def __neg__(self) -> "Val":
        b = self.k.b
        return self._new(b.fneg(self.value) if self.is_float else b.neg(self.value))

    def _compare(self, op: str, other: Any) -> "Val":
        b = self.k.b
        right = self.like(other).value
        if self.is_float:
            emit = b.fcmp_unordered if op == "!=" else b.fcmp_ordered
        else:
            emit = b.icmp_unsigned if self.dtype.kind in "ub" else b.icmp_signed
        return self._new(emit(op, self.value, right), BOOL)

    def __lt__(self, other: Any) -> "Val":
        return self._compare("<", other)

    def __le__(self, other: Any) -> "Val":
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> "Val":
        return self._compare(">", other)

    def __ge__(self, other: Any) -> "Val":
        return self._compare(">=", other)

    def equals(self, other: Any) -> "Val":
        return self._compare("==", other)

    def differs(self, other: Any) -> "Val":
        return self._compare("!=", other)

    def select(self, yes: "Val", no: Any) -> "Val":
        """Lane by lane ``yes if self else no``."""
        return yes._new(self.k.b.select(self.value, yes.value, yes.like(no).value))

    def minimum(self, other: Any) -> "Val":
        """The smaller; NaN on the left gives ``other``."""
        other = self.like(other)
        return (self < other).select(self, other)

    def maximum(self, other: Any) -> "Val":
        """The larger; NaN on the left gives ``other``."""
        other = self.like(other)
        return (self > other).select(self, other)

    def clamp(self, low: Any, high: Any) -> "Val":
        """NaN becomes ``low``."""
        return self.maximum(low).minimum(high)

    def call(self, intrinsic: str, *others: Any) -> "Val":
        """``llvm.<intrinsic>`` of this type."""
        operands = [self.value, *(self.like(other).value for other in others)]
        return self._new(self.k.intrinsic(intrinsic, self.value.type, operands))

    def fma(self, factor: Any, addend: Any) -> "Val":
        """``self * factor + addend`` rounded once."""
        return self.call("fma", factor, addend)

    def muladd(self, factor: Any, addend: Any) -> "Val":
        """``self * factor + addend``, rounded once where that is faster."""
        return self.call("fmuladd", factor, addend)

    def rint(self) -> "Val":
        """Round half to even."""
        return self.call("rint")

    def bits(self, dtype: np.dtype[Any]) -> "Val":
        """The same bits read as ``dtype`` (of equal size)."""
        return self._new(self.k.b.bitcast(self.value, llvm_type(dtype, self.lanes)), dtype)

    def convert(self, dtype: np.dtype[Any]) -> "Val":
        """Change the type of values known to fit: integers wrap, floats must be in range."""
        if dtype == self.dtype:
            return self
        b, target = self.k.b, llvm_type(dtype, self.lanes)
        source = self.dtype
        if dtype.kind == "b":
            return self.differs(0)
        if source.kind == "f":
            if dtype.kind == "f":
                emit = b.fpext if dtype.itemsize > source.itemsize else b.fptrunc
            else:
                emit = b.fptoui if dtype.kind == "u" else b.fptosi
        elif dtype.kind == "f":
            emit = b.sitofp if source.kind == "i" else b.uitofp
        elif source.kind != "b" and dtype.itemsize == source.itemsize:
            return self._new(self.value, dtype)
        elif source.kind != "b" and dtype.itemsize < source.itemsize:
            emit = b.trunc
        else:
            emit = b.sext if source.kind == "i" else b.zext
        return self._new(emit(self.value, target), dtype)
