"""From nodes to kernel calls: who lowers what, and what is left to the reference."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx.defs import onnx_opset_version

from accelc.compiler.cpu import (
    contract,
    conv,
    generate,
    grid,
    int_matmul,
    integer,
    matmul,
    move,
    normalize,
    points,
    pool,
    quantize_nodes,
    recurrent,
    reduce,
    resize,
    scan,
    training,
)
from accelc.compiler.cpu.bodies import body_of, has_body, has_decided_branches, with_branches_taken
from accelc.compiler.cpu.control import CONTROL, body_operators
from accelc.compiler.cpu.elementwise import group_nodes, is_elementwise, lower_group, single
from accelc.compiler.cpu.narrow import is_narrow_float
from accelc.compiler.cpu.parse import PARSERS
from accelc.compiler.cpu.plan import Host, HostCall, NotNative, Plan, Step
from accelc.compiler.cpu.sequences import OPERATIONS
from accelc.compiler.cpu.specialize import structural
from accelc.compiler.cpu.target import Target, host_target
from accelc.compiler.graph import Graph, Node, TensorType
from accelc.compiler.memory_limit import require_memory
from accelc.compiler.onnx_node import OPAQUE, run
from accelc.compiler.onnx_weights import release
from accelc.isa.errors import AccelcError, ModelError, UnsupportedOpError

Lowering = Callable[[Plan, Node], None]

LOWERINGS: dict[str, Lowering] = {
    **contract.LOWERINGS,
    **conv.LOWERINGS,
    **generate.LOWERINGS,
    **grid.LOWERINGS,
    **int_matmul.LOWERINGS,
    **integer.LOWERINGS,
    **matmul.LOWERINGS,
    **move.LOWERINGS,
    **normalize.LOWERINGS,
    **points.LOWERINGS,
    **pool.LOWERINGS,
    **quantize_nodes.LOWERINGS,
    **recurrent.LOWERINGS,
    **reduce.LOWERINGS,
    **resize.LOWERINGS,
    **scan.LOWERINGS,
    **training.LOWERINGS,
}


#: Operators whose body is followed step by step on narrow floats, for the roundings in between.
_STEPWISE = ("Softmax", "LogSoftmax")
#: Operators that move elements of any type.
MOVES = frozenset((*move.LOWERINGS, *points.MOVES, *generate.LOWERINGS, "OneHot"))


def lower_node(plan: Plan, nodes: Sequence[Node]) -> None:
    """Append the kernel calls of one node, or of one chain of elementwise nodes.

    Raises:
        NotNative: there is no native kernel; the plan is then as before.
    """
    node = nodes[-1]
    mark, aliases = len(plan.steps), len(plan.aliases)
    plan.current = node.name
    for name in filter(None, node.outputs):
        if -1 in plan.shape(name):
            raise NotNative(f"the shape of {name} depends on data")
        size = plan.size(name) * plan.dtype(name).itemsize
        require_memory(size, f"{node.op} {node.name!r}")
    try:
        if widened(plan, nodes):
            pass
        elif len(nodes) > 1 and nodes[0].op == "Conv":
            conv.lower_conv(plan, nodes[0], nodes[1:])
        elif is_elementwise(node) and not (len(nodes) == 1 and node.op in LOWERINGS):
            lower_group(plan, nodes)
        elif lowering := LOWERINGS.get(node.op):
            lowering(plan, node)
        else:
            raise NotNative(f"no kernel for {node.op}")
    except NotNative:
        del plan.steps[mark:]
        while len(plan.aliases) > aliases:
            plan.aliases.popitem()
        raise


def widened(plan: Plan, nodes: Sequence[Node]) -> bool:
    """Lower one node on narrow floats as the same on float32, with conversions around it.

    Elementwise operators and those that only move elements take narrow types as they are.
    """
    node = nodes[0]
    if len(nodes) > 1 or is_elementwise(node) or node.op in MOVES:
        return False
    if node.op in _STEPWISE and is_narrow_float(plan.dtype(node.inputs[0])):
        raise NotNative("every step is rounded")
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
    """Whether ``node`` of ``graph`` runs without ``onnx.reference``, as far as can be told before
    its inputs are there."""
    names = {name for name in (*node.inputs, *node.outputs) if name}
    alone = graph.with_(
        nodes=(node,),
        types={name: graph.types[name] for name in names if name in graph.types},
        constants={name: graph.constants[name] for name in names if name in graph.constants},
    )
    plan = Plan(alone, host_target())
    try:
        lower_part(plan, [node])
    except UnsupportedOpError:
        return False
    return not any(on_reference(step) for step in plan.steps)


def on_reference(step: Step) -> bool:
    """Whether the reference runs a step, or would run a part of the bodies of one."""
    if not isinstance(step, HostCall):
        return False
    return step.host == "reference" or (
        step.host == "control" and not all(map(has_kernels, body_operators(step.node)))
    )


def has_kernels(op: str) -> bool:
    """Whether there are kernels for an operator in some form, or it is no computation at all."""
    return (
        op in LOWERINGS
        or op in PARSERS
        or op in CONTROL
        or op in OPERATIONS
        or op == "Constant"
        or has_body(op, onnx_opset_version())
    )


#: Operators whose result differs from run to run.
_RANDOM = ("Random", "Multinomial", "Bernoulli", "Dropout")
#: Larger results stay computations, whatever they depend on.
_FOLDED_ELEMS = 1 << 20


def fold_constants(graph: Graph) -> Graph:
    """Evaluate what depends on constants only (dequantized weights, say): a compile-time matter.

    ``y = Dequantize(w)``, ``z = Conv(x, y)`` becomes ``z = Conv(x, y)`` with ``y`` a constant. The
    shape of a value is a constant too.
    """
    constants = dict(graph.constants)
    kept: list[Node] = []
    for node in graph.nodes:
        if node.op in ("Shape", "Size") and -1 not in (shape := graph.types[node.inputs[0]].shape):
            # an array of the right shape without its memory
            stand_in = np.broadcast_to(np.zeros((), np.int8), shape)
            constants[node.outputs[0]] = np.asarray(run(node, [stand_in], graph.opset)[0])
            continue
        known = all(name in constants for name in node.inputs if name)
        plain = not node.op.startswith(("int.", *_RANDOM)) and "." not in node.op
        large = any(_elems(graph, name) > _FOLDED_ELEMS for name in node.outputs if name)
        grown = large and not any(_elems(graph, n) > _FOLDED_ELEMS for n in node.inputs if n)
        if not (known and plain) or grown or "captured" in node.attrs:
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


def folded(graph: Graph) -> Graph:
    """Constants evaluated, and branches taken that depend on them only."""
    graph = fold_constants(graph)
    while has_decided_branches(graph):
        try:
            graph = fold_constants(with_branches_taken(graph))
        except AccelcError:
            return graph  # the branches stay what they are, control flow
    return graph


def _elems(graph: Graph, name: str) -> int:
    return math.prod(max(0, extent) for extent in graph.types[name].shape)


def lower_graph(graph: Graph, target: Target) -> Plan:
    """The plan of a whole graph.

    Raises:
        UnsupportedOpError: an operator that only native kernels implement, in a form they do not.
    """
    graph = folded(graph)
    plan = Plan(graph, target)
    lower_nodes(plan, graph.nodes, graph.outputs)
    return plan


def lower_nodes(plan: Plan, nodes: Sequence[Node], outputs: Sequence[str]) -> None:
    """Append the calls of ``nodes``, chains of them as one; ``outputs`` are needed behind them."""
    uses = Counter(name for node in nodes for name in node.inputs if name)
    keep = frozenset(outputs)
    groups = group_nodes(nodes, plan.shape, keep)
    for group in join_epilogues(groups, keep, uses):
        try:
            lower_node(plan, group)
        except NotNative:
            for part in split_epilogue(group):
                lower_part(plan, part)
        for name in (name for node in group for name in node.inputs):
            if name in plan.constants:
                release(plan.constants[name])  # what the kernel needs of it is packed


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
        inside = Counter(name for node in group for name in node.inputs)
        sources = {name for name, count in inside.items() if uses.get(name) == count}
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
    """A chain as one kernel, or node by node, by other means where there is no kernel."""
    try:
        lower_node(plan, group)
        return
    except NotNative:
        pass
    for node in group:
        try:
            lower_node(plan, [node])
        except NotNative as reason:
            lower_otherwise(plan, node, reason)


def lower_otherwise(plan: Plan, node: Node, reason: NotNative) -> None:
    """A node without kernel: compiled when it runs, by its body, by Python, or by the reference."""
    reads = tuple(dict.fromkeys(name for name in node.inputs if name))
    writes = tuple(name for name in node.outputs if name)
    host: Host = "reference"
    opaque = any(plan.types[name] == OPAQUE for name in (*reads, *writes))
    open_shape = any(-1 in plan.shape(name) for name in reads)
    if node.op in CONTROL:
        host = "control"
    elif node.op in OPERATIONS or (opaque and node.op == "Identity"):
        host = "sequence"
    elif structural(node, plan.known) or (open_shape and has_kernels(node.op)):
        host = "specialize"
    elif lower_body(plan, node):
        return
    elif node.op.startswith(("int.", "com.microsoft.")):
        raise UnsupportedOpError(f"node {node.name!r}: {node.op}: {reason}") from reason
    plan.steps.append(HostCall(node, host, reads, writes))


def lower_body(plan: Plan, node: Node) -> bool:
    """Lower ``node`` by the body ONNX defines it with; False, and nothing done, if that does not
    make it independent of the reference."""
    names = {name for name in (*node.inputs, *node.outputs) if name}
    if any(-1 in plan.shape(name) for name in names):
        return False
    constants = {
        name: value.reshape(plan.shape(name))
        for name in names
        if (value := plan.known(name)) is not None
    }
    body = body_of(node, plan.types, constants, plan.graph.opset)
    if body is None:
        return False
    body = folded(body)
    mark, aliases, depth = len(plan.steps), len(plan.aliases), f"%b{len(plan.types)}/"
    actual = {f"i{number}": name for number, name in enumerate(node.inputs) if name}
    actual |= {f"o{number}": name for number, name in enumerate(node.outputs) if name}

    def renamed(name: str) -> str:
        return actual.get(name, depth + name) if name else ""

    for name, found in body.types.items():
        if renamed(name) not in plan.types:
            plan.types[renamed(name)] = found
    for name, array in body.constants.items():
        if name in actual and name.startswith("o"):
            plan.alias(actual[name], plan.constant(array))
        elif name not in actual:
            plan.constants[renamed(name)] = array
            plan.types[renamed(name)] = TensorType(array.shape, array.dtype)
    nodes = [
        inner.with_(
            name=f"{node.name}/{inner.name}",
            inputs=tuple(map(renamed, inner.inputs)),
            outputs=tuple(map(renamed, inner.outputs)),
        )
        for inner in body.nodes
    ]
    try:
        lower_nodes(plan, nodes, node.outputs)
        done = not any(on_reference(step) for step in plan.steps[mark:])
    except UnsupportedOpError:
        done = False
    if not done:
        del plan.steps[mark:]
        while len(plan.aliases) > aliases:
            plan.aliases.popitem()
    return done
