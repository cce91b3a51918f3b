"""ONNX to ``Graph``: with ``onnx_node``, the only file that knows protobuf.

Reads a file or ``ModelProto``, checks it, fixes every symbolic dimension, types every value.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

from accelc.compiler import contrib
from accelc.compiler.contrib import CONTRIB
from accelc.compiler.graph import Array, Graph, Node, Quant, TensorType
from accelc.compiler.onnx_node import infer, numpy_dtype, operator_known, run
from accelc.isa.errors import ModelError, UnsupportedOpError

#: Oldest operator set read; older ones gave attributes other meanings.
OLDEST_OPSET = 7
#: ``onnx.checker`` serializes the model, which protobuf limits to 2 GiB.
CHECKER_LIMIT_BYTES = 2_000_000_000
#: Constants up to this many elements are evaluated while shapes are inferred.
SHAPE_CONSTANT_ELEMS = 4096


def import_model(model: str | Path | ModelProto, *, dims: Mapping[str, int] | None = None) -> Graph:
    """Read an ONNX model as a ``Graph`` with static shapes.

    ``dims`` gives symbolic dimensions their size, by name or as ``INPUT.AXIS``. A symbolic first
    dimension (the batch) that is not named there becomes 1, and ``Graph.notes`` says so. A
    dimension that depends on data is -1.

    Raises:
        ModelError: unreadable, malformed or inconsistent file, missing or outlying external data,
            a symbolic dimension without a size.
        UnsupportedOpError: operators nobody can run, all of them listed with their nodes.
    """
    proto = model if isinstance(model, ModelProto) else _read(Path(model))
    if isinstance(model, ModelProto) and any(
        tensor.data_location == TensorProto.EXTERNAL for tensor in _tensors(proto.graph)
    ):
        raise ModelError("the model's weights are in external files; give the model's path instead")
    opset = _opset(proto)
    proto = _inlined(proto)
    _require_known_operators(proto, opset)
    _check(proto)
    proto, notes = _with_static_inputs(proto, dict(dims or {}))
    return _Importer(proto, opset).graph(tuple(notes))


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _read(path: Path) -> ModelProto:
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (DecodeError, ValueError) as error:
        raise ModelError(f"{path}: not an ONNX model, or truncated: {_one_line(error)}") from None
    if not proto.graph.node and not proto.graph.output:
        raise ModelError(f"{path}: not an ONNX model: it has no graph")
    _load_external(proto, path)
    return proto


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.TENSORS:
                yield from attribute.tensors
            elif attribute.type == AttributeProto.GRAPH:
                yield from _tensors(attribute.g)
            elif attribute.type == AttributeProto.GRAPHS:
                for subgraph in attribute.graphs:
                    yield from _tensors(subgraph)


def _load_external(proto: ModelProto, path: Path) -> None:
    """Read weights kept in files of their own, which must lie in the model's folder."""
    folder = path.resolve().parent
    external = [t for t in _tensors(proto.graph) if t.data_location == TensorProto.EXTERNAL]
    for tensor in external:
        info = {entry.key: entry.value for entry in tensor.external_data}
        location = info.get("location", "")
        file = (folder / location).resolve()
        what = f"{path}: external data of {tensor.name!r}"
        if not location or Path(location).is_absolute() or not file.is_relative_to(folder):
            raise ModelError(f"{what} leads outside the model's folder: {location!r}")
        if not file.is_file():
            raise ModelError(f"{what} is missing: {location!r}")
        try:
            offset, length = int(info.get("offset", 0)), int(info.get("length", 0))
        except ValueError:
            raise ModelError(f"{what} has no numeric offset and length") from None
        if offset < 0 or length < 0 or offset + length > file.stat().st_size:
            raise ModelError(f"{what} ends beyond the end of {location!r}")
    try:
        for tensor in external:
            load_external_data_for_tensor(tensor, str(folder))
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
    except (onnx.checker.ValidationError, OSError, ValueError) as error:
        raise ModelError(f"{path}: external data cannot be read: {_one_line(error)}") from None


