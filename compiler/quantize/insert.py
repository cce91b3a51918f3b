"""Put QuantizeLinear and DequantizeLinear into a float graph."""

from collections.abc import Mapping

import numpy as np

from accelc.compiler.check import check
from accelc.compiler.graph import Array, Graph, Node, Quant, TensorType
from accelc.compiler.quantize.layers import Kind, Layer
from accelc.compiler.quantize.parameters import (
    Affine,
    Weights,
    affine,
    balanced,
    quantize_weights,
)
from accelc.compiler.quantize.plan import Plan
from accelc.compiler.rewrite import prune


def insert(
    graph: Graph,
    plan: Plan,
    ranges: Mapping[str, tuple[float, float]],
    corrections: Mapping[str, Array] | None = None,
) -> Graph:
    """The QDQ form of ``graph``.

    ``x -> Conv(w) -> Relu -> y`` becomes ``x -> Quantize -> Dequantize -> Conv(Dequantize(w')) ->
    Relu -> Quantize -> Dequantize -> y``.

    Args:
        ranges: what each value that is its own ``plan.source`` is to cover.
        corrections: by layer, what is added to its bias, ``(channels,)``.
    """
    return _Inserter(graph, plan, ranges, corrections or {}).graph()


def value_parameters(
    graph: Graph, plan: Plan, ranges: Mapping[str, tuple[float, float]]
) -> dict[str, Affine]:
    """Scale and zero point of every quantized value; values with one source share them."""
    found: dict[str, Affine] = {}
    factors = {
        plan.source[value]
        for layer in plan.quantized
        if layer.kind is Kind.PRODUCT
        for value in layer.reads
    }
    for value in plan.values:
        constant = graph.constants.get(value)
        if constant is not None:
            covered = float(constant.min()), float(constant.max())
        else:
            covered = ranges[plan.source[value]]
        found[value] = affine(*(balanced(*covered) if plan.source[value] in factors else covered))
    return found


def layer_weights(
    graph: Graph, layer: Layer, x: Affine, correction: Array | None = None
) -> Weights:
    """Integer weights and bias of a linear layer whose operand has the parameters ``x``."""
    weights = graph.constants[layer.weights]
    channels = weights.shape[layer.axis]
    bias = None
    if layer.bias:
        bias = np.broadcast_to(graph.constants[layer.bias].reshape(-1), (channels,))
    if correction is not None:
        bias = correction if bias is None else bias + correction
    return quantize_weights(weights, layer.axis, x.scale, bias)


def dequantized_names(graph: Graph, plan: Plan) -> dict[str, str]:
    """By quantized value, the name of what its readers read.

    Outputs and what the bodies of control flow know by name keep their own.
    """
    fixed = {*graph.outputs}
    for node in graph.nodes:
        fixed.update(node.attrs.get("captured", ()))
    produced = plan.produced
    return {
        value: value if value in fixed and value in produced else f"{value}_dequantized"
        for value in plan.values
    }


