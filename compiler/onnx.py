"""ONNX to ``Graph``: the ``onnx*`` modules are all that knows protobuf.

Reads a file or ``ModelProto``, checks it, fixes every symbolic dimension, types every value.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

from accelc.compiler import contrib
from accelc.compiler.contrib import CONTRIB
from accelc.compiler.graph import Array, Graph, Node, Quant, TensorType
from accelc.compiler.onnx_check import check_attributes
from accelc.compiler.onnx_file import one_line, open_model, require_text, tensors
from accelc.compiler.onnx_infer import Inference, may_step_back
from accelc.compiler.onnx_node import (
    OPAQUE,
    REFUSALS,
    UNKNOWN,
    operator_known,
    tensor_array,
    tensor_type,
)
from accelc.compiler.onnx_skeleton import Skeleton, skeleton, without_weights
from accelc.compiler.onnx_weights import Weights
from accelc.isa.errors import ModelError, UnsupportedOpError

#: Oldest operator set read as it is; older ones gave attributes other meanings.
OLDEST_OPSET = 7
#: Nodes an error names for each operator that is missing.
LISTED_NODES = 8


def import_model(
    model: str | Path | ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    dynamic: bool = False,
    checked: bool = False,
) -> Graph:
    """Read an ONNX model as a ``Graph``.

    ``dims`` gives symbolic dimensions their size, by name or as ``INPUT.AXIS``. A symbolic first
    dimension (the batch) that is not named there becomes 1, and ``Graph.notes`` says so. With
    ``dynamic`` every dimension without a size stays open instead: it is -1, as are those that
    depend on data, and ``Graph.symbols`` has its name. ``checked`` models, parts of one that was
    imported, are not checked by onnx again.

    Raises:
        ModelError: unreadable, malformed or inconsistent file, missing or outlying external data,
            a symbolic dimension without a size.
        UnsupportedOpError: operators nobody can run, all of them listed with their nodes.
    """
    weights: Weights | None = None
    if not isinstance(model, ModelProto):
        proto, weights = open_model(Path(model))
    else:
        proto = model
        if any(tensor.data_location == TensorProto.EXTERNAL for tensor in tensors(proto.graph)):
            raise ModelError("the weights are in external files; give the model's path instead")
    require_text(proto)
    for part in (proto.graph, *proto.functions):
        check_attributes(part.node)
    proto, opset = _modernized(_inlined(proto), _opset(proto))
    _require_known_operators(proto, opset)
    if not checked:
        _check(proto)
    return _Importer(proto, skeleton(proto, dims or {}, dynamic), opset, weights).graph()


def _opset(proto: ModelProto) -> int:
    version = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if version == 0 and any(node.domain in ("", "ai.onnx") for node in proto.graph.node):
        raise ModelError("the model does not say which operator set (opset) it uses")
    newest = onnx.defs.onnx_opset_version()
    if version > newest:
        raise ModelError(
            f"the model uses opset {version}, the installed onnx knows up to {newest}; update onnx"
        )
    return version or newest


def _modernized(proto: ModelProto, opset: int) -> tuple[ModelProto, int]:
    """A model of the oldest operator sets, converted to the first one that is read as it is."""
    if opset >= OLDEST_OPSET:
        return proto, opset
    try:
        return onnx.version_converter.convert_version(proto, OLDEST_OPSET), OLDEST_OPSET
    except REFUSALS as error:
        raise ModelError(
            f"the model uses opset {opset} and cannot be converted to opset {OLDEST_OPSET}:"
            f" {one_line(error)}"
        ) from None


def _inlined(proto: ModelProto) -> ModelProto:
    """Replace calls of the model's own functions by their bodies."""
    if not proto.functions:
        return proto
    from onnx import inliner

    return inliner.inline_local_functions(proto)


def operator_name(node: NodeProto) -> str:
    """``Conv`` for the default domain, else ``domain.Conv``."""
    domain = "" if node.domain in ("", "ai.onnx") else node.domain
    if domain == "com.microsoft" and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return node.op_type
    return f"{domain}.{node.op_type}" if domain else node.op_type


