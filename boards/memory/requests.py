"""AXI bursts become segments: pieces that lie in one row of an SDRAM."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.boards.memory.chips import SdramChip
from accelc.hw.axi import ADDRESS_BITS, PAGE_BYTES
from accelc.isa.config import AccelConfig
from accelc.isa.errors import ConfigError

#: Segments of one direction in a row while the other one waits.
STREAK = 4
LENGTH_BITS = 8
#: An address as a master shows it; its beats lie within a page of 4096 bytes.
ADDRESS = data.StructLayout({"addr": unsigned(ADDRESS_BITS), "len": unsigned(LENGTH_BITS)})


def words_per_beat(config: AccelConfig, chip: SdramChip) -> int:
    """Words of the chip that make up a beat, which are one of its bursts.

    Raises:
        ConfigError: the chip has no such burst.
    """
    words, rest = divmod(config.bus_bytes * 8, chip.data_bits)
    if rest or words not in (1, 2, 4, 8):
        raise ConfigError(
            f"a bus of {config.bus_bytes * 8} bits is not 1, 2, 4 or 8 words of {chip.data_bits} "
            f"bits ({chip.name}); choose bus_bytes accordingly"
        )
    return words


def column_beat_bits(config: AccelConfig, chip: SdramChip) -> int:
    """Bits that number the beats of a row."""
    return chip.column_bits - exact_log2(words_per_beat(config, chip))


def segment_layout(config: AccelConfig, chip: SdramChip) -> data.StructLayout:
    """Beats in one row of one bank.

    ``column`` counts beats, ``left`` is their number - 1; ``last`` ends a burst, ``bad`` says that
    the memory has no such address. Banks follow each other in the address: what is read or written
    in order finds the next bank ready.
    """
    return data.StructLayout(
        {
            "write": unsigned(1),
            "bad": unsigned(1),
            "last": unsigned(1),
            "bank": unsigned(chip.bank_bits),
            "row": unsigned(chip.row_bits),
            "column": unsigned(column_beat_bits(config, chip)),
            "left": unsigned(LENGTH_BITS),
        }
    )


class Requests(wiring.Component):
    """Chooses between read and write bursts and cuts them where a row ends.

    A direction goes on for as long as it has bursts, up to ``STREAK`` of them while the other one
    waits. Writes are not
    chosen before there are data.

    Throughput: one segment per cycle. Latency: 2 cycles.

    Members
    -------
    read, write : In(stream of ADDRESS)
    write_data : In(1)
        Data to write are there.
    o : Out(stream of segment_layout)
    """

    read: stream.Interface
    write: stream.Interface
    write_data: Signal
    o: stream.Interface

    def __init__(self, config: AccelConfig, chip: SdramChip) -> None:
        self._config = config
        self._chip = chip
        super().__init__(
            {
                "read": In(stream.Signature(ADDRESS)),
                "write": In(stream.Signature(ADDRESS)),
                "write_data": In(1),
                "o": Out(stream.Signature(segment_layout(config, chip))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        step = Signal()
        m.d.comb += step.eq(~self.o.valid | self.o.ready)

        # What is left of the burst of each direction, and whose turn it is.
        reads, writes = (Signal(ADDRESS, name=n, reset_less=True) for n in ("reads", "writes"))
        has_read, has_write = Signal(), Signal()
        can_write = Signal()
        turn_write = Signal()
        streak = Signal(range(STREAK + 1))
        tired = Signal()
        choose_write = Signal()
        other_waits = Signal()
        m.d.comb += [
            can_write.eq(has_write & self.write_data),
            tired.eq(streak == STREAK),
            choose_write.eq(can_write & (~has_read | (turn_write ^ tired))),
            other_waits.eq(Mux(choose_write, has_read, can_write)),
        ]
        take = Signal()
        m.d.comb += take.eq(step & (has_read | can_write))
        with m.If(take):
            m.d.sync += turn_write.eq(choose_write)
            with m.If((choose_write == turn_write) & other_waits):
                m.d.sync += streak.eq(streak + 1)
            with m.Else():
                m.d.sync += streak.eq(1)

        done = self._cut(m, take, choose_write, reads, writes)
        for direction, port, burst, has in (
            (~choose_write, self.read, reads, has_read),
            (choose_write, self.write, writes, has_write),
        ):
            m.d.comb += port.ready.eq(~has | (take & direction & done))
            with m.If(port.ready):
                m.d.sync += [has.eq(port.valid), burst.eq(port.payload)]
        with m.If(step):
            m.d.sync += self.o.valid.eq(take)
        return m

    def _cut(
        self, m: Module, take: Signal, choose_write: Signal, reads: data.View, writes: data.View
    ) -> Signal:
        """The chosen burst's beats up to the end of its row; whether those are all of it."""
        chip = self._chip
        beat_log2 = exact_log2(self._config.bus_bytes)
        column_bits = column_beat_bits(self._config, chip)
        page_log2 = beat_log2 + column_bits
        top = page_log2 + chip.bank_bits + chip.row_bits
        burst = Signal(ADDRESS)
        m.d.comb += burst.eq(Mux(choose_write, writes.as_value(), reads.as_value()))
        column = burst.addr[beat_log2:page_log2]
        page = burst.addr[page_log2:]
        done = Signal()
        segment_left = Signal(LENGTH_BITS)
        inside = exact_log2(PAGE_BYTES) - page_log2
        if inside <= 0:
            m.d.comb += [done.eq(1), segment_left.eq(burst.len)]
        else:
            sum_ = Signal(max(LENGTH_BITS, column_bits) + 1)
            m.d.comb += [
                sum_.eq(burst.len + column),
                done.eq(sum_[column_bits:] == 0),
                # all columns after this one, as many as the complement says
                segment_left.eq(Mux(done, burst.len, ~column)),
            ]
            rest = Cat(sum_[:column_bits], sum_[column_bits:] - 1)
            following = Cat((page[:inside] + 1)[:inside], page[inside:])
            for chosen, own in ((~choose_write, reads), (choose_write, writes)):
                with m.If(take & chosen & ~done):
                    m.d.sync += [
                        own.len.eq(rest),
                        own.addr.eq(Cat(Const(0, page_log2), following)),
                    ]
        with m.If(take):
            segment = self.o.payload
            m.d.sync += [
                segment.write.eq(choose_write),
                segment.bad.eq(burst.addr[top:].any()),
                segment.last.eq(done),
                segment.bank.eq(page),
                segment.row.eq(page[chip.bank_bits :]),
                segment.column.eq(column),
                segment.left.eq(segment_left),
            ]
        return done
