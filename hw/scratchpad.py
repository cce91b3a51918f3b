"""On-chip memories and the ports the units reach them by.

Every scratchpad is written in bus beats (LOAD) or whole words (the compute units). What the
compute units read passes a second register: ``data`` belongs to the address of two cycles ago, so
that block RAM maps to its fastest form. Nothing is cleared by reset. What a read of a row written
in the same cycle returns is undefined on purpose (block RAM is cheapest that way): the tokens
between units, and the hazard interlock in the matrix unit, keep such pairs apart.
"""

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from accelc.hw.layouts import ScratchRead, ScratchWrite
from accelc.isa.config import PARAM_BYTES, AccelConfig

#: Cycles from ``en`` to ``data`` of a read: the memory itself and its output register.
READ_CYCLES = 2
#: Bits of an accumulator element.
ACC_BITS = 32


def row_chunks(config: AccelConfig) -> int:
    """Words of ``vector_lanes`` elements that make up one row of ``acc``, ``vin`` or ``out``.

    Chunk ``c`` holds the elements ``[c * vector_lanes, (c + 1) * vector_lanes)`` of a row in
    ``(batch, block_out)`` order, whatever the order of the bytes in memory.
    """
    return config.batch * config.block_out // config.vector_lanes


def WordRead(depth: int, data_bits: int) -> wiring.Signature:
    """A unit reads one word: ``data`` follows ``en`` by the scratchpad's latency and then holds."""
    return wiring.Signature({"en": Out(1), "addr": Out(ceil_log2(depth)), "data": In(data_bits)})


def WordWrite(depth: int, data_bits: int) -> wiring.Signature:
    """A unit writes one word at the clock edge."""
    return wiring.Signature({"en": Out(1), "addr": Out(ceil_log2(depth)), "data": Out(data_bits)})


def InpRead(config: AccelConfig) -> wiring.Signature:
    """One row of ``inp``, ``(batch, block_in)`` int8; two cycles."""
    return WordRead(config.inp_rows, config.inp_row_bytes * 8)


def WgtRead(config: AccelConfig) -> wiring.Signature:
    """Row ``o`` of a weight tile, ``(block_in,)`` int8, at ``tile * block_out + o``; two cycles."""
    return WordRead(config.wgt_rows * config.block_out, config.block_in * 8)


def AccRead(config: AccelConfig) -> wiring.Signature:
    """One row of ``acc``, ``(batch, block_out)`` int32; two cycles.

    Data do not hold: they are zero but in the one cycle that ``en`` asked for.
    """
    return WordRead(config.acc_rows, config.batch * config.block_out * ACC_BITS)


def AccWrite(config: AccelConfig) -> wiring.Signature:
    """One row of ``acc``, ``(batch, block_out)`` int32."""
    return WordWrite(config.acc_rows, config.batch * config.block_out * ACC_BITS)


def AccChunkRead(config: AccelConfig) -> wiring.Signature:
    """One chunk of an ``acc`` row, ``(vector_lanes,)`` int32, at ``row * chunks + chunk``.

    Two cycles.
    """
    return WordRead(config.acc_rows * row_chunks(config), config.vector_lanes * ACC_BITS)


def VinRead(config: AccelConfig) -> wiring.Signature:
    """One chunk of a ``vin`` row, ``(vector_lanes,)`` int8, at ``row * chunks + chunk``.

    Two cycles.
    """
    return WordRead(config.vin_rows * row_chunks(config), config.vector_lanes * 8)


def PrmRead(config: AccelConfig) -> wiring.Signature:
    """``vector_lanes`` entries of a ``prm`` row, 64 bits each.

    At ``row * (block_out / vector_lanes) + part``; two cycles.
    """
    parts = config.block_out // config.vector_lanes
    return WordRead(config.prm_rows * parts, config.vector_lanes * PARAM_BYTES * 8)


def OutWrite(config: AccelConfig) -> wiring.Signature:
    """One chunk of an ``out`` row, ``(vector_lanes,)`` int8, at ``row * chunks + chunk``."""
    return WordWrite(config.out_rows * row_chunks(config), config.vector_lanes * 8)


def _split(value: Value, *widths: int) -> list[Value]:
    """Consecutive bit fields of ``value``, lowest first."""
    parts: list[Value] = []
    offset = 0
    for width in widths:
        parts.append(value[offset : offset + width])
        offset += width
    return parts


