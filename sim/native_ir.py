"""Building blocks of the generated kernels: fields, counted loops, range checks, row addresses."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from accelc.isa.config import AccelConfig
from accelc.isa.spec import Buffer, Opcode
from accelc.sim.descriptors import COLUMNS

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()

#: Layout of the state table, in 64-bit words.
MEMORY, MEMORY_BYTES, ACC, OUT, BUFFER_TABLE = range(5)
#: Words of an entry of the buffer table: pointer, bytes of a row, rows.
BUFFER_POINTER, BUFFER_ROW_BYTES, BUFFER_ROWS = range(3)
BUFFER_WORDS = 3


@dataclass
class Kernel:
    """One kernel under construction: ``i1 name(descriptor, state)``, true when all went well."""

    config: AccelConfig
    opcode: Opcode
    function: ir.Function
    builder: ir.IRBuilder
    #: Where a failed check goes: returns false.
    fail: ir.Block

    def word(self, base: ir.Value, index: int | ir.Value) -> ir.Value:
        """The 64-bit word ``index`` of the table at ``base``."""
        at = self.builder.gep(
            base, [I64(index) if isinstance(index, int) else index], source_etype=I64
        )
        return self.builder.load(at, typ=I64)

    def field(self, name: str) -> ir.Value:
        """A field of the instruction, int64."""
        return self.word(self.function.args[0], COLUMNS[self.opcode][name])

    def state(self, index: int) -> ir.Value:
        return self.word(self.function.args[1], index)

    def state_pointer(self, index: int) -> ir.Value:
        return self.builder.inttoptr(self.state(index), POINTER)

    def buffer_pointer(self, buffer: Buffer) -> ir.Value:
        return self.state_pointer(BUFFER_TABLE + BUFFER_WORDS * buffer + BUFFER_POINTER)

    def require(self, condition: ir.Value) -> None:
        """Give up the instruction unless ``condition``."""
        ok = self.function.append_basic_block("ok")
        self.builder.cbranch(condition, ok, self.fail)
        self.builder.position_at_end(ok)

    def require_below(self, value: ir.Value, limit: int | ir.Value) -> None:
        """Give up unless ``0 <= value < limit``."""
        bound = I64(limit) if isinstance(limit, int) else limit
        self.require(self.builder.icmp_unsigned("<", value, bound))

    @contextmanager
    def loop(self, count: int | ir.Value) -> Iterator[ir.Value]:
        """Run the block for an index from 0 to ``count - 1``."""
        builder = self.builder
        before = builder.block
        head, body, done = (self.function.append_basic_block(n) for n in ("head", "body", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(I64)
        index.add_incoming(I64(0), before)
        bound = I64(count) if isinstance(count, int) else count
        builder.cbranch(builder.icmp_signed("<", index, bound), body, done)
        builder.position_at_end(body)
        yield index
        index.add_incoming(builder.add(index, I64(1)), builder.block)
        builder.branch(head)
        builder.position_at_end(done)

    def row(self, base: ir.Value, *strides: tuple[ir.Value, ir.Value]) -> ir.Value:
        """``base + sum(index * stride)`` modulo 2^16, as all row numbers are."""
        total = base
        for index, stride in strides:
            total = self.builder.add(total, self.builder.mul(index, stride))
        return self.builder.and_(total, I64(0xFFFF))

    def offset(self, pointer: ir.Value, nbytes: int | ir.Value) -> ir.Value:
        at = I64(nbytes) if isinstance(nbytes, int) else nbytes
        return self.builder.gep(pointer, [at], source_etype=I8)

    def at(self, pointer: ir.Value, row: ir.Value, row_bytes: int) -> ir.Value:
        """Address of ``row``."""
        return self.offset(pointer, self.builder.mul(row, I64(row_bytes)))

    def frame(self, type_: ir.Type) -> ir.Value:
        """A slot in the stack frame, allocated once however often the code around it runs."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(type_)
        # alloca still yields a typed pointer, everything else here is opaque.
        slot.type = POINTER
        return slot

    def load(self, pointer: ir.Value, element: ir.IntType, lanes: int) -> ir.Value:
        """A vector of ``lanes`` elements from any address."""
        return self.builder.load(pointer, align=1, typ=ir.VectorType(element, lanes))

    def store(self, value: ir.Value, pointer: ir.Value) -> None:
        self.builder.store(value, pointer, align=1)

    def splat(self, scalar: ir.Value, lanes: int) -> ir.Value:
        vector = ir.VectorType(scalar.type, lanes)
        one = self.builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, I32(0))
        zeros = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
        return self.builder.shuffle_vector(one, one, zeros)

    def pick(self, vector: ir.Value, lanes: list[int]) -> ir.Value:
        """The named lanes of ``vector``, in that order."""
        mask = ir.Constant(ir.VectorType(I32, len(lanes)), lanes)
        return self.builder.shuffle_vector(vector, vector, mask)

    def finish(self) -> None:
        self.builder.ret(I1(1))


def kernel(module: ir.Module, config: AccelConfig, opcode: Opcode) -> Kernel:
    """Open the kernel of ``opcode`` in ``module``."""
    function = ir.Function(module, ir.FunctionType(I1, [POINTER, POINTER]), opcode.name.lower())
    function.linkage = "internal"
    for argument in function.args:
        argument.add_attribute("noalias")
    entry = function.append_basic_block("entry")
    fail = function.append_basic_block("fail")
    ir.IRBuilder(fail).ret(I1(0))
    return Kernel(config, opcode, function, ir.IRBuilder(entry), fail)
