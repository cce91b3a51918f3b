"""Choose tiles: the cheapest that fit the scratchpads twice, so that loads overlap with compute.

Every candidate's cost is the larger of what the matrix unit, the vector unit and memory need, edge
tiles included, plus what nothing can overlap: the first tile's loads and the last tile's result.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.integer import ConvAttrs
from accelc.compiler.layout import ceil_div
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.errors import DoesNotFitError

Counts = NDArray[np.int64]
#: Cycles between instructions of a unit: decode, tokens, filling and draining the pipeline.
INSTRUCTION_CYCLES = 24
#: Cycles from asking memory to what it answers, and from a unit to the next one: token, start.
LATENCY_CYCLES = 100
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
    depthwise: bool = False

    @property
    def output_size(self) -> tuple[int, int]:
        return self.conv.output_size(self.height, self.width)


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


def even_splits(size: int, limit: int = MAX_COUNT) -> list[int]:
    """Tile sizes that split ``size`` in 1, 2, 3, ... nearly equal parts, largest first."""
    sizes = {ceil_div(size, parts) for parts in range(1, min(size, 64) + 1)}
    part = 64
    while part < size:
        part *= 2
        sizes.add(ceil_div(size, part))
    sizes.add(1)
    return sorted((s for s in sizes if s <= limit), reverse=True)


def _loaded(outputs: Counts, taps: int, stride: int, dilation: int) -> Counts:
    if taps == 1:
        return outputs
    return np.where(outputs == 1, taps, (outputs - 1) * stride + (taps - 1) * dilation + 1)


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
        DoesNotFitError: not even one output of one tap fits twice.
    """
    kh, kw = shape.conv.kernel
    best: ConvTile | None = None
    for taps_y, taps_x in _tap_splits(kh, kw):
        tile = _best_conv(shape, config, taps_y, taps_x)
        if tile is not None and (best is None or tile.cycles < best.cycles):
            best = tile
        if best is not None:
            break
    if best is None:
        raise DoesNotFitError(
            f"no tile of a {kh}x{kw} convolution fits {config.name}; "
            "raise inp_rows, wgt_rows or acc_rows"
        )
    return best


def _tap_splits(kh: int, kw: int) -> list[tuple[int, int]]:
    """Whole kernel first, then whole lines of it, then parts of a line."""
    return [(y, kw) for y in even_splits(kh, MAX_TAPS) if kw <= MAX_TAPS] + [
        (1, x) for x in even_splits(kw, MAX_TAPS)
    ]


