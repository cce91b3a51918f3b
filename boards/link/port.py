"""A serial port as the driver needs it: bytes, bounded waits, and errors a user can act on."""

import contextlib
import time
from typing import Any

from accelc.isa.errors import DeviceError, ToolError

#: Longest time one call of pyserial waits.
_SLICE_SECONDS = 0.02
#: A port that takes no bytes for this long is stuck.
_WRITE_SECONDS = 20.0
#: Longer than a byte at any rate worth using.
_BREAK_SECONDS = 0.01


def _serial() -> Any:
    try:
        import serial
        import serial.tools.list_ports
    except ImportError:
        raise ToolError(
            "pyserial is missing; install it with `pip install 'accelc[boards]'`"
        ) from None
    return serial


def port_names() -> list[str]:
    """Serial ports this machine knows of."""
    return sorted(found.device for found in _serial().tools.list_ports.comports())


def _open_failure(name: str, error: Exception) -> DeviceError:
    number = getattr(error, "errno", None)
    text = str(error)
    if number == 2 or "FileNotFound" in text:
        known = ", ".join(port_names()) or "none"
        return DeviceError(f"there is no serial port {name}; those found: {known}")
    if number == 13 or "PermissionError" in text:
        return DeviceError(
            f"no permission to open {name}; on Linux join the group that owns it (often dialout), "
            "elsewhere close the program that uses it"
        )
    if number in (11, 16) or "exclusively lock" in text:
        return DeviceError(f"{name} is in use by another program; close that first")
    return DeviceError(f"cannot open {name}: {text}")


class PortGone(DeviceError):
    """The port does not exist any more, or takes no data."""


class Port:
    """An open serial port, or anything pyserial has a URL for.

    Raises:
        DeviceError: it can not be opened; PortGone later, from every method.
        ToolError: pyserial is missing.
    """

    def __init__(self, name: str, baud: int) -> None:
        self.name = name
        self.baud = baud
        self._module = _serial()
        # Elsewhere than at a local port there is nothing to lock.
        lock = {} if "://" in name else {"exclusive": True}
        try:
            self._serial = self._module.serial_for_url(
                name, baudrate=baud, timeout=_SLICE_SECONDS, write_timeout=_WRITE_SECONDS, **lock
            )
        except (OSError, ValueError, OverflowError) as error:
            raise _open_failure(name, error) from error
        # FTDI chips hold short answers back for 16 ms unless they are told not to.
        with contextlib.suppress(Exception):
            self._serial.set_low_latency_mode(True)

    def _gone(self, error: Exception) -> PortGone:
        return PortGone(
            f"{self.name} is gone ({error}); was the board unplugged, or does another program read "
            "the port?"
        )

    def write(self, data: bytes) -> None:
        """Hand ``data`` to the system."""
        try:
            self._serial.write(data)
        except self._module.SerialTimeoutException as error:
            raise PortGone(
                f"{self.name} has taken no data for {_WRITE_SECONDS:.0f} s; is the cable's other "
                "end powered?"
            ) from error
        # termios.error is no OSError; pyserial raises TypeError when another thread closed it
        except Exception as error:
            raise self._gone(error) from error

    def read(self, seconds: float) -> bytes:
        """What has arrived, as soon as there is something; empty after ``seconds``."""
        deadline = time.monotonic() + seconds
        try:
            while True:
                data = self._serial.read(self._serial.in_waiting or 1)
                if data or time.monotonic() >= deadline:
                    return data
        except Exception as error:
            raise self._gone(error) from error

    def send_break(self) -> None:
        """Hold the line low for longer than a byte; where that is impossible, nothing."""
        with contextlib.suppress(Exception):
            self._serial.send_break(_BREAK_SECONDS)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._serial.close()
