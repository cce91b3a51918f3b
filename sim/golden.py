"""The golden device: every instruction executed by ``isa.semantics``, in program order."""

from abc import abstractmethod

import numpy as np

from accelc.isa.codec import decode
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.errors import DeviceError, EncodingError
from accelc.isa.program import Program
from accelc.isa.registers import ErrorCode
from accelc.isa.semantics import State, execute
from accelc.isa.spec import Buffer, Opcode
from accelc.sim.descriptors import COLUMNS, Descriptors, decode_table
from accelc.sim.device import Counters, Device
from accelc.sim.faults import FETCH, device_fault, semantic_fault
from accelc.sim.tokens import check_tokens


class StateDevice(Device):
    """A device whose memory and scratchpads are one ``isa.semantics.State``.

    Memory and scratchpads start as noise; ``seed`` makes the noise repeatable. Instructions are
    decoded from memory, so what runs is what was written, as on hardware.
    """

    def __init__(self, config: AccelConfig, seed: int | None = None) -> None:
        super().__init__(config)
        self._rng = np.random.default_rng(seed)
        self.state = State(config, np.zeros(0, np.uint8), seed)

    def reserve(self, nbytes: int) -> None:
        self.state.memory = np.frombuffer(self._rng.bytes(nbytes), np.uint8).copy()

    def _check_range(self, address: int, nbytes: int) -> None:
        if address < 0 or nbytes < 0 or address + nbytes > self.state.memory.size:
            raise DeviceError(
                f"bytes {address} to {address + nbytes} are outside the {self.state.memory.size} "
                "bytes of device memory; load the program before touching its memory"
            )

    def write(self, address: int, data: bytes) -> None:
        self._check_range(address, len(data))
        self.state.memory[address : address + len(data)] = np.frombuffer(data, np.uint8)

    def read(self, address: int, nbytes: int) -> bytes:
        self._check_range(address, nbytes)
        return self.state.memory[address : address + nbytes].tobytes()

    def fetch(self, program: Program) -> tuple[bytes, Descriptors]:
        """The instruction list as it lies in memory, and decoded.

        Raises:
            DeviceError: an illegal instruction, no FINISH, or a token that never comes.
        """
        nbytes = len(program.instructions) * INSTRUCTION_BYTES
        data = self.read(program.instructions_address, nbytes)
        descriptors = decode_table(data)
        if not descriptors.finished:
            raise device_fault(ErrorCode.MISSING_FINISH, FETCH, len(descriptors))
        check_tokens(descriptors)
        return data, descriptors

    def run(self, program: Program) -> Counters:
        data, descriptors = self.fetch(program)
        self.execute(data, descriptors)
        return byte_counters(self.config, descriptors)

    def execute_one(self, data: bytes, index: int) -> None:
        """Apply instruction ``index`` of the encoded list ``data`` by its definition."""
        start = index * INSTRUCTION_BYTES
        instruction = decode(data[start : start + INSTRUCTION_BYTES])
        try:
            execute(instruction, self.state)
        except EncodingError as error:
            raise semantic_fault(error, instruction.unit, index) from error

    @abstractmethod
    def execute(self, data: bytes, descriptors: Descriptors) -> None:
        """Apply a decoded list, given as bytes and as descriptors, to the state.

        Raises:
            DeviceError: a row, address or field the hardware would report.
        """


def byte_counters(config: AccelConfig, descriptors: Descriptors) -> Counters:
    """The bytes a list moves, its own fetch included, everything else 0."""

    def rows(opcode: Opcode) -> np.ndarray:
        n0, n1, n2 = (descriptors.column(opcode, n) for n in ("n0", "n1", "n2"))
        return n0 * n1 * n2

    row_bytes = np.array([config.row_bytes(buffer) for buffer in Buffer])
    buffers = descriptors.table[descriptors.rows_of(Opcode.LOAD), COLUMNS[Opcode.LOAD]["buffer"]]
    return Counters(
        read_bytes=int((rows(Opcode.LOAD) * row_bytes[buffers]).sum())
        + len(descriptors) * INSTRUCTION_BYTES,
        write_bytes=int(rows(Opcode.STORE).sum()) * config.vec_row_bytes,
    )


class GoldenDevice(StateDevice):
    """Executes the definition itself: slow, and right by definition."""

    name = "golden"

    def execute(self, data: bytes, descriptors: Descriptors) -> None:
        for index in range(len(descriptors)):
            self.execute_one(data, index)
