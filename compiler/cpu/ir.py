"""A small loop-nest builder on llvmlite.ir: typed lanes, counted loops, strided loads and stores.

Everything is emitted as SSA with phi nodes (no alloca), already vectorised, so LLVM only has to select
and schedule instructions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ll
import numpy as np

from accelc.compiler.cpu.target import Target

#: An index known while building (int) or computed by the generated code (i64 value).
Index = Any
Body = Callable[..., Any]

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
    """A vector constant of equal lanes, printed as ``splat (type value)``: short to write and to parse."""

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


class Val:
    """One or more lanes of a NumPy element type; operators emit instructions.

    Integers wrap. Comparisons give bool lanes (ordered for floats, except ``!=``).
    """

    __slots__ = ("k", "value", "dtype")

    def __init__(self, k: "Kernel", value: ll.Value, dtype: np.dtype[Any]) -> None:
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
        """Change the type of values that are known to fit: integers wrap, floats must be in range."""
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


class Kernel:
    """One function ``void name(ptr...)`` under construction; its pointers never overlap when written."""

    def __init__(self, module: ll.Module, name: str, pointers: int, target: Target) -> None:
        signature = ll.FunctionType(ll.VoidType(), [POINTER] * pointers)
        self.module = module
        self.target = target
        self.function = ll.Function(module, signature, name)
        self.function.linkage = "internal"
        self.function.attributes.add("nounwind")
        for argument in self.function.args:
            argument.add_attribute("noalias")
        self.args: tuple[ll.Value, ...] = tuple(self.function.args)
        self.b = ll.IRBuilder(self.function.append_basic_block("entry"))

    def finish(self) -> None:
        self.b.ret_void()

    def intrinsic(self, name: str, kind: ll.Type, operands: Sequence[ll.Value]) -> ll.Value:
        """Call ``llvm.<name>`` overloaded on ``kind``, all operands and the result of that type."""
        full = f"llvm.{name}.{_suffix(kind)}"
        signature = ll.FunctionType(kind, [operand.type for operand in operands])
        return self.b.call(self.declare(full, signature), list(operands))

    def declare(self, name: str, signature: ll.FunctionType) -> ll.Function:
        known = self.module.globals.get(name)
        return known if known is not None else ll.Function(self.module, signature, name)

    # -- indices: Python ints fold, anything else is an i64 value --------------------------------

    def index(self, value: Index) -> ll.Value:
        return ll.Constant(I64, value) if isinstance(value, int) else value

    def iadd(self, left: Index, right: Index) -> Index:
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        if isinstance(right, int) and right == 0:
            return left
        if isinstance(left, int) and left == 0:
            return right
        return self.b.add(self.index(left), self.index(right))

    def imul(self, left: Index, right: Index) -> Index:
        if isinstance(left, int) and isinstance(right, int):
            return left * right
        for one, other in ((left, right), (right, left)):
            if isinstance(one, int) and one in (0, 1):
                return other if one else 0
        return self.b.mul(self.index(left), self.index(right))

    def imin(self, left: Index, right: Index) -> Index:
        if isinstance(left, int) and isinstance(right, int):
            return min(left, right)
        left, right = self.index(left), self.index(right)
        return self.b.select(self.b.icmp_signed("<", left, right), left, right)

    def affine(self, *terms: tuple[Index, Index]) -> Index:
        """The sum of products."""
        total: Index = 0
        for index, stride in terms:
            total = self.iadd(total, self.imul(index, stride))
        return total

    # -- control -----------------------------------------------------------------------------------

    def loop(self, count: Index, body: Body, carried: Sequence[Any] = ()) -> tuple[Any, ...]:
        """Run ``body(i, *carried) -> carried`` for i in range(count); give the last ``carried``.

        A count that is only known at run time must be at least 1. Carried values are ``Val`` or LLVM
        values; one-trip loops leave no loop behind.
        """
        if isinstance(count, int) and count <= 1:
            return _tuple(body(0, *carried)) if count == 1 else tuple(carried)
        b = self.b
        before = b.block
        head = b.append_basic_block()
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        i.add_incoming(ll.Constant(I64, 0), before)
        phis: list[ll.PhiInstr] = []
        inside: list[Any] = []
        for item in carried:
            value = item.value if isinstance(item, Val) else item
            phi = b.phi(value.type)
            phi.add_incoming(value, before)
            phis.append(phi)
            inside.append(Val(self, phi, item.dtype) if isinstance(item, Val) else phi)
        results = _tuple(body(i, *inside))
        following = b.add(i, ll.Constant(I64, 1))
        latch = b.block
        i.add_incoming(following, latch)
        for phi, item in zip(phis, results, strict=True):
            phi.add_incoming(item.value if isinstance(item, Val) else item, latch)
        after = b.append_basic_block()
        b.cbranch(b.icmp_signed("<", following, self.index(count)), head, after)
        b.position_at_end(after)
        return results

    def nest(self, counts: Sequence[int], body: Callable[[tuple[Index, ...]], None]) -> None:
        """A perfect loop nest, outermost first."""

        def level(done: tuple[Index, ...]) -> None:
            if len(done) == len(counts):
                body(done)
            else:
                self.loop(counts[len(done)], lambda i: level((*done, i)))

        level(())

    def strips(self, count: int, lanes: int, body: Callable[[Index, int], None]) -> None:
        """Cover ``range(count)`` by strips ``body(first, lanes)``.

        The last strip overlaps the one before instead of being shorter, so ``body`` must be
        idempotent: a pure function of the position that writes only its own lanes.
        """
        while lanes > count:
            lanes //= 2
        if lanes == 0:
            return
        trips = -(-count // lanes)

        def strip(i: Index) -> None:
            first = self.imul(i, lanes)
            body(first if count % lanes == 0 else self.imin(first, count - lanes), lanes)

        self.loop(trips, strip)

    # -- memory ------------------------------------------------------------------------------------

    def at(self, pointer: ll.Value, dtype: np.dtype[Any], index: Index) -> ll.Value:
        """The address of element ``index``."""
        if isinstance(index, int) and index == 0:
            return pointer
        return self.b.gep(pointer, [self.index(index)], source_etype=_memory_type(dtype))

    def load(
        self, pointer: ll.Value, dtype: np.dtype[Any], index: Index = 0, lanes: int = 1
    ) -> Val:
        """``lanes`` consecutive elements."""
        kind = _memory_type(dtype)
        if lanes > 1:
            kind = ll.VectorType(kind, lanes)
        value = self.b.load(self.at(pointer, dtype, index), align=dtype.itemsize, typ=kind)
        if dtype == BOOL:
            return Val(self, value, UINT8).differs(0)
        return Val(self, value, dtype)

    def load_strided(
        self, pointer: ll.Value, dtype: np.dtype[Any], index: Index, stride: Index, lanes: int
    ) -> Val:
        """``lanes`` elements ``stride`` apart; stride 0 repeats one."""
        if lanes == 1 or (isinstance(stride, int) and stride == 1):
            return self.load(pointer, dtype, index, lanes)
        if isinstance(stride, int) and stride == 0:
            return self.splat(self.load(pointer, dtype, index), lanes)
        vector = ll.Constant(llvm_type(dtype, lanes), ll.Undefined)
        for lane in range(lanes):
            element = self.load(pointer, dtype, self.iadd(index, self.imul(stride, lane)))
            vector = self.b.insert_element(vector, element.value, ll.Constant(I32, lane))
        return Val(self, vector, dtype)

    def load_indexed(self, pointer: ll.Value, dtype: np.dtype[Any], indices: Val) -> Val:
        """One element for each lane of int64 ``indices``."""
        if indices.lanes == 1:
            return self.load(pointer, dtype, indices.value)
        vector = ll.Constant(llvm_type(dtype, indices.lanes), ll.Undefined)
        for lane in range(indices.lanes):
            number = ll.Constant(I32, lane)
            index = self.b.extract_element(indices.value, number)
            vector = self.b.insert_element(vector, self.load(pointer, dtype, index).value, number)
        return Val(self, vector, dtype)

    def splat(self, scalar: Val, lanes: int) -> Val:
        """A scalar in every lane."""
        if lanes == 1:
            return scalar
        kind = ll.VectorType(scalar.value.type, lanes)
        undefined = ll.Constant(kind, ll.Undefined)
        first = self.b.insert_element(undefined, scalar.value, ll.Constant(I32, 0))
        mask = ll.Constant(ll.VectorType(I32, lanes), None)
        return Val(self, self.b.shuffle_vector(first, undefined, mask), scalar.dtype)

    def store(self, value: Val, pointer: ll.Value, index: Index = 0) -> None:
        """Consecutive elements from ``index`` on."""
        dtype = value.dtype
        stored = value.convert(UINT8) if dtype == BOOL else value
        self.b.store(stored.value, self.at(pointer, dtype, index), align=dtype.itemsize)

    def store_strided(self, value: Val, pointer: ll.Value, index: Index, stride: Index) -> None:
        """Elements ``stride`` apart."""
        if value.lanes == 1 or (isinstance(stride, int) and stride == 1):
            self.store(value, pointer, index)
            return
        for lane in range(value.lanes):
            self.store(self.lane(value, lane), pointer, self.iadd(index, self.imul(stride, lane)))

    def lane(self, value: Val, lane: int) -> Val:
        if value.lanes == 1:
            return value
        return Val(self, self.b.extract_element(value.value, ll.Constant(I32, lane)), value.dtype)

    def lanes_of(self, dtype: np.dtype[Any]) -> int:
        """Elements of ``dtype`` in one vector register, at least 1."""
        return max(1, self.target.vector_bytes // dtype.itemsize)

    def value(self, number: Any, dtype: np.dtype[Any], lanes: int = 1) -> Val:
        return Val(self, constant(number, dtype, lanes), dtype)

    def horizontal(self, value: Val, combine: Callable[[Val, Val], Val]) -> Val:
        """All lanes combined into one by halving."""
        while value.lanes > 1:
            half = value.lanes // 2
            undefined = ll.Constant(value.value.type, ll.Undefined)
            if half == 1:
                return combine(self.lane(value, 0), self.lane(value, 1))
            parts: list[Val] = []
            for first in (0, half):
                mask = ll.Constant(ll.VectorType(I32, half), list(range(first, first + half)))
                shuffled = self.b.shuffle_vector(value.value, undefined, mask)
                parts.append(Val(self, shuffled, value.dtype))
            value = combine(parts[0], parts[1])
        return value


def _suffix(kind: ll.Type) -> str:
    """How LLVM writes a type in the name of an overloaded intrinsic."""
    if isinstance(kind, ll.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return {F32: "f32", F64: "f64"}.get(kind) or str(kind)


def _memory_type(dtype: np.dtype[Any]) -> ll.Type:
    return I8 if dtype == BOOL else _LLVM_TYPES[dtype]


def _tuple(result: Any) -> tuple[Any, ...]:
    if result is None:
        return ()
    return tuple(result) if isinstance(result, (list, tuple)) else (result,)
