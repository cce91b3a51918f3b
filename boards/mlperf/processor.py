"""The processor that speaks the MLPerf Tiny protocol: a 32-bit accumulator machine."""

from importlib.resources import files

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.boards.mlperf.assembler import (
    OPERAND_BITS,
    PROGRAM_WORDS,
    VARIABLES,
    WORD_BITS,
    Firmware,
    Op,
    assemble,
)
from accelc.boards.mlperf.layout import firmware_symbols
from accelc.hw.axi import CACHE_BUFFERABLE, Axi4, Axi4Lite, Burst
from accelc.isa.config import AccelConfig

#: Calls within calls; the program needs 4.
STACK_DEPTH = 8


def firmware(memory_bytes: int) -> Firmware:
    """The program for a board with ``memory_bytes`` of memory."""
    text = files("accelc.boards.mlperf").joinpath("firmware.asm").read_text(encoding="ascii")
    return assemble(text, firmware_symbols(memory_bytes))


class MlperfProcessor(wiring.Component):
    """Runs ``firmware.asm`` while enabled; a fresh start each time it is enabled.

    Four cycles an instruction (program read, variable read, their registers, execution), more while
    it waits for bytes, memory or registers. At 115,200 baud and 25 MHz, 500 instructions pass for
    each byte.

    Members
    -------
    enable : In(1)
    received : In(stream of 8), send : Out(stream of 8)
        Bytes of the serial port.
    memory : Out(Axi4)
        Single beats, only while the core is idle; writes use byte strobes. Error responses are
        not looked at: the host has checked every address it put into the page.
    registers : Out(Axi4Lite)
    """

    enable: Signal
    received: stream.Interface
    send: stream.Interface
    memory: wiring.PureInterface
    registers: wiring.PureInterface

    def __init__(self, config: AccelConfig, *, clock_hz: int, memory_bytes: int) -> None:
        self._config = config
        self._clock_hz = clock_hz
        self._firmware = firmware(memory_bytes)
        super().__init__(
            {
                "enable": In(1),
                "received": In(stream.Signature(unsigned(8))),
                "send": Out(stream.Signature(unsigned(8))),
                "memory": Out(Axi4(config)),
                "registers": Out(Axi4Lite()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = list(self._firmware.words)
        m.submodules.program = program = Memory(
            shape=unsigned(WORD_BITS), depth=PROGRAM_WORDS, init=words
        )
        variables = Memory(shape=unsigned(32), depth=VARIABLES, init=list(self._firmware.variables))
        m.submodules.variables = variables
        instruction, variable = program.read_port(), variables.read_port()
        store = variables.write_port()

        accumulator = Signal(32)
        carry = Signal()
        place = Signal(range(PROGRAM_WORDS))
        stack = [Signal.like(place, name=f"return_{n}") for n in range(STACK_DEPTH)]
        # Block RAM is slow: nothing but registers and the variables' addresses hang on it.
        word = Signal(WORD_BITS, reset_less=True)
        value = Signal(32, reset_less=True)
        m.d.sync += [word.eq(instruction.data), value.eq(variable.data)]
        operand, op = word[:OPERAND_BITS], word[OPERAND_BITS:]
        executing = Signal()
        done = Signal()
        following = Signal.like(place)
        m.d.comb += [
            instruction.en.eq(1),
            instruction.addr.eq(place),
            variable.en.eq(1),
            variable.addr.eq(Value.cast(instruction.data)[:OPERAND_BITS]),
            store.addr.eq(operand),
            store.data.eq(accumulator),
            following.eq(place + 1),
        ]

        added = Signal(33)
        subtracted = Signal(33)
        m.d.comb += [added.eq(accumulator + value), subtracted.eq(accumulator - value)]

        def accumulate(result: Value) -> None:
            m.d.sync += accumulator.eq(result)
            m.d.comb += done.eq(1)

        def jump(condition: Value) -> None:
            m.d.comb += [done.eq(1), following.eq(Mux(condition, operand, place + 1))]

        microseconds = self._microseconds(m)
        memory_done, memory_data = self._memory(m, executing, op, value, accumulator)
        register_done = self._registers(m, executing, op, operand, accumulator)
        with m.If(executing):
            with m.Switch(op):
                with m.Case(Op.LDI):
                    accumulate(operand)
                with m.Case(Op.ADI):
                    accumulate((accumulator + operand.as_signed())[:32])
                with m.Case(Op.LD):
                    accumulate(value)
                with m.Case(Op.ST):
                    m.d.comb += [store.en.eq(1), done.eq(1)]
                with m.Case(Op.ADD):
                    accumulate(added[:32])
                    m.d.sync += carry.eq(added[32])
                with m.Case(Op.SUB):
                    accumulate(subtracted[:32])
                    m.d.sync += carry.eq(subtracted[32])
                with m.Case(Op.AND):
                    accumulate(accumulator & value)
                with m.Case(Op.OR):
                    accumulate(accumulator | value)
                with m.Case(Op.XOR):
                    accumulate(accumulator ^ value)
                with m.Case(Op.SHL):
                    accumulate(Cat(Const(0, 1), accumulator[:31]))
                with m.Case(Op.SHR):
                    accumulate(accumulator[1:])
                with m.Case(Op.JMP):
                    jump(Const(1))
                with m.Case(Op.JZ):
                    jump(accumulator == 0)
                with m.Case(Op.JNZ):
                    jump(accumulator != 0)
                with m.Case(Op.JN):
                    jump(accumulator[31])
                with m.Case(Op.JC):
                    jump(carry)
                with m.Case(Op.CALL):
                    jump(Const(1))
                    m.d.sync += stack[0].eq(place + 1)
                    m.d.sync += [b.eq(a) for a, b in zip(stack, stack[1:], strict=False)]
                with m.Case(Op.RET):
                    m.d.comb += [done.eq(1), following.eq(stack[0])]
                    m.d.sync += [a.eq(b) for a, b in zip(stack, stack[1:], strict=False)]
                with m.Case(Op.RXB):
                    m.d.comb += self.received.ready.eq(1)
                    with m.If(self.received.valid):
                        accumulate(self.received.payload)
                with m.Case(Op.TXB):
                    m.d.comb += [self.send.valid.eq(1), done.eq(self.send.ready)]
                with m.Case(Op.MRB, Op.MRW):
                    with m.If(memory_done):
                        accumulate(memory_data)
                with m.Case(Op.RRD):
                    with m.If(register_done):
                        accumulate(self.registers.rdata)
                with m.Case(Op.MWB):
                    m.d.comb += done.eq(memory_done)
                with m.Case(Op.RWR):
                    m.d.comb += done.eq(register_done)
                with m.Case(Op.TIM):
                    accumulate(microseconds)

        with m.FSM():
            with m.State("fetch"):
                with m.If(self.enable):
                    m.next = "decode"
                with m.Else():
                    m.d.sync += place.eq(0)
            with m.State("decode"):
                m.next = "operands"
            with m.State("operands"):
                m.next = "execute"
            with m.State("execute"):
                # what waits for the serial port gives up when the processor is switched off
                serial = (op == Op.RXB) | (op == Op.TXB)
                m.d.comb += executing.eq(self.enable | ~serial)
                with m.If(done):
                    m.d.sync += place.eq(following)
                with m.If(done | ~executing):
                    m.next = "fetch"
        m.d.comb += self.send.payload.eq(accumulator[:8])
        return m

    def _microseconds(self, m: Module) -> Signal:
        """Microseconds, exact in the long run for any clock."""
        count = Signal(32)
        fraction = Signal(range(self._clock_hz))
        million = 1_000_000
        m.d.sync += fraction.eq(fraction + million)
        with m.If(fraction >= self._clock_hz - million):
            m.d.sync += [fraction.eq(fraction - (self._clock_hz - million)), count.eq(count + 1)]
        return count

    def _memory(
        self, m: Module, executing: Value, op: Value, address: Value, accumulator: Value
    ) -> tuple[Value, Value]:
        """MRB, MRW and MWB, one beat each: whether it is done, and what was read."""
        bus, bus_bytes = self.memory, self._config.bus_bytes
        lane_bits = exact_log2(bus_bytes)
        for prefix in ("ar", "aw"):
            constants = {
                "addr": Cat(Const(0, lane_bits), address[lane_bits:]),
                "len": 0,
                "size": lane_bits,
                "burst": Burst.INCR,
                "id": 0,
                "lock": 0,
                "cache": CACHE_BUFFERABLE,
                "prot": 0,
            }
            m.d.comb += [getattr(bus, prefix + name).eq(v) for name, v in constants.items()]
        m.d.comb += [
            bus.wdata.eq(accumulator[:8].replicate(bus_bytes)),
            bus.wstrb.eq(1 << address[:lane_bits]),
            bus.wlast.eq(1),
        ]
        done = Signal(name="memory_done")
        reads = executing & ((op == Op.MRB) | (op == Op.MRW))
        m.d.comb += done.eq(_transfer(m, bus, reads, executing & (op == Op.MWB), "memory"))
        byte = bus.rdata.word_select(address[:lane_bits], 8)
        word = bus.rdata.word_select(address[2:lane_bits], 32) if lane_bits > 2 else bus.rdata
        return done, Mux(op == Op.MRW, word, byte)

    def _registers(
        self, m: Module, executing: Value, op: Value, offset: Value, accumulator: Value
    ) -> Value:
        """RRD and RWR: whether it is done."""
        bus = self.registers
        m.d.comb += [
            bus.araddr.eq(offset),
            bus.awaddr.eq(offset),
            bus.wdata.eq(accumulator),
            bus.wstrb.eq(0b1111),
        ]
        reads, writes = executing & (op == Op.RRD), executing & (op == Op.RWR)
        return _transfer(m, bus, reads, writes, "register")


def _transfer(
    m: Module, bus: wiring.PureInterface, reads: Value, writes: Value, name: str
) -> Value:
    """Drive the handshakes of one read or write; 1 in the cycle of its answer."""
    asked, written = Signal(name=f"{name}_asked"), Signal(name=f"{name}_written")
    done = (reads & bus.rvalid) | (writes & bus.bvalid)
    m.d.comb += [
        bus.arvalid.eq(reads & ~asked),
        bus.rready.eq(reads),
        bus.awvalid.eq(writes & ~asked),
        bus.wvalid.eq(writes & ~written),
        bus.bready.eq(writes),
    ]
    with m.If((bus.arvalid & bus.arready) | (bus.awvalid & bus.awready)):
        m.d.sync += asked.eq(1)
    with m.If(bus.wvalid & bus.wready):
        m.d.sync += written.eq(1)
    with m.If(done):
        m.d.sync += [asked.eq(0), written.eq(0)]
    return done
