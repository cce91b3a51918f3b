"""Scheduled tasks to a program: layers, constants, the instruction list's place."""

from collections.abc import Sequence

import numpy as np

from accelc.compiler.footprint import Space, row_bytes
from accelc.compiler.graph import Graph, Node
from accelc.compiler.integer import ConvAttrs
from accelc.compiler.memory_plan import ConstantPool, aligned
from accelc.compiler.partition import multiply_accumulates
from accelc.compiler.schedule import Task
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.errors import DoesNotFitError
from accelc.isa.program import Layer, Program, Region
from accelc.isa.spec import Finish, Instruction, Load, Store

#: Addresses are 32 bits.
ADDRESS_LIMIT = 1 << 32
#: Operators with a multiplier and a shift per channel among their constants.
_WITH_SHIFTS = ("int.conv", "int.matmul", "int.scale", "int.concat")


def finish(
    graph: Graph,
    config: AccelConfig,
    *,
    tasks: Sequence[Task],
    instructions: Sequence[Instruction],
    constants: ConstantPool,
    inputs: tuple[Region, ...],
    outputs: tuple[Region, ...],
    regions: tuple[Region, ...],
) -> Program:
    """Put everything together; instructions lie behind the constants, FINISH is added.

    Raises:
        DoesNotFitError: the program is larger than what instructions can address.
    """
    complete = (*instructions, Finish())
    address = aligned(constants.end)
    named = tuple(
        Region(name=name, address=start, nbytes=len(data))
        for name, (start, data) in zip(constants.names, constants.segments, strict=True)
    )
    if address + len(complete) * INSTRUCTION_BYTES > ADDRESS_LIMIT:
        raise DoesNotFitError(
            f"{graph.name} needs {address} bytes of device memory, addresses reach "
            f"{ADDRESS_LIMIT}; split the network"
        )
    area = Region(name="instructions", address=address, nbytes=len(complete) * INSTRUCTION_BYTES)
    return Program(
        config=config,
        instructions=complete,
        instructions_address=address,
        memory_bytes=aligned(area.address + area.nbytes),
        constants=tuple(constants.segments),
        inputs=inputs,
        outputs=outputs,
        regions=(*regions, *named, area),
        layers=_layers(graph, config, tasks),
    )


def _layers(graph: Graph, config: AccelConfig, tasks: Sequence[Task]) -> tuple[Layer, ...]:
    last_store: dict[int, int] = {}
    moved: dict[int, int] = {}
    for index, task in enumerate(tasks):
        instruction = task.instruction
        if isinstance(instruction, Store):
            last_store[task.layer] = index
        moved[task.layer] = moved.get(task.layer, 0) + transfer_bytes(instruction, config)
    layers: list[Layer] = []
    first = 0
    for index, node in enumerate(graph.nodes):
        last = last_store.get(index, first - 1)
        layers.append(
            Layer(
                name=node.name,
                op=node.op,
                first=first,
                last=last,
                macs=multiply_accumulates(graph, node),
                moved_bytes=moved_bytes(graph, node),
                dram_bytes=moved.get(index, 0),
            )
        )
        first = last + 1
    return tuple(layers)


def transfer_bytes(instruction: Instruction, config: AccelConfig) -> int:
    """Bytes a LOAD or STORE moves over the bus; 0 for others."""
    if isinstance(instruction, Load):
        size = row_bytes(Space(instruction.buffer), config)
    elif isinstance(instruction, Store):
        size = config.vec_row_bytes
    else:
        return 0
    return instruction.n0 * instruction.n1 * instruction.n2 * size


def moved_bytes(graph: Graph, node: Node) -> int:
    """Unpadded bytes of inputs, weights, biases and outputs; each counted once.

    What no window touches need not move, and a channel's multiplier and shift share 4 bytes.
    """
    total = 0
    for name in dict.fromkeys((*node.inputs, *node.outputs)):
        if name in graph.constants:
            total += graph.constants[name].nbytes
        elif name:
            total += int(np.prod(graph.types[name].shape))
    conv = node.attrs.get("conv")
    if isinstance(conv, ConvAttrs):
        n, h, w, c = graph.types[node.inputs[0]].shape
        total -= n * c * (h * w - _touched(conv, h, w))
    if node.op in _WITH_SHIFTS:
        channels = graph.types[node.outputs[0]].shape[-1]
        total -= 4 * channels
    return total


def _touched(conv: ConvAttrs, h: int, w: int) -> int:
    """Pixels of an input of ``h`` by ``w`` that some window reads."""
    touched = 1
    for axis, (size, outputs) in enumerate(zip((h, w), conv.output_size(h, w), strict=True)):
        starts = np.arange(outputs)[:, None] * conv.stride[axis] - conv.pads[axis]
        places = starts + np.arange(conv.kernel[axis]) * conv.dilation[axis]
        touched *= np.unique(places[(places >= 0) & (places < size)]).size
    return touched
