"""A whole board, Verilated, behind a pseudo-terminal: to the host a serial port like any other."""

import contextlib
import ctypes
import functools
import importlib.metadata
import os
import re
import threading
import time
import tty
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from amaranth.hdl import Shape

from accelc.boards.board import Board
from accelc.boards.memory.chip_model import CHIP, REPORTS, chip_verilog, describe
from accelc.boards.memory.pins import SdramPins
from accelc.isa.errors import DeviceError
from accelc.sim.cache import cached_folder, content_key
from accelc.sim.verilator import TOP, build_library, sources

HARNESS = Path(__file__).with_name("simulate.cpp")
#: As fast as the UART gets: an upload costs simulated cycles, which are what a simulation is short
#: of, and the line between the two has no noise.
CYCLES_PER_BIT = 4
#: Name of the board's top where the module around it is `TOP`.
_INNER = "board"
_WRAPPER = f"""\
module {TOP} (
    input clk, rst, rx,
    output tx, output [2:0] leds,
    {", ".join(f"output [{bits - 1}:0] {name}" for name, bits in REPORTS.items())}
);
{{wires}}
    {_INNER} inner (.clk(clk), .rst(rst), .rx(rx), .tx(tx), .leds(leds){{pins}});
{{chips}}
endmodule
"""


