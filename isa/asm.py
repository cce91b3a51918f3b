"""Instructions as text and back: the assembler and the disassembler.

One instruction is one line: the opcode's name in lower case, then ``field=value`` in any order.
Fields at their default may be left out, and the disassembler leaves them out. ::

    .isa 1                                   # the encoding's version; optional, checked when given
    # rows 0 to 15 of inp, after gemm has said that it is done with them
    load  buffer=inp row=0 dram=0x1000 n0=16 wait=gemm signal=gemm
    gemm  inp=0 wgt=0 acc=0 n_x=16 inp_x=1 acc_x=1 wait=load signal=load|alu
    alu   source=acc scale n2=16 src_2=1 dst_2=1 wait=gemm signal=store
    store row=0 dram=0x2000 n0=16 wait=alu
    finish

Values are decimal, hexadecimal (``0x...``) or, for ``buffer``, ``source``, ``wait`` and ``signal``,
names; several units are joined by ``|``. A field of one bit may stand alone for ``=1``. A ``#``
starts a comment.
"""

import difflib
import enum
from collections.abc import Iterable, Mapping
from dataclasses import fields

from accelc.isa.codec import encode
from accelc.isa.errors import EncodingError
from accelc.isa.program import Layer
from accelc.isa.spec import (
    FIELDS,
    INSTRUCTIONS,
    ISA_VERSION,
    Buffer,
    FieldSpec,
    Instruction,
    Opcode,
    Source,
    Unit,
)

#: Fields whose values have names.
NAMED: Mapping[tuple[Opcode, str], type[enum.IntEnum]] = {
    (Opcode.LOAD, "buffer"): Buffer,
    (Opcode.ALU, "source"): Source,
}
MASKS = ("wait", "signal")
#: Fields written in hexadecimal: byte addresses and byte strides.
_HEX_UNIT = "bytes"


def format_mask(mask: int) -> str:
    return "|".join(unit.name.lower() for unit in Unit if mask >> unit & 1)


def _format_value(opcode: Opcode, spec: FieldSpec, value: int) -> str:
    names = NAMED.get((opcode, spec.name))
    if names is not None and value in names.__members__.values():
        return f"{spec.name}={names(value).name.lower()}"
    if spec.bits == 1 and value == 1:
        return spec.name
    return f"{spec.name}={value:#x}" if spec.unit == _HEX_UNIT else f"{spec.name}={value}"


def format_instruction(instruction: Instruction) -> str:
    """One line of assembly, without its line end; the inverse of :func:`parse_instruction`."""
    opcode = instruction.opcode
    defaults = {f.name: f.default for f in fields(instruction)}
    words = [f"{opcode.name.lower():5}"]
    for spec in FIELDS[opcode]:
        value = int(getattr(instruction, spec.name))
        if value != defaults[spec.name]:
            words.append(_format_value(opcode, spec, value))
    for name in MASKS:
        mask = getattr(instruction, name)
        if mask:
            words.append(f"{name}={format_mask(mask)}")
    return " ".join(words).rstrip()


def _parse_int(text: str, what: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise EncodingError(f"{what} must be a number, not {text!r}") from None


def _parse_names(text: str, names: type[enum.IntEnum], what: str) -> list[int]:
    known = {member.name.lower(): int(member) for member in names}
    unknown = [word for word in text.split("|") if word not in known]
    if unknown:
        raise EncodingError(f"{what} must be one of {', '.join(known)}, not {unknown[0]!r}")
    return [known[word] for word in text.split("|")]


def _parse_value(opcode: Opcode, name: str, text: str) -> int:
    what = f"{opcode.name}.{name}"
    numeric = text[:1].isdigit() or text[:1] == "-"
    if name in MASKS and not numeric:
        mask = 0
        for unit in _parse_names(text, Unit, what):
            mask |= 1 << unit
        return mask
    names = NAMED.get((opcode, name))
    if names is not None and not numeric:
        if "|" in text:
            raise EncodingError(f"{what} takes one name, not {text!r}")
        return _parse_names(text, names, what)[0]
    return _parse_int(text, what)


def parse_instruction(line: str) -> Instruction:
    """Assemble one line that holds an instruction.

    Raises:
        EncodingError: unknown opcode or field, a field given twice, a value out of range.
    """
    mnemonic, *words = line.split("#", 1)[0].split()
    known = {op.name.lower(): op for op in Opcode}
    if mnemonic not in known:
        raise EncodingError(f"{mnemonic!r} is not an instruction; there are {', '.join(known)}")
    opcode = known[mnemonic]
    specs = {spec.name: spec for spec in FIELDS[opcode]}
    values: dict[str, int] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if name not in specs and name not in MASKS:
            near = difflib.get_close_matches(name, [*specs, *MASKS], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise EncodingError(f"{opcode.name} has no field {name!r}{hint}")
        if name in values:
            raise EncodingError(f"{opcode.name}.{name} is given twice")
        if equals:
            values[name] = _parse_value(opcode, name, text)
        elif name in specs and specs[name].bits == 1:
            values[name] = 1
        else:
            raise EncodingError(f"{opcode.name}.{name} needs a value: {name}=...")
    instruction = INSTRUCTIONS[opcode](**values)
    encode(instruction)  # every range check there is
    return instruction


def _directive(line: str) -> None:
    name, *arguments = line.split("#", 1)[0].split()
    if name != ".isa" or len(arguments) != 1:
        raise EncodingError(f"{name!r} is not a directive; there is '.isa VERSION'")
    version = _parse_int(arguments[0], ".isa")
    if version != ISA_VERSION:
        raise EncodingError(f"the text is for ISA version {version}, this is version {ISA_VERSION}")


def assemble(text: str) -> tuple[Instruction, ...]:
    """Assemble a whole text.

    Raises:
        EncodingError: the first line that is wrong, with its number.
    """
    instructions: list[Instruction] = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        try:
            if content.startswith("."):
                _directive(content)
            else:
                instructions.append(parse_instruction(content))
        except EncodingError as error:
            raise EncodingError(f"line {number}: {error}") from None
    return tuple(instructions)


def disassemble(instructions: Iterable[Instruction], layers: Iterable[Layer] = ()) -> str:
    """A text that :func:`assemble` turns into the same instructions; layers become comments."""
    heads: dict[int, list[str]] = {}
    for layer in layers:
        name = " ".join(layer.name.split())
        heads.setdefault(layer.first, []).append(f"# {name} ({layer.op})")
    lines = [f".isa {ISA_VERSION}"]
    for index, instruction in enumerate(instructions):
        lines += heads.get(index, [])
        lines.append(format_instruction(instruction))
    return "\n".join(lines) + "\n"
