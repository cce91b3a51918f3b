"""Instruction words as one integer array: what native kernels and the timing model read.

Everything derives from ``isa.spec``; the word is decoded for all instructions at once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelc.isa.config import INSTRUCTION_BYTES
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import FIELDS, HEADER_FIELDS, INSTRUCTIONS, FieldSpec, Opcode
from accelc.sim.faults import FETCH, device_fault

WORDS = INSTRUCTION_BYTES // 8
#: Column of each header field in a descriptor row.
OPCODE, WAIT, SIGNAL = range(3)
#: Column of each instruction's own fields.
COLUMNS: dict[Opcode, dict[str, int]] = {
    opcode: {spec.name: len(HEADER_FIELDS) + i for i, spec in enumerate(specs)}
    for opcode, specs in FIELDS.items()
}
#: Columns of a descriptor row.
WIDTH = len(HEADER_FIELDS) + max(len(specs) for specs in FIELDS.values())


@dataclass(frozen=True)
class Descriptors:
    """A decoded instruction list up to and including FINISH.

    Members:
        table: ``(instructions, WIDTH)`` int64, one row per instruction: opcode, wait, signal and
            the fields in the order of ``spec``.
        finished: whether the list ends in FINISH.
    """

    table: NDArray[np.int64]
    finished: bool

    def __len__(self) -> int:
        return self.table.shape[0]

    def rows_of(self, opcode: Opcode) -> NDArray[np.int64]:
        """Indices of the instructions with ``opcode``."""
        return np.nonzero(self.table[:, OPCODE] == opcode)[0]

    def column(self, opcode: Opcode, name: str) -> NDArray[np.int64]:
        """Field ``name`` of every instruction with ``opcode``."""
        return self.table[self.rows_of(opcode), COLUMNS[opcode][name]]


def _extract(words: NDArray[np.uint64], spec: FieldSpec) -> NDArray[np.int64]:
    word, shift = divmod(spec.offset, 64)
    value = words[:, word] >> np.uint64(shift)
    if shift + spec.bits > 64:
        value = value | (words[:, word + 1] << np.uint64(64 - shift))
    value = (value & np.uint64((1 << spec.bits) - 1)).astype(np.int64)
    if spec.signed:
        value -= (value >> (spec.bits - 1)) << spec.bits
    return value


def _used_bits(opcode: Opcode) -> NDArray[np.uint64]:
    mask = 0
    for spec in (*HEADER_FIELDS, *FIELDS[opcode]):
        mask |= ((1 << spec.bits) - 1) << spec.offset
    return np.frombuffer(mask.to_bytes(INSTRUCTION_BYTES, "little"), "<u8")


_USED = {opcode: _used_bits(opcode) for opcode in Opcode}


def decode_table(data: bytes) -> Descriptors:
    """Decode an instruction list; what follows the first FINISH is never fetched.

    Raises:
        DeviceError: ILLEGAL_INSTRUCTION, naming the first instruction with an unknown opcode, a
            reserved bit set, or its own unit in a mask.
    """
    words = np.frombuffer(data, "<u8").reshape(-1, WORDS)
    header = [_extract(words, spec) for spec in HEADER_FIELDS]
    finishes = np.nonzero(header[OPCODE] == Opcode.FINISH)[0]
    if finishes.size:
        count = int(finishes[0]) + 1
        words, header = words[:count], [column[:count] for column in header]
    table = np.zeros((words.shape[0], WIDTH), np.int64)
    table[:, :3] = np.stack(header, axis=1)
    illegal = ~np.isin(table[:, OPCODE], list(Opcode))
    for opcode, cls in INSTRUCTIONS.items():
        chosen = np.nonzero(table[:, OPCODE] == opcode)[0]
        if not chosen.size:
            continue
        own = words[chosen]
        for spec in FIELDS[opcode]:
            table[chosen, COLUMNS[opcode][spec.name]] = _extract(own, spec)
        masks = table[chosen, WAIT] | table[chosen, SIGNAL]
        illegal[chosen] = (own & ~_USED[opcode]).any(axis=1)
        illegal[chosen] |= masks != 0 if cls.unit is None else (masks >> cls.unit & 1) != 0
    if illegal.any():
        raise device_fault(
            ErrorCode.ILLEGAL_INSTRUCTION,
            FETCH,
            int(np.nonzero(illegal)[0][0]),
            "unknown opcode, a reserved bit set, or the unit's own bit in its masks",
        )
    return Descriptors(table, bool(finishes.size))
