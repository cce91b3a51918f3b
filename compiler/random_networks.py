"""Random networks of float ONNX operators, with much that passes can improve, for their tests."""

from typing import Any

import numpy as np

from accelc.compiler.graph import Array, Graph, Node, TensorType
from accelc.compiler.onnx_node import run

_OPSET = 17
_UNARY = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Identity", "Exp", "Floor", "Softplus")


class _Network:
    """Builds a graph eagerly: every value's type is that of its value for one random input."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[Node] = []
        self.values: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.inputs: list[str] = []

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = self.values[name] = np.asarray(array)
        return name

    def normal(self, *shape: int) -> str:
        return self.constant(self.rng.normal(size=shape).astype(np.float32))

    def emit(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        node = Node(op, name, inputs, (name,), attrs)
        given = [self.values[value] if value else None for value in inputs]
        self.values[name] = np.asarray(run(node, given, _OPSET)[0])
        self.nodes.append(node)
        return name

    def shape(self, value: str) -> tuple[int, ...]:
        return self.values[value].shape

    def beside(self, x: str) -> str:
        """A constant that ``x`` can be combined with, or another value of its shape."""
        same = [n.outputs[0] for n in self.nodes if self.shape(n.outputs[0]) == self.shape(x)]
        if same and self.rng.random() < 0.4:
            return str(self.rng.choice(same))
        shape = self.shape(x)
        match self.rng.integers(4):
            case 0:
                return self.constant(np.float32(self.rng.choice([0.0, 1.0, 2.0, -0.5])))
            case 1:
                return self.normal(*(s if k == 1 else 1 for k, s in enumerate(shape)))
            case 2:
                return self.normal(*shape[-1:])
        return self.normal(*shape)


def random_network(seed: int, *, nodes: int = 12) -> Graph:
    """A connected network of about ``nodes`` float operators on small tensors."""
    rng = np.random.default_rng(seed)
    network = _Network(rng)
    shape = (int(rng.integers(1, 3)), 4, int(rng.integers(3, 7)), int(rng.integers(3, 7)))
    network.inputs.append("x")
    network.values["x"] = rng.normal(size=shape).astype(np.float32)
    value = "x"
    with np.errstate(all="ignore"):
        while len(network.nodes) < nodes:
            known = [node.outputs[0] for node in network.nodes]
            x = value if rng.random() < 0.8 or not known else str(rng.choice(known))
            value = _random_node(network, rng, x)
            if not np.isfinite(network.values[value]).all() or network.values[value].size > 20_000:
                value = "x"
    used = {name for node in network.nodes for name in node.inputs}
    ends = [node.outputs[0] for node in network.nodes if node.outputs[0] not in used]
    return Graph(
        name=f"random{seed}",
        nodes=tuple(network.nodes),
        types={name: TensorType(a.shape, a.dtype) for name, a in network.values.items()},
        constants=network.constants,
        inputs=tuple(network.inputs),
        outputs=tuple(ends),
        opset=_OPSET,
    )


def _random_node(network: _Network, rng: np.random.Generator, x: str) -> str:
    shape = network.shape(x)
    match rng.integers(10):
        case 0 | 1 | 2:
            return network.emit(str(rng.choice(["Add", "Mul", "Sub"])), x, network.beside(x))
        case 3:
            perm = tuple(int(p) for p in rng.permutation(len(shape)))
            return network.emit("Transpose", x, perm=perm)
        case 4 if len(shape) == 4:
            return _convolution(network, rng, x)
        case 5:
            wanted = (shape[0], -1) if rng.random() < 0.3 else shape[:1] + shape[:0:-1]
            return network.emit("Reshape", x, network.constant(np.array(wanted, np.int64)))
        case 6:
            axis = int(rng.integers(len(shape)))
            if rng.random() < 0.5:
                return network.emit("Softmax", x, axis=axis)
            return network.emit("ReduceMean", x, axes=(axis,), keepdims=1)
        case 7:
            axis = int(rng.integers(len(shape)))
            return network.emit("Concat", x, network.emit("Tanh", x), axis=axis)
        case 8:
            low, high = (network.constant(np.float32(v)) for v in (-1, rng.integers(0, 4)))
            return network.emit("Clip", x, low, high)
    return network.emit(str(rng.choice(_UNARY)), x)


def _convolution(network: _Network, rng: np.random.Generator, x: str) -> str:
    """A convolution, with a pad before it or a scale or normalization behind it now and then."""
    channels = network.shape(x)[1]
    kernel = int(rng.integers(1, min(4, *(s + 1 for s in network.shape(x)[2:]))))
    if rng.random() < 0.3:
        pads = network.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1], np.int64))
        x = network.emit("Pad", x, pads)
    outputs = int(rng.integers(1, 6))
    y = network.emit("Conv", x, network.normal(outputs, channels, kernel, kernel))
    if rng.random() < 0.5:
        params = [
            network.constant(rng.uniform(0.5, 2, outputs).astype(np.float32)) for _ in range(4)
        ]
        return network.emit("BatchNormalization", y, *params)
    return network.emit("Mul", y, network.normal(outputs, 1, 1))
