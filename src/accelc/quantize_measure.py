"""What a quantized network is worth, measured: noise against the float network, and accuracy."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.cpu import CpuModule, compile_graph
from accelc.compiler.graph import Graph
from accelc.compiler.passes.table import run_passes
from accelc.compiler.quantize.statistics import Noise, ValueStatistics
from accelc.inputs import count_correct
from accelc.isa.config import AccelConfig
from accelc.isa.errors import InputError
from accelc.quantize_data import Run, Samples

Array = NDArray[Any]
#: A run and what the float network answers.
Trial = tuple[Run, Mapping[str, Array]]


class Network:
    """A graph compiled for this machine; integer operators compute as on the accelerator."""

    def __init__(self, graph: Graph, config: AccelConfig) -> None:
        self.graph = run_passes(graph, config)
        self._module: CpuModule = compile_graph(self.graph)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._module.run({name: inputs[name] for name in self.graph.inputs})


def with_outputs(graph: Graph, names: Iterable[str]) -> Graph:
    """``graph`` with inner values as outputs too."""
    more = [n for n in names if n not in graph.inputs and n not in graph.outputs]
    return graph.with_(outputs=(*graph.outputs, *dict.fromkeys(more)))


def observe(
    graph: Graph,
    wanted: Mapping[str, ValueStatistics],
    samples: Samples,
    config: AccelConfig,
    seen: Callable[[int, Run, Mapping[str, Array]], None],
) -> None:
    """Run a float ``graph`` over all samples and add its values to ``wanted``, by name.

    ``seen`` is given each run's number, from 1, the run, and all values.

    Raises:
        InputError: a value of the network is NaN or infinite.
    """
    network = Network(with_outputs(graph, wanted), config)
    for number, run in enumerate(samples.runs(), 1):
        values = {**run.inputs, **network.run(run.inputs)}
        for name, statistics in wanted.items():
            if not np.isfinite(values[name]).all():
                raise InputError(
                    f"value {name!r} of the float network is NaN or infinite in run {number - 1};"
                    " check the model and that sample"
                )
            statistics.add(values[name])
        seen(number, run, values)


def output_noise(graph: Graph, trials: Sequence[Trial], config: AccelConfig) -> Noise:
    """Signal and noise of the outputs of a quantized ``graph`` over the trials."""
    network = Network(graph, config)
    noise = Noise()
    for run, expected in trials:
        found = network.run(run.inputs)
        for name in graph.outputs:
            if expected[name].dtype.kind == "f":
                noise.add(expected[name], found[name])
    return noise


def value_noises(
    exact: Graph,
    quantized: Graph,
    names: Mapping[str, str],
    trials: Sequence[Trial],
    config: AccelConfig,
) -> dict[str, Noise]:
    """Signal and noise of inner values; ``names`` says how those of ``exact`` are called there."""
    reference = Network(with_outputs(exact, names), config)
    network = Network(with_outputs(quantized, names.values()), config)
    noises = {value: Noise() for value in names}
    for run, _ in trials:
        expected, found = reference.run(run.inputs), network.run(run.inputs)
        for value, name in names.items():
            if expected[value].dtype.kind == "f":
                noises[value].add(expected[value], found[name])
    return noises


def share_correct(graph: Graph, samples: Samples, config: AccelConfig) -> tuple[float, int]:
    """Share of the labelled samples whose label has the largest first output, of how many.

    Raises:
        InputError: the samples have no labels.
    """
    network = Network(graph, config)
    correct = total = 0
    for run in samples.runs():
        if run.labels is None:
            raise InputError("an accuracy needs labels: name their array with --labels")
        scores = network.run(run.inputs)[graph.outputs[0]]
        correct += count_correct(scores, run.labels)
        total += run.count
    return correct / total, total
