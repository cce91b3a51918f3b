"""Choose tiles of dense convolutions: the cheapest that fit the scratchpads twice.

Twice, so that loads overlap with compute. Every candidate's cost is the larger of what the matrix
unit, the vector unit and memory need, edge tiles included, plus what nothing can overlap: the first
tile's loads and the last tile's result. In a sequential core nothing overlaps: tiles fit once, and
all they need adds up.
"""

from dataclasses import dataclass

import numpy as np

from accelc.compiler.integer import ConvAttrs
from accelc.compiler.layout import ceil_div
from accelc.compiler.tile_cost import (
    GEMM_CYCLES,
    INSTRUCTION_CYCLES,
    MAX_LOAD_ROWS,
    READ_RUN_CYCLES,
    WRITE_RUN_CYCLES,
    ConvShape,
    Counts,
    copies,
    even_splits,
    layer_cycles,
    loaded,
    plane_candidates,
    run_cycles,
    tap_splits,
)
from accelc.isa.config import AccelConfig
from accelc.isa.errors import DoesNotFitError


@dataclass(frozen=True, kw_only=True)
class ConvTile:
    """One tile: ``lines`` by ``columns`` outputs of ``blocks_out`` blocks, from ``blocks_in``
    blocks and ``taps_y`` by ``taps_x`` taps at a time; GEMMs of ``chunk`` output blocks.

    With ``keep_weights`` the weights of a tile's output blocks stay while all outputs are computed;
    with ``keep_input`` the input of a tile's outputs stays while all output blocks are computed.
    """

    lines: int
    columns: int
    blocks_out: int
    blocks_in: int
    taps_y: int
    taps_x: int
    chunk: int
    keep_weights: bool
    keep_input: bool
    cycles: int


