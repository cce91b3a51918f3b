"""The compiler's passes: one table, from which they run, are switched off and are documented."""

import difflib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from accelc.compiler.check import check
from accelc.compiler.graph import Graph
from accelc.compiler.passes.algebra import EXACT, REASSOCIATION
from accelc.compiler.passes.common import share_constants, share_nodes
from accelc.compiler.passes.constants import FOLD_CONSTANTS, FOLD_WEIGHTS, SHAPES
from accelc.compiler.passes.decompose import DECOMPOSITIONS
from accelc.compiler.passes.diamonds import DIAMONDS, REQUANTIZATIONS
from accelc.compiler.passes.fuse import FUSIONS
from accelc.compiler.passes.layout import LAYOUTS
from accelc.compiler.passes.lower import LOWER, explain_refusals
from accelc.compiler.passes.no_ops import NO_OPS, VIEWS, keep_output_names, remove_dead
from accelc.compiler.passes.pads import PADS
from accelc.compiler.passes.quantized import MOVEMENT_RULES
from accelc.compiler.passes.scales import BATCH_NORM, SCALES
from accelc.compiler.passes.transposes import TRANSPOSES
from accelc.compiler.rewrite import Rule, rewrite
from accelc.isa.config import REFERENCE, AccelConfig
from accelc.isa.errors import ConfigError


@dataclass(frozen=True)
class Whole:
    """A step over the whole graph in one walk; ``apply`` says how many things it found."""

    name: str
    before: str
    after: str
    apply: Callable[[Graph, AccelConfig], tuple[Graph, int]]
    exact: bool = True


Step = Rule | Whole


@dataclass(frozen=True)
class Pass:
    """Steps that run together.

    Members:
        needed: what the compiler cannot do without; such a pass cannot be switched off.
    """

    name: str
    summary: str
    steps: tuple[Step, ...]
    needed: str = ""

    def run(
        self, graph: Graph, config: AccelConfig, disabled: frozenset[str], fired: Counter[str]
    ) -> Graph:
        """The graph after every step that is not ``disabled``; neighbouring rules run as one."""
        rules: list[Rule] = []
        for step in self.steps:
            if step.name in disabled:
                continue
            if isinstance(step, Rule):
                rules.append(step)
                continue
            graph = rewrite(graph, rules, config, fired)
            rules = []
            graph, found = step.apply(graph, config)
            if found:
                fired[step.name] += found
        return rewrite(graph, rules, config, fired)


@dataclass(frozen=True)
class PassReport:
    """What one run of a pass did: nodes before and after, what found something, milliseconds."""

    name: str
    nodes_before: int
    nodes_after: int
    milliseconds: float
    fired: dict[str, int] = field(default_factory=dict)


def _plain(apply: Callable[[Graph], tuple[Graph, int]]) -> Callable[..., tuple[Graph, int]]:
    return lambda graph, config: apply(graph)


