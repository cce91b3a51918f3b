"""Every intermediate tensor of a network, as one executor computes it, under the model's names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from accelc.artifact import Artifact
from accelc.compiler.contrib import CONTRIB
from accelc.compiler.graph import Array, Graph, Quant, TensorType
from accelc.compiler.integer_reference import evaluate, run_any
from accelc.compiler.onnx import import_model
from accelc.compiler.passes.table import run_passes
from accelc.compiler.pipeline import build_graph, compile_graph
from accelc.isa.config import AccelConfig
from accelc.isa.errors import InputError
from accelc.session import Session

#: The float model itself, operator by operator, by ``onnx.reference``.
REFERENCE = "reference"
#: What runs the compiled network: on the accelerator's devices, or all of it on the CPU.
COMPILED = ("golden", "functional", "rtl", "cpu")
EXECUTORS = (REFERENCE, *COMPILED)
#: How the compiler calls the integers of a float tensor that it quantizes earlier than the model.
_EARLY = ":q"


@dataclass(frozen=True)
class Tensor:
    """One tensor; ``stands_for`` are names of the float tensors that it is the integers of."""

    name: str
    op: str
    array: Array
    quant: Quant | None = None
    stands_for: tuple[str, ...] = ()

    @property
    def real(self) -> Array:
        """The numbers meant, float64."""
        if self.quant is None or self.array.dtype.kind not in "iu":
            return self.array.astype(np.float64)
        scale, zero = self.quant.scale, self.quant.zero_point
        if scale.size > 1 and self.quant.axis is not None:
            shape = [-1 if k == self.quant.axis else 1 for k in range(self.array.ndim)]
            scale, zero = scale.reshape(shape), np.broadcast_to(zero, scale.shape).reshape(shape)
        return (self.array.astype(np.float64) - zero.astype(np.float64)) * scale


Trace = dict[str, Tensor]


def require_executor(name: str) -> str:
    """Refuse what is no executor.

    Raises:
        InputError: naming those there are.
    """
    if name not in EXECUTORS:
        raise InputError(f"there is no executor {name!r}; there are {', '.join(EXECUTORS)}")
    return name


class Model:
    """A model to be traced by several executors; it is read, and compiled, once."""

    def __init__(
        self, path: Path, config: AccelConfig, dims: Mapping[str, int] | None = None
    ) -> None:
        self.path = path
        self.config = config
        self.dims = dims
        self.graph = import_model(path, dims=dims)
        self._artifact: Artifact | None = None

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {name: self.graph.types[name] for name in self.graph.inputs}

    def calibrated(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest value that an input's QuantizeLinear tells apart, where it has one
        with one scale."""
        ranges: dict[str, tuple[float, float]] = {}
        for node in self.graph.nodes:
            if node.op != "QuantizeLinear" or node.inputs[0] not in self.graph.inputs:
                continue
            result = self.graph.types[node.outputs[0]]
            quant, kind = result.quant, np.dtype(result.dtype)
            if quant is None or not quant.per_tensor or kind.kind not in "iu":
                continue
            limits, step = np.iinfo(kind), float(quant.scale)
            low, high = (limit - int(quant.zero_point) for limit in (limits.min, limits.max))
            ranges[node.inputs[0]] = low * step, high * step
        return ranges

    def check_inputs(self, inputs: Mapping[str, Array]) -> None:
        """Refuse anything but one array of the right shape and type per input.

        Raises:
            InputError: naming everything that is wrong.
        """
        wanted = self.inputs
        problems = [
            f"there is no input {n!r}, only {', '.join(wanted)}" for n in inputs if n not in wanted
        ]
        for name, kind in wanted.items():
            array = inputs.get(name)
            if array is None:
                problems.append(f"input {name!r} is missing")
            elif array.dtype != kind.dtype or array.shape != kind.shape:
                problems.append(
                    f"input {name!r} must be {kind.dtype} {list(kind.shape)}, "
                    f"not {array.dtype} {list(array.shape)}"
                )
        if problems:
            raise InputError("; ".join(problems))

    def trace(
        self, executor: str, inputs: Mapping[str, Array], progress: Callable[[str], None]
    ) -> Trace:
        """All tensors that ``executor`` computes from ``inputs``, by the model's names.

        Raises:
            InputError: an input is missing or does not fit.
            DeviceError: the device failed.
        """
        if executor == REFERENCE:
            progress(f"{self.path.name}: onnx.reference")
            graph = self._standard()
            return self._named(graph, evaluate(graph, inputs, every_value=True))
        progress(f"{self.path.name}: {executor}")
        artifact = self._compiled(progress)
        with Session(artifact, executor) as session:
            return self._named(artifact.model.graph, session.run(inputs))

    def relay(self, inputs: Mapping[str, Array], theirs: Trace) -> Trace:
        """Every tensor by ``onnx.reference``, from the tensors before it as ``theirs`` has them.

        What differs from ``theirs`` is then due to one layer, not to those before it.
        """
        graph = self._standard()
        values: dict[str, Any] = {**graph.constants, **inputs}
        alone: dict[str, Array] = {}
        for node in graph.nodes:
            given = [values[name] if name else None for name in node.inputs]
            results = run_any(node, given, graph.opset)
            for name, result in zip(filter(None, node.outputs), results, strict=False):
                alone[name] = values[name] = result
                if name in theirs and theirs[name].array.dtype == np.asarray(result).dtype:
                    values[name] = theirs[name].array
        return self._named(graph, alone)

    def _standard(self) -> Graph:
        """The model in operators that ``onnx.reference`` knows."""
        if not any(node.op in CONTRIB for node in self.graph.nodes):
            return self.graph
        return run_passes(self.graph, order=["decompose"])

    def _compiled(self, progress: Callable[[str], None]) -> Artifact:
        """The compiled network, every value of it an output."""
        if self._artifact is None:
            graph = build_graph(self.path, self.config, self.dims)
            values = [
                output
                for node in graph.nodes
                for output in node.outputs
                if output and graph.types[output].dtype != object
            ]
            shown = graph.with_(outputs=tuple(dict.fromkeys((*graph.outputs, *values))))
            self._artifact = Artifact(compile_graph(shown, self.config, progress=progress))
        return self._artifact

    def _named(self, graph: Graph, values: Mapping[str, Array]) -> Trace:
        """The values that are tensors of the model, in the model's layout."""
        operators = {o: node.op for node in graph.nodes for o in node.outputs}
        stands = _quantized(self.graph)
        result: Trace = {}
        for value in operators:
            if value not in values or not isinstance(values[value], np.ndarray):
                continue
            found = _as_in_model(value, values[value], graph, self.graph)
            if found is not None:
                meant = (*found.stands_for, *stands.get(found.name, ()))
                result[found.name] = replace(found, op=operators[value], stands_for=meant)
        return result


