"""LOAD and STORE as native code: runs of whole rows, copied or filled."""

from llvmlite import ir

from accelc.isa.spec import Buffer
from accelc.sim.native_ir import (
    BUFFER_POINTER,
    BUFFER_ROW_BYTES,
    BUFFER_ROWS,
    BUFFER_TABLE,
    BUFFER_WORDS,
    I1,
    I8,
    I64,
    MEMORY,
    MEMORY_BYTES,
    OUT,
    POINTER,
    Kernel,
)


def _intrinsic(k: Kernel, name: str, arguments: list[ir.Type]) -> ir.Function:
    module = k.function.module
    if name in module.globals:
        return module.globals[name]
    return ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)


def _copy(k: Kernel, destination: ir.Value, source: ir.Value, nbytes: ir.Value) -> None:
    memcpy = _intrinsic(k, "llvm.memcpy.p0.p0.i64", [POINTER, POINTER, I64, I1])
    k.builder.call(memcpy, [destination, source, nbytes, I1(0)])


def _fill(k: Kernel, destination: ir.Value, value: ir.Value, nbytes: ir.Value) -> None:
    memset = _intrinsic(k, "llvm.memset.p0.i64", [POINTER, I8, I64, I1])
    k.builder.call(memset, [destination, value, nbytes, I1(0)])


def _run_address(k: Kernel, i2: ir.Value, i1: ir.Value, nbytes: ir.Value) -> ir.Value:
    """Address of a contiguous run in memory, checked for its end and its alignment."""
    b = k.builder
    address = b.add(
        k.field("dram"),
        b.add(b.mul(i2, k.field("stride2")), b.mul(i1, k.field("stride1"))),
    )
    k.require(b.icmp_signed("<=", b.add(address, nbytes), k.state(MEMORY_BYTES)))
    bits = b.and_(address, I64(k.config.bus_bytes - 1))
    k.require(b.icmp_signed("==", bits, I64(0)))
    return k.offset(k.state_pointer(MEMORY), address)


def emit_load(k: Kernel) -> None:
    b = k.builder
    buffer = k.field("buffer")
    k.require_below(buffer, len(Buffer))
    entry = b.add(I64(BUFFER_TABLE), b.mul(buffer, I64(BUFFER_WORDS)))
    state = k.function.args[1]
    base = b.inttoptr(k.word(state, b.add(entry, I64(BUFFER_POINTER))), POINTER)
    row_bytes = k.word(state, b.add(entry, I64(BUFFER_ROW_BYTES)))
    depth = k.word(state, b.add(entry, I64(BUFFER_ROWS)))
    top, bottom, left, right = (
        k.field(f"pad_{side}") for side in ("top", "bottom", "left", "right")
    )
    can_pad = b.or_(
        b.icmp_signed("==", buffer, I64(int(Buffer.INP))),
        b.icmp_signed("==", buffer, I64(int(Buffer.VIN))),
    )
    pads = b.or_(b.or_(top, bottom), b.or_(left, right))
    k.require(b.or_(can_pad, b.icmp_signed("==", pads, I64(0))))
    n0, n1, n2 = k.field("n0"), k.field("n1"), k.field("n2")
    run = b.mul(n1, n0)
    one_row = b.and_(
        b.icmp_signed("==", n2, I64(1)),
        b.and_(b.icmp_signed("==", n0, I64(1)), b.icmp_signed("==", n1, I64(1))),
    )
    k.require(b.or_(b.icmp_signed("!=", buffer, I64(int(Buffer.LUT))), one_row))
    pitch = b.add(b.add(left, run), right)
    plane0 = b.add(k.field("row"), top)
    below = b.add(plane0, b.mul(n2, pitch))
    end = b.add(below, bottom)
    k.require(b.icmp_signed("<=", end, depth))
    value = b.trunc(k.field("pad_value"), I8)

    def fill(row: ir.Value, count: ir.Value) -> None:
        _fill(k, k.offset(base, b.mul(row, row_bytes)), value, b.mul(count, row_bytes))

    fill(k.field("row"), top)
    nbytes = b.mul(n0, row_bytes)
    with k.loop(n2) as i2:
        plane = b.add(plane0, b.mul(i2, pitch))
        fill(plane, left)
        data = b.add(plane, left)
        # An empty run has no address that could be out of range.
        with k.loop(b.select(b.icmp_signed("==", n0, I64(0)), I64(0), n1)) as i1:
            source = _run_address(k, i2, i1, nbytes)
            row = b.add(data, b.mul(i1, n0))
            _copy(k, k.offset(base, b.mul(row, row_bytes)), source, nbytes)
        fill(b.add(data, run), right)
    fill(below, bottom)


def emit_store(k: Kernel) -> None:
    b = k.builder
    row_bytes = I64(k.config.vec_row_bytes)
    n0, n1, n2 = k.field("n0"), k.field("n1"), k.field("n2")
    count = b.mul(b.mul(n0, n1), n2)
    k.require(
        b.or_(
            b.icmp_signed("==", count, I64(0)),
            b.icmp_signed("<=", b.add(k.field("row"), count), I64(k.config.out_rows)),
        )
    )
    nbytes = b.mul(n0, row_bytes)
    out = k.state_pointer(OUT)
    with k.loop(n2) as i2:
        with k.loop(b.select(b.icmp_signed("==", n0, I64(0)), I64(0), n1)) as i1:
            destination = _run_address(k, i2, i1, nbytes)
            run = b.add(b.mul(i2, n1), i1)
            row = b.add(k.field("row"), b.mul(run, n0))
            _copy(k, destination, k.offset(out, b.mul(row, row_bytes)), nbytes)