PASSES: tuple[Pass, ...] = (
    Pass(
        "remove-dead-code",
        "What no output depends on is not compiled.",
        (Whole("dead-code", "y = f(x), never used", "nothing", _plain(remove_dead)),),
    ),
    Pass(
        "fold-constants",
        "What is known at compile time is computed there, shapes included.",
        (FOLD_CONSTANTS, *SHAPES),
    ),
    Pass(
        "eliminate-no-ops",
        "Nodes that give their input back vanish, chains of views become one.",
        (
            *NO_OPS,
            Whole(
                "keep-output-names",
                "out = Identity(f(x))",
                "out = f(x)",
                _plain(keep_output_names),
            ),
        ),
    ),
    Pass(
        "share-common",
        "Equal things are computed and stored once (common subexpressions).",
        (
            Whole(
                "equal-constants", "two constants of equal value", "one", _plain(share_constants)
            ),
            Whole("equal-nodes", "y = f(x), z = f(x)", "y = f(x), z = y", _plain(share_nodes)),
        ),
    ),
    Pass(
        "simplify-algebra",
        "The same numbers with less work.",
        EXACT,
    ),
    Pass(
        "fold-batch-norm",
        "Batch normalization goes into the weights before it.",
        BATCH_NORM,
    ),
    Pass("fold-pads", "Padding goes into the window operator that reads it.", PADS),
    Pass(
        "sink-transposes",
        "Transposes move towards the outputs, where they meet and cancel.",
        (*TRANSPOSES, *VIEWS),
    ),
    Pass(
        "move-into-integers",
        "Data movement is done on integers, where it neither hides nor splits quantized patterns.",
        MOVEMENT_RULES,
    ),
    Pass(
        "fuse-to-post-dominator",
        "What begins in one int8 value and meets again in one result becomes a table.",
        DIAMONDS,
    ),
    Pass(
        "lower",
        "Quantized patterns become integer operators of the accelerator, exactly or not at all.",
        (
            *LOWER,
            Whole(
                "explain-refusals",
                "a quantized pattern that is left",
                "the same, with a reason in the placement report",
                explain_refusals,
            ),
        ),
    ),
    Pass(
        "choose-layout",
        "Integer operators stay in NHWC and int8; views and sign changes between them cancel.",
        (*NO_OPS, *LAYOUTS),
    ),
    Pass(
        "merge-requantizations",
        "Sums of a value and functions of it become tables, which join what computes the value.",
        REQUANTIZATIONS,
    ),
    Pass("fuse", "Integer operators join the one that computes their input.", FUSIONS),
    Pass(
        "decompose",
        "What the CPU runs is expressed in standard ONNX operators.",
        DECOMPOSITIONS,
        needed="the CPU knows only standard operators",
    ),
    Pass(
        "fold-weights",
        "Quantized weights of operators that stay on the CPU become floats once.",
        (FOLD_WEIGHTS,),
    ),
    Pass(
        "fold-scales",
        "Scales and offsets go into the weights of the linear operator beside them.",
        SCALES,
    ),
    Pass(
        "reassociate",
        "Constants of float expressions meet; only on the CPU, for it changes how floats round.",
        REASSOCIATION,
    ),
)
#: Names of the passes in the order they run; a pass that others make work for runs again.
ORDER: tuple[str, ...] = (
    "remove-dead-code",
    "fold-constants",
    "eliminate-no-ops",
    "share-common",
    "simplify-algebra",
    "fold-batch-norm",
    "fold-pads",
    "sink-transposes",
    "move-into-integers",
    "fold-pads",
    "fold-constants",
    "fuse-to-post-dominator",
    "lower",
    "choose-layout",
    "share-common",
    "merge-requantizations",
    "fuse",
    "choose-layout",
    "decompose",
    "fold-weights",
    "fold-batch-norm",
    "reassociate",
    "fold-scales",
    "eliminate-no-ops",
    "share-common",
)


@dataclass(frozen=True)
class BackendPass:
    """A choice of the accelerator's back end that can be switched off."""

    name: str
    summary: str
    before: str
    after: str


BACKEND: tuple[BackendPass, ...] = (
    BackendPass(
        "join-in-place",
        "Copies are eliminated: a concatenation's inputs are computed where its output lies.",
        "int.concat(int.conv(x), int.conv(y)), whole blocks of channels, nothing requantized",
        "both convolutions write slices of one tensor",
    ),
    BackendPass(
        "share-memory",
        "Memory is planned statically: what never lives at the same time shares bytes.",
        "one range of bytes for every activation",
        "addresses that overlap where lifetimes do not; the report has the lower bound",
    ),
)
BY_NAME = {found.name: found for found in PASSES}


def switches() -> dict[str, str]:
    """Every pass and every step, with the reason why it cannot be switched off, or nothing."""
    names = {found.name: found.needed for found in PASSES}
    for found in PASSES:
        names.update((step.name, found.needed) for step in found.steps)
    return names | {found.name: "" for found in BACKEND}


def disabled_names(names: Iterable[str]) -> frozenset[str]:
    """``names`` of passes and rules to leave out.

    Raises:
        ConfigError: there is no such pass, naming the nearest; or it is needed.
    """
    known = switches()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise ConfigError(
                f"there is no pass or rule {name!r}; {hint}(accelc passes lists them all)"
            )
        if known[name]:
            raise ConfigError(f"{name} cannot be disabled: {known[name]}")
    return frozenset(names)


Observer = Callable[[str, Graph], None]


def run_passes(
    graph: Graph,
    config: AccelConfig = REFERENCE,
    *,
    order: Sequence[str] = ORDER,
    disable: Iterable[str] = (),
    observer: Observer | None = None,
    reports: list[PassReport] | None = None,
) -> Graph:
    """Run the passes named in ``order``, checking the graph before and after each.

    ``disable`` names passes and rules to leave out. ``observer`` sees every result, ``reports``
    gets a line for each run.

    Raises:
        ConfigError: see ``disabled_names``.
        GraphError: a pass produced an illegal graph.
    """
    off = disabled_names(disable)
    check(graph)
    for name in order:
        if name in off:
            continue
        fired: Counter[str] = Counter()
        start, before = time.perf_counter(), len(graph.nodes)
        with np.errstate(all="ignore"):  # scales that overflow are refused by name
            graph = check(BY_NAME[name].run(graph, config, off, fired))
        milliseconds = 1e3 * (time.perf_counter() - start)
        if reports is not None:
            counts = dict(sorted(fired.items()))
            reports.append(PassReport(name, before, len(graph.nodes), milliseconds, counts))
        if observer is not None:
            observer(name, graph)
    return graph
