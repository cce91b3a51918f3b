"""Random QDQ networks: every operator against the original, whatever stands next to whatever."""

from typing import Any

import numpy as np
import pytest

from accelc.compiler.frontend import build
from accelc.compiler.integer_reference import evaluate
from accelc.compiler.onnx import import_model
from accelc.isa.config import AccelConfig

CONFIGS = (
    AccelConfig(),
    AccelConfig(window=False),
    AccelConfig(lut=False),
    AccelConfig(add=False, mult_bits=20),
)


class Network:
    """Grows a network of quantized values from ``(n, c, h, w)`` int8 or uint8 inputs."""

    def __init__(self, b: Any, unsigned: bool) -> None:
        self.b, self.rng = b, b.rng
        self.dtype: Any = np.uint8 if unsigned else np.int8
        shape = (1, *(int(v) for v in self.rng.integers((1, 5, 5), (9, 13, 13))))
        self.values: list[tuple[str, tuple[int, ...]]] = []
        self.scales: dict[str, tuple[float, Any]] = {}
        self._add(b.input(shape, self.dtype), shape)

    def _params(self) -> tuple[float, Any]:
        info = np.iinfo(self.dtype)
        return float(self.rng.uniform(0.03, 0.2)), np.array(
            self.rng.integers(info.min, info.max), self.dtype
        )

    def _add(self, value: str, shape: tuple[int, ...], params: Any = None) -> None:
        self.values.append((value, shape))
        self.scales[value] = params or self._params()

    def pick(self) -> tuple[str, str, tuple[int, ...]]:
        """A value, dequantized: integer name, float name, shape."""
        value, shape = self.values[int(self.rng.integers(len(self.values)))]
        return value, self.b.dequantize(value, *self.scales[value]), shape

    def finish(self, real: str, shape: tuple[int, ...], params: Any = None) -> None:
        if self.rng.random() < 0.4 and params is None:
            real = self.b.node("Relu", real)
        params = params or self._params()
        self._add(self.b.quantize(real, *params), shape, params)

    def grow(self) -> None:
        kind = self.rng.choice(
            ["conv", "conv", "depthwise", "pool", "add", "concat", "function", "move"]
        )
        getattr(self, str(kind))()

    def conv(self) -> None:
        _, x, (n, c, h, w) = self.pick()
        kernel = [int(k) for k in self.rng.integers(1, (min(h, 4) + 1, min(w, 4) + 1))]
        o = int(self.rng.integers(1, 10))
        weights, _ = self.b.weights((o, c, *kernel), 0 if self.rng.random() < 0.5 else None)
        strides = [int(s) for s in self.rng.integers(1, 3, 2)]
        pads = [int(p) for p in self.rng.integers(0, kernel * 2)]
        out = [
            (s + pads[k] + pads[k + 2] - kernel[k]) // strides[k] + 1 for k, s in enumerate((h, w))
        ]
        y = self.b.node("Conv", x, weights, strides=strides, pads=pads)
        self.finish(y, (n, o, *out))

    def depthwise(self) -> None:
        _, x, (n, c, h, w) = self.pick()
        weights, _ = self.b.weights((c, 1, 3, 3))
        y = self.b.node("Conv", x, weights, group=c, pads=[1, 1, 1, 1])
        self.finish(y, (n, c, h, w))

    def pool(self) -> None:
        value, x, (n, c, h, w) = self.pick()
        if min(h, w) < 3:
            return
        average = self.rng.random() < 0.4
        y = self.b.node(
            "AveragePool" if average else "MaxPool", x, kernel_shape=[3, 3], strides=[2, 2]
        )
        self.finish(
            y, (n, c, (h - 3) // 2 + 1, (w - 3) // 2 + 1), None if average else self.scales[value]
        )

    def add(self) -> None:
        _, x, shape = self.pick()
        _, y, other = self.pick()
        if shape == other:
            self.finish(self.b.node(str(self.rng.choice(["Add", "Sub"])), x, y), shape)

    def concat(self) -> None:
        parts = [self.pick() for _ in range(int(self.rng.integers(1, 4)))]
        n, _, h, w = parts[0][2]
        if any(shape[2:] != (h, w) for _, _, shape in parts):
            return
        y = self.b.node("Concat", *(real for _, real, _ in parts), axis=1)
        self.finish(y, (n, sum(shape[1] for _, _, shape in parts), h, w))

    def function(self) -> None:
        _, x, shape = self.pick()
        op = str(self.rng.choice(["Sigmoid", "LeakyRelu", "HardSigmoid", "Tanh", "Identity"]))
        self.finish(self.b.node(op, x), shape)

    def move(self) -> None:
        """There and back: views that passes must cancel or carry along."""
        value, x, (n, c, h, w) = self.pick()
        y = self.b.node("Transpose", x, perm=[0, 2, 3, 1])
        if self.rng.random() < 0.5:
            y = self.b.dequantize(self.b.quantize(y, *self.scales[value]), *self.scales[value])
        y = self.b.node("Transpose", y, perm=[0, 3, 1, 2])
        self.finish(y, (n, c, h, w))


@pytest.mark.parametrize("seed", range(24))
def test_random_network(builder: Any, each_operator: Any, seed: int) -> None:
    print(f"seed {seed}")
    b = builder(seed=1000 + seed)
    network = Network(b, unsigned=bool(seed % 2))
    while len(network.values) < 9:
        network.grow()
    for value, _ in network.values[-3:]:
        b.output(value, network.dtype)
    model, feeds = b.model(), b.feeds()
    original = import_model(model)
    values = evaluate(original, feeds, every_value=True)
    config = CONFIGS[seed % len(CONFIGS)]
    graph = build(model, config=config)
    differing, total = each_operator(graph, values)
    assert differing <= max(2, total / 500), f"{differing} of {total}"
    for name, array in evaluate(graph, feeds).items():
        assert array.shape == values[name].shape and array.dtype == values[name].dtype
    if config == AccelConfig():
        assert not any(node.op in ("Conv", "Concat", "MaxPool", "Sigmoid") for node in graph.nodes)
