"""Encode and decode instructions; every check and every offset comes from ``spec``."""

from typing import Any

from accelc.isa.config import INSTRUCTION_BYTES
from accelc.isa.errors import EncodingError
from accelc.isa.spec import FIELDS, HEADER_FIELDS, INSTRUCTIONS, FieldSpec, Instruction, Opcode


def _place(spec: FieldSpec, value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise EncodingError(f"{what}.{spec.name} must be an integer, not {value!r}")
    if not spec.minimum <= value <= spec.maximum:
        raise EncodingError(
            f"{what}.{spec.name} must be {spec.minimum} to {spec.maximum} ({spec.bits} bits), "
            f"not {value}"
        )
    return (value & ((1 << spec.bits) - 1)) << spec.offset


def encode(instruction: Instruction) -> bytes:
    """Encode one instruction in 64 bytes, little-endian.

    Raises:
        EncodingError: a value does not fit its field, or a mask names the instruction's own unit.
    """
    what = instruction.opcode.name
    word = 0
    for spec in HEADER_FIELDS:
        value = (
            int(instruction.opcode) if spec.name == "opcode" else getattr(instruction, spec.name)
        )
        word |= _place(spec, value, what)
    if instruction.unit is None:
        if instruction.wait or instruction.signal:
            raise EncodingError(f"{what} belongs to no unit and can neither wait nor signal")
    elif (instruction.wait | instruction.signal) >> instruction.unit & 1:
        raise EncodingError(f"{what}: a unit can not exchange tokens with itself")
    for spec in FIELDS[instruction.opcode]:
        word |= _place(spec, int(getattr(instruction, spec.name)), what)
    return word.to_bytes(INSTRUCTION_BYTES, "little")


def _extract(spec: FieldSpec, word: int) -> int:
    value = word >> spec.offset & ((1 << spec.bits) - 1)
    return value - (1 << spec.bits) if spec.signed and value > spec.maximum else value


def decode(data: bytes) -> Instruction:
    """Decode one instruction; the inverse of :func:`encode`.

    Raises:
        EncodingError: wrong length, unknown opcode, or a reserved bit that is set.
    """
    if len(data) != INSTRUCTION_BYTES:
        raise EncodingError(f"an instruction has {INSTRUCTION_BYTES} bytes, not {len(data)}")
    word = int.from_bytes(data, "little")
    header = {spec.name: _extract(spec, word) for spec in HEADER_FIELDS}
    number = header.pop("opcode")
    if number not in {int(op) for op in Opcode}:
        raise EncodingError(f"opcode {number} is not an instruction")
    opcode = Opcode(number)
    values: dict[str, Any] = {spec.name: _extract(spec, word) for spec in FIELDS[opcode]}
    instruction = INSTRUCTIONS[opcode](**header, **values)
    if encode(instruction) != data:
        raise EncodingError(f"{opcode.name}: a reserved bit is set")
    return instruction


def encode_all(instructions: tuple[Instruction, ...]) -> bytes:
    return b"".join(encode(instruction) for instruction in instructions)


def decode_all(data: bytes) -> tuple[Instruction, ...]:
    if len(data) % INSTRUCTION_BYTES:
        raise EncodingError(
            f"{len(data)} bytes are not whole {INSTRUCTION_BYTES}-byte instructions"
        )
    return tuple(
        decode(data[i : i + INSTRUCTION_BYTES]) for i in range(0, len(data), INSTRUCTION_BYTES)
    )
