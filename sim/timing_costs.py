"""What each instruction costs its unit, from its fields alone, for a whole program at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelc.isa.config import AccelConfig
from accelc.isa.spec import Buffer, Opcode, Source
from accelc.sim.descriptors import Descriptors
from accelc.sim.timing_hazards import hazard_stalls

Values = NDArray[np.int64]


@dataclass(frozen=True)
class Costs:
    """Per instruction, shape ``(instructions,)``; 0 where a unit has no such cost.

    Members:
        beats: bus beats a LOAD or STORE moves.
        bursts: bursts it takes to move them.
        pads: scratchpad beats a LOAD fills without the bus.
        gaps: runs of padding that interrupt its data.
        lead: those of ``pads`` that come before its first data.
        tiles: weight tiles of a GEMM.
        rows: input rows a GEMM streams past each tile.
        fires: rows of a GEMM, over all tiles, that make the array compute.
        hazards: cycles a GEMM waits for accumulators still being written.
        chunks: cycles an ALU reads operands.
        from_acc: 1 where ALU reads the accumulators.
    """

    beats: Values
    bursts: Values
    pads: Values
    gaps: Values
    lead: Values
    tiles: Values
    rows: Values
    fires: Values
    hazards: Values
    chunks: Values
    from_acc: Values


def _bursts(
    dram: Values,
    run: Values,
    n1: Values,
    n2: Values,
    stride1: Values,
    stride2: Values,
    longest: int,
) -> Values:
    """Bursts of strided transfers: runs that touch are joined, none crosses ``longest`` bytes."""
    joined = (stride1 == run) | (n1 == 1)
    run = np.where(joined, run * n1, run)
    stride1 = np.where(joined, run, stride1)
    n1 = np.where(joined, 1, n1)
    planes = joined & ((stride2 == run) | (n2 == 1))
    run = np.where(planes, run * n2, run)
    n2 = np.where(planes, 1, n2)
    # The first run's alignment stands for all: strides are mostly multiples of the burst.
    touched = (dram % longest + run + longest - 1) // longest
    return np.where(run > 0, touched * n1 * n2, 0)


def costs(config: AccelConfig, d: Descriptors) -> Costs:
    """Derive all costs of a decoded program."""
    n = len(d)

    def spread(opcode: Opcode, values: NDArray[np.number]) -> NDArray:
        whole = np.zeros(n, values.dtype)
        whole[d.rows_of(opcode)] = values
        return whole

    bus = config.bus_bytes
    longest = min(config.max_burst_beats * bus, 4096)

    def get(opcode: Opcode, *names: str) -> list[Values]:
        return [d.column(opcode, name) for name in names]

    row_beats = np.array([config.row_bytes(buffer) // bus for buffer in Buffer])
    op = Opcode.LOAD
    beat = row_beats[np.minimum(d.column(op, "buffer"), row_beats.size - 1)]
    n0, n1, n2, dram, stride1, stride2 = get(op, "n0", "n1", "n2", "dram", "stride1", "stride2")
    top, bottom, left, right = get(op, "pad_top", "pad_bottom", "pad_left", "pad_right")
    beats = spread(op, n0 * n1 * n2 * beat)
    bursts = spread(op, _bursts(dram, n0 * beat * bus, n1, n2, stride1, stride2, longest))
    pads = spread(op, (top + bottom + n2 * (left + right)) * beat)
    gaps = spread(op, np.where(left + right > 0, n2, 0))
    lead = spread(op, (top + np.where(n2 > 0, left, 0)) * beat)

    op = Opcode.STORE
    n0, n1, n2, dram, stride1, stride2 = get(op, "n0", "n1", "n2", "dram", "stride1", "stride2")
    beats += spread(op, n0 * n1 * n2 * config.vec_row_bytes // bus)
    run = n0 * config.vec_row_bytes
    bursts += spread(op, _bursts(dram, run, n1, n2, stride1, stride2, longest))

    op = Opcode.GEMM
    n_o, k0, k1, k2, n_y, n_x, n_t = get(op, "n_o", "n_k0", "n_k1", "n_k2", "n_y", "n_x", "n_t")
    window, accumulate, first, step = get(op, "window", "accumulate", "first", "step")
    tiles = n_o * k0 * k1 * k2
    columns = np.where(window == 1, np.maximum((n_x - first + step) // np.maximum(step, 1), 0), n_x)
    fires = tiles * n_y * columns
    reading = np.where(accumulate == 1, tiles, tiles - n_o)
    spacing = np.where(window == 1, n_t * step, 1)
    acc_y, acc_x = get(op, "acc_y", "acc_x")
    hazards = reading * np.array(
        [
            hazard_stalls(*nest)
            for nest in zip(
                *(v.tolist() for v in (n_y, columns, acc_y, acc_x, spacing)), strict=True
            )
        ],
        np.int64,
    )

    op_alu = Opcode.ALU
    n0, n1, n2, n_ky, n_kx = get(op_alu, "n0", "n1", "n2", "n_ky", "n_kx")
    source, add = get(op_alu, "source", "add")
    # vin has one port: a second operand from there takes a cycle of its own.
    reads = n_ky * n_kx + ((add == 1) & (source == Source.VIN))
    per_row = config.batch * config.block_out // config.vector_lanes
    return Costs(
        beats=beats,
        bursts=bursts,
        pads=pads,
        gaps=gaps,
        lead=lead,
        tiles=spread(op, tiles),
        rows=spread(op, n_y * n_x * np.where(window == 1, n_t, 1)),
        fires=spread(op, fires),
        hazards=spread(op, hazards),
        chunks=spread(op_alu, n0 * n1 * n2 * reads * per_row),
        from_acc=spread(op_alu, (source == Source.ACC).astype(np.int64)),
    )
