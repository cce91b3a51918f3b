"""The accelerator core as the driver sees it: its registers over the link."""

import struct
import time

from accelc.boards.link.protocol import Region
from accelc.boards.link.requester import Piece, Requester
from accelc.isa.errors import ConfigError, DeviceError
from accelc.isa.program import Program
from accelc.isa.registers import BY_NAME, IDENTITY, REGISTERS, ErrorCode
from accelc.isa.spec import ISA_VERSION, Unit
from accelc.sim.device import Counters
from accelc.sim.faults import FETCH, device_fault

START, ABORT = 1, 2
BUSY, DONE, ERROR = 1, 2, 4
_UNITS = tuple(unit.name.lower() for unit in Unit)
_COUNTERS = [register for register in REGISTERS if register.offset >= BY_NAME["cycles_low"].offset]
#: Pauses between looks at the status of a run, which grow.
_FIRST_PAUSE_SECONDS = 0.0005
_LAST_PAUSE_SECONDS = 0.05
#: The core is idle this soon after an abort, or never.
_ABORT_SECONDS = 10.0
#: The clock stands still, or nothing has been executed for this many times what the watchdog
#: allows: then the core is broken in a way it does not notice itself.
_STILL_SECONDS = 20.0
_WATCHDOGS = 4


class RemoteCore:
    """The core's registers, by name."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._name = requester.name

    def read(self, name: str) -> int:
        """A register."""
        data = self._requester.read(Region.REGISTERS, BY_NAME[name].offset, 4)
        return int.from_bytes(data, "little")

    def counter(self, name: str) -> int:
        """A 64-bit counter."""
        data = self._requester.read(Region.REGISTERS, BY_NAME[f"{name}_low"].offset, 8)
        return int.from_bytes(data, "little")

    @staticmethod
    def _settings(values: dict[str, int]) -> Piece:
        """What writes registers that follow each other."""
        offsets = [BY_NAME[name].offset for name in values]
        assert offsets == list(range(offsets[0], offsets[0] + 4 * len(offsets), 4))
        data = struct.pack(f"<{len(offsets)}I", *values.values())
        return Region.REGISTERS, offsets[0], data

    def identify(self) -> int:
        """The digest of the core's configuration.

        Raises:
            DeviceError: what is at the port is no core of this instruction set.
        """
        identity, version = self.read("id"), self.read("version")
        if identity != IDENTITY:
            raise DeviceError(
                f"{self._name}: register id reads {identity:#010x}, not {IDENTITY:#010x}; the "
                "board's bitstream holds no accelerator of accelc"
            )
        if version != ISA_VERSION:
            raise ConfigError(
                f"{self._name}: the board's core has version {version} of the instruction set, "
                f"this accelc {ISA_VERSION}; build its bitstream again and flash it"
            )
        return self.read("config")

    def abort(self) -> None:
        """Stop what runs, clear an error, and wait until the core is idle."""
        self._requester.write([self._settings({"control": ABORT})])
        give_up = time.monotonic() + _ABORT_SECONDS
        while self.read("status") & (BUSY | ERROR):
            if time.monotonic() >= give_up:
                raise DeviceError(
                    f"{self._name}: the core is still busy {_ABORT_SECONDS:g} s after an abort; "
                    "reset the board"
                )
            time.sleep(_FIRST_PAUSE_SECONDS)

    def run(self, program: Program, memory_base: int, memory_bytes: int) -> Counters:
        """Run ``program``, which lies at ``memory_base``, to its end.

        Raises:
            DeviceError: the core reported an error; it is idle again.
        """
        settings = {
            "program_address": program.instructions_address,
            "program_length": len(program.instructions),
            "memory_base": memory_base,
            "memory_bytes": memory_bytes,
            "watchdog_cycles": BY_NAME["watchdog_cycles"].reset,
        }
        self._requester.write([self._settings(settings), self._settings({"control": START})])
        try:
            status = self._wait()
        except KeyboardInterrupt:
            self.abort()
            raise
        if status & ERROR:
            fault = self._fault(program)
            self.abort()
            raise fault
        return self._counters()

    def _wait(self) -> int:
        """The status once the core is not busy any more."""
        pause = _FIRST_PAUSE_SECONDS
        seen: dict[str, int] = {}
        active_cycles = 0
        changed = looked = time.monotonic()
        while True:
            status = self.read("status")
            if status & ERROR or not status & BUSY:
                break
            time.sleep(pause)
            pause = min(1.25 * pause, _LAST_PAUSE_SECONDS)
            now = time.monotonic()
            if now - looked < 1.0:
                continue
            looked = now
            counters = self._counter_values()
            if counters["cycles"] != seen.get("cycles"):
                changed = now
            done = [n for n in counters if n != "cycles" and not n.endswith("_wait")]
            if any(counters[name] != seen.get(name) for name in done):
                active_cycles = counters["cycles"]
            seen = counters
            still = counters["cycles"] - active_cycles
            limit = _WATCHDOGS * BY_NAME["watchdog_cycles"].reset
            if now - changed >= _STILL_SECONDS or still >= limit:
                self.abort()
                raise DeviceError(
                    f"{self._name}: the core is busy but does nothing ({still} cycles); reset the "
                    "board"
                )
        if not status & (DONE | ERROR):
            raise DeviceError(
                f"{self._name}: the core is idle without having run (status {status:#x}); did "
                "another program abort it?"
            )
        return status

    def _counter_values(self) -> dict[str, int]:
        """All counters, both halves of each joined."""
        first = _COUNTERS[0].offset
        size = _COUNTERS[-1].offset + 4 - first
        words = struct.unpack(f"<{size // 4}I", self._requester.read(Region.REGISTERS, first, size))
        values: dict[str, int] = {}
        for register in _COUNTERS:
            word = words[(register.offset - first) // 4]
            name = register.name.removesuffix("_low").removesuffix("_high")
            shift = 32 if register.name.endswith("_high") else 0
            values[name] = values.get(name, 0) | word << shift
        return values

    def _counters(self) -> Counters:
        values = self._counter_values()
        busy, wait = (
            (values[f"load_{w}"], values[f"gemm_{w}"], values[f"alu_{w}"], values[f"store_{w}"])
            for w in ("busy", "wait")
        )
        return Counters(
            cycles=values["cycles"],
            busy=busy,
            wait=wait,
            gemm_issue=values["gemm_issue"],
            gemm_stall=values["gemm_stall"],
            read_bytes=values["read_bytes"],
            write_bytes=values["write_bytes"],
        )

    def _fault(self, program: Program) -> DeviceError:
        """The error the registers report, with the instruction it stopped at."""
        number, info = self.read("error"), self.read("error_info")
        fetched, unit = info & 0xFF_FFFF, info >> 24
        if number not in list(ErrorCode) or unit > FETCH:
            return DeviceError(f"{self._name}: the core reports error {number} of unit {unit}")
        code = ErrorCode(number)
        if unit == FETCH:
            return device_fault(code, FETCH, fetched)
        retired = self.read(f"{_UNITS[unit]}_retired")
        own = [k for k, i in enumerate(program.instructions) if i.unit == unit]
        index = own[min(retired, len(own) - 1)] if own else None
        # Units look ahead: instructions before the faulty one may not have retired yet.
        detail = f"{fetched} instructions fetched"
        return device_fault(code, unit, index, detail, exact=False)
