"""Clocks by PLL: the settings that give a frequency, and the cell of each family.

Frequencies are whole hertz and exact: a clock that is off shifts the UART, too. Ranges are from
the data sheets: Lattice FPGA-TN-02052 and DS1040 (iCE40 UltraPlus), FPGA-DS-02012 (ECP5, speed
grade 6), Gowin UG286 with DS117 (GW1NR-9 C6) and DS226 (GW2AR-18 C8).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from amaranth.hdl import Const, Instance, Module, Signal, Value

from accelc.boards.board import Family
from accelc.isa.errors import ConfigError

MHZ = 1_000_000


@dataclass(frozen=True, kw_only=True)
class PllSettings:
    """Dividers of a PLL; what each means is the family's affair."""

    family: Family
    device: str
    input_hz: int
    output_hz: Fraction
    vco_hz: Fraction
    #: Divider of the input, before the phase comparator.
    reference: int
    #: Multiplier, in the feedback.
    feedback: int
    #: Divider from the VCO to the output.
    post: int


def _ice40(device: str, input_hz: int) -> Iterator[PllSettings]:
    """FEEDBACK_PATH SIMPLE: the VCO is the input times ``feedback``, halved ``post`` times."""
    for reference in range(1, 17):
        comparator = Fraction(input_hz, reference)
        if not 10 * MHZ <= comparator <= 133 * MHZ:
            continue
        for feedback in range(1, 129):
            vco = comparator * feedback
            if not 533 * MHZ <= vco <= 1066 * MHZ:
                continue
            for halvings in range(1, 7):
                yield PllSettings(
                    family=Family.ICE40, device=device, input_hz=input_hz, vco_hz=vco,
                    output_hz=vco / 2**halvings, reference=reference, feedback=feedback,
                    post=halvings,
                )  # fmt: skip


def _ecp5(device: str, input_hz: int) -> Iterator[PllSettings]:
    """Feedback from CLKOP: the output is the comparator's frequency times ``feedback``."""
    for reference in range(1, 129):
        comparator = Fraction(input_hz, reference)
        if not 10 * MHZ <= comparator <= 400 * MHZ:
            continue
        for feedback in range(1, 81):
            output = comparator * feedback
            # the VCO in the middle of its range is the most stable
            posts = [p for p in range(1, 129) if 400 * MHZ <= output * p <= 800 * MHZ]
            if posts and output >= Fraction(3125, 1000) * MHZ:
                post = min(posts, key=lambda p: (abs(output * p - 600 * MHZ), p))
                yield PllSettings(
                    family=Family.ECP5, device=device, input_hz=input_hz, vco_hz=output * post,
                    output_hz=output, reference=reference, feedback=feedback, post=post,
                )  # fmt: skip


def _gowin(device: str, input_hz: int) -> Iterator[PllSettings]:
    """rPLL: the output is the input times ``feedback`` / ``reference``, the VCO ``post`` times."""
    low, high = (500 * MHZ, 1250 * MHZ) if device.startswith("GW2A") else (400 * MHZ, 1200 * MHZ)
    for reference in range(1, 65):
        comparator = Fraction(input_hz, reference)
        if not 3 * MHZ <= comparator <= 400 * MHZ:
            continue
        for feedback in range(1, 65):
            output = comparator * feedback
            for post in (2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128):
                if low <= output * post <= high:
                    yield PllSettings(
                        family=Family.GOWIN, device=device, input_hz=input_hz,
                        vco_hz=output * post, output_hz=output, reference=reference,
                        feedback=feedback, post=post,
                    )  # fmt: skip


_SETTINGS = {Family.ICE40: _ice40, Family.ECP5: _ecp5, Family.GOWIN: _gowin}


def frequencies(family: Family, device: str, input_hz: int) -> list[int]:
    """Every whole number of hertz that the PLL can make, ascending."""
    made = {s.output_hz for s in _SETTINGS[family](device, input_hz)}
    return sorted(int(hz) for hz in made if hz.denominator == 1)


def pll_settings(family: Family, device: str, input_hz: int, output_hz: int) -> PllSettings:
    """The PLL settings that make ``output_hz`` from ``input_hz``, the least divided first.

    Raises:
        ConfigError: no setting does; names the nearest frequencies that are possible.
    """
    exact = [s for s in _SETTINGS[family](device, input_hz) if s.output_hz == output_hz]
    if exact:
        return min(exact, key=lambda s: (s.reference, s.feedback))
    possible = frequencies(family, device, input_hz)
    below = [hz for hz in possible if hz < output_hz][-1:]
    above = [hz for hz in possible if hz > output_hz][:1]
    nearest = " and ".join(f"{hz / MHZ:g}" for hz in below + above)
    raise ConfigError(
        f"the PLL of {device} cannot make {output_hz / MHZ:g} MHz from {input_hz / MHZ:g} MHz; "
        f"the nearest it can make: {nearest} MHz"
    )


@dataclass(frozen=True, kw_only=True)
class Pll:
    """Signals of a PLL in a design."""

    clock: Signal
    #: The same frequency, later by the phase that was asked for.
    shifted: Signal
    locked: Signal


