"""Lower quantized ONNX patterns to integer operators, one node at a time.

Before, and after (the views around it cancel in ``passes.layout``)::

    DequantizeLinear(x), DequantizeLinear(w) -> Conv -> Relu -> QuantizeLinear = y
    x -> Transpose(to NHWC) -> int.conv -> Transpose(to NCHW) = y

What a pattern computes is kept exactly, or it is left alone with a reason (``refusal``).
"""

from collections.abc import Callable

import numpy as np

from accelc.compiler.contrib import short_name
from accelc.compiler.graph import Graph, Node
from accelc.compiler.passes.lower_add import lower_float_add, lower_qlinear_add
from accelc.compiler.passes.lower_concat import (
    lower_float_concat,
    lower_int_concat,
    lower_qlinear_concat,
    lower_resize,
)
from accelc.compiler.passes.lower_pad import lower_pad
from accelc.compiler.passes.lower_pool import lower_average, lower_maxpool, lower_qlinear_average
from accelc.compiler.passes.lower_table import (
    lower_function,
    lower_integer_relu,
    lower_qlinear_unary,
)
from accelc.compiler.passes.match_linear import (
    Clamp,
    constant_real,
    lower_float_linear,
    lower_qgemm,
    lower_qlinear_conv,
    lower_qlinear_matmul,
)
from accelc.compiler.passes.operands import Context, Target, quantize_target
from accelc.compiler.rewrite import Match, Refusal, Replacement, Rule, Scope
from accelc.isa.config import AccelConfig

#: Operators that only give the data another shape or order.
VIEWS = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")
_LINEAR = ("Conv", "MatMul", "Gemm")
_AVERAGE = ("AveragePool", "GlobalAveragePool", "ReduceMean")


def explain_refusals(graph: Graph, config: AccelConfig) -> tuple[Graph, int]:
    """``Graph.reasons`` says why the quantized patterns that are left could not be lowered."""
    scope = Scope(graph, config)
    entries = quantized_inputs(graph)
    reasons: dict[str, str] = {}
    claimed: set[str] = set()
    for node in graph.nodes:
        reason = _refusal(node, config, scope)
        if reason is not None and not entries.intersection(node.outputs):
            reasons.update((part.name, reason) for part in _pattern(node, scope, claimed))
    return graph.with_(reasons=reasons), len(reasons)


def quantized_inputs(graph: Graph) -> frozenset[str]:
    """Outputs of the QuantizeLinear nodes that quantize an input of the model, through views at
    most."""
    early = set(graph.inputs)
    found: set[str] = set()
    for node in graph.nodes:
        if node.op in VIEWS and node.inputs[0] in early:
            early.add(node.outputs[0])
        elif node.op == "QuantizeLinear" and node.inputs[0] in early:
            found.add(node.outputs[0])
    return frozenset(found)


def _pattern(root: Node, scope: Scope, claimed: set[str]) -> list[Node]:
    """The float nodes of the quantized pattern that ends in ``root``, and ``root``.

    ``claimed`` are the names of nodes that belong to an earlier pattern, and grows.
    """
    parts = [root]
    claimed.add(root.name)
    pending = [root.inputs[0]] if root.op == "QuantizeLinear" else []
    while pending:
        node = scope.producer(pending.pop())
        if node is None or node.name in claimed or node.op == "QuantizeLinear":
            continue
        if node.op.startswith("int."):
            continue
        claimed.add(node.name)
        parts.append(node)
        if node.op in ("Relu", "Clip", "Add"):
            pending.extend(node.inputs)
        elif node.op != "DequantizeLinear":
            # an operator's quantized operands belong to it, what computes others does not
            pending.extend(v for v in node.inputs if scope.producer(v, "DequantizeLinear"))
    return parts


def _refusal(node: Node, config: AccelConfig, scope: Scope) -> str | None:
    """Why ``node``, the root of a quantized pattern, was not lowered; ``None`` if it is no root."""
    rule = _ROOTS.get(short_name(node.op))
    if rule is None:
        return None
    try:
        rule(Context(scope, config, node))
    except Refusal as reason:
        return str(reason)
    finally:
        scope.abandon()
    return None


def _lowering(rule: Callable[[Context], None]) -> Match:
    def match(node: Node, scope: Scope) -> Replacement | None:
        rule(Context(scope, scope.config, node))
        return scope.done()

    return match


def _quantize_linear(context: Context) -> None:
    """What is quantized here: a function of one tensor, or a linear layer, pool, sum or join."""
    scope, node = context.scope, context.node
    result = quantize_target(node, scope)
    if lower_function(context, result, node.inputs[0]):
        return
    anchor, clamp = _through_clamps(scope, node.inputs[0], result)
    biases: tuple[str, ...] = ()
    linear = anchor
    if anchor.op == "Add":
        # a bias is added to the accumulator; two activations are int.add
        for value, bias in (anchor.inputs, anchor.inputs[::-1]):
            producer = scope.producer(value, *_LINEAR)
            if producer is not None and constant_real(scope, bias) is not None:
                linear, biases = producer, (bias,)
    named = Context(scope, context.config, node.with_(name=linear.name))
    if linear.op in _LINEAR:
        lower_float_linear(named, linear, biases, result, clamp)
    elif anchor.op in _AVERAGE:
        lower_average(named, anchor, result, clamp)
    elif anchor.op in ("Add", "Sub"):
        lower_float_add(named, anchor, result, clamp)
    elif anchor.op == "Concat" and clamp == Clamp():
        lower_float_concat(named, anchor, result)
    else:
        raise Refusal(f"what is quantized is computed by {anchor.op}")