def _require_known_operators(proto: ModelProto, opset: int) -> None:
    versions = {o.domain: o.version for o in proto.opset_import}
    unknown: dict[str, list[str]] = {}
    for index, node in enumerate(proto.graph.node):
        op = operator_name(node)
        if op in CONTRIB or "." not in op and operator_known("", op, opset):
            continue
        if "." in op and operator_known(node.domain, node.op_type, versions.get(node.domain, 1)):
            continue
        unknown.setdefault(op, []).append(
            node.name or (node.output[0] if node.output else f"#{index}")
        )
    if unknown:
        listed = "; ".join(f"{op} ({_some(names)})" for op, names in sorted(unknown.items()))
        raise UnsupportedOpError(f"operators without an implementation: {listed}")


def _some(names: list[str]) -> str:
    more = len(names) - LISTED_NODES
    return ", ".join(names[:LISTED_NODES]) + (f" and {more} more" if more > 0 else "")


def _check(proto: ModelProto) -> None:
    for value in proto.graph.input:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            raise ModelError(f"input {value.name!r} has no shape")
    checked = without_weights(proto)
    for value in checked.graph.output:
        # a shape the exporter left out is inferred later; the checker insists on one
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(checked)
    except REFUSALS as error:
        raise ModelError(f"the model is malformed: {one_line(error)}") from None


class _Importer:
    """Collects the parts of a ``Graph`` from one checked model with static inputs."""

    def __init__(
        self, proto: ModelProto, skeleton: Skeleton, opset: int, weights: Weights | None
    ) -> None:
        self.proto = proto
        self.weights = weights
        self.skeleton = skeleton
        self.opset = opset
        self.inference = Inference(opset)
        self.types = self.inference.types
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []
        #: How often a name was wanted for a node.
        self.names: dict[str, int] = {}

    def graph(self) -> Graph:
        graph = self.proto.graph
        for tensor in graph.initializer:
            self._constant(tensor.name, self._initializer(tensor))
        if graph.sparse_initializer:
            raise ModelError("sparse initializers are not supported; store the weights densely")
        inputs = [v for v in self.skeleton.proto.graph.input if v.name not in self.constants]
        for value in inputs:
            self.types[value.name] = tensor_type(value.type) or UNKNOWN
        inferred = self._whole_model_types()
        for node in graph.node:
            self._node(node, inferred)
        outputs = tuple(value.name for value in graph.output)
        if unknown := [name for name in outputs if name not in self.types]:
            raise ModelError(f"outputs {unknown} are computed by no node")
        result = Graph(
            name=graph.name or "graph",
            nodes=tuple(self.nodes),
            types=self.types,
            constants=self.constants,
            inputs=tuple(value.name for value in inputs),
            outputs=outputs,
            opset=self.opset,
            notes=self.skeleton.notes,
            symbols=self.skeleton.symbols,
        )
        return _with_quantization(result)

    def _initializer(self, tensor: TensorProto) -> Array:
        if self.weights is not None and tensor.data_location == TensorProto.EXTERNAL:
            return self.weights.array(tensor)
        return tensor_array(tensor)

    def _constant(self, name: str, array: Array) -> None:
        self.constants[name] = array
        self.inference.constant(name, array)

    def _whole_model_types(self) -> dict[str, onnx.TypeProto]:
        """What onnx infers for the model as a whole, including If, Loop and Scan."""
        graph = self.proto.graph
        if any(node.op_type == "Slice" for node in graph.node) or may_step_back(
            graph, self.inference.known
        ):
            # onnx's inference does not survive impossible sizes there; node by node they are found
            return {}
        try:
            # without data propagation, which fills tensors of any size a model asks for
            inferred = onnx.shape_inference.infer_shapes(self.skeleton.proto, check_type=True)
        except REFUSALS as error:
            raise ModelError(f"the model's types are inconsistent: {one_line(error)}") from None
        return {v.name: v.type for v in (*inferred.graph.value_info, *inferred.graph.output)}

    def _name(self, node: NodeProto) -> str:
        wanted = node.name or next((o for o in node.output if o), node.op_type)
        name, count = wanted, self.names.get(wanted, 0) + 1
        while name in self.names:
            count += 1
            name = f"{wanted}_{count}"
        self.names[wanted] = count
        self.names.setdefault(name, 1)
        return name

    def _declared(self, name: str) -> TensorType | None:
        """What the model states of a value, as far as it cannot depend on open dimensions."""
        found = tensor_type(self.skeleton.declared.get(name))
        if found is None or found == OPAQUE:
            return found
        if self.skeleton.symbols:  # what is fixed here may only be fixed for the exporter's input
            return TensorType((-1,) * len(found.shape), found.dtype)
        return None if -1 in found.shape else found

    def _node(self, proto: NodeProto, inferred: dict[str, onnx.TypeProto]) -> None:
        if operator_name(proto) == "Constant":
            self._constant(proto.output[0], _constant_value(proto))
            return
        attrs = {a.name: _attribute(a) for a in proto.attribute}
        inputs = tuple(proto.input)
        if captured := _captured(proto):
            # Values a subgraph uses from outside follow the declared inputs, so that liveness sees
            # them; ``captured`` holds the names the body knows them by.
            attrs["captured"] = captured
            inputs += captured
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        node = Node(operator_name(proto), self._name(proto), inputs, tuple(proto.output), attrs)
        for name in inputs:
            if name and name not in self.types:
                raise ModelError(
                    f"node {node.name!r} uses {name!r}, which nothing before it computes"
                )
        guesses = [tensor_type(inferred.get(name)) for name in node.outputs]
        self.inference.add(node, guesses, self._declared)
        self.nodes.append(node)


