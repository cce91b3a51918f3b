"""The front end: a model file to a checked graph of integer operators and leftovers for the CPU."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from onnx import ModelProto

from accelc.compiler.check import check
from accelc.compiler.graph import Graph
from accelc.compiler.onnx import import_model
from accelc.compiler.passes.batch_norm import fold_batch_norm
from accelc.compiler.passes.cleanup import eliminate_no_ops, fold_constants, share_common
from accelc.compiler.passes.decompose import decompose
from accelc.compiler.passes.fuse import fuse
from accelc.compiler.passes.layout import cancel_views
from accelc.compiler.passes.lower import lower
from accelc.compiler.passes.pads import fold_pads
from accelc.compiler.passes.quantized import move_into_integers
from accelc.isa.config import REFERENCE, AccelConfig

Pass = Callable[[Graph], Graph]


def passes(config: AccelConfig) -> tuple[tuple[str, Pass], ...]:
    """The passes in order, each with the name ``--emit`` and error reports know it by."""
    return (
        ("fold-constants", fold_constants),
        ("eliminate-no-ops", eliminate_no_ops),
        ("share-common", share_common),
        ("fold-batch-norm", fold_batch_norm),
        ("fold-pads", fold_pads),
        ("move-into-integers", move_into_integers),
        ("fold-integer-pads", fold_pads),
        ("fold-integer-constants", fold_constants),
        ("lower", partial(lower, config=config)),
        ("cancel-views", cancel_views),
        ("share-views", share_common),
        ("fuse", partial(fuse, config=config)),
        ("cancel-views-again", cancel_views),
        ("decompose", decompose),
        ("fold-remaining-constants", partial(fold_constants, dequantize=True)),
        ("eliminate-remaining-no-ops", eliminate_no_ops),
        ("share-remaining-common", share_common),
    )


def optimize(
    graph: Graph,
    config: AccelConfig = REFERENCE,
    *,
    observer: Callable[[str, Graph], None] | None = None,
) -> Graph:
    """Run every pass over ``graph``, checking it in between; ``observer`` sees each result."""
    check(graph)
    for name, apply in passes(config):
        with np.errstate(all="ignore"):  # scales that overflow are refused by name
            graph = check(apply(graph))
        if observer is not None:
            observer(name, graph)
    return graph


def build(
    model: str | Path | ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    config: AccelConfig = REFERENCE,
    observer: Callable[[str, Graph], None] | None = None,
) -> Graph:
    """Read ``model`` and lower what the accelerator of ``config`` can compute to integer operators.

    ``Graph.notes`` holds what the user should know. ``observer`` is called after import and after
    every pass with its name and the graph.

    Raises:
        ModelError, UnsupportedOpError: see ``onnx.import_model``.
    """
    graph = import_model(model, dims=dims)
    if observer is not None:
        observer("import", graph)
    return optimize(graph, config, observer=observer)
