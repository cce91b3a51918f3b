"""From nodes to kernel calls: who lowers what, and what is left to the reference."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from accelc.compiler.cpu import (
    conv,
    integer,
    matmul,
    move,
    normalize,
    pool,
    quantize_nodes,
    reduce,
    resize,
)
from accelc.compiler.cpu.elementwise import group_nodes, is_elementwise, lower_group, single
from accelc.compiler.cpu.narrow import is_narrow_float
from accelc.compiler.cpu.plan import NotNative, Plan, ReferenceCall
from accelc.compiler.cpu.target import Target, host_target
from accelc.compiler.graph import Graph, Node
from accelc.compiler.onnx_node import run
from accelc.isa.errors import ModelError, UnsupportedOpError

Lowering = Callable[[Plan, Node], None]

LOWERINGS: dict[str, Lowering] = {
    **conv.LOWERINGS,
    **integer.LOWERINGS,
    **matmul.LOWERINGS,
    **move.LOWERINGS,
    **normalize.LOWERINGS,
    **pool.LOWERINGS,
    **quantize_nodes.LOWERINGS,
    **reduce.LOWERINGS,
    **resize.LOWERINGS,
}


def lower_node(plan: Plan, nodes: Sequence[Node]) -> None:
    """Append the kernel calls of one node, or of one chain of elementwise nodes.

    Raises:
        NotNative: there is no native kernel; the plan is then as before.
    """
    node = nodes[-1]
    mark, aliases = len(plan.steps), dict(plan.aliases)
    plan.current = node.name
    try:
        if widened(plan, nodes):
            pass
        elif len(nodes) > 1 and nodes[0].op == "Conv":
            conv.lower_conv(plan, nodes[0], nodes[1:])
        elif is_elementwise(node):
            lower_group(plan, nodes)
        elif lowering := LOWERINGS.get(node.op):
            lowering(plan, node)
        else:
            raise NotNative(f"no kernel for {node.op}")
    except NotNative:
        del plan.steps[mark:]
        plan.aliases = aliases
        raise


def widened(plan: Plan, nodes: Sequence[Node]) -> bool:
    """Lower one node on narrow floats as the same on float32, with conversions around it.

    Elementwise operators and those that only move elements take narrow types as they are.
    """
    node = nodes[0]
    if len(nodes) > 1 or is_elementwise(node) or node.op in move.LOWERINGS:
        return False
    lowering = LOWERINGS.get(node.op)
    narrow = {n for n in (*node.inputs, *node.outputs) if n and is_narrow_float(plan.dtype(n))}
    if not narrow or lowering is None:
        return False
    wide: dict[str, str] = {}
    for name in sorted(narrow):
        known = plan.known(name)
        if known is not None:
            wide[name] = plan.constant(known.astype(np.float32))
            continue
        wide[name] = plan.temporary(plan.shape(name), np.float32)
        if name in node.inputs:
            single(plan, "Cast", [(name, plan.shape(name))], (True,), wide[name], plan.shape(name))
    inputs = tuple(wide.get(name, name) for name in node.inputs)
    outputs = tuple(wide.get(name, name) for name in node.outputs)
    lowering(plan, node.with_(inputs=inputs, outputs=outputs))
    for name in node.outputs:
        if name in wide:
            shape = plan.shape(name)
            single(plan, "Cast", [(wide[name], shape)], (True,), name, shape)
    return True


def supports(node: Node, graph: Graph) -> bool:
    """Whether ``node`` of ``graph`` has a native kernel for its shapes, types and attributes."""
    try:
        lower_node(Plan(graph, host_target()), [node])
    except NotNative:
        return False
    return True


#: Operators whose result differs from run to run.
_RANDOM = ("Random", "Multinomial", "Bernoulli", "Dropout")


def fold_constants(graph: Graph) -> Graph:
    """Evaluate what depends on constants only (dequantized weights, say): a compile-time matter.

    ``y = Dequantize(w)``, ``z = Conv(x, y)`` becomes ``z = Conv(x, y)`` with ``y`` a constant.
    """
    constants = dict(graph.constants)
    kept: list[Node] = []
    for node in graph.nodes:
        known = all(name in constants for name in node.inputs if name)
        plain = not node.op.startswith(("int.", *_RANDOM)) and "." not in node.op
        if not (known and plain) or "captured" in node.attrs:
            kept.append(node)
            continue
        inputs = [constants[name] if name else None for name in node.inputs]
        try:
            results = run(node, inputs, graph.opset)
        except ModelError:
            kept.append(node)  # what the reference cannot do, a kernel may
            continue
        if not all(isinstance(value, np.ndarray | np.generic) for value in results):
            kept.append(node)  # sequences stay Python objects
            continue
        names = [name for name in node.outputs if name]
        for name, value in zip(names, results, strict=True):
            constants[name] = np.asarray(value)
    return graph.with_(nodes=tuple(kept), constants=constants)


def lower_graph(graph: Graph, target: Target) -> Plan:
    """The plan of a whole graph.

    Raises:
        UnsupportedOpError: an operator that only native kernels implement, in a form they do not.
    """
    graph = fold_constants(graph)
    plan = Plan(graph, target)
    uses = Counter(name for node in graph.nodes for name in node.inputs if name)
    groups = group_nodes(graph.nodes, plan.shape, frozenset(graph.outputs), uses)
    for group in join_epilogues(groups, frozenset(graph.outputs), uses):
        try:
            lower_node(plan, group)
        except NotNative:
            for part in split_epilogue(group):
                lower_part(plan, part)
    return plan


def join_epilogues(
    groups: Sequence[tuple[Node, ...]], keep: frozenset[str], uses: Mapping[str, int]
) -> list[tuple[Node, ...]]:
    """Put convolutions in front of the chain that alone reads their result."""
    producer = {
        group[0].outputs[0]: number
        for number, group in enumerate(groups)
        if group[0].op == "Conv" and group[0].outputs[0] not in keep
    }
    joined = list(groups)
    for number, group in enumerate(groups):
        if not is_elementwise(group[-1]):
            continue
        sources = {name for node in group for name in node.inputs if uses.get(name) == 1}
        found = sorted(sources & producer.keys())
        if len(found) == 1:
            joined[number] = (*groups[producer[found[0]]], *group)
            joined[producer[found[0]]] = ()
    return [group for group in joined if group]


def split_epilogue(group: tuple[Node, ...]) -> list[tuple[Node, ...]]:
    """A convolution and the chain behind it apart again."""
    if len(group) > 1 and not is_elementwise(group[0]):
        return [group[:1], group[1:]]
    return [group]


def lower_part(plan: Plan, group: Sequence[Node]) -> None:
    """A chain as one kernel, or node by node, through the reference where there is no kernel."""
    try:
        lower_node(plan, group)
        return
    except NotNative:
        pass
    for node in group:
        try:
            lower_node(plan, [node])
        except NotNative as reason:
            if node.op.startswith(("int.", "com.microsoft.")):
                raise UnsupportedOpError(f"node {node.name!r}: {node.op}: {reason}") from reason
            reads = tuple(dict.fromkeys(name for name in node.inputs if name))
            writes = tuple(name for name in node.outputs if name)
            plan.steps.append(ReferenceCall(node, reads, writes))
