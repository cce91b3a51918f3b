"""Boards by address: a serial port, or the simulation of a board that is not there."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from accelc.boards.registry import BOARDS, find
from accelc.isa.config import AccelConfig
from accelc.isa.errors import ConfigError, InputError

if TYPE_CHECKING:
    from accelc.boards.link.host import Connection

#: How addresses look, for messages.
FORMS = "sim:BOARD, or a serial port such as /dev/ttyUSB0 or COM3, with @BAUD if it is not 3000000"
_SIMULATION = "sim:"
#: Paths, Windows' names, pyserial's URLs.
_PORT = re.compile(r"/.|COM\d|\\\\\.\\|\w+://", re.IGNORECASE)
_BAUD = re.compile(r"(.+)@(\d+)")
#: A simulation is a thousand times slower than its board.
_SIMULATION_PATIENCE_SECONDS = 60.0


def is_simulated(name: str) -> bool:
    """Whether the board that ``name`` means lives in this process."""
    return name.startswith(_SIMULATION)


def is_address(name: str) -> bool:
    """Whether ``name`` means a board, and not one of the other devices."""
    return is_simulated(name) or _PORT.match(name) is not None


def check_address(name: str) -> None:
    """Find out what can be found out without opening anything.

    Raises:
        ConfigError: there is no such board to simulate.
        InputError: the baud rate is none.
    """
    if is_simulated(name):
        find(name.removeprefix(_SIMULATION))
    else:
        _port_and_baud(name, None)


def _port_and_baud(name: str, config: AccelConfig | None) -> tuple[str, int]:
    """Port and rate: the one written, else that of the board with ``config``, else the usual."""
    from accelc.boards.link.host import DEFAULT_BAUD

    written = _BAUD.fullmatch(name)
    if written is not None:
        port, baud = written[1], int(written[2])
        if not 0 < baud <= 100_000_000:
            raise InputError(f"{baud} is no baud rate, in {name!r}")
        return port, baud
    rates = [b.baud for b in BOARDS.values() if config and b.config.digest == config.digest]
    return name, rates[0] if rates else DEFAULT_BAUD


def open_board(
    name: str,
    config: AccelConfig | None = None,
    report: Callable[[str], None] | None = None,
    *,
    cycles_per_bit: int | None = None,
) -> "Connection":
    """Connect to the board that ``name`` means; ``cycles_per_bit`` is of a simulated line.

    Raises:
        ConfigError: there is no such board to simulate, or its core is of another version or
            configuration.
        DeviceError: nothing answers there.
        ToolError: pyserial is missing, or the simulator can not be built.
    """
    from accelc.boards.link.host import Connection

    if not is_simulated(name):
        port, baud = _port_and_baud(name, config)
        return Connection(port, baud=baud, report=report)
    board = find(name.removeprefix(_SIMULATION))
    if config is not None and config.digest != board.config.digest:
        raise ConfigError(
            f"the program is for configuration {config.name!r}, {board.name} has "
            f"{board.config.name!r}; compile it with --config {board.name}"
        )
    from accelc.boards.simulate import CYCLES_PER_BIT, simulated_port

    if report is not None:
        report(f"building the simulator of {board.name} (takes some minutes the first time)")
    simulation = simulated_port(board, cycles_per_bit=cycles_per_bit or CYCLES_PER_BIT)
    try:
        return Connection(
            simulation.port,
            baud=board.baud,
            patience=_SIMULATION_PATIENCE_SECONDS,
            behind=simulation,
            report=report,
        )
    except BaseException:
        simulation.close()
        raise
