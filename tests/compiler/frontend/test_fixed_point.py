"""Multipliers against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from accelc.compiler.fixed_point import Unrepresentable, add_stage, multipliers
from accelc.isa.semantics import round_shift


@pytest.mark.parametrize("seed", range(3))
def test_24_bits_hold_float32_exactly(seed: int) -> None:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    real = np.exp(rng.uniform(np.log(2.0**-39), np.log(2.0**23), 500)).astype(np.float32)
    mult, shift = multipliers(real, 24)
    for value, m, s in zip(real, mult.tolist(), shift.tolist(), strict=True):
        assert 1 << 23 <= m < 1 << 24 and 0 <= s <= 63
        assert Fraction(m, 1 << s) == Fraction(float(value))


@pytest.mark.parametrize("bits", [8, 12, 15, 20])
def test_fewer_bits_round_to_nearest(bits: int) -> None:
    rng = np.random.default_rng(bits)
    real = rng.uniform(1e-6, 3, 500)
    mult, shift = multipliers(real, bits)
    assert mult.max() < 1 << bits and mult.min() >= 1 << (bits - 1)
    assert (np.abs(mult / 2.0**shift / real - 1) <= 2.0**-bits).all()


def test_mantissa_that_rounds_up_to_a_power_of_two() -> None:
    mult, shift = multipliers([1 - 2.0**-20], 8)
    assert (mult.tolist(), shift.tolist()) == ([128], [7])


def test_vanishing_multipliers_are_zero() -> None:
    mult, shift = multipliers([0.0, 1e-30, 2.0**-41, 2.0**-40], 24)
    assert mult.tolist()[:3] == [0, 0, 0] and shift.tolist()[:3] == [0, 0, 0]
    # the largest accumulator times the first one that vanishes still rounds to zero
    assert (2**31) * 2.0**-41 < 0.5
    assert mult[3] == 1 << 23 and shift[3] == 63


@pytest.mark.parametrize("real", [2.0**24, 1e30, np.inf, np.nan, -0.1])
def test_impossible_multipliers(real: float) -> None:
    with pytest.raises(Unrepresentable):
        multipliers([real], 24)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_add_stage_against_exact_arithmetic(seed: int, inside: bool) -> None:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(20):
        ra, rb = np.exp(rng.uniform(-6, 3, 2)) * rng.choice([-1, 1], 2)
        za, zb, zero = (int(z) for z in rng.integers(-128, 128, 3))
        stage = add_stage(ra, rb, za, zb, zero, inside=inside)
        a, b = rng.integers(-128, 128, (2, 1000))
        total = a * stage.m1 + b * stage.m2 + stage.offset
        assert abs(stage.offset) < 1 << 39 and max(abs(stage.m1), abs(stage.m2)) < 1 << 24
        ours = np.clip(round_shift(total, stage.shift) + stage.zero, -128, 127)
        exact = (a - za) * ra + (b - zb) * rb
        exact = np.rint(exact + zero) if inside else np.rint(exact) + zero
        delta = np.abs(ours - np.clip(exact, -128, 127))
        assert delta.max() <= 1
        wrong += int((delta > 0).sum())
    assert wrong <= 2  # of 20,000


def test_powers_of_two_in_the_add_stage_are_exact_at_ties() -> None:
    stage = add_stage(0.5, 0.25, 0, 0, 1, inside=True)
    assert stage.zero == 0 and stage.offset == 1 << stage.shift
    # 0.5 + 1 = 1.5 rounds to 2; with the zero point outside, 0.5 rounds to 0 and gives 1
    assert round_shift(np.array(stage.m1 + stage.offset), stage.shift) == 2


@pytest.mark.parametrize("ratio", [2.0**24, np.inf, np.nan])
def test_impossible_ratios(ratio: float) -> None:
    with pytest.raises(Unrepresentable):
        add_stage(ratio, 1.0, 0, 0, 0, inside=False)
