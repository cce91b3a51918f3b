"""Nodes that are compiled when they run: shapes, or what they follow from, were not known."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from accelc.compiler.cpu.bodies import type_of
from accelc.compiler.cpu.fallback import ReferenceNode
from accelc.compiler.graph import Array, Graph, Node, TensorType
from accelc.compiler.onnx_infer import Inference
from accelc.isa.errors import AccelcError

#: Forms of a node kept; a node that needs more than ``MAX_FORMS`` runs through the reference.
MAX_FORMS = 32

#: Inputs whose values the code of an operator is made for, not only their shapes.
STRUCTURAL: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (2,),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{
        f"Reduce{name}": (1,)
        for name in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
    },
}


class Runner(Protocol):
    """A compiled graph."""

    @property
    def reference_operators(self) -> tuple[str, ...]: ...

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Any]: ...


def structural(node: Node, known: Callable[[str], Array | None]) -> bool:
    """Whether the node's code needs the value of an input that is not known."""
    positions = STRUCTURAL.get(node.op, ())
    names = [node.inputs[p] for p in positions if p < len(node.inputs)]
    return any(name and known(name) is None for name in names)


class SpecializedNode:
    """One node, compiled for the shapes and structural values it meets."""

    def __init__(self, node: Node, opset: int, compile_graph: Callable[[Graph], Runner]) -> None:
        self.node = node
        self._reference = ReferenceNode(node, opset)
        self._opset = opset
        self._compile = compile_graph
        self._forms: OrderedDict[Hashable, tuple[Runner, Graph] | None] = OrderedDict()
        self._used_reference = False

    @property
    def reference_operators(self) -> frozenset[str]:
        """Operators that so far ran through ``onnx.reference``."""
        found = {op for form in self._forms.values() if form for op in form[0].reference_operators}
        return frozenset(found | ({self.node.op} if self._used_reference else set()))

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """The outputs that have a name, in order."""
        form = self._form(values)
        if form is None:
            self._used_reference = True
            return self._reference.run(values)
        runner, graph = form
        results = runner.run({name: values[name] for name in graph.inputs})
        return [results[name] for name in self.node.outputs if name]

    def _form(self, values: Mapping[str, Any]) -> tuple[Runner, Graph] | None:
        fixed = self._fixed(values)
        key = (
            tuple(_signature(values[n]) for n in self.node.inputs if n),
            tuple((name, array.tobytes()) for name, array in fixed.items()),
        )
        if key not in self._forms:
            if len(self._forms) >= MAX_FORMS:
                return None
            self._forms[key] = self._compiled(values, fixed)
        return self._forms[key]

    def _fixed(self, values: Mapping[str, Any]) -> dict[str, Array]:
        positions = STRUCTURAL.get(self.node.op, ())
        names = [self.node.inputs[p] for p in positions if p < len(self.node.inputs)]
        return {n: np.array(values[n]) for n in names if n and isinstance(values[n], np.ndarray)}

    def _compiled(
        self, values: Mapping[str, Any], fixed: Mapping[str, Array]
    ) -> tuple[Runner, Graph] | None:
        node = self.node
        inference = Inference(self._opset)
        for name in dict.fromkeys(name for name in node.inputs if name):
            inference.types[name] = type_of(values[name])
        for name, array in fixed.items():
            inference.constant(name, array)
        nothing: Sequence[TensorType | None] = [None] * len(node.outputs)
        try:
            inference.add(node, nothing, lambda name: None)
            types = inference.types
            if any(-1 in types[name].shape for name in (*node.inputs, *node.outputs) if name):
                return None
            inputs = tuple(n for n in dict.fromkeys(node.inputs) if n and n not in fixed)
            outputs = tuple(name for name in node.outputs if name)
            graph = Graph(node.name, (node,), types, dict(fixed), inputs, outputs, self._opset)
            runner = self._compile(graph)
            # what onnx infers of a node without kernel need not be what its reference computes
            return None if node.op in runner.reference_operators else (runner, graph)
        except AccelcError:
            return None  # the reference says what is wrong, if anything is


def _signature(value: Any) -> Hashable:
    return (value.dtype.str, value.dtype.name, value.shape) if isinstance(value, np.ndarray) else ""
