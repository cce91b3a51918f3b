"""The nodes of a graph while it is being rewritten: their order, and who reads which value."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from accelc.compiler.graph import Graph, Node

#: How far below a change nodes are looked at again: rules look at most this many nodes up, or as
#: far as they like in the last sweep.
LOOK_DOWN = 4


@dataclass(frozen=True)
class Replacement:
    """``nodes`` in place of the matched node; ``aliases`` rename its outputs to existing values."""

    nodes: tuple[Node, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()


class NodeList:
    """Nodes in topological order as a linked list, with the uses of every value."""

    def __init__(self, graph: Graph) -> None:
        count = len(graph.nodes)
        self.nodes: list[Node | None] = list(graph.nodes)
        self._next = [*range(1, count), -1] if count else []
        self._previous = list(range(-1, count - 1))
        self._first = 0 if count else -1
        self._place = list(range(count))
        self._outputs = frozenset(graph.outputs)
        self._slots: dict[str, int] = {}
        #: Value to the slots that read it, each with how often.
        self._readers: dict[str, dict[int, int]] = {}
        self._counts: Counter[str] = Counter(graph.outputs)
        #: Values renamed since the readers' inputs were last brought up to date.
        self._renamed: dict[str, str] = {}
        self._stale: set[int] = set()
        for slot, node in enumerate(graph.nodes):
            self._enter(slot, node)

    def _enter(self, slot: int, node: Node) -> None:
        for name in node.inputs:
            if name:
                readers = self._readers.setdefault(name, {})
                readers[slot] = readers.get(slot, 0) + 1
                self._counts[name] += 1
        for name in node.outputs:
            if name:
                self._slots[name] = slot

    def slots(self) -> Iterator[int]:
        slot = self._first
        while slot >= 0:
            following = self._next[slot]
            yield slot
            slot = following

    def node(self, slot: int) -> Node | None:
        """The node there, its inputs up to date; ``None`` if it was removed."""
        node = self.nodes[slot]
        if node is not None and slot in self._stale:
            self._stale.discard(slot)
            node = node.with_(inputs=tuple(self.current(name) for name in node.inputs))
            self.nodes[slot] = node
        return node

    def current(self, value: str) -> str:
        """What ``value`` is called now."""
        path: list[str] = []
        while value in self._renamed:
            path.append(value)
            value = self._renamed[value]
        for name in path[:-1]:
            self._renamed[name] = value
        return value

    def producer(self, value: str) -> Node | None:
        slot = self._slots.get(value)
        return None if slot is None else self.node(slot)

    def position(self, value: str) -> int:
        slot = self._slots.get(value)
        return -1 if slot is None else self._place[slot]

    def consumers(self, value: str) -> list[Node]:
        found = (self.node(slot) for slot in self._readers.get(value, ()))
        return [node for node in found if node is not None]

    def use_count(self, value: str) -> int:
        return self._counts[value]

    def _below(self, values: Sequence[str], slots: Sequence[int]) -> list[int]:
        """``slots`` and those that read ``values``, what reads their results, and so on."""
        seen = set(slots)
        found: Sequence[int] = slots
        for depth in range(LOOK_DOWN):
            reading = [o for s in found for o in self._outputs_of(s)] + list(values) * (depth == 0)
            found = [s for v in reading for s in self._readers.get(v, ()) if s not in seen]
            seen.update(found)
        return sorted(seen)

    def _outputs_of(self, slot: int) -> tuple[str, ...]:
        node = self.nodes[slot]
        return () if node is None else node.outputs

    def replace(self, slot: int, new: Replacement) -> tuple[list[int], list[int]]:
        """Put ``new`` in the place of ``slot``: the new slots, and those to look at again."""
        old = self.node(slot)
        assert old is not None
        nodes = list(new.nodes)
        for value, other in new.aliases:
            if value in self._outputs:
                # the name is the model's interface: keep it
                nodes.append(Node("Identity", old.name, (other,), (value,)))
        for name in old.outputs:
            self._slots.pop(name, None)
        added = [self._insert(node, slot) for node in nodes]
        again: list[int] = []
        moved: list[int] = []
        for value, other in new.aliases:
            if value not in self._outputs:
                moved += self._readers.get(value, ())
                self._alias(value, self.current(other))
        self._remove(slot, again)
        for place in reversed(added):
            self._drop_if_dead(place, again)
        changed = [name for node in nodes for name in node.outputs]
        return added, [*again, *self._below(changed, moved)]

    def _insert(self, node: Node, before: int) -> int:
        slot = len(self.nodes)
        self.nodes.append(node)
        previous = self._previous[before]
        self._next.append(before)
        self._previous.append(previous)
        self._previous[before] = slot
        if previous >= 0:
            self._next[previous] = slot
        else:
            self._first = slot
        self._place.append(self._place[before])
        self._enter(slot, node)
        return slot

    def _alias(self, value: str, other: str) -> None:
        """From now on ``value`` is ``other``."""
        readers = self._readers.pop(value, {})
        into = self._readers.setdefault(other, {})
        for slot, count in readers.items():
            into[slot] = into.get(slot, 0) + count
            self._stale.add(slot)
        self._counts[other] += self._counts.pop(value, 0)
        self._renamed[value] = other

    def _unlink(self, slot: int) -> Node:
        node = self.node(slot)
        assert node is not None
        previous, following = self._previous[slot], self._next[slot]
        if previous >= 0:
            self._next[previous] = following
        else:
            self._first = following
        if following >= 0:
            self._previous[following] = previous
        self.nodes[slot] = None
        return node

    def _remove(self, slot: int, again: list[int]) -> None:
        """Remove a node, and those before it that nothing needs any more."""
        pending = [slot]
        while pending:
            gone = pending.pop()
            if self.nodes[gone] is None:
                continue
            node = self._unlink(gone)
            for name in node.outputs:
                if self._slots.get(name) == gone:
                    del self._slots[name]
            for name in node.inputs:
                if not name:
                    continue
                readers = self._readers[name]
                readers[gone] -= 1
                if not readers[gone]:
                    del readers[gone]
                self._counts[name] -= 1
                if self._counts[name] == 1:
                    again.extend(readers)  # a rule may ask for a sole use
                producer = self._slots.get(name)
                if producer is not None and self._dead(producer):
                    pending.append(producer)

    def _dead(self, slot: int) -> bool:
        return not any(self._counts[name] for name in self._outputs_of(slot) if name)

    def _drop_if_dead(self, slot: int, again: list[int]) -> None:
        if self.nodes[slot] is not None and self._dead(slot):
            self._remove(slot, again)

    def finished(self) -> Iterator[Node]:
        for slot in self.slots():
            node = self.node(slot)
            assert node is not None
            yield node
