"""Checks of a board from the driver's side: link, registers, memory, core."""

import random
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from accelc.boards.link.host import BoardDevice, Connection
from accelc.boards.link.protocol import BoardRecord, Region
from accelc.boards.registry import BOARDS
from accelc.isa.config import AccelConfig
from accelc.isa.errors import AccelcError, DeviceError
from accelc.isa.registers import BY_NAME, Access
from accelc.isa.spec import Buffer, Load, Unit
from accelc.sim.fault_programs import small_program
from accelc.sim.golden import GoldenDevice
from accelc.sim.random_programs import compare, random_program

_PINGS = 50
#: Bytes written around each address line.
_MARK_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Check:
    """What one check found; ``passed`` is None if it could not be made."""

    name: str
    passed: bool | None
    detail: str
    seconds: float


class CheckFailed(DeviceError):
    """A check found something wrong."""


class Selftest:
    """The checks of one board, to be made in order.

    Parameters
    ----------
    connection
        The board; what is in its memory is overwritten.
    memory_bytes
        How much memory the test of data writes and reads.
    programs
        How many random programs run.
    seed
        Of everything random.
    config
        What the board's core was built from, if not what a board of this accelc has.

    Raises
    ------
    ConfigError
        The board has another configuration than ``config``.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        memory_bytes: int,
        programs: int,
        seed: int,
        config: AccelConfig | None = None,
    ) -> None:
        self._connection = connection
        self._size = min(memory_bytes, connection.record.memory_bytes)
        self._programs = programs
        self._seed = seed
        self._random = random.Random(seed)
        if config is not None:
            BoardDevice(config, connection)  # which checks that it is the board's
        configs = (config, *(board.config for board in BOARDS.values()))
        #: None if it is not known here.
        self.config = next((c for c in configs if c and c.digest == connection.digest), None)

    def run(self) -> Iterator[Check]:
        """Make one check after the other; a lost board ends it."""
        checks: list[tuple[str, Callable[[], str | None]]] = [
            ("handshake", self._handshake),
            ("link latency", self._latency),
            ("registers", self._registers),
            ("memory: address lines", self._address_lines),
            ("memory: data", self._data),
            ("core: programs", self._run_programs),
            ("core: errors", self._run_fault),
            ("line", self._line),
        ]
        for name, check in checks:
            start = time.monotonic()
            try:
                detail = check()
                passed = None if detail is None else True
            except AccelcError as error:
                detail, passed = str(error), False
            if detail is None:
                detail = "no board of this accelc has this configuration; give it with --config"
            seconds = time.monotonic() - start
            yield Check(name=name, passed=passed, detail=detail, seconds=seconds)
            if self._connection.lost:
                return

    def _handshake(self) -> str:
        record = self._connection.record
        return (
            f"board {record.name}, {record.clock_hz / 1e6:g} MHz, "
            f"{record.memory_bytes / 1024:,.0f} KiB, configuration {self._connection.digest:08x}"
        )

    def _latency(self) -> str:
        requester = self._connection.requester
        times: list[float] = []
        for _ in range(_PINGS):
            start = time.monotonic()
            requester.read(Region.BOARD, 0, BoardRecord.SIZE)
            times.append(1e3 * (time.monotonic() - start))
        times.sort()
        return (
            f"{times[len(times) // 2]:.2f} ms for {BoardRecord.SIZE} bytes, "
            f"{times[0]:.2f} to {times[-1]:.2f}"
        )

    def _registers(self) -> str:
        """Identity, then every bit of the registers that can be written, each by itself."""
        connection = self._connection
        if self.config is not None:
            shape = connection.core.read("shape")
            config = self.config
            fields = (config.batch, config.block_in, config.block_out, config.bus_bytes)
            wanted = int.from_bytes(bytes(fields), "little")
            if shape != wanted:
                raise CheckFailed(f"register shape reads {shape:#010x}, not {wanted:#010x}")
        names = [n for n, register in BY_NAME.items() if register.access is Access.READ_WRITE]
        first = BY_NAME[names[0]].offset
        before = connection.requester.read(Region.REGISTERS, first, 4 * len(names))
        patterns = [[1 << bit] * len(names) for bit in range(32)]
        patterns += [[self._random.getrandbits(32) for _ in names] for _ in range(8)]
        for pattern in patterns:
            data = struct.pack(f"<{len(names)}I", *pattern)
            connection.requester.write([(Region.REGISTERS, first, data)])
            found = connection.requester.read(Region.REGISTERS, first, len(data))
            if found != data:
                wrong = next(
                    n for n in range(len(names)) if found[4 * n :][:4] != data[4 * n :][:4]
                )
                raise CheckFailed(
                    f"register {names[wrong]} was written {data[4 * wrong :][:4].hex()} and reads "
                    f"{found[4 * wrong :][:4].hex()}"
                )
        connection.requester.write([(Region.REGISTERS, first, before)])
        return f"identity; {len(names)} registers with {len(patterns)} patterns"

    def _address_lines(self) -> str:
        """A mark at 0 and at every power of two: none may show up elsewhere."""
        requester, total = self._connection.requester, self._connection.record.memory_bytes
        places = [0]
        while max(_MARK_BYTES, 2 * places[-1]) + _MARK_BYTES <= total:
            places.append(max(_MARK_BYTES, 2 * places[-1]))
        places.append(total - _MARK_BYTES)
        marks = {place: self._random.randbytes(_MARK_BYTES) for place in places}
        requester.write([(Region.MEMORY, place, mark) for place, mark in marks.items()])
        for place, mark in marks.items():
            found = requester.read(Region.MEMORY, place, _MARK_BYTES)
            if found != mark:
                other = next((f" (that of {p:#x})" for p, m in marks.items() if m == found), "")
                raise CheckFailed(f"at {place:#x} there is {found.hex()}{other}, not {mark.hex()}")
        return f"{len(marks)} addresses up to {total:#x}"

    def _data(self) -> str:
        """Random data at a random place, unaligned; tells the throughput as well."""
        connection, size = self._connection, self._size
        total = connection.record.memory_bytes
        place = self._random.randrange(total - size + 1)
        data = self._random.randbytes(size)
        start = time.monotonic()
        connection.write(place, data, "writing to memory")
        written = time.monotonic()
        found = connection.read(place, size, "reading from memory")
        read = time.monotonic()
        if found != data:
            wrong = [n for n in range(size) if found[n] != data[n]]
            bits = Counter(
                bit for n in wrong for bit in range(8) if (found[n] ^ data[n]) >> bit & 1
            )
            raise CheckFailed(
                f"{len(wrong)} of {size} bytes differ, the first at {place + wrong[0]:#x}: "
                f"{found[wrong[0]]:#04x}, not {data[wrong[0]]:#04x}; wrong bits {dict(bits)}"
            )
        rates = (size / 1024 / (written - start), size / 1024 / (read - written))
        return f"{size / 1024:.0f} KiB at {place:#x}; {rates[0]:.1f} KiB/s out, {rates[1]:.1f} back"

    def _run_programs(self) -> str | None:
        """Random programs for every unit, against the definition of each instruction."""
        if self.config is None:
            return None
        board = BoardDevice(self.config, self._connection)
        golden = GoldenDevice(self.config)
        count: Counter[str] = Counter()
        cycles = 0
        for number in range(self._programs):
            seed = self._seed + number
            program = random_program(self.config, seed)
            difference = compare(program, (golden, board))
            if difference is not None:
                raise CheckFailed(f"random program {seed}: {difference}")
            for unit in Unit:
                name = unit.name.lower()
                retired = self._connection.core.read(f"{name}_retired")
                expected = sum(i.unit is unit for i in program.instructions)
                if retired != expected:
                    raise CheckFailed(
                        f"random program {seed}: unit {name} finished {retired} instructions of "
                        f"{expected}"
                    )
                count[name] += expected
            cycles += self._connection.core.counter("cycles")
        units = ", ".join(f"{number} {name}" for name, number in count.items())
        return f"{self._programs} programs: {units}; {cycles:,} cycles"

    def _run_fault(self) -> str | None:
        """A program without FINISH must end in that error, and the next one must run."""
        if self.config is None:
            return None
        board = BoardDevice(self.config, self._connection)
        broken = small_program(self.config, Load(buffer=Buffer.INP))
        board.load(broken)
        try:
            board.run(broken)
        except DeviceError as error:
            if "MISSING_FINISH" not in str(error):
                raise
            message = str(error).split(";")[0]
        else:
            raise CheckFailed("a program without FINISH ran to its end")
        program = random_program(self.config, self._seed)
        difference = compare(program, (GoldenDevice(self.config), board))
        if difference is not None:
            raise CheckFailed(f"after an error: {difference}")
        return f"reported {message}; then ran on"

    def _line(self) -> str:
        """Errors on the line, which the protocol has hidden so far."""
        found = self._connection.requester.statistics
        return (
            f"{found.requests} requests, {found.repeated} repeated, {found.refused} refused; "
            f"{found.answers} answers, {found.damaged} damaged; {found.timeouts} timeouts"
        )
