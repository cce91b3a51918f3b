"""How the matrix array multiplies a 32-bit value by a requantization multiplier, digit by digit."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from accelc.hw.layouts import fit
from accelc.hw.scratchpad import ACC_BITS
from accelc.isa.config import AccelConfig

#: The array multiplies int8: factors go in as unsigned digits of 7 bits, the value's top one
#: signed.
DIGIT_BITS = 7
LARGEST_DIGIT = (1 << DIGIT_BITS) - 1


class DigitPlan:
    """Which digits meet where.

    Output ``k`` of the array is digit ``k`` of the product, ``sum(mult[k - j] * value[j])``, so the
    multiplier's digits are its weights, in every row one further. A value of more digits than that
    leaves outputs for takes several passes.

    A multiplier of a few bits more than whole digits need not cost an output. Its top digit's
    product with the value's last digit is added to the output below, 128 times: by a spare column,
    into which the last digit goes ``2^top_bits`` times, as its weight ``2^(7 - top_bits)`` times
    the top digit. The last digit has to be so many bits narrower.
    """

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        digits, top_bits = divmod(config.mult_bits, DIGIT_BITS)
        plain = self._value_digits(digits + (top_bits > 0), config.block_in)
        folded = self._value_digits(digits, config.block_in - 1) if top_bits else 0
        folds = folded * DIGIT_BITS - top_bits > plain * DIGIT_BITS
        #: Bits of the top digit that has no output of its own, or 0.
        self.folded_bits = top_bits if folds else 0
        self.mult_digits = digits + (top_bits > 0)
        self.value_digits = folded if folds else plain
        self.outputs = self.mult_digits + self.value_digits - 1 - folds
        #: Bits of the value that a pass takes.
        self.pass_bits = self.value_digits * DIGIT_BITS - self.folded_bits
        self.passes = -(-ACC_BITS // self.pass_bits)
        #: From the array's sums to :meth:`product`.
        self.product_cycles = (self.outputs - 1).bit_length()

    def _value_digits(self, mult_digits: int, columns: int) -> int:
        useful = -(-ACC_BITS // DIGIT_BITS)
        return min(columns, self._config.block_out - mult_digits + 1, useful)

    def weights(self, mult: Value, load: Value, rows_per_load: int) -> Value:
        """Load number ``load`` of the tile for ``mult``: ``(rows_per_load, block_in)`` int8."""
        digits = [
            fit(mult[low : low + DIGIT_BITS], DIGIT_BITS) for low in range(0, len(mult), DIGIT_BITS)
        ]
        # by row and column
        cells: dict[tuple[int, int], Value] = {
            (j + k, j): digit
            for k, digit in enumerate(digits)
            for j in range(self.value_digits)
            if j + k < self.outputs
        }
        if self.folded_bits:
            shifted = (digits[-1] << DIGIT_BITS - self.folded_bits)[:DIGIT_BITS]
            cells[self.outputs - 1, self.value_digits] = shifted
        weights: list[Value] = []
        for row in range(rows_per_load):
            for column in range(self._config.block_in):
                chosen: Value = Const(0, DIGIT_BITS)
                for (o, j), digit in cells.items():
                    if o % rows_per_load == row and j == column:
                        chosen |= digit & (load == o // rows_per_load).replicate(DIGIT_BITS)
                weights += [chosen, Const(0, 8 - DIGIT_BITS)]
        return Cat(weights)

    def row(self, value: Value, passes: list[Value]) -> Value:
        """Digits of ``value`` for the pass whose bit in ``passes`` is set: ``(block_in,)`` int8."""
        rows = [self._pass_row(value, p * self.pass_bits) for p in range(self.passes)]
        chosen = rows[-1]
        for row, going_on in zip(rows[:-1], passes, strict=False):
            chosen = Mux(going_on, row, chosen)
        return chosen

    def _pass_row(self, value: Value, base: int) -> Value:
        row: list[Value] = [Const(0, 8)] * self._config.block_in
        for j in range(self.value_digits):
            low = base + j * DIGIT_BITS
            high = min(low + DIGIT_BITS, base + self.pass_bits, len(value))
            if low < high:
                digit = value[low:high]
                row[j] = fit(digit.as_signed() if high == len(value) else digit, 8)
        if self.folded_bits:
            row[self.value_digits] = (row[self.value_digits - 1] << self.folded_bits)[:8]
        return Cat(row)

    def product(self, m: Module, sums: list[Signal]) -> Value:
        """The array's outputs, each a digit above the one before, added up; a cycle per level."""
        products = min(self.mult_digits, self.value_digits) + (self.folded_bits > 0)
        bits = (products * LARGEST_DIGIT**2).bit_length() + 1
        terms: list[Value] = [fit(total, bits) for total in sums[: self.outputs]]
        weight = DIGIT_BITS
        for level in range(self.product_cycles):
            merged: list[Value] = []
            for k in range(0, len(terms), 2):
                total = terms[k] if k + 1 == len(terms) else terms[k] + (terms[k + 1] << weight)
                register = Signal(total.shape(), name=f"digits_{level}_{k}", reset_less=True)
                m.d.sync += register.eq(total)
                merged.append(register)
            terms, weight = merged, 2 * weight
        return terms[0]
