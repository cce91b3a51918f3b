"""What a caller of the quantizer decides."""

from dataclasses import dataclass

from accelc.compiler.quantize.observers import DEFAULT_PERCENTILE, OBSERVERS
from accelc.isa.errors import InputError

EQUALIZATIONS = ("none", "weights", "activations")
AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the caller decides; ``auto`` takes what measures best.

    Members:
        observer: a name of ``OBSERVERS``, or ``auto``.
        percent: share of the numbers that the observer ``percentile`` covers.
        equalization: one of ``EQUALIZATIONS``, or ``auto``.
        bias_correction: None is auto.
        keep_float: names of nodes that stay float.
        max_drop: percentage points of accuracy the network may lose; layers that cost more stay
            float.
        sensitivity: also measure every layer alone.
    """

    observer: str = AUTO
    percent: float = DEFAULT_PERCENTILE
    equalization: str = AUTO
    bias_correction: bool | None = None
    keep_float: tuple[str, ...] = ()
    max_drop: float | None = None
    sensitivity: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("observer", tuple(OBSERVERS)), ("equalization", EQUALIZATIONS)):
            if getattr(self, name) not in (AUTO, *allowed):
                choices = ", ".join((AUTO, *allowed))
                raise InputError(f"{name} must be one of {choices}, not {getattr(self, name)!r}")
        if not 50.0 < self.percent <= 100.0:
            raise InputError(f"a percentile must be above 50 and at most 100, not {self.percent}")
        if self.max_drop is not None and not self.max_drop >= 0:
            raise InputError(f"the largest accuracy drop must not be negative: {self.max_drop}")
