"""A compiled model as a shared library that C programs can call: header, wrapper, linking."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from accelc.compiler.graph import TensorType
from accelc.isa.errors import ToolError

_C_TYPES = {
    "bool": "uint8_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float32": "float",
    "float64": "double",
}


def _describe(values: Sequence[tuple[str, TensorType]]) -> list[str]:
    lines: list[str] = []
    for number, (name, kind) in enumerate(values):
        dtype = np.dtype(kind.dtype).name
        printable = re.sub(r"[^\x20-\x7e]|\*/|/\*", "?", name)
        shape = ", ".join(str(extent) for extent in kind.shape)
        lines.append(f" *   [{number}] {_C_TYPES.get(dtype, dtype)} ({shape})  {printable}")
    return lines


def header(
    model: str,
    inputs: Sequence[tuple[str, TensorType]],
    outputs: Sequence[tuple[str, TensorType]],
    arena_bytes: int,
) -> str:
    """C declarations; arrays are contiguous, row major."""
    printable = re.sub(r"[^\x20-\x7e]|\*/|/\*", "?", model)
    return "\n".join(
        [
            "#ifndef ACCELC_MODEL_H",
            "#define ACCELC_MODEL_H",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "/* Bytes of accelc_run's arena, aligned to 64; it keeps nothing between calls. */",
            f"#define ACCELC_ARENA_BYTES {max(64, arena_bytes)}",
            f"#define ACCELC_INPUTS {len(inputs)}",
            f"#define ACCELC_OUTPUTS {len(outputs)}",
            "",
            f"/* Model {printable}. Calls with different arenas may run at the same time.",
            " * inputs:",
            *_describe(inputs),
            " * outputs:",
            *_describe(outputs),
            " */",
            "void accelc_run(const void **inputs, void **outputs, void *arena);",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
            "",
        ]
    )


def wrapper(segments: int) -> str:
    """C source of ``accelc_run``."""
    calls = [
        f"    accelc_segment_{number}(inputs, outputs, arena, accelc_constants);"
        for number in range(segments)
    ]
    declarations = [
        f"void accelc_segment_{number}(const void **, void **, void *, const void *);"
        for number in range(segments)
    ]
    return "\n".join(
        [
            "extern const unsigned char accelc_constants[];",
            *declarations,
            '__attribute__((visibility("default")))',
            "void accelc_run(const void **inputs, void **outputs, void *arena)",
            "{",
            *calls,
            "}",
            "",
        ]
    )


#: The assembler copies the constants in; as C or LLVM source they would take minutes for large
#: models.
_CONSTANTS = """\
    .section .rodata
    .balign 64
    .globl accelc_constants
    .hidden accelc_constants
accelc_constants:
    .incbin "constants.bin"
    .byte 0
    .section .note.GNU-stack,"",%progbits
"""


def link(
    path: Path,
    code: bytes,
    constants: bytes,
    header_text: str,
    *,
    segments: int,
    compiler: str | None = None,
) -> Path:
    """Write ``path`` (a shared library) and the header with the same stem; give ``path``.

    Raises:
        ToolError: no C compiler, or it failed.
    """
    names = [compiler] if compiler else ["cc", "gcc", "clang", "g++"]
    found = next((tool for name in names if (tool := shutil.which(name))), None)
    if found is None:
        raise ToolError(
            f"no C compiler ({', '.join(names)}) on PATH; install one to link a library"
        )
    path = path.resolve()
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder)
        (build / "model.o").write_bytes(code)
        (build / "constants.bin").write_bytes(constants)
        (build / "constants.S").write_text(_CONSTANTS)
        (build / "run.c").write_text(wrapper(segments))
        command = [found, "-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-x", "c", "run.c"]
        command += [
            "-x",
            "assembler",
            "constants.S",
            "-x",
            "none",
            "model.o",
            "-o",
            str(path),
            "-lm",
        ]
        done = subprocess.run(command, cwd=build, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolError(f"{found} failed to link {path.name}: {done.stderr.strip()[-2000:]}")
    path.with_suffix(".h").write_text(header_text)
    return path
