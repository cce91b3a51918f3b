"""Quantizes a float network: calibrates, chooses, corrects, and measures what it cost.

``compiler.quantize`` knows how; this runs the networks. Everything is measured on the CPU tier,
which computes the integer operators bit for bit as the accelerator does.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from accelc.compiler.cpu import CpuModule, compile_graph
from accelc.compiler.graph import Graph, Node
from accelc.compiler.onnx import import_model
from accelc.compiler.onnx_file import read_model
from accelc.compiler.onnx_write import at_least_opset, to_model
from accelc.compiler.partition import Place, multiply_accumulates
from accelc.compiler.passes.table import run_passes
from accelc.compiler.pipeline import place_nodes
from accelc.compiler.quantize.bias import correction, takes_correction
from accelc.compiler.quantize.equalize import equalize, find_pairs
from accelc.compiler.quantize.insert import (
    dequantized_name,
    insert,
    layer_weights,
    value_parameters,
)
from accelc.compiler.quantize.layers import Kind, Layer, find_layers
from accelc.compiler.quantize.observers import DEFAULT_PERCENTILE, OBSERVERS, Range, percentile
from accelc.compiler.quantize.plan import Plan, make_plan
from accelc.compiler.quantize.prepare import prepare
from accelc.compiler.quantize.statistics import Noise, ValueStatistics
from accelc.files import write_atomically
from accelc.isa.config import REFERENCE, AccelConfig
from accelc.isa.errors import InputError, ModelError
from accelc.quantize_data import Run, Samples, Types, from_iterable, import_source, read_npz
from accelc.quantize_images import Preprocessing, read_images
from accelc.quantize_report import Accuracy, Candidate, LayerResult, QuantizationReport

Array = NDArray[Any]
Values = Mapping[str, Array]
Progress = Callable[[str], None]
#: First operator set whose DequantizeLinear has a scale per channel.
QDQ_OPSET = 13
#: Runs that candidates are compared on.
TRIAL_RUNS = 32
EQUALIZATIONS = ("none", "weights", "activations")
AUTO = "auto"
#: Output SQNR in dB, and points of accuracy lost, with one layer quantized.
Alone = tuple[float, float | None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the caller decides; ``auto`` takes what measures best.

    Members:
        observer: a name of ``OBSERVERS``, or ``auto``.
        percent: share of the numbers that the observer ``percentile`` covers.
        equalization: one of ``EQUALIZATIONS``, or ``auto``.
        bias_correction: None is auto.
        keep_float: names of nodes that stay float.
        max_drop: percentage points of accuracy the network may lose; layers that cost more stay
            float.
        sensitivity: also measure every layer alone.
    """

    observer: str = AUTO
    percent: float = DEFAULT_PERCENTILE
    equalization: str = AUTO
    bias_correction: bool | None = None
    keep_float: tuple[str, ...] = ()
    max_drop: float | None = None
    sensitivity: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("observer", tuple(OBSERVERS)), ("equalization", EQUALIZATIONS)):
            if getattr(self, name) not in (AUTO, *allowed):
                choices = ", ".join((AUTO, *allowed))
                raise InputError(f"{name} must be one of {choices}, not {getattr(self, name)!r}")
        if not 50.0 < self.percent <= 100.0:
            raise InputError(f"a percentile must be above 50 and at most 100, not {self.percent}")
        if self.max_drop is not None and self.max_drop < 0:
            raise InputError(f"the largest accuracy drop must not be negative: {self.max_drop}")


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


class Network:
    """A graph compiled for this machine."""

    def __init__(self, graph: Graph, config: AccelConfig) -> None:
        self.graph = run_passes(graph, config)
        self._module: CpuModule = compile_graph(self.graph)

    def run(self, inputs: Values) -> dict[str, Array]:
        return self._module.run({name: inputs[name] for name in self.graph.inputs})


@dataclass
class Calibration:
    """What one float graph's values look like over the samples."""

    graph: Graph
    statistics: dict[str, ValueStatistics] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """All that fixes a quantized graph but the plan."""

    graph: Graph
    ranges: Mapping[str, Range]
    corrections: Mapping[str, Array]


