"""ALU as native code: the vector pipeline on ``block_in`` lanes at a time.

``vin`` and ``out`` keep a row as ``(block_out / block_in, batch, block_in)``, so a group of
``block_in`` lanes is contiguous in every scratchpad.
"""

from llvmlite import ir

from accelc.isa.spec import Buffer, Source
from accelc.sim.native_ir import ACC, I8, I32, I64, OUT, Kernel

#: The loop nest over rows, outermost first.
_ROW_LOOPS = ("0", "1", "2")


def _wide(k: Kernel) -> ir.VectorType:
    return ir.VectorType(I64, k.config.block_in)


def _constant(k: Kernel, value: int) -> ir.Constant:
    return ir.Constant(_wide(k), [value] * k.config.block_in)


def _scalar(k: Kernel, name: str) -> ir.Value:
    """A field in every lane."""
    return k.splat(k.field(name), k.config.block_in)


def _clamp(k: Kernel, x: ir.Value, low: str, high: str) -> ir.Value:
    b = k.builder
    lower, upper = _scalar(k, low), _scalar(k, high)
    x = b.select(b.icmp_signed("<", x, lower), lower, x)
    return b.select(b.icmp_signed(">", x, upper), upper, x)


def _round_shift(k: Kernel, value: ir.Value, shift: ir.Value, parity: ir.Value) -> ir.Value:
    """``isa.semantics.round_shift`` on int64 lanes.

    Half to even as ``(value + half - 1 + odd) >> shift``, where ``odd`` tells whether the floor is
    odd: the sum carries into the quotient above a half, and at a half only if ``odd``.
    """
    b = k.builder
    one = _constant(k, 1)
    # As in the definition: 62 rounds to 0 already, and keeps the sum within int64.
    limit = _constant(k, 62)
    shift = b.select(b.icmp_signed(">", shift, limit), limit, shift)
    odd = b.and_(b.add(b.ashr(value, shift), parity), one)
    zero = b.icmp_signed("==", shift, _constant(k, 0))
    half = b.shl(one, b.select(zero, _constant(k, 0), b.sub(shift, one)))
    rounded = b.ashr(b.add(value, b.add(b.sub(half, one), odd)), shift)
    return b.select(zero, value, rounded)


def _flag(k: Kernel, name: str) -> ir.Value:
    return k.builder.icmp_signed("!=", k.field(name), I64(0))


def _maximum(k: Kernel, s: ir.Value, group_byte: ir.Value) -> ir.Value:
    """Maximum over the window of vin rows that starts at row ``s``."""
    c, b = k.config, k.builder
    vin = k.buffer_pointer(Buffer.VIN)
    vector = ir.VectorType(I8, c.block_in)
    # Stored in a slot of the frame: the loop helper carries no values.
    slot = k.frame(vector)
    k.store(ir.Constant(vector, [-128] * c.block_in), slot)
    with k.loop(k.field("n_ky")) as iy, k.loop(k.field("n_kx")) as ix:
        row = k.row(s, (iy, k.field("src_ky")), (ix, k.field("src_kx")))
        k.require_below(row, c.vin_rows)
        x = k.load(k.offset(k.at(vin, row, c.vec_row_bytes), group_byte), I8, c.block_in)
        best = k.load(slot, I8, c.block_in)
        k.store(b.select(b.icmp_signed(">", x, best), x, best), slot)
    return b.sext(k.load(slot, I8, c.block_in), _wide(k))


def _requantize(k: Kernel, x: ir.Value, i0: ir.Value, first_lane: ir.Value) -> ir.Value:
    """``round(wrap32(x + bias) * mult / 2**shift) + a_zero``."""
    c, b = k.config, k.builder
    row = k.row(k.field("prm"), (i0, k.field("prm_0")))
    k.require_below(row, c.prm_rows)
    entry = k.at(k.buffer_pointer(Buffer.PRM), row, c.prm_row_bytes)
    pairs = k.load(k.offset(entry, b.mul(first_lane, I64(8))), I32, 2 * c.block_in)
    bias = k.pick(pairs, list(range(0, 2 * c.block_in, 2)))
    packed = b.zext(k.pick(pairs, list(range(1, 2 * c.block_in, 2))), _wide(k))
    mult = b.and_(packed, _constant(k, 0xFFFFFF))
    shift = b.and_(b.lshr(packed, _constant(k, 24)), _constant(k, 0x3F))
    narrow = ir.VectorType(I32, c.block_in)
    wrapped = b.sext(b.add(b.trunc(x, narrow), bias), _wide(k))
    zero = _scalar(k, "a_zero")
    parity = b.select(_flag(k, "a_inside"), zero, _constant(k, 0))
    return b.add(_round_shift(k, b.mul(wrapped, mult), shift, parity), zero)


