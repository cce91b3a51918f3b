"""Einsum: diagonals, sums and permutations around matrix products."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accelc.compiler.cpu.copies import permute, strided_copy
from accelc.compiler.cpu.elementwise import contiguous
from accelc.compiler.cpu.expressions import FLOATS
from accelc.compiler.cpu.lanes import INT32, INT64
from accelc.compiler.cpu.matmul import multiply
from accelc.compiler.cpu.parse import require, text
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.cpu.planes import require_native
from accelc.compiler.cpu.reduce import reduce
from accelc.compiler.graph import Node

#: Letters that stand for the axes an ellipsis means; equations only have letters of the alphabet.
_ELLIPSIS_LABELS = "0123456789"


@dataclass(frozen=True)
class Term:
    """A value and one label for each of its axes."""

    name: str
    labels: str


def labels_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Labels of every operand and of the result; the axes of an ellipsis get digits."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    require(len(terms) == len(ranks), "operands of the equation")
    wide = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    most = max((n for n, term in zip(wide, terms, strict=True) if "..." in term), default=0)
    require(most <= len(_ELLIPSIS_LABELS), "axes of the ellipsis")
    digits = _ELLIPSIS_LABELS[:most]
    full = [term.replace("...", digits[most - n :]) for term, n in zip(terms, wide, strict=True)]
    if not arrow:
        letters = [label for term in full for label in term if label not in digits]
        right = digits + "".join(sorted(x for x in set(letters) if letters.count(x) == 1))
    return full, right.replace("...", digits)


def single_axes(plan: Plan, term: Term) -> Term:
    """The diagonal where a label occurs twice."""
    labels = "".join(dict.fromkeys(term.labels))
    if labels == term.labels:
        return term
    shape = plan.shape(term.name)
    strides = contiguous(shape)
    extents = [shape[term.labels.index(label)] for label in labels]
    read = [
        sum(s for s, own in zip(strides, term.labels, strict=True) if own == label)
        for label in labels
    ]
    out = plan.temporary(extents, plan.dtype(term.name))
    strided_copy(plan, term.name, out, extents, read, contiguous(extents))
    return Term(out, labels)


def summed(plan: Plan, term: Term, needed: set[str]) -> Term:
    """The sum over the axes whose labels nobody else has."""
    gone = [axis for axis, label in enumerate(term.labels) if label not in needed]
    if not gone:
        return term
    shape = plan.shape(term.name)
    kept = [extent for axis, extent in enumerate(shape) if axis not in gone]
    out = plan.temporary(kept, plan.dtype(term.name))
    reduce(plan, "ReduceSum", term.name, out, gone)
    return Term(out, "".join(label for label in term.labels if label in needed))


def ordered(plan: Plan, term: Term, labels: str, out: str = "") -> Term:
    """The axes in the order of ``labels``, which are the same ones; in ``out`` if it is given."""
    if term.labels == labels and not out:
        return term
    shape = plan.shape(term.name)
    perm = [term.labels.index(label) for label in labels]
    target = out or plan.temporary([shape[axis] for axis in perm], plan.dtype(term.name))
    permute(plan, term.name, target, shape, perm)
    return Term(target, labels)


def product(plan: Plan, a: Term, b: Term, needed: set[str], sizes: Mapping[str, int]) -> Term:
    """The product of two terms, summed over the labels that are not ``needed``: one matrix product
    for every combination of those that both have and that are."""
    shared = [label for label in a.labels if label in b.labels]
    batch = "".join(label for label in shared if label in needed)
    inner = "".join(label for label in shared if label not in needed)
    rows = "".join(label for label in a.labels if label not in shared)
    columns = "".join(label for label in b.labels if label not in shared)

    def size(labels: str) -> int:
        return math.prod(sizes[label] for label in labels)

    left = ordered(plan, a, batch + rows + inner)
    right = ordered(plan, b, batch + inner + columns)
    labels = batch + rows + columns
    out = plan.temporary([sizes[label] for label in labels], plan.dtype(a.name))
    multiply(
        plan,
        left.name,
        (size(batch), size(rows), size(inner)),
        right.name,
        (size(batch), size(inner), size(columns)),
        out,
    )
    return Term(out, labels)


def lower_einsum(plan: Plan, node: Node) -> None:
    out = node.outputs[0]
    names = node.inputs
    require_native(plan, *names)
    dtype = plan.dtype(names[0])
    require(dtype in (*FLOATS, INT32, INT64), "element type")
    ranks = [len(plan.shape(name)) for name in names]
    operands, result = labels_of(text(node.attrs["equation"]), ranks)
    sizes: dict[str, int] = {}
    for name, labels in zip(names, operands, strict=True):
        require(len(labels) == len(plan.shape(name)), "labels of the equation")
        for label, extent in zip(labels, plan.shape(name), strict=True):
            require(sizes.setdefault(label, extent) == extent, "broadcast axes")
    terms = [
        single_axes(plan, Term(name, labels)) for name, labels in zip(names, operands, strict=True)
    ]

    def others(number: int) -> set[str]:
        behind = [term.labels for place, term in enumerate(terms) if place != number]
        return set(result).union(*behind)

    terms = [summed(plan, term, others(number)) for number, term in enumerate(terms)]
    total, *rest = terms
    while rest:
        following, *rest = rest
        needed = set(result).union(*(term.labels for term in rest))
        total = summed(plan, product(plan, total, following, needed, sizes), needed)
    ordered(plan, total, result, out)


LOWERINGS: dict[str, Callable[[Plan, Node], Any]] = {"Einsum": lower_einsum}