def _through_clamps(scope: Scope, value: str, result: Target) -> tuple[Node, Clamp]:
    """The node before the Relu and Clip that end in ``value``, and their bounds as int8 results.

    ``quantize(clip(x, a, b)) = clip(quantize(x), quantize(a), quantize(b))``: it is monotonic.
    """
    low, high = -128, 127
    while True:
        node = scope.producer(value)
        if node is None:
            raise Refusal("what is quantized is an input or a constant")
        bounds = _bounds(scope, node)
        if bounds is None:
            return node, Clamp(low, high)
        # the outermost clamp decides: clip(clip(x, a, b), low, high)
        a, b = (result.quantize(bound) for bound in bounds)
        low, high = (int(np.clip(bound, low, high)) for bound in (a, b))
        value = node.inputs[0]


def _bounds(scope: Scope, node: Node) -> tuple[float, float] | None:
    if node.op == "Relu":
        return 0.0, float("inf")
    found = [float(node.attrs.get("min", -np.inf)), float(node.attrs.get("max", np.inf))]
    if node.op in ("Max", "Min") and len(node.inputs) == 2:
        bound = constant_real(scope, node.inputs[1])
        if bound is None or bound.size != 1:
            return None
        found["Max Min".split().index(node.op)] = float(bound.reshape(()))
        return found[0], found[1]
    if node.op != "Clip":
        return None
    for k, value in enumerate(node.inputs[1:3]):
        if value:
            bound = constant_real(scope, value)  # QDQ tools quantize even bounds
            if bound is None or bound.size != 1:
                raise Refusal("Clip with bounds computed at run time")
            found[k] = float(bound.reshape(()))
    # ONNX: where min exceeds max, the result is max
    return min(found[0], found[1]), found[1]


def _integer_only(rule: Callable[[Context], None]) -> Callable[[Context], None]:
    """Apply ``rule`` to nodes whose data is int8 or uint8 already; others are no roots."""

    def guarded(context: Context) -> None:
        found = context.scope.types[context.node.inputs[0]]
        if found.dtype not in (np.int8, np.uint8):
            raise Refusal(f"computes on {found.dtype}, not on quantized data")
        rule(context)

    return guarded


#: Name, what it lowers, to what, how, and the operators whose nodes it starts from.
_LOWERINGS: tuple[tuple[str, str, str, Callable[[Context], None], tuple[str, ...]], ...] = (
    (
        "lower-quantize",
        "QuantizeLinear(f(DequantizeLinear(x)...)): f linear, a pool, sum, join or elementwise",
        "int.conv, int.matmul, int.add, int.concat, int.lookup or int.scale of x",
        _quantize_linear,
        ("QuantizeLinear",),
    ),
    ("lower-qlinear-conv", "QLinearConv(x, w)", "int.conv", lower_qlinear_conv, ("QLinearConv",)),
    (
        "lower-qlinear-matmul",
        "QLinearMatMul(x, w)",
        "int.conv, or int.matmul of two activations",
        lower_qlinear_matmul,
        ("QLinearMatMul",),
    ),
    (
        "lower-qgemm",
        "QGemm(x, w)",
        "int.conv, or int.matmul of two activations",
        lower_qgemm,
        ("QGemm",),
    ),
    ("lower-qlinear-add", "QLinearAdd(a, b)", "int.add", lower_qlinear_add, ("QLinearAdd",)),
    (
        "lower-qlinear-average",
        "QLinearAveragePool(x), QLinearGlobalAveragePool(x)",
        "int.conv, depthwise, of ones",
        lower_qlinear_average,
        ("QLinearAveragePool", "QLinearGlobalAveragePool"),
    ),
    (
        "lower-qlinear-unary",
        "QLinearSigmoid(x), QLinearLeakyRelu(x)",
        "int.lookup",
        lower_qlinear_unary,
        ("QLinearSigmoid", "QLinearLeakyRelu"),
    ),
    (
        "lower-qlinear-concat",
        "QLinearConcat(a, b)",
        "int.concat",
        lower_qlinear_concat,
        ("QLinearConcat",),
    ),
    (
        "lower-maxpool",
        "MaxPool(x: int8), GlobalMaxPool(x: int8)",
        "int.maxpool",
        _integer_only(lower_maxpool),
        ("MaxPool", "GlobalMaxPool"),
    ),
    (
        "lower-concat",
        "Concat(a: int8, b)",
        "int.concat",
        _integer_only(lower_int_concat),
        ("Concat",),
    ),
    (
        "lower-pad",
        "Pad(x: int8)",
        "int.conv, depthwise, of ones",
        _integer_only(lower_pad),
        ("Pad",),
    ),
    (
        "lower-resize",
        "Resize(x: int8, by whole factors, nearest), Upsample",
        "int.resize",
        _integer_only(lower_resize),
        ("Resize", "Upsample"),
    ),
    (
        "lower-clamp",
        "Relu, Clip, Max, Min (x: int8)",
        "int.lookup",
        _integer_only(lower_integer_relu),
        ("Relu", "Clip", "Max", "Min"),
    ),
)


def _names(op: str) -> tuple[str, ...]:
    """An operator's names in a graph: QLinear ones come from two domains."""
    return (op, f"com.microsoft.{op}") if op.startswith(("QLinear", "QGemm")) else (op,)


LOWER = tuple(
    Rule(name, before, after, _lowering(rule), tuple(n for op in ops for n in _names(op)))
    for name, before, after, rule, ops in _LOWERINGS
)
_ROOTS = {op: rule for _, _, _, rule, ops in _LOWERINGS for op in ops}
