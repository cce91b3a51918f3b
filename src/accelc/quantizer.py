"""Quantizes a float network: calibrates, chooses, corrects, and measures what it cost.

``compiler.quantize`` knows how; this runs the networks. Everything is measured on the CPU tier,
which computes the integer operators bit for bit as the accelerator does.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from onnx import ModelProto

from accelc.compiler.graph import Array, Graph
from accelc.compiler.onnx import import_model
from accelc.compiler.onnx_file import open_model, read_model
from accelc.compiler.onnx_write import at_least_opset, opset_of, to_model
from accelc.compiler.partition import Place, multiply_accumulates
from accelc.compiler.passes.table import run_passes
from accelc.compiler.pipeline import place_nodes
from accelc.compiler.quantize.bias import correction, takes_correction
from accelc.compiler.quantize.equalize import equalize, find_pairs
from accelc.compiler.quantize.insert import (
    dequantized_names,
    insert,
    layer_weights,
    value_parameters,
)
from accelc.compiler.quantize.layers import Kind, Layer, find_layers
from accelc.compiler.quantize.observers import OBSERVERS, Range, percentile
from accelc.compiler.quantize.plan import Plan, make_plan
from accelc.compiler.quantize.prepare import computes_shapes, prepare
from accelc.compiler.quantize.statistics import Noise, ValueStatistics
from accelc.files import write_atomically
from accelc.isa.config import REFERENCE, AccelConfig
from accelc.isa.errors import InputError, ModelError
from accelc.quantize_data import Run, Samples
from accelc.quantize_images import Preprocessing
from accelc.quantize_measure import Trial, observe, output_noise, share_correct, value_noises
from accelc.quantize_options import AUTO, EQUALIZATIONS, Options
from accelc.quantize_report import Accuracy, Candidate, LayerResult, QuantizationReport
from accelc.quantize_source import open_samples

Progress = Callable[[str], None]
#: First operator set whose DequantizeLinear has a scale per channel.
QDQ_OPSET = 13
#: Runs that candidates are compared on.
TRIAL_RUNS = 32
#: Output SQNR in dB, and points of accuracy lost, with one layer quantized.
Alone = tuple[float, float | None]


@dataclass(frozen=True)
class Quantized:
    """A quantized network: a standard QDQ model, and what became of each layer."""

    model: ModelProto
    report: QuantizationReport

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model: all of it or, on failure, nothing.

        Raises:
            OutputError: it cannot be written.
        """
        write_atomically(path, self.model.SerializeToString(deterministic=True))


@dataclass(frozen=True)
class Calibration:
    """What the values of a float graph look like over the samples."""

    graph: Graph
    statistics: Mapping[str, ValueStatistics]


@dataclass(frozen=True)
class Recipe:
    """All that fixes a quantized graph but the plan."""

    graph: Graph
    ranges: Mapping[str, Range]
    corrections: Mapping[str, Array]

    def quantized(self, plan: Plan) -> Graph:
        return insert(self.graph, plan, self.ranges, self.corrections)


def load_float(
    model: str | PathLike[str] | ModelProto, dims: Mapping[str, int] | None
) -> tuple[ModelProto, Graph]:
    """The model at an operator set that can be quantized, and its graph.

    Raises:
        ModelError: unreadable, quantized already, or with dimensions that have no size.
    """
    # of a large file only the nodes are read here; its constants stay where they are
    proto = model if isinstance(model, ModelProto) else open_model(Path(model))[0]
    for node in proto.graph.node:
        if node.op_type.startswith(("QLinear", "QGemm", "QuantizeLinear", "DequantizeLinear")):
            raise ModelError(
                f"the model is quantized already ({node.op_type} {node.name!r}); give the float"
                " model, or compile this one as it is"
            )
    if opset_of(proto) >= QDQ_OPSET:
        return proto, import_model(
            proto if isinstance(model, ModelProto) else Path(model), dims=dims
        )
    whole = proto if isinstance(model, ModelProto) else read_model(Path(model))
    raised = at_least_opset(whole, QDQ_OPSET, "scales per channel need")
    return raised, import_model(raised, dims=dims)


