"""Types of the values of a network, node by node, from the types of its inputs."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TypeProto, helper

from accelc.compiler import contrib
from accelc.compiler.contrib import CONTRIB
from accelc.compiler.geometry import pool_output
from accelc.compiler.graph import Array, Graph, Node, TensorType
from accelc.compiler.onnx_check import check_node, check_operands
from accelc.compiler.onnx_node import (
    REFUSALS,
    UNKNOWN,
    elem_type,
    infer,
    opsets,
    run,
    tensor_array,
    tensor_type,
    to_proto,
)
from accelc.compiler.onnx_skeleton import SHAPE_CONSTANT_ELEMS
from accelc.isa.errors import ModelError

#: Operators whose results may be large whatever their inputs are: they stay computations.
_LARGE = ("ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "EyeLike")
#: Operators whose results are no arrays, or differ from run to run.
_NO_VALUE = ("Random", "Bernoulli", "Multinomial", "Sequence", "Optional")


class Inference:
    """The types of a network's values so far.

    Members:
        types: of every value seen, by name.
        known: values of small constants and of shape computations, for the shapes that follow.
        corrected: whether a shape differs from what onnx infers for the model as a whole.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.types: dict[str, TensorType] = {}
        self.known: dict[str, Array] = {}
        self.corrected = False

    def constant(self, name: str, array: Array) -> None:
        self.types[name] = TensorType(array.shape, array.dtype)
        if array.size <= SHAPE_CONSTANT_ELEMS:
            self.known[name] = array

    def add(
        self,
        node: Node,
        guesses: Sequence[TensorType | None],
        declared: Callable[[str], TensorType | None],
    ) -> None:
        """Type the outputs of ``node``, whose inputs are typed.

        ``guesses`` holds for each output; ``declared`` says what the model states of a value that
        cannot be inferred.

        Raises:
            ModelError: operands that do not belong together.
        """
        outputs = [name for name in node.outputs if name]
        check_operands(node, self.types)
        if node.op in ("Shape", "Size") and -1 not in (shape := self.types[node.inputs[0]].shape):
            # an array of the right shape without its memory
            stand_in = np.broadcast_to(np.zeros((), np.int8), shape)
            self.known[outputs[0]] = run(node, [stand_in], self.opset)[0]
        elif all(not name or name in self.known for name in node.inputs) and node.inputs:
            self._evaluate(node)
        if all(name in self.known for name in outputs):
            for name in outputs:
                self.types[name] = TensorType(self.known[name].shape, self.known[name].dtype)
            check_node(node, self.types)
            return
        for name, found in zip(node.outputs, self._inferred(node, guesses), strict=True):
            if name and not is_static(found):
                stated = declared(name)
                found = stated if is_static(stated) else found or stated or UNKNOWN
            if name and found is not None:
                self.types[name] = found
        check_node(node, self.types)

    def _inferred(
        self, node: Node, guesses: Sequence[TensorType | None]
    ) -> list[TensorType | None]:
        if node.op in CONTRIB:
            return contrib.infer(node, self.types)
        if node.op == "Range" and all(name in self.known for name in node.inputs):
            return [self._range(node)]
        types = list(guesses)
        if node.op == "Slice" and not all(is_static(found) for found in types):
            shape = self.types[node.inputs[0]].shape
            if 0 in shape and not _steps_forward(node.input(4), self.known):
                return [TensorType((-1,) * len(shape), self.types[node.inputs[0]].dtype)]
        if not all(is_static(found) for found in types):
            types = _with_bodies(node, self.types, self.opset) or types
        if self.corrected or not all(is_static(found) for found in types):
            types = infer(node, self.types, self.known, self.opset, types)
        return self._correct(node, types)

    def _range(self, node: Node) -> TensorType:
        """The type of a Range of known numbers; onnx insists on scalars, and not on every type."""
        for name in node.inputs:
            if self.known[name].size != 1:
                shape = list(self.known[name].shape)
                raise ModelError(f"Range {node.name!r}: {name!r} is {shape}, not one number")
        first, last, step = (float(self.known[n].reshape(-1)[0]) for n in node.inputs)
        if step == 0:
            raise ModelError(f"Range {node.name!r}: its step is 0")
        count = max(0, math.ceil((last - first) / step))
        return TensorType((count,), self.types[node.inputs[0]].dtype)

    def _correct(self, node: Node, types: list[TensorType | None]) -> list[TensorType | None]:
        """Undo what older operator sets infer for ``ceil_mode``: windows wholly in the padding.

        No runtime computes them, and onnx itself does not count them from opset 22 on. Whatever
        follows then has to be inferred anew.
        """
        if node.op not in ("MaxPool", "AveragePool", "LpPool") or not node.attrs.get("ceil_mode"):
            return types
        shape = self.types[node.inputs[0]].shape
        if types[0] is None or -1 in shape:
            return types
        wanted = (*shape[:2], *pool_output(node.attrs, shape[2:]))
        if all(found is None or found.shape == wanted for found in types):
            return types
        self.corrected = True
        return [None if found is None else TensorType(wanted, found.dtype) for found in types]

    def _evaluate(self, node: Node) -> None:
        if node.op in CONTRIB or "captured" in node.attrs or node.op in _LARGE:
            return
        if node.op.startswith(_NO_VALUE):
            return
        arrays = [self.known[name] if name else None for name in node.inputs]
        try:
            results = run(node, arrays, self.opset)
        except ModelError:
            return
        for name, value in zip(node.outputs, results, strict=False):
            if name and isinstance(value, np.ndarray) and value.size <= SHAPE_CONSTANT_ELEMS:
                self.known[name] = value