def _constant_value(proto: NodeProto) -> Array:
    if not proto.attribute:
        raise ModelError(f"constant {proto.output[0]!r} has no value")
    attribute = proto.attribute[0]
    value = _attribute(attribute)
    match attribute.name:
        case "value":
            return value
        case "value_float" | "value_floats":
            return np.array(value, np.float32)
        case "value_int" | "value_ints":
            return np.array(value, np.int64)
        case "value_string" | "value_strings":
            return np.array(value, object)
    raise ModelError(f"constant {proto.output[0]!r} is sparse, which is not supported")


def _attribute(attribute: AttributeProto) -> Any:
    """The attribute as Python value: tensors become arrays, strings str, lists tuples."""
    if attribute.ref_attr_name:
        raise ModelError(f"attribute {attribute.name!r} refers to a function's parameter")
    value = onnx.helper.get_attribute_value(attribute)
    match attribute.type:
        case AttributeProto.STRING:
            return value.decode("utf-8", "replace")
        case AttributeProto.STRINGS:
            return tuple(v.decode("utf-8", "replace") for v in value)
        case AttributeProto.TENSOR:
            return tensor_array(value)
        case AttributeProto.INTS | AttributeProto.FLOATS | AttributeProto.GRAPHS:
            return tuple(value)
    return value


def _captured(node: NodeProto) -> tuple[str, ...]:
    """Names the node's subgraphs use from the graph around them."""
    names: dict[str, None] = {}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
            local = {v.name for v in graph.input} | {t.name for t in graph.initializer}
            for inner in graph.node:
                for name in (*inner.input, *_captured(inner)):
                    if name and name not in local:
                        names[name] = None
                local.update(inner.output)
            for value in graph.output:
                if value.name not in local:
                    names[value.name] = None
    return tuple(names)


def _with_quantization(graph: Graph) -> Graph:
    """State in the types what QuantizeLinear and its kin say about their integers."""
    types = dict(graph.types)

    def note(value: str, scale: str, zero: str, axis: int | None = None) -> None:
        s = graph.constants.get(scale)
        if value not in types or s is None or types[value].quant is not None:
            return
        z = graph.constants.get(zero)
        z = np.zeros(s.shape, types[value].dtype) if z is None else z
        if s.size != z.size:
            raise ModelError(
                f"{value!r} has a scale of shape {list(s.shape)}, a zero point of {list(z.shape)}"
            )
        if s.size == 1:
            s, z, axis = s.reshape(()), z.reshape(()), None
        old = types[value]
        types[value] = TensorType(old.shape, old.dtype, Quant(s, z, axis))

    for node in graph.nodes:
        inputs = (*node.inputs, "", "", "")
        rank = len(types[node.inputs[0]].shape) if node.input(0) else 0
        axis = node.attrs.get("axis", 1)
        axis = axis + rank if axis < 0 else axis
        if node.op == "QuantizeLinear":
            note(node.outputs[0], inputs[1], inputs[2], axis)
        elif node.op == "DequantizeLinear":
            note(inputs[0], inputs[1], inputs[2], axis)
        else:
            for value, scale, zero in contrib.quantization(node):
                note(value, scale, zero, 0 if node.op == "QLinearConv" else None)
    return graph.with_(types=types)