def _add(k: Kernel, x: ir.Value, v: ir.Value) -> ir.Value:
    """``round((x*m1 + v*m2 + offset) / 2**b_shift) + b_zero``, clamped."""
    b = k.builder
    total = b.add(b.mul(x, _scalar(k, "m1")), b.mul(v, _scalar(k, "m2")))
    total = b.add(total, _scalar(k, "offset"))
    x = _round_shift(k, total, _scalar(k, "b_shift"), _constant(k, 0))
    return _clamp(k, b.add(x, _scalar(k, "b_zero")), "b_min", "b_max")


def _look_up(k: Kernel, x: ir.Value) -> ir.Value:
    b = k.builder
    table = k.buffer_pointer(Buffer.LUT)
    looked = x
    for lane in range(k.config.block_in):
        entry = b.add(b.extract_element(x, I32(lane)), I64(128))
        value = b.load(k.offset(table, entry), typ=I8)
        looked = b.insert_element(looked, b.sext(value, I64), I32(lane))
    return looked


def _group(k: Kernel, indices: tuple[ir.Value, ...], v: ir.Value, n: ir.Value) -> None:
    """One row's lanes ``v * block_in`` to ``(v + 1) * block_in`` of image ``n``."""
    c, b = k.config, k.builder
    rows = {
        name: k.row(
            k.field(name),
            *((i, k.field(f"{name}_{s}")) for i, s in zip(indices, _ROW_LOOPS, strict=True)),
        )
        for name in ("src", "vin", "dst")
    }
    first_lane = b.mul(v, I64(c.block_in))
    group_byte = b.mul(b.add(b.mul(v, I64(c.batch)), n), I64(c.block_in))
    slot = k.frame(_wide(k))
    with b.if_else(b.icmp_signed("==", k.field("source"), I64(int(Source.ACC)))) as (acc, vin):
        with acc:
            k.require_below(rows["src"], c.acc_rows)
            row = k.at(k.state_pointer(ACC), rows["src"], 4 * c.batch * c.block_out)
            lane = b.add(b.mul(n, I64(c.block_out)), first_lane)
            x = k.load(k.at(row, lane, 4), I32, c.block_in)
            k.store(b.sext(x, _wide(k)), slot)
        with vin:
            k.store(_maximum(k, rows["src"], group_byte), slot)
    with b.if_then(_flag(k, "scale")):
        k.store(_requantize(k, k.load(slot, I64, c.block_in), indices[0], first_lane), slot)
    k.store(_clamp(k, k.load(slot, I64, c.block_in), "a_min", "a_max"), slot)
    with b.if_then(_flag(k, "add")):
        k.require_below(rows["vin"], c.vin_rows)
        row = k.at(k.buffer_pointer(Buffer.VIN), rows["vin"], c.vec_row_bytes)
        second = k.load(k.offset(row, group_byte), I8, c.block_in)
        k.store(_add(k, k.load(slot, I64, c.block_in), b.sext(second, _wide(k))), slot)
    with b.if_then(_flag(k, "lut")):
        k.store(_look_up(k, k.load(slot, I64, c.block_in)), slot)
    k.require_below(rows["dst"], c.out_rows)
    target = k.offset(k.at(k.state_pointer(OUT), rows["dst"], c.vec_row_bytes), group_byte)
    narrow = b.trunc(k.load(slot, I64, c.block_in), ir.VectorType(I8, c.block_in))
    k.store(narrow, target)


def emit_alu(k: Kernel) -> None:
    c, b = k.config, k.builder
    one_tap = b.icmp_signed("==", b.mul(k.field("n_ky"), k.field("n_kx")), I64(1))
    from_vin = b.icmp_signed("!=", k.field("source"), I64(int(Source.ACC)))
    taps = b.icmp_signed(">", b.mul(k.field("n_ky"), k.field("n_kx")), I64(0))
    k.require(taps)
    k.require(b.or_(from_vin, b.and_(_flag(k, "scale"), one_tap)))
    for feature in ("add", "lut"):
        if not getattr(c, feature):
            k.require(b.not_(_flag(k, feature)))
    with (
        k.loop(k.field("n0")) as i0,
        k.loop(k.field("n1")) as i1,
        k.loop(k.field("n2")) as i2,
        k.loop(c.vec_inp_rows) as v,
        k.loop(c.batch) as n,
    ):
        _group(k, (i0, i1, i2), v, n)
