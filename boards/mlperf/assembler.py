"""Assembler of the MLPerf processor: text to program words and initial variables."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

#: Bits of an instruction: the operation above an operand.
WORD_BITS = 16
OPERAND_BITS = 11
PROGRAM_WORDS = 1024
VARIABLES = 64


class Op(enum.IntEnum):
    """What an instruction does. ``A`` is the 32-bit accumulator, ``k`` the operand."""

    LDI = 0  # A = k
    ADI = 1  # A += k, signed; leaves the carry alone
    LD = 2  # A = variable k
    ST = 3  # variable k = A
    ADD = 4  # A += variable k; carry
    SUB = 5  # A -= variable k; carry: borrow
    AND = 6
    OR = 7
    XOR = 8
    SHL = 9  # A <<= 1
    SHR = 10  # A >>= 1, unsigned
    JMP = 11
    JZ = 12  # if A == 0
    JNZ = 13
    JN = 14  # if bit 31 of A
    JC = 15  # if carry
    CALL = 16
    RET = 17
    RXB = 18  # A = next received byte; waits for one
    TXB = 19  # send the low byte of A; waits until it is taken
    MRB = 20  # A = byte of memory at variable k
    MWB = 21  # byte of memory at variable k = low byte of A
    MRW = 22  # A = 32-bit word of memory at variable k, a multiple of 4
    RRD = 23  # A = the core's register at byte offset k
    RWR = 24  # the core's register at byte offset k = A
    TIM = 25  # A = microseconds since the processor began


#: Operations whose operand is a variable, a place in the program, a number.
_VARIABLE = {Op.LD, Op.ST, Op.ADD, Op.SUB, Op.AND, Op.OR, Op.XOR, Op.MRB, Op.MWB, Op.MRW}
_PLACE = {Op.JMP, Op.JZ, Op.JNZ, Op.JN, Op.JC, Op.CALL}
_NUMBER = {Op.LDI, Op.ADI, Op.RRD, Op.RWR}


@dataclass(frozen=True)
class Firmware:
    """An assembled program."""

    words: tuple[int, ...]
    #: Initial value of every variable.
    variables: tuple[int, ...]


class AssemblyError(ValueError):
    """A line the assembler cannot translate; the text says which."""


def assemble(text: str, symbols: Mapping[str, int]) -> Firmware:
    """Translate a program.

    A line is ``label:``, an instruction ``op operand``, ``.var name [value]``, or
    ``.macro name`` … ``.end``, whose lines replace ``name x`` with ``$`` for ``x``; ``;`` begins a
    comment. Numbers are decimal, ``0x`` hexadecimal, ``'c'``, or names from ``symbols``.

    Raises:
        AssemblyError: naming the line.
    """
    lines = _expand(text)
    variables: dict[str, int] = {}
    values: list[int] = []
    places: dict[str, int] = {}
    code: list[tuple[int, str, str]] = []
    for number, line in lines:
        if line.startswith(".var"):
            name, *value = line.split()[1:]
            variables[name] = len(values)
            values.append(_number(value[0], symbols, number) & 0xFFFF_FFFF if value else 0)
        elif line.endswith(":"):
            if line[:-1] in places:
                raise AssemblyError(f"line {number}: {line[:-1]} is defined twice")
            places[line[:-1]] = len(code)
        else:
            op, _, operand = line.partition(" ")
            code.append((number, op.upper(), operand.strip()))
    if len(code) > PROGRAM_WORDS or len(values) > VARIABLES:
        raise AssemblyError(
            f"{len(code)} instructions and {len(values)} variables; there is room for "
            f"{PROGRAM_WORDS} and {VARIABLES}"
        )
    words: list[int] = []
    for number, name, operand in code:
        if name not in Op.__members__:
            raise AssemblyError(f"line {number}: there is no operation {name}")
        op = Op[name]
        value = 0
        for operations, table in ((_VARIABLE, variables), (_PLACE, places)):
            if op in operations:
                if operand not in table:
                    raise AssemblyError(f"line {number}: {name} of unknown {operand!r}")
                value = table[operand]
        if op in _NUMBER:
            value = _number(operand, symbols, number)
            low = -(1 << (OPERAND_BITS - 1)) if op is Op.ADI else 0
            high = 1 << (OPERAND_BITS - (1 if op is Op.ADI else 0))
            if not low <= value < high:
                raise AssemblyError(f"line {number}: {value} does not fit {name}")
        elif operand and op not in _VARIABLE | _PLACE:
            raise AssemblyError(f"line {number}: {name} has no operand")
        words.append(op << OPERAND_BITS | value & ((1 << OPERAND_BITS) - 1))
    return Firmware(tuple(words), tuple(values))


def _expand(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers, without comments, macros replaced, also within macros."""
    macros: dict[str, list[str]] = {}
    lines: list[tuple[int, str]] = []
    current: list[str] | None = None

    def add(number: int, line: str) -> None:
        name, _, argument = line.partition(" ")
        if name not in macros:
            lines.append((number, line))
            return
        for body in macros[name]:
            add(number, body.replace("$", argument.strip()))

    for number, raw in enumerate(text.splitlines(), 1):
        # a semicolon in quotes is a character
        line = re.sub(r"(?<!');.*", "", raw).strip()
        if not line:
            continue
        name, _, argument = line.partition(" ")
        if name == ".macro":
            current = macros.setdefault(argument.strip(), [])
        elif name == ".end":
            current = None
        elif current is not None:
            current.append(line)
        else:
            add(number, line)
    return lines


def _number(text: str, symbols: Mapping[str, int], line: int) -> int:
    if re.fullmatch(r"'.'", text):
        return ord(text[1])
    if text in symbols:
        return symbols[text]
    try:
        return int(text, 0)
    except ValueError:
        raise AssemblyError(f"line {line}: {text!r} is no number and no symbol") from None
