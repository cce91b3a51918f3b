"""Cancel the views that lowering put around integer operators, and pull them out of the region."""

from dataclasses import replace

import numpy as np

from accelc.compiler.graph import Node, Origin, TensorType
from accelc.compiler.integer import ConvAttrs
from accelc.compiler.rewrite import Replacement, Rule, Scope

#: Integer operators that treat all elements alike, whatever the axes mean.
_ELEMENTWISE = ("int.lookup", "int.add")
_VIEWS = ("Transpose", "Reshape")
#: Kernels this long still fit the loop counters of one matrix instruction (isa Gemm n_k1, n_k2).
MAX_KERNEL = 255


def _sign_change(node: Node, scope: Scope) -> Replacement | None:
    """Merge a sign change with what computes its input: its inverse, or a quantization."""
    inner = scope.producer(node.inputs[0], "int.unsigned", "QuantizeLinear")
    if inner is not None and inner.op == "int.unsigned":
        return scope.done({node.outputs[0]: inner.inputs[0]})
    if inner is not None and scope.sole_use(node.inputs[0]):
        inputs = (*inner.inputs[:2], _shifted_zero(inner, scope))
        scope.emit(inner.op, inputs, node.outputs[0], _without_dtype(inner), name=inner.name)
        return scope.done()
    return None


def _signed_dequantize(node: Node, scope: Scope) -> Replacement | None:
    inner = scope.producer(node.inputs[0], "int.unsigned")
    if inner is None:
        return None
    inputs = (inner.inputs[0], node.inputs[1], _shifted_zero(node, scope))
    scope.emit(node.op, inputs, node.outputs[0], node.attrs, name=node.name)
    return scope.done()


def _without_dtype(node: Node) -> dict[str, object]:
    return {k: v for k, v in node.attrs.items() if k != "output_dtype"}


def _shifted_zero(node: Node, scope: Scope) -> str:
    """The node's uint8 zero point as int8 constant."""
    zero = scope.constant(node.input(2))
    scale = scope.constants[node.inputs[1]]
    zero = np.zeros(scale.shape, np.uint8) if zero is None else zero
    return scope.add_constant(f"{node.name}/zero", (zero.astype(np.int16) - 128).astype(np.int8))


def _hoist_signed(node: Node, scope: Scope) -> Replacement | None:
    """``view -> int.signed`` becomes ``int.signed -> view``."""
    view = scope.producer(node.inputs[0], *_VIEWS)
    if view is None or not scope.sole_use(node.inputs[0]):
        return None
    return _swap(view, node, scope)


def _sink_unsigned(node: Node, scope: Scope) -> Replacement | None:
    """``int.unsigned -> view`` becomes ``view -> int.unsigned``."""
    inner = scope.producer(node.inputs[0], "int.unsigned")
    return None if inner is None else _swap(inner, node, scope)


def _swap(first: Node, second: Node, scope: Scope) -> Replacement:
    """``first -> second`` as ``second -> first``; one is a view, the other elementwise."""
    source = scope.types[first.inputs[0]]
    view = second if second.op in _VIEWS else first
    shape = scope.shape(view.outputs[0]) if view is second else source.shape
    dtype = source.dtype if view is second else scope.types[second.outputs[0]].dtype
    quant = source.quant if view is second else scope.types[second.outputs[0]].quant
    middle = scope.emit(
        second.op,
        (first.inputs[0], *second.inputs[1:]),
        TensorType(shape, dtype, quant),
        second.attrs,
        name=second.name,
        hint=f"{first.inputs[0]}/{second.op.rpartition('.')[2].lower()}",
    )
    scope.emit(
        first.op, (middle, *first.inputs[1:]), second.outputs[0], first.attrs, name=first.name
    )
    return scope.done()


def _past_elementwise(node: Node, scope: Scope) -> Replacement | None:
    """``view -> int.lookup`` becomes ``int.lookup -> view``; ``int.add`` of equal views too."""
    operands = node.inputs[:2] if node.op == "int.add" else node.inputs[:1]
    views = [scope.producer(value, *_VIEWS) for value in operands]
    first = views[0]
    if first is None or not all(scope.sole_use(value) for value in operands):
        return None
    sources: list[str] = []
    for view in views:
        if view is None or view.op != first.op:
            return None
        if scope.shape(view.inputs[0]) != scope.shape(first.inputs[0]):
            return None
        if view.op == "Transpose" and view.attrs["perm"] != first.attrs["perm"]:
            return None
        sources.append(view.inputs[0])
    producers = [scope.producer(source) for source in sources]
    if len(scope.shape(sources[0])) != 4 or not any(
        p and p.op.startswith("int.") for p in producers
    ):
        return None  # the view would stay before the operator, or has no 4-dimensional source
    out = node.outputs[0]
    middle = scope.emit(
        node.op,
        (*sources, *node.inputs[len(operands) :]),
        replace(scope.types[out], shape=scope.shape(sources[0])),
        node.attrs,
        name=node.name,
        hint=f"{out}/moved",
    )
    step = tuple(first.attrs["perm"]) if first.op == "Transpose" else scope.shape(out)
    known = scope.origins.get(out, Origin(out))
    scope.origins[middle] = Origin(known.name, ((first.op, step), *known.steps))
    scope.emit(first.op, (middle, *first.inputs[1:]), out, first.attrs, name=first.name)
    return scope.done()


