"""A board on a cable as a device: the driver."""

import contextlib
import time
from collections.abc import Callable
from typing import Protocol

from accelc.boards.link.core import BUSY, RemoteCore
from accelc.boards.link.port import Port
from accelc.boards.link.protocol import PAGE_BYTES, BoardRecord, Region
from accelc.boards.link.requester import Requester
from accelc.isa.config import AccelConfig
from accelc.isa.errors import ConfigError, DeviceError, DoesNotFitError
from accelc.isa.program import Program
from accelc.sim.device import Counters, Device

#: Of a board that does not say otherwise.
DEFAULT_BAUD = 3_000_000
PATIENCE_SECONDS = 5.0
#: Seconds between reports of a long transfer.
_REPORT_SECONDS = 0.2

Report = Callable[[str], None]


class Closes(Protocol):
    """Whatever the port leads to, if it is ours."""

    def close(self) -> None: ...


class Connection:
    """An open board: its record, its core, and its memory, which several devices may share.

    Parameters
    ----------
    port
        Of the operating system, or a URL of pyserial.
    baud
        The board's baud rate.
    patience
        Seconds without progress after which the board counts as dead.
    behind
        What is closed together with the port.
    report
        Is told what long transfers are at.

    Raises
    ------
    DeviceError
        The port can not be opened, or no board answers.
    ConfigError
        The board's core has another instruction set.
    ToolError
        pyserial is missing.
    """

    def __init__(
        self,
        port: str,
        *,
        baud: int = DEFAULT_BAUD,
        patience: float = PATIENCE_SECONDS,
        behind: Closes | None = None,
        report: Report | None = None,
    ) -> None:
        self.port, self.baud = port, baud
        self._patience = patience
        self._behind = behind
        self.report = report
        self._port: Port | None = None
        #: Counts what makes everything in the board's memory worthless.
        self.generation = 0
        self.requester: Requester
        self.core: RemoteCore
        self.record: BoardRecord
        #: Digest of the core's configuration.
        self.digest = 0
        self._areas: dict[int, int] = {}
        self.open()

    def open(self) -> None:
        """Open the port, again if it was open, and find out what is there."""
        self._close_port()
        self.generation += 1
        self._areas = {}
        self._port = Port(self.port, self.baud)
        self.requester = Requester(self._port, patience=self._patience)
        self.core = RemoteCore(self.requester)
        self.requester.connect()
        record = BoardRecord.decode(self.requester.read(Region.BOARD, 0, BoardRecord.SIZE))
        if record is None:
            raise DeviceError(
                f"{self.port}: the board's record is unreadable; flash its bitstream again"
            )
        self.record = record
        self.digest = self.core.identify()
        if self.digest != record.digest:
            raise DeviceError(
                f"{self.port}: the core's configuration is {self.digest:08x}, the board's record "
                f"says {record.digest:08x}; build its bitstream again and flash it"
            )
        if self.core.read("status") & BUSY:
            self.core.abort()  # whoever started that is gone

    @property
    def lost(self) -> bool:
        """Whether it must be opened again."""
        return self._port is None or self.requester.lost is not None

    def require(self, generation: int) -> None:
        """Refuse to go on with what was in memory before the board was lost.

        Raises:
            DeviceError: it is not there any more.
        """
        if self.lost or generation != self.generation:
            because = f" ({self.requester.lost})" if self.requester.lost else ""
            raise DeviceError(
                f"{self.port}: the board was lost{because}, and the program in its memory with "
                "it; load the program again"
            )

    def allocate(self, nbytes: int) -> int:
        """The address of that many bytes of the board's memory, on a page.

        Raises:
            DoesNotFitError: there are not as many left.
        """
        start = 0
        for base, size in sorted(self._areas.items()):
            if base - start >= nbytes:
                break
            start = -(-(base + size) // PAGE_BYTES) * PAGE_BYTES
        if start + nbytes > self.record.memory_bytes:
            used = sum(self._areas.values())
            raise DoesNotFitError(
                f"the program needs {nbytes} bytes of memory, board {self.record.name} has "
                f"{self.record.memory_bytes}" + (f", of which {used} are in use" if used else "")
            )
        self._areas[start] = nbytes
        return start

    def release(self, base: int) -> None:
        self._areas.pop(base, None)

    def write(self, address: int, data: bytes, what: str) -> None:
        """Write to memory, and report how far it is."""
        self.requester.write([(Region.MEMORY, address, data)], self._progress(what, len(data)))

    def read(self, address: int, nbytes: int, what: str) -> bytes:
        progress = self._progress(what, nbytes)
        return self.requester.read(Region.MEMORY, address, nbytes, progress)

    def _progress(self, what: str, total: int) -> Callable[[int], None]:
        begin = last = time.monotonic()
        done = 0

        def progress(nbytes: int) -> None:
            nonlocal done, last
            done += nbytes
            now = time.monotonic()
            if self.report is not None and now - last >= _REPORT_SECONDS:
                last = now
                rate = done / (now - begin) / 1024
                self.report(
                    f"{what}: {100 * done // total} % of {total / 1024:.0f} KiB, {rate:.0f} KiB/s"
                )

        return progress

    def _close_port(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    def close(self) -> None:
        """Close the port, and what is behind it; again is no error."""
        self._close_port()
        behind, self._behind = self._behind, None
        if behind is not None:
            behind.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # What went wrong first is what the user should read.
        with contextlib.suppress(DeviceError) if kind else contextlib.nullcontext():
            self.close()


class BoardDevice(Device):
    """The accelerator of a board, and as much of its memory as :meth:`reserve` asks for.

    A lost board (reset, unplugged) is opened again by :meth:`load`; everything else refuses, as
    the program is not there any more.

    Parameters
    ----------
    config
        What programs are compiled for.
    connection
        The board.

    Raises
    ------
    ConfigError
        The board has another configuration.
    """

    name = "board"

    def __init__(self, config: AccelConfig, connection: Connection) -> None:
        super().__init__(config)
        self.connection = connection
        self._generation = 0
        self._base = 0
        self._nbytes = 0
        self._check()

    def _check(self) -> None:
        found = self.connection
        if found.digest != self.config.digest:
            raise ConfigError(
                f"the program is for configuration {self.config.name!r} "
                f"({self.config.digest:08x}), board {found.record.name} at {found.port} has "
                f"{found.digest:08x}; compile it with --config {found.record.name}"
            )

    @property
    def clock_hz(self) -> int:
        return self.connection.record.clock_hz

    def load(self, program: Program) -> None:
        if self.connection.lost:
            self.connection.open()
            self._check()
        super().load(program)

    def reserve(self, nbytes: int) -> None:
        if self._generation == self.connection.generation:
            self.connection.release(self._base)
        self._nbytes = 0
        self._base = self.connection.allocate(nbytes)
        self._nbytes = nbytes
        self._generation = self.connection.generation

    def _place(self, address: int, nbytes: int) -> int:
        """Where the board has those bytes."""
        self.connection.require(self._generation)
        if address < 0 or nbytes < 0 or address + nbytes > self._nbytes:
            raise DeviceError(
                f"bytes {address} to {address + nbytes} are outside the {self._nbytes} bytes "
                "of device memory; load the program before touching its memory"
            )
        return self._base + address

    def write(self, address: int, data: bytes) -> None:
        place = self._place(address, len(data))
        self.connection.write(place, data, f"writing to {self.connection.record.name}")

    def read(self, address: int, nbytes: int) -> bytes:
        place = self._place(address, nbytes)
        return self.connection.read(place, nbytes, f"reading from {self.connection.record.name}")

    def run(self, program: Program) -> Counters:
        base = self._place(0, program.memory_bytes)
        return self.connection.core.run(program, base, self._nbytes)
