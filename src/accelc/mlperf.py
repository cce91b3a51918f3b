"""Prepares a compiled network for the MLPerf Tiny protocol on a board.

The board answers the benchmark's runner by itself (``accelc.boards.mlperf``). What it needs beside
the program is written here: where each packed byte of the input comes from, where the outputs
lie, and the tables that quantize floats or compute the softmax at the network's end.
"""

from dataclasses import dataclass

import numpy as np

from accelc.artifact import Artifact
from accelc.boards.link import protocol
from accelc.boards.link.host import BoardDevice, Connection
from accelc.boards.mlperf.layout import (
    EXPONENTIAL_ONE,
    PAGE_BYTES,
    Page,
    float_order,
    page_address,
)
from accelc.compiler.graph import Graph
from accelc.compiler.layout import GATHER_CONSTANT, Packing, gather_table
from accelc.compiler.partition import Place
from accelc.compiler.pipeline import Step
from accelc.isa.errors import ConfigError, DoesNotFitError, UnsupportedOpError
from accelc.isa.program import Program, Region


@dataclass(frozen=True)
class Kind:
    """What a benchmark's input files hold and its results are."""

    #: Files hold float32, and the result is the mean squared error of the network's copy.
    float32: bool = False
    #: Turns a byte of a file into the network's int8 input.
    xor: int = 0x00


#: The benchmarks as the runner knows them: files of keywords hold int8, files of images uint8.
BENCHMARKS: dict[str, Kind] = {
    "kws01": Kind(),
    "ic01": Kind(xor=0x80),
    "vww01": Kind(xor=0x80),
    "ad01": Kind(float32=True),
}
_LAYOUT = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
#: What may follow the accelerator in a classifier: it is computed from a table of exponentials.
_TAIL = (*_LAYOUT, "DequantizeLinear", "Softmax", "QuantizeLinear")
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
        f"{reason}; the MLPerf Tiny protocol on the board runs networks whose every layer is on "
        "the accelerator: classifiers that end with a softmax, and the autoencoder of ad01"
    )


def _check_ends(artifact: Artifact, allowed: tuple[str, ...]) -> Step:
    """The only step on the accelerator; around it only ``allowed`` operators.

    Before it only the layout may change.
    """
    found = [step for step in artifact.model.steps if step.place is Place.ACCELERATOR]
    if len(found) != 1:
        raise _refuse(f"{artifact.model.graph.name!r} has {len(found)} parts on the accelerator")
    accepted = _LAYOUT
    for step in artifact.model.steps:
        if step is found[0]:
            accepted = allowed
            continue
        if odd := [node for node in step.graph.nodes if node.op not in accepted]:
            raise _refuse(f"{odd[0].name!r} ({odd[0].op}) runs on the CPU")
    return found[0]


def _exponentials(graph: Graph) -> tuple[int, ...]:
    """``exp(-scale * i)`` for distances ``i`` of int8 values, from the softmax's scale."""
    producers = {value: node for node in graph.nodes for value in node.outputs}
    softmaxes = [node for node in graph.nodes if node.op == "Softmax"]
    if len(softmaxes) != 1:
        raise _refuse(f"network {graph.name!r} does not end with one softmax")
    source = producers.get(softmaxes[0].inputs[0])
    if source is None or source.op != "DequantizeLinear":
        raise _refuse(f"{softmaxes[0].name!r} does not take quantized values")
    scale = graph.constants[source.inputs[1]]
    if scale.size != 1:
        raise _refuse(f"{source.name!r} has a scale per channel")
    distances = np.arange(256) * float(scale.reshape(-1)[0])
    return tuple(int(e) for e in np.rint(EXPONENTIAL_ONE * np.exp(-distances)))


def _scale(graph: Graph, value: str) -> tuple[np.float32, int]:
    """Scale and zero point of an int8 input or output of the network."""
    quant = graph.types[value].quant
    if quant is None or not quant.per_tensor:
        raise _refuse(f"{value!r} is not quantized with one scale")
    return np.float32(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])


def _thresholds(graph: Graph) -> tuple[int, ...]:
    """Places of the smallest floats that become -127, -126, ... 127 (ONNX QuantizeLinear)."""
    scale, zero = _scale(graph, graph.inputs[0])
    # the boundary, and its float neighbours: the quotient is a float32, rounded half to even
    result: list[int] = []
    for q in range(-127, 128):
        x = np.float32((q - 0.5 - zero) * float(scale))
        while np.rint(x / scale) + zero >= q:
            x = np.nextafter(x, np.float32(-np.inf))
        while np.rint(x / scale) + zero < q:
            x = np.nextafter(x, np.float32(np.inf))
        result.append(float_order(float(x)))
    return (*result, 0)