def _padded_rows(size: int, tile: Counts, other: int, other_tile: Counts, least: int) -> Counts:
    """Sum over all tiles of an output plane of ``max(rows of the tile, least)``."""
    total = np.zeros_like(tile)
    for a, count_a in ((tile, size // tile), (size % tile, np.minimum(size % tile, 1))):
        for b, count_b in (
            (other_tile, other // other_tile),
            (other % other_tile, np.minimum(other % other_tile, 1)),
        ):
            total = total + count_a * count_b * np.maximum(a * b, least)
    return total


def choose_conv(shape: ConvShape, config: AccelConfig) -> ConvTile:
    """The cheapest tile of a dense convolution.

    Raises:
        DoesNotFitError: not even one output of one tap fits as often as it must.
    """
    kh, kw = shape.conv.kernel
    for taps_y, taps_x in tap_splits(kh, kw):
        tile = _best_conv(shape, config, taps_y, taps_x)
        if tile is not None:
            return tile
    raise DoesNotFitError(
        f"no tile of a {kh}x{kw} convolution fits {config.name}; "
        "raise inp_rows, wgt_rows or acc_rows"
    )


def _best_conv(shape: ConvShape, config: AccelConfig, taps_y: int, taps_x: int) -> ConvTile | None:
    conv, (oh, ow) = shape.conv, shape.output_size
    kh, kw = conv.kernel
    th, tw, to = plane_candidates(oh, ow, shape.blocks_out)
    twice = copies(config)
    inp_rows, wgt_rows = config.inp_rows - shape.spare, config.wgt_rows - shape.spare
    fits = th * tw * to * twice <= min(config.acc_rows, config.out_rows)
    fits &= to * twice <= config.prm_rows
    if shape.residual:
        fits &= th * tw * to * twice <= config.vin_rows
    depths = np.array(even_splits(shape.blocks_in), np.int64)
    place, depth, mode = (
        a.reshape(-1)
        for a in np.meshgrid(np.flatnonzero(fits), depths, np.arange(3), indexing="ij")
    )
    th, tw, to, ti = th[place], tw[place], to[place], depth
    keep_w, keep_i = mode == 1, mode == 2

    rows = th * tw
    positions = loaded(th, taps_y, conv.stride[0], conv.dilation[0]) * loaded(
        tw, taps_x, conv.stride[1], conv.dilation[1]
    )
    window = positions * ti
    whole_window = positions * shape.blocks_in * ceil_div(kh, taps_y) * ceil_div(kw, taps_x)
    n_sp = shape.groups * -(-oh // th) * -(-ow // tw)
    n_oc = -(-shape.blocks_out // to)
    n_k = -(-shape.blocks_in // ti) * ceil_div(kh, taps_y) * ceil_div(kw, taps_x)
    taps = ti * taps_y * taps_x
    all_taps = shape.blocks_in * kh * kw
    # a chunk of output blocks: long enough a GEMM, but at most a half of the weights' scratchpad
    chunk = np.clip(
        -(-GEMM_CYCLES // np.maximum(np.maximum(rows, config.block_out) * taps, 1)), 1, to
    )
    chunk = np.clip(np.minimum(chunk, wgt_rows // (twice * taps)), 1, None)
    fits = (twice * chunk * taps <= wgt_rows) & (window <= MAX_LOAD_ROWS)
    ahead = twice * chunk * taps if twice > 1 else 0
    fits &= ~keep_w | (to * all_taps + ahead <= wgt_rows)
    kept_window = np.where(
        n_sp > 1, twice * whole_window, whole_window + np.where(n_k > 1, 2, 0) * window
    )
    fits &= ~keep_i | (kept_window <= inp_rows)
    fits &= (twice * window <= inp_rows) | (keep_i & (n_sp * n_k == 1))
    if not fits.any():
        return None

    row_cycles = config.inp_row_bytes / config.bus_bytes
    vec_cycles = config.vec_row_bytes / config.bus_bytes
    lane_cycles = max(1, config.batch * config.block_out // config.vector_lanes)
    padded = shape.groups * _padded_rows(oh, th, ow, tw, config.block_out)
    gemms = n_sp * n_oc * n_k * -(-to // chunk) * shape.passes
    compute = padded * all_taps * shape.blocks_out * shape.passes + gemms * INSTRUCTION_CYCLES
    input_loads = n_sp * n_k * np.where(keep_i | (n_oc == 1), 1, n_oc)
    line = np.where(ti == shape.pitch, positions // loaded(th, taps_y, *_y(conv)), 1)
    window_cycles = run_cycles(config, positions // line, line * ti * row_cycles, READ_RUN_CYCLES)
    weight_loads = np.where(keep_w | (n_sp == 1), 1, n_sp)
    weight_row = config.wgt_row_bytes / config.bus_bytes
    outputs = shape.groups * oh * ow * shape.blocks_out
    read = input_loads * window_cycles + shape.blocks_out * all_taps * weight_row * weight_loads
    if shape.residual:
        read = read + outputs * vec_cycles
    line = np.where(to == shape.blocks_out, tw, 1)
    tile_cycles = run_cycles(config, rows // line, line * to * vec_cycles, WRITE_RUN_CYCLES)
    alus = n_sp * n_oc * -(-to // chunk)
    stores = n_sp * n_oc * (2 if shape.residual else 1)
    weights = n_oc * n_k * -(-to // chunk) * weight_loads
    cost = layer_cycles(
        config,
        compute=compute,
        vector=outputs * lane_cycles + alus * INSTRUCTION_CYCLES,
        bus=read + n_sp * n_oc * tile_cycles,
        instructions=input_loads + weights + gemms + alus + stores,
        first=window_cycles + chunk * taps * weight_row,
        last=tile_cycles + rows * chunk * lane_cycles,
    )
    cost = np.where(fits, cost, np.inf)
    i = int(np.argmin(cost))
    return ConvTile(
        lines=int(th[i]),
        columns=int(tw[i]),
        blocks_out=int(to[i]),
        blocks_in=int(ti[i]),
        taps_y=taps_y,
        taps_x=taps_x,
        chunk=int(chunk[i]),
        keep_weights=bool(keep_w[i]),
        keep_input=bool(keep_i[i]),
        cycles=int(cost[i]),
    )


def _y(conv: ConvAttrs) -> tuple[int, int]:
    return conv.stride[0], conv.dilation[0]