def open_samples(
    calibration: Any,
    types: Types,
    labels: str | None,
    images: Preprocessing | None,
    limit: int | None,
) -> Samples:
    """Calibration data from a path, ``module:function``, or Python.

    Raises:
        InputError: there is no such file, or what is there is no calibration data.
    """
    if not isinstance(calibration, str | PathLike):
        return from_iterable(calibration, types, labels, limit)
    path = Path(calibration)
    if path.is_dir():
        if images is None:
            raise InputError(
                f"{path} is a folder: say how its images are preprocessed, at least by their"
                " scale (--image scale=1/255)"
            )
        if labels is not None:
            raise InputError("a folder of images has no labels; give labelled samples as .npz")
        return read_images(path, types, images, limit)
    if not path.exists() and ":" in fspath(calibration):
        return from_iterable(import_source(fspath(calibration)), types, labels, limit)
    return read_npz(path, types, labels, limit)


def load_float(
    model: str | PathLike[str] | ModelProto, dims: Mapping[str, int] | None
) -> tuple[ModelProto, Graph]:
    """The model at an operator set that can be quantized, and its graph.

    Raises:
        ModelError: unreadable, quantized already, or with dimensions that have no size.
    """
    proto = model if isinstance(model, ModelProto) else read_model(Path(model))
    for node in proto.graph.node:
        if node.op_type.startswith(("QLinear", "QGemm", "QuantizeLinear", "DequantizeLinear")):
            raise ModelError(
                f"the model is quantized already ({node.op_type} {node.name!r}); give the float"
                " model, or compile this one as it is"
            )
    proto = at_least_opset(proto, QDQ_OPSET, "scales per channel need")
    return proto, import_model(proto, dims=dims)