def add_pll(m: Module, settings: PllSettings, source: Value, phase_degrees: float = 0.0) -> Pll:
    """Put the PLL into ``m``.

    ``source`` is the clock input: on iCE40 the pad itself, elsewhere a buffered signal. Where
    there is no second output (iCE40) the phase must be 0.
    """
    pll = Pll(
        clock=Signal(name="pll_clock"),
        shifted=Signal(name="pll_shifted"),
        locked=Signal(name="pll_locked"),
    )
    cell = {Family.ICE40: _ice40_cell, Family.ECP5: _ecp5_cell, Family.GOWIN: _gowin_cell}
    m.submodules.pll = cell[settings.family](settings, source, pll, phase_degrees % 360)
    return pll


def _ice40_cell(s: PllSettings, source: Value, pll: Pll, phase_degrees: float) -> Instance:
    if phase_degrees:
        raise ConfigError(f"iCE40 boards have one clock; its phase is 0, not {phase_degrees:g}")
    comparator = s.input_hz / s.reference / MHZ
    limits = (17, 26, 44, 66, 101)
    return Instance(
        "SB_PLL40_PAD",
        p_FEEDBACK_PATH="SIMPLE",
        p_DIVR=Const(s.reference - 1, 4),
        p_DIVF=Const(s.feedback - 1, 7),
        p_DIVQ=Const(s.post, 3),
        p_FILTER_RANGE=Const(1 + sum(comparator >= limit for limit in limits), 3),
        i_PACKAGEPIN=source,
        i_RESETB=Const(1),
        i_BYPASS=Const(0),
        o_PLLOUTGLOBAL=pll.clock,
        o_LOCK=pll.locked,
    )


def _ecp5_cell(s: PllSettings, source: Value, pll: Pll, phase_degrees: float) -> Instance:
    # Phases count eighths of VCO periods; CPHASE of post - 1 is phase 0.
    eighths = round(phase_degrees / 360 * s.post * 8)
    return Instance(
        "EHXPLLL",
        # loop filter as Lattice's own tool sets it for feedback from CLKOP
        a_ICP_CURRENT="12",
        a_LPF_RESISTOR="8",
        a_MFG_ENABLE_FILTEROPAMP="1",
        a_MFG_GMCREF_SEL="2",
        p_PLLRST_ENA="DISABLED",
        p_INTFB_WAKE="DISABLED",
        p_STDBY_ENABLE="DISABLED",
        p_DPHASE_SOURCE="DISABLED",
        p_OUTDIVIDER_MUXA="DIVA",
        p_OUTDIVIDER_MUXB="DIVB",
        p_OUTDIVIDER_MUXC="DIVC",
        p_OUTDIVIDER_MUXD="DIVD",
        p_FEEDBK_PATH="CLKOP",
        p_CLKI_DIV=s.reference,
        p_CLKFB_DIV=s.feedback,
        p_CLKOP_ENABLE="ENABLED",
        p_CLKOP_DIV=s.post,
        p_CLKOP_CPHASE=s.post - 1,
        p_CLKOP_FPHASE=0,
        p_CLKOS_ENABLE="ENABLED",
        p_CLKOS_DIV=s.post,
        p_CLKOS_CPHASE=s.post - 1 + eighths // 8,
        p_CLKOS_FPHASE=eighths % 8,
        i_CLKI=source,
        i_CLKFB=pll.clock,
        i_RST=Const(0),
        i_STDBY=Const(0),
        i_PHASESEL0=Const(0),
        i_PHASESEL1=Const(0),
        i_PHASEDIR=Const(1),
        i_PHASESTEP=Const(1),
        i_PHASELOADREG=Const(1),
        i_PLLWAKESYNC=Const(0),
        i_ENCLKOP=Const(0),
        i_ENCLKOS=Const(0),
        o_CLKOP=pll.clock,
        o_CLKOS=pll.shifted,
        o_LOCK=pll.locked,
    )


def _gowin_cell(s: PllSettings, source: Value, pll: Pll, phase_degrees: float) -> Instance:
    # 16 phases; the falling edge is as many steps after the rising one.
    step = round(phase_degrees / 22.5) % 16
    return Instance(
        "rPLL",
        p_DEVICE=s.device,
        p_FCLKIN=f"{s.input_hz / MHZ:g}",
        p_IDIV_SEL=s.reference - 1,
        p_FBDIV_SEL=s.feedback - 1,
        p_ODIV_SEL=s.post,
        p_DYN_IDIV_SEL="false",
        p_DYN_FBDIV_SEL="false",
        p_DYN_ODIV_SEL="false",
        p_DYN_DA_EN="false",
        p_PSDA_SEL=f"{step:04b}",
        p_DUTYDA_SEL=f"{(step + 8) % 16:04b}",
        p_CLKFB_SEL="internal",
        p_CLKOUT_BYPASS="false",
        p_CLKOUTP_BYPASS="false",
        p_CLKOUTD_BYPASS="false",
        p_DYN_SDIV_SEL=2,
        p_CLKOUTD_SRC="CLKOUT",
        p_CLKOUTD3_SRC="CLKOUT",
        i_CLKIN=source,
        i_CLKFB=Const(0),
        i_RESET=Const(0),
        i_RESET_P=Const(0),
        i_FBDSEL=Const(0, 6),
        i_IDSEL=Const(0, 6),
        i_ODSEL=Const(0, 6),
        i_PSDA=Const(0, 4),
        i_DUTYDA=Const(0, 4),
        i_FDLY=Const(0, 4),
        o_CLKOUT=pll.clock,
        o_CLKOUTP=pll.shifted,
        o_LOCK=pll.locked,
    )
