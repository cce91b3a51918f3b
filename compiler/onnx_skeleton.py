"""What inference needs of a model: its nodes with static inputs, without the weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from accelc.isa.errors import ModelError

#: Constants up to this many elements are evaluated while shapes are inferred.
SHAPE_CONSTANT_ELEMS = 4096
#: Largest size of a symbolic dimension; ONNX holds sizes in 64 bits, nobody's memory that much.
MAX_DIMENSION = (1 << 31) - 1


#: What exporters write for a dimension they know nothing of; equal ones need not be equal sizes.
ANONYMOUS = frozenset(("", "?", "None", "none", "-1", "unknown"))


@dataclass(frozen=True)
class Skeleton:
    """A model without its weights, for inference, whose inputs have all the sizes there are.

    ``declared`` are the types the model itself states for its outputs and inner values,
    ``symbols`` the names of the dimensions that stay open, as in ``Graph``.
    """

    proto: ModelProto
    declared: dict[str, onnx.TypeProto]
    notes: tuple[str, ...]
    symbols: dict[str, tuple[str, ...]]


def skeleton(proto: ModelProto, dims: Mapping[str, int], dynamic: bool = False) -> Skeleton:
    """Fix the dimensions of the model's inputs: by ``dims``; of the others, unless they may stay
    open (``dynamic``), the batch to 1.

    Raises:
        ModelError: a dimension without size, a name that is no dimension, an input without shape.
    """
    for name, size in dims.items():
        if not isinstance(size, int | np.integer) or not 1 <= size <= MAX_DIMENSION:
            raise ModelError(f"dimension {name!r} must be from 1 to {MAX_DIMENSION}, not {size!r}")
    graph = proto.graph
    light = _head(proto)
    light.graph.node.extend(graph.node)
    for tensor in graph.initializer:
        if _small(tensor):
            light.graph.initializer.append(tensor)
        else:
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            light.graph.input.append(info)
    initializers = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in initializers]
    light.graph.input.extend(inputs)
    own = light.graph.input[len(light.graph.input) - len(inputs) :]
    notes = _fix_dimensions(own, dims, dynamic)
    # Shapes stated for other values may name the symbols: inference states them afresh, and only
    # what it cannot infer is taken from the model.
    declared: dict[str, onnx.TypeProto] = {}
    for value in (*graph.value_info, *graph.output):
        declared[value.name] = value.type
    for value in graph.output:
        light.graph.output.add(name=value.name)
    return Skeleton(light, declared, notes, _symbols(own))


def _head(proto: ModelProto) -> ModelProto:
    light = ModelProto(ir_version=proto.ir_version)
    light.opset_import.extend(proto.opset_import)
    light.graph.name = proto.graph.name
    return light


def _small(tensor: TensorProto) -> bool:
    return int(np.prod(tensor.dims, dtype=np.int64)) <= SHAPE_CONSTANT_ELEMS


def without_weights(proto: ModelProto) -> ModelProto:
    """All of a model but its large constants, which become inputs: what onnx checks need not be
    gigabytes."""
    graph = proto.graph
    light = _head(proto)
    own = light.graph
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(own, name).extend(getattr(graph, name))
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL and _small(tensor):
            own.initializer.append(tensor)
        elif tensor.name not in inputs:
            own.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return light


def _open_dimensions(
    inputs: Sequence[onnx.ValueInfoProto],
) -> dict[str, tuple[onnx.TensorShapeProto.Dimension, str]]:
    """Dimensions without a size, and the name they go by, by their place ``INPUT.AXIS``."""
    found: dict[str, tuple[onnx.TensorShapeProto.Dimension, str]] = {}
    for value in inputs:
        if not value.type.HasField("tensor_type"):
            continue
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value < 0:
                place = f"{value.name}.{axis}"
                found[place] = dim, place if dim.dim_param in ANONYMOUS else dim.dim_param
    return found


def _symbols(inputs: Sequence[onnx.ValueInfoProto]) -> dict[str, tuple[str, ...]]:
    names = {place: name for place, (_, name) in _open_dimensions(inputs).items()}
    result: dict[str, tuple[str, ...]] = {}
    for value in inputs:
        rank = len(value.type.tensor_type.shape.dim)
        axes = tuple(names.get(f"{value.name}.{axis}", "") for axis in range(rank))
        if any(axes):
            result[value.name] = axes
    return result


def _fix_dimensions(
    inputs: Sequence[onnx.ValueInfoProto], dims: Mapping[str, int], dynamic: bool
) -> tuple[str, ...]:
    """Give the dimensions of ``inputs`` their numbers, in place; notes about the ones chosen."""
    found = _open_dimensions(inputs)
    known = {*found, *(name for _, name in found.values())}
    if unknown := sorted(set(dims) - known):
        listed = ", ".join(repr(name) for name in sorted(known)) or "none"
        raise ModelError(f"the model has no symbolic dimension {unknown}; it has {listed}")
    batch = {
        name
        for place, (_, name) in found.items()
        if place.endswith(".0") and place not in dims and name not in dims and not dynamic
    }
    missing: list[str] = []
    for place, (dim, name) in found.items():
        size = dims.get(place, dims.get(name))
        if size is None and name in batch:
            size = 1
        if size is not None:
            dim.dim_value = size
        elif dynamic:
            dim.dim_param = name
        else:
            missing.append(place if name == place else f"{name!r} ({place})")
    if missing:
        raise ModelError(
            f"symbolic dimensions need a size (--dim NAME=N): {', '.join(missing)};"
            " for the CPU alone (--target cpu) they may stay open"
        )
    return tuple(f"symbolic batch dimension {name!r} set to 1" for name in sorted(batch))
