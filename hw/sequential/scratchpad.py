"""The scratchpads of the sequential core: block RAM with nothing behind its output.

Data follow the address by one cycle and hold until the next read. A memory's output latch is the
only register: at the clock of the smallest FPGAs the logic after it fits the same cycle. What a
read of a row written in the same cycle returns is undefined, as in ``accelc.hw.scratchpad``; LOAD
and STORE never run beside the engines, and GEMM keeps its own reads and writes apart.
"""

from amaranth.hdl import Cat, Elaboratable, Module, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from accelc.hw.layouts import ScratchWrite
from accelc.hw.scratchpad import ACC_BITS, AccRead, AccWrite, chunk_order
from accelc.isa.config import AccelConfig

#: Cycles from ``en`` to ``data``.
READ_CYCLES = 1


class LoadedScratchpad(wiring.Component):
    """Memory written one bus beat at a time and read one word at a time.

    Members
    -------
    write : ``In(ScratchWrite)``.
    read : ``In(WordRead)``, one cycle.
    """

    write: wiring.PureInterface
    read: wiring.PureInterface

    def __init__(
        self, config: AccelConfig, *, read: wiring.Signature, vector: bool = False
    ) -> None:
        """Build the memory.

        Parameters
        ----------
        read
            A ``WordRead``: its depth and width are the memory's.
        vector
            Whether rows are those of ``vin``, which the vector unit reads in chunks.
        """
        self.config = config
        self.vector = vector
        super().__init__({"write": In(ScratchWrite(config)), "read": In(read)})

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        beat_bits = self.config.bus_bytes * 8
        word_bits = len(self.read.data)
        memory_bits = max(word_bits, beat_bits)
        depth = (word_bits << len(self.read.addr)) // memory_bits
        # even the smallest one: flip-flops are what these chips lack
        ram = memory.Memory(shape=memory_bits, depth=depth, init=[], attrs={"ram_style": "block"})
        m.submodules.memory = ram
        write, read = ram.write_port(granularity=beat_bits), ram.read_port()
        beat = chunk_order(self.config, self.write.addr) if self.vector else self.write.addr
        slot_bits = ceil_log2(memory_bits // beat_bits)
        m.d.comb += [
            write.addr.eq(beat[slot_bits:]),
            write.data.eq(self.write.data.replicate(memory_bits // beat_bits)),
            write.en.eq(self.write.en << beat[:slot_bits]),
        ]
        part_bits = ceil_log2(memory_bits // word_bits)
        part = Signal(part_bits)
        with m.If(self.read.en):
            m.d.sync += part.eq(self.read.addr[:part_bits])
        m.d.comb += [
            read.addr.eq(self.read.addr[part_bits:]),
            read.en.eq(self.read.en),
            self.read.data.eq(Value.cast(read.data).word_select(part, word_bits)),
        ]
        return m


class AccMemory(wiring.Component):
    """The accumulators, one row a cycle each way.

    Members
    -------
    write : ``In(AccWrite)``.
    read : ``In(AccRead)``, one cycle.

    Attributes
    ----------
    data : ``memory.MemoryData``
        What the memory holds, for simulations.
    """

    write: wiring.PureInterface
    read: wiring.PureInterface

    def __init__(self, config: AccelConfig) -> None:
        row_bits = config.block_out * ACC_BITS
        self.data = memory.MemoryData(shape=row_bits, depth=config.acc_rows, init=[])
        super().__init__({"write": In(AccWrite(config)), "read": In(AccRead(config))})

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.memory = ram = memory.Memory(self.data)
        write, read = ram.write_port(), ram.read_port()
        m.d.comb += [
            Cat(write.en, write.addr, write.data).eq(
                Cat(self.write.en, self.write.addr, self.write.data)
            ),
            Cat(read.en, read.addr).eq(Cat(self.read.en, self.read.addr)),
            self.read.data.eq(read.data),
        ]
        return m