def _flatten_to_kernel(node: Node, scope: Scope) -> Replacement | None:
    """A fully connected layer of a flattened image to a convolution with a kernel of its size.

    ``int.conv -> [Transpose] -> Reshape(n, 1, 1, h*w*c) -> [int.resize] -> int.conv 1x1`` becomes
    ``int.conv -> [int.resize] -> int.conv h x w``, the weights reordered to ``(o, h, w, c)``.
    """
    if node.attrs["depthwise"]:
        return None
    conv: ConvAttrs = node.attrs["conv"]
    resize = scope.producer(node.inputs[0], "int.resize")
    fh, fw = resize.attrs["factors"] if resize is not None else (1, 1)
    reshaped = scope.producer(resize.inputs[0] if resize is not None else node.inputs[0], "Reshape")
    if reshaped is None or conv.kernel != (fh, fw) or any(conv.pads) or fh * fw > 2:
        return None
    flat = scope.shape(reshaped.outputs[0])
    moved = scope.producer(reshaped.inputs[0], "Transpose")
    source = reshaped.inputs[0] if moved is None else moved.inputs[0]
    made = scope.producer(source)
    shape = scope.shape(source)
    if len(flat) != 4 or len(shape) != 4 or made is None or not made.op.startswith("int."):
        return None
    perm = (0, 1, 2, 3) if moved is None else tuple(moved.attrs["perm"])
    n, h, w, c = shape
    if flat != (n, 1, 1, h * w * c) or perm[0] != 0 or max(h * fh, w * fw) > MAX_KERNEL:
        return None
    weights = scope.constants[node.inputs[1]]
    outputs = weights.shape[0]
    # (o, twice, axes as flattened) to (o, h, w, c) with the pair of a split weight innermost
    split = weights.reshape(outputs, fh * fw, *(shape[p] for p in perm[1:]))
    order = [1 + perm.index(axis) for axis in (1, 2, 3)]
    ordered = split.transpose(0, order[0], *((1, order[1]) if fh == 2 else (order[1], 1)), order[2])
    kernel = (h * fh, w * fw)
    made_weights = scope.add_constant(
        f"{node.name}/weights", np.ascontiguousarray(ordered.reshape(outputs, *kernel, c))
    )
    value = source
    if resize is not None:
        value = scope.emit(
            "int.resize",
            (source,),
            replace(scope.types[source], shape=(n, h * fh, w * fw, c)),
            resize.attrs,
            name=resize.name,
        )
    attrs = {**node.attrs, "conv": ConvAttrs(kernel=kernel, pad_value=conv.pad_value)}
    scope.emit(
        node.op, (value, made_weights, *node.inputs[2:]), node.outputs[0], attrs, name=node.name
    )
    return scope.done()


LAYOUTS = (
    Rule(
        "cancel-signs",
        "int.signed(int.unsigned(x)), int.signed(QuantizeLinear(x, s, z))",
        "x, QuantizeLinear(x, s, z - 128)",
        _sign_change,
        ("int.signed",),
    ),
    Rule(
        "signed-dequantize",
        "DequantizeLinear(int.unsigned(x), s, z)",
        "DequantizeLinear(x, s, z - 128)",
        _signed_dequantize,
        ("DequantizeLinear",),
    ),
    Rule(
        "signed-before-view",
        "int.signed(Transpose(x))",
        "Transpose(int.signed(x))",
        _hoist_signed,
        ("int.signed",),
    ),
    Rule(
        "unsigned-after-view",
        "Transpose(int.unsigned(x))",
        "int.unsigned(Transpose(x))",
        _sink_unsigned,
        _VIEWS,
    ),
    Rule(
        "view-after-elementwise",
        "int.lookup(Transpose(x)), int.add(Transpose(x), Transpose(y))",
        "Transpose(int.lookup(x)), Transpose(int.add(x, y))",
        _past_elementwise,
        _ELEMENTWISE,
    ),
    Rule(
        "flatten-to-kernel",
        "int.conv 1x1 (Reshape(x: n x h x w x c to n x 1 x 1 x hwc))",
        "int.conv h x w (x)",
        _flatten_to_kernel,
        ("int.conv",),
    ),
)
