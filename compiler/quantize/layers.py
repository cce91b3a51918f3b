"""Find the layers of a float graph that can become integer operators."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from accelc.compiler.geometry import explicit_pads
from accelc.compiler.graph import Array, Graph, Node
from accelc.compiler.passes.lower_table import ELEMENTWISE
from accelc.compiler.passes.quantized import MOVEMENT, pad_value
from accelc.compiler.quantize.prepare import per_channel
from accelc.compiler.rewrite import Scope

_FLOAT32 = np.dtype(np.float32)


class Kind(StrEnum):
    """What a layer does; decides when quantizing it pays."""

    #: Convolution or matrix product with constant weights: always.
    LINEAR = "linear"
    #: Matrix product of two activations: always.
    PRODUCT = "product"
    #: Where an operand is quantized already.
    ADD = "add"
    AVERAGE = "average"
    CONCAT = "concat"
    #: Elementwise function of one value, a table: between quantized layers.
    FUNCTION = "function"
    #: Data movement, in integers wherever one side is quantized.
    MOVEMENT = "movement"


@dataclass(frozen=True)
class Layer:
    """Nodes that become one quantized operator: ``reads``, then float inside, then ``outputs``.

    Members:
        name: of the node that counts: the convolution, not the Relu behind it.
        nodes: names of all nodes.
        reads: the values to quantize, constants of an addition included.
        weights, axis: constant weights and the axis of their output channels.
        bias: constant bias, ``(channels,)`` or broadcasting like it.
    """

    name: str
    kind: Kind
    root: Node
    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: str = ""
    axis: int = 0
    bias: str = ""


def find_layers(graph: Graph) -> tuple[Layer, ...]:
    """All layers of a prepared float graph, in topological order of their last node."""
    return _Finder(graph).layers()


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scope = Scope(graph)
        self.consumers = graph.consumers()
        self.taken: set[str] = set()
        #: By value: what it is an elementwise function of, and the node that computes it.
        self.functions: dict[str, tuple[str, Node]] = {}

    def layers(self) -> tuple[Layer, ...]:
        found: list[Layer] = []
        order = {node.name: index for index, node in enumerate(self.graph.nodes)}
        for node in self.graph.nodes:
            if node.name in self.taken:
                continue
            layer = self._layer(node)
            if layer is not None:
                self.taken.update(layer.nodes)
                found.append(layer)
        found += self._functions()
        return tuple(sorted(found, key=lambda layer: order[layer.nodes[-1]]))

    def _float(self, *values: str) -> bool:
        return all(value and self.scope.types[value].dtype == _FLOAT32 for value in values)

    def _layer(self, node: Node) -> Layer | None:
        if "captured" in node.attrs or not node.inputs or not self._float(node.input(0)):
            return None
        if any(-1 in self.scope.shape(value) for value in (*node.inputs, *node.outputs) if value):
            return None
        match node.op:
            case "Conv":
                return self._conv(node)
            case "Gemm":
                return self._gemm(node)
            case "MatMul":
                return self._matmul(node)
            case "AveragePool" | "GlobalAveragePool" | "ReduceMean":
                return self._average(node)
            case "Concat":
                return self._concat(node)
        if node.op in ELEMENTWISE and self._is_function(node):
            return None
        if node.op in ("Add", "Sub") and len(node.inputs) == 2:
            return self._add(node)
        if self._moves(node) and self.scope.constant(node.inputs[0]) is None:
            return Layer(
                node.name, Kind.MOVEMENT, node, (node.name,), (node.inputs[0],),
                tuple(o for o in node.outputs if o),
            )  # fmt: skip
        return None

    # ---- linear layers -------------------------------------------------------------------------

    def _conv(self, node: Node) -> Layer | None:
        weights = self._constant(node.inputs[1])
        if self.scope.constant(node.inputs[0]) is not None:
            return None
        spatial = self.scope.shape(node.inputs[0])[2:]
        if weights is None or len(spatial) not in (1, 2) or not self._bias_constant(node):
            return None
        if min(explicit_pads(node.attrs, spatial, weights.shape[2:]), default=0) < 0:
            return None
        return self._linear(node, node.inputs[1], 0, node.input(2))

    def _gemm(self, node: Node) -> Layer | None:
        attrs = node.attrs
        weights = self._constant(node.inputs[1])
        if self.scope.constant(node.inputs[0]) is not None:
            return None
        if weights is None or attrs.get("transA", 0) or attrs.get("alpha", 1.0) != 1.0:
            return None
        if node.input(2) and attrs.get("beta", 1.0) != 1.0:
            return None
        axis = 0 if attrs.get("transB", 0) else 1
        if node.input(2):
            bias = self._constant(node.inputs[2])
            if bias is None or per_channel(bias, 2, 1, weights.shape[axis]) is None:
                return None
        return self._linear(node, node.inputs[1], axis, node.input(2))

    def _matmul(self, node: Node) -> Layer | None:
        a, b = node.inputs[:2]
        if not self._float(a, b) or self.scope.constant(a) is not None:
            return None
        weights = self._constant(b)
        if weights is None:
            return self._layer_of(Kind.PRODUCT, node, (a, b))
        if weights.ndim != 2 or len(self.scope.shape(a)) < 2:
            return None
        return self._linear(node, b, 1, "")

    def _constant(self, value: str) -> Array | None:
        array = self.scope.constant(value)
        return array if array is not None and array.dtype == _FLOAT32 and array.size else None

    def _bias_constant(self, node: Node) -> bool:
        return not node.input(2) or self._constant(node.inputs[2]) is not None

    def _linear(self, node: Node, weights: str, axis: int, bias: str) -> Layer:
        tail = [node]
        if not bias and node.op == "MatMul" and (added := self._bias_behind(node, weights)):
            tail.append(added[0])
            bias = added[1]
        tail = self._with_clamps(tail)
        names = tuple(part.name for part in tail)
        return Layer(
            node.name, Kind.LINEAR, node, names, (node.inputs[0],), tail[-1].outputs, weights, axis,
            bias,
        )  # fmt: skip

    def _bias_behind(self, node: Node, weights: str) -> tuple[Node, str] | None:
        """The node that adds a constant per channel to the product, unseen, and the constant."""
        after = self._sole_reader(node.outputs[0])
        if after is None or after.op != "Add":
            return None
        for value, other in (after.inputs, after.inputs[::-1]):
            bias = self._constant(other)
            out = self.scope.shape(after.outputs[0])
            if value == node.outputs[0] and bias is not None and len(out) > 1:
                same = self.scope.shape(value) == out
                if same and per_channel(bias, len(out), -1, out[-1]) is not None:
                    return after, other
        return None

    # ---- what follows a layer ------------------------------------------------------------------

    def _sole_reader(self, value: str) -> Node | None:
        readers = self.consumers.get(value, [])
        return readers[0] if len(readers) == 1 and self.scope.sole_use(value) else None

    def _with_clamps(self, tail: list[Node]) -> list[Node]:
        """The nodes, and the clamps behind them that nobody else sees."""
        while (after := self._sole_reader(tail[-1].outputs[0])) is not None:
            if not self._clamps(after, tail[-1].outputs[0]):
                break
            tail.append(after)
        return tail

    def _clamps(self, node: Node, value: str) -> bool:
        if node.op == "Relu":
            return True
        if node.op == "Clip" and node.inputs[0] == value:
            bounds = [self.scope.constant(name) for name in node.inputs[1:3] if name]
            return all(bound is not None and bound.size == 1 for bound in bounds)
        if node.op in ("Max", "Min") and len(node.inputs) == 2 and node.inputs[0] == value:
            bound = self.scope.constant(node.inputs[1])
            return bound is not None and bound.size == 1
        return False

    def _layer_of(self, kind: Kind, node: Node, reads: tuple[str, ...]) -> Layer:
        tail = self._with_clamps([node]) if kind is not Kind.CONCAT else [node]
        names = tuple(part.name for part in tail)
        return Layer(node.name, kind, node, names, reads, tail[-1].outputs)

    # ---- sums, averages, joins -----------------------------------------------------------------

    def _add(self, node: Node) -> Layer | None:
        a, b = node.inputs
        out = self.scope.shape(node.outputs[0])
        if not self._float(a, b) or not out:
            return None
        shapes = [self.scope.shape(value) for value in (a, b)]
        constants = [self.scope.constant(value) for value in (a, b)]
        if constants[0] is not None and constants[1] is not None:
            return None
        for shape, constant in zip(shapes, constants, strict=True):
            axis = 1 if len(out) == 4 else len(out) - 1
            if shape != out and (
                constant is None or per_channel(constant, len(out), axis, out[axis]) is None
            ):
                return None
        if constants[0] is not None and (node.op == "Sub" or shapes[0] != out):
            return None
        return self._layer_of(Kind.ADD, node, (a, b))

    def _average(self, node: Node) -> Layer | None:
        shape = self.scope.shape(node.inputs[0])
        if len(shape) not in (3, 4) or self.scope.constant(node.inputs[0]) is not None:
            return None
        if node.op == "ReduceMean":
            axes = node.attrs.get("axes")
            if node.input(1):
                array = self.scope.constant(node.inputs[1])
                axes = None if array is None else array.reshape(-1).tolist()
            found = sorted(int(axis) % len(shape) for axis in axes or ())
            if found != list(range(2, len(shape))) and not (len(shape) == 4 and found == [1, 2]):
                return None
        if node.op == "AveragePool":
            pads = explicit_pads(node.attrs, shape[2:], tuple(node.attrs["kernel_shape"]))
            if any(pads) and not node.attrs.get("count_include_pad", 0):
                return None  # the divisor differs at the border
            if node.attrs.get("ceil_mode", 0):
                return None
        return self._layer_of(Kind.AVERAGE, node, (node.inputs[0],))

    def _concat(self, node: Node) -> Layer | None:
        out = self.scope.shape(node.outputs[0])
        axis = node.attrs["axis"] % max(len(out), 1)
        constant = any(self.scope.constant(value) is not None for value in node.inputs)
        joins = (
            (len(out) == 4 and axis != 0)
            or (len(out) > 1 and axis == len(out) - 1)
            or (len(out) == 3 and axis == 1)
        )
        if not joins or constant or not self._float(*node.inputs):
            return None
        return self._layer_of(Kind.CONCAT, node, node.inputs)

    def _moves(self, node: Node) -> bool:
        if node.op not in MOVEMENT or not self._float(*(o for o in node.outputs if o)):
            return False
        if node.op in ("Resize", "Upsample") and node.attrs.get("mode", "nearest") != "nearest":
            return False
        if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            return False
        if node.op == "MaxPool" and len(node.outputs) > 1:
            return False
        if node.op == "Pad" and node.attrs.get("mode", "constant") == "constant":
            return pad_value(node, self.scope) == 0
        return True

    # ---- functions of one value ----------------------------------------------------------------

    def _is_function(self, node: Node) -> bool:
        """Note ``node`` if it is a function of one value; its constants must be scalars."""
        sources: set[str] = set()
        for value in node.inputs:
            constant = self.scope.constant(value) if value else None
            if value and constant is None:
                sources.add(self._source(value))
            elif constant is not None and constant.size != 1:
                return False
        if len(sources) != 1 or len(node.outputs) != 1:
            return False
        (source,) = sources
        out = node.outputs[0]
        if self.scope.shape(source) != self.scope.shape(out) or not self._float(source, out):
            return False
        self.functions[out] = (source, node)
        return True

    def _source(self, value: str) -> str:
        """What ``value`` is a function of; itself where others than functions read it too."""
        if value not in self.functions or value in self.graph.outputs:
            return value
        elementwise = all(reader.op in ELEMENTWISE for reader in self.consumers[value])
        return self.functions[value][0] if elementwise else value

    def _functions(self) -> list[Layer]:
        """One layer for every function whose value leaves the elementwise nodes."""
        found: list[Layer] = []
        for out, (source, node) in self.functions.items():
            inner = [
                reader
                for reader in self.consumers.get(out, [])
                if self.functions.get(reader.outputs[0], ("",))[0] == source
            ]
            if len(inner) == len(self.consumers.get(out, [])) and out not in self.graph.outputs:
                continue  # only a step on the way to another function's value
            parts = self._between(source, node)
            found.append(Layer(node.name, Kind.FUNCTION, node, parts, (source,), node.outputs))
        return found

    def _between(self, source: str, last: Node) -> tuple[str, ...]:
        """Names of the nodes from ``source`` to ``last``, which comes last."""
        names: dict[str, None] = {}
        pending = [last]
        while pending:
            node = pending.pop()
            if node.name in names:
                continue
            names[node.name] = None
            pending += [
                self.functions[value][1]
                for value in node.inputs
                if value != source and value in self.functions
            ]
        return tuple(names)[::-1]
