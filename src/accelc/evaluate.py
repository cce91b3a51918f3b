"""Runs a set of inputs on one or more devices: outputs, accuracy, agreement, cost."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.inputs import count_correct
from accelc.session import Session, Values

Array = NDArray[Any]
Batch = tuple[dict[str, Array], Array | None]


@dataclass
class Tally:
    """What one device did over all batches."""

    session: Session
    batches: int = 0
    labelled: int = 0
    correct: int = 0
    cycles: int = 0
    seconds: float = 0.0
    #: Outputs of the last batch.
    outputs: Values = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """Share of the labelled samples whose class came out largest; None without labels."""
        return self.correct / self.labelled if self.labelled else None

    def run(self, inputs: dict[str, Array], labels: Array | None) -> Values:
        start = time.perf_counter()
        self.outputs = self.session.run(inputs)
        self.seconds += time.perf_counter() - start
        self.batches += 1
        self.cycles += self.session.cycles
        if labels is not None:
            scores = next(iter(self.outputs.values()))
            self.labelled += len(labels)
            self.correct += count_correct(scores, labels)
        return self.outputs


@dataclass(frozen=True)
class Difference:
    """Where the first of the other devices left the first device's results."""

    batch: int
    device: str
    output: str
    #: How many elements differ, of how many.
    differing: int
    elements: int


def same_bits(a: Array, b: Array) -> bool:
    """Equal in shape, type and every bit, NaNs included."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def count_differing(a: Array, b: Array) -> int:
    """Elements that are not the same bits; all of them if shape or type differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return a.size
    if a.dtype == object:
        return int(np.sum(a != b))
    bits = [np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b)]
    return int((bits[0] != bits[1]).reshape(a.size, -1).any(axis=1).sum())


def tensors(values: Mapping[str, Any]) -> dict[str, Array]:
    """Every tensor of a network's outputs; those of a sequence ``y`` are ``y[0]``, ``y[1]``, ..."""
    found: dict[str, Array] = {}
    for name, value in values.items():
        if isinstance(value, list):
            found |= tensors({f"{name}[{index}]": item for index, item in enumerate(value)})
        elif value is not None:
            found[name] = value
    return found


def compare(batch: int, device: str, first: Values, other: Values) -> list[Difference]:
    """All outputs of ``other`` that are not those of ``first``, bit for bit."""
    differences: list[Difference] = []
    left, right = tensors(first), tensors(other)
    nothing = np.zeros(0)
    for name in {**left, **right}:
        # a sequence may be longer on one of them
        expected, found = left.get(name, nothing), right.get(name, nothing)
        if not same_bits(expected, found):
            differing = count_differing(expected, found)
            differences.append(Difference(batch, device, name, differing, expected.size))
    return differences


def evaluate(
    sessions: Sequence[Session],
    batches: Iterable[Batch],
    limits: Sequence[int | None],
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Tally], list[Difference]]:
    """Run every batch on every session and compare each with the first session's.

    ``limits`` gives per session the number of batches it runs; None is all of them.
    """
    tallies = [Tally(session) for session in sessions]
    differences: list[Difference] = []
    for number, (inputs, labels) in enumerate(batches):
        results: list[Values | None] = []
        for tally, limit in zip(tallies, limits, strict=True):
            if limit is not None and number >= limit:
                results.append(None)
                continue
            progress(f"input {number + 1} on {tally.session.device}")
            results.append(tally.run(inputs, labels))
        reference = results[0]
        for tally, result in zip(tallies[1:], results[1:], strict=True):
            if reference is not None and result is not None:
                differences += compare(number, tally.session.device, reference, result)
        if all(result is None for result in results):
            break
    return tallies, differences
