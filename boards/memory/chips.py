"""SDR SDRAM chips, as their data sheets describe them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SdramChip:
    """Geometry and timing of a single-data-rate SDRAM; times in nanoseconds.

    Names follow the data sheets: ``trc`` ACTIVATE to ACTIVATE of one bank, ``trcd`` ACTIVATE to
    READ or WRITE, ``trp`` PRECHARGE to ACTIVATE, ``tras`` ACTIVATE to PRECHARGE (minimum and
    maximum), ``twr`` last data in to PRECHARGE, ``trrd`` ACTIVATE to ACTIVATE of another bank,
    ``trfc`` REFRESH to ACTIVATE or REFRESH.
    """

    name: str
    #: Data sheet and revision the figures are from.
    source: str
    data_bits: int
    bank_bits: int
    row_bits: int
    column_bits: int
    #: Shortest clock period at each CAS latency (cycles).
    min_period_ns: dict[int, float]
    trc_ns: float
    trcd_ns: float
    trp_ns: float
    tras_min_ns: float
    tras_max_ns: float
    twr_ns: float
    trrd_ns: float
    trfc_ns: float
    #: Cycles that ``twr`` lasts at least: most data sheets count it in cycles.
    twr_cycles: int = 2
    #: Cycles between MODE REGISTER SET and the next command.
    tmrd_cycles: int = 2
    #: All rows must be refreshed within this time.
    refresh_ms: float = 64.0
    #: Pause after power up before the first command.
    init_us: float = 200.0

    @property
    def nbytes(self) -> int:
        return (self.data_bits // 8) << (self.bank_bits + self.row_bits + self.column_bits)
