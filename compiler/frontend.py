"""The front end: a model file to a checked graph of integer operators and leftovers for the CPU."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from onnx import ModelProto

from accelc.compiler.graph import Graph
from accelc.compiler.onnx import import_model
from accelc.compiler.passes.table import Observer, PassReport, run_passes
from accelc.isa.config import REFERENCE, AccelConfig

#: What is done to graphs whose shapes are open: only what holds for every size.
OPEN_SHAPE_PASSES = ("fold-constants", "share-common")


def build(
    model: str | Path | ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    config: AccelConfig = REFERENCE,
    dynamic: bool = False,
    disable: Iterable[str] = (),
    observer: Observer | None = None,
    reports: list[PassReport] | None = None,
) -> Graph:
    """Read ``model`` and lower what the accelerator of ``config`` can compute to integer operators.

    ``Graph.notes`` holds what the user should know. ``observer`` is called after import and after
    every pass with its name and the graph; ``disable`` and ``reports`` are those of
    ``passes.table.run_passes``. With ``dynamic``, dimensions without a size stay open;
    the passes then run when the sizes are known, see ``compiler.dynamic``.

    Raises:
        ModelError, UnsupportedOpError: see ``onnx.import_model``.
    """
    graph = import_model(model, dims=dims, dynamic=dynamic)
    if observer is not None:
        observer("import", graph)
    if graph.symbols:
        return run_passes(graph, config, order=OPEN_SHAPE_PASSES, disable=disable, reports=reports)
    return run_passes(graph, config, disable=disable, observer=observer, reports=reports)