class _Inserter:
    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        ranges: Mapping[str, tuple[float, float]],
        corrections: Mapping[str, Array],
    ) -> None:
        self.old = graph
        self.plan = plan
        self.parameters = value_parameters(graph, plan, ranges)
        self.corrections = corrections
        self.produced = plan.produced
        self.dequantized = dequantized_names(graph, plan)
        self.types = dict(graph.types)
        self.constants = dict(graph.constants)
        self.nodes: list[Node] = []
        self.names = {node.name for node in graph.nodes}
        #: Layer of every node that belongs to a quantized one.
        self.layer = {name: layer for layer in plan.quantized for name in layer.nodes}
        #: The constants that hold scale and zero point of a source.
        self.shared: dict[str, tuple[str, str]] = {}

    def graph(self) -> Graph:
        for value in self.old.inputs:
            self._quantize(value)
        for value in self.plan.values:
            if value in self.old.constants:
                self._constant_operand(value)
        for node in self.old.nodes:
            self._node(node)
        result = self.old.with_(nodes=tuple(self.nodes), types=self.types, constants=self.constants)
        return check(prune(result))

    # ---- names ---------------------------------------------------------------------------------

    def _fresh(self, hint: str) -> str:
        name, count = hint, 1
        while name in self.types:
            count += 1
            name = f"{hint}_{count}"
        return name

    def _constant(self, hint: str, array: Array) -> str:
        name = self._fresh(hint)
        self.constants[name] = array
        self.types[name] = TensorType(array.shape, array.dtype)
        return name

    def _value(self, hint: str, like: str, dtype: type, quant: Quant | None = None) -> str:
        name = self._fresh(hint)
        self.types[name] = TensorType(self.types[like].shape, np.dtype(dtype), quant)
        return name

    def _emit(self, op: str, name: str, inputs: tuple[str, ...], output: str, **attrs: int) -> None:
        unique, count = name, 1
        while unique in self.names:
            count += 1
            unique = f"{name}_{count}"
        self.names.add(unique)
        self.nodes.append(Node(op, unique, inputs, (output,), attrs))

    # ---- activations ---------------------------------------------------------------------------

    def _pair(self, value: str) -> tuple[str, str]:
        """The constants with scale and zero point of ``value``."""
        source = value if value in self.constants else self.plan.source[value]
        if source not in self.shared:
            found = self.parameters[value]
            self.shared[source] = (
                self._constant(f"{source}_scale", np.array(found.scale, np.float32)),
                self._constant(f"{source}_zero_point", np.array(found.zero, np.int8)),
            )
        return self.shared[source]

    def _quant(self, value: str) -> Quant:
        found = self.parameters[value]
        return Quant(np.array(found.scale, np.float32), np.array(found.zero, np.int8))

    def _quantize(self, value: str, raw: str | None = None) -> None:
        """Quantize what has just been computed, if anyone reads it quantized."""
        if value not in self.parameters:
            return
        pair = self._pair(value)
        quant = self._quant(value)
        integers = self._value(f"{value}_quantized", value, np.int8, quant)
        self._emit("QuantizeLinear", f"{value}/quantize", (raw or value, *pair), integers)
        self._dequantize(value, integers, pair)

    def _dequantize(self, value: str, integers: str, pair: tuple[str, str]) -> None:
        out = self.dequantized[value]
        if out != value:
            self.types[out] = TensorType(self.types[value].shape, np.dtype(np.float32))
        self._emit("DequantizeLinear", f"{value}/dequantize", (integers, *pair), out)

    def _constant_operand(self, value: str) -> None:
        integers = self._constant(
            f"{value}_quantized", self.parameters[value].quantize(self.constants[value])
        )
        self.types[integers] = TensorType(
            self.constants[integers].shape, np.dtype(np.int8), self._quant(value)
        )
        self._dequantize(value, integers, self._pair(value))

    # ---- nodes ---------------------------------------------------------------------------------

    def _node(self, node: Node) -> None:
        layer = self.layer.get(node.name)
        inputs = [self._read(value, layer) for value in node.inputs]
        if layer is not None and layer.kind is Kind.LINEAR and layer.root.name == node.name:
            self._linear(layer, inputs)
        elif layer is not None and layer.bias and layer.bias in node.inputs:
            inputs[node.inputs.index(layer.bias)] = self._bias(layer, self._weights(layer))
        renamed = {
            value: self._raw(value)
            for value in node.outputs
            if self.dequantized.get(value) == value
        }
        outputs = tuple(renamed.get(value, value) for value in node.outputs)
        self.nodes.append(node.with_(inputs=tuple(inputs), outputs=outputs))
        for value in node.outputs:
            self._quantize(value, renamed.get(value))

    def _read(self, value: str, layer: Layer | None) -> str:
        reads_integers = layer is not None and value in layer.reads
        if value in self.parameters and (value in self.produced or reads_integers):
            return self.dequantized[value]
        return value

    def _raw(self, value: str) -> str:
        """The name of a value before it is quantized, where its own is for the result."""
        return self._value(f"{value}_float", value, np.float32)

    # ---- weights -------------------------------------------------------------------------------

    def _weights(self, layer: Layer) -> Weights:
        x = self.parameters[layer.reads[0]]
        return layer_weights(self.old, layer, x, self.corrections.get(layer.name))

    def _linear(self, layer: Layer, inputs: list[str]) -> None:
        """Replace weights and bias of a layer's root by dequantized integers."""
        found = self._weights(layer)
        quant = Quant(found.scale, np.zeros(found.scale.shape, np.int8), layer.axis)
        inputs[1] = self._parameter(
            f"{layer.name}/weights", found.integers, found.scale, quant, layer.axis
        )
        if found.bias is not None and layer.root.op != "MatMul":
            bias = self._bias(layer, found)
            inputs[2:3] = [bias]

    def _bias(self, layer: Layer, found: Weights) -> str:
        assert found.bias is not None
        quant = Quant(found.bias_scale, np.zeros(found.bias_scale.shape, np.int32), 0)
        return self._parameter(f"{layer.name}/bias", found.bias, found.bias_scale, quant, 0)

    def _parameter(self, hint: str, integers: Array, scale: Array, quant: Quant, axis: int) -> str:
        stored = self._constant(f"{hint}_quantized", integers)
        self.types[stored] = TensorType(integers.shape, integers.dtype, quant)
        names = (
            stored,
            self._constant(f"{hint}_scale", scale),
            self._constant(f"{hint}_zero_point", quant.zero_point),
        )
        out = self._value(f"{hint}_dequantized", stored, np.float32)
        self._emit("DequantizeLinear", f"{hint}/dequantize", names, out, axis=axis)
        return out
