"""A compiled model as text: its steps, the schedule of its programs, their assembly."""

from collections.abc import Iterator

from accelc.compiler.pipeline import CompiledModel
from accelc.isa import asm
from accelc.isa.program import Program
from accelc.isa.spec import Instruction


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
