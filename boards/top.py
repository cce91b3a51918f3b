"""The whole board: accelerator, memory and host link, without pins and clocks."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from accelc.boards.board import Board
from accelc.boards.link.endpoint import Link
from accelc.boards.link.uart import Uart
from accelc.boards.memory.buffer import BusBuffer
from accelc.boards.memory.memory import board_memory
from accelc.boards.memory.pins import SdramPins
from accelc.boards.memory.whole_beats import WholeBeats
from accelc.boards.mlperf.port import MlperfPort
from accelc.boards.mlperf.protocol import BAUD as MLPERF_BAUD
from accelc.hw.axi import Axi4, Axi4Lite
from accelc.hw.core import core_for
from accelc.hw.mac import MacArray

#: What never differs between the masters: they say it once, behind the choice.
_CONSTANT = ("id", "size", "burst", "lock", "cache", "prot")


class BusChoice(wiring.Component):
    """Gives a bus to one of two masters; combinational.

    Neither may have anything outstanding when ``select`` changes.

    Members
    -------
    masters : In(signature).array(2)
        If the bus is AXI4, both issue INCR bursts of whole beats with ID 0.
    bus : Out(signature)
    select : In(1)
        Which master has the bus.
    """

    masters: list[wiring.PureInterface]
    bus: wiring.PureInterface
    select: Signal

    def __init__(self, signature: wiring.Signature) -> None:
        super().__init__(
            {"masters": In(signature).array(2), "bus": Out(signature), "select": In(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first, second = self.masters
        for name, member in self.bus.signature.members.items():
            wire = getattr(self.bus, name)
            if name[2:] in _CONSTANT and name[:2] in ("ar", "aw"):
                m.d.comb += wire.eq(getattr(second, name))
            elif member.flow is Out:
                m.d.comb += wire.eq(Mux(self.select, getattr(second, name), getattr(first, name)))
            else:
                # An answer says nothing to the master that asked nothing, but valid and ready do.
                control = name.endswith(("valid", "ready"))
                m.d.comb += [
                    getattr(first, name).eq(wire & ~self.select if control else wire),
                    getattr(second, name).eq(wire & self.select if control else wire),
                ]
        return m


class BoardTop(wiring.Component):
    """Everything on a board's FPGA but pins, clock generation and reset; one clock, ``sync``.

    There is no vendor cell inside, unless ``array`` has some: simulators run it as it is.

    Members
    -------
    rx : In(1)
        From the host's UART, asynchronous.
    tx : Out(1)
    leds : Out(3)
        Memory ready, core busy, last run failed.
    sdram : Out(SdramPins)
        Of boards with an SDRAM.
    """

    rx: Signal
    tx: Signal
    leds: Signal
    sdram: wiring.PureInterface

    def __init__(
        self, board: Board, *, baud: int | None = None, array: MacArray | None = None
    ) -> None:
        """Build the board.

        Parameters
        ----------
        board
            What is on it.
        baud
            Bits a second of both serial ports, if not the board's own and the benchmark's.
        array
            The core's matrix array, if not the portable one.
        """
        self.board = board
        self.baud = board.baud if baud is None else baud
        #: Of the benchmark's port. A simulated line has one rate only.
        self.mlperf_baud = MLPERF_BAUD if baud is None else baud
        self._array = array
        ports: dict[str, wiring.Member] = {"rx": In(1), "tx": Out(1), "leds": Out(3)}
        if board.memory.sdram is not None:
            ports["sdram"] = Out(SdramPins(board.memory.sdram))
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        board, config = self.board, self.board.config
        m.submodules.core = core = core_for(config, array=self._array)
        m.submodules.memory = memory = board_memory(board)
        m.submodules.uart = uart = Uart(board.clock_hz, self.baud)
        m.submodules.link = link = Link(board)
        connect(m, uart.received, link.received)
        connect(m, link.send, uart.send)
        host_memory, registers = link.memory, link.registers
        m.d.comb += [
            uart.rx.eq(self.rx),
            self.tx.eq(uart.tx),
            link.line_break.eq(uart.line_break),
            link.core_busy.eq(core.busy),
            self.leds.eq(Cat(memory.ready, core.busy, core.failed)),
        ]

        # The MLPerf processor takes the place of the link, its serial port that of the link's.
        if board.mlperf:
            m.submodules.mlperf = mlperf = MlperfPort(board, baud=self.mlperf_baud)
            # the line changes hands when the last bit of the link's answer has left
            handed = Signal()
            with m.If(~link.mlperf):
                m.d.sync += handed.eq(0)
            with m.Elif(uart.send.ready & ~link.send.valid):
                m.d.sync += handed.eq(1)
            m.submodules.host_choice = host_choice = BusChoice(Axi4(config))
            m.submodules.register_choice = register_choice = BusChoice(Axi4Lite())
            for choice, masters in (
                (host_choice, (link.memory, mlperf.memory)),
                (register_choice, (link.registers, mlperf.registers)),
            ):
                for master, port in zip(masters, choice.masters, strict=True):
                    connect(m, master, port)
                m.d.comb += choice.select.eq(handed)
            host_memory, registers = host_choice.bus, register_choice.bus
            m.d.comb += [mlperf.enable.eq(handed), mlperf.rx.eq(self.rx)]
            with m.If(handed):
                m.d.comb += [self.tx.eq(mlperf.tx), link.line_break.eq(mlperf.line_break)]

        # The core writes whole beats, the hosts bytes.
        if not board.memory.masks:
            m.submodules.whole_beats = whole_beats = WholeBeats(config)
            connect(m, host_memory, whole_beats.i)
            host_memory = whole_beats.o

        # The memory belongs to the core while it runs; it is busy until its bus is at rest, and
        # the hosts do not touch the memory from start to end of a run.
        m.submodules.memory_choice = memory_choice = BusChoice(Axi4(config))
        connect(m, host_memory, memory_choice.masters[0])
        connect(m, core.m_axi, memory_choice.masters[1])
        if board.memory.buffered:
            m.submodules.buffer = buffer = BusBuffer(config)
            connect(m, memory_choice.bus, buffer.i)
            connect(m, buffer.o, memory.bus)
        else:
            connect(m, memory_choice.bus, memory.bus)
        connect(m, registers, core.s_axil)
        m.d.comb += memory_choice.select.eq(core.busy)
        if board.memory.sdram is not None:
            connect(m, memory.sdram, flipped(self.sdram))
        return m
