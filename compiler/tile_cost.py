"""What tiles cost: the shapes they cut, the sizes they may have, and the cycles a layer takes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.integer import ConvAttrs
from accelc.compiler.layout import ceil_div
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig

Counts = NDArray[np.int64]
#: Cycles between instructions of a unit: decode, tokens, filling and draining the pipeline.
INSTRUCTION_CYCLES = 24
#: Cycles from asking memory to what it answers, and from a unit to the next one: token, start.
LATENCY_CYCLES = 100
#: The same of a sequential core, whose microprogram decodes; and of each run of memory.
SEQUENTIAL_INSTRUCTION_CYCLES, SEQUENTIAL_RUN_CYCLES = 200, 5
#: Least cycles of a run of memory: with the reference memory's latency, the bursts that may be
#: outstanding (64 reads, 16 writes) keep the bus busy only if runs are this long.
READ_RUN_CYCLES, WRITE_RUN_CYCLES = 1.1, 4.4
#: Cycles that a GEMM should last, so that its overhead is below one per cent.
GEMM_CYCLES = 3000
#: Share of the first loads and the last results that no other layer's work hides.
EXPOSED = 0.5
#: Loop counts of GEMM and ALU are 12 bits, those of taps 8 bits.
MAX_COUNT = 4095
MAX_TAPS = 255
#: Counts and padding of LOAD are 16 bits.
MAX_LOAD_ROWS = 0xFFFF


@dataclass(frozen=True, kw_only=True)
class ConvShape:
    """A convolution in blocks; ``pitch`` and ``blocks_in`` in rows of ``inp``."""

    groups: int
    height: int
    width: int
    blocks_in: int
    blocks_out: int
    conv: ConvAttrs
    #: Rows of ``inp`` of one input pixel in memory.
    pitch: int
    residual: bool = False
    #: GEMMs that every row and tile of weights meet in, one of them for their product.
    passes: int = 1
    #: Rows of ``inp`` and ``wgt`` that the other GEMMs need.
    spare: int = 0

    @property
    def output_size(self) -> tuple[int, int]:
        return self.conv.output_size(self.height, self.width)


def even_splits(size: int, limit: int = MAX_COUNT) -> list[int]:
    """Tile sizes that split ``size`` in 1, 2, 3, ... nearly equal parts, largest first."""
    sizes = {ceil_div(size, parts) for parts in range(1, min(size, 64) + 1)}
    part = 64
    while part < size:
        part *= 2
        sizes.add(ceil_div(size, part))
    sizes.add(1)
    return sorted((s for s in sizes if s <= limit), reverse=True)


def plane_candidates(height: int, width: int, blocks: int) -> tuple[Counts, Counts, Counts]:
    """Flat arrays of lines, columns and blocks of every candidate tile of an output plane."""
    axes = [np.array(even_splits(size), np.int64) for size in (height, width, blocks)]
    lines, columns, depth = np.meshgrid(*axes, indexing="ij")
    return lines.reshape(-1), columns.reshape(-1), depth.reshape(-1)


def loaded(outputs: Counts, taps: int, stride: int, dilation: int) -> Counts:
    """``window.loaded_positions`` for arrays of output counts."""
    if taps == 1:
        return outputs
    return np.where(outputs == 1, taps, (outputs - 1) * stride + (taps - 1) * dilation + 1)


def tap_splits(kh: int, kw: int) -> list[tuple[int, int]]:
    """Whole kernel first, then whole lines of it, then parts of a line."""
    return [(y, kw) for y in even_splits(kh, MAX_TAPS) if kw <= MAX_TAPS] + [
        (1, x) for x in even_splits(kw, MAX_TAPS)
    ]


def copies(config: AccelConfig) -> int:
    """How often a tile must fit: twice, so that loads overlap with compute, where anything does."""
    return 1 if config.sequential else 2


def run_cycles(config: AccelConfig, count: Counts, cycles: Any, least: float) -> Any:
    """Cycles of ``count`` runs of memory of ``cycles`` each."""
    if config.sequential:
        return count * (cycles + SEQUENTIAL_RUN_CYCLES)
    return count * np.maximum(cycles, least)


def layer_cycles(
    config: AccelConfig,
    *,
    compute: Any,
    vector: Any,
    bus: Any,
    instructions: Any,
    first: Any,
    last: Any,
) -> Any:
    """Cycles of a layer: the busiest of matrix unit, vector unit and bus, and what none can hide.

    Reads, writes and the fetch of instructions share the bus. ``first`` are the first tile's loads,
    ``last`` what follows the last tile's sums.
    A sequential core hides nothing.
    """
    if config.sequential:
        return compute + bus + vector + instructions * SEQUENTIAL_INSTRUCTION_CYCLES
    bus = bus + instructions * (INSTRUCTION_BYTES / config.bus_bytes)
    worst = np.maximum(np.maximum(compute, bus), vector)
    # work that hides behind other work still makes it wait now and then: a small weight
    return worst + EXPOSED * (first + last + 2 * LATENCY_CYCLES) + 0.02 * (compute + bus + vector)