def _real_values(graph: Graph) -> bytes:
    """256 times the real value of every int8 output value, as 32-bit words."""
    scale, zero = _scale(graph, graph.outputs[0])
    values = np.rint(256 * (np.arange(-128, 128) - zero) * float(scale))
    return values.astype("<i4").tobytes()


def _only(regions: tuple[Region, ...], what: str) -> Region:
    if len(regions) != 1:
        raise _refuse(f"the network has {len(regions)} {what}s")
    return regions[0]


def _output_addresses(region: Region, packing: Packing, program: Program) -> tuple[int, ...]:
    """Addresses of the int8 values of a packed output, in logical order."""
    table = gather_table(packing, program.config)
    places = np.empty(int(np.prod(packing.shape)), np.int64)
    values = np.flatnonzero(table < GATHER_CONSTANT)
    places[table[values]] = values
    return tuple(region.address + int(place) for place in places)


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
    kind, graph = BENCHMARKS[benchmark], artifact.model.graph
    step = _check_ends(artifact, _LAYOUT if kind.float32 else _TAIL)
    program, packings = step.program, step.packings
    if program is None or packings is None:
        raise AssertionError("an accelerator step has a program and packings")
    source, result = _only(program.inputs, "input"), _only(program.outputs, "output")
    packing = packings[source.name]
    raw_bytes = int(np.prod(packing.shape)) * (4 if kind.float32 else 1)
    gather = gather_table(packing, program.config)
    outputs = _output_addresses(result, packings[result.name], program)

    pieces = {"gather_address": gather.astype("<u4").tobytes()}
    if kind.float32:
        pieces["outputs_address"] = np.array(outputs, "<u4").tobytes()
        pieces["values_address"] = _real_values(graph)
    segments: list[tuple[int, bytes]] = []
    places: dict[str, int] = {}
    end = program.memory_bytes
    for name, data in (*pieces.items(), ("raw_address", bytes(raw_bytes))):
        places[name] = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = places[name] + len(data)
        if name in pieces:
            segments.append((places[name], data))
    page_at = page_address(memory_bytes)
    if end > page_at:
        raise DoesNotFitError(
            f"the program ({program.memory_bytes} bytes), one input with its tables "
            f"({end - program.memory_bytes}) and the protocol's page ({PAGE_BYTES}) do not fit "
            f"the board's {memory_bytes} bytes of memory; use a board with more"
        )
    page = Page(
        parameters={
            **places,
            "raw_bytes": raw_bytes,
            "raw_xor": kind.xor,
            "raw_float": int(kind.float32),
            "packed_address": source.address,
            "packed_bytes": gather.size,
            "program_address": program.instructions_address,
            "program_length": len(program.instructions),
            "memory_bytes": program.memory_bytes,
            "outputs": len(outputs),
            "mean_divisor": 256 * len(outputs),
        },
        outputs=() if kind.float32 else outputs,
        table=_thresholds(graph) if kind.float32 else _exponentials(graph),
        device=device,
        model=benchmark,
    )
    segments.append((page_at, page.encode(memory_bytes)))
    return Benchmark(program, tuple(segments), raw_bytes)


def install(artifact: Artifact, benchmark: str, connection: Connection) -> Benchmark:
    """Write a network to a board and hand its serial line to the benchmark's runner.

    The line is the runner's, at ``accelc.boards.mlperf.protocol.BAUD``, until a break or a reset.

    Raises:
        ConfigError: the board has another configuration, or no MLPerf port.
        UnsupportedOpError, DoesNotFitError: as :func:`prepare`.
        DeviceError: the board does not answer.
    """
    record = connection.record
    if not record.mlperf:
        raise ConfigError(
            f"board {record.name} has no MLPerf port: there is no room for it beside the "
            "accelerator; accelc boards lists those that have one"
        )
    if artifact.config is None:
        raise _refuse(f"{artifact.model.graph.name!r} is compiled for the CPU")
    device = BoardDevice(artifact.config, connection)
    prepared = prepare(
        artifact, benchmark, memory_bytes=record.memory_bytes, device=f"accelc-{record.name}"
    )
    # all of it: the page lies at its end, and the processor on the board counts from its start
    device.reserve(record.memory_bytes)
    for address, data in (*prepared.program.segments(), *prepared.segments):
        device.write(address, data)
    connection.requester.write([(protocol.Region.BOARD, 0, b"\x01")])
    return prepared
