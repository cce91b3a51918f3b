"""Prepares a compiled network for the MLPerf Tiny protocol on a board.

The board answers the benchmark's runner by itself (``accelc.boards.mlperf``). What it needs beside
the program is written here: where each packed byte of the input comes from, where the classes'
values lie, and the exponentials of the softmax at the network's end.
"""

from dataclasses import dataclass

import numpy as np

from accelc.artifact import Artifact
from accelc.boards.mlperf.layout import EXPONENTIAL_ONE, PAGE_BYTES, Page, page_address
from accelc.compiler.graph import Graph
from accelc.compiler.layout import Packing, gather_table
from accelc.compiler.partition import Place
from accelc.compiler.pipeline import Step
from accelc.isa.errors import DoesNotFitError, UnsupportedOpError
from accelc.isa.program import Program, Region

#: The benchmarks, and what turns a byte of their input files into the network's int8 input: files
#: of keywords hold int8, files of images uint8.
BENCHMARKS: dict[str, int] = {"kws01": 0x00, "ic01": 0x80, "vww01": 0x80}
#: What may follow the accelerator: it is computed from the table of exponentials.
_TAIL = ("Reshape", "DequantizeLinear", "Softmax", "QuantizeLinear")
#: Alignment of what is placed behind the program.
_ALIGNMENT = 64


@dataclass(frozen=True)
class Benchmark:
    """A network in the memory of a board, ready for the runner."""

    program: Program
    #: ``(address, data)`` to write beside the program's own segments.
    segments: tuple[tuple[int, bytes], ...]
    #: Bytes of one input.
    input_bytes: int


def _refuse(reason: str) -> UnsupportedOpError:
    return UnsupportedOpError(
        f"{reason}; the MLPerf Tiny protocol on the board runs classifiers whose every layer is on "
        f"the accelerator and whose end is a softmax ({', '.join(BENCHMARKS)})"
    )


def _steps(artifact: Artifact) -> tuple[Step, Graph]:
    """The only step on the accelerator, and the graph behind it."""
    steps = artifact.model.steps
    places = [step.place for step in steps]
    if places != [Place.ACCELERATOR, Place.CPU]:
        found = ", ".join(place.name.lower() for place in places)
        raise _refuse(f"network {artifact.model.graph.name!r} is split as {found}")
    tail = steps[1].graph
    if odd := [node for node in tail.nodes if node.op not in _TAIL]:
        raise _refuse(f"{odd[0].name!r} ({odd[0].op}) runs on the CPU")
    if [node.op for node in tail.nodes].count("Softmax") != 1:
        raise _refuse(f"network {artifact.model.graph.name!r} does not end with a softmax")
    return steps[0], tail


def _exponentials(tail: Graph) -> tuple[int, ...]:
    """``exp(-scale * i)`` for distances ``i`` of int8 values, from the softmax's scale."""
    producers = {value: node for node in tail.nodes for value in node.outputs}
    softmax = next(node for node in tail.nodes if node.op == "Softmax")
    source = producers.get(softmax.inputs[0])
    if source is None or source.op != "DequantizeLinear":
        raise _refuse(f"{softmax.name!r} does not take quantized values")
    scale = tail.constants[source.inputs[1]]
    if scale.size != 1:
        raise _refuse(f"{source.name!r} has a scale per channel")
    distances = np.arange(256) * float(scale.reshape(-1)[0])
    return tuple(int(e) for e in np.rint(EXPONENTIAL_ONE * np.exp(-distances)))


def _only(regions: tuple[Region, ...], what: str) -> Region:
    if len(regions) != 1:
        raise _refuse(f"the network has {len(regions)} {what}s")
    return regions[0]


def _class_addresses(region: Region, packing: Packing, program: Program) -> tuple[int, ...]:
    """Addresses of the classes' int8 values in the packed output."""
    classes = int(np.prod(packing.shape))
    table = gather_table(packing, program.config)
    return tuple(region.address + int(np.flatnonzero(table == c)[0]) for c in range(classes))


def prepare(artifact: Artifact, benchmark: str, *, memory_bytes: int, device: str) -> Benchmark:
    """Lay a network out for a board with ``memory_bytes`` of memory.

    Args:
        artifact: compiled for the board's configuration.
        benchmark: one of :data:`BENCHMARKS`, as the runner knows it.
        device: what the device answers to ``name``.

    Raises:
        UnsupportedOpError: a part of the network is not on the accelerator.
        DoesNotFitError: the memory is too small.
    """
    step, tail = _steps(artifact)
    program, packings = step.program, step.packings
    if program is None or packings is None:
        raise AssertionError("an accelerator step has a program and packings")
    source, result = _only(program.inputs, "input"), _only(program.outputs, "output")
    packing = packings[source.name]
    raw_bytes = int(np.prod(packing.shape))
    gather = gather_table(packing, program.config)

    def behind(address: int) -> int:
        return -(-address // _ALIGNMENT) * _ALIGNMENT

    gather_address = behind(program.memory_bytes)
    raw_address = behind(gather_address + 4 * gather.size)
    page_at = page_address(memory_bytes)
    if raw_address + raw_bytes > page_at:
        raise DoesNotFitError(
            f"the program ({program.memory_bytes} bytes), its input tables ({4 * gather.size}), "
            f"one input ({raw_bytes}) and the protocol's page ({PAGE_BYTES}) do not fit the "
            f"board's {memory_bytes} bytes of memory; use a board with more"
        )
    page = Page(
        config=program.config,
        parameters={
            "raw_bytes": raw_bytes,
            "raw_address": raw_address,
            "raw_xor": BENCHMARKS[benchmark],
            "packed_address": source.address,
            "packed_bytes": gather.size,
            "gather_address": gather_address,
            "program_address": program.instructions_address,
            "program_length": len(program.instructions),
            "memory_bytes": program.memory_bytes,
        },
        outputs=_class_addresses(result, packings[result.name], program),
        exponentials=_exponentials(tail),
        device=device,
        model=benchmark,
    )
    segments = (
        (gather_address, gather.astype("<u4").tobytes()),
        (page_at, page.encode(memory_bytes)),
    )
    return Benchmark(program, segments, raw_bytes)
