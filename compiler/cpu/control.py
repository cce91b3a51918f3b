"""If, Loop and Scan: their bodies are graphs, compiled for the values they meet."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto

from accelc.compiler.cpu.bodies import graph_of, type_of
from accelc.compiler.cpu.specialize import Runner
from accelc.compiler.graph import Array, Graph, Node, TensorType
from accelc.compiler.onnx_node import run as run_reference
from accelc.isa.errors import ModelError, UnsupportedOpError

#: Combinations of shapes a body is compiled for; beyond them the reference runs the whole operator.
MAX_FORMS = 16
#: Opset from which Scan has no batch axis of its own.
_SCAN_WITHOUT_BATCH = 9

CompileGraph = Callable[[Graph], Runner]


class TooManyForms(Exception):
    """A body meets new shapes again and again."""


class Body:
    """One body, compiled for every combination of types it meets."""

    def __init__(
        self,
        proto: GraphProto,
        outside: Mapping[str, Array],
        opset: int,
        compile_graph: CompileGraph,
    ) -> None:
        """``outside`` are the values from around it that are known at compile time."""
        self.inputs = [value.name for value in proto.input]
        self.outputs = [value.name for value in proto.output]
        used = _names(proto)
        self._proto = proto
        self._outside = {name: array for name, array in outside.items() if name in used}
        self._used = used
        self._opset = opset
        self._compile = compile_graph
        self._forms: dict[Hashable, tuple[Runner, Graph]] = {}

    @property
    def reference_operators(self) -> set[str]:
        """Operators that so far ran through ``onnx.reference``."""
        return {op for runner, _ in self._forms.values() for op in runner.reference_operators}

    def run(self, inputs: Sequence[Any], captured: Mapping[str, Any]) -> list[Any]:
        """The outputs, in order.

        Raises:
            TooManyForms: the types are new, as those of many calls before were.
        """
        values = {n: v for n, v in captured.items() if n in self._used and n not in self._outside}
        values |= {name: _plain(v) for name, v in zip(self.inputs, inputs, strict=True)}
        runner, graph = self._form(values)
        results = runner.run({name: values[name] for name in graph.inputs})
        return [
            results[n] if n in results else values.get(n, self._outside.get(n))
            for n in self.outputs
        ]

    def types(self, values: Mapping[str, Any]) -> list[TensorType]:
        """Types of the outputs for inputs of these names."""
        _, graph = self._form(values)
        return [graph.types[name] for name in self.outputs]

    def _form(self, values: Mapping[str, Any]) -> tuple[Runner, Graph]:
        types = {name: type_of(value) for name, value in values.items()}
        key = tuple((name, t.dtype.name, t.shape) for name, t in sorted(types.items()))
        if key not in self._forms:
            if len(self._forms) >= MAX_FORMS:
                raise TooManyForms
            graph = graph_of(self._proto, types, self._outside, self._opset)
            self._forms[key] = self._compile(graph), graph
        return self._forms[key]


def _names(graph: GraphProto) -> set[str]:
    """All names a body and the bodies inside of it mention."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
                names |= _names(inner)
    return names


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value


