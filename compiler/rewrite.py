"""Rewriting a graph by local rules.

A rule looks at one node and its surroundings through a ``Scope`` and answers with nodes to put in
its place, or ``None``. It never edits in place: what it emits is collected, and the last emitted
node, or an ``alias``, takes over the old node's outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accelc.compiler.graph import Array, Graph, Node, TensorType

#: Sweeps after which rules that keep changing the graph are taken to be fighting each other.
MAX_SWEEPS = 100


@dataclass(frozen=True)
class Replacement:
    """``nodes`` in place of the matched node; ``aliases`` rename its outputs to existing values."""

    nodes: tuple[Node, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()


class Scope:
    """A graph while it is being rewritten, and what a rule emits into it."""

    def __init__(self, graph: Graph) -> None:
        self.opset = graph.opset
        self.types: dict[str, TensorType] = dict(graph.types)
        self.constants: dict[str, Array] = dict(graph.constants)
        self.producers: dict[str, Node] = graph.producer()
        self.graph_outputs = frozenset(graph.outputs)
        self.graph_inputs = frozenset(graph.inputs)
        self.notes: list[str] = list(graph.notes)
        self._uses: dict[str, int] = {}
        for node in graph.nodes:
            self._count(node, 1)
        for name in graph.outputs:
            self._uses[name] = self._uses.get(name, 0) + 1
        self._emitted: list[Node] = []

    def _count(self, node: Node, by: int) -> None:
        for name in node.inputs:
            if name:
                self._uses[name] = self._uses.get(name, 0) + by

    def producer(self, value: str, *ops: str) -> Node | None:
        """The node that computes ``value``, if it is one of ``ops`` (any when none is given)."""
        node = self.producers.get(value)
        return node if node is not None and (not ops or node.op in ops) else None

    def constant(self, value: str) -> Array | None:
        return self.constants.get(value)

    def shape(self, value: str) -> tuple[int, ...]:
        return self.types[value].shape

    def use_count(self, value: str) -> int:
        """How many node inputs and graph outputs read ``value``."""
        return self._uses.get(value, 0)

    def sole_use(self, value: str) -> bool:
        """Whether one node input reads ``value``, and nothing else does."""
        return self.use_count(value) == 1

    def fresh(self, hint: str) -> str:
        """A value name nobody has, ``hint`` if possible."""
        name, count = hint, 1
        while name in self.types:
            count += 1
            name = f"{hint}_{count}"
        return name

    def add_constant(self, hint: str, array: Array) -> str:
        name = self.fresh(hint)
        self.constants[name] = array
        self.types[name] = TensorType(array.shape, array.dtype)
        return name

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        output: TensorType | str,
        attrs: Mapping[str, Any] | None = None,
        *,
        name: str,
        hint: str | None = None,
    ) -> str:
        """Add a node with one output; a ``str`` output is an existing name, which it takes over."""
        if isinstance(output, str):
            value = output
        else:
            value = self.fresh(hint or name)
            self.types[value] = output
        node = Node(op, name, tuple(inputs), (value,), dict(attrs or {}))
        self._emitted.append(node)
        self.producers[value] = node
        return value

    def add_node(self, node: Node) -> None:
        """Emit a finished node, whose name and outputs already exist."""
        self._emitted.append(node)
        for output in node.outputs:
            self.producers[output] = node

    def done(self, aliases: Mapping[str, str] | None = None) -> Replacement:
        """Everything emitted since the rule began."""
        nodes, self._emitted = tuple(self._emitted), []
        return Replacement(nodes, tuple((aliases or {}).items()))

    def abandon(self, node: Node) -> None:
        """Forget what a rule for ``node`` emitted before it gave up."""
        for emitted in self._emitted:
            for output in emitted.outputs:
                self.producers.pop(output, None)
        for output in node.outputs:
            self.producers[output] = node
        self._emitted = []

    def recount(self, old: Node, new: Sequence[Node]) -> None:
        """Update the uses of values after ``old`` was replaced by ``new``."""
        self._count(old, -1)
        for node in new:
            self._count(node, 1)


#: ``None``: the rule does not apply. It may raise ``Refusal`` where it would but must not.
Rule = Callable[[Node, Scope], Replacement | None]


class Refusal(Exception):
    """Why a pattern that was recognised cannot become integer operators; text for the user."""


def rewrite(graph: Graph, *rules: Rule) -> Graph:
    """Apply the first rule that matches to every node, again and again until none does.

    Dead nodes are removed after every sweep.
    """
    for _ in range(MAX_SWEEPS):
        swept, changed = _sweep(graph, rules)
        if not changed:
            return graph
        graph = unique_names(prune(swept))
    raise AssertionError(f"rules {[rule.__name__ for rule in rules]} do not come to rest")


def _sweep(graph: Graph, rules: Sequence[Rule]) -> tuple[Graph, bool]:
    scope = Scope(graph)
    renamed: dict[str, str] = {}
    result: list[Node] = []
    changed = False
    for original in graph.nodes:
        node = original
        if any(name in renamed for name in node.inputs):
            node = node.with_(inputs=tuple(renamed.get(name, name) for name in node.inputs))
            scope.recount(original, (node,))
            for output in node.outputs:
                scope.producers[output] = node
        replacement = _apply(node, scope, rules)
        if replacement is None:
            result.append(node)
            continue
        changed = True
        new = list(replacement.nodes)
        for old_value, value in replacement.aliases:
            if old_value in scope.graph_outputs:
                # the name is the model's interface: keep it
                new.append(Node("Identity", node.name, (value,), (old_value,)))
                scope.producers[old_value] = new[-1]
            else:
                renamed[old_value] = value
        scope.recount(node, new)
        result.extend(new)
    if not changed:
        return graph, False
    return (
        graph.with_(
            nodes=tuple(result),
            types=scope.types,
            constants=scope.constants,
            notes=tuple(dict.fromkeys(scope.notes)),
        ),
        True,
    )


def _apply(node: Node, scope: Scope, rules: Sequence[Rule]) -> Replacement | None:
    for rule in rules:
        try:
            replacement = rule(node, scope)
        except Refusal:
            replacement = None
        if replacement is not None:
            return replacement
        scope.abandon(node)
    return None


def prune(graph: Graph) -> Graph:
    """Remove nodes, constants and types that no output of the graph depends on."""
    live = set(graph.outputs)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if any(output in live for output in node.outputs):
            live.update(name for name in node.inputs if name)
            nodes.append(node)
    nodes.reverse()
    kept = live | set(graph.inputs) | {o for node in nodes for o in node.outputs if o}
    return graph.with_(
        nodes=tuple(nodes),
        types={name: t for name, t in graph.types.items() if name in kept},
        constants={name: a for name, a in graph.constants.items() if name in live},
    )


def unique_names(graph: Graph) -> Graph:
    """Number nodes of equal name; integer operators keep the name of what they stand for."""
    taken: set[str] = set()
    chosen: dict[int, str] = {}
    order = sorted(range(len(graph.nodes)), key=lambda k: not graph.nodes[k].op.startswith("int."))
    for k in order:
        wanted = graph.nodes[k].name
        name, count = wanted, 1
        while name in taken:
            count += 1
            name = f"{wanted}_{count}"
        taken.add(name)
        chosen[k] = name
    nodes = tuple(
        node if node.name == chosen[k] else node.with_(name=chosen[k])
        for k, node in enumerate(graph.nodes)
    )
    return graph.with_(nodes=nodes)
