"""Assembles the sequencer's microprogram: text with labels, names and comments to 16-bit words.

One operation a line, ``;`` begins a comment, ``name:`` a label. Operands are words of the register
file: a name, ``name+1``, or ``#value`` for a word that holds the constant; a trailing ``^x`` makes
the address the exclusive or with the index register. Numbers and names of constants may follow
``#``, and ``#&label`` is a label's address. ::

    ld a        A = a                         st a      a = A
    add a       A += a, carry                 stt a     a = the time
    adc a       A += a + carry                stb a     a = the bytes moved
    sub a       A -= a, carry = no borrow     ext n a   A = ((a << 16 | H) >> n) & 0xFFFF; H = a
    sbc a       A -= a + 1 - carry            exs n a   the same, and a = A as it was
    and a       A &= a                        ldh a     H = a (A is lost)
    ret         go on at the address in A     nop
    j where, j condition where, jn condition where (if the condition is false)

Pseudo-operations: ``get field`` loads a field of the instruction that ``.fields OPCODE`` named
(``.lo`` and ``.hi`` for the halves of 32 bits), ``getraw field`` leaves what is above its bits;
``then field`` is ``getraw`` by ``exs`` instead of ``ext``: it also keeps the value before, in the
word of the instruction it reads. ``call label`` stores the return address in ``link`` and jumps.
The assembler follows what ``H`` holds, and puts a ``nop`` between a store and a load that would
come too early to see it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from accelc.hw.sequential.words import (
    CONSTANT_WORDS,
    VARIABLE_WORDS,
    Condition,
    Device,
    Operation,
    word_names,
)
from accelc.isa.spec import FIELDS, HEADER_FIELDS, FieldSpec, Opcode

#: Bits of a jump's target.
TARGET_BITS = 10
_INDEXED = 1 << 8
_EXT, _JUMP, _UNLESS = 1 << 14, 1 << 15, 1 << 14
#: An extraction that stores, too.
_KEEP = 1 << 9
_FIELD_SHIFT, _OPERATION_SHIFT = 10, 9
_WORD_BITS = 16
_READS = {
    "ld": Operation.LOAD,
    "add": Operation.ADD,
    "adc": Operation.ADD_CARRY,
    "sub": Operation.SUBTRACT,
    "sbc": Operation.SUBTRACT_CARRY,
    "and": Operation.AND,
}
_STORES = {
    "st": Operation.STORE,
    "stt": Operation.STORE_TIME,
    "stb": Operation.STORE_TRAFFIC,
}


class MicrocodeError(Exception):
    """A line of the microprogram makes no sense; a defect of the program, not of its user."""


@dataclass(frozen=True)
class Microprogram:
    """Microprogram words, and the register file as it must be at power-up."""

    words: tuple[int, ...]
    constants: Mapping[int, int]
    labels: Mapping[str, int]


@dataclass(frozen=True)
class _Reference:
    """A word's address, which may be the place of a constant not known yet."""

    address: int
    indexed: bool


