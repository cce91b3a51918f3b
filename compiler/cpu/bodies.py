"""Operators by the bodies ONNX itself defines them with, and the bodies of If, Loop and Scan."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, helper, numpy_helper

from accelc.compiler.graph import Array, Graph, Node, TensorType
from accelc.compiler.onnx import import_model
from accelc.compiler.onnx_infer import specialize
from accelc.compiler.onnx_node import OPAQUE, elem_type, opsets, to_proto
from accelc.isa.errors import AccelcError

#: Domain under which a body is called while it is put in place of its operator.
_DOMAIN = "accelc.body"
#: Bodies longer than the operator's own reference code is worth.
MAX_NODES = 400


def _split(op: str) -> tuple[str, str]:
    domain, _, name = op.rpartition(".")
    return domain, name


@lru_cache(maxsize=1024)
def _schema(domain: str, name: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        if domain:
            return onnx.defs.get_schema(name, domain)
        return onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None


def has_body(op: str, opset: int) -> bool:
    """Whether ONNX defines the operator by simpler ones."""
    schema = _schema(*_split(op), opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _type_proto(found: TensorType) -> TypeProto:
    if found == OPAQUE:
        return TypeProto()
    shape = [None if extent < 0 else extent for extent in found.shape]
    return helper.make_tensor_type_proto(elem_type(found.dtype), shape)


def _function(proto: NodeProto, types: Sequence[TypeProto], opset: int) -> FunctionProto | None:
    schema = _schema(proto.domain, proto.op_type, opset)
    if schema is None:
        return None
    version = opset if not proto.domain else schema.since_version
    data = b""
    if schema.has_function:
        data = schema.get_function_with_opset_version(version)
    if not data and schema.has_context_dependent_function:
        encoded = [t.SerializeToString() for t in types]
        for known in reversed(schema.context_dependent_function_opset_versions):
            if known <= version or proto.domain:
                data = schema.get_context_dependent_function_with_opset_version(
                    known, proto.SerializeToString(), encoded
                )
                break
    if not data:
        return None
    function = FunctionProto.FromString(data)
    if not function.node or len(function.node) > MAX_NODES:
        return None
    function.domain = _DOMAIN
    function.name = proto.op_type
    return function


def body_of(
    node: Node, types: Mapping[str, TensorType], constants: Mapping[str, Array], opset: int
) -> Graph | None:
    """The graph that computes ``node``: its inputs and outputs have the node's positions as names.

    ``i0``, ``i1``... are the inputs that are there, in ``inputs`` or, if they are among
    ``constants``, in ``constants``; ``o0``, ``o1``... the outputs with a name. None if ONNX defines
    the operator by itself, or the body cannot be read.
    """
    if not has_body(node.op, opset):
        return None
    proto = to_proto(node)
    try:
        kinds = [_type_proto(types[name]) if name else TypeProto() for name in node.inputs]
        function = _function(proto, kinds, opset)
        if function is None:
            return None
        return import_model(
            _model(node, proto, function, types, constants, opset), dynamic=True, checked=True
        )
    except (AccelcError, RuntimeError, ValueError, KeyError):
        return None  # the reference has code of its own


def _model(
    node: Node,
    proto: NodeProto,
    function: FunctionProto,
    types: Mapping[str, TensorType],
    constants: Mapping[str, Array],
    opset: int,
) -> ModelProto:
    """A model that calls ``function`` as ``node``."""
    schema = _schema(proto.domain, proto.op_type, opset)
    given = {attribute.name for attribute in proto.attribute}
    defaults = [
        value.default_value
        for name, value in (schema.attributes.items() if schema else ())
        if name not in given and value.default_value.name and name in function.attribute
    ]
    call = NodeProto(op_type=function.name, domain=_DOMAIN)
    call.attribute.extend([*proto.attribute, *defaults])
    inputs: list[onnx.ValueInfoProto] = []
    initializers: list[onnx.TensorProto] = []
    for number, name in enumerate(node.inputs):
        formal = f"i{number}" if name else ""
        call.input.append(formal)
        if not name:
            continue
        if name in constants and constants[name].dtype != object:
            initializers.append(numpy_helper.from_array(np.asarray(constants[name]), formal))
        else:
            inputs.append(helper.make_value_info(formal, _type_proto(types[name])))
    outputs: list[onnx.ValueInfoProto] = []
    for number, name in enumerate(node.outputs):
        call.output.append(f"o{number}" if name else "")
        if name:
            outputs.append(helper.make_value_info(f"o{number}", _type_proto(types[name])))
    graph = helper.make_graph([call], "body", inputs, outputs, initializers)
    imports = [*opsets(opset), helper.make_opsetid(_DOMAIN, 1)]
    del function.opset_import[:]
    function.opset_import.extend(imports)
    return helper.make_model(
        graph, functions=[function], opset_imports=imports, ir_version=onnx.IR_VERSION
    )


def graph_of(
    body: GraphProto,
    types: Mapping[str, TensorType],
    constants: Mapping[str, Array],
    opset: int,
) -> Graph:
    """A body of If, Loop or Scan as a graph.

    ``types`` are those of its inputs and of the values it uses from around it, unless they are
    among ``constants``.

    Raises:
        ModelError, UnsupportedOpError: see ``onnx.import_model``.
    """
    graph = GraphProto()
    graph.CopyFrom(body)
    del graph.input[:]
    graph.input.extend(helper.make_value_info(n, _type_proto(t)) for n, t in types.items())
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    graph.name = graph.name or "body"
    for value in graph.output:
        value.type.Clear()
    return import_model(
        helper.make_model(graph, opset_imports=opsets(opset), ir_version=onnx.IR_VERSION),
        dynamic=True,
        checked=True,
    )


def with_branches_taken(graph: Graph) -> Graph:
    """``graph`` with every If whose condition is a constant replaced by its branch.

    ``y = If(true, then: y = Relu(x))`` becomes ``y = Relu(x)``; shapes behind it become known.

    Raises:
        ModelError, UnsupportedOpError: the branch cannot be read.
    """
    nodes: list[Node] = []
    types, constants = dict(graph.types), dict(graph.constants)
    for node in graph.nodes:
        if not _decided(node, graph):
            nodes.append(node)
            continue
        taken = bool(graph.constants[node.inputs[0]].reshape(()))
        branch: GraphProto = node.attrs["then_branch" if taken else "else_branch"]
        names = node.attrs.get("captured", ())
        around = dict(zip(names, node.inputs[1:], strict=True))
        known = {name: constants[a] for name, a in around.items() if a in constants}
        open_types = {name: types[a] for name, a in around.items() if a not in constants}
        inner = graph_of(branch, open_types, known, graph.opset)
        results = list(zip(inner.outputs, node.outputs, strict=True))
        actual = dict(results) | around

        def renamed(name: str, actual: dict[str, str] = actual, node: Node = node) -> str:
            return actual.get(name, f"{node.name}/{name}") if name else ""

        for name, found in inner.types.items():
            types.setdefault(renamed(name), found)
        constants |= {renamed(n): a for n, a in inner.constants.items() if n not in around}
        for step in inner.nodes:
            inputs, outputs = (tuple(map(renamed, v)) for v in (step.inputs, step.outputs))
            name = f"{node.name}/{step.name}"
            nodes.append(step.with_(name=name, inputs=inputs, outputs=outputs))
        for name, output in results:
            if name in around:  # a branch that gives what it was given
                nodes.append(Node("Identity", f"{node.name}/{name}", (around[name],), (output,)))
    flat = graph.with_(nodes=tuple(nodes), types=types, constants=constants)
    inputs = {name: types[name] for name in graph.inputs}
    return specialize(flat, inputs)


def has_decided_branches(graph: Graph) -> bool:
    """Whether the condition of an If is a constant."""
    return any(_decided(node, graph) for node in graph.nodes)


def _decided(node: Node, graph: Graph) -> bool:
    return node.op == "If" and node.inputs[0] in graph.constants


def type_of(value: Any) -> TensorType:
    """The type of a value at hand."""
    if not isinstance(value, np.ndarray):
        return OPAQUE
    dtype = value.dtype if value.dtype.kind not in "US" else np.dtype(object)
    return TensorType(value.shape, dtype)