class ControlNode:
    """One If, Loop or Scan."""

    def __init__(
        self,
        node: Node,
        opset: int,
        constants: Mapping[str, Array],
        compile_graph: CompileGraph,
    ) -> None:
        self.node = node
        self._opset = opset
        captured = node.attrs.get("captured", ())
        self._captured = tuple(captured)
        self._actual = node.inputs[len(node.inputs) - len(captured) :] if captured else ()
        known = {
            name: constants[actual]
            for name, actual in zip(self._captured, self._actual, strict=True)
            if actual in constants and constants[actual].dtype != object
        }
        self._bodies = {
            key: Body(value, known, opset, compile_graph)
            for key, value in node.attrs.items()
            if isinstance(value, GraphProto)
        }
        self._used_reference = False

    @property
    def reference_operators(self) -> frozenset[str]:
        """Operators that so far ran through ``onnx.reference``."""
        found = {op for body in self._bodies.values() for op in body.reference_operators}
        return frozenset(found | ({self.node.op} if self._used_reference else set()))

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """The outputs that have a name, in order."""
        plain = len(self.node.inputs) - len(self._captured)
        inputs = [_own(values[name]) if name else None for name in self.node.inputs[:plain]]
        around = {
            name: _own(values[actual])
            for name, actual in zip(self._captured, self._actual, strict=True)
        }
        try:
            results = _OPERATORS[self.node.op](self, inputs, around)
        except (TooManyForms, ModelError, UnsupportedOpError):
            self._used_reference = True  # which says what is wrong, if anything is
            results = run_reference(
                self.node, [*inputs, *(around[name] for name in self._captured)], self._opset
            )
        return [v for name, v in zip(self.node.outputs, results, strict=False) if name]

    def _branch(self, inputs: Sequence[Any], around: Mapping[str, Any]) -> list[Any]:
        which = "then_branch" if bool(np.asarray(inputs[0]).reshape(())) else "else_branch"
        return self._bodies[which].run([], around)

    def _loop(self, inputs: Sequence[Any], around: Mapping[str, Any]) -> list[Any]:
        trips, going, *carried = inputs
        body = self._bodies["body"]
        limit = None if trips is None else int(np.asarray(trips).reshape(()))
        on = going is None or bool(np.asarray(going).reshape(()))
        scanned: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
        number = 0
        while on and (limit is None or number < limit):
            count = np.array(number, np.int64)
            first = [count, np.array(True)][: len(body.inputs)]
            results = body.run([*first, *carried], around)
            on = bool(np.asarray(results[0]).reshape(()))
            for items, value in zip(scanned, results[1 + len(carried) :], strict=True):
                items.append(np.array(value))
            carried = results[1 : 1 + len(carried)]
            number += 1
        stacked = [
            np.stack(items) if items else self._nothing(body, carried, around, index)
            for index, items in enumerate(scanned)
        ]
        return [*carried, *stacked]

    def _nothing(
        self, body: Body, carried: Sequence[Any], around: Mapping[str, Any], index: int
    ) -> Array:
        """What a loop that never ran stacked: no rows of the shape its body would have given."""
        start = [np.array(0, np.int64), np.array(True), *carried]
        given = dict(around) | dict(zip(body.inputs, start, strict=True))
        found = body.types({n: v for n, v in given.items() if v is not None})
        kind = found[1 + len(carried) + index]
        return np.zeros((0, *(max(0, extent) for extent in kind.shape)), kind.dtype)

    def _scan(self, inputs: Sequence[Any], around: Mapping[str, Any]) -> list[Any]:
        if self._opset < _SCAN_WITHOUT_BATCH:
            return self._batched_scan(inputs, around)
        attrs, body = self.node.attrs, self._bodies["body"]
        count = int(attrs["num_scan_inputs"])
        states, sequences = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
        axes = attrs.get("scan_input_axes") or (0,) * count
        back = attrs.get("scan_input_directions") or (0,) * count
        lines = [
            _reversed(np.moveaxis(x, axis, 0), down)
            for x, axis, down in zip(sequences, axes, back, strict=True)
        ]
        return self._scan_lines(body, states, lines, around)

    def _scan_lines(
        self, body: Body, states: list[Any], lines: Sequence[Array], around: Mapping[str, Any]
    ) -> list[Any]:
        attrs = self.node.attrs
        number = len(body.outputs) - len(states)
        axes = attrs.get("scan_output_axes") or (0,) * number
        back = attrs.get("scan_output_directions") or (0,) * number
        scanned: list[list[Any]] = [[] for _ in range(number)]
        for step in range(len(lines[0])):
            results = body.run([*states, *(np.array(line[step]) for line in lines)], around)
            states = results[: len(states)]
            for items, value in zip(scanned, results[len(states) :], strict=True):
                items.append(value)
        if any(not items for items in scanned):
            raise ModelError(f"Scan {self.node.name!r} has no elements to scan")
        stacked = [
            np.moveaxis(_reversed(np.stack(items), down), 0, axis)
            for items, axis, down in zip(scanned, axes, back, strict=True)
        ]
        return [*states, *stacked]

    def _batched_scan(self, inputs: Sequence[Any], around: Mapping[str, Any]) -> list[Any]:
        """The first Scan: axis 0 of all is a batch, axis 1 is scanned, each to its length."""
        attrs, body = self.node.attrs, self._bodies["body"]
        lengths, *rest = inputs
        count = int(attrs["num_scan_inputs"])
        states, sequences = rest[: len(rest) - count], rest[len(rest) - count :]
        back = attrs.get("directions") or (0,) * count
        results: list[list[Any]] = []
        extent = sequences[0].shape[1]
        for item in range(len(sequences[0])):
            length = extent if lengths is None else int(lengths[item])
            lines = [_reversed(x[item, :length], d) for x, d in zip(sequences, back, strict=True)]
            found = self._scan_lines(body, [state[item] for state in states], lines, around)
            for index in range(len(states), len(found)):  # as long as the others, zeros behind
                missing = [(0, extent - length), *[(0, 0)] * (found[index].ndim - 1)]
                found[index] = np.pad(found[index], missing)
            results.append(found)
        return [np.stack(parts) for parts in zip(*results, strict=True)]


def _own(value: Any) -> Any:
    """A copy: the arena is used again."""
    return np.array(value) if isinstance(value, np.ndarray) else value


def _reversed(x: Array, down: int) -> Array:
    return x[::-1] if down else x


_OPERATORS: Mapping[str, Callable[[ControlNode, Sequence[Any], Mapping[str, Any]], list[Any]]] = {
    "If": ControlNode._branch,
    "Loop": ControlNode._loop,
    "Scan": ControlNode._scan,
}
CONTROL = frozenset(_OPERATORS)


def body_operators(node: Node) -> Iterator[str]:
    """The operators in the bodies of ``node``, and in the bodies inside of them."""

    def walk(graph: GraphProto) -> Iterator[str]:
        for inner in graph.node:
            yield f"{inner.domain}.{inner.op_type}" if inner.domain else inner.op_type
            for attribute in inner.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from walk(attribute.g)

    for value in node.attrs.values():
        if isinstance(value, GraphProto):
            yield from walk(value)
