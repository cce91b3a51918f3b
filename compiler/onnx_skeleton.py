"""What inference needs of a model: its nodes with static inputs, without the weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import ModelProto

from accelc.compiler.onnx_node import tensor_type
from accelc.isa.errors import ModelError

#: Constants up to this many elements are evaluated while shapes are inferred.
SHAPE_CONSTANT_ELEMS = 4096
#: Largest size of a symbolic dimension; ONNX holds sizes in 64 bits, nobody's memory that much.
MAX_DIMENSION = (1 << 31) - 1


@dataclass(frozen=True)
class Skeleton:
    """A model with static inputs and without its weights, for inference.

    ``declared`` are the static types the model itself states for its outputs and inner values.
    """

    proto: ModelProto
    declared: dict[str, onnx.TypeProto]
    notes: tuple[str, ...]


def skeleton(proto: ModelProto, dims: Mapping[str, int]) -> Skeleton:
    """Fix the dimensions of the model's inputs: by ``dims``, the batch to 1.

    Raises:
        ModelError: a dimension without size, a name that is no dimension, an input without shape.
    """
    for name, size in dims.items():
        if not 1 <= size <= MAX_DIMENSION:
            raise ModelError(f"dimension {name!r} must be from 1 to {MAX_DIMENSION}, not {size}")
    graph = proto.graph
    light = ModelProto(ir_version=proto.ir_version)
    light.opset_import.extend(proto.opset_import)
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    for tensor in graph.initializer:
        if int(np.prod(tensor.dims, dtype=np.int64)) <= SHAPE_CONSTANT_ELEMS:
            light.graph.initializer.append(tensor)
        else:
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            light.graph.input.append(info)
    initializers = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in initializers]
    light.graph.input.extend(inputs)
    notes = _fix_dimensions(light.graph.input[len(light.graph.input) - len(inputs) :], dims)
    # Shapes stated for other values may name the symbols: inference states them afresh, and only
    # what it cannot infer is taken from the model, if it is static there.
    declared: dict[str, onnx.TypeProto] = {}
    for value in (*graph.value_info, *graph.output):
        found = tensor_type(value.type)
        if found is not None and -1 not in found.shape:
            declared[value.name] = value.type
    for value in graph.output:
        light.graph.output.add(name=value.name)
    return Skeleton(light, declared, notes)


def _fix_dimensions(
    inputs: Sequence[onnx.ValueInfoProto], dims: Mapping[str, int]
) -> tuple[str, ...]:
    """Give every dimension of ``inputs`` its number, in place; notes about the ones chosen."""
    tensors_only = [value for value in inputs if value.type.HasField("tensor_type")]
    symbolic = {
        f"{value.name}.{axis}": dim
        for value in tensors_only
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value") or dim.dim_value < 0
    }
    known = {*symbolic, *(dim.dim_param for dim in symbolic.values() if dim.dim_param)}
    if unknown := sorted(set(dims) - known):
        listed = ", ".join(repr(name) for name in sorted(known)) or "none"
        raise ModelError(f"the model has no symbolic dimension {unknown}; it has {listed}")
    batch = {
        dim.dim_param or place
        for place, dim in symbolic.items()
        if place.endswith(".0") and place not in dims and dim.dim_param not in dims
    }
    missing: list[str] = []
    for place, dim in symbolic.items():
        name = dim.dim_param
        size = dims.get(place, dims.get(name) if name else None)
        if size is None and (name or place) in batch:
            size = 1
        if size is None:
            missing.append(f"{name!r} ({place})" if name else place)
        else:
            dim.dim_value = size
    if missing:
        raise ModelError(f"symbolic dimensions need a size (--dim NAME=N): {', '.join(missing)}")
    return tuple(f"symbolic batch dimension {name!r} set to 1" for name in sorted(batch))