class Quantizer:
    """One quantization; ``run`` is all of it."""

    def __init__(
        self,
        proto: ModelProto,
        graph: Graph,
        samples: Samples,
        validation: Samples | None,
        options: Options,
        config: AccelConfig,
        progress: Progress,
    ) -> None:
        self.proto = proto
        self.imported = graph
        self.samples = samples
        #: What speaks against the calibration.
        self.doubts: tuple[str, ...] = ()
        self.validation = validation
        self.options = options
        self.config = config
        self.progress = progress
        self.graph = prepare(graph)
        self.layers = find_layers(self.graph)
        if not any(layer.kind in (Kind.LINEAR, Kind.PRODUCT) for layer in self.layers):
            raise ModelError(
                "the model has nothing to quantize: no float32 convolution of one or two "
                "dimensions and no float32 matrix product, outside of If, Loop and Scan; convert "
                "models in float16 or double to float32 first"
            )
        self.kept = _layers_named(self.layers, self.graph, graph, options.keep_float)
        self.plan = make_plan(self.graph, self.layers, self.kept)
        self.pairs = find_pairs(self.graph, self.layers)
        self.count = 0
        self.trials: list[Trial] = []

    # ---- calibration ---------------------------------------------------------------------------

    def calibrate(self, graph: Graph) -> Calibration:
        """Run the float ``graph`` over all samples and observe every value that gets a scale."""
        first = not self.count

        def seen(number: int, run: Run, values: Mapping[str, Array]) -> None:
            self.progress(f"calibrating, run {number}")
            if first:
                self.count += run.count
            if first and len(self.trials) < TRIAL_RUNS:
                self.trials.append((run, {name: values[name] for name in graph.outputs}))

        statistics = self._statistics()
        observe(graph, statistics, self.samples, self.config, seen)
        return Calibration(graph, statistics)

    def _statistics(self) -> dict[str, ValueStatistics]:
        reach = {pair.value: 1 if pair.second.root.op == "Conv" else -1 for pair in self.pairs}
        means = {layer.reads[0] for layer in self.layers if layer.kind is Kind.LINEAR}
        return {
            value: ValueStatistics(mean=value in means, channel_axis=reach.get(value))
            for layer in self.layers
            for value in (*layer.reads, *layer.outputs)
            if value not in self.graph.constants
        }

    # ---- candidates ----------------------------------------------------------------------------

    def choose(self) -> tuple[Recipe, Candidate, tuple[Candidate, ...]]:
        """Try what the options leave open, one decision after the other; keep what is best."""
        options = self.options
        tried: list[tuple[Candidate, Recipe]] = []

        def attempt(made: Calibration, observer: str, equalization: str, corrected: bool) -> None:
            self.progress(f"trying {observer}, equalization {equalization}")
            recipe = self._recipe(made, observer, corrected)
            noise = output_noise(recipe.quantized(self.plan), self.trials, self.config)
            tried.append((Candidate(observer, equalization, corrected, noise.decibels), recipe))

        plain = self.calibrate(self.graph)
        self.doubts = _doubts(plain, self.count)
        equalizations = (options.equalization,)
        if options.equalization == AUTO:
            equalizations = EQUALIZATIONS if self.pairs else EQUALIZATIONS[:1]
        observers = [*OBSERVERS] if options.observer == AUTO else [options.observer]
        calibrations: dict[str, Calibration] = {}
        for equalization in equalizations:
            calibrations[equalization] = self._equalized(plain, equalization)
            for observer in [_best(tried)[0].observer] if tried else observers:
                attempt(calibrations[equalization], observer, equalization, False)
        best = _best(tried)[0]
        if options.bias_correction is not False:
            attempt(calibrations[best.equalization], best.observer, best.equalization, True)
        chosen, recipe = tried[-1] if options.bias_correction else _best(tried)
        return recipe, chosen, tuple(candidate for candidate, _ in tried)

    def _equalized(self, plain: Calibration, equalization: str) -> Calibration:
        if equalization == "none":
            return plain
        reach = None
        if equalization == "activations":
            found = {pair.value: plain.statistics[pair.value].reach for pair in self.pairs}
            reach = {value: array for value, array in found.items() if array is not None}
        return self.calibrate(equalize(self.graph, self.pairs, reach))

    def _recipe(self, made: Calibration, observer: str, corrected: bool) -> Recipe:
        choose = OBSERVERS[observer]
        if observer == "percentile":
            choose = partial(percentile, percent=self.options.percent)
        ranges = {name: choose(found.histogram) for name, found in made.statistics.items()}
        if not corrected:
            return Recipe(made.graph, ranges, {})
        parameters = value_parameters(made.graph, self.plan, ranges)
        corrections = {
            layer.name: correction(
                made.graph,
                layer,
                layer_weights(made.graph, layer, parameters[layer.reads[0]]),
                made.statistics[layer.reads[0]].mean,
            )
            for layer in self.plan.quantized
            if layer.kind is Kind.LINEAR and takes_correction(layer)
        }
        return Recipe(made.graph, ranges, corrections)

    # ---- accuracy and mixed precision ----------------------------------------------------------

    def share(self, graph: Graph) -> float:
        return share_correct(graph, self.validation or self.samples, self.config)[0]

    def alone(self, recipe: Recipe, float_share: float | None) -> dict[str, Alone]:
        """What each layer costs with nothing else quantized."""
        found: dict[str, Alone] = {}
        for layer in self.plan.quantized:
            if layer.kind is Kind.MOVEMENT:
                continue
            self.progress(f"measuring {layer.name} alone")
            graph = recipe.quantized(replace(self.plan, active=frozenset((layer.name,))))
            drop = None if float_share is None else 100.0 * (float_share - self.share(graph))
            noise = output_noise(graph, self.trials, self.config)
            found[layer.name] = (noise.decibels, drop)
        return found

    def relax(
        self, recipe: Recipe, float_share: float, allowed: float, order: Sequence[str]
    ) -> tuple[Plan, float]:
        """Leave as few layers float as needed, the first of ``order`` first; what that gives."""

        def measured(count: int) -> tuple[Plan, float]:
            self.progress(f"trying {count} layers in float")
            plan = make_plan(self.graph, self.layers, {*self.kept, *order[:count]})
            return plan, self.share(recipe.quantized(plan))

        low, high = 0, 1
        found = measured(high)
        while not _within(float_share, found[1], allowed) and high < len(order):
            low, high = high, min(2 * high, len(order))
            found = measured(high)
        while high - low > 1:
            middle = (low + high) // 2
            tried = measured(middle)
            if _within(float_share, tried[1], allowed):
                high, found = middle, tried
            else:
                low = middle
        return found

    # ---- all of it -----------------------------------------------------------------------------

    def run(self) -> Quantized:
        """Quantize, measure and report.

        Raises:
            InputError: the samples do not fit, or lack labels that are needed.
            ModelError: the result would not be a valid model.
        """
        recipe, chosen, candidates = self.choose()
        allowed = self.options.max_drop
        labelled = self.trials[0][0].labels is not None or self.validation is not None
        if allowed is not None and not labelled:
            raise InputError("--max-accuracy-drop needs labelled samples: name them with --labels")
        plan, alone = self.plan, {}
        if not labelled:
            if self.options.sensitivity:
                alone = self.alone(recipe, None)
            return self._finished(recipe, plan, (chosen, candidates), alone, None)
        self.progress("measuring the accuracy")
        exact, count = share_correct(self.graph, self.validation or self.samples, self.config)
        share = self.share(recipe.quantized(plan))
        missed = allowed is not None and not _within(exact, share, allowed)
        if self.options.sensitivity or missed:
            alone = self.alone(recipe, exact)
        if missed and allowed is not None:
            order = sorted(alone, key=lambda name: (-(alone[name][1] or 0.0), alone[name][0]))
            plan, share = self.relax(recipe, exact, allowed, order)
        accuracy = Accuracy(samples=count, float_share=exact, quantized_share=share)
        return self._finished(recipe, plan, (chosen, candidates), alone, accuracy)

    def _finished(
        self,
        recipe: Recipe,
        plan: Plan,
        tried: tuple[Candidate, tuple[Candidate, ...]],
        alone: Mapping[str, Alone],
        accuracy: Accuracy | None,
    ) -> Quantized:
        self.progress("measuring every layer")
        graph = recipe.quantized(plan)
        symbolic = not computes_shapes(self.imported)
        model = to_model(graph, self.proto, symbolic=symbolic)
        found = dequantized_names(self.graph, plan)
        names = {value: found[value] for value in plan.produced}
        names |= {name: name for name in self.graph.outputs}
        noises = value_noises(recipe.graph, graph, names, self.trials, self.config)
        total = Noise()
        for name in self.graph.outputs:
            total.signal += noises[name].signal
            total.noise += noises[name].noise
        optimized = run_passes(graph, self.config)
        on = [p.place is Place.ACCELERATOR for p in place_nodes(optimized, "vta", self.config)]
        macs = [multiply_accumulates(optimized, node) for node in optimized.nodes]
        notes = [*self.samples.notes, *self.doubts]
        if not symbolic:
            notes += [
                *self.imported.notes,
                "the model computes shapes: its dimensions are fixed now",
            ]
        report = QuantizationReport(
            network=self.graph.name,
            config=self.config.name,
            samples=self.count,
            chosen=tried[0],
            candidates=tried[1],
            layers=tuple(self._layer_results(recipe, plan, noises, alone)),
            output_sqnr_db=total.decibels,
            accuracy=accuracy,
            accelerator_nodes=sum(on),
            cpu_nodes=len(on) - sum(on),
            accelerator_mac_share=(
                sum(m for m, o in zip(macs, on, strict=True) if o) / max(sum(macs), 1)
            ),
            constant_bytes=(_constant_bytes(self.imported), _constant_bytes(graph)),
            notes=tuple(notes),
        )
        return Quantized(model, report)

    def _layer_results(
        self,
        recipe: Recipe,
        plan: Plan,
        noises: Mapping[str, Noise],
        alone: Mapping[str, Alone],
    ) -> Iterator[LayerResult]:
        parameters = value_parameters(recipe.graph, plan, recipe.ranges)
        for layer in self.layers:
            cost = alone.get(layer.name, (None, None))
            result = LayerResult(
                name=layer.name,
                op=layer.root.op,
                kind=str(layer.kind),
                form="float",
                alone_sqnr_db=cost[0],
                alone_drop=cost[1],
            )
            if layer.name not in plan.active:
                yield replace(result, reason=self._reason(layer))
                continue
            found = parameters[layer.outputs[0]]
            yield replace(
                result,
                form="int8",
                low=found.low,
                high=found.high,
                scale=float(found.scale),
                zero_point=found.zero,
                weight_bits=8 if layer.weights else None,
                sqnr_db=noises[layer.outputs[0]].decibels,
            )

    def _reason(self, layer: Layer) -> str:
        if layer.name in self.kept:
            return "asked for"
        return "accuracy" if layer.name in self.plan.active else "between float layers"


