"""Elementwise operators with broadcasting; chains of them become one loop nest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accelc.compiler.cpu.expressions import OPERATORS
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import Val
from accelc.compiler.cpu.narrow import dtype_named, is_narrow, register_dtype, settle
from accelc.compiler.cpu.parse import PARSERS, Operand, Parsed
from accelc.compiler.cpu.plan import NotNative, Plan
from accelc.compiler.graph import Node

#: Longest chain fused into one kernel: more would spill registers and compile slowly.
MAX_FUSED = 24


@dataclass(frozen=True)
class Operation:
    """One operator of a chain; an operand is an operation's number, or ``~number`` of an input."""

    op: str
    params: tuple[Any, ...]
    operands: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Fused:
    """A kernel's identity: the loop extents, element type and strides of each input, the chain."""

    extents: tuple[int, ...]
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    operations: tuple[Operation, ...]


def is_elementwise(node: Node) -> bool:
    return node.op in PARSERS


def broadcast_strides(view: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a contiguous ``view`` broadcast to ``shape``; 0 where it repeats.

    Raises:
        NotNative: the shapes do not broadcast.
    """
    view = (1,) * (len(shape) - len(view)) + tuple(view)
    if len(view) > len(shape):
        raise NotNative(f"{view} does not broadcast to {tuple(shape)}")
    strides: list[int] = []
    running = 1
    for size, extent in zip(reversed(view), reversed(tuple(shape)), strict=True):
        if size not in (1, extent):
            raise NotNative(f"{view} does not broadcast to {tuple(shape)}")
        strides.append(running if size != 1 else 0)
        running *= size
    return tuple(reversed(strides))


def collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge neighbouring dimensions that every operand walks as one; drop those of extent 1."""
    extents: list[int] = []
    columns: list[list[int]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        column = [s[axis] for s in strides]
        if extents and all(
            outer == inner * extent for outer, inner in zip(columns[-1], column, strict=True)
        ):
            extents[-1] *= extent
            columns[-1] = column
        else:
            extents.append(extent)
            columns.append(column)
    if not extents:
        extents, columns = [1], [[0] * len(strides)]
    return tuple(extents), [tuple(c[i] for c in columns) for i in range(len(strides))]


def compute(operations: Sequence[Operation], values: Mapping[int, Val] | Sequence[Val]) -> Val:
    """The last result of a chain on the lanes of its inputs."""
    results: list[Val] = []
    for operation in operations:
        operands = [
            values[~operand] if operand < 0 else results[operand] for operand in operation.operands
        ]
        dtype = dtype_named(operation.dtype)
        result = OPERATORS[operation.op](operands, operation.params, dtype)
        results.append(settle(result, dtype))
    return results[-1]


def emit_fused(k: Kernel, fused: Fused) -> None:
    """Read every input at the loop level where it changes, run the chain, store its last value."""
    output = k.args[-1]
    depth = len(fused.extents)
    out_strides = contiguous(fused.extents)
    names = [*(name for name, _ in fused.inputs), *(o.dtype for o in fused.operations)]
    widest = max(register_dtype(dtype_named(name)).itemsize for name in names)
    lanes = max(1, min(16, 2 * k.target.vector_bytes // widest))
    if k.target.vector_bytes <= 4:
        lanes = 1
    #: for each input, the innermost loop it depends on; -1 when it is one scalar
    level = [
        max((axis for axis, stride in enumerate(strides) if stride), default=-1)
        for _, strides in fused.inputs
    ]

    def scalars(at: int, offsets: list[Index], known: dict[int, Val]) -> dict[int, Val]:
        loaded = dict(known)
        for number, (name, _) in enumerate(fused.inputs):
            if level[number] == at:
                loaded[number] = k.load(k.args[number], dtype_named(name), offsets[number])
        return loaded

    def descend(axis: int, offsets: list[Index], out: Index, known: dict[int, Val]) -> None:
        if axis < depth - 1:

            def body(i: Index) -> None:
                moved = [
                    k.iadd(offset, k.imul(i, strides[axis]))
                    for offset, (_, strides) in zip(offsets, fused.inputs, strict=True)
                ]
                descend(
                    axis + 1,
                    moved,
                    k.iadd(out, k.imul(i, out_strides[axis])),
                    scalars(axis, moved, known),
                )

            k.loop(fused.extents[axis], body)
            return
        width = lanes
        while width > fused.extents[axis]:
            width //= 2
        splats = {number: k.splat(value, width) for number, value in known.items()}

        def strip(first: Index, count: int) -> None:
            values = dict(splats)
            for number, (name, strides) in enumerate(fused.inputs):
                if level[number] == axis:
                    start = k.iadd(offsets[number], k.imul(first, strides[axis]))
                    values[number] = k.load_strided(
                        k.args[number], dtype_named(name), start, strides[axis], count
                    )
            result = compute(fused.operations, values)
            k.store(result, output, k.iadd(out, first), dtype_named(fused.operations[-1].dtype))

        k.strips(fused.extents[axis], width, strip)

    zeros: list[Index] = [0] * len(fused.inputs)
    descend(0, zeros, 0, scalars(-1, zeros, {}))


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a packed array."""
    strides: list[int] = []
    running = 1
    for extent in reversed(tuple(shape)):
        strides.append(running)
        running *= extent
    return tuple(reversed(strides))


def parse_chain(
    plan: Plan, nodes: Sequence[Node]
) -> tuple[list[tuple[str, tuple[int, ...]]], tuple[Operation, ...]]:
    """The chain's inputs, each with its strides over the last output's shape, and its operations.

    Raises:
        NotNative: one of the nodes cannot be done.
    """
    shape = plan.shape(nodes[-1].outputs[0])
    inputs: dict[tuple[str, tuple[int, ...]], int] = {}
    produced: dict[str, int] = {}
    operations: list[Operation] = []
    for node in nodes:
        parsed: Parsed = PARSERS[node.op](node, plan)
        operands: list[int] = []
        for name, view in parsed.operands:
            if name in produced:
                operands.append(produced[name])
                continue
            strides = broadcast_strides(view, shape)
            operands.append(~inputs.setdefault((name, strides), len(inputs)))
        produced[node.outputs[0]] = len(operations)
        out_dtype = plan.dtype(node.outputs[0]).name
        operations.append(
            Operation(parsed.op or node.op, parsed.params, tuple(operands), out_dtype)
        )
    return list(inputs), tuple(operations)


def lower_group(plan: Plan, nodes: Sequence[Node]) -> None:
    """One kernel for a chain of nodes; only the last one's output is stored.

    Raises:
        NotNative: one of them cannot be done.
    """
    inputs, operations = parse_chain(plan, nodes)
    output = nodes[-1].outputs[0]
    shape = plan.shape(output)
    extents, strides = collapse(shape, [*(s for _, s in inputs), contiguous(shape)])
    described = tuple(
        (plan.dtype(name).name, s) for (name, _), s in zip(inputs, strides[:-1], strict=True)
    )
    fused = Fused(extents, described, operations)
    plan.call(emit_fused, fused, [name for name, _ in inputs], [output])


#: Cheap enough to be repeated for every register of a matrix product's tile.
EPILOGUE_OPS = frozenset(
    "Add Clip DequantizeLinear HardSigmoid HardSwish LeakyRelu Mul QuantizeLinear Relu Sub".split()
)
MAX_EPILOGUE = 4


@dataclass(frozen=True)
class Epilogue:
    """A chain on a value still in registers: input 0; the other inputs are scalars in memory."""

    operations: tuple[Operation, ...]
    scalars: tuple[str, ...]
    #: Element types of the scalars.
    dtypes: tuple[str, ...]


def parse_epilogue(plan: Plan, value: str, nodes: Sequence[Node]) -> Epilogue:
    """``nodes`` as what follows the computation of ``value``.

    Raises:
        NotNative: the chain is long, or reads more than ``value`` and scalars.
    """
    output = nodes[-1].outputs[0]
    short = len(nodes) <= MAX_EPILOGUE and all(node.op in EPILOGUE_OPS for node in nodes)
    if not short or plan.shape(output) != plan.shape(value):
        raise NotNative("not an epilogue")
    inputs, operations = parse_chain(plan, nodes)
    scalars = [name for name, _ in inputs if name != value]
    if any(plan.size(name) != 1 for name in scalars) or len(scalars) != len(inputs) - 1:
        raise NotNative("not an epilogue")
    if any(is_narrow(plan.dtype(name)) for name in (*scalars, value, output)):
        raise NotNative("not an epilogue")
    numbers = {~number: name for number, (name, _) in enumerate(inputs)}
    order = {name: ~(1 + scalars.index(name)) for name in scalars} | {value: ~0}
    renamed = tuple(
        replace(
            operation,
            operands=tuple(
                order[numbers[operand]] if operand < 0 else operand
                for operand in operation.operands
            ),
        )
        for operation in operations
    )
    return Epilogue(renamed, tuple(scalars), tuple(plan.dtype(name).name for name in scalars))


def single(
    plan: Plan,
    op: str,
    operands: Sequence[Operand],
    params: tuple[Any, ...],
    output: str,
    shape: Sequence[int],
) -> None:
    """One elementwise operator as a kernel of its own; ``output`` has ``shape``."""
    inputs = [(name, broadcast_strides(view, shape)) for name, view in operands]
    extents, strides = collapse(shape, [*(s for _, s in inputs), contiguous(shape)])
    described = tuple(
        (plan.dtype(name).name, s) for (name, _), s in zip(inputs, strides[:-1], strict=True)
    )
    numbers = tuple(~number for number in range(len(inputs)))
    operation = Operation(op, params, numbers, plan.dtype(output).name)
    fused = Fused(extents, described, (operation,))
    plan.call(emit_fused, fused, [name for name, _ in inputs], [output])


def group_nodes(
    nodes: Sequence[Node],
    shape: Callable[[str], tuple[int, ...]],
    keep: frozenset[str],
) -> list[tuple[Node, ...]]:
    """Split ``nodes`` into groups, each one loop nest, in an order that still is topological.

    An elementwise node joins its immediate post-dominator: the node in which all paths from it
    meet, if only elementwise nodes of one shape are on them. ``x * Sigmoid(x)`` with the
    elementwise node that computes ``x`` is one group, whose values never leave the registers.
    ``keep`` are values that must exist in memory.

    From the last node to the first, a node whose readers all are in one group is post-dominated by
    that group's last node, and belongs to it.
    """
    readers: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(number)
    owner = list(range(len(nodes)))
    size = [1] * len(nodes)
    for number in range(len(nodes) - 1, -1, -1):
        node = nodes[number]
        out = node.outputs[0] if node.outputs and not any(node.outputs[1:]) else ""
        if not out or not is_elementwise(node) or out in keep or out not in readers:
            continue
        groups = {owner[reader] for reader in readers[out]}
        if len(groups) != 1:
            continue
        (target,) = groups
        last = nodes[target]
        if not is_elementwise(last) or size[target] >= MAX_FUSED:
            continue
        if any(shape(out) != shape(nodes[r].outputs[0]) for r in readers[out]):
            continue
        owner[number] = target
        size[target] += 1
    members: dict[int, list[Node]] = {}
    for number, node in enumerate(nodes):
        members.setdefault(owner[number], []).append(node)
    return [tuple(members[number]) for number in range(len(nodes)) if number in members]