class BeatScratchpad(wiring.Component):
    """Memory of ``word_bytes`` words, written one bus beat at a time, read two cycles after ``en``.

    Base of the scratchpads whose words are consecutive beats. A word may be narrower than a beat:
    the memory then is one beat wide and the read picks its part. One read and one write a cycle.

    Members
    -------
    write : ``In(ScratchWrite)``.
    read : ``In(WordRead(words, word_bytes * 8))``.
    """

    write: wiring.PureInterface
    read: wiring.PureInterface

    def __init__(self, config: AccelConfig, *, read: wiring.Signature, size_bytes: int) -> None:
        self.config = config
        self.size_bytes = size_bytes
        super().__init__({"write": In(ScratchWrite(config)), "read": In(read)})

    def beat_address(self) -> Value:
        """Where in the memory, counted in beats, the written beat belongs."""
        return self.write.addr

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        beat_bits = self.config.bus_bytes * 8
        word_bits = len(self.read.data)
        memory_bits = max(word_bits, beat_bits)
        depth = self.size_bytes * 8 // memory_bits
        m.submodules.memory = ram = memory.Memory(shape=memory_bits, depth=depth, init=[])
        write = ram.write_port(granularity=beat_bits)
        slot, row = _split(
            self.beat_address(), ceil_log2(memory_bits // beat_bits), len(write.addr)
        )
        m.d.comb += [
            write.addr.eq(row),
            write.data.eq(self.write.data.replicate(memory_bits // beat_bits)),
            write.en.eq(self.write.en << slot),
        ]
        read = ram.read_port()
        part, word = _split(self.read.addr, ceil_log2(memory_bits // word_bits), len(read.addr))
        m.d.comb += [read.addr.eq(word), read.en.eq(self.read.en)]
        part_q = Signal(len(part))
        read_q = Signal()
        data_q = Signal(word_bits, reset_less=True)
        m.d.sync += read_q.eq(self.read.en)
        with m.If(self.read.en):
            m.d.sync += part_q.eq(part)
        with m.If(read_q):
            m.d.sync += data_q.eq(read.data.word_select(part_q, word_bits))
        m.d.comb += self.read.data.eq(data_q)
        return m


class InpScratchpad(BeatScratchpad):
    """Input rows of the matrix unit. One write and one read a cycle, read latency 2."""

    def __init__(self, config: AccelConfig) -> None:
        super().__init__(
            config, read=InpRead(config), size_bytes=config.inp_rows * config.inp_row_bytes
        )


class WgtScratchpad(BeatScratchpad):
    """Weight tiles, read one ``block_in``-byte row a cycle. Read latency 2."""

    def __init__(self, config: AccelConfig) -> None:
        super().__init__(
            config, read=WgtRead(config), size_bytes=config.wgt_rows * config.wgt_row_bytes
        )


class PrmScratchpad(BeatScratchpad):
    """Requantization parameters, read ``vector_lanes`` entries at a time. Read latency 2."""

    def __init__(self, config: AccelConfig) -> None:
        super().__init__(
            config, read=PrmRead(config), size_bytes=config.prm_rows * config.prm_row_bytes
        )


def chunk_order(config: AccelConfig, beat: Value) -> Value:
    """Address, in beats, of a beat of ``vin`` or ``out`` in a memory made of chunks.

    Memory has rows in ``(block_out/block_in, batch, block_in)`` order, the vector unit works in
    ``(batch, block_out)`` order. Beats never straddle a ``block_in`` group and everything is a
    power of two, so the translation only exchanges address bits.
    """
    inner, batch, outer = _split(
        beat,
        ceil_log2(config.block_in // config.bus_bytes),
        ceil_log2(config.batch),
        ceil_log2(config.vec_inp_rows),
    )
    used = len(inner) + len(batch) + len(outer)
    return Cat(inner, outer, batch, beat[used:])


class VinScratchpad(BeatScratchpad):
    """int8 rows of the vector unit, read in chunks. Read latency 2."""

    def __init__(self, config: AccelConfig) -> None:
        super().__init__(
            config, read=VinRead(config), size_bytes=config.vin_rows * config.vec_row_bytes
        )

    def beat_address(self) -> Value:
        return chunk_order(self.config, self.write.addr)


class OutScratchpad(wiring.Component):
    """Results of the vector unit, written in chunks, read by STORE in bus beats, read latency 1.

    Members
    -------
    write : ``In(OutWrite)``.
    read : ``In(ScratchRead)``, ``row * beats_per_row + beat``.
    """

    write: wiring.PureInterface
    read: wiring.PureInterface

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        super().__init__({"write": In(OutWrite(config)), "read": In(ScratchRead(config))})

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        beat_bits = config.bus_bytes * 8
        chunk_bits = config.vector_lanes * 8
        memory_bits = max(beat_bits, chunk_bits)
        depth = config.out_rows * config.vec_row_bytes * 8 // memory_bits
        m.submodules.memory = ram = memory.Memory(shape=memory_bits, depth=depth, init=[])
        write = ram.write_port(granularity=chunk_bits)
        slot, row = _split(self.write.addr, ceil_log2(memory_bits // chunk_bits), len(write.addr))
        m.d.comb += [
            write.addr.eq(row),
            write.data.eq(self.write.data.replicate(memory_bits // chunk_bits)),
            write.en.eq(self.write.en << slot),
        ]
        read = ram.read_port()
        part, word = _split(
            chunk_order(config, self.read.addr), ceil_log2(memory_bits // beat_bits), len(read.addr)
        )
        part_q = Signal(len(part))
        with m.If(self.read.en):
            m.d.sync += part_q.eq(part)
        m.d.comb += [
            read.addr.eq(word),
            read.en.eq(self.read.en),
            self.read.data.eq(read.data.word_select(part_q, beat_bits)),
        ]
        return m


class AccScratchpad(wiring.Component):
    """Accumulators, once for each of their readers; a write and a read of each kind every cycle.

    The matrix unit has a copy of whole rows. The vector unit has one whose write port is
    ``row_chunks`` times as wide as its read port, which block RAMs do without any logic: so no bit
    of a row passes a multiplexer. Where a row's bits fill the block RAMs' width, and there are no
    more rows than they are deep, it takes as much memory as two banks would. Read latency 2.

    Members
    -------
    gemm_read : ``In(AccRead)``.
    gemm_write : ``In(AccWrite)``.
    alu_read : ``In(AccChunkRead)``.
    """

    gemm_read: wiring.PureInterface
    gemm_write: wiring.PureInterface
    alu_read: wiring.PureInterface

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        super().__init__(
            {
                "gemm_read": In(AccRead(config)),
                "gemm_write": In(AccWrite(config)),
                "alu_read": In(AccChunkRead(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        rows, chunks = self.config.acc_rows, row_chunks(self.config)
        row_bits, chunk_bits = len(self.gemm_read.data), len(self.alu_read.data)

        m.submodules.rows = by_row = memory.Memory(shape=row_bits, depth=rows, init=[])
        write, read = by_row.write_port(), by_row.read_port()
        row_none = Signal(init=1)
        row = Signal(row_bits, reset_less=True)
        m.d.comb += [
            write.addr.eq(self.gemm_write.addr),
            write.data.eq(self.gemm_write.data),
            write.en.eq(self.gemm_write.en),
            read.addr.eq(self.gemm_read.addr),
            read.en.eq(self.gemm_read.en),
        ]
        m.d.sync += [
            row_none.eq(~self.gemm_read.en),
            # a flip-flop's reset costs nothing: a sum that starts anew needs no gate for its zero
            row.eq(Mux(row_none, 0, read.data)),
        ]

        m.submodules.chunks = by_chunk = memory.Memory(
            shape=chunk_bits, depth=rows * chunks, init=[]
        )
        # Yosys makes one wide port of those whose addresses differ in constant low bits only.
        for index in range(chunks):
            write = by_chunk.write_port()
            m.d.comb += [
                write.addr.eq(Cat(Const(index, ceil_log2(chunks)), self.gemm_write.addr)),
                write.data.eq(self.gemm_write.data.word_select(index, chunk_bits)),
                write.en.eq(self.gemm_write.en),
            ]
        read = by_chunk.read_port()
        chunk_read = Signal()
        chunk = Signal(chunk_bits, reset_less=True)
        m.d.comb += [read.addr.eq(self.alu_read.addr), read.en.eq(self.alu_read.en)]
        m.d.sync += chunk_read.eq(self.alu_read.en)
        with m.If(chunk_read):
            m.d.sync += chunk.eq(read.data)

        m.d.comb += [self.gemm_read.data.eq(row), self.alu_read.data.eq(chunk)]
        return m
