"""What a configuration costs, estimated: for advice where a design does not fit.

Block RAMs follow from the widths and depths of the scratchpads. LUTs, flip-flops and multipliers
are a linear model of the parameters, fitted to the counts in `MEASURED`, which
``python -m accelc.boards.build.calibrate`` prints. Only differences between configurations are
used, added to the counts of the design that was synthesised, so that what surrounds the core on a
board counts as it is.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from accelc.boards.board import Family
from accelc.boards.build.family import Resource
from accelc.isa.config import PARAM_BYTES, AccelConfig

#: Synthesised cores: parameters that are not the reference's, and resources.
MEASURED: dict[Family, tuple[tuple[dict[str, Any], dict[str, int]], ...]] = {
    Family.ICE40: (),
    Family.ECP5: (),
    Family.GOWIN: (),
}
#: Shapes of one block RAM, (word bits that hold data, words), with one write and one read port.
_SHAPES: dict[Family, tuple[tuple[int, int], ...]] = {
    Family.ICE40: ((16, 256), (8, 512), (4, 1024), (2, 2048)),
    Family.ECP5: ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384)),
    Family.GOWIN: ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384)),
}
#: Where bytes are written one by one, ninth bits go to waste.
_BYTES: dict[Family, tuple[tuple[int, int], ...]] = {
    Family.ICE40: ((8, 512), (16, 256)),
    Family.ECP5: ((32, 512), (16, 1024), (8, 2048)),
    Family.GOWIN: ((32, 512), (16, 1024), (8, 2048)),
}


def _rams(family: Family, bits: int, depth: int, *, part_bits: int) -> int:
    """Block RAMs of a memory that is written in parts of ``part_bits``."""
    shapes = _SHAPES[family] if part_bits == bits else _BYTES[family]
    return min(-(-bits // width) * -(-depth // words) for width, words in shapes)


def scratchpad_rams(family: Family, config: AccelConfig) -> int:
    """Block RAMs of all scratchpads."""
    beat, lanes = config.bus_bytes * 8, config.vector_lanes
    # word bits as a unit reads them, and bytes, of what LOAD writes or STORE reads in beats
    pads = [
        (config.inp_row_bytes * 8, config.inp_rows * config.inp_row_bytes),
        (config.block_in * 8, config.wgt_rows * config.wgt_row_bytes),
        (lanes * PARAM_BYTES * 8, config.prm_rows * config.prm_row_bytes),
        (lanes * 8, config.vin_rows * config.vec_row_bytes),
        (lanes * 8, config.out_rows * config.vec_row_bytes),
    ]
    total = 0
    for word, nbytes in pads:
        bits = max(word, beat)
        total += _rams(family, bits, nbytes * 8 // bits, part_bits=min(word, beat))
    acc_bits = config.batch * config.block_out * 32
    banks = 1 if config.sequential else 2
    acc = _rams(family, acc_bits, config.acc_rows // banks, part_bits=acc_bits)
    return total + banks * acc


def _features(config: AccelConfig) -> tuple[float, ...]:
    lanes = config.vector_lanes
    return (
        1.0,
        float(config.sequential),
        config.macs_per_cycle,
        config.batch * config.block_out,
        lanes,
        lanes * config.add,
        float(config.add),
        float(config.lut),
        float(config.lookahead and not config.sequential),
        config.bus_bytes,
    )


@functools.cache
def _model(family: Family) -> dict[Resource, np.ndarray] | None:
    """Coefficients of `_features` by resource, or None where nothing was measured."""
    measured = MEASURED[family]
    if not measured:
        return None
    rows = np.array([_features(AccelConfig(**values)) for values, _ in measured])
    # scaled columns: of several exact solutions the one with small effects is taken
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1
    model: dict[Resource, np.ndarray] = {}
    for resource in (Resource.LUT, Resource.FF, Resource.DSP):
        counts = np.array([used.get(resource.name, 0) for _, used in measured], dtype=float)
        model[resource] = np.linalg.lstsq(rows / scale, counts, rcond=1e-6)[0] / scale
    return model


@functools.lru_cache(maxsize=10_000)
def core_cost(family: Family, config: AccelConfig) -> dict[Resource, float] | None:
    """Estimated resources of the core alone; None for families of which nothing was measured."""
    model = _model(family)
    if model is None:
        return None
    features = np.array(_features(config))
    cost = {resource: float(features @ weights) for resource, weights in model.items()}
    return cost | {Resource.RAM: float(scratchpad_rams(family, config))}


def estimate(
    family: Family,
    used: Mapping[Resource, int],
    before: AccelConfig,
    after: AccelConfig,
) -> dict[Resource, int] | None:
    """What a design that uses ``used`` with ``before`` would use with ``after``."""
    old, new = core_cost(family, before), core_cost(family, after)
    if old is None or new is None:
        return None
    return {
        resource: max(0, round(count + new.get(resource, 0.0) - old.get(resource, 0.0)))
        for resource, count in used.items()
    }
