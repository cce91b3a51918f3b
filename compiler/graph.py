"""The typed dataflow graph: what is true of the network, at every stage of compilation."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Quant:
    """Affine quantization: ``real = (q - zero_point) * scale``.

    ``scale`` is ``()`` or ``(channels,)`` float32 along ``axis``, and so is ``zero_point``.
    """

    scale: Array
    zero_point: Array
    axis: int | None = None

    @property
    def per_tensor(self) -> bool:
        return self.scale.size == 1


@dataclass(frozen=True)
class TensorType:
    """Shape, element type and, for quantized tensors, what the integers mean."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    quant: Quant | None = None


@dataclass(frozen=True)
class Node:
    """One operation.

    ``op`` is an ONNX operator (``Conv``, ``com.microsoft.QLinearAdd``) or one of the integer
    operators of ``compiler.integer`` (``int.conv``...). An absent optional input is ``""``.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def with_(self, **changes: Any) -> "Node":
        return replace(self, **changes)

    def input(self, index: int) -> str:
        """The input at ``index``; ``""`` if it is absent or left out at the end."""
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(frozen=True)
class Origin:
    """Which tensor of the model a value holds, in another layout.

    ``steps`` make the tensor of the value, in order: ``Transpose`` and ``Reshape`` with what they
    take, and ``Unsigned`` from int8 to uint8.
    """

    name: str
    steps: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order over named values; ``types`` covers every value.

    ``constants`` hold values known at compile time; they are neither inputs nor node outputs.
    ``notes`` is what the user should know about decisions made on their behalf, one line each;
    ``reasons`` says, by node name, why a quantized pattern could not become integer operators.
    ``symbols`` names the open dimensions (-1) of inputs: by input, one name an axis, "" where the
    size is fixed. Inputs without open dimensions are not in it. ``origins`` tells, of values that
    are not called as in the model, which tensor they hold.
    """

    name: str
    nodes: tuple[Node, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int = 0
    notes: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    symbols: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def with_(self, **changes: Any) -> "Graph":
        return replace(self, **changes)

    def producer(self) -> dict[str, Node]:
        return {output: node for node in self.nodes for output in node.outputs if output}

    def consumers(self) -> dict[str, list[Node]]:
        uses: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    uses.setdefault(name, []).append(node)
        return uses
