"""Rules between the operands of one node that neither onnx.checker nor its inference checks."""

import re
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

from onnx import AttributeProto, NodeProto

from accelc.compiler.geometry import pool_output
from accelc.compiler.graph import Node, TensorType
from accelc.isa.errors import ModelError

Types = Mapping[str, TensorType]
Rule = Callable[[Node, Types], None]
#: A value larger than this is a mistake in the model: no machine this runs on holds it.
MAX_VALUE_BYTES = 1 << 40
#: What NumPy holds.
MAX_RANK = 64
#: Largest window, stride, dilation or padding along one axis.
MAX_EXTENT = 1 << 20
#: Attributes with an extent, or one per axis.
_EXTENTS = frozenset(
    "kernel_shape strides dilations pads output_padding output_shape size max_skip_count"
    " max_gram_length sampling_ratio blocksize".split()
)
#: Attributes of windows that have one number an axis; ``pads`` has two.
_PER_AXIS = ("kernel_shape", "strides", "dilations", "output_padding", "output_shape")

#: What Einsum computes: letters, and at most one ellipsis, of each operand.
_TERM = r"[a-zA-Z]*(\.\.\.[a-zA-Z]*)?"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")


def check_operands(node: Node, types: Types) -> None:
    """Check ``node``, whose inputs are typed, before anything of it is evaluated.

    Raises:
        ModelError: attributes nobody means, or inputs no memory can hold.
    """
    for key in _EXTENTS & node.attrs.keys():
        value = node.attrs[key]
        found = value if isinstance(value, tuple) else (value,)
        if any(isinstance(v, int) and abs(v) > MAX_EXTENT for v in found):
            raise _error(node, f"{key} {list(found)} goes beyond {MAX_EXTENT}")
    for name in node.inputs:
        _check_size(node, name, types)


def check_node(node: Node, types: Types) -> None:
    """Check the shapes of ``node``, whose inputs and outputs are typed.

    Raises:
        ModelError: operands that do not belong together, or a result no memory can hold.
    """
    rule = _RULES.get(node.op)
    if rule is not None:
        rule(node, types)
    for name in node.outputs:
        if name in types and min(types[name].shape, default=0) < -1:
            raise _error(node, f"its result {name!r} has the shape {list(types[name].shape)}")
        _check_size(node, name, types)


def check_attributes(nodes: Iterable[NodeProto]) -> None:
    """Check what onnx's shape inference does not survive, in ``nodes`` and their bodies.

    Raises:
        ModelError: it would end this process, or take all of its memory.
    """
    for node in nodes:
        numbers = {a.name: a.i for a in node.attribute if a.type == AttributeProto.INT}
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                check_attributes(body.node)
        name, outputs = node.name or "".join(node.output[:1]), len(node.output)
        if node.op_type == "Split" and numbers.get("num_outputs", outputs) != outputs:
            parts = numbers["num_outputs"]
            raise ModelError(f"Split {name!r}: num_outputs is {parts}, it has {outputs} outputs")
        if node.op_type == "GatherND" and numbers.get("batch_dims", 0) < 0:
            raise ModelError(f"GatherND {name!r}: batch_dims is {numbers['batch_dims']}, below 0")
        if node.op_type == "Einsum":
            for text in (a.s.decode(errors="replace") for a in node.attribute if a.s):
                if not _EQUATION.fullmatch(text.replace(" ", "")):
                    raise ModelError(
                        f"Einsum {name!r}: {text[:80]!r} is no equation, like ij,jk->ik"
                    )
        if node.op_type == "LayerNormalization" and abs(numbers.get("axis", -1)) > MAX_RANK:
            raise ModelError(
                f"LayerNormalization {name!r}: axis is {numbers['axis']}, no value has more than "
                f"{MAX_RANK} dimensions"
            )