def _opset(proto: ModelProto) -> int:
    newest = onnx.defs.onnx_opset_version()
    version = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if version == 0 and any(node.domain in ("", "ai.onnx") for node in proto.graph.node):
        raise ModelError("the model does not say which operator set (opset) it uses")
    if version and not OLDEST_OPSET <= version <= newest:
        raise ModelError(
            f"the model uses opset {version}, this version reads {OLDEST_OPSET} to {newest};"
            " convert it with onnx.version_converter"
        )
    return version or newest


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
        listed = "; ".join(f"{op} ({', '.join(names)})" for op, names in sorted(unknown.items()))
        raise UnsupportedOpError(f"operators without an implementation: {listed}")


def _check(proto: ModelProto) -> None:
    if proto.ByteSize() >= CHECKER_LIMIT_BYTES:
        return
    if not all(value.type.tensor_type.HasField("shape") for value in proto.graph.output):
        # a shape the exporter left out is inferred later; the checker insists on one
        checked = ModelProto()
        checked.CopyFrom(proto)
        for value in checked.graph.output:
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.shape.SetInParent()
        proto = checked
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise ModelError(f"the model is malformed: {_one_line(error)}") from None


def _with_static_inputs(proto: ModelProto, dims: dict[str, int]) -> tuple[ModelProto, list[str]]:
    """The model with every input dimension a number, and notes about the ones chosen."""
    for name, size in dims.items():
        if size < 1:
            raise ModelError(f"dimension {name!r} must be at least 1, not {size}")
    fixed = ModelProto()
    fixed.CopyFrom(proto)
    initializers = {t.name for t in fixed.graph.initializer}
    used: set[str] = set()
    symbolic: set[str] = set()
    missing: list[str] = []
    batch: list[str] = []
    for value in fixed.graph.input:
        if value.name in initializers or not value.type.HasField("tensor_type"):
            continue
        if not value.type.tensor_type.HasField("shape"):
            raise ModelError(f"input {value.name!r} has no shape")
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value > 0:
                continue
            name, place = dim.dim_param, f"{value.name}.{axis}"
            symbolic.update((name, place))
            given = place if place in dims else name
            if given in dims:
                used.add(given)
                dim.dim_value = dims[given]
            elif axis == 0:
                batch.append(name or value.name)
                dim.dim_value = 1
            else:
                missing.append(f"{name!r} ({place})" if name else place)
    if missing:
        raise ModelError(
            f"symbolic dimensions need a size, as in --dim NAME=N: {', '.join(missing)}"
        )
    if unknown := sorted(set(dims) - used):
        known = sorted(symbolic - {""}) or "none"
        raise ModelError(f"the model has no symbolic dimension {unknown}; it has {known}")
    notes = [f"symbolic batch dimension {name!r} set to 1" for name in dict.fromkeys(batch)]
    # Shapes recorded for other values may still name the symbols: let inference state them afresh.
    del fixed.graph.value_info[:]
    for value in fixed.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return fixed, notes


