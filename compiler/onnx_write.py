"""``Graph`` to ONNX, and models of old operator sets to newer ones."""

from collections.abc import Collection

import onnx
import onnx.version_converter
from onnx import ModelProto, NodeProto, helper, numpy_helper

from accelc.compiler.graph import Graph, Node
from accelc.compiler.onnx_file import one_line
from accelc.compiler.onnx_node import REFUSALS, to_proto
from accelc.isa.errors import ModelError

#: Largest file protobuf reads back.
LIMIT_BYTES = (1 << 31) - 1


def opset_of(proto: ModelProto) -> int:
    """The version of the default operator set."""
    return max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)


def at_least_opset(proto: ModelProto, version: int, reason: str) -> ModelProto:
    """``proto``, converted to operator set ``version`` if it uses an older one.

    Raises:
        ModelError: onnx cannot convert it; ``reason`` says what the newer set is needed for.
    """
    if opset_of(proto) >= version:
        return proto
    try:
        return onnx.version_converter.convert_version(proto, version)
    except REFUSALS as error:
        raise ModelError(
            f"opset {opset_of(proto)} cannot be raised to {version}, which {reason}:"
            f" {one_line(error)}; export the model again with opset {version} or newer"
        ) from None


def to_model(graph: Graph, template: ModelProto, *, symbolic: bool) -> ModelProto:
    """``graph`` as a model with the interface, names and metadata of ``template``.

    ``symbolic`` keeps the template's symbolic dimensions; otherwise inputs and outputs have the
    graph's sizes.

    Raises:
        ModelError: the result is larger than a protobuf file may be, or the checker refuses it.
    """
    size = sum(array.nbytes for array in graph.constants.values())
    if size > LIMIT_BYTES:
        raise ModelError(f"the model would hold {size} bytes of constants, more than a file may")
    model = ModelProto()
    model.CopyFrom(
        helper.make_model(
            helper.make_graph([], graph.name, [], []),
            producer_name="accelc",
            opset_imports=_opsets(graph, template),
        )
    )
    model.ir_version = max(
        template.ir_version, helper.find_min_ir_version_for(list(model.opset_import), True)
    )
    model.doc_string, model.domain = template.doc_string, template.domain
    model.metadata_props.extend(template.metadata_props)
    interface = {v.name: v for v in (*template.graph.input, *template.graph.output)}
    for names, target in ((graph.inputs, model.graph.input), (graph.outputs, model.graph.output)):
        for name in names:
            value = target.add()
            value.CopyFrom(interface[name])
            kind = value.type.tensor_type
            if not kind.HasField("shape"):  # the checker insists on one
                kind.shape.SetInParent()
                for _ in graph.types[name].shape:
                    kind.shape.dim.add()
            if not symbolic and -1 not in graph.types[name].shape:
                _fix(value, graph.types[name].shape)
    needed = _needed(graph)
    for name, array in graph.constants.items():
        if name in needed:
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    for node in graph.nodes:
        model.graph.node.extend(_protos(node))
    try:
        onnx.checker.check_model(model, full_check=True)
    except REFUSALS as error:
        raise ModelError(f"the result is not a valid model: {one_line(error)}") from None
    return model


def _opsets(graph: Graph, template: ModelProto) -> list[onnx.OperatorSetIdProto]:
    domains = {node.op.rpartition(".")[0] for node in graph.nodes}
    others = [o for o in template.opset_import if o.domain in domains - {""}]
    return [helper.make_opsetid("", graph.opset), *others]


def _fix(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    dims = value.type.tensor_type.shape
    del dims.dim[:]
    for size in shape:
        dims.dim.add().dim_value = size


def _needed(graph: Graph) -> Collection[str]:
    return {name for node in graph.nodes for name in node.inputs} | set(graph.outputs)


def _protos(node: Node) -> list[NodeProto]:
    """The node, after Identities that give captured values the names its body knows."""
    captured = node.attrs.get("captured", ())
    given = node.inputs[len(node.inputs) - len(captured) :]
    named = [
        helper.make_node("Identity", [value], [name], f"{node.name}/{name}")
        for value, name in zip(given, captured, strict=True)
        if value != name
    ]
    return [*named, to_proto(node)]
