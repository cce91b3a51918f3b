"""How the matrix array multiplies a 32-bit value by a requantization multiplier, digit by digit."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from accelc.hw.layouts import fit
from accelc.hw.sequential.digit_plan import DIGIT_BITS, LARGEST_DIGIT, DigitPlan


def weight_rows(plan: DigitPlan, mult: Value, load: Value, rows_per_load: int) -> Value:
    """Load number ``load`` of the tile for ``mult``: ``(rows_per_load, block_in)`` int8."""
    digits = [
        fit(mult[low : low + DIGIT_BITS], DIGIT_BITS) for low in range(0, len(mult), DIGIT_BITS)
    ]
    # by row and column
    cells: dict[tuple[int, int], Value] = {
        (j + k, j): digit
        for k, digit in enumerate(digits)
        for j in range(plan.value_digits)
        if j + k < plan.outputs
    }
    if plan.folded_bits:
        shifted = (digits[-1] << DIGIT_BITS - plan.folded_bits)[:DIGIT_BITS]
        cells[plan.outputs - 1, plan.value_digits] = shifted
    rows: list[Value] = []
    for row in range(rows_per_load):
        for column in range(plan.config.block_in):
            chosen: Value = Const(0, DIGIT_BITS)
            for (o, j), digit in cells.items():
                if o % rows_per_load == row and j == column:
                    chosen |= digit & (load == o // rows_per_load).replicate(DIGIT_BITS)
            rows += [chosen, Const(0, 8 - DIGIT_BITS)]
    return Cat(rows)


def digit_row(plan: DigitPlan, value: Value, passes: list[Value]) -> Value:
    """Digits of ``value`` for the pass whose bit in ``passes`` is set: ``(block_in,)`` int8."""
    rows = [_digits_from(plan, value, p * plan.pass_bits) for p in range(plan.passes)]
    chosen = rows[-1]
    for digits, going_on in zip(rows[:-1], passes, strict=False):
        chosen = Mux(going_on, digits, chosen)
    return chosen


def _digits_from(plan: DigitPlan, value: Value, base: int) -> Value:
    row: list[Value] = [Const(0, 8)] * plan.config.block_in
    for j in range(plan.value_digits):
        low = base + j * DIGIT_BITS
        high = min(low + DIGIT_BITS, base + plan.pass_bits, len(value))
        if low < high:
            digit = value[low:high]
            row[j] = fit(digit.as_signed() if high == len(value) else digit, 8)
    if plan.folded_bits:
        row[plan.value_digits] = (row[plan.value_digits - 1] << plan.folded_bits)[:8]
    return Cat(row)


def product(m: Module, plan: DigitPlan, sums: list[Signal]) -> Value:
    """The array's outputs, each a digit above the one before, added up; a cycle per level."""
    products = min(plan.mult_digits, plan.value_digits) + (plan.folded_bits > 0)
    bits = (products * LARGEST_DIGIT**2).bit_length() + 1
    terms: list[Value] = [fit(total, bits) for total in sums[: plan.outputs]]
    weight = DIGIT_BITS
    for level in range(plan.product_cycles):
        merged: list[Value] = []
        for k in range(0, len(terms), 2):
            total = terms[k] if k + 1 == len(terms) else terms[k] + (terms[k + 1] << weight)
            register = Signal(total.shape(), name=f"digits_{level}_{k}", reset_less=True)
            m.d.sync += register.eq(total)
            merged.append(register)
        terms, weight = merged, 2 * weight
    return terms[0]