class _Importer:
    """Collects the parts of a ``Graph`` from one checked model with static inputs."""

    def __init__(self, proto: ModelProto, opset: int) -> None:
        self.proto = proto
        self.opset = opset
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.names: set[str] = set()
        #: Values of small constants and shape computations, only for shape inference.
        self.known: dict[str, Array] = {}

    def graph(self, notes: tuple[str, ...]) -> Graph:
        graph = self.proto.graph
        for tensor in graph.initializer:
            self._constant(tensor.name, self._array(tensor))
        if graph.sparse_initializer:
            raise ModelError("sparse initializers are not supported; store the weights densely")
        inputs = [v for v in graph.input if v.name not in self.constants]
        for value in inputs:
            if not value.type.HasField("tensor_type"):
                raise ModelError(f"input {value.name!r} is not a tensor")
            self.types[value.name] = _tensor_type(value.type)
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
            notes=notes,
        )
        return _with_quantization(result)

    @staticmethod
    def _array(tensor: TensorProto) -> Array:
        try:
            return numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as error:
            raise ModelError(f"constant {tensor.name!r} is malformed: {_one_line(error)}") from None

    def _constant(self, name: str, array: Array) -> None:
        self.constants[name] = array
        self.types[name] = TensorType(array.shape, array.dtype)
        if array.size <= SHAPE_CONSTANT_ELEMS:
            self.known[name] = array

    def _whole_model_types(self) -> dict[str, onnx.TypeProto]:
        """What onnx infers for the model as a whole, including If, Loop and Scan."""
        if self.proto.ByteSize() >= CHECKER_LIMIT_BYTES:
            return {}
        try:
            inferred = onnx.shape_inference.infer_shapes(self.proto, data_prop=True)
        except (onnx.shape_inference.InferenceError, ValueError) as error:
            raise ModelError(f"the model's shapes are inconsistent: {_one_line(error)}") from None
        return {v.name: v.type for v in (*inferred.graph.value_info, *inferred.graph.output)}

    def _name(self, node: NodeProto) -> str:
        wanted = node.name or next((o for o in node.output if o), node.op_type)
        name, count = wanted, 1
        while name in self.names:
            count += 1
            name = f"{wanted}_{count}"
        self.names.add(name)
        return name

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
        self._infer(node, inferred)
        self.nodes.append(node)

    def _infer(self, node: Node, inferred: dict[str, onnx.TypeProto]) -> None:
        outputs = [name for name in node.outputs if name]
        if node.op in ("Shape", "Size") and -1 not in (shape := self.types[node.inputs[0]].shape):
            # an array of the right shape without its memory
            stand_in = np.broadcast_to(np.zeros((), np.int8), shape)
            self.known[outputs[0]] = run(node, [stand_in], self.opset)[0]
        elif all(not name or name in self.known for name in node.inputs) and node.inputs:
            self._evaluate(node)
        if all(name in self.known for name in outputs):
            for name in outputs:
                self.types[name] = TensorType(self.known[name].shape, self.known[name].dtype)
            return
        if node.op in CONTRIB:
            types = contrib.infer(node, self.types)
        else:
            types = [_maybe_type(inferred.get(name)) for name in node.outputs]
            if any(
                t is None or -1 in t.shape
                for t, name in zip(types, node.outputs, strict=True)
                if name
            ):
                types = infer(node, self.types, self.known, self.opset, types)
        for name, found in zip(node.outputs, types, strict=True):
            if not name:
                continue
            if found is None:
                raise ModelError(
                    f"the type of {name!r} (output of {node.op} {node.name!r}) is unknown"
                )
            self.types[name] = found

    def _evaluate(self, node: Node) -> None:
        if node.op in CONTRIB or "captured" in node.attrs:
            return
        if node.op in ("ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "EyeLike"):
            return
        if node.op.startswith(("Random", "Bernoulli", "Multinomial", "Sequence", "Optional")):
            return
        arrays = [self.known[name] if name else None for name in node.inputs]
        try:
            results = run(node, arrays, self.opset)
        except ModelError:
            return
        for name, value in zip(node.outputs, results, strict=False):
            if name and isinstance(value, np.ndarray) and value.size <= SHAPE_CONSTANT_ELEMS:
                self.known[name] = value


def _constant_value(proto: NodeProto) -> Array:
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
            return _Importer._array(value)
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


def _tensor_type(proto: onnx.TypeProto) -> TensorType:
    tensor = proto.tensor_type
    shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
    return TensorType(shape, numpy_dtype(tensor.elem_type))


def _maybe_type(proto: onnx.TypeProto | None) -> TensorType | None:
    if proto is None:
        return None
    if proto.HasField("sequence_type") or proto.HasField("optional_type"):
        return TensorType((-1,), np.dtype(object))
    tensor = proto.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    return _tensor_type(proto)


def _with_quantization(graph: Graph) -> Graph:
    """State in the types what QuantizeLinear and its kin say about their integers."""
    types = dict(graph.types)

    def note(value: str, scale: str, zero: str, axis: int | None = None) -> None:
        s = graph.constants.get(scale)
        if value not in types or s is None or types[value].quant is not None:
            return
        z = graph.constants.get(zero)
        z = np.zeros(s.shape, types[value].dtype) if z is None else z
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
