"""Measures how compile time grows with the number of nodes: it must be linear.

    python benchmarks/compile_time.py
    python benchmarks/compile_time.py --shape qdq --nodes 20000 --profile

For every form of graph and number of nodes one line: regions on the accelerator, seconds of
processor time to compile (programs verified), to write and read the artifact, and to make the
network ready to run (native code included), microseconds a node, and how these compare with the
smallest graph of that form. The last line is the largest growth of the time a node takes.
"""

import argparse
import cProfile
import json
import pstats
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import accelc
from accelc.artifact import Artifact

OPSET = 17
NODES = (2500, 5000, 10_000, 20_000)
#: Elementwise operators a chain goes round, with and without a second operand.
UNARY = ("Relu", "Neg", "Abs", "Sigmoid")
BINARY = ("Add", "Mul", "Sub", "Max")


class Writer:
    """Collects the nodes of a model; values are ``(1, channels, size, size)`` float32."""

    def __init__(self, channels: int = 4, size: int = 6) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.shape = (1, channels, size, size)

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attrs))
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantized(self, value: str) -> str:
        scale, zero = self.constant(np.float32(0.05)), self.constant(np.int8(-3))
        levels = self.node("QuantizeLinear", value, scale, zero)
        return self.node("DequantizeLinear", levels, scale, zero)

    def quantized_conv(self, value: str) -> str:
        """A convolution of quantized weights, relu, and a quantized result."""
        data = self.rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8)
        scale, zero = self.constant(np.float32(0.003)), self.constant(np.int8(0))
        weights = self.node("DequantizeLinear", self.constant(data), scale, zero)
        conv = self.node("Conv", value, weights, pads=[1, 1, 1, 1])
        return self.quantized(self.node("Relu", conv))

    def model(self, output: str) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "generated",
            [value("x", TensorProto.FLOAT, self.shape)],
            [value(output, TensorProto.FLOAT, None)],
            self.constants,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def chain(count: int) -> onnx.ModelProto:
    """Elementwise operators one behind the other, each second one with a constant."""
    w = Writer()
    value = "x"
    for k in range(count):
        if k % 2:
            operand = w.constant(w.rng.standard_normal((4, 1, 1)).astype(np.float32))
            value = w.node(BINARY[k // 2 % 4], value, operand)
        else:
            value = w.node(UNARY[k // 2 % 4], value)
    return w.model(value)


def wide(count: int) -> onnx.ModelProto:
    """Short branches of the same input, added two by two until one value is left."""
    w = Writer()
    values = []
    while len(w.nodes) + len(values) < count:
        scale = w.constant(w.rng.standard_normal(1).astype(np.float32))
        values.append(w.node("Sigmoid", w.node("Mul", "x", scale)))
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [w.node("Add", a, b) for a, b in pairs] + values[len(values) & ~1 :]
    return w.model(values[0])


def residual(count: int) -> onnx.ModelProto:
    """Convolution, relu, convolution, addition, relu, over and over."""
    w = Writer()
    value = "x"
    while len(w.nodes) < count:
        shortcut = value
        for _ in range(2):
            weights = w.constant(w.rng.standard_normal((4, 4, 3, 3)).astype(np.float32) / 6)
            value = w.node("Conv", value, weights, pads=[1, 1, 1, 1])
            if len(w.nodes) % 5 == 1:
                value = w.node("Relu", value)
        value = w.node("Relu", w.node("Add", value, shortcut))
    return w.model(value)


def qdq(count: int) -> onnx.ModelProto:
    """Quantized convolutions with residual additions, every value quantized and dequantized."""
    w = Writer()
    value = w.quantized("x")
    while len(w.nodes) < count:
        value = w.quantized(w.node("Add", w.quantized_conv(value), value))
    return w.model(value)


def qdq_islands(count: int) -> onnx.ModelProto:
    """Quantized convolutions between float softmaxes: a region of the accelerator for each."""
    w = Writer()
    value = "x"
    while len(w.nodes) < count:
        value = w.node("Softmax", w.quantized_conv(w.quantized(value)), axis=1)
    return w.model(value)


SHAPES: dict[str, tuple[Callable[[int], onnx.ModelProto], str]] = {
    "chain": (chain, "cpu"),
    "wide": (wide, "cpu"),
    "residual": (residual, "cpu"),
    "qdq": (qdq, "cpu"),
    "qdq-accelerator": (qdq, "vta"),
    "islands-accelerator": (qdq_islands, "vta"),
}


def measure(shape: str, count: int) -> dict[str, Any]:
    """Compile one graph, write and read its artifact, and prepare it to run."""
    build, target = SHAPES[shape]
    model = build(count)
    start = time.process_time()
    artifact = accelc.compile(model, target=target)
    compiled = time.process_time()
    artifact = Artifact.from_bytes(artifact.to_bytes())
    stored = time.process_time()
    accelc.load(artifact, "cpu" if target == "cpu" else "functional")
    ready = time.process_time()
    nodes = len(model.graph.node)
    return {
        "graph": shape,
        "nodes": nodes,
        "regions": sum(step.program is not None for step in artifact.model.steps),
        "compile_seconds": round(compiled - start, 3),
        "artifact_seconds": round(stored - compiled, 3),
        "ready_seconds": round(ready - stored, 3),
        "us_per_node": round(1e6 * (ready - start) / nodes, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, help="only this form of graph")
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES, help="numbers of nodes")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    worst = 0.0
    measure("qdq-accelerator", 40)  # imports, and what is made once in a process
    for shape in [options.shape] if options.shape else SHAPES:
        first = 0.0
        for count in options.nodes:
            profile = cProfile.Profile() if options.profile else None
            result = profile.runcall(measure, shape, count) if profile else measure(shape, count)
            first = first or result["us_per_node"]
            growth = result["us_per_node"] / first
            worst = max(worst, growth)
            if options.json:
                print(json.dumps(result), flush=True)
            else:
                parts = (
                    f"{shape:19} {result['nodes']:6} nodes",
                    f"{result['regions']:4} regions",
                    f"compile {result['compile_seconds']:6.2f} s",
                    f"artifact {result['artifact_seconds']:5.2f} s",
                    f"ready {result['ready_seconds']:6.2f} s",
                    f"{result['us_per_node']:7.1f} us/node",
                    f"x{growth:.2f}",
                )
                print("  ".join(parts), flush=True)
            if profile is not None:
                pstats.Stats(profile).sort_stats("cumulative").print_stats(40)
    if not options.json:
        print(f"largest growth of the time a node takes: x{worst:.2f}")


if __name__ == "__main__":
    main()
