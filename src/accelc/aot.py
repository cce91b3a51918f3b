"""Ahead-of-time code of a network compiled for the CPU: LLVM text, object file, shared library."""

import tempfile
from pathlib import Path

from accelc.artifact import Artifact
from accelc.compiler.cpu import compile_graph
from accelc.isa.errors import InputError


def emit_cpu(artifact: Artifact, stage: str) -> dict[str, bytes | str]:
    """Code by file suffix; the suffix "" stands for the file the user named.

    Raises:
        InputError: the network is not compiled for the CPU alone, or has open dimensions.
        UnsupportedOpError: an operator has no native kernel, so a library could not run it.
        ToolError: there is no C compiler to link a library with.
    """
    if artifact.config is not None:
        raise InputError(f"--emit {stage} is the CPU's code; add --target cpu")
    if symbols := artifact.model.graph.symbols:
        names = sorted({name for axes in symbols.values() for name in axes if name})
        raise InputError(
            f"--emit {stage} is code for fixed shapes, but dimensions {', '.join(map(repr, names))}"
            f" are open; fix each of them with --dim {names[0]}=N"
        )
    module = compile_graph(artifact.model.graph)
    if stage == "llvm":
        return {"": module.llvm_text()}
    if stage == "obj":
        return {"": module.object_bytes()}
    with tempfile.TemporaryDirectory() as folder:
        library = module.shared_library(Path(folder) / "model.so")
        return {"": library.read_bytes(), ".h": library.with_suffix(".h").read_bytes()}