@dataclass
class _Assembler:
    symbols: Mapping[str, int]
    names: dict[str, int] = field(default_factory=word_names)
    words: list[int] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    #: Place of the word, label it jumps to.
    targets: list[tuple[int, str]] = field(default_factory=list)
    #: Word that holds each constant; a label's address is known by its name until the end.
    constants: dict[int | str, int] = field(default_factory=dict)
    opcode: Opcode | None = None
    held: int | None = None
    stored: _Reference | None = None

    def fail(self, what: str) -> MicrocodeError:
        return MicrocodeError(f"microprogram word {len(self.words)}: {what}")

    def number(self, text: str) -> int:
        if text in self.symbols:
            return self.symbols[text]
        try:
            return int(text, 0)
        except ValueError:
            raise self.fail(f"there is no constant {text!r}") from None

    def constant(self, value: int | str) -> int:
        """The word that holds ``value``."""
        if value not in self.constants:
            free = [w for w in CONSTANT_WORDS if w not in self.constants.values()]
            if not free:
                raise self.fail(f"no word is left for the constant {value!r}")
            self.constants[value] = free[0]
        return self.constants[value]

    def operand(self, text: str) -> _Reference:
        base, caret, index = text.partition("^")
        if caret and index != "x":
            raise self.fail(f"{text!r}: only x is an index")
        if base.startswith("#&"):
            return _Reference(self.constant(base[1:]), bool(caret))
        if base.startswith("#"):
            return _Reference(self.constant(self.number(base[1:]) & 0xFFFF), bool(caret))
        name, plus, offset = base.partition("+")
        if name not in self.names:
            raise self.fail(f"there is no word {name!r}")
        return _Reference(self.names[name] + (int(offset, 0) if plus else 0), bool(caret))

    def emit(self, word: int) -> None:
        self.words.append(word)
        self.stored = None

    def read(self, code: int, where: _Reference) -> None:
        """An operation that reads a word: not in the cycle in which the store before writes it."""
        before = self.stored
        if before is not None:
            if before.indexed == where.indexed:
                same = before.address == where.address
            else:
                # The index leads to tables, never to a variable.
                direct = where if before.indexed else before
                same = direct.address not in VARIABLE_WORDS
            if same:
                self.nop()
        self.emit(code | (_INDEXED if where.indexed else 0) | where.address)

    def nop(self) -> None:
        self.emit(_JUMP | _UNLESS | Condition.ALWAYS << _FIELD_SHIFT)

    def store(self, code: int, where: _Reference) -> None:
        index_moves = self.stored is not None and self.stored.address == Device.INDEX
        if where.indexed and index_moves:
            self.nop()
        self.emit(code | (_INDEXED if where.indexed else 0) | where.address)
        self.stored = where

    def extract(self, shift: int, where: _Reference, keep: bool = False) -> None:
        self.read(_EXT | (_KEEP if keep else 0) | shift << _FIELD_SHIFT, where)
        self.held = None if where.indexed else where.address
        self.stored = where if keep else None

    def jump(self, label: str, condition: Condition, unless: bool) -> None:
        self.targets.append((len(self.words), label))
        code = _JUMP | (_UNLESS if unless else 0) | condition << _FIELD_SHIFT
        self.emit(code)

    def line(self, text: str) -> None:
        name, *arguments = text.split()
        match name, arguments:
            case _, [] if name.endswith(":"):
                if name[:-1] in self.labels:
                    raise self.fail(f"label {name[:-1]!r} is there twice")
                self.labels[name[:-1]] = len(self.words)
                self.held = None
            case ".fields", [opcode]:
                self.opcode = Opcode[opcode]
            case ("nop", []):
                self.nop()
            case ("ret", []):
                self.emit(Operation.JUMP << _OPERATION_SHIFT)
            case ("ext", [shift, where]):
                self.extract(self.number(shift), self.operand(where))
            case ("ldh", [where]):
                self.extract(0, self.operand(where))
            case ("exs", [shift, where]):
                self.extract(self.number(shift), self.operand(where), keep=True)
            case ("get" | "getraw" | "then", [which]):
                self.get(which, name)
            case ("call", [label]):
                back = f"&return {len(self.words)}"
                self.line(f"ld #{back.replace(' ', '_')}")
                self.line("st link")
                self.line(f"j {label}")
                self.labels[back[1:].replace(" ", "_")] = len(self.words)
                self.held = None
            case ("j", [label]):
                self.jump(label, Condition.ALWAYS, False)
            case ("j" | "jn", [condition, label]):
                self.jump(label, Condition[condition.upper()], name == "jn")
            case _, [where] if name in _READS:
                self.read(_READS[name] << _OPERATION_SHIFT, self.operand(where))
            case _, [where] if name in _STORES:
                self.store(_STORES[name] << _OPERATION_SHIFT, self.operand(where))
            case _:
                raise self.fail(f"{text!r} is no operation")

    def get(self, which: str, how: str) -> None:
        name, _, half = which.partition(".")
        if self.opcode is None:
            raise self.fail("get needs .fields before it")
        spec = self.field(name)
        offset, bits = spec.offset, spec.bits
        if half:
            offset, bits = offset + (16 if half == "hi" else 0), 16
        if bits > _WORD_BITS:
            raise self.fail(f"{name} has {bits} bits: take its halves")
        word, shift = divmod(offset, _WORD_BITS)
        held = self.held == self.names["word0"] + word
        if how == "then":
            if not held:
                raise self.fail(f"then {which} does not follow on the field before")
            self.line(f"exs {shift} word{word + 1}")
        elif shift == 0:
            self.line(f"ld word{word}")
        else:
            if not held:
                self.line(f"ldh word{word}")
            ends_word = how == "get" and shift + bits == _WORD_BITS
            self.line(f"ext {shift} #0" if ends_word else f"ext {shift} word{word + 1}")
            if ends_word:
                return
        if how == "get" and bits < _WORD_BITS:
            self.line(f"and #{(1 << bits) - 1:#x}")

    def field(self, name: str) -> FieldSpec:
        assert self.opcode is not None
        for spec in (*HEADER_FIELDS, *FIELDS[self.opcode]):
            if spec.name == name:
                return spec
        raise self.fail(f"{self.opcode.name} has no field {name!r}")

    def finish(self) -> Microprogram:
        for place, label in self.targets:
            if label not in self.labels:
                raise MicrocodeError(f"there is no label {label!r}")
            self.words[place] |= self.labels[label]
        if len(self.words) > 1 << TARGET_BITS:
            raise MicrocodeError(
                f"the microprogram has {len(self.words)} words, jumps reach {1 << TARGET_BITS}"
            )
        values = {
            place: self.labels[value[1:]] if isinstance(value, str) else value
            for value, place in self.constants.items()
        }
        return Microprogram(tuple(self.words), values, dict(self.labels))


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        code = line.partition(";")[0].strip()
        if code:
            yield code


def assemble(text: str, symbols: Mapping[str, int]) -> Microprogram:
    """Translate ``text``; ``symbols`` are the constants it may name after ``#``.

    Raises:
        MicrocodeError: a line is wrong, or something does not fit.
    """
    assembler = _Assembler(symbols)
    for line in _lines(text):
        assembler.line(line)
    return assembler.finish()
