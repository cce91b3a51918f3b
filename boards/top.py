"""The whole board: accelerator, memory and host link, without pins and clocks."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from accelc.boards.board import Board
from accelc.boards.link.endpoint import Link
from accelc.boards.link.uart import Uart
from accelc.boards.memory.memory import board_memory
from accelc.boards.memory.pins import SdramPins
from accelc.hw.axi import Axi4
from accelc.hw.core import core_for
from accelc.hw.mac import MacArray
from accelc.isa.config import AccelConfig

#: What never differs between the masters: they say it once, behind the choice.
_CONSTANT = ("id", "size", "burst", "lock", "cache", "prot")


class MemoryChoice(wiring.Component):
    """Gives the memory to the core while it runs, else to the host; combinational.

    Neither master has anything outstanding when ``core_busy`` changes: the core is busy until its
    bus is at rest, and the link refuses the host's accesses to memory from start to end of a run.

    Members
    -------
    core, host : In(Axi4)
        Masters. Both issue INCR bursts of whole beats with ID 0.
    memory : Out(Axi4)
    core_busy : In(1)
    """

    core: wiring.PureInterface
    host: wiring.PureInterface
    memory: wiring.PureInterface
    core_busy: Signal

    def __init__(self, config: AccelConfig) -> None:
        super().__init__(
            {
                "core": In(Axi4(config)),
                "host": In(Axi4(config)),
                "memory": Out(Axi4(config)),
                "core_busy": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        core, host, memory, busy = self.core, self.host, self.memory, self.core_busy
        for name, member in memory.signature.members.items():
            chosen = getattr(memory, name)
            if name[2:] in _CONSTANT and name[:2] in ("ar", "aw"):
                m.d.comb += chosen.eq(getattr(core, name))
            elif member.flow is Out:
                m.d.comb += chosen.eq(Mux(busy, getattr(core, name), getattr(host, name)))
            else:
                # An answer says nothing to the master that asked nothing, but valid and ready do.
                control = name.endswith(("valid", "ready"))
                m.d.comb += [
                    getattr(core, name).eq(chosen & busy if control else chosen),
                    getattr(host, name).eq(chosen & ~busy if control else chosen),
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
            Rate of the UART in bits a second, if not the board's own.
        array
            The core's matrix array, if not the portable one.
        """
        self.board = board
        self.baud = board.baud if baud is None else baud
        self._array = array
        ports: dict[str, wiring.Member] = {"rx": In(1), "tx": Out(1, init=1), "leds": Out(3)}
        if board.memory.sdram is not None:
            ports["sdram"] = Out(SdramPins(board.memory.sdram))
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        board, config = self.board, self.board.config
        m.submodules.core = core = core_for(config, array=self._array)
        m.submodules.choice = choice = MemoryChoice(config)
        m.submodules.memory = memory = board_memory(board)
        m.submodules.uart = uart = Uart(board.clock_hz, self.baud)
        m.submodules.link = link = Link(board)
        connect(m, core.m_axi, choice.core)
        connect(m, link.memory, choice.host)
        connect(m, choice.memory, memory.bus)
        connect(m, link.registers, core.s_axil)
        connect(m, uart.received, link.received)
        connect(m, link.send, uart.send)
        if board.memory.sdram is not None:
            connect(m, memory.sdram, flipped(self.sdram))
        m.d.comb += [
            choice.core_busy.eq(core.busy),
            link.core_busy.eq(core.busy),
            uart.rx.eq(self.rx),
            self.tx.eq(uart.tx),
            self.leds.eq(Cat(memory.ready, core.busy, core.failed)),
        ]
        return m