def board_verilog(board: Board, cycles_per_bit: int = CYCLES_PER_BIT) -> str:
    """The board's top with the portable matrix array, its UART at the clock / ``cycles_per_bit``.

    Kept by content, so that a second start elaborates nothing.
    """
    key = content_key(
        [
            repr((board.name, board.family, board.config, board.clock_hz)),
            repr((board.memory, board.mlperf, cycles_per_bit)),
            importlib.metadata.version("amaranth"),
            *sources("accelc.isa"),
            *sources("accelc.hw"),
            *sources("accelc.boards"),
        ]
    )

    def build(folder: Path) -> None:
        from accelc.boards.primitives.arrays import simulated_array
        from accelc.boards.top import BoardTop
        from accelc.hw.verilog import component_rtlil, to_verilog

        array = simulated_array(board.family, board.config)
        top = BoardTop(board, baud=board.clock_hz // cycles_per_bit, array=array)
        (folder / f"{TOP}.v").write_text(to_verilog(component_rtlil(top)))

    return (cached_folder("boards", key, build) / f"{TOP}.v").read_text()


def surrounded(board: Board, verilog: str) -> str:
    """Verilog of ``board`` with the chips on it: what the harness drives.

    ``verilog`` is the board's top, the module ``accel``.
    """
    top = re.sub(rf"^module {TOP}\b", f"module {_INNER}", verilog, count=1, flags=re.MULTILINE)
    chip = board.memory.sdram
    if chip is None:
        reports = [f"    assign {name} = 0;" for name in REPORTS]
        return "\n".join((top, _WRAPPER.format(wires="", pins="", chips="\n".join(reports))))
    pins = {
        name: Shape.cast(member.shape).width for name, member in SdramPins(chip).members.items()
    }
    wires = [f"    wire [{bits - 1}:0] {name};" for name, bits in pins.items()]
    inner = [f", .sdram_{name}({name})" for name in pins]
    outer = [f", .{name}({name})" for name in (*pins, *REPORTS)]
    model = chip_verilog(chip, board.clock_hz, io_cycles=board.memory.io_cycles)
    chips = f"    {CHIP} chip (.clk(clk), .rst(rst){''.join(outer)});"
    wrapper = _WRAPPER.format(wires="\n".join(wires), pins="".join(inner), chips=chips)
    return "\n".join((top, wrapper, model))


def board_library(board: Board, verilog: str, *, quick: bool = False) -> Path:
    """The simulator of a board whose top is ``verilog``, with the chips around it.

    ``quick`` as in `build_library`.
    """
    return build_library(surrounded(board, verilog), HARNESS, what=board.name, quick=quick)


@functools.cache
def _load_library(path: Path) -> ctypes.CDLL:
    lib = ctypes.CDLL(str(path))
    handle, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    signatures = {
        "board_new": (handle, [ctypes.c_int, u32, u64, ctypes.c_char_p]),
        "board_delete": (None, [handle]),
        "board_run": (None, [handle]),
        "board_stop": (None, [handle]),
        "board_unplug": (None, [handle]),
        "board_plugged": (ctypes.c_int, [handle]),
        "board_press_reset": (None, [handle]),
        "board_line_break": (None, [handle]),
        "board_cycles": (u64, [handle]),
        "board_leds": (u32, [handle]),
        "board_violations": (u32, [handle]),
        "board_first_rule": (u32, [handle]),
        "board_first_time": (u64, [handle]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


@dataclass(frozen=True, kw_only=True)
class _End:
    """What is known of a simulation that has ended."""

    cycles: int
    violations: int
    first_rule: int
    #: In femtoseconds since power up.
    first_time: int


def _finish(lib: ctypes.CDLL, handle: int, thread: threading.Thread, slave: int) -> _End:
    """End a simulation and free what it holds."""
    lib.board_stop(handle)
    thread.join()
    end = _End(
        cycles=lib.board_cycles(handle),
        violations=lib.board_violations(handle),
        first_rule=lib.board_first_rule(handle),
        first_time=lib.board_first_time(handle),
    )
    lib.board_delete(handle)
    os.close(slave)
    return end


class SimulatedPort:
    """A running simulation of a board; ``port`` is what to open instead of ``/dev/ttyUSB0``.

    The simulation runs in a thread of its own until :meth:`close`, which the ``with`` statement
    calls. It takes no processor time to speak of while the host sends nothing.
    """

    def __init__(
        self, board: Board, library: Path, cycles_per_bit: int, seed: int, plusarg: str = ""
    ) -> None:
        """Power up; `simulated_port` makes the arguments."""
        self.board = board
        self._end = _End(cycles=0, violations=0, first_rule=0, first_time=0)
        self._library = lib = _load_library(library)
        master, slave = os.openpty()
        os.set_blocking(master, False)
        # Kept open here, so that the line stays up while the host opens and closes it.
        tty.setraw(slave)
        self.port: str = os.ttyname(slave)
        self._handle = lib.board_new(master, cycles_per_bit, seed, plusarg.encode())
        thread = threading.Thread(
            target=lib.board_run, args=(self._handle,), name=f"sim:{board.name}", daemon=True
        )
        thread.start()
        # also when the program ends or forgets the port
        self._finish = weakref.finalize(self, _finish, lib, self._handle, thread, slave)

    def __enter__(self) -> "SimulatedPort":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # what went wrong first is what the user should read
        with contextlib.suppress(DeviceError) if kind else contextlib.nullcontext():
            self.close()

    def __repr__(self) -> str:
        return f"<SimulatedPort of {self.board.name} at {self.port}>"

    @property
    def cycles(self) -> int:
        """Clock cycles since power up."""
        if not self._finish.alive:
            return self._end.cycles
        return self._library.board_cycles(self._handle)

    @property
    def violations(self) -> int:
        """Rules of the SDRAM that the board broke so far."""
        if not self._finish.alive:
            return self._end.violations
        return self._library.board_violations(self._handle)

    @property
    def leds(self) -> tuple[bool, bool, bool]:
        """Ready, busy, error; as of a moment ago.

        Raises:
            DeviceError: the simulation has ended.
        """
        bits = self._library.board_leds(self._running())
        return bool(bits & 1), bool(bits & 2), bool(bits & 4)

    def _running(self) -> int:
        if not self._finish.alive:
            raise DeviceError(f"the simulation of {self.board.name} has ended")
        return self._handle

    def unplug(self) -> None:
        """Pull the cable: whoever has the port open finds it gone, for good.

        Raises:
            DeviceError: the simulation has ended.
        """
        self._library.board_unplug(self._running())
        while self._library.board_plugged(self._handle):
            time.sleep(0.001)

    def press_reset(self) -> None:
        """Push the board's reset button.

        Raises:
            DeviceError: the simulation has ended.
        """
        self._library.board_press_reset(self._running())

    def send_break(self) -> None:
        """Hold the line to the board low for longer than a byte.

        Raises:
            DeviceError: the simulation has ended.
        """
        self._library.board_line_break(self._running())

    def close(self) -> None:
        """End the simulation; again is no error.

        Raises:
            DeviceError: the board broke a rule of its SDRAM.
        """
        end = self._finish()
        if end is None:
            return
        self._end = end
        if end.violations:
            report = describe(end.violations, end.first_rule, end.first_time)
            raise DeviceError(f"{self.board.name} broke rules of its SDRAM: {report}")


def simulated_port(
    board: Board,
    *,
    cycles_per_bit: int = CYCLES_PER_BIT,
    verilog: str | None = None,
    seed: int = 1,
    plusarg: str = "",
) -> SimulatedPort:
    """A serial port with ``board`` behind it, simulated cycle by cycle with its memory chip.

    Parameters
    ----------
    board
        What to simulate.
    cycles_per_bit
        Clock cycles of a bit on the serial line, at least 4. The rate a program sets at the port
        means nothing.
    verilog
        The board's top, module ``accel``, if not its RTL: a netlist, say. Compiling takes less
        time then, and running more.
    seed
        Of the noise that memories hold after power up.
    plusarg
        ``+name=value`` for what of ``verilog`` looks for it with ``$value$plusargs``.

    Raises
    ------
    ToolError
        The simulator can not be built.
    """
    if verilog is None:
        library = board_library(board, board_verilog(board, cycles_per_bit))
    else:
        library = board_library(board, verilog, quick=True)
    return SimulatedPort(board, library, cycles_per_bit, seed, plusarg)
