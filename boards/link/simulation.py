"""The gateware of the link, Verilated, with a memory and registers of bytes behind it."""

import ctypes
import importlib.metadata
from collections.abc import Callable
from pathlib import Path

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from numpy.ctypeslib import as_array
from numpy.typing import NDArray

from accelc.boards.board import Board
from accelc.boards.link.endpoint import Link
from accelc.boards.link.uart import MINIMUM_DIVISOR, Uart
from accelc.hw.axi import Axi4, Axi4Lite
from accelc.sim.cache import cached_folder, content_key
from accelc.sim.verilator import TOP, build_library, sources

HARNESS = Path(__file__).with_suffix(".cpp")
REGISTER_BYTES = 512
#: Bytes of answers kept of one call.
_ROOM = 1 << 20
#: Silence, in bits on the line, after which nothing more is expected.
_QUIET_BITS = 40


class LinkBench(wiring.Component):
    """The host's UART, the line between, the board's UART and its end of the link.

    Members
    -------
    host_send : In(stream of 8)
    host_received : Out(stream of 8)
    flip : In(1)
        Invert the line to the board: noise.
    memory : Out(Axi4)
    registers : Out(Axi4Lite)
    core_busy : In(1)
    mlperf : Out(1)
    """

    host_send: stream.Interface
    host_received: stream.Interface
    flip: Signal
    memory: wiring.PureInterface
    registers: wiring.PureInterface
    core_busy: Signal
    mlperf: Signal

    def __init__(self, board: Board, cycles_per_bit: int) -> None:
        self._board = board
        self._cycles_per_bit = cycles_per_bit
        super().__init__(
            {
                "host_send": In(stream.Signature(8)),
                "host_received": Out(stream.Signature(8)),
                "flip": In(1),
                "memory": Out(Axi4(board.config)),
                "registers": Out(Axi4Lite()),
                "core_busy": In(1),
                "mlperf": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.host = host = Uart(self._cycles_per_bit, 1)
        m.submodules.uart = uart = Uart(self._cycles_per_bit, 1)
        m.submodules.link = link = Link(self._board)
        connect(m, flipped(self.host_send), host.send)
        connect(m, host.received, flipped(self.host_received))
        connect(m, uart.received, link.received)
        connect(m, link.send, uart.send)
        connect(m, link.memory, flipped(self.memory))
        connect(m, link.registers, flipped(self.registers))
        m.d.comb += [
            uart.rx.eq(host.tx ^ self.flip),
            host.rx.eq(uart.tx),
            link.line_break.eq(uart.line_break),
            link.core_busy.eq(self.core_busy),
            self.mlperf.eq(link.mlperf),
        ]
        return m


def _load(board: Board, cycles_per_bit: int) -> ctypes.CDLL:
    key = content_key(
        [
            repr((board.name, board.clock_hz, board.config, board.memory, cycles_per_bit)),
            importlib.metadata.version("amaranth"),
            *sources("accelc.boards.link"),
            *sources("accelc.hw"),
        ]
    )

    def build(folder: Path) -> None:
        from accelc.hw.verilog import component_rtlil, to_verilog

        text = to_verilog(component_rtlil(LinkBench(board, cycles_per_bit)))
        (folder / f"{TOP}.v").write_text(text)

    source = (cached_folder("boards/link", key, build) / f"{TOP}.v").read_text()
    flags = (f"-DBUS_BYTES={board.config.bus_bytes}",)
    path = build_library(source, HARNESS, what=f"the link of {board.name}", compile_flags=flags)
    lib = ctypes.CDLL(str(path))
    handle, i32, u32, u64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64
    signatures = {
        "link_new": (handle, [u64, u64]),
        "link_delete": (None, [handle]),
        "link_reset": (None, [handle]),
        "link_memory": (handle, [handle]),
        "link_registers": (handle, [handle]),
        "link_bus": (None, [handle, u32, u32, u64, u64]),
        "link_busy": (None, [handle, i32]),
        "link_flip": (None, [handle, u32]),
        "link_mlperf": (i32, [handle]),
        "link_cycles": (u64, [handle]),
        "link_accesses": (u64, [handle]),
        "link_flips": (u64, [handle]),
        "link_rings": (u64, [handle]),
        "link_run": (u64, [handle, ctypes.c_char_p, u64, ctypes.c_char_p, u64, u64]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class SimulatedEndpoint:
    """The board's end of the link, cycle by cycle; memory and registers are arrays of bytes.

    Time passes in :meth:`receive` alone.

    Raises:
        ToolError: the simulator can not be built.
    """

    def __init__(
        self, board: Board, *, cycles_per_bit: int = MINIMUM_DIVISOR, seed: int = 1
    ) -> None:
        self._handle = None
        self._library = _load(board, cycles_per_bit)
        self._quiet = _QUIET_BITS * cycles_per_bit
        self._latency = 4
        self._out = ctypes.create_string_buffer(_ROOM)
        self._handle = self._library.link_new(board.memory.nbytes, seed)
        self.memory = self._array(self._library.link_memory, board.memory.nbytes)
        self.registers = self._array(self._library.link_registers, REGISTER_BYTES)

    def _array(self, function: Callable[[int | None], int], nbytes: int) -> NDArray:
        return as_array((ctypes.c_uint8 * nbytes).from_address(function(self._handle)))

    def __del__(self) -> None:
        if self._handle is not None:
            self._library.link_delete(self._handle)
            self._handle = None

    def set_bus(self, latency: int, stall: float = 0.0, refused: range = range(0)) -> None:
        """Cycles and chance of a pause of both buses, and the addresses they refuse."""
        self._latency = latency
        share = round(stall * 65536)
        self._library.link_bus(self._handle, latency, share, refused.start, refused.stop)

    def set_busy(self, busy: bool) -> None:
        self._library.link_busy(self._handle, busy)

    def set_noise(self, chance: float) -> None:
        """Chance, in each cycle, that the line to the board is inverted."""
        self._library.link_flip(self._handle, round(chance * 65536))

    def reset(self) -> None:
        self._library.link_reset(self._handle)

    def receive(self, data: bytes) -> bytes:
        """What comes back when ``data`` is sent, until the line is silent."""
        quiet = self._quiet + 20 * self._latency
        size = self._library.link_run(self._handle, data, len(data), self._out, _ROOM, quiet)
        return ctypes.string_at(self._out, size)

    @property
    def mlperf(self) -> bool:
        return bool(self._library.link_mlperf(self._handle))

    @property
    def cycles(self) -> int:
        return self._library.link_cycles(self._handle)

    @property
    def accesses(self) -> int:
        """Bytes read and written on the buses so far."""
        return self._library.link_accesses(self._handle)

    @property
    def rings(self) -> int:
        """How often the register at 0x40 was written."""
        return self._library.link_rings(self._handle)

    @property
    def flips(self) -> int:
        """Cycles in which noise inverted the line so far."""
        return self._library.link_flips(self._handle)