def _best_conv(shape: ConvShape, config: AccelConfig, taps_y: int, taps_x: int) -> ConvTile | None:
    conv, (oh, ow) = shape.conv, shape.output_size
    kh, kw = conv.kernel
    axes = [
        np.array(values, np.int64)
        for values in (
            even_splits(oh),
            even_splits(ow),
            even_splits(shape.blocks_out),
            even_splits(shape.blocks_in),
            range(3),
        )
    ]
    th, tw, to, ti, mode = (a.reshape(-1) for a in np.meshgrid(*axes, indexing="ij"))
    keep_w, keep_i = mode == 1, mode == 2

    rows = th * tw
    fits = (rows * to * 2 <= config.acc_rows) & (rows * to * 2 <= config.out_rows)
    fits &= (to * 2 <= config.prm_rows) & (ti <= MAX_COUNT)
    if shape.residual:
        fits &= rows * to * 2 <= config.vin_rows
    positions = _loaded(th, taps_y, conv.stride[0], conv.dilation[0]) * _loaded(
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
    chunk = np.clip(np.minimum(chunk, config.wgt_rows // (2 * taps)), 1, None)
    # with memory as the bottleneck quarters run more smoothly than halves
    fits &= 2 * chunk * taps <= config.wgt_rows
    fits &= ~keep_w | (to * all_taps + 2 * chunk * taps <= config.wgt_rows)
    kept_window = np.where(
        n_sp > 1, 2 * whole_window, whole_window + np.where(n_k > 1, 2, 0) * window
    )
    fits &= ~keep_i | (kept_window <= config.inp_rows)
    fits &= (2 * window <= config.inp_rows) | (keep_i & (n_sp * n_k == 1))
    if not fits.any():
        return None

    row_cycles = config.inp_row_bytes / config.bus_bytes
    vec_cycles = config.vec_row_bytes / config.bus_bytes
    lane_cycles = max(1, config.batch * config.block_out // config.vector_lanes)
    padded = shape.groups * _padded_rows(oh, th, ow, tw, config.block_out)
    gemms = n_sp * n_oc * n_k * -(-to // chunk)
    compute = padded * all_taps * shape.blocks_out + gemms * INSTRUCTION_CYCLES
    input_loads = n_sp * n_k * np.where(keep_i | (n_oc == 1), 1, n_oc)
    line = np.where(ti == shape.pitch, positions // _loaded(th, taps_y, *_y(conv)), 1)
    window_cycles = _runs(positions // line, line * ti * row_cycles, READ_RUN_CYCLES)
    weight_loads = np.where(keep_w | (n_sp == 1), 1, n_sp)
    weight_row = config.wgt_row_bytes / config.bus_bytes
    outputs = shape.groups * oh * ow * shape.blocks_out
    read = input_loads * window_cycles + shape.blocks_out * all_taps * weight_row * weight_loads
    if shape.residual:
        read = read + outputs * vec_cycles
    line = np.where(to == shape.blocks_out, tw, 1)
    tile_cycles = _runs(rows // line, line * to * vec_cycles, WRITE_RUN_CYCLES)
    alus = n_sp * n_oc * -(-to // chunk)
    stores = n_sp * n_oc * (2 if shape.residual else 1)
    weights = n_oc * n_k * -(-to // chunk) * weight_loads
    cost = _cost(
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


def _runs(count: Counts, cycles: Any, least: float) -> Any:
    """Cycles of ``count`` runs of memory of ``cycles`` each."""
    return count * np.maximum(cycles, least)


def _cost(
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
    """
    bus = bus + instructions * (INSTRUCTION_BYTES / config.bus_bytes)
    worst = np.maximum(np.maximum(compute, bus), vector)
    # work that hides behind other work still makes it wait now and then: a small weight
    return worst + EXPOSED * (first + last + 2 * LATENCY_CYCLES) + 0.02 * (compute + bus + vector)


def _y(conv: ConvAttrs) -> tuple[int, int]:
    return conv.stride[0], conv.dilation[0]


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


def plane_candidates(height: int, width: int, blocks: int) -> tuple[Counts, Counts, Counts]:
    """Flat arrays of lines, columns and blocks of every candidate tile of an output plane."""
    axes = [np.array(even_splits(size), np.int64) for size in (height, width, blocks)]
    lines, columns, depth = np.meshgrid(*axes, indexing="ij")
    return lines.reshape(-1), columns.reshape(-1), depth.reshape(-1)


def choose_depthwise(shape: ConvShape, config: AccelConfig, cycles_per_tile: Any) -> PlaneTile:
    """The cheapest tile of a depthwise convolution.

    ``cycles_per_tile(lines, columns, taps_y, taps_x)`` gives the matrix unit's cycles for one
    block of a tile of that many outputs.

    Raises:
        DoesNotFitError: not even one output of one tap fits twice.
    """
    kh, kw = shape.conv.kernel
    for taps_y, taps_x in _tap_splits(kh, kw):
        tile = _best_plane(shape, config, taps_y, taps_x, cycles_per_tile)
        if tile is not None:
            return tile
    raise DoesNotFitError(
        f"no tile of a {kh}x{kw} depthwise convolution fits {config.name}; "
        "raise inp_rows or wgt_rows"
    )


def _best_plane(
    shape: ConvShape, config: AccelConfig, taps_y: int, taps_x: int, cycles_per_tile: Any
) -> PlaneTile | None:
    conv, (oh, ow) = shape.conv, shape.output_size
    kh, kw = conv.kernel
    th, tw, tc = plane_candidates(oh, ow, shape.blocks_out)
    v = config.vec_inp_rows
    rows = th * tw
    lines = _loaded(th, taps_y, conv.stride[0], conv.dilation[0])
    positions = lines * _loaded(tw, taps_x, conv.stride[1], conv.dilation[1])
    window = positions * tc * v
    fits = (rows * tc * 2 <= config.acc_rows) & (rows * tc * 2 <= config.out_rows)
    fits &= (window * 2 <= config.inp_rows) & (tc * 2 <= config.prm_rows)
    if shape.residual:
        fits &= rows * tc * 2 <= config.vin_rows
    # weights: at worst one tile for every tap
    fits &= 2 * taps_y * taps_x * v <= config.wgt_rows
    if not fits.any():
        return None
    n_k = ceil_div(kh, taps_y) * ceil_div(kw, taps_x)
    n_tiles = shape.groups * -(-oh // th) * -(-ow // tw) * -(-shape.blocks_out // tc)
    outputs = shape.groups * oh * ow * shape.blocks_out
    per_block = cycles_per_tile(th, tw, taps_y, taps_x)
    chunk = np.clip(-(-GEMM_CYCLES // np.maximum(per_block, 1)), 1, tc)
    chunk = np.clip(np.minimum(chunk, config.wgt_rows // (2 * taps_y * taps_x * v)), 1, None)
    chunks = n_tiles * -(-tc // chunk)
    # edge tiles are charged in proportion
    tiles = shape.groups * (oh / th) * (ow / tw) * shape.blocks_out
    compute = tiles * per_block * n_k + chunks * n_k * INSTRUCTION_CYCLES
    row_cycles = config.inp_row_bytes / config.bus_bytes
    vec_cycles = config.vec_row_bytes / config.bus_bytes
    lane_cycles = max(1, config.batch * config.block_out // config.vector_lanes)
    line = np.where(tc * v == shape.pitch, positions // lines, 1)
    window_cycles = _runs(positions // line, line * tc * v * row_cycles, READ_RUN_CYCLES)
    line = np.where(tc == shape.blocks_out, tw, 1)
    tile_cycles = _runs(rows // line, line * tc * vec_cycles, WRITE_RUN_CYCLES)
    bus = n_tiles * (n_k * window_cycles + tile_cycles)
    if shape.residual:
        bus = bus + outputs * vec_cycles
    cost = _cost(
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
    lines = _loaded(th, taps_y, conv.stride[0], conv.dilation[0])
    positions = lines * _loaded(tw, taps_x, conv.stride[1], conv.dilation[1])
    rows = th * tw * tc
    fits = (positions * tc * 2 <= config.vin_rows) & (rows * 2 <= config.out_rows)
    if not fits.any() or max(taps_y, taps_x) > MAX_TAPS:
        return None
    n_tiles = shape.groups * -(-oh // th) * -(-ow // tw) * -(-shape.blocks_out // tc)
    vec_cycles = config.vec_row_bytes / config.bus_bytes
    lane_cycles = max(1, config.batch * config.block_out // config.vector_lanes)
    outputs = shape.groups * oh * ow * shape.blocks_out
    line = np.where(tc == shape.blocks_out, positions // lines, 1)
    window_cycles = _runs(positions // line, line * tc * vec_cycles, READ_RUN_CYCLES)
    line = np.where(tc == shape.blocks_out, tw, 1)
    tile_cycles = _runs(th * tw // line, line * tc * vec_cycles, WRITE_RUN_CYCLES)
    vector = lane_cycles * taps_y * taps_x
    cost = _cost(
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
