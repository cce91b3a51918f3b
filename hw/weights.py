"""Weight sequencer: fills the array's shadow tile ahead of the rows that need it."""

from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from accelc.hw.loops import LoopNest
from accelc.hw.scratchpad import READ_CYCLES, WgtRead
from accelc.isa.config import AccelConfig

#: Loops of GEMM that name a weight tile each, with the bits of their counts, outermost first.
TILE_LOOPS = {"o": 12, "k0": 12, "k1": 8, "k2": 8}


def tile_nest() -> LoopNest:
    """The nest whose positions are the weight tiles of a GEMM."""
    return LoopNest(TILE_LOOPS, {"wgt": tuple(TILE_LOOPS)})


class WeightSequencer(wiring.Component):
    """Reads every tile of an instruction, one ``block_in``-byte row a cycle, into the shadow tile.

    A tile is ``ready`` in the cycle its last row is read: a row issued then reaches the array after
    the weights have. In the cycle after ``take`` the next tile's first row may already be read: it
    reaches the shadow when the row that swaps reaches the array. So a tile takes ``block_out``
    cycles and hides behind ``block_out`` or more streamed rows.

    Members
    -------
    start : ``In(1)``
        Begin an instruction's tiles. Only while ``idle``; ``params`` and ``mask`` must hold until
        ``idle`` again.
    idle : ``Out(1)``
        The last tile of the instruction has begun to be read.
    params : ``In(tile_nest().params_layout)``
    mask : ``In(block_in)``
        Bit ``j`` clear: weights ``[:, j]`` count as 0.
    ready : ``Out(1)``
        The shadow tile is filled, as far as a row issued now can tell.
    take : ``In(1)``
        Only while ``ready``: a row that swaps tiles is issued.
    range_error : ``Out(1)``
        A tile lies beyond ``wgt_rows``. It is not read and the sequencer stays there.
    wgt_read : ``Out(WgtRead)``
    shadow_en, shadow_row, shadow_data : ``Out``
        As :class:`accelc.hw.mac.MacArray` has them.
    """

    start: Signal
    idle: Signal
    params: data.View
    mask: Signal
    ready: Signal
    take: Signal
    range_error: Signal
    wgt_read: wiring.PureInterface
    shadow_en: Signal
    shadow_row: Signal
    shadow_data: Signal

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        self.nest = tile_nest()
        super().__init__(
            {
                "start": In(1),
                "idle": Out(1),
                "params": In(self.nest.params_layout),
                "mask": In(config.block_in),
                "ready": Out(1),
                "take": In(1),
                "range_error": Out(1),
                "wgt_read": Out(WgtRead(config)),
                "shadow_en": Out(1),
                "shadow_row": Out(ceil_log2(config.block_out)),
                "shadow_data": Out(config.block_in * 8),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        m.submodules.nest = nest = self.nest
        m.d.comb += [
            nest.start.eq(self.start),
            nest.params.eq(self.params),
            self.idle.eq(nest.idle & ~nest.o.valid),
        ]
        tile_bits = ceil_log2(config.wgt_rows)
        wanted = nest.o.payload.row.wgt

        reading = Signal()
        occupied = Signal()
        tile = Signal(tile_bits, reset_less=True)
        row = Signal(ceil_log2(config.block_out))
        mask = Signal(config.block_in, reset_less=True)
        may_load = nest.o.valid & (~occupied | self.take)
        load = Signal()
        m.d.comb += [
            self.range_error.eq(may_load & wanted[tile_bits:].any()),
            load.eq(may_load & ~wanted[tile_bits:].any()),
            nest.o.ready.eq(load),
        ]
        last_row = config.block_out - 1
        with m.If(reading):
            m.d.sync += row.eq(row + 1)
            with m.If(row == last_row):
                m.d.sync += reading.eq(0)
            with m.If(row == last_row - 1):
                m.d.sync += self.ready.eq(1)
        with m.If(self.take):
            m.d.sync += [occupied.eq(0), self.ready.eq(0)]
        with m.If(load):
            m.d.sync += [
                occupied.eq(1),
                reading.eq(1),
                tile.eq(wanted),
                row.eq(0),
                mask.eq(self.mask),
            ]
        m.d.comb += [self.wgt_read.en.eq(reading), self.wgt_read.addr.eq(Cat(row, tile))]

        # The mask changes with the first row of a tile, as late as the row's data come.
        arrived, arrived_row = reading, row
        arrived_mask = Signal(config.block_in, reset_less=True)
        for cycle in range(READ_CYCLES):
            if cycle == READ_CYCLES - 1:
                with m.If(arrived & (arrived_row == 0)):
                    m.d.sync += arrived_mask.eq(mask)
            arrived_q, row_q = Signal(), Signal.like(row)
            m.d.sync += [arrived_q.eq(arrived), row_q.eq(arrived_row)]
            arrived, arrived_row = arrived_q, row_q
        m.d.comb += [self.shadow_en.eq(arrived), self.shadow_row.eq(arrived_row)]
        for j in range(config.block_in):
            byte = self.wgt_read.data[j * 8 : j * 8 + 8]
            masked = byte & arrived_mask[j].replicate(8) if config.window else byte
            m.d.comb += self.shadow_data[j * 8 : j * 8 + 8].eq(masked)
        return m
