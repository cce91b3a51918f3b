"""Nodes without a native kernel, through ``onnx.reference``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from accelc.compiler.graph import Node, TensorType
from accelc.compiler.onnx_node import run


def in_memory(kind: TensorType) -> bool:
    """Whether a value has bytes in the arena: no string, sequence or shape that depends on data."""
    return np.dtype(kind.dtype).kind not in "OUS" and all(extent >= 0 for extent in kind.shape)


class ReferenceNode:
    """One node run by the reference; ``reference_operators`` is its operator."""

    def __init__(self, node: Node, opset: int) -> None:
        self.node = node
        self.opset = opset
        self.reads = tuple(dict.fromkeys(name for name in node.inputs if name))
        self.writes = tuple(name for name in node.outputs if name)
        self.reference_operators = frozenset((node.op,))

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """The outputs that have a name, in order: arrays, or lists for sequences.

        Raises:
            ModelError: the reference rejects the inputs.
        """
        # the reference may keep or change what it is given: copies, not views of the arena
        inputs = [
            np.array(values[n]) if isinstance(values.get(n), np.ndarray) else values.get(n)
            for n in self.node.inputs
        ]
        results = run(self.node, inputs, self.opset)
        return [r if isinstance(r, list) or r is None else np.asarray(r) for r in results]
