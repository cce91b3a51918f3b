"""What quantizing a network did, as one object: tables and JSON are made from it."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LayerResult:
    """One layer of the network.

    Members:
        form: ``int8`` or ``float``.
        reason: why it is float; empty for int8.
        low, high, scale, zero_point: what the layer's output covers, and how; None in float.
        weight_bits: of its constant weights, None without.
        sqnr_db: of its output in the finished network against the float network; None unmeasured.
        alone_sqnr_db, alone_drop: the network's output SQNR, and the points of accuracy lost, with
            only this layer quantized; None unmeasured.
    """

    name: str
    op: str
    kind: str
    form: str
    reason: str = ""
    low: float | None = None
    high: float | None = None
    scale: float | None = None
    zero_point: int | None = None
    weight_bits: int | None = None
    sqnr_db: float | None = None
    alone_sqnr_db: float | None = None
    alone_drop: float | None = None


@dataclass(frozen=True)
class Candidate:
    """One way of choosing ranges that was tried, and the network's output SQNR with it."""

    observer: str
    equalization: str
    bias_correction: bool
    sqnr_db: float


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Share of labelled samples whose class came out largest, 0 to 1."""

    samples: int
    float_share: float
    quantized_share: float

    @property
    def drop_points(self) -> float:
        """Percentage points that quantization costs; negative where it gains."""
        return 100.0 * (self.float_share - self.quantized_share)


@dataclass(frozen=True, kw_only=True)
class QuantizationReport:
    """Everything ``accelc quantize`` can say about a finished network.

    Members:
        samples: how many calibrated it.
        chosen: the candidate that was taken, of ``candidates``.
        output_sqnr_db: of the network's outputs, finished against float.
        accelerator_nodes, cpu_nodes, accelerator_mac_share: where it runs once compiled.
        constant_bytes: weights and other constants, float and quantized.
    """

    network: str
    config: str
    samples: int
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    layers: tuple[LayerResult, ...]
    output_sqnr_db: float
    accuracy: Accuracy | None
    accelerator_nodes: int
    cpu_nodes: int
    accelerator_mac_share: float
    constant_bytes: tuple[int, int]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON: infinite ratios, where nothing was lost, are None."""
        result = _finite(dataclasses.asdict(self))
        if self.accuracy is not None:
            result["accuracy"]["drop_points"] = self.accuracy.drop_points
        return result


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
