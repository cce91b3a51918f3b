"""The assembler and the disassembler are inverses, and errors name the line and the remedy."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelc.isa import asm
from accelc.isa.errors import EncodingError
from accelc.isa.program import Layer
from accelc.isa.spec import (
    FIELDS,
    INSTRUCTIONS,
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Opcode,
    Store,
)


@st.composite
def instructions(draw: st.DrawFn) -> Instruction:
    """Any instruction the encoder accepts."""
    opcode = draw(st.sampled_from(list(Opcode)))
    cls = INSTRUCTIONS[opcode]
    values = {
        spec.name: draw(st.integers(spec.minimum, spec.maximum) | st.just(0))
        for spec in FIELDS[opcode]
    }
    if cls.unit is not None:
        own = 1 << cls.unit
        values["wait"] = draw(st.integers(0, 15)) & ~own
        values["signal"] = draw(st.integers(0, 15)) & ~own
    return cls(**values)


@given(st.lists(instructions(), max_size=4))
def test_text_round_trips(program: list[Instruction]) -> None:
    assert asm.assemble(asm.disassemble(program)) == tuple(program)


@given(instructions())
def test_one_line_round_trips(instruction: Instruction) -> None:
    line = asm.format_instruction(instruction)
    assert "\n" not in line
    assert asm.parse_instruction(line) == instruction


def test_the_documented_example_assembles() -> None:
    assert asm.__doc__ is not None
    example = asm.__doc__.split("::", 1)[1].split("Values are")[0]
    assert asm.assemble(example) == (
        Load(buffer=0, row=0, dram=0x1000, n0=16, wait=0b0010, signal=0b0010),
        Gemm(n_x=16, inp_x=1, acc_x=1, wait=0b0001, signal=0b0101),
        Alu(source=0, scale=1, n2=16, src_2=1, dst_2=1, wait=0b0010, signal=0b1000),
        Store(dram=0x2000, n0=16, wait=0b0100),
        Finish(),
    )


def test_layers_become_comments() -> None:
    layer = Layer(
        name="conv\n1", op="int.conv", first=1, last=1, macs=0, moved_bytes=0, dram_bytes=0
    )
    text = asm.disassemble([Load(), Store(), Finish()], [layer])
    assert text == ".isa 1\nload\n# conv 1 (int.conv)\nstore\nfinish\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("finish\nmul a=1", "line 2: 'mul' is not an instruction; there are load, gemm, alu, "),
        ("load row0=1", "line 1: LOAD has no field 'row0'; did you mean 'row'?"),
        ("load row=1 row=2", "line 1: LOAD.row is given twice"),
        ("load row=x", "line 1: LOAD.row must be a number, not 'x'"),
        ("load row", "line 1: LOAD.row needs a value: row=..."),
        ("load row=65536", "line 1: LOAD.row must be 0 to 65535 (16 bits), not 65536"),
        ("alu a_min=-129", "line 1: ALU.a_min must be -128 to 127 (8 bits), not -129"),
        (
            "load buffer=acc",
            "line 1: LOAD.buffer must be one of inp, wgt, prm, vin, lut, not 'acc'",
        ),
        ("load buffer=inp|wgt", "line 1: LOAD.buffer takes one name, not 'inp|wgt'"),
        ("load wait=host", "line 1: LOAD.wait must be one of load, gemm, alu, store, not 'host'"),
        ("load wait=load", "line 1: LOAD: a unit can not exchange tokens with itself"),
        ("finish wait=load", "line 1: FINISH belongs to no unit and can neither wait nor signal"),
        (".isa 99", "line 1: the text is for ISA version 99, this is version 1"),
        (".word 1", "line 1: '.word' is not a directive; there is '.isa VERSION'"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(EncodingError, match=f"^{re.escape(message)}"):
        asm.assemble(text)