class Quantizer:
    """One quantization, step by step; ``run`` is all of them."""

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
        self.validation = validation
        self.options = options
        self.config = config
        self.progress = progress
        self.graph = prepare(graph)
        self.layers = find_layers(self.graph)
        if not any(layer.kind in (Kind.LINEAR, Kind.PRODUCT) for layer in self.layers):
            raise ModelError(
                "the model has nothing to quantize: no float32 convolution or matrix product with"
                " constant weights"
            )
        self.kept = _layers_named(self.layers, self.graph, graph, options.keep_float)
        self.plan = make_plan(self.graph, self.layers, self.kept)
        self.pairs = find_pairs(self.graph, self.layers)
        self.count = 0
        #: Runs of the trial and what the float network answers.
        self.trial: list[tuple[Run, dict[str, Array]]] = []

    # ---- calibration ---------------------------------------------------------------------------

    def calibrate(self, graph: Graph) -> Calibration:
        """Run the float ``graph`` over all samples and observe every value that has a scale."""
        wanted = self._observed(graph)
        network = Network(_with_outputs(graph, wanted), self.config)
        first = not self.count
        for number, run in enumerate(self.samples.runs(), 1):
            self.progress(f"calibrating, run {number}")
            self.count += run.count if first else 0
            values = {**run.inputs, **network.run(run.inputs)}
            for name, statistics in wanted.items():
                value = values[name]
                if not np.isfinite(value).all():
                    raise InputError(
                        f"value {name!r} of the float network is NaN or infinite for sample"
                        f" {number - 1}; check the model and the sample"
                    )
                statistics.add(value)
            if first and len(self.trial) < TRIAL_RUNS:
                outputs = {name: values[name] for name in graph.outputs}
                self.trial.append((run, outputs))
        return Calibration(graph, wanted)

    def _observed(self, graph: Graph) -> dict[str, ValueStatistics]:
        reach = {pair.value: 1 if pair.second.root.op == "Conv" else -1 for pair in self.pairs}
        means = {layer.reads[0] for layer in self.layers if layer.kind is Kind.LINEAR}
        values: dict[str, ValueStatistics] = {}
        for layer in self.layers:
            for value in (*layer.reads, *layer.outputs):
                if value not in graph.constants and value not in values:
                    values[value] = ValueStatistics(
                        mean=value in means, channel_axis=reach.get(value)
                    )
        return values

    # ---- candidates ----------------------------------------------------------------------------

    def ranges(self, calibration: Calibration, observer: str) -> dict[str, Range]:
        observe = OBSERVERS[observer]
        if observer == "percentile":
            observe = partial(percentile, percent=self.options.percent)
        return {name: observe(s.histogram) for name, s in calibration.statistics.items()}

    def corrections(
        self, calibration: Calibration, ranges: Mapping[str, Range]
    ) -> dict[str, Array]:
        graph = calibration.graph
        parameters = value_parameters(graph, self.plan, ranges)
        return {
            layer.name: correction(
                graph,
                layer,
                layer_weights(graph, layer, parameters[layer.reads[0]]),
                calibration.statistics[layer.reads[0]].mean,
            )
            for layer in self.plan.quantized
            if layer.kind is Kind.LINEAR and takes_correction(layer)
        }

    def output_noise(self, recipe: Recipe, plan: Plan) -> Noise:
        """Signal and noise of the quantized network's outputs over the trial runs."""
        network = Network(self.quantized_graph(recipe, plan), self.config)
        noise = Noise()
        for run, expected in self.trial:
            found = network.run(run.inputs)
            for name in self.graph.outputs:
                if expected[name].dtype.kind == "f":
                    noise.add(expected[name], found[name])
        return noise

    @staticmethod
    def quantized_graph(recipe: Recipe, plan: Plan) -> Graph:
        return insert(recipe.graph, plan, recipe.ranges, recipe.corrections)

    def choose(self) -> tuple[Recipe, Candidate, tuple[Candidate, ...]]:
        """Try what the options leave open, one decision after the other; keep what is best."""
        options = self.options
        tried: list[tuple[Candidate, Recipe]] = []

        def attempt(calibration: Calibration, observer: str, equalization: str, corrected: bool):
            self.progress(f"trying {observer}, equalization {equalization}")
            ranges = self.ranges(calibration, observer)
            shifts = self.corrections(calibration, ranges) if corrected else {}
            recipe = Recipe(calibration.graph, ranges, shifts)
            decibels = self.output_noise(recipe, self.plan).decibels
            tried.append((Candidate(observer, equalization, corrected, decibels), recipe))

        calibrations: dict[str, Calibration] = {"none": self.calibrate(self.graph)}
        equalizations = [options.equalization]
        if options.equalization == AUTO:
            equalizations = list(EQUALIZATIONS if self.pairs else EQUALIZATIONS[:1])
        observers = [*OBSERVERS] if options.observer == AUTO else [options.observer]
        for number, equalization in enumerate(equalizations):
            calibrations[equalization] = self._equalized(calibrations["none"], equalization)
            for observer in observers if not number else [_best(tried)[0].observer]:
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
            reach = {
                pair.value: found
                for pair in self.pairs
                if (found := plain.statistics[pair.value].reach) is not None
            }
        return self.calibrate(equalize(self.graph, self.pairs, reach))

    # ---- accuracy ------------------------------------------------------------------------------

    def share_correct(self, graph: Graph) -> tuple[float, int]:
        """Share of the labelled samples that ``graph`` classifies as their label says, of how many.

        Raises:
            InputError: the samples have no labels.
        """
        network = Network(graph, self.config)
        correct = total = 0
        for run in (self.validation or self.samples).runs():
            if run.labels is None:
                raise InputError("an accuracy needs labels: name their array with --labels")
            scores = network.run(run.inputs)[self.graph.outputs[0]]
            classes = scores.reshape(scores.shape[0], -1).argmax(axis=1)[: run.count]
            correct += int((classes == run.labels).sum())
            total += run.count
        return correct / total, total

    # ---- mixed precision -----------------------------------------------------------------------

    def alone(self, recipe: Recipe, float_share: float | None) -> dict[str, Alone]:
        """By layer: output SQNR, and drop in points, with nothing else quantized."""
        found: dict[str, Alone] = {}
        for layer in self.plan.quantized:
            if layer.kind is Kind.MOVEMENT:
                continue
            self.progress(f"measuring {layer.name} alone")
            single = replace(self.plan, active=frozenset((layer.name,)))
            drop = None
            if float_share is not None:
                share, _ = self.share_correct(self.quantized_graph(recipe, single))
                drop = 100.0 * (float_share - share)
            found[layer.name] = (self.output_noise(recipe, single).decibels, drop)
        return found

    def relax(self, recipe: Recipe, float_share: float, order: Sequence[str]) -> tuple[Plan, float]:
        """Leave as few layers float as needed, the first of ``order`` first; what that gives."""
        allowed = self.options.max_drop
        assert allowed is not None

        def measured(count: int) -> tuple[Plan, float]:
            plan = make_plan(self.graph, self.layers, {*self.kept, *order[:count]})
            self.progress(f"{count} layers float")
            return plan, self.share_correct(self.quantized_graph(recipe, plan))[0]

        def good(share: float) -> bool:
            return 100.0 * (float_share - share) <= allowed + 1e-9

        low, high = 0, 1
        found = measured(min(high, len(order)))
        while not good(found[1]) and high < len(order):
            low, high = high, min(2 * high, len(order))
            found = measured(high)
        while high - low > 1:
            middle = (low + high) // 2
            tried = measured(middle)
            if good(tried[1]):
                high, found = middle, tried
            else:
                low = middle
        return found

    # ---- all of it -----------------------------------------------------------------------------

    def run(self) -> Quantized:
        recipe, chosen, candidates = self.choose()
        labelled = self.trial[0][0].labels is not None or self.validation is not None
        if self.options.max_drop is not None and not labelled:
            raise InputError("--max-accuracy-drop needs labelled samples: name them with --labels")
        float_share = quantized_share = None
        count = 0
        plan = self.plan
        if labelled:
            self.progress("measuring the accuracy")
            float_share, count = self.share_correct(self.graph)
            quantized_share, _ = self.share_correct(self.quantized_graph(recipe, plan))
        alone: dict[str, Alone] = {}
        missed = (
            float_share is not None
            and quantized_share is not None
            and self.options.max_drop is not None
            and 100.0 * (float_share - quantized_share) > self.options.max_drop + 1e-9
        )
        if self.options.sensitivity or missed:
            alone = self.alone(recipe, float_share)
        if missed and float_share is not None:
            order = sorted(alone, key=lambda name: (-(alone[name][1] or 0.0), alone[name][0]))
            plan, quantized_share = self.relax(recipe, float_share, order)
        accuracy = None
        if float_share is not None and quantized_share is not None:
            accuracy = Accuracy(
                samples=count, float_share=float_share, quantized_share=quantized_share
            )
        return self._finished(recipe, plan, chosen, candidates, alone, accuracy)

    def _finished(
        self,
        recipe: Recipe,
        plan: Plan,
        chosen: Candidate,
        candidates: tuple[Candidate, ...],
        alone: Mapping[str, Alone],
        accuracy: Accuracy | None,
    ) -> Quantized:
        self.progress("measuring every layer")
        graph = self.quantized_graph(recipe, plan)
        symbolic = not any(node.op in ("Shape", "Size") for node in self.imported.nodes)
        model = to_model(graph, self.proto, symbolic=symbolic)
        noises = self._layer_noises(recipe, plan, graph)
        total = Noise()
        for name in self.graph.outputs:
            if name in noises:
                total.signal += noises[name].signal
                total.noise += noises[name].noise
        optimized = run_passes(graph, self.config)
        placed = place_nodes(optimized, "vta", self.config)
        macs = [multiply_accumulates(optimized, node) for node in optimized.nodes]
        on = [p.place is Place.ACCELERATOR for p in placed]
        notes = [*self.samples.notes]
        if not symbolic:
            notes += self.imported.notes
            notes.append("shapes are computed in the model: its dimensions are fixed now")
        report = QuantizationReport(
            network=self.graph.name,
            config=self.config.name,
            samples=self.count,
            chosen=chosen,
            candidates=candidates,
            layers=tuple(self._layer_results(recipe, plan, noises, alone)),
            output_sqnr_db=total.decibels,
            accuracy=accuracy,
            accelerator_nodes=sum(on),
            cpu_nodes=len(on) - sum(on),
            accelerator_mac_share=(
                sum(m for m, o in zip(macs, on, strict=True) if o) / max(sum(macs), 1)
            ),
            model_bytes=(self.proto.ByteSize(), model.ByteSize()),
            notes=tuple(notes),
        )
        return Quantized(model, report)

    def _layer_noises(self, recipe: Recipe, plan: Plan, graph: Graph) -> dict[str, Noise]:
        """Signal and noise of every layer's output in the finished network, over the trial runs."""
        produced = plan.produced
        names = {
            value: dequantized_name(value, self.graph, produced)
            for layer in plan.quantized
            for value in layer.outputs
        } | {name: name for name in self.graph.outputs}
        exact = Network(_with_outputs(recipe.graph, names), self.config)
        quantized = Network(_with_outputs(graph, names.values()), self.config)
        noises = {value: Noise() for value in names}
        for run, _ in self.trial:
            expected, found = exact.run(run.inputs), quantized.run(run.inputs)
            for value, name in names.items():
                if expected[value].dtype.kind == "f":
                    noises[value].add(expected[value], found[name])
        return noises

    def _layer_results(
        self,
        recipe: Recipe,
        plan: Plan,
        noises: Mapping[str, Noise],
        alone: Mapping[str, Alone],
    ) -> Iterator[LayerResult]:
        parameters = value_parameters(recipe.graph, plan, recipe.ranges)
        for layer in self.layers:
            value = layer.outputs[0]
            common: dict[str, Any] = {
                "name": layer.name, "op": layer.root.op, "kind": str(layer.kind),
            }  # fmt: skip
            if layer.name in alone:
                common["alone_sqnr_db"], common["alone_drop"] = alone[layer.name]
            if layer.name not in plan.active:
                yield LayerResult(**common, form="float", reason=self._reason(layer))
                continue
            found = parameters[value]
            yield LayerResult(
                **common, form="int8", low=found.low, high=found.high,
                scale=float(found.scale), zero_point=found.zero,
                weight_bits=8 if layer.weights else None, sqnr_db=noises[value].decibels,
            )  # fmt: skip

    def _reason(self, layer: Layer) -> str:
        if layer.name in self.kept:
            return "asked for"
        if layer.name in self.plan.active:
            return "accuracy"
        return "between float layers"


