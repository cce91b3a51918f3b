"""GEMM as native code.

A weight tile is widened once to int32 and turned to ``(block_in, block_out)``, so that one input
lane times one tile row is one vector operation. int32 arithmetic wraps as the hardware's does.
"""

from llvmlite import ir

from accelc.isa.spec import Buffer
from accelc.sim.native_ir import ACC, I8, I32, I64, Kernel

#: The loop nest over weight tiles, outermost first.
_TILE_LOOPS = ("o", "k0", "k1", "k2")


def _widen_tile(k: Kernel, tile: ir.Value, weights: ir.Value) -> None:
    """``tile[j, o] = weights[o, j]``, int8 to int32."""
    c, b = k.config, k.builder
    with k.loop(c.block_out) as o:
        row = k.load(k.at(weights, o, c.block_in), I8, c.block_in)
        wide = b.sext(row, ir.VectorType(I32, c.block_in))
        for j in range(c.block_in):
            at = b.add(o, I64(j * c.block_out))
            b.store(b.extract_element(wide, I32(j)), k.at(tile, at, 4))


def _accumulate(k: Kernel, acc: ir.Value, clear: ir.Value, products: ir.Value) -> None:
    """``acc = (0 if clear else acc) + products``, one vector of block_out."""
    b, c = k.builder, k.config
    vector = ir.VectorType(I32, c.block_out)
    old = b.select(clear, ir.Constant(vector, [0] * c.block_out), k.load(acc, I32, c.block_out))
    k.store(b.add(old, products), acc)


def _stream(k: Kernel, tile: ir.Value, inp0: ir.Value, acc0: ir.Value, clear: ir.Value) -> None:
    """The inner loops of matrix mode: one input row, one accumulator row."""
    c, b = k.config, k.builder
    inp, acc = k.buffer_pointer(Buffer.INP), k.state_pointer(ACC)
    with k.loop(k.field("n_y")) as iy, k.loop(k.field("n_x")) as ix:
        source = k.row(inp0, (iy, k.field("inp_y")), (ix, k.field("inp_x")))
        target = k.row(acc0, (iy, k.field("acc_y")), (ix, k.field("acc_x")))
        k.require_below(source, c.inp_rows)
        k.require_below(target, c.acc_rows)
        for n in range(c.batch):
            x = k.load(k.offset(k.at(inp, source, c.inp_row_bytes), n * c.block_in), I8, c.block_in)
            wide = b.sext(x, ir.VectorType(I32, c.block_in))
            total: ir.Value = ir.Constant(ir.VectorType(I32, c.block_out), [0] * c.block_out)
            for j in range(c.block_in):
                lane = k.splat(b.extract_element(wide, I32(j)), c.block_out)
                weights = k.load(k.offset(tile, 4 * j * c.block_out), I32, c.block_out)
                total = b.add(total, b.mul(lane, weights))
            row = k.at(acc, target, 4 * c.batch * c.block_out)
            _accumulate(k, k.offset(row, 4 * n * c.block_out), clear, total)


def _check_window(k: Kernel, inp0: ir.Value) -> None:
    """Every row the window mode reads exists, also the ones no firing uses."""
    with (
        k.loop(k.field("n_y")) as iy,
        k.loop(k.field("n_x")) as ix,
        k.loop(k.field("n_t")) as it,
    ):
        strides = ((iy, k.field("inp_y")), (ix, k.field("inp_x")), (it, k.field("inp_t")))
        k.require_below(k.row(inp0, *strides), k.config.inp_rows)


