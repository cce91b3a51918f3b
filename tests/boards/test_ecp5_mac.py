"""The ECP5's array against the portable one, cycle by cycle, with a model of its multiplier."""

import dataclasses
import shutil
from collections.abc import Callable

import pytest

from accelc.boards.board import Family
from accelc.isa.config import PRESETS

pytestmark = [
    pytest.mark.rtl,
    pytest.mark.skipif(
        not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make"
    ),
]

#: Configuration and multipliers that are MULT18X18D.
CASES = {
    "controls in copies": (dataclasses.replace(PRESETS["1x8x8"], block_out=16), 3),
    "all in LUTs": (PRESETS["1x4x4"], 0),
    "some in LUTs": (PRESETS["1x4x8"], 5),
    "batch": (dataclasses.replace(PRESETS["1x4x4"], batch=2), 32),
    "without window": (dataclasses.replace(PRESETS["1x4x4"], window=False), 16),
}


@pytest.mark.parametrize("case", CASES)
def test_same_sums_as_the_portable_array(case: str, compare_arrays: Callable[..., str]) -> None:
    config, dsps = CASES[case]
    design = compare_arrays(Family.ECP5, config, dsps)
    assert design.count(" MULT18X18D ") == dsps
