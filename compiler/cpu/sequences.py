"""Sequences and optionals: lists of arrays, which need no code, only bookkeeping."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from accelc.compiler.graph import Node
from accelc.isa.errors import InputError

Operation = Callable[[Node, Sequence[Any]], Any]


def _place(node: Node, values: Sequence[Any], index: int, slots: int) -> int:
    """The place, below ``slots``, that input ``index`` names; the last one if it is absent.

    Raises:
        InputError: there is no such place.
    """
    if index >= len(values) or values[index] is None:
        return slots - 1
    wanted, size = int(np.asarray(values[index]).reshape(())), len(values[0])
    place = wanted + size if wanted < 0 else wanted
    if not 0 <= place < slots:
        raise InputError(f"{node.op} {node.name!r}: a sequence of {size} has no place {wanted}")
    return place


def _insert(node: Node, values: Sequence[Any]) -> list[Any]:
    items = list(values[0])
    items.insert(_place(node, values, 2, len(items) + 1), values[1])
    return items


def _erase(node: Node, values: Sequence[Any]) -> list[Any]:
    items = list(values[0])
    del items[_place(node, values, 1, len(items))]
    return items


def _at(node: Node, values: Sequence[Any]) -> Any:
    return values[0][_place(node, values, 1, len(values[0]))]


def _concat(node: Node, values: Sequence[Any]) -> Any:
    join = np.stack if node.attrs.get("new_axis") else np.concatenate
    return join([np.asarray(item) for item in values[0]], axis=int(node.attrs["axis"]))


def _split(node: Node, values: Sequence[Any]) -> list[Any]:
    x = values[0]
    axis = int(node.attrs.get("axis", 0))
    extent = x.shape[axis]
    split = values[1] if len(values) > 1 else None
    if split is None:
        parts = np.split(x, extent, axis)
        if not int(node.attrs.get("keepdims", 1)):
            parts = [np.squeeze(part, axis) for part in parts]
        return [np.array(part) for part in parts]
    split = np.asarray(split)
    bounds = np.arange(int(split), extent, int(split)) if split.ndim == 0 else split.cumsum()[:-1]
    return [np.array(part) for part in np.split(x, bounds, axis)]


def _same(node: Node, values: Sequence[Any]) -> Any:
    return values[0] if values else None


#: What each operator makes of the values of its inputs (None where one is absent).
OPERATIONS: Mapping[str, Operation] = {
    "ConcatFromSequence": _concat,
    "Optional": _same,
    "OptionalGetElement": _same,
    "OptionalHasElement": lambda node, v: np.array(bool(v) and v[0] is not None),
    "SequenceAt": _at,
    "SequenceConstruct": lambda node, v: list(v),
    "SequenceEmpty": lambda node, v: [],
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda node, v: np.array(len(v[0]), np.int64),
    "SplitToSequence": _split,
}


class SequenceNode:
    """One node on lists."""

    reference_operators: frozenset[str] = frozenset()

    def __init__(self, node: Node) -> None:
        self.node = node

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """The one output."""
        inputs = [values[name] if name else None for name in self.node.inputs]
        # the arena is used again: what a list keeps must be a copy
        kept = [np.array(v) if isinstance(v, np.ndarray) else v for v in inputs]
        return [OPERATIONS.get(self.node.op, _same)(self.node, kept)]
