"""The committed manual and header are what the definitions say, and the header encodes alike."""

import shutil
import subprocess
from pathlib import Path

import pytest

from accelc.isa import reference
from accelc.isa.codec import encode
from accelc.isa.registers import REGISTERS
from accelc.isa.spec import FIELDS, INSTRUCTIONS, Opcode

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["ISA.md", "accelc.h"])
def test_generated_files_are_current(name: str) -> None:
    assert (DOCS / name).read_text() == reference.render()[name], (
        f"docs/{name} is stale: run python -m accelc.isa.reference"
    )


def test_the_manual_names_everything() -> None:
    text = reference.manual()
    for fields in FIELDS.values():
        for field in fields:
            assert f"`{field.name}`" in text
            assert field.doc in text
    for register in REGISTERS:
        assert f"`{register.name}`" in text


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to compile the header with")
def test_the_header_encodes_like_python(tmp_path: Path) -> None:
    lines: list[str] = []
    expected = b""
    for opcode in Opcode:
        # a pattern that differs from field to field, so that no two can be confused
        values = {
            f.name: (f.minimum + 1 + 7 * n if f.signed else f.maximum - n % 2)
            for n, f in enumerate(FIELDS[opcode])
        }
        values = {f.name: min(values[f.name], f.maximum) for f in FIELDS[opcode]}
        expected += encode(INSTRUCTIONS[opcode](**values))
        lines.append("i = (accelc_instruction){{0}};")
        lines.append(f"accelc_put(&i, ACCELC_OPCODE, ACCELC_OPCODE_{opcode.name});")
        lines += [
            f"accelc_put(&i, ACCELC_{opcode.name}_{name.upper()}, (uint64_t)INT64_C({value}));"
            for name, value in values.items()
        ]
        lines.append("fwrite(&i, sizeof i, 1, stdout);")
    source = tmp_path / "encode.c"
    source.write_text(
        '#include <stdio.h>\n#include "accelc.h"\nint main(void) {\naccelc_instruction i;\n'
        + "\n".join(lines)
        + "\nreturn 0;\n}\n"
    )
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{DOCS}"]
    program = tmp_path / "encode"
    subprocess.run(["gcc", *flags, str(source), "-o", str(program)], check=True)
    assert subprocess.run([program], capture_output=True, check=True).stdout == expected
