"""Encoding: every value comes back, nothing else is accepted."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelc.isa import spec
from accelc.isa.codec import decode, decode_all, encode, encode_all
from accelc.isa.errors import EncodingError
from accelc.isa.spec import FIELDS, HEADER_BITS, HEADER_FIELDS, INSTRUCTIONS, Instruction, Opcode

ALL_FIELDS = [(opcode, field) for opcode, fields in FIELDS.items() for field in fields]


@st.composite
def instructions(draw: st.DrawFn) -> Instruction:
    opcode = draw(st.sampled_from(list(Opcode)))
    cls = INSTRUCTIONS[opcode]
    values = {f.name: draw(st.integers(f.minimum, f.maximum)) for f in FIELDS[opcode]}
    if cls.unit is not None:
        own = 1 << cls.unit
        values["wait"] = draw(st.integers(0, 15)) & ~own
        values["signal"] = draw(st.integers(0, 15)) & ~own
    return cls(**values)


@given(instructions())
def test_decode_inverts_encode(instruction: Instruction) -> None:
    data = encode(instruction)
    assert len(data) == 64
    assert decode(data) == instruction


@given(st.lists(instructions(), max_size=5).map(tuple))
def test_programs_round_trip(program: tuple[Instruction, ...]) -> None:
    assert decode_all(encode_all(program)) == program


@pytest.mark.parametrize("opcode", list(Opcode))
def test_fields_follow_each_other_without_gap_or_overlap(opcode: Opcode) -> None:
    end = HEADER_BITS
    for field in FIELDS[opcode]:
        assert field.offset == end
        end += field.bits
    assert end <= spec.INSTRUCTION_BITS


@pytest.mark.parametrize(("opcode", "field"), ALL_FIELDS, ids=lambda v: getattr(v, "name", str(v)))
def test_every_field_is_range_checked(opcode: Opcode, field: spec.FieldSpec) -> None:
    cls = INSTRUCTIONS[opcode]
    for value in (field.minimum, field.maximum):
        word = int.from_bytes(encode(cls(**{field.name: value})), "little")
        assert word >> field.offset & ((1 << field.bits) - 1) == value & ((1 << field.bits) - 1)
    for value in (field.minimum - 1, field.maximum + 1):
        message = (
            f"{opcode.name}.{field.name} must be {field.minimum} to {field.maximum} "
            f"({field.bits} bits), not {value}"
        )
        with pytest.raises(EncodingError, match=f"^{re.escape(message)}$"):
            encode(cls(**{field.name: value}))


@pytest.mark.parametrize("opcode", list(Opcode))
def test_every_reserved_bit_is_refused(opcode: Opcode) -> None:
    cls = INSTRUCTIONS[opcode]
    word = int.from_bytes(encode(cls()), "little")
    used = {
        bit for f in (*HEADER_FIELDS, *FIELDS[opcode]) for bit in range(f.offset, f.offset + f.bits)
    }
    reserved = sorted(set(range(spec.INSTRUCTION_BITS)) - used)
    assert reserved  # room to grow
    for bit in reserved:
        with pytest.raises(EncodingError, match="reserved bit is set$"):
            decode((word | 1 << bit).to_bytes(64, "little"))


@pytest.mark.parametrize("number", sorted(set(range(16)) - {int(op) for op in Opcode}))
def test_unknown_opcodes_are_refused(number: int) -> None:
    with pytest.raises(EncodingError, match=f"^opcode {number} is not an instruction$"):
        decode(number.to_bytes(64, "little"))


@pytest.mark.parametrize("opcode", [op for op in Opcode if INSTRUCTIONS[op].unit is not None])
@pytest.mark.parametrize("mask", ["wait", "signal"])
def test_a_unit_has_no_tokens_for_itself(opcode: Opcode, mask: str) -> None:
    cls = INSTRUCTIONS[opcode]
    assert cls.unit is not None
    with pytest.raises(EncodingError, match="a unit can not exchange tokens with itself$"):
        encode(cls(**{mask: 1 << cls.unit}))


def test_finish_has_no_tokens() -> None:
    with pytest.raises(EncodingError, match="^FINISH belongs to no unit"):
        encode(spec.Finish(wait=1))


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_only_integers_are_encoded(value: object) -> None:
    with pytest.raises(EncodingError):
        encode(spec.Load(wait=value))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("size", [0, 63, 65])
def test_wrong_lengths_are_refused(size: int) -> None:
    with pytest.raises(EncodingError, match=f"^an instruction has 64 bytes, not {size}$"):
        decode(bytes(size))


def test_part_of_an_instruction_is_refused() -> None:
    with pytest.raises(EncodingError, match="^100 bytes are not whole 64-byte instructions$"):
        decode_all(bytes(100))