def _slide(k: Kernel, tile: ir.Value, inp0: ir.Value, acc0: ir.Value, clear: ir.Value) -> None:
    """The inner loops of window mode: one firing, one accumulator row."""
    c, b = k.config, k.builder
    inp, acc = k.buffer_pointer(Buffer.INP), k.state_pointer(ACC)
    vector = ir.VectorType(I32, c.block_out)
    first, step, n_t = k.field("first"), k.field("step"), k.field("n_t")
    _check_window(k, inp0)
    # ceil((n_x - (first - 1)) / step), not below 0: the loop below runs not at all then
    firings = b.sdiv(b.add(b.sub(k.field("n_x"), first), step), step)
    with k.loop(k.field("n_y")) as iy, k.loop(firings) as iz:
        column = b.add(b.sub(first, I64(1)), b.mul(iz, step))
        target = k.row(acc0, (iy, k.field("acc_y")), (iz, k.field("acc_x")))
        k.require_below(target, c.acc_rows)
        for n in range(c.batch):
            row = k.at(acc, target, 4 * c.batch * c.block_out)
            destination = k.offset(row, 4 * n * c.block_out)
            zero = ir.Constant(vector, [0] * c.block_out)
            old = b.select(clear, zero, k.load(destination, I32, c.block_out))
            k.store(old, destination)
            # window[back * n_t + newer] is the row of column - back, newest t first
            with k.loop(first) as back, k.loop(n_t) as newer:
                strides = (
                    (iy, k.field("inp_y")),
                    (b.sub(column, back), k.field("inp_x")),
                    (b.sub(b.sub(n_t, I64(1)), newer), k.field("inp_t")),
                )
                source = k.at(inp, k.row(inp0, *strides), c.inp_row_bytes)
                x = k.load(k.offset(source, n * c.block_in), I8, c.block_in)
                lanes = k.pick(x, [o % c.block_in for o in range(c.block_out)])
                tap = b.add(b.mul(back, n_t), newer)
                weights = k.load(k.at(tile, tap, 4 * c.block_out), I32, c.block_out)
                product = b.mul(b.sext(lanes, vector), weights)
                k.store(b.add(k.load(destination, I32, c.block_out), product), destination)


def emit_gemm(k: Kernel) -> None:
    c, b = k.config, k.builder
    tile = k.frame(ir.ArrayType(I32, c.block_in * c.block_out))
    window = b.icmp_signed("!=", k.field("window"), I64(0))
    if not c.window:
        k.require(b.not_(window))
    with b.if_then(window):
        product = b.mul(b.mul(k.field("first"), k.field("n_t")), k.field("step"))
        k.require(b.icmp_signed(">", product, I64(0)))
        taps = b.mul(k.field("first"), k.field("n_t"))
        k.require(b.icmp_signed("<=", taps, I64(c.block_in)))
    wgt = k.buffer_pointer(Buffer.WGT)
    keep = b.icmp_signed("!=", k.field("accumulate"), I64(0))
    # no rows: no tile is read either
    rows = b.icmp_signed(">", b.mul(k.field("n_y"), k.field("n_x")), I64(0))
    with (
        k.loop(b.select(rows, k.field("n_o"), I64(0))) as io,
        k.loop(k.field("n_k0")) as i0,
        k.loop(k.field("n_k1")) as i1,
        k.loop(k.field("n_k2")) as i2,
    ):
        indices = tuple(zip((io, i0, i1, i2), _TILE_LOOPS, strict=True))
        inp0 = k.row(k.field("inp"), *((i, k.field(f"inp_{n}")) for i, n in indices))
        wgt0 = k.row(k.field("wgt"), *((i, k.field(f"wgt_{n}")) for i, n in indices))
        acc0 = k.row(k.field("acc"), (io, k.field("acc_o")))
        k.require_below(wgt0, c.wgt_rows)
        _widen_tile(k, tile, k.at(wgt, wgt0, c.wgt_row_bytes))
        later = b.icmp_signed("!=", b.or_(b.or_(i0, i1), i2), I64(0))
        clear = b.not_(b.or_(keep, later))
        with b.if_else(window) as (then, otherwise):
            with then:
                _slide(k, tile, inp0, acc0, clear)
            with otherwise:
                _stream(k, tile, inp0, acc0, clear)