def _doubts(made: Calibration, count: int) -> tuple[str, ...]:
    """What is wrong with samples that stand for little."""
    constant = [
        f"input {name!r} is {found.histogram.low:g} in all samples: neither ranges nor the "
        "measured noise say anything of other data"
        for name in made.graph.inputs
        if (found := made.statistics.get(name)) and found.histogram.low == found.histogram.high
    ]
    few = ["calibrated with a single sample: others may leave its ranges"] if count == 1 else []
    return (*constant, *few)


def _constant_bytes(graph: Graph) -> int:
    return sum(array.nbytes for array in graph.constants.values())


def _within(exact: float, share: float, allowed: float) -> bool:
    """Whether a share is at most ``allowed`` points below; shares are not exact in binary."""
    return 100.0 * (exact - share) <= allowed + 1e-9


def _best(tried: Sequence[tuple[Candidate, Recipe]]) -> tuple[Candidate, Recipe]:
    """The largest SQNR; of equals the first, which is the simplest."""
    return max(tried, key=lambda found: found[0].sqnr_db)


def _layers_named(
    layers: Sequence[Layer], prepared: Graph, imported: Graph, names: Sequence[str]
) -> frozenset[str]:
    """The layers that hold nodes of these names, also nodes that were folded into others.

    Raises:
        InputError: no node has that name.
    """
    holders = {node: layer.name for layer in layers for node in layer.nodes}
    now = {output: node.name for node in prepared.nodes for output in node.outputs}
    known = {node.name: node for node in imported.nodes}
    found: set[str] = set()
    for name in names:
        if name not in known and name not in holders:
            near = difflib.get_close_matches(name, known, 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise InputError(f"the model has no node {name!r} to keep float{hint}")
        outputs = known[name].outputs if name in known else ()
        candidates = [name, *(now[value] for value in outputs if value in now)]
        found.update(holders[node] for node in candidates if node in holders)
    return frozenset(found)


def quantize(
    model: str | PathLike[str] | ModelProto,
    calibration: Any,
    *,
    labels: str | None = None,
    validation: Any = None,
    dims: Mapping[str, int] | None = None,
    images: Preprocessing | None = None,
    samples: int | None = None,
    options: Options | None = None,
    config: AccelConfig = REFERENCE,
    progress: Progress | None = None,
) -> Quantized:
    """See ``accelc.quantize``, which has the options by name."""
    report = progress or (lambda _: None)
    chosen = options or Options()
    report("reading the model")
    proto, graph = load_float(model, dims)
    types = {name: graph.types[name] for name in graph.inputs}
    checked = None
    if validation is not None:
        if labels is None:
            raise InputError("--validation needs the name of its labels: --labels NAME")
        checked = open_samples(validation, types, labels, images, None)
    data = open_samples(calibration, types, labels if checked is None else None, images, samples)
    return Quantizer(proto, graph, data, checked, chosen, config, report).run()