def _steps_forward(steps: str, known: Mapping[str, Array]) -> bool:
    """Whether a Slice with these steps never goes from the end to the beginning."""
    return not steps or steps in known and bool((known[steps] > 0).all())


def may_step_back(graph: onnx.GraphProto, known: Mapping[str, Array]) -> bool:
    """Whether a Slice somewhere in ``graph`` may have a negative step.

    Raises:
        ModelError: a constant that might be one is malformed.
    """
    known = dict(known)
    for tensor in graph.initializer:
        inside = tensor.data_location != onnx.TensorProto.EXTERNAL
        if tensor.name not in known and inside and tensor.ByteSize() < SHAPE_CONSTANT_ELEMS:
            known[tensor.name] = tensor_array(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and node.output and node.attribute:
            value = node.attribute[0]
            if value.name == "value" and value.t.ByteSize() < SHAPE_CONSTANT_ELEMS:
                known[node.output[0]] = tensor_array(value.t)
        if node.op_type == "Slice" and len(node.input) > 4:
            if not _steps_forward(node.input[4], known):
                return True
        for attribute in node.attribute:
            bodies = (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ()
            if any(may_step_back(body, known) for body in bodies):
                return True
    return False


def is_static(found: TensorType | None) -> bool:
    return found is not None and -1 not in found.shape


def specialize(graph: Graph, inputs: Mapping[str, TensorType]) -> Graph:
    """``graph`` with the types ``inputs`` at its inputs, and what follows from them inside.

    Shapes that depend on data stay open.

    Raises:
        ModelError: shapes that do not go together, or that a node of the network refuses.
    """
    inference = Inference(graph.opset)
    for name, array in graph.constants.items():
        inference.constant(name, array)
    inference.types.update(inputs)
    for node in graph.nodes:
        old = [graph.types.get(name) if name else None for name in node.outputs]
        guesses = [found if is_static(found) else None for found in old]
        # a shape that was open is inferred afresh; what was fixed stays as the model states it
        inference.add(node, guesses, graph.types.get)
    types = {
        name: _same_meaning(found, graph.types.get(name)) for name, found in inference.types.items()
    }
    return graph.with_(types=types, symbols={})


def _same_meaning(found: TensorType, before: TensorType | None) -> TensorType:
    if before is None or before.quant is None:
        return found
    return TensorType(found.shape, found.dtype, before.quant)


def _with_bodies(
    node: Node, types: Mapping[str, TensorType], opset: int
) -> list[TensorType | None] | None:
    """Types of the outputs of If, Loop or Scan: onnx infers them for a whole model only."""
    bodies = [value for value in node.attrs.values() if isinstance(value, onnx.GraphProto)]
    if not bodies or any(may_step_back(body, {}) for body in bodies):
        return None
    given = []
    for name in dict.fromkeys(name for name in node.inputs if name):
        found = types[name]
        if found.dtype == np.dtype(object):
            return None
        shape = [None if extent < 0 else extent for extent in found.shape]
        given.append(helper.make_tensor_value_info(name, elem_type(found.dtype), shape))
    results = [helper.make_value_info(name, TypeProto()) for name in node.outputs if name]
    model = helper.make_model(
        helper.make_graph([to_proto(node)], "node", given, results), opset_imports=opsets(opset)
    )
    try:
        # without data propagation, for which a vector is as many dimensions as it has elements
        inferred = onnx.shape_inference.infer_shapes(model)
    except REFUSALS:
        return None
    found = {value.name: tensor_type(value.type) for value in inferred.graph.output}
    return [found.get(name) if name else None for name in node.outputs]
