"""PLL settings are within the data sheets' ranges and give the exact frequency."""

import re
from fractions import Fraction

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal

from accelc.boards.board import Family
from accelc.boards.build.phase import CLOCK_TO_OUT_NS, sdram_phase
from accelc.boards.primitives.clocks import MHZ, add_pll, pll_settings
from accelc.isa.errors import ConfigError

#: Family, device, input and output in MHz.
CASES = [
    (Family.ICE40, "iCE40UP5K", 12, 40.5),
    (Family.ICE40, "iCE40UP5K", 12, 48),
    (Family.ECP5, "LFE5U-85F", 25, 100),
    (Family.ECP5, "LFE5U-25F", 25, 62.5),
    (Family.GOWIN, "GW2AR-18C", 27, 81),
    (Family.GOWIN, "GW1NR-9C", 27, 54),
]


@pytest.mark.parametrize(("family", "device", "source", "wanted"), CASES)
def test_exact_and_within_ranges(family: Family, device: str, source: float, wanted: float) -> None:
    s = pll_settings(family, device, int(source * MHZ), int(wanted * MHZ))
    assert s.output_hz == wanted * MHZ
    comparator = Fraction(s.input_hz, s.reference)
    if family is Family.ICE40:
        assert comparator * s.feedback == s.vco_hz == s.output_hz * 2**s.post
        assert 533 * MHZ <= s.vco_hz <= 1066 * MHZ and 10 * MHZ <= comparator <= 133 * MHZ
    else:
        assert comparator * s.feedback == s.output_hz and s.vco_hz == s.output_hz * s.post
        low, high = (400, 800) if family is Family.ECP5 else (400, 1250)
        assert low * MHZ <= s.vco_hz <= high * MHZ


def test_impossible_frequencies_name_their_neighbours() -> None:
    with pytest.raises(ConfigError, match=r"cannot make 101 MHz from 25 MHz.*100 and 112\.5 MHz"):
        pll_settings(Family.ECP5, "LFE5U-25F", 25 * MHZ, 101 * MHZ)
    with pytest.raises(ConfigError, match=r"nearest it can make: 8\.4375 MHz$"):
        pll_settings(Family.ICE40, "iCE40UP5K", 12 * MHZ, 1 * MHZ)


def parameters(family: Family, device: str, source: float, wanted: float, phase: float):
    """Name to value of the PLL's parameters in RTLIL."""
    settings = pll_settings(family, device, int(source * MHZ), int(wanted * MHZ))
    m, pin = Module(), Signal()
    pll = add_pll(m, settings, pin, phase)
    text = rtlil.convert(m, ports=[pin, pll.clock, pll.shifted, pll.locked])
    return dict(re.findall(r"parameter \\(\w+) (.*)", text))


@pytest.mark.parametrize("phase", [0, 90, 247.5, 288, 345])
def test_ecp5_phase(phase: float) -> None:
    values = parameters(Family.ECP5, "LFE5U-85F", 25, 100, phase)
    post = int(values["CLKOS_DIV"])
    assert int(values["CLKOP_DIV"]) == post and int(values["CLKOP_CPHASE"]) == post - 1
    periods = int(values["CLKOS_CPHASE"]) - (post - 1) + int(values["CLKOS_FPHASE"]) / 8
    # to the nearest eighth of a period of the VCO
    assert abs(periods / post * 360 - phase) <= 360 / post / 16 + 1e-9


@pytest.mark.parametrize("phase", [0, 180, 225])
def test_gowin_phase(phase: float) -> None:
    values = parameters(Family.GOWIN, "GW2AR-18C", 27, 81, phase)
    rising, falling = int(values["PSDA_SEL"][1:-1], 2), int(values["DUTYDA_SEL"][1:-1], 2)
    assert rising * 22.5 == phase and (falling - rising) % 16 == 8
    assert values["FCLKIN"] == '"27"' and values["DEVICE"] == '"GW2AR-18C"'


@pytest.mark.parametrize("mhz", [25, 54, 62.5, 100, 125])
def test_sdram_phase_has_margins(mhz: float) -> None:
    period, phase = 1e3 / mhz, sdram_phase(int(mhz * MHZ)) / 360
    for clock_to_out in CLOCK_TO_OUT_NS:
        command = phase * period + clock_to_out
        assert command < period + clock_to_out - 0.8  # hold of the data sheets
        first = (phase + 1) * period + clock_to_out + 6.0
        last = (phase + 2) * period + clock_to_out + 2.5
        assert first < 3 * period < last


def test_sdram_phase_ends_somewhere() -> None:
    with pytest.raises(ConfigError, match="at 150 MHz; the fastest is 133 MHz"):
        sdram_phase(150 * MHZ)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_ice40_has_no_phase() -> None:
    with pytest.raises(ConfigError, match="one clock; its phase is 0, not 90"):
        parameters(Family.ICE40, "iCE40UP5K", 12, 48, 90)
