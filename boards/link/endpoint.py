"""The board's end of the host link."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from accelc.boards.board import Board
from accelc.boards.link.executor import Executor
from accelc.boards.link.protocol import REQUEST_BYTES, REQUEST_HEADER, BoardRecord
from accelc.boards.link.receiver import HALF_BYTES, FrameReceiver
from accelc.boards.link.sender import FrameSender
from accelc.hw.axi import Axi4, Axi4Lite


def board_record(board: Board) -> BoardRecord:
    """What the gateware of ``board`` says about itself."""
    return BoardRecord(
        name=board.name,
        clock_hz=board.clock_hz,
        memory_bytes=board.memory.nbytes,
        digest=board.config.digest,
        mlperf=board.mlperf,
    )


def _buffer_contents(board: Board) -> list[int]:
    """The request buffer at reset: the board's record in the 32 spare bytes of each half.

    The record is read with the counter that has just passed a request's header.
    """
    contents = [0] * (2 * HALF_BYTES)
    for offset, value in enumerate(board_record(board).encode()):
        place = (REQUEST_HEADER.size + offset) % BoardRecord.SIZE
        half, low = divmod(place, HALF_BYTES - REQUEST_BYTES)
        contents[half * HALF_BYTES + REQUEST_BYTES + low] = value
    return contents


class Link(wiring.Component):
    """Receives requests, executes them on memory and registers, and answers.

    Requests are executed one at a time while the next one is received. The buffer's initial
    contents matter: they are the board's record.

    Members
    -------
    received : In(stream of 8)
    send : Out(stream of 8)
    memory : Out(Axi4)
        INCR bursts of one whole beat with ID 0.
    registers : Out(Axi4Lite)
    core_busy : In(1)
        The memory belongs to the core.
    line_break : In(1)
        The line was low for longer than a byte: what was being received is dropped, and ``mlperf``
        ends.
    mlperf : Out(1)
        The UART's bytes belong to the MLPerf engine.
    """

    received: stream.Interface
    send: stream.Interface
    memory: wiring.PureInterface
    registers: wiring.PureInterface
    core_busy: Signal
    line_break: Signal
    mlperf: Signal

    def __init__(self, board: Board) -> None:
        self._board = board
        super().__init__(
            {
                "received": In(stream.Signature(8)),
                "send": Out(stream.Signature(8)),
                "memory": Out(Axi4(board.config)),
                "registers": Out(Axi4Lite()),
                "core_busy": In(1),
                "line_break": In(1),
                "mlperf": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        board = self._board
        m.submodules.receiver = receiver = FrameReceiver()
        m.submodules.executor = executor = Executor(board.config, board.memory.nbytes)
        m.submodules.sender = sender = FrameSender()
        m.submodules.buffer = buffer = Memory(
            shape=8, depth=2 * HALF_BYTES, init=_buffer_contents(board)
        )
        write, read = buffer.write_port(), buffer.read_port(domain="comb")
        byte = Signal(8, reset_less=True)

        connect(m, flipped(self.received), receiver.i)
        connect(m, executor.answer, sender.i)
        connect(m, sender.o, flipped(self.send))
        connect(m, executor.memory, flipped(self.memory))
        connect(m, executor.registers, flipped(self.registers))

        # The half that is being filled; the executor reads the other.
        filling = Signal()
        with m.If(receiver.take):
            m.d.sync += filling.eq(~filling)
        record, index = executor.record, executor.index
        m.d.comb += [
            receiver.clear.eq(self.line_break),
            receiver.take.eq(executor.take),
            receiver.excuse.eq(executor.excuse),
            executor.full.eq(receiver.full),
            executor.damaged.eq(receiver.damaged),
            executor.core_busy.eq(self.core_busy),
            write.addr.eq(Cat(receiver.address, filling)),
            write.data.eq(receiver.data),
            write.en.eq(receiver.enable),
            executor.fetch.eq(~receiver.enable),
            executor.byte.eq(byte),
            read.addr.eq(Cat(index, ~filling)),
        ]
        # Read and written in different cycles, which synthesis sees: then block RAM, with its
        # register, needs no logic around it.
        with m.If(executor.fetch):
            m.d.sync += byte.eq(read.data)
        with m.If(record):
            m.d.comb += read.addr.eq(Cat(index[:5], Const(0b111, 3), index[5]))

        with m.If(self.line_break):
            m.d.sync += self.mlperf.eq(0)
        with m.Elif(executor.mlperf):
            m.d.sync += self.mlperf.eq(1)
        return m
