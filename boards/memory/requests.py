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

    Throughput: one segment per cycle, a burst per direction in two. Latency: 2 cycles.

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

        # What is left of the burst of each direction. A burst leaves its register before the next
        # one enters, so that nothing of what follows here reaches the bus.
        has_read, has_write = Signal(), Signal()
        take_read, take_write = Signal(), Signal()
        read = self._cut(m, "read", self.read, has_read, take_read)
        write = self._cut(m, "write", self.write, has_write, take_write)

        # Whose turn it is.
        can_write = Signal()
        turn_write = Signal()
        streak = Signal(range(STREAK + 1))
        choose_write = Signal()
        other_waits = Signal()
        take = Signal()
        m.d.comb += [
            can_write.eq(has_write & self.write_data),
            choose_write.eq(can_write & (~has_read | (turn_write ^ (streak == STREAK)))),
            other_waits.eq(Mux(choose_write, has_read, can_write)),
            take.eq(step & (has_read | can_write)),
            take_read.eq(step & has_read & ~choose_write),
            take_write.eq(step & choose_write),
        ]
        with m.If(take):
            m.d.sync += turn_write.eq(choose_write)
            with m.If((choose_write == turn_write) & other_waits):
                m.d.sync += streak.eq(streak + 1)
            with m.Else():
                m.d.sync += streak.eq(1)
            m.d.sync += self.o.payload.eq(Mux(choose_write, write.as_value(), read.as_value()))
            m.d.sync += self.o.payload.write.eq(choose_write)
        with m.If(step):
            m.d.sync += self.o.valid.eq(take)
        return m

    def _cut(
        self, m: Module, name: str, port: stream.Interface, has: Signal, take: Signal
    ) -> data.View:
        """The beats of a direction's burst up to the end of its row; ``take`` leaves the rest."""
        chip = self._chip
        beat_log2 = exact_log2(self._config.bus_bytes)
        column_bits = column_beat_bits(self._config, chip)
        page_log2 = beat_log2 + column_bits
        top = page_log2 + chip.bank_bits + chip.row_bits
        burst = Signal(ADDRESS, name=f"{name}_burst", reset_less=True)
        segment = Signal(segment_layout(self._config, chip), name=f"{name}_segment")
        column = burst.addr[beat_log2:page_log2]
        page = burst.addr[page_log2:]
        m.d.comb += [
            port.ready.eq(~has),
            segment.bad.eq(burst.addr[top:].any()),
            segment.bank.eq(page),
            segment.row.eq(page[chip.bank_bits :]),
            segment.column.eq(column),
        ]
        with m.If(port.ready):
            m.d.sync += [has.eq(port.valid), burst.eq(port.payload)]

        inside = exact_log2(PAGE_BYTES) - page_log2
        if inside <= 0:
            m.d.comb += [segment.last.eq(1), segment.left.eq(burst.len)]
        else:
            sum_ = Signal(max(LENGTH_BITS, column_bits) + 1, name=f"{name}_sum")
            m.d.comb += [
                sum_.eq(burst.len + column),
                segment.last.eq(sum_[column_bits:] == 0),
                # all columns after this one, as many as the complement says
                segment.left.eq(Mux(segment.last, burst.len, ~column)),
            ]
            following = Cat((page[:inside] + 1)[:inside], page[inside:])
            with m.If(take):
                m.d.sync += [
                    burst.len.eq(Cat(sum_[:column_bits], sum_[column_bits:] - 1)),
                    burst.addr.eq(Cat(Const(0, page_log2), following)),
                ]
        with m.If(take & segment.last):
            m.d.sync += has.eq(0)
        return segment
