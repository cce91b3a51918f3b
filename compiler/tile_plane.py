"""Choose tiles of operators that reduce no channels: depthwise convolutions and maximum pools."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accelc.compiler.layout import ceil_div
from accelc.compiler.tile_cost import (
    GEMM_CYCLES,
    INSTRUCTION_CYCLES,
    MAX_TAPS,
    READ_RUN_CYCLES,
    WRITE_RUN_CYCLES,
    ConvShape,
    Counts,
    copies,
    layer_cycles,
    loaded,
    plane_candidates,
    run_cycles,
    tap_splits,
)
from accelc.isa.config import AccelConfig
from accelc.isa.errors import DoesNotFitError

#: Cycles of the matrix unit for one block of a tile, from its lines, columns and taps (y, x).
TileCycles = Callable[[Counts, Counts, int, int], Counts]


@dataclass(frozen=True, kw_only=True)
class PlaneTile:
    """A tile of an operator without channel reduction: outputs of some blocks, all or some taps."""

    lines: int
    columns: int
    blocks: int
    taps_y: int
    taps_x: int
    chunk: int = 1
    cycles: int = 0


def choose_depthwise(
    shape: ConvShape, config: AccelConfig, cycles_per_tile: TileCycles
) -> PlaneTile:
    """The cheapest tile of a depthwise convolution.

    ``cycles_per_tile(lines, columns, taps_y, taps_x)`` gives the matrix unit's cycles for one
    block of a tile of that many outputs.

    Raises:
        DoesNotFitError: not even one output of one tap fits twice.
    """
    kh, kw = shape.conv.kernel
    for taps_y, taps_x in tap_splits(kh, kw):
        tile = _best_plane(shape, config, taps_y, taps_x, cycles_per_tile)
        if tile is not None:
            return tile
    raise DoesNotFitError(
        f"no tile of a {kh}x{kw} depthwise convolution fits {config.name}; "
        "raise inp_rows or wgt_rows"
    )


def _best_plane(
    shape: ConvShape, config: AccelConfig, taps_y: int, taps_x: int, cycles_per_tile: TileCycles
) -> PlaneTile | None:
    conv, (oh, ow) = shape.conv, shape.output_size
    kh, kw = conv.kernel
    th, tw, tc = plane_candidates(oh, ow, shape.blocks_out)
    v = config.vec_inp_rows
    rows = th * tw
    lines = loaded(th, taps_y, conv.stride[0], conv.dilation[0])
    positions = lines * loaded(tw, taps_x, conv.stride[1], conv.dilation[1])
    window = positions * tc * v
    twice = copies(config)
    fits = (rows * tc * twice <= config.acc_rows) & (rows * tc * twice <= config.out_rows)
    fits &= (window * twice <= config.inp_rows) & (tc * twice <= config.prm_rows)
    if shape.residual:
        fits &= rows * tc * twice <= config.vin_rows
    # weights: at worst one tile for every tap
    fits &= twice * taps_y * taps_x * v <= config.wgt_rows
    if not fits.any():
        return None
    n_k = ceil_div(kh, taps_y) * ceil_div(kw, taps_x)
    n_tiles = shape.groups * -(-oh // th) * -(-ow // tw) * -(-shape.blocks_out // tc)
    outputs = shape.groups * oh * ow * shape.blocks_out
    per_block = cycles_per_tile(th, tw, taps_y, taps_x)
    chunk = np.clip(-(-GEMM_CYCLES // np.maximum(per_block, 1)), 1, tc)
    chunk = np.clip(np.minimum(chunk, config.wgt_rows // (twice * taps_y * taps_x * v)), 1, None)
    chunks = n_tiles * -(-tc // chunk)
    # edge tiles are charged in proportion
    tiles = shape.groups * (oh / th) * (ow / tw) * shape.blocks_out
    compute = tiles * per_block * n_k + chunks * n_k * INSTRUCTION_CYCLES
    row_cycles = config.inp_row_bytes / config.bus_bytes
    vec_cycles = config.vec_row_bytes / config.bus_bytes
    lane_cycles = max(1, config.batch * config.block_out // config.vector_lanes)
    line = np.where(tc * v == shape.pitch, positions // lines, 1)
    run = line * tc * v * row_cycles
    window_cycles = run_cycles(config, positions // line, run, READ_RUN_CYCLES)
    line = np.where(tc == shape.blocks_out, tw, 1)
    tile_cycles = run_cycles(config, rows // line, line * tc * vec_cycles, WRITE_RUN_CYCLES)
    bus = n_tiles * (n_k * window_cycles + tile_cycles)
    if shape.residual:
        bus = bus + outputs * vec_cycles
    cost = layer_cycles(
        config,
        compute=compute,
        vector=outputs * lane_cycles + chunks * INSTRUCTION_CYCLES,
        bus=bus,
        instructions=n_tiles * (n_k + 1) + chunks * (n_k + 1),
        first=window_cycles + per_block,
        last=tile_cycles + rows * tc * lane_cycles,
    )
    cost = np.where(fits, cost, np.inf)
    i = int(np.argmin(cost))
    return PlaneTile(
        lines=int(th[i]),
        columns=int(tw[i]),
        blocks=int(tc[i]),
        taps_y=taps_y,
        taps_x=taps_x,
        chunk=int(chunk[i]),
        cycles=int(cost[i]),
    )


def choose_pool(
    shape: ConvShape, config: AccelConfig, taps_y: int, taps_x: int
) -> PlaneTile | None:
    """The cheapest tile of a maximum pool of that many taps, or None if none fits."""
    conv, (oh, ow) = shape.conv, shape.output_size
    th, tw, tc = plane_candidates(oh, ow, shape.blocks_out)
    lines = loaded(th, taps_y, conv.stride[0], conv.dilation[0])
    positions = lines * loaded(tw, taps_x, conv.stride[1], conv.dilation[1])
    rows = th * tw * tc
    twice = copies(config)
    fits = (positions * tc * twice <= config.vin_rows) & (rows * twice <= config.out_rows)
    if not fits.any() or max(taps_y, taps_x) > MAX_TAPS:
        return None
    n_tiles = shape.groups * -(-oh // th) * -(-ow // tw) * -(-shape.blocks_out // tc)
    vec_cycles = config.vec_row_bytes / config.bus_bytes
    lane_cycles = max(1, config.batch * config.block_out // config.vector_lanes)
    outputs = shape.groups * oh * ow * shape.blocks_out
    line = np.where(tc == shape.blocks_out, positions // lines, 1)
    window_cycles = run_cycles(config, positions // line, line * tc * vec_cycles, READ_RUN_CYCLES)
    line = np.where(tc == shape.blocks_out, tw, 1)
    tile_cycles = run_cycles(config, th * tw // line, line * tc * vec_cycles, WRITE_RUN_CYCLES)
    vector = lane_cycles * taps_y * taps_x
    cost = layer_cycles(
        config,
        compute=0,
        vector=outputs * vector + n_tiles * INSTRUCTION_CYCLES,
        bus=n_tiles * (window_cycles + tile_cycles),
        instructions=3 * n_tiles,
        first=window_cycles,
        last=tile_cycles + rows * vector,
    )
    i = int(np.argmin(np.where(fits, cost, np.inf)))
    return PlaneTile(
        lines=int(th[i]),
        columns=int(tw[i]),
        blocks=int(tc[i]),
        taps_y=taps_y,
        taps_x=taps_x,
        cycles=int(cost[i]),
    )
