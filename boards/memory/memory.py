"""A board's memory: one AXI4 port, whatever is behind it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from accelc.boards.board import Board, OnChip, OnChipKind
from accelc.boards.memory.block import BlockMemory
from accelc.boards.memory.decoder import Decoder
from accelc.boards.memory.pins import SdramPins
from accelc.boards.memory.sdram import SdramMemory
from accelc.boards.memory.spram import SpramMemory
from accelc.hw.axi import Axi4
from accelc.isa.config import AccelConfig


class Memory(wiring.Component):
    """All memory of a board: on the chip below ``on_chip.nbytes``, in the SDRAM from there.

    Bursts are INCR, of whole beats, have ID 0 and stay within 4096 bytes. Addresses beyond
    ``board.memory.nbytes`` answer DECERR. Answers come in the order of their requests.

    Members
    -------
    bus : In(Axi4)
    ready : Out(1)
        The memory answers; requests that come earlier wait.
    sdram : Out(SdramPins)
        Of boards with an SDRAM.
    """

    bus: wiring.PureInterface
    ready: Signal
    sdram: wiring.PureInterface

    def __init__(self, board: Board) -> None:
        self._board = board
        ports: dict[str, wiring.Member] = {"bus": In(Axi4(board.config)), "ready": Out(1)}
        if board.memory.sdram is not None:
            ports["sdram"] = Out(SdramPins(board.memory.sdram))
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, memory = self._board.config, self._board.memory
        on_chip = None
        if memory.on_chip is not None:
            m.submodules.on_chip = on_chip = _on_chip(config, memory.on_chip)
        if memory.sdram is None:
            assert on_chip is not None, "BoardMemory has one or the other"
            connect(m, flipped(self.bus), on_chip.bus)
            m.d.comb += self.ready.eq(on_chip.ready)
            return m
        m.submodules.controller = controller = SdramMemory(
            config,
            memory.sdram,
            self._board.clock_hz,
            io_cycles=memory.io_cycles,
            masks=memory.masks,
        )
        connect(m, flipped(self.sdram), controller.sdram)
        m.d.comb += self.ready.eq(controller.ready)
        if on_chip is None or memory.on_chip is None:
            connect(m, flipped(self.bus), controller.bus)
            return m
        m.submodules.decoder = decoder = Decoder(config, memory.on_chip.nbytes)
        connect(m, flipped(self.bus), decoder.bus)
        connect(m, decoder.low, on_chip.bus)
        connect(m, decoder.high, controller.bus)
        return m


def _on_chip(config: AccelConfig, on_chip: OnChip) -> BlockMemory | SpramMemory:
    backend = {OnChipKind.BLOCK: BlockMemory, OnChipKind.SPRAM: SpramMemory}[on_chip.kind]
    return backend(config, on_chip.nbytes)


def board_memory(board: Board) -> Memory:
    """The memory of ``board``."""
    return Memory(board)
