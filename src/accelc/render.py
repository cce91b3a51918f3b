"""Stages of compilation as text: the graph, the placement, the schedule of a program."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from accelc.compiler.graph import Graph, TensorType
from accelc.compiler.pipeline import CompiledModel
from accelc.isa import asm
from accelc.isa.program import Program
from accelc.isa.spec import Instruction

#: Larger constants are summarised by their type alone.
_INLINE_ELEMENTS = 8


def _value(value: Any) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        default = {f.name: f.default for f in dataclasses.fields(value)}
        changed = [
            f"{name}={_value(getattr(value, name))}"
            for name in default
            if getattr(value, name) != default[name]
        ]
        return f"{type(value).__name__}({', '.join(changed)})"
    if isinstance(value, np.ndarray):
        if value.size <= _INLINE_ELEMENTS:
            return " ".join(str(value.tolist()).split())
        return f"<{value.dtype} {list(value.shape)}>"
    text = str(value)
    return text if len(text) < 80 and "\n" not in text else f"<{type(value).__name__}>"


def type_text(kind: TensorType) -> str:
    """``int8[1, 8, 8, 16] (q - -3) * 0.25``."""
    text = f"{kind.dtype}{list(kind.shape)}"
    if kind.quant is None:
        return text
    if kind.quant.per_tensor:
        zero, scale = (
            int(kind.quant.zero_point.reshape(-1)[0]),
            float(kind.quant.scale.reshape(-1)[0]),
        )
        return f"{text} (q - {zero}) * {scale:.9g}"
    return f"{text} per channel of axis {kind.quant.axis}"


def graph_text(graph: Graph) -> str:
    """The typed graph, one node a line; constants first where they are short."""
    lines = [f"graph {graph.name} (opset {graph.opset})"]
    lines += [f"note {note}" for note in graph.notes]
    lines += [f"input {name}: {type_text(graph.types[name])}" for name in graph.inputs]
    lines += [
        f"constant {name}: {type_text(graph.types[name])}"
        + (f" = {_value(array)}" if array.size <= _INLINE_ELEMENTS else "")
        for name, array in graph.constants.items()
    ]
    for node in graph.nodes:
        attrs = "".join(f" {name}={_value(value)}" for name, value in node.attrs.items())
        results = ", ".join(
            f"{name}: {type_text(graph.types[name])}" for name in node.outputs if name
        )
        lines.append(f"{node.op} {node.name}({', '.join(node.inputs)}){attrs} -> {results}")
    lines += [f"output {name}" for name in graph.outputs]
    return "\n".join(lines) + "\n"


def schedule_text(model: CompiledModel) -> str:
    """Steps in order; per accelerator step its memory map, layers, and who does what when."""
    lines: list[str] = []
    for index, step in enumerate(model.steps):
        lines.append(f"step {index} on {step.place}: {len(step.nodes)} nodes")
        lines += [f"  input {name}" for name in step.graph.inputs]
        if step.program is None:
            lines += [f"  {node.op} {node.name}" for node in step.graph.nodes]
        else:
            lines += [f"  {line}" for line in _program_lines(step.program)]
        lines += [f"  output {name}" for name in step.graph.outputs]
    return "\n".join(lines) + "\n"


def _program_lines(program: Program) -> Iterator[str]:
    yield f"memory {program.memory_bytes} bytes, {len(program.instructions)} instructions"
    for region in program.regions:
        yield f"region {region.address:#010x} {region.nbytes:>9} {region.name}"
    first = {layer.first: layer for layer in program.layers}
    for number, instruction in enumerate(program.instructions):
        if number in first:
            layer = first[number]
            yield (
                f"layer {layer.name} ({layer.op}): {layer.macs} MACs, "
                f"{layer.dram_bytes} bytes moved, {layer.moved_bytes} at least"
            )
        waits = asm.format_mask(instruction.wait) or "-"
        signals = asm.format_mask(instruction.signal) or "-"
        unit = instruction.unit.name.lower() if instruction.unit is not None else "fetch"
        yield f"  {number:5} {unit:5} after {waits:14} then {signals:14} {_work(instruction)}"


def _work(instruction: Instruction) -> str:
    """The instruction's line of assembly without opcode and tokens."""
    words = asm.format_instruction(instruction).split()[1:]
    return " ".join(word for word in words if not word.startswith(("wait=", "signal=")))


def assembly_text(model: CompiledModel) -> str:
    """All programs as assembly, one after the other."""
    return "\n".join(
        f"# step {index}: {step.graph.name}, configuration {step.program.config.name}\n"
        + asm.disassemble(step.program.instructions, step.program.layers)
        for index, step in enumerate(model.steps)
        if step.program is not None
    )