def _best(tried: Sequence[tuple[Candidate, Recipe]]) -> tuple[Candidate, Recipe]:
    """The largest SQNR; of equals the first, which is the simplest."""
    return max(tried, key=lambda found: found[0].sqnr_db)


def _with_outputs(graph: Graph, names: Any) -> Graph:
    """``graph`` with inner values as outputs too."""
    more = [n for n in names if n not in graph.inputs and n not in graph.outputs]
    return graph.with_(outputs=(*graph.outputs, *dict.fromkeys(more)))


def _layers_named(
    layers: Sequence[Layer], prepared: Graph, imported: Graph, names: Sequence[str]
) -> frozenset[str]:
    """The layers that hold nodes of these names.

    Raises:
        InputError: no node has that name, or it belongs to nothing that is quantized.
    """
    holders = {node: layer.name for layer in layers for node in layer.nodes}
    known = {node.name for node in imported.nodes}
    for name in names:
        if name not in known and name not in holders:
            near = difflib.get_close_matches(name, known, 3)
            hint = f"; did you mean {', '.join(near)}" if near else ""
            raise InputError(f"the model has no node {name!r} to keep float{hint}")
    merged = _merged(prepared, imported)
    return frozenset(holders[n] for n in (merged.get(name, name) for name in names) if n in holders)


def _merged(prepared: Graph, imported: Graph) -> dict[str, str]:
    """By node that is gone: the one that computes its output now."""
    now = {output: node.name for node in prepared.nodes for output in node.outputs}

    def replaced(node: Node) -> bool:
        return bool(node.outputs) and node.outputs[0] in now

    return {node.name: now[node.outputs[0]] for node in imported.nodes if replaced(node)}


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
