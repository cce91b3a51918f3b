"""How the matrix array multiplies a 32-bit value by a requantization multiplier, in numbers."""

from accelc.isa.config import AccelConfig

#: Bits of an accumulator, of which the values are.
VALUE_BITS = 32
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
        self.config = config
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
        self.passes = -(-VALUE_BITS // self.pass_bits)
        #: From the array's sums to ``digits.product``.
        self.product_cycles = (self.outputs - 1).bit_length()

    def _value_digits(self, mult_digits: int, columns: int) -> int:
        useful = -(-VALUE_BITS // DIGIT_BITS)
        return min(columns, self.config.block_out - mult_digits + 1, useful)