def _check_size(node: Node, name: str, types: Types) -> None:
    if name not in types:
        return
    found = types[name]
    if len(found.shape) > MAX_RANK:
        rank = len(found.shape)
        raise _error(node, f"{name!r} has {rank} dimensions, more than {MAX_RANK}")
    if -1 not in found.shape and prod(found.shape) * found.dtype.itemsize > MAX_VALUE_BYTES:
        raise _error(node, f"{name!r} has the shape {list(found.shape)}, more than 1 TiB")


def _error(node: Node, problem: str) -> ModelError:
    return ModelError(f"{node.op} {node.name!r}: {problem}")


def _shape(node: Node, index: int, types: Types) -> tuple[int, ...] | None:
    """The shape of an input, or None if it is absent or depends on data."""
    name = node.input(index)
    if not name or types[name].dtype == object or -1 in types[name].shape:
        return None
    return types[name].shape


def _scale(node: Node, types: Types) -> None:
    """QuantizeLinear and DequantizeLinear: one scale, one per slice along ``axis``, or blocks."""
    x, scale = _shape(node, 0, types), _shape(node, 1, types)
    zero = _shape(node, 2, types)
    if x is None or scale is None:
        return
    if zero is not None and prod(zero) != prod(scale):
        raise _error(node, f"its scale is {list(scale)}, its zero point {list(zero)}")
    if prod(scale) == 1:
        return
    axis = node.attrs.get("axis", 1)
    if len(x) == 1 and axis == 1:
        axis = 0  # the default, which means the only axis there is
    if not -len(x) <= axis < len(x):
        raise _error(node, f"axis {axis} is out of range for {list(x)}")
    if node.attrs.get("block_size", 0) or len(scale) != 1:
        fits = len(scale) == len(x) and all(0 < s <= d for s, d in zip(scale, x, strict=True))
    else:
        fits = scale[0] == x[axis]
    if not fits:
        raise _error(node, f"a scale of shape {list(scale)} does not fit {list(x)} at axis {axis}")


def _convolution(weights: int, bias: int, transposed: bool = False) -> Rule:
    """The rule of a convolution whose weights and bias are the inputs at these positions."""

    def rule(node: Node, types: Types) -> None:
        x, w, b = (_shape(node, index, types) for index in (0, weights, bias))
        if x is None or w is None:
            return
        groups = node.attrs.get("group", 1)
        if len(x) != len(w) or len(x) < 3:
            raise _error(node, f"weights {list(w)} do not fit the input {list(x)}")
        if groups < 1 or w[0] % groups or x[1] % groups:
            raise _error(node, f"{x[1]} channels and weights {list(w)} cannot form {groups} groups")
        reads = w[0] if transposed else w[1] * groups
        if x[1] != reads:
            raise _error(node, f"its input has {x[1]} channels, its weights need {reads}")
        outputs = w[1] * groups if transposed else w[0]
        if b is not None and b != (outputs,):
            raise _error(node, f"its bias is {list(b)}, not [{outputs}]")
        kernel = tuple(node.attrs.get("kernel_shape", w[2:]))
        if kernel != w[2:]:
            raise _error(node, f"kernel_shape {list(kernel)} is not that of its weights {list(w)}")
        _axes(node, len(x) - 2)
        if not transposed:
            _window({**node.attrs, "kernel_shape": kernel}, node, x)

    return rule


def _pool(node: Node, types: Types) -> None:
    x = _shape(node, 0, types)
    if x is not None:
        _axes(node, len(x) - 2)
        _window(node.attrs, node, x)
    if node.op == "LpPool" and node.attrs.get("p", 2) < 1:
        raise _error(node, f"p is {node.attrs['p']}, below 1")


def _axes(node: Node, rank: int) -> None:
    """Check that attributes with a number per spatial axis have one for each, and possible ones."""
    for key in (*_PER_AXIS, "pads"):
        found = node.attrs.get(key)
        if found is None or found == ():
            continue
        count = 2 * rank if key == "pads" else rank
        # ConvTranspose may state the whole shape
        whole = key == "output_shape" and len(found) == rank + 2
        if len(found) != count and not whole:
            raise _error(node, f"{key} {list(found)} has not {count} numbers")
        least = 0 if key in ("pads", "output_padding", "output_shape") else 1
        if key != "pads" and min(found) < least:
            raise _error(node, f"{key} {list(found)} is below {least}")


