"""The device under test of MLPerf Tiny: a serial port of the benchmark's rate and a processor."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from accelc.boards.board import Board
from accelc.boards.link.uart import Uart
from accelc.boards.mlperf.processor import MlperfProcessor
from accelc.hw.axi import Axi4, Axi4Lite


class MlperfPort(wiring.Component):
    """Answers the benchmark's runner while enabled.

    Members
    -------
    enable : In(1)
    rx : In(1)
        The line; whatever arrives while not enabled is lost.
    tx : Out(1)
    line_break : Out(1)
        The line was low for more than a byte at the benchmark's rate.
    memory : Out(Axi4)
    registers : Out(Axi4Lite)
    """

    enable: Signal
    rx: Signal
    tx: Signal
    line_break: Signal
    memory: wiring.PureInterface
    registers: wiring.PureInterface

    def __init__(self, board: Board, *, baud: int) -> None:
        self._board = board
        self._baud = baud
        super().__init__(
            {
                "enable": In(1),
                "rx": In(1),
                "tx": Out(1, init=1),  # pyright: ignore (amaranth-stubs lack init)
                "line_break": Out(1),
                "memory": Out(Axi4(board.config)),
                "registers": Out(Axi4Lite()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        board = self._board
        m.submodules.uart = uart = Uart(board.clock_hz, self._baud)
        m.submodules.processor = processor = MlperfProcessor(
            board.config, clock_hz=board.clock_hz, memory_bytes=board.memory.nbytes
        )
        connect(m, processor.send, uart.send)
        connect(m, processor.memory, flipped(self.memory))
        connect(m, processor.registers, flipped(self.registers))
        m.d.comb += [
            uart.rx.eq(self.rx),
            self.tx.eq(uart.tx),
            self.line_break.eq(uart.line_break & self.enable),
            processor.enable.eq(self.enable),
            # bytes of the host link's own rate are noise here
            processor.received.valid.eq(uart.received.valid & self.enable),
            processor.received.payload.eq(uart.received.payload),
            uart.received.ready.eq(processor.received.ready | ~self.enable),
        ]
        return m
