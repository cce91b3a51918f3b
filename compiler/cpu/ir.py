"""A small loop-nest builder on llvmlite.ir: kernels, counted loops, strided loads and stores.

Everything is emitted as SSA with phi nodes (no alloca), already vectorised, so LLVM only has to
select and schedule instructions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ll
import numpy as np

from accelc.compiler.cpu.lanes import (
    BOOL,
    F32,
    F64,
    I32,
    I64,
    POINTER,
    UINT8,
    Val,
    constant,
    llvm_type,
    memory_type,
)
from accelc.compiler.cpu.narrow import carrier, decode, encode, is_narrow
from accelc.compiler.cpu.target import Target

#: An index known while building (int) or computed by the generated code (i64 value).
Index = Any
Body = Callable[..., Any]


class Kernel:
    """One function ``void name(ptr...)`` under construction; what it writes overlaps nothing."""

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

        A count that is only known at run time must be at least 1. Carried values are ``Val`` or
        LLVM values; one-trip loops leave no loop behind.
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
        return self.b.gep(pointer, [self.index(index)], source_etype=memory_type(dtype))

    def load(
        self, pointer: ll.Value, dtype: np.dtype[Any], index: Index = 0, lanes: int = 1
    ) -> Val:
        """``lanes`` consecutive elements; narrow types in register form."""
        if is_narrow(dtype):
            return decode(self.load(pointer, carrier(dtype), index, lanes), dtype)
        kind = memory_type(dtype)
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
        if is_narrow(dtype):
            raw = self.load_strided(pointer, carrier(dtype), index, stride, lanes)
            return decode(raw, dtype)
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

    def store(
        self,
        value: Val,
        pointer: ll.Value,
        index: Index = 0,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        """Consecutive elements from ``index`` on, of ``dtype`` when that is a narrow type."""
        if dtype is not None and is_narrow(dtype):
            value = encode(value, dtype)
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


def _tuple(result: Any) -> tuple[Any, ...]:
    if result is None:
        return ()
    return tuple(result) if isinstance(result, (list, tuple)) else (result,)
