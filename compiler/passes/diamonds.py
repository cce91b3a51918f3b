"""Fusion to the post-dominator: all that lies between one int8 value and one result, as one table.

Where every path from a value ``x`` ends in one QuantizeLinear or ``int.add`` and all operators on
them are elementwise, the result is a function of ``x`` alone, however many rounding steps the paths
have: 256 values tell all about it.
"""

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.graph import Array, Node
from accelc.compiler.integer import Post
from accelc.compiler.integer_reference import run_integer
from accelc.compiler.onnx_node import run
from accelc.compiler.passes.lower_table import ELEMENTWISE, MAX_REGION_NODES, emit_table, quantize
from accelc.compiler.passes.operands import (
    Context,
    Operand,
    dequantized,
    quantize_target,
    require_int8,
)
from accelc.compiler.rewrite import Refusal, Replacement, Rule, Scope

_EVERY = np.arange(-128, 128, dtype=np.int64)


class _Region:
    """The elementwise nodes above one QuantizeLinear, and the integers they start from."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.nodes: dict[str, Node] = {}
        self.frontier: set[str] = set()

    def climb(self, value: str) -> None:
        """Collect what computes the float ``value``, up to the integers.

        Raises:
            Refusal: something on the way is not elementwise, or there is too much of it.
        """
        pending = [value]
        while pending:
            name = pending.pop()
            array = self.scope.constant(name)
            if array is not None:
                if array.size != 1:
                    raise Refusal("a constant that is no scalar")
                continue
            if name in self.nodes:
                continue
            node = self.scope.producer(name)
            if node is None or len(node.outputs) != 1 or len(self.nodes) > MAX_REGION_NODES:
                raise Refusal("no function of integers")
            self.nodes[name] = node
            if node.op == "DequantizeLinear":
                if self.scope.constant(node.inputs[0]) is None:
                    self.frontier.add(node.inputs[0])
            elif node.op in ELEMENTWISE:
                pending.extend(name for name in node.inputs if name)
            else:
                raise Refusal(f"{node.op} is not elementwise")

    def narrow(self) -> str:
        """Climb on until one value is left that everything comes from, and return it.

        Of several values the one computed last cannot be where the others come from.
        """
        while len(self.frontier) > 1:
            value = max(self.frontier, key=self.scope.position)
            self.frontier.discard(value)
            node = self.scope.producer(value, "QuantizeLinear")
            if node is None:
                raise Refusal("a function of several values")
            self.nodes[value] = node
            self.climb(node.inputs[0])
        return next(iter(self.frontier))

    def operand(self, node: Node) -> Operand:
        found = dequantized(self.scope, node.outputs[0])
        assert found is not None
        return require_int8(found)

    def evaluate(self, source: str, value: str) -> NDArray[np.float32]:
        """The float ``value`` for every value of ``source``, ``(256,)``."""
        integers: dict[str, Array] = {source: _EVERY}
        floats: dict[str, Array] = {}
        for name in sorted(self.nodes, key=self.scope.position):
            node = self.nodes[name]
            if node.op == "QuantizeLinear":
                real = np.broadcast_to(floats[node.inputs[0]], (256,))
                integers[name] = quantize(real, quantize_target(node, self.scope)).astype(np.int64)
            elif node.op == "DequantizeLinear" and node.inputs[0] in integers:
                x = self.operand(node)
                real = (integers[node.inputs[0]] - x.scalar_zero).astype(np.float32)
                floats[name] = real * x.scalar_scale
            else:
                given = [
                    None if not n else floats[n] if n in floats else self.scope.constants[n]
                    for n in node.inputs
                ]
                floats[name] = run(node, given, self.scope.opset)[0]
        return np.broadcast_to(floats[value], (256,)).astype(np.float32)


def _quantized_diamond(node: Node, scope: Scope) -> Replacement | None:
    if not scope.config.lut:
        return None
    result = quantize_target(node, scope)
    region = _Region(scope)
    region.climb(node.inputs[0])
    if len(region.frontier) < 2:
        return None  # lowering makes a table of it
    source = region.narrow()
    entry = next(n for n in region.nodes.values() if n.inputs[0] == source)
    x = region.operand(entry)
    if x.shape != result.shape:
        return None
    table = quantize(region.evaluate(source, node.inputs[0]), result)
    emit_table(Context(scope, scope.config, node), x, table, result)
    return scope.done()


def _looked_up(value: str, scope: Scope) -> tuple[str, Array]:
    """Where ``value`` comes from through one table at most, and the table ``(256,)`` int8."""
    node = scope.producer(value, "int.lookup")
    if node is None:
        return value, _EVERY.astype(np.int8)
    return node.inputs[0], scope.constants[node.inputs[1]]


def _sum_of_one(node: Node, scope: Scope) -> Replacement | None:
    """``int.add`` of a value and a function of it, or of two functions, or of a constant."""
    if not scope.config.lut:
        return None
    a, b = node.inputs[:2]
    identity = _EVERY.astype(np.int8)
    addend = scope.constant(b)
    source, left, right = a, identity, identity
    if addend is not None:
        if not addend.size or addend.min() != addend.max():
            return None
        right = np.full(256, addend.reshape(-1)[0], np.int8)
    elif a != b:
        (from_a, table_a), (from_b, table_b) = _looked_up(a, scope), _looked_up(b, scope)
        if from_a == from_b:
            source, left, right = from_a, table_a, table_b
        elif from_a == b:
            source, left = b, table_a
        elif from_b == a:
            right = table_b
        else:
            return None
    extra = [scope.constants[name] for name in node.inputs[2:]]
    columns = [np.ascontiguousarray(t).reshape(1, 1, 256, 1) for t in (left, right)]
    table = run_integer(node, [*columns, *extra]).reshape(256)
    scope.emit(
        "int.lookup",
        (source, scope.add_constant(f"{node.name}/table", table)),
        node.outputs[0],
        {"post": Post(table=True)},
        name=node.name,
    )
    return scope.done()


DIAMONDS = (
    Rule(
        "diamond-into-table",
        "QuantizeLinear(f(x, QuantizeLinear(g(x))...)), f and g elementwise: x * Sigmoid(x)",
        "int.lookup(x)",
        _quantized_diamond,
        ("QuantizeLinear",),
    ),
)
REQUANTIZATIONS = (
    Rule(
        "sum-of-one-as-table",
        "int.add(x, int.lookup(x)), int.add(int.lookup(x), int.lookup(x)), int.add(x, scalar)",
        "int.lookup(x)",
        _sum_of_one,
        ("int.add",),
    ),
)
