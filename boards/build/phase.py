"""When an SDRAM's clock should rise between two edges of ours.

Command and data leave I/O registers at an edge of ``sync`` and the chip takes them at the next
edge of its own clock, which is ``phase`` periods later; so is the chip's data, which the input
register takes at an edge of ``sync`` again. Seen from the edge that put a READ of latency 2 on the
pins, with T the period and times of both clocks' outputs alike:

- the chip takes the command at ``phase`` + clock to out; at T + clock to out it changes, so that
  ``phase`` <= 1 - hold / T;
- two edges of its clock later it sends data: valid from ``phase`` + 1 + (clock to out + access) / T
  until ``phase`` + 2 + (clock to out + output hold) / T; the register takes them at 3, so that
  ``phase`` >= 1 - (clock to out + output hold) / T and <= 2 - (clock to out + access) / T.

The controller counts these as the two cycles of ``memory.io_cycles`` on top of the latency.
"""

from accelc.isa.errors import ConfigError

#: Clock to output of the FPGA's I/O cells, fastest and slowest (ns).
CLOCK_TO_OUT_NS = (2.0, 4.5)
#: Data sheets of the chips: clock to valid data, and for how long the old ones stay (ns).
ACCESS_NS, OUTPUT_HOLD_NS = 6.0, 2.5
#: Wires there and back, and setup of the input register (ns).
ARRIVAL_NS = 1.5
#: Hold of the chip's inputs, and what its clock and its inputs differ on the board (ns).
HOLD_NS = 1.5


def sdram_phase(clock_hz: int) -> float:
    """The phase in degrees, in the middle of what works.

    Raises:
        ConfigError: nothing works at this clock; names the fastest.
    """
    period = 1e9 / clock_hz
    earliest = 1 - (CLOCK_TO_OUT_NS[0] + OUTPUT_HOLD_NS) / period
    arrival = CLOCK_TO_OUT_NS[1] + ACCESS_NS + ARRIVAL_NS
    latest = min(2 - arrival / period, 1 - HOLD_NS / period)
    if earliest > latest:
        fastest = 1e3 / (arrival - CLOCK_TO_OUT_NS[0] - OUTPUT_HOLD_NS)
        raise ConfigError(
            f"no phase of an SDRAM's clock works at {clock_hz / 1e6:g} MHz; "
            f"the fastest is {fastest:.0f} MHz"
        )
    return 360 * (earliest + latest) / 2
