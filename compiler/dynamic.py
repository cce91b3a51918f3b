"""Networks whose shapes are known only when they run: native code for every shape that occurs.

Every operator's kernel is generated for fixed shapes. A network with open dimensions is therefore
compiled when its inputs are there, and what was compiled is kept for the next inputs of those
shapes. Where a shape depends on data (NonZero, a Reshape to computed sizes, Loop), the network is
cut behind the node that computes it: the part behind is compiled when the value is there.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from accelc.compiler.graph import Array, Graph, TensorType
from accelc.compiler.onnx_infer import specialize
from accelc.compiler.onnx_node import OPAQUE
from accelc.compiler.partition import subgraph
from accelc.isa.errors import InputError, ModelError

#: Combinations of input shapes whose code is kept, per part of a network; the one that was not used
#: for the longest time goes first.
KEPT_SHAPES = 8
#: Sizes of open dimensions other than the batch that reports suppose.
LIKELY_SIZES = (224, 32, 128, 512, 1)
#: Cuts one behind the other; what is behind the last runs node by node where shapes are unknown.
MAX_CUTS = 32


class Runner(Protocol):
    """What a back end makes of a graph whose input shapes are all known."""

    @property
    def reference_operators(self) -> tuple[str, ...]: ...

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...


#: Optimizes a graph and generates its code.
Compile = Callable[[Graph], Runner]


def is_open(found: TensorType) -> bool:
    """Whether the value has a shape that is not known."""
    return -1 in found.shape and found != OPAQUE


def is_dynamic(graph: Graph) -> bool:
    """Whether a value of ``graph`` that something reads has a shape that is not known."""
    return any(
        name in graph.types and is_open(graph.types[name])
        for node in graph.nodes
        for name in node.inputs
    ) or any(is_open(graph.types[name]) for name in graph.inputs)


def sizes(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The size of every named open dimension, given the shapes of inputs.

    Raises:
        InputError: two inputs give one dimension different sizes.
    """
    found: dict[str, tuple[int, str]] = {}
    for value, shape in shapes.items():
        for axis, symbol in enumerate(graph.symbols.get(value, ())):
            if not symbol or axis >= len(shape):
                continue
            size, where = found.setdefault(symbol, (shape[axis], value))
            if size != shape[axis]:
                raise InputError(
                    f"dimension {symbol!r} is {size} in input {where!r} and {shape[axis]} in"
                    f" input {value!r}"
                )
    return {symbol: size for symbol, (size, _) in found.items()}


def fix(graph: Graph, dims: Mapping[str, int], others: int | None = None) -> dict[str, TensorType]:
    """Types of the inputs with the open dimensions that ``dims`` names, or that are ``INPUT.AXIS``
    there, at these sizes; the rest stays open, or gets ``others``.

    Raises:
        InputError: a name that is no open dimension of the network.
    """
    places = {
        f"{value}.{axis}": symbol
        for value, axes in graph.symbols.items()
        for axis, symbol in enumerate(axes)
        if symbol
    }
    known = {*places, *places.values()}
    if unknown := sorted(set(dims) - known):
        listed = ", ".join(repr(name) for name in sorted(known))
        has = f"has {listed}" if listed else "was compiled for fixed shapes"
        raise InputError(f"the network has no open dimension {unknown}; it {has}")
    result: dict[str, TensorType] = {}
    for value in graph.inputs:
        found = graph.types[value]
        axes = graph.symbols.get(value, ("",) * len(found.shape))
        shape = [
            dims.get(f"{value}.{axis}", dims.get(symbol, -1 if others is None else others))
            if symbol
            else size
            for axis, (size, symbol) in enumerate(zip(found.shape, axes, strict=True))
        ]
        result[value] = TensorType(tuple(shape), found.dtype, found.quant)
    return result


def representative(graph: Graph) -> Graph:
    """``graph`` with likely sizes for its open dimensions, for reports about its nodes; as it is if
    it takes none of the sizes tried."""
    if not graph.symbols:
        return graph
    for size in LIKELY_SIZES:
        types = fix(graph, {}, size)
        for value, axes in graph.symbols.items():
            if axes[0]:
                types[value] = replace(types[value], shape=(1, *types[value].shape[1:]))
        with contextlib.suppress(ModelError):
            return specialize(graph, types)
    return graph


