"""The RTL device: the Verilated core, run in this process with its memory in C++."""

import ctypes
import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accelc.isa.config import AccelConfig
from accelc.isa.errors import ConfigError, DeviceError
from accelc.isa.program import Program
from accelc.isa.registers import BY_NAME, IDENTITY, ErrorCode
from accelc.isa.spec import ISA_VERSION, Unit
from accelc.sim.device import Counters, Device, MemoryModel
from accelc.sim.faults import FETCH, device_fault
from accelc.sim.verilator import library

_UNITS = tuple(unit.name.lower() for unit in Unit)
_START, _ABORT = 1, 2
_BUSY, _DONE, _ERROR = 1, 2, 4
#: Where the program's memory lies on the bus; not 0, so that a missing base is noticed.
MEMORY_BASE = 0x4000_0000
#: Cycles between looks at the clock limit; one call into the library each.
_SLICE_CYCLES = 1 << 24
#: Cycles the core may take to stop after an abort.
_ABORT_CYCLES = 1 << 20


class _Model(ctypes.Structure):
    """``MemoryModel`` of harness.cpp."""

    _fields_ = (
        ("latency_cycles", ctypes.c_uint32),
        ("bytes_per_cycle", ctypes.c_uint32),
        ("stall_per_65536", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("error_low", ctypes.c_uint64),
        ("error_high", ctypes.c_uint64),
    )


@functools.cache
def _load_library(path: Path) -> ctypes.CDLL:
    lib = ctypes.CDLL(str(path))
    handle, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    out32 = ctypes.POINTER(u32)
    signatures = {
        "accel_new": (handle, [ctypes.c_int64]),
        "accel_delete": (None, [handle]),
        "accel_set_model": (None, [handle, ctypes.POINTER(_Model)]),
        "accel_memory": (handle, [handle, u64, u64]),
        "accel_write_register": (ctypes.c_int, [handle, u32, u32, out32]),
        "accel_read_register": (ctypes.c_int, [handle, u32, out32, out32]),
        "accel_mark": (None, [handle]),
        "accel_run": (u64, [handle, u64]),
        "accel_step": (None, [handle, u64]),
        "accel_trace": (u64, [handle, u32, ctypes.c_int, ctypes.POINTER(ctypes.POINTER(u64))]),
        "accel_violation": (ctypes.c_char_p, [handle]),
        "accel_outstanding": (u32, [handle]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class RtlDevice(Device):
    """The core of ``config`` behind ``memory``.

    ``seed`` fills registers, scratchpads and memory with repeatable noise; without it they start as
    zero. A run that exceeds ``max_cycles`` is aborted as a fault.

    Raises:
        ToolError: the simulator can not be built.
        ConfigError: the core is not what ``config`` describes.
    """

    name = "rtl"

    def __init__(
        self,
        config: AccelConfig,
        memory: MemoryModel | None = None,
        seed: int | None = None,
        max_cycles: int = 1 << 40,
    ) -> None:
        super().__init__(config)
        self.memory_model = memory or MemoryModel()
        self.max_cycles = max_cycles
        self._rng = None if seed is None else np.random.default_rng(seed)
        self._library = _load_library(library(config))
        self._handle = self._library.accel_new(-1 if seed is None else seed & 0x7FFF_FFFF)
        self._memory: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.set_memory_model(self.memory_model)
        self._identify()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            self._library.accel_delete(handle)
            self._handle = None

    def set_memory_model(self, model: MemoryModel, errors: tuple[int, int] | None = None) -> None:
        """Change the memory's timing; ``errors`` is a range of addresses that answer SLVERR."""
        low, high = (0, 0) if errors is None else (e + MEMORY_BASE for e in errors)
        self.memory_model = model
        fields = _Model(
            model.latency_cycles,
            model.bytes_per_cycle,
            model.stall_per_65536,
            model.seed & 0xFFFF_FFFF,
            low,
            high,
        )
        self._library.accel_set_model(self._handle, ctypes.byref(fields))

    def _identify(self) -> None:
        """Refuse a core that is not what the program will be checked against."""
        config = self.config
        expected = {
            "id": IDENTITY,
            "version": ISA_VERSION,
            "config": config.digest,
            "shape": config.batch
            | config.block_in << 8
            | config.block_out << 16
            | config.bus_bytes << 24,
        }
        for name, value in expected.items():
            found = self.read_register(name)
            if found != value:
                raise ConfigError(
                    f"register {name} reads {found:#x}, configuration {config.name!r} needs "
                    f"{value:#x}; the core was built for another configuration or version"
                )

    def read_register(self, name: str) -> int:
        """The register ``name`` of ``isa.registers``."""
        value, response = ctypes.c_uint32(), ctypes.c_uint32()
        answered = self._library.accel_read_register(
            self._handle, BY_NAME[name].offset, ctypes.byref(value), ctypes.byref(response)
        )
        self._check_access(name, answered, response.value)
        return value.value

    def write_register(self, name: str, value: int) -> None:
        response = ctypes.c_uint32()
        answered = self._library.accel_write_register(
            self._handle, BY_NAME[name].offset, value, ctypes.byref(response)
        )
        self._check_access(name, answered, response.value)

    @staticmethod
    def _check_access(name: str, answered: int, response: int) -> None:
        if not answered:
            raise DeviceError(f"register {name} did not answer within 1000 cycles")
        if response:
            raise DeviceError(f"access to register {name} was refused with response {response}")

    def reserve(self, nbytes: int) -> None:
        pointer = self._library.accel_memory(self._handle, MEMORY_BASE, nbytes)
        self._memory = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(pointer))
        if self._rng is not None:
            self._memory[:] = np.frombuffer(self._rng.bytes(nbytes), np.uint8)

    def _check_range(self, address: int, nbytes: int) -> None:
        if address < 0 or nbytes < 0 or address + nbytes > self._memory.size:
            raise DeviceError(
                f"bytes {address} to {address + nbytes} are outside the {self._memory.size} bytes "
                "of device memory; load the program before touching its memory"
            )

    def write(self, address: int, data: bytes) -> None:
        self._check_range(address, len(data))
        self._memory[address : address + len(data)] = np.frombuffer(data, np.uint8)

    def read(self, address: int, nbytes: int) -> bytes:
        self._check_range(address, nbytes)
        return self._memory[address : address + nbytes].tobytes()

    def run(self, program: Program) -> Counters:
        settings = {
            "program_address": program.instructions_address,
            "program_length": len(program.instructions),
            "memory_base": MEMORY_BASE,
            "memory_bytes": self._memory.size,
        }
        for name, value in settings.items():
            self.write_register(name, value)
        self._library.accel_mark(self._handle)
        self.write_register("control", _START)
        self._wait(program)
        return self._counters(program)

    def _wait(self, program: Program) -> None:
        """Run to the end of the program; on an error recover, then raise it."""
        left = self.max_cycles
        while True:
            ran = self._library.accel_run(self._handle, min(left, _SLICE_CYCLES))
            left -= ran
            self._check_bus()
            status = self.read_register("status")
            if status & _ERROR:
                fault = self._fault(program)
                self._recover()
                raise fault
            if status & _DONE and not status & _BUSY:
                return
            if left <= 0:
                self._recover()
                raise DeviceError(
                    f"the program did not end within {self.max_cycles} cycles (status {status}); "
                    "raise max_cycles if it is that long"
                )

    def _check_bus(self) -> None:
        violation = self._library.accel_violation(self._handle).decode()
        if violation:
            raise DeviceError(f"the core broke a rule of AXI4: {violation}")

    def _fault(self, program: Program) -> DeviceError:
        """The error the registers report, with the instruction it stopped at."""
        number = self.read_register("error")
        code = ErrorCode(number)
        info = self.read_register("error_info")
        fetched, unit = info & 0xFF_FFFF, info >> 24
        if unit == FETCH:
            return device_fault(code, FETCH, fetched)
        retired = self.read_register(f"{_UNITS[unit]}_retired")
        own = self._indices(program, unit)
        index = int(own[min(retired, own.size - 1)]) if own.size else None
        # Units look ahead: instructions before the faulty one may not have retired yet.
        detail = f"{fetched} instructions fetched"
        return device_fault(code, unit, index, detail, exact=False)

    def _recover(self) -> None:
        """Abort and clear through the control register, then wait until the core is idle."""
        self.write_register("control", _ABORT)
        for _ in range(_ABORT_CYCLES // 64):
            self._library.accel_step(self._handle, 64)
            if not self.read_register("status") & (_BUSY | _ERROR):
                break
        else:
            raise DeviceError(f"the core did not stop within {_ABORT_CYCLES} cycles of an abort")
        self._check_bus()
        outstanding = self._library.accel_outstanding(self._handle)
        if outstanding:
            raise DeviceError(f"the core went idle with {outstanding} bus requests unanswered")

    @staticmethod
    def _indices(program: Program, unit: int) -> NDArray[np.int64]:
        """Program positions of a unit's instructions, in its order."""
        return np.array([k for k, i in enumerate(program.instructions) if i.unit == unit], np.int64)

    def _trace(self, unit: int, retired: bool) -> NDArray[np.int64]:
        pointer = ctypes.POINTER(ctypes.c_uint64)()
        size = self._library.accel_trace(self._handle, unit, retired, ctypes.byref(pointer))
        if not size:
            return np.zeros(0, np.int64)
        return np.ctypeslib.as_array(pointer, (size,)).astype(np.int64)

    def counter(self, name: str) -> int:
        """A 64-bit counter."""
        return self.read_register(f"{name}_low") | self.read_register(f"{name}_high") << 32

    def _counters(self, program: Program) -> Counters:
        started = np.zeros(len(program.instructions), np.int64)
        retired = np.zeros(len(program.instructions), np.int64)
        for unit in Unit:
            own = self._indices(program, unit)
            started[own] = self._trace(unit, False)
            retired[own] = self._trace(unit, True)
        cycles = self.counter("cycles")
        # FINISH belongs to no unit: it ends when the program does.
        # The counters begin some cycles into the run, when the reset has gone out everywhere.
        late = max(int(retired.max()) - cycles, 0)
        started, retired = np.maximum(started - late, 0), np.maximum(retired - late, 0)
        started[-1] = retired[-1] = cycles
        busy, wait = (
            tuple(self.counter(f"{unit}_{what}") for unit in _UNITS) for what in ("busy", "wait")
        )
        return Counters(
            cycles=cycles,
            busy=(busy[0], busy[1], busy[2], busy[3]),
            wait=(wait[0], wait[1], wait[2], wait[3]),
            gemm_issue=self.counter("gemm_issue"),
            gemm_stall=self.counter("gemm_stall"),
            read_bytes=self.counter("read_bytes"),
            write_bytes=self.counter("write_bytes"),
            started=started,
            retired=retired,
        )
