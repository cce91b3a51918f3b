"""A chip's times in cycles of a clock."""

import math
from dataclasses import dataclass

from accelc.boards.memory.chips import SdramChip
from accelc.isa.errors import ConfigError

#: Refreshes that may be overdue before one is forced; the interval is shortened so that even then
#: every row is refreshed in time.
MAX_OWED = 8


def cycles(ns: float, clock_hz: int) -> int:
    """The fewest cycles that last at least ``ns``; a millionth of a cycle is rounding noise."""
    return math.ceil(ns * clock_hz / 1e9 - 1e-6)


def cas_latency(chip: SdramChip, clock_hz: int) -> int:
    """The shortest CAS latency the chip has at this clock.

    Raises:
        ConfigError: the clock is too fast for every latency.
    """
    period_ns = 1e9 / clock_hz
    possible = [cl for cl, shortest in chip.min_period_ns.items() if shortest <= period_ns + 1e-6]
    if not possible:
        fastest = 1e3 / min(chip.min_period_ns.values())
        raise ConfigError(
            f"{chip.name} runs at up to {fastest:.1f} MHz, not at {clock_hz / 1e6:.1f}; "
            "lower the board's clock"
        )
    return min(possible)


@dataclass(frozen=True, kw_only=True)
class SdramTiming:
    """Distances between commands in cycles; 1 means in consecutive cycles.

    ``burst`` is the words of a READ or WRITE. Where one distance follows from two rules it is the
    longer one, so that the controller counts once.
    """

    cas: int
    burst: int
    #: PRECHARGE to ACTIVATE or REFRESH.
    precharge: int
    #: ACTIVATE to READ or WRITE, and to the next ACTIVATE of any other bank.
    activate: int
    #: ACTIVATE to PRECHARGE of the same bank. Together with `precharge` it is at least tRC.
    active: int
    #: READ or WRITE to PRECHARGE of the same bank.
    read_to_precharge: int
    write_to_precharge: int
    #: READ to WRITE: the chip's last word, a cycle to turn the bus around, the first word.
    read_to_write: int
    #: REFRESH to REFRESH or ACTIVATE.
    refresh: int
    #: MODE REGISTER SET to any command.
    mode: int
    #: Between two refreshes, on average.
    refresh_interval: int
    #: From power-up to the first command.
    power_up: int

    @classmethod
    def of(cls, chip: SdramChip, clock_hz: int, *, burst: int) -> "SdramTiming":
        """The fastest timing the chip's data sheet allows at this clock.

        Raises:
            ConfigError: the chip is not specified for it.
        """

        def n(ns: float) -> int:
            return cycles(ns, clock_hz)

        cas = cas_latency(chip, clock_hz)
        precharge = max(n(chip.trp_ns), 1)
        # A decision takes effect two cycles later, and so does the count of this distance.
        activate = max(n(chip.trcd_ns), n(chip.trrd_ns), 2)
        active = max(n(chip.tras_min_ns), n(chip.trc_ns) - precharge, activate)
        write_recovery = max(n(chip.twr_ns), chip.twr_cycles, 1)
        rows = 1 << chip.row_bits
        interval_ns = chip.refresh_ms * 1e6 / (rows + MAX_OWED)
        return cls(
            cas=cas,
            burst=burst,
            precharge=precharge,
            activate=activate,
            active=active,
            read_to_precharge=max(burst, active - activate),
            write_to_precharge=max(burst - 1 + write_recovery, active - activate),
            read_to_write=cas + burst + 1,
            refresh=max(n(chip.trfc_ns), 1),
            mode=max(chip.tmrd_cycles, 1),
            refresh_interval=math.floor(interval_ns * clock_hz / 1e9),
            power_up=n(chip.init_us * 1e3),
        )
