"""Payload layouts and port bundles the units share, from ``isa.spec`` and the configuration."""

from amaranth.hdl import Cat, Const, Value, ValueLike, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, exact_log2

from accelc.isa.config import AccelConfig
from accelc.isa.spec import (
    FIELDS,
    HEADER_BITS,
    HEADER_FIELDS,
    INSTRUCTION_BITS,
    Buffer,
    FieldSpec,
    Opcode,
)


def _fields(specs: tuple[FieldSpec, ...]) -> dict[int | str, data.Field]:
    shapes = (signed(spec.bits) if spec.signed else unsigned(spec.bits) for spec in specs)
    return {spec.name: data.Field(s, spec.offset) for spec, s in zip(specs, shapes, strict=True)}


#: The first 16 bits of every instruction.
HEADER = data.FlexibleLayout(HEADER_BITS, _fields(HEADER_FIELDS))


def instruction_layout(opcode: Opcode) -> data.Layout:
    """A 512-bit view of an instruction: header and own fields at their offsets."""
    return data.FlexibleLayout(INSTRUCTION_BITS, _fields((*HEADER_FIELDS, *FIELDS[opcode])))


def used_bits(opcode: Opcode) -> int:
    """Bits of an instruction up to its last field; all above are reserved and zero."""
    return max((HEADER_BITS, *(spec.offset + spec.bits for spec in FIELDS[opcode])))


def fit(value: ValueLike, bits: int) -> Value:
    """Keep the low ``bits`` of ``value``; a narrower value is extended according to its sign.

    Hardware keeps only the bits a configuration can need; whoever drops bits checks them first.
    """
    cast = Value.cast(value)
    is_signed = cast.shape().signed
    missing = bits - len(cast)
    if missing > 0:
        cast = Cat(cast, cast[-1].replicate(missing) if is_signed else Const(0, missing))
    cast = cast[:bits]
    return cast.as_signed() if is_signed else cast


def row_beats_log2(config: AccelConfig, buffer: Buffer) -> int:
    """Beats of a row as a power of two: rows are whole beats by the configuration's rules."""
    return exact_log2(config.row_bytes(buffer) // config.bus_bytes)


def beat_address_bits(config: AccelConfig) -> int:
    """Bits that number every beat of the largest scratchpad LOAD writes or STORE reads."""
    beats = [config.rows(b) << row_beats_log2(config, b) for b in Buffer]
    beats.append(config.out_rows * config.vec_row_bytes // config.bus_bytes)
    return bits_for(max(beats) - 1)


class ScratchWrite(wiring.Signature):
    """LOAD writes a scratchpad: one beat a cycle, never refused, readable from the next cycle.

    Members
    -------
    en : Out(1)
        Write in this cycle.
    addr : Out(beat_address_bits)
        ``row * beats_per_row + beat``; the low bits count beats because beats are a power of two.
    data : Out(bus_bytes * 8)
        The beat, first byte lowest.
    """

    def __init__(self, config: AccelConfig) -> None:
        super().__init__(
            {
                "en": Out(1),
                "addr": Out(beat_address_bits(config)),
                "data": Out(config.bus_bytes * 8),
            }
        )


class ScratchRead(wiring.Signature):
    """STORE reads ``out``: the data follow one cycle after ``en`` and stay until the next ``en``.

    Members
    -------
    en : Out(1)
    addr : Out(beat_address_bits)
        ``row * beats_per_row + beat``.
    data : In(bus_bytes * 8)
        The beat addressed one cycle earlier, first byte lowest.
    """

    def __init__(self, config: AccelConfig) -> None:
        super().__init__(
            {
                "en": Out(1),
                "addr": Out(beat_address_bits(config)),
                "data": In(config.bus_bytes * 8),
            }
        )