class _Stage:
    """A network, or what is behind a cut, and its forms for the shapes that occurred."""

    def __init__(self, graph: Graph, cuts: int) -> None:
        self.graph = graph
        self.cuts = cuts
        self.forms: OrderedDict[Hashable, _Form] = OrderedDict()

    def form(self, values: Mapping[str, Any], compile_graph: Compile) -> "_Form":
        """The network for values of these shapes, compiled if it is not there yet."""
        key = tuple(_signature(values[name]) for name in self.graph.inputs)
        if key in self.forms:
            self.forms.move_to_end(key)
            return self.forms[key]
        form = self.forms[key] = self._compiled(values, compile_graph)
        if len(self.forms) > KEPT_SHAPES:
            self.forms.popitem(last=False)
        return form

    def _compiled(self, values: Mapping[str, Any], compile_graph: Compile) -> "_Form":
        graph = self.graph
        types = {name: _type(values[name], graph.types[name]) for name in graph.inputs}
        special = specialize(graph, types)
        now, later = _split(special)
        if not later or self.cuts >= MAX_CUTS:
            return _Form(compile_graph(special), graph.inputs, None)
        part = subgraph(special, now, f"{graph.name}.now")
        rest = subgraph(special, later, f"{graph.name}.rest")
        return _Form(compile_graph(part), part.inputs, _Stage(rest, self.cuts + 1))


@dataclass(frozen=True)
class _Form:
    """Code for the part of a stage whose shapes are known, and the stage behind it."""

    runner: Runner
    inputs: tuple[str, ...]
    rest: _Stage | None


def _signature(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape
    return "object"


def _type(value: Any, before: TensorType) -> TensorType:
    if not isinstance(value, np.ndarray):
        return OPAQUE
    dtype = value.dtype if value.dtype.kind not in "US" else np.dtype(object)
    return TensorType(value.shape, dtype, before.quant)


def _split(graph: Graph) -> tuple[list[int], list[int]]:
    """Nodes that read known shapes only, and all others."""
    unknown: set[str] = set()
    now: list[int] = []
    later: list[int] = []
    for index, node in enumerate(graph.nodes):
        outputs = [name for name in node.outputs if name]
        if any(name in unknown for name in node.inputs):
            later.append(index)
            unknown.update(outputs)
        else:
            now.append(index)
            unknown.update(name for name in outputs if is_open(graph.types[name]))
    return now, later


class DynamicModule:
    """Executes a graph with open dimensions. Calls of ``run`` from several threads take turns."""

    def __init__(self, graph: Graph, compile_graph: Compile) -> None:
        self.graph = graph
        self._compile = compile_graph
        self._root = _Stage(graph, 0)
        self._operators: set[str] = set()
        self._lock = threading.Lock()

    @property
    def reference_operators(self) -> tuple[str, ...]:
        """Operators that so far ran through ``onnx.reference``."""
        return tuple(sorted(self._operators))

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Values of the graph's outputs for ``inputs``, by name.

        Raises:
            InputError: the network does not take inputs of these shapes.
        """
        values: dict[str, Any] = dict(inputs)
        results: dict[str, Any] = {}
        wanted = set(self.graph.outputs)
        with self._lock:
            stage: _Stage | None = self._root
            while stage is not None:
                form = self._form(stage, values)
                computed = form.runner.run({name: values[name] for name in form.inputs})
                self._operators.update(form.runner.reference_operators)
                results.update((n, v) for n, v in computed.items() if n in wanted)
                stage = form.rest
                if stage is not None:
                    values.update(computed)
                    values = {name: values[name] for name in stage.graph.inputs}
        for name in wanted - results.keys():
            results[name] = inputs[name] if name in inputs else self.graph.constants[name]
        return {name: results[name] for name in self.graph.outputs}

    def _form(self, stage: _Stage, values: Mapping[str, Any]) -> _Form:
        try:
            return stage.form(values, self._compile)
        except ModelError as error:
            shapes = ", ".join(f"{n!r} {list(np.shape(v))}" for n, v in values.items())
            raise InputError(f"the network does not take {shapes}: {error}") from error
