"""The compiler from end to end: a model in, regions with programs and the graph for the CPU out."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from accelc.compiler import frontend
from accelc.compiler.accelerator import LOWERINGS, LowerOptions, lower
from accelc.compiler.graph import Graph, Node
from accelc.compiler.integer import Post
from accelc.compiler.memory_plan import MemoryPlan
from accelc.compiler.partition import (
    Place,
    Placement,
    multiply_accumulates,
    partition,
    subgraphs,
)
from accelc.compiler.passes.table import PassReport, disabled_names
from accelc.compiler.place import TARGETS, placements
from accelc.compiler.verify import verify
from accelc.isa.config import REFERENCE, AccelConfig
from accelc.isa.errors import ConfigError
from accelc.isa.program import Program

#: Called with a short phrase when a stage begins, for whoever shows progress.
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """One region of the network in execution order.

    ``nodes`` index ``CompiledModel.graph.nodes``; ``graph`` is the part they form. Steps on the
    accelerator have a program and, per input and output, how the tensor is packed in memory.
    """

    place: Place
    nodes: tuple[int, ...]
    graph: Graph
    program: Program | None = None
    packings: Mapping[str, Any] | None = None
    #: How the accelerator's activations share memory, and what needed no copy; known to whoever
    #: compiled, not stored with the program.
    memory: MemoryPlan | None = field(default=None, compare=False)
    in_place: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class CompiledModel:
    """Everything a session needs to run the network, and a report needs to explain it."""

    target: str
    #: The accelerator's configuration; None when everything runs on the CPU.
    config: AccelConfig | None
    graph: Graph
    steps: tuple[Step, ...]
    #: One per node of the graph, in its order.
    placements: tuple[Placement, ...]
    #: What each pass did; known to whoever compiled, not stored.
    passes: tuple[PassReport, ...] = field(default=(), compare=False)

    @property
    def macs(self) -> int:
        return sum(multiply_accumulates(self.graph, node) for node in self.graph.nodes)


def _silent(_: str) -> None:
    """Progress for nobody."""


def build_graph(
    model: str | Path | ModelProto,
    config: AccelConfig | None,
    dims: Mapping[str, int] | None = None,
    disable: Iterable[str] = (),
    reports: list[PassReport] | None = None,
) -> Graph:
    """Read a model and make it integer; without accelerator as for REFERENCE.

    Only the accelerator needs fixed shapes: without it, dimensions that have no size stay open.
    """
    return frontend.build(
        model,
        config=config or REFERENCE,
        dims=dims,
        dynamic=config is None,
        disable=disable,
        reports=reports,
    )


def _missing_unit(node: Node, config: AccelConfig) -> str | None:
    """Why an accelerator of ``config`` cannot run an integer operator; None if it can."""
    if node.op not in LOWERINGS:
        return f"the accelerator has no {node.op}"
    post = node.attrs.get("post", Post())
    if (post.table or node.op == "int.lookup") and not config.lut:
        return f"configuration {config.name} has no look-up table"
    if post.add is not None and not config.add:
        return f"configuration {config.name} has no add stage"
    return None


def place_nodes(graph: Graph, target: str, config: AccelConfig | None) -> tuple[Placement, ...]:
    """Decide for every node where it runs; with ``config`` None that is the CPU."""
    found = placements(graph, target)

    def place(node: Node) -> Placement:
        tier, reason = found[node.name].tier, found[node.name].reason
        if tier != "accelerator":
            return Placement(node.name, node.op, Place.CPU, reason, tier == "reference")
        missing = None if config is None else _missing_unit(node, config)
        if missing is not None:
            return Placement(node.name, node.op, Place.CPU, missing)
        return Placement(node.name, node.op, Place.ACCELERATOR)

    return tuple(place(node) for node in graph.nodes)


def compile_model(
    model: str | Path | ModelProto,
    target: str = "vta",
    config: AccelConfig | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    disable: Iterable[str] = (),
    proven: bool = True,
    progress: Progress = _silent,
) -> CompiledModel:
    """Compile ``model`` for ``target``.

    Args:
        model: path of an ONNX file, or an ``onnx.ModelProto``.
        target: ``vta`` for accelerator and CPU together, ``cpu`` for the CPU alone.
        config: the accelerator to compile for; needed for ``vta``, unused for ``cpu``.
        proven: verify every program, as must be done before it runs anywhere.
        disable: names of passes and rules to leave out, see ``passes.table``.
        dims: sizes of symbolic dimensions by name; for ``vta`` a batch that is not given is 1.

    Raises:
        ModelError, UnsupportedOpError: the model is unreadable or holds what nobody implements.
        DoesNotFitError: the network needs more memory than the accelerator can address.
        VerifyError: a finished program is faulty; that is a defect of the compiler.
    """
    if target not in TARGETS:
        raise ConfigError(f"target must be one of {', '.join(TARGETS)}, not {target!r}")
    if target == "vta" and config is None:
        raise ConfigError("target vta needs a configuration")
    config = config if target == "vta" else None
    progress("reading the model")
    off = disabled_names(disable)
    reports: list[PassReport] = []
    graph = build_graph(model, config, dims, off, reports)
    compiled = compile_graph(graph, config, disable=off, proven=proven, progress=progress)
    return replace(compiled, passes=tuple(reports))


def compile_graph(
    graph: Graph,
    config: AccelConfig | None = None,
    *,
    disable: Iterable[str] = (),
    proven: bool = True,
    progress: Progress = _silent,
) -> CompiledModel:
    """Compile a graph that the front end has finished; without ``config`` for the CPU.

    Arguments and errors are those of ``compile_model``.
    """
    off = disabled_names(disable)
    target = "cpu" if config is None else "vta"
    placed = place_nodes(graph, target, config)
    options = LowerOptions(
        verify=False, in_place="join-in-place" not in off, share_memory="share-memory" not in off
    )
    steps: list[Step] = []
    segments = partition(graph, [placement.place for placement in placed])
    regions = Counter(segment.place for segment in segments)[Place.ACCELERATOR]
    parts = subgraphs(
        graph, [s.nodes for s in segments], [f"{graph.name}.{k}" for k in range(len(segments))]
    )
    number = 0
    for segment, part in zip(segments, parts, strict=True):
        if segment.place is Place.CPU or config is None:
            steps.append(Step(Place.CPU, segment.nodes, part))
            continue
        number += 1
        progress(f"compiling accelerator region {number} of {regions} ({len(part.nodes)} nodes)")
        lowered = lower(part, config, options=options)
        if proven:
            progress(f"verifying accelerator region {number} of {regions}")
            verify(lowered.program)
        steps.append(
            Step(
                segment.place,
                segment.nodes,
                part,
                lowered.program,
                lowered.packings,
                lowered.plan,
                lowered.in_place,
            )
        )
    return CompiledModel(target, config, graph, tuple(steps), placed)