def _window(attrs: Mapping[str, Any], node: Node, x: tuple[int, ...]) -> None:
    if any(size < 1 for size in pool_output(attrs, x[2:])) and 0 not in x:
        kernel = list(attrs["kernel_shape"])
        raise _error(node, f"its window {kernel} is larger than its padded input {list(x)}")


def _recurrent(gates: int) -> Rule:
    """The rule of a recurrent layer whose weights hold ``gates`` matrices a direction."""

    def rule(node: Node, types: Types) -> None:
        w, r, bias = (_shape(node, index, types) for index in (1, 2, 3))
        if w is None or r is None:
            return
        if len(w) != 3 or len(r) != 3:
            raise _error(node, f"its weights are {list(w)} and {list(r)}, not of three dimensions")
        directions = 2 if node.attrs.get("direction", "forward") == "bidirectional" else 1
        hidden = node.attrs.get("hidden_size", r[2])
        if hidden < 1 or w[:2] != (directions, gates * hidden) or r != (*w[:2], hidden):
            raise _error(node, f"weights {list(w)} and {list(r)} do not fit hidden_size {hidden}")
        if bias is not None and bias != (directions, 2 * gates * hidden):
            raise _error(node, f"its bias is {list(bias)}, not {[directions, 2 * gates * hidden]}")

    return rule


def _gemm(node: Node, types: Types) -> None:
    a, b, c = (_shape(node, index, types) for index in range(3))
    if a is None or b is None or c is None:
        return
    rows = a[1] if node.attrs.get("transA", 0) else a[0]
    columns = b[0] if node.attrs.get("transB", 0) else b[1]
    padded = (1, 1, *c)[-2:]
    if len(c) > 2 or padded[0] not in (1, rows) or padded[1] not in (1, columns):
        raise _error(node, f"its bias {list(c)} does not broadcast to [{rows}, {columns}]")


def _batch_normalization(node: Node, types: Types) -> None:
    x = _shape(node, 0, types)
    if x is None:
        return
    channels = x[1] if len(x) > 1 else 1
    for index in range(1, 5):
        found = _shape(node, index, types)
        if found is not None and found != (channels,):
            raise _error(node, f"{node.inputs[index]!r} is {list(found)}, not [{channels}]")


def _scan(node: Node, types: Types) -> None:
    count, plain = node.attrs["num_scan_inputs"], len(node.inputs)
    plain -= len(node.attrs.get("captured", ()))
    if not 0 < count <= plain:
        raise _error(node, f"num_scan_inputs is {count}, it has {plain} inputs")
    scanned = len(node.attrs["body"].output) - (plain - count)
    for key in ("scan_input_axes", "scan_input_directions", "directions"):
        found = node.attrs.get(key, ())
        if len(found) not in (0, count):
            raise _error(node, f"{key} {list(found)} has not {count} numbers")
    for key in ("scan_output_axes", "scan_output_directions"):
        found = node.attrs.get(key, ())
        if len(found) not in (0, scanned):
            raise _error(node, f"{key} {list(found)} has not {scanned} numbers")
    axes = node.attrs.get("scan_input_axes", ())
    for position, axis in enumerate(axes, plain - count):
        x = _shape(node, position, types)
        if x is not None and not -len(x) <= axis < len(x):
            raise _error(node, f"axis {axis} is out of range for {list(x)}")


_RULES: dict[str, Rule] = {
    "QuantizeLinear": _scale,
    "DequantizeLinear": _scale,
    "Conv": _convolution(1, 2),
    "ConvInteger": _convolution(1, 4),
    "QLinearConv": _convolution(3, 8),
    "ConvTranspose": _convolution(1, 2, transposed=True),
    "RNN": _recurrent(1),
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    "BatchNormalization": _batch_normalization,
    "Gemm": _gemm,
    "Scan": _scan,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "LpPool": _pool,
}
