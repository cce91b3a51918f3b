"""The contract every device keeps: functional, timing, RTL, and the board on a cable."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accelc.isa.config import AccelConfig
from accelc.isa.errors import ConfigError
from accelc.isa.program import Program


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What a run cost, one shape for simulators and boards; names as in ``isa.registers``.

    The functional device counts nothing but bytes: its ``cycles`` is 0.
    """

    cycles: int = 0
    #: Per unit (load, gemm, alu, store): cycles executing, cycles waiting for tokens.
    busy: tuple[int, int, int, int] = (0, 0, 0, 0)
    wait: tuple[int, int, int, int] = (0, 0, 0, 0)
    gemm_issue: int = 0
    gemm_stall: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    #: Cycle each instruction started and retired in, shape ``(instructions,)``; empty if unknown.
    started: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    retired: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, kw_only=True)
class MemoryModel:
    """Timing of the memory behind the AXI port. The default is the reference memory."""

    latency_cycles: int = 64
    bytes_per_cycle: int = 8
    #: Probability, in 1/65536, that a channel stalls in a cycle; 0 for none.
    stall_per_65536: int = 0
    seed: int = 1


class Device(ABC):
    """A memory and an accelerator that runs programs from it."""

    name: str

    def __init__(self, config: AccelConfig) -> None:
        self.config = config

    def load(self, program: Program) -> None:
        """Reserve memory for ``program`` and write its constants and instructions.

        Raises:
            ConfigError: the program was compiled for another configuration.
        """
        if program.config.digest != self.config.digest:
            raise ConfigError(
                f"program is for configuration {program.config.name!r} "
                f"({program.config.digest:08x}), device has {self.config.name!r} "
                f"({self.config.digest:08x}); compile it again for this device"
            )
        self.reserve(program.memory_bytes)
        for address, data in program.segments():
            self.write(address, data)

    @abstractmethod
    def reserve(self, nbytes: int) -> None:
        """Make ``nbytes`` of memory available from address 0; contents are arbitrary."""

    @abstractmethod
    def write(self, address: int, data: bytes) -> None: ...

    @abstractmethod
    def read(self, address: int, nbytes: int) -> bytes: ...

    @abstractmethod
    def run(self, program: Program) -> Counters:
        """Run a loaded program to its FINISH.

        Raises:
            DeviceError: the device reported an error status; the device is usable again afterwards.
        """
