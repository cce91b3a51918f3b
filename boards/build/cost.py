"""What a configuration costs, estimated: for advice where a design does not fit.

Block RAMs follow from the widths and depths of the scratchpads. LUTs, flip-flops and multipliers
are a linear model of the parameters, fitted to the cores of whole boards as Yosys mapped them
(`MEASURED`); the shares of the adder and of the look-up table are the cells of these parts in one
of them. Only differences between configurations are used, added to the counts of the design that
was synthesised, so that what surrounds the core on a board counts as it is.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accelc.boards.board import Family
from accelc.boards.build.family import Resource
from accelc.isa.config import PARAM_BYTES, AccelConfig

_WIDE: dict[str, Any] = {
    "block_in": 16, "block_out": 16, "vector_lanes": 2, "inp_rows": 512, "wgt_rows": 128,
    "acc_rows": 512, "vin_rows": 512, "out_rows": 512, "prm_rows": 64,
}  # fmt: skip
_SMALL: dict[str, Any] = {
    "block_in": 8, "block_out": 8, "vector_lanes": 1, "wgt_rows": 256, "acc_rows": 512,
    "vin_rows": 512, "out_rows": 512, "prm_rows": 64,
}  # fmt: skip
_SEQUENTIAL: dict[str, Any] = {
    "sequential": True, "block_in": 4, "block_out": 4, "bus_bytes": 4, "vector_lanes": 1,
    "add": False, "lut": False, "inp_rows": 512, "wgt_rows": 64, "acc_rows": 256, "vin_rows": 64,
    "out_rows": 256, "prm_rows": 32, "mult_bits": 15,
}  # fmt: skip
#: Synthesised cores: parameters that are not the defaults, multipliers for the array, resources.
MEASURED: dict[Family, tuple[tuple[dict[str, Any], int, dict[str, int]], ...]] = {
    Family.ICE40: ((_SEQUENTIAL, 8, {"LUT": 2577, "FF": 1543, "RAM": 28}),),
    Family.ECP5: (
        (_WIDE, 0, {"LUT": 37008, "FF": 29990, "DSP": 17, "RAM": 70}),
        (_SMALL, 19, {"LUT": 15050, "FF": 13163, "DSP": 28, "RAM": 45}),
    ),
    Family.GOWIN: (
        (_SEQUENTIAL, 16, {"LUT": 2926, "FF": 1844}),
        (_SEQUENTIAL | {"block_in": 8, "block_out": 8}, 64, {"LUT": 5267, "FF": 3192}),
    ),
}


@dataclass(frozen=True)
class _Linear:
    """A resource as a sum: of the core, per MAC, per MAC in LUTs, per lane of each kind."""

    core: float
    mac: float
    soft_mac: float = 0.0
    lane: float = 0.0
    add: float = 0.0
    lut: float = 0.0
    lookahead: float = 0.0

    def of(self, config: AccelConfig, soft_macs: int) -> float:
        lane = self.lane + self.add * config.add + self.lut * config.lut
        return (
            self.core
            + self.mac * config.macs_per_cycle
            + self.soft_mac * soft_macs
            + lane * config.vector_lanes
            + self.lookahead * config.lookahead
        )


#: By kind of core: fitted to `MEASURED`.
_DECOUPLED = {
    Resource.LUT: _Linear(8700, 26, 75, 658, 414, 258),
    Resource.FF: _Linear(6834, 38.6, 40, 576, 475, 153, 900),
}
_IN_ORDER = {
    Resource.LUT: _Linear(2145, 48.8),
    Resource.FF: _Linear(1395, 28),
}
#: An iCE40 has its adders in the LUTs and half as many multipliers.
_IN_ORDER_ICE40 = {
    Resource.LUT: _Linear(1796, 48.8),
    Resource.FF: _Linear(1095, 28),
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
    acc = _rams(family, acc_bits, config.acc_rows, part_bits=acc_bits)
    if not config.sequential:
        acc += _rams(family, acc_bits, config.acc_rows, part_bits=lanes * 32)
    return total + acc


def _vector_dsps(config: AccelConfig) -> int:
    """Multipliers of the vector unit; the sequential core uses the array's."""
    if config.sequential:
        return 0
    return 1 + config.vector_lanes * (4 if config.mult_bits > 17 else 3) * (1 + config.add)


@functools.lru_cache(maxsize=10_000)
def core_cost(family: Family, config: AccelConfig, dsps: int) -> dict[Resource, float]:
    """Estimated resources of the core alone on a device with ``dsps`` multipliers.

    Products for which there is no multiplier are made of LUTs (ECP5), or there are too few.
    """
    model = _DECOUPLED
    if config.sequential:
        model = _IN_ORDER_ICE40 if family is Family.ICE40 else _IN_ORDER
    macs = config.macs_per_cycle // (2 if family is Family.ICE40 else 1)
    vector = _vector_dsps(config)
    soft = max(0, macs + vector - dsps) if family is Family.ECP5 else 0
    return {
        **{resource: linear.of(config, soft) for resource, linear in model.items()},
        Resource.DSP: float(macs + vector - soft),
        Resource.RAM: float(scratchpad_rams(family, config)),
    }


def estimate(
    family: Family,
    used: Mapping[Resource, int],
    dsps: int,
    before: AccelConfig,
    after: AccelConfig,
) -> dict[Resource, int]:
    """What a design that uses ``used`` with ``before`` would use with ``after``."""
    old, new = core_cost(family, before, dsps), core_cost(family, after, dsps)
    return {
        resource: max(0, round(count + new.get(resource, 0.0) - old.get(resource, 0.0)))
        for resource, count in used.items()
    }
