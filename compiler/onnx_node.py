"""One ONNX operator at a time: evaluate it, infer its outputs, ask whether it exists."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from onnx import NodeProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from accelc.compiler.graph import Array, Node, TensorType
from accelc.compiler.onnx_file import one_line
from accelc.isa.errors import ModelError

#: First DequantizeLinear that onnx.reference implements.
_DEQUANTIZE_OPSET = 19
#: First Softmax that works along one axis.
_SOFTMAX_OPSET = 13


#: How onnx's checker, shape inference and version converter refuse a model or a node.
REFUSALS = (
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    onnx.version_converter.ConvertError,
    RuntimeError,
    ValueError,
)
#: A sequence or an optional: only ``onnx.reference`` handles them.
OPAQUE = TensorType((-1,), np.dtype(object))
#: A tensor of which not even the rank or the element type is known before it is computed.
UNKNOWN = TensorType((-1, -1), np.dtype(object))


def numpy_dtype(elem_type: int) -> np.dtype[Any]:
    if elem_type == onnx.TensorProto.STRING:
        return np.dtype(object)
    try:
        return helper.tensor_dtype_to_np_dtype(elem_type)
    except (KeyError, ValueError):
        raise ModelError(f"element type {elem_type} is unknown") from None


def _tensor_type(proto: TypeProto) -> TensorType:
    tensor = proto.tensor_type
    shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
    return TensorType(shape, numpy_dtype(tensor.elem_type))


def tensor_type(proto: TypeProto | None) -> TensorType | None:
    """What a protobuf type says; ``None`` if it leaves the element type or the rank open."""
    if proto is None:
        return None
    if not proto.HasField("tensor_type"):
        return OPAQUE if proto.WhichOneof("value") else None
    tensor = proto.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    return _tensor_type(proto)


def tensor_array(tensor: onnx.TensorProto) -> Array:
    """The array a protobuf tensor holds.

    Raises:
        ModelError: its data are not those of its shape and element type.
    """
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise ModelError(f"constant {tensor.name!r} is malformed: {one_line(error)}") from None


def elem_type(dtype: np.dtype[Any]) -> int:
    if dtype == np.dtype(object) or dtype.kind in "US":
        return onnx.TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(dtype)


@lru_cache(maxsize=1024)
def operator_known(domain: str, op: str, version: int) -> bool:
    """Whether onnx defines the operator, and so its reference can run it."""
    try:
        return not onnx.defs.get_schema(op, version, domain).deprecated
    except onnx.defs.SchemaError:
        return False


def _split(op: str) -> tuple[str, str]:
    domain, _, name = op.rpartition(".")
    return domain, name


@lru_cache(maxsize=1)
def _other_domains() -> dict[str, int]:
    """Newest version of the operators of every domain onnx has besides its own."""
    versions: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas():
        if schema.domain:
            versions[schema.domain] = max(versions.get(schema.domain, 1), schema.since_version)
    return versions


def opsets(opset: int) -> list[onnx.OperatorSetIdProto]:
    """The operator sets of a model made of single nodes: other domains in their newest version."""
    others = (helper.make_opsetid(domain, v) for domain, v in _other_domains().items())
    return [helper.make_opsetid("", opset), *others]


def to_proto(node: Node) -> NodeProto:
    """The node as protobuf, with the names its inputs and outputs have in the graph."""
    domain, name = _split(node.op)
    proto = NodeProto(op_type=name, domain=domain, name=node.name)
    captured = len(node.attrs.get("captured", ()))
    proto.input.extend(node.inputs[: len(node.inputs) - captured])
    proto.output.extend(node.outputs)
    for key, value in node.attrs.items():
        if key == "captured" or value is None:
            continue
        proto.attribute.append(_attribute(node, key, value))
    return proto


def _attribute(node: Node, key: str, value: Any) -> onnx.AttributeProto:
    if isinstance(value, np.ndarray):
        return helper.make_attribute(key, numpy_helper.from_array(value))
    if isinstance(value, tuple) and not value:
        domain, name = _split(node.op)
        schema = onnx.defs.get_schema(name, domain)
        while key not in schema.attributes and schema.since_version > 1:  # older versions had it
            schema = onnx.defs.get_schema(name, schema.since_version - 1, domain)
        declared = schema.attributes[key].type
        return helper.make_attribute(
            key, [], attr_type=onnx.AttributeProto.AttributeType.Value(declared.name)
        )
    return helper.make_attribute(key, list(value) if isinstance(value, tuple) else value)


def run(node: Node, inputs: Sequence[Any], opset: int) -> list[Any]:
    """Evaluate one ONNX node with ``onnx.reference``; an absent input is ``None``.

    Raises:
        ModelError: the reference rejects the inputs or lacks the operator.
    """
    if node.op in _REPAIRED:
        repaired = _REPAIRED[node.op](node, inputs, opset)
        if repaired is not None:
            return repaired
    evaluator, names = _evaluator(node, inputs, opset)
    feeds = dict(zip(names, (x for x in inputs if x is not None), strict=True))
    try:
        with np.errstate(all="ignore"):  # infinities and NaN are results like others
            return list(evaluator.run(None, feeds))  # type: ignore[arg-type]
    except Exception as error:
        # onnx.reference raises whatever NumPy raises: there is no narrower class
        line = str(error).strip().splitlines()
        raise ModelError(
            f"{node.op} {node.name!r} cannot be evaluated:"
            f" {line[0] if line else type(error).__name__}"
        ) from error


def _integer_pool(node: Node, inputs: Sequence[Any], opset: int) -> list[Any] | None:
    """``onnx.reference`` pads integers with NaN; float32 holds them all."""
    x = inputs[0]
    if x.dtype not in (np.int8, np.uint8):
        return None
    pooled = run(node, [x.astype(np.float32)], opset)
    return [pooled[0].astype(x.dtype), *pooled[1:]]


def _flat_softmax(node: Node, inputs: Sequence[Any], opset: int) -> list[Any] | None:
    """``onnx.reference`` only knows the meaning from opset 13 on: one axis. Before, everything from
    ``axis`` on was one vector."""
    x = inputs[0]
    if opset >= _SOFTMAX_OPSET:
        return None
    axis = node.attrs.get("axis", 1) % max(x.ndim, 1)
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1) if x.size else x
    flat = node.with_(attrs={"axis": -1})
    return [y.reshape(x.shape) for y in run(flat, [rows], _SOFTMAX_OPSET)]


def _cropping_pad(node: Node, inputs: Sequence[Any], opset: int) -> list[Any] | None:
    """``onnx.reference`` cannot remove elements, which is what negative pads mean."""
    x, *rest = inputs
    pads = np.asarray(rest[0] if rest else node.attrs["pads"])
    if (pads >= 0).all():
        return None
    axes = rest[2] if len(rest) > 2 and rest[2] is not None else range(x.ndim)
    begins, ends = pads.reshape(2, -1)
    cut = [slice(None)] * x.ndim
    for axis, begin, end in zip(axes, begins, ends, strict=True):
        cut[axis] = slice(max(0, -begin), x.shape[axis] - max(0, -end))
    grown = np.maximum(pads, 0)
    if rest:
        return run(node, [x[tuple(cut)], grown, *rest[1:]], opset)
    return run(
        node.with_(attrs={**node.attrs, "pads": tuple(grown.tolist())}), [x[tuple(cut)]], opset
    )


#: Operators ``onnx.reference`` gets wrong in some cases: the results there, else None.
_REPAIRED: dict[str, Callable[[Node, Sequence[Any], int], list[Any] | None]] = {
    "MaxPool": _integer_pool,
    "Softmax": _flat_softmax,
    "LogSoftmax": _flat_softmax,
    "Hardmax": _flat_softmax,
    "Pad": _cropping_pad,
}


def _evaluator(
    node: Node, inputs: Sequence[Any], opset: int
) -> tuple[ReferenceEvaluator, list[str]]:
    captured = node.attrs.get("captured", ())
    plain = len(node.inputs) - len(captured)
    # Names of its own for every position: a value used twice is given twice, a captured one
    # carries the name the body knows.
    names = [f"i{k}" if name else "" for k, name in enumerate(node.inputs[:plain])]
    proto = to_proto(node)
    del proto.input[:]
    proto.input.extend(names)
    used = [
        helper.make_tensor_value_info(name, elem_type(np.asarray(value).dtype), np.shape(value))
        if not isinstance(value, list)
        else helper.make_value_info(name, TypeProto())
        for name, value in zip((*names, *captured), inputs, strict=False)
        if name and value is not None
    ]
    outputs = [helper.make_value_info(name, TypeProto()) for name in node.outputs if name]
    if node.op == "DequantizeLinear":
        # onnx.reference lacks the older versions, which mean the same
        opset = max(opset, _DEQUANTIZE_OPSET)
    graph = helper.make_graph([proto], "node", used, outputs)
    model = helper.make_model(graph, opset_imports=opsets(opset))
    try:
        return ReferenceEvaluator(model), [value.name for value in used]
    except Exception as error:
        raise ModelError(
            f"{node.op} {node.name!r} has no reference implementation: {error}"
        ) from error


def infer(
    node: Node,
    types: Mapping[str, TensorType],
    known: Mapping[str, Array],
    opset: int,
    fallback: Sequence[TensorType | None],
) -> list[TensorType | None]:
    """Types of the node's outputs from its inputs' types and the values of ``known`` inputs.

    What cannot be inferred is what ``fallback`` says; dimensions that depend on data are -1.
    """
    domain, name = _split(node.op)
    if "captured" in node.attrs or not operator_known(
        domain, name, opset if not domain else 1 << 20
    ):
        return list(fallback)
    if any(n and types[n].dtype == np.dtype(object) for n in node.inputs):
        return list(fallback)
    schema = (
        onnx.defs.get_schema(name, opset, domain)
        if not domain
        else onnx.defs.get_schema(name, domain)
    )
    protos: dict[str, TypeProto] = {}
    for value in node.inputs:
        if value:
            found = types[value]
            shape = [None if d < 0 else d for d in found.shape]
            protos[value] = helper.make_tensor_type_proto(elem_type(found.dtype), shape)
    data = {n: numpy_helper.from_array(known[n]) for n in node.inputs if n in known}
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, to_proto(node), protos, data, opset_imports=opsets(opset)
        )
    except REFUSALS as error:
        raise ModelError(
            f"{node.op} {node.name!r}: {str(error).strip().splitlines()[-1]}"
        ) from None
    result: list[TensorType | None] = []
    for output, old in zip(node.outputs, fallback, strict=True):
        proto = inferred.get(output)
        tensor = proto.tensor_type if proto is not None and proto.HasField("tensor_type") else None
        if tensor is None or not tensor.elem_type or not tensor.HasField("shape"):
            result.append(old)
            continue
        shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
        result.append(TensorType(shape, numpy_dtype(tensor.elem_type)))
    return result
