"""Rewriting a graph by local rules, in time linear in the graph and in what the rules change.

A rule looks at one node and its surroundings through a ``Scope`` and answers with nodes to put in
its place, or ``None``. It never edits in place: what it emits is collected, and the last emitted
node, or an ``alias``, takes over the old node's outputs.

Nodes wait in a queue. A replacement queues what it brought, the nodes that read it, and those for
which a value now has a sole use; nothing else is looked at again, but for a last sweep that
confirms that no rule applies any more.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelc.compiler.graph import Array, Graph, Node, Origin, TensorType
from accelc.compiler.node_list import NodeList, Replacement
from accelc.isa.config import REFERENCE, AccelConfig

#: Replacements per node of the graph after which rules are taken to be fighting each other.
MAX_FIRED_PER_NODE = 200


class Refusal(Exception):
    """Why a pattern that was recognised cannot become integer operators; text for the user."""


class Scope:
    """A graph while it is being rewritten, and what a rule emits into it."""

    def __init__(self, graph: Graph, config: AccelConfig = REFERENCE) -> None:
        self.opset = graph.opset
        self.config = config
        self.types: dict[str, TensorType] = dict(graph.types)
        self.constants: dict[str, Array] = dict(graph.constants)
        self.graph_outputs = frozenset(graph.outputs)
        self.graph_inputs = frozenset(graph.inputs)
        self.notes: list[str] = list(graph.notes)
        self.origins: dict[str, Origin] = dict(graph.origins)
        self._list = NodeList(graph)
        self._emitted: list[Node] = []
        self._emitters: dict[str, Node] = {}
        self._made: list[str] = []
        self._numbers: dict[str, int] = {}

    def producer(self, value: str, *ops: str) -> Node | None:
        """The node that computes ``value``, if it is one of ``ops`` (any when none is given)."""
        node = self._emitters.get(value)
        if node is None:
            node = self._list.producer(value)
        return node if node is not None and (not ops or node.op in ops) else None

    def consumers(self, value: str) -> list[Node]:
        """The nodes that read ``value``, oldest first."""
        return self._list.consumers(value)

    def position(self, value: str) -> int:
        """Where ``value`` is computed: of two values, the later one has the larger number."""
        return self._list.position(value)

    def constant(self, value: str) -> Array | None:
        return self.constants.get(value)

    def shape(self, value: str) -> tuple[int, ...]:
        return self.types[value].shape

    def use_count(self, value: str) -> int:
        """How many node inputs and graph outputs read ``value``."""
        return self._list.use_count(value)

    def sole_use(self, value: str) -> bool:
        """Whether one node input reads ``value``, and nothing else does."""
        return self.use_count(value) == 1

    def fresh(self, hint: str) -> str:
        """A value name nobody has, ``hint`` if possible."""
        name = hint
        while name in self.types:
            self._numbers[hint] = self._numbers.get(hint, 1) + 1
            name = f"{hint}_{self._numbers[hint]}"
        return name

    def add_constant(self, hint: str, array: Array) -> str:
        name = self.fresh(hint)
        self.constants[name] = array
        self.types[name] = TensorType(array.shape, array.dtype)
        self._made.append(name)
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
            self._made.append(value)
        self.add_node(Node(op, name, tuple(inputs), (value,), dict(attrs or {})))
        return value

    def add_node(self, node: Node) -> None:
        """Emit a finished node, whose name and outputs already exist."""
        self._emitted.append(node)
        for output in node.outputs:
            self._emitters[output] = node

    def done(self, aliases: Mapping[str, str] | None = None) -> Replacement:
        """Everything emitted since the rule began."""
        nodes, self._emitted, self._made = tuple(self._emitted), [], []
        self._emitters.clear()
        return Replacement(nodes, tuple((aliases or {}).items()))

    def abandon(self) -> None:
        """Forget what a rule emitted before it gave up."""
        for name in self._made:
            self.types.pop(name, None)
            self.constants.pop(name, None)
        self._emitted, self._made = [], []
        self._emitters.clear()


#: Answers for one node; ``None``: the rule does not apply. It may raise ``Refusal`` where it would
#: but must not.
Match = Callable[[Node, Scope], Replacement | None]


@dataclass(frozen=True)
class Rule:
    """One way to make a graph better, with its documentation.

    Members:
        before, after: what it looks for and what it puts there, in the notation of docs/passes.md.
        ops: operators of the nodes it is shown; empty for all of them.
        exact: whether every result keeps its bits; else floats may differ by 1e-4 relative.
    """

    name: str
    before: str
    after: str
    match: Match
    ops: tuple[str, ...] = ()
    exact: bool = True


@dataclass
class _Run:
    """One run of some rules over one graph."""

    scope: Scope
    rules: Mapping[str, Sequence[Rule]]
    always: Sequence[Rule]
    fired: Counter[str] = field(default_factory=Counter)

    def visit(self, slot: int) -> tuple[list[int], list[int]] | None:
        """Apply the first rule that matches the node in ``slot``."""
        nodes = self.scope._list
        node = nodes.node(slot)
        if node is None:
            return None
        for rule in self.rules.get(node.op, self.always):
            try:
                replacement = rule.match(node, self.scope)
            except Refusal:
                replacement = None
            if replacement is not None:
                self.fired[rule.name] += 1
                return nodes.replace(slot, replacement)
            self.scope.abandon()
        return None

    def settle(self, first: Sequence[int]) -> bool:
        """Visit ``first`` and all that their changes touch, until nothing is left to visit."""
        queue, queued = deque(first), set(first)
        limit = MAX_FIRED_PER_NODE * (len(first) + 10) + self.fired.total()
        before = self.fired.total()
        while queue:
            slot = queue.popleft()
            queued.discard(slot)
            changed = self.visit(slot)
            if changed is None:
                continue
            if self.fired.total() > limit:
                raise AssertionError(f"rules do not come to rest: {self.fired.most_common(4)}")
            for found in (*changed[0], *changed[1]):
                if found not in queued:
                    queued.add(found)
                    queue.append(found)
        return self.fired.total() > before


def rewrite(
    graph: Graph,
    rules: Sequence[Rule],
    config: AccelConfig = REFERENCE,
    fired: Counter[str] | None = None,
) -> Graph:
    """Apply the first rule that matches to every node, again and again until none does.

    ``fired`` is told how often each rule, by name, found something. Dead nodes are removed as they
    die. ``graph`` itself is returned if no rule applies.
    """
    always = [rule for rule in rules if not rule.ops]
    named = {op for rule in rules for op in rule.ops}
    table = {op: [rule for rule in rules if not rule.ops or op in rule.ops] for op in named}
    if not always and not any(node.op in table for node in graph.nodes):
        return graph
    scope = Scope(graph, config)
    run = _Run(scope, table, always)
    while run.settle(list(scope._list.slots())):
        pass
    if fired is not None:
        fired.update(run.fired)
    if not run.fired:
        return graph
    changed = graph.with_(
        nodes=tuple(scope._list.finished()),
        types=scope.types,
        constants=scope.constants,
        notes=tuple(dict.fromkeys(scope.notes)),
        origins=scope.origins,
    )
    return unique_names(prune(changed))


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
        origins={name: o for name, o in graph.origins.items() if name in kept},
    )


def unique_names(graph: Graph) -> Graph:
    """Number nodes of equal name; integer operators keep the name of what they stand for."""
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    chosen: dict[int, str] = {}
    order = sorted(range(len(graph.nodes)), key=lambda k: not graph.nodes[k].op.startswith("int."))
    for k in order:
        wanted = graph.nodes[k].name
        name = wanted
        while name in taken:
            numbers[wanted] = numbers.get(wanted, 1) + 1
            name = f"{wanted}_{numbers[wanted]}"
        taken.add(name)
        chosen[k] = name
    nodes = tuple(
        node if node.name == chosen[k] else node.with_(name=chosen[k])
        for k, node in enumerate(graph.nodes)
    )
    return graph.with_(nodes=nodes)