def _quantized(graph: Graph) -> dict[str, tuple[str, ...]]:
    """What float tensor each quantized tensor of a model, dequantized or not, stands for."""
    result: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        if node.op == "QuantizeLinear":
            result[node.outputs[0]] = (node.inputs[0],)
        elif node.op == "DequantizeLinear" and node.inputs[0] in result:
            result[node.outputs[0]] = result[node.inputs[0]]
    return result


def _as_in_model(value: str, array: Array, graph: Graph, model: Graph) -> Tensor | None:
    """``value`` of a compiled graph as tensor of the model; ``None`` if it is none of it."""
    origin = graph.origins.get(value)
    name, early = value, ()
    if origin is not None:
        name = origin.name
        for step, argument in origin.steps:
            if step == "Transpose":
                array = array.transpose(argument)
            elif step == "Reshape":
                array = array.reshape(argument)
            else:
                array = (array.astype(np.int16) + 128).astype(np.uint8)
    known = model.types.get(name)
    quant = None if known is None else known.quant
    if known is None and name.endswith(_EARLY):
        # the integers of a float tensor, in the layout that tensor has
        early = (name.removesuffix(_EARLY),)
        known = model.types.get(early[0])
        quant = graph.types[value].quant
        if known is None or known.shape != array.shape or quant is None:
            return None
        return Tensor(name, "", array, quant, early)
    if (
        known is None
        or known.dtype != array.dtype
        or (known.shape != array.shape and -1 not in known.shape)
    ):
        return None
    return Tensor(name, "", array, quant, early)
