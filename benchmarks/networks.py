"""Builds int8 ImageNet networks with random weights, to measure cycles where accuracy is no matter.

Weights are He-initialised and quantized per output channel. The distribution of every activation is
followed through the network (normal before a relu, rectified after it), and quantization scales are
taken from it, so activations use their eight bits as in a trained network: they neither saturate
nor vanish.

    python benchmarks/networks.py resnet18 -o resnet18.onnx
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
CLASSES = 1000
#: Quantized ranges reach this many standard deviations from the mean.
_SIGMAS = 4.0


@dataclass(frozen=True)
class Value:
    """A quantized activation ``(1, channels, height, width)`` and its distribution."""

    #: The int8 tensor and its float view, after DequantizeLinear.
    name: str
    channels: int
    size: int
    mean: float
    #: Second moment, mean of the squares.
    square: float
    scale: float
    zero: int


class Builder:
    """Appends quantized layers, each with its QuantizeLinear and DequantizeLinear."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, array: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, inputs: list[str], output: str, **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attrs))
        return output

    def quantize(
        self, x: str, name: str, channels: int, size: int, mean: float, square: float, low: float
    ) -> Value:
        """Quantize float ``x`` whose values lie between ``low`` and mean + 4 sigma."""
        high = mean + _SIGMAS * math.sqrt(max(square - mean * mean, 1e-12))
        scale = float(np.float32((high - low) / 255))
        zero = int(np.clip(round(-128 - low / scale), -128, 127))
        parameters = [
            self.constant(f"{name}_scale", np.float32(scale)),
            self.constant(f"{name}_zero", np.int8(zero)),
        ]
        self.node("QuantizeLinear", [x, *parameters], f"{name}_q")
        self.node("DequantizeLinear", [f"{name}_q", *parameters], f"{name}_dq")
        return Value(f"{name}_dq", channels, size, mean, square, scale, zero)

    def input(self, name: str, channels: int, size: int) -> Value:
        """A standard normal image, quantized."""
        return self.quantize(name, f"{name}_in", channels, size, 0.0, 1.0, -_SIGMAS)

    def convolution(
        self, x: Value, name: str, channels: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> tuple[str, int, float]:
        """Conv with bias 0 to small; its float output, size and variance."""
        w = self.rng.standard_normal((channels, x.channels // groups, kernel, kernel))
        # exactly He's variance in every channel: few weights (depthwise) would scatter
        w *= np.sqrt(2 / (w**2).sum(axis=(1, 2, 3), keepdims=True))
        scale = (np.abs(w).max(axis=(1, 2, 3)) / 127).astype(np.float32)
        q = np.round(w / scale[:, None, None, None]).astype(np.int8)
        bias_scale = (np.float32(x.scale) * scale).astype(np.float32)
        bias = self.rng.standard_normal(channels) * 0.1 * math.sqrt(x.square)
        weights = self._dequantized(f"{name}_w", q, scale)
        biases = self._dequantized(
            f"{name}_b", np.round(bias / bias_scale).astype(np.int32), bias_scale
        )
        pad = kernel // 2
        y = self.node(
            "Conv", [x.name, weights, biases], name, kernel_shape=[kernel, kernel],
            strides=[stride, stride], pads=[pad] * 4, group=groups,
        )  # fmt: skip
        return y, (x.size + 2 * pad - kernel) // stride + 1, 2 * x.square + 0.01 * x.square

    def _dequantized(self, name: str, q: NDArray, scale: NDArray) -> str:
        return self.node(
            "DequantizeLinear",
            [
                self.constant(f"{name}_q", q),
                self.constant(f"{name}_scale", scale),
                self.constant(f"{name}_zero", np.zeros(scale.shape, q.dtype)),
            ],
            name,
            axis=0,
        )

    def relu(self, x: str, name: str, channels: int, size: int, mean: float, var: float) -> Value:
        """Relu and quantization of a normal ``x``."""
        y = self.node("Relu", [x], f"{name}_relu")
        sigma = math.sqrt(var)
        density = math.exp(-((mean / sigma) ** 2) / 2) / math.sqrt(2 * math.pi)
        share = (1 + math.erf(mean / sigma / math.sqrt(2))) / 2
        new_mean = mean * share + sigma * density
        new_square = (mean * mean + var) * share + mean * sigma * density
        # the upper end is that of the distribution before the relu
        high = mean + _SIGMAS * sigma
        wide = new_mean**2 + ((high - new_mean) / _SIGMAS) ** 2
        value = self.quantize(y, f"{name}_relu", channels, size, new_mean, wide, 0.0)
        return Value(value.name, channels, size, new_mean, new_square, value.scale, value.zero)

    def conv_relu(
        self, x: Value, name: str, channels: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> Value:
        y, size, var = self.convolution(x, name, channels, kernel, stride, groups)
        return self.relu(y, name, channels, size, 0.0, var)

    def conv_linear(
        self, x: Value, name: str, channels: int, kernel: int, stride: int = 1
    ) -> Value:
        y, size, var = self.convolution(x, name, channels, kernel, stride)
        return self.quantize(y, name, channels, size, 0.0, var, -_SIGMAS * math.sqrt(var))

    def residual(self, a: Value, b: Value, name: str) -> Value:
        """Relu of a sum of independent values."""
        y = self.node("Add", [a.name, b.name], name)
        mean = a.mean + b.mean
        var = a.square - a.mean**2 + b.square - b.mean**2
        return self.relu(y, name, a.channels, a.size, mean, var)

    def max_pool(self, x: Value, name: str) -> Value:
        y = self.node(
            "MaxPool", [x.name], name, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
        )
        # a pool keeps scale and zero point; the maximum of nine is about the upper third
        parameters = [f"{x.name[:-3]}_scale", f"{x.name[:-3]}_zero"]
        self.node("QuantizeLinear", [y, *parameters], f"{name}_q")
        self.node("DequantizeLinear", [f"{name}_q", *parameters], f"{name}_dq")
        size = (x.size - 1) // 2 + 1
        mean, square = 2.2 * x.mean, 3.5 * x.square
        return Value(f"{name}_dq", x.channels, size, mean, square, x.scale, x.zero)

    def classifier(self, x: Value, output: str) -> None:
        """Global average pool, fully connected layer, dequantized output."""
        y = self.node("GlobalAveragePool", [x.name], "pool")
        # neighbours are alike, so averaging narrows the distribution little
        pooled = self.quantize(y, "pool", x.channels, 1, x.mean, x.square, 0.0)
        flat = self.node("Flatten", [pooled.name], "flat", axis=1)
        w = self.rng.standard_normal((CLASSES, x.channels)) / math.sqrt(x.channels)
        scale = (np.abs(w).max(axis=1) / 127).astype(np.float32)
        q = np.round(w / scale[:, None]).astype(np.int8)
        bias_scale = (np.float32(pooled.scale) * scale).astype(np.float32)
        weights = self._dequantized("fc_w", q, scale)
        biases = self._dequantized("fc_b", np.zeros(CLASSES, np.int32), bias_scale)
        y = self.node("Gemm", [flat, weights, biases], "fc", transB=1)
        sigma = math.sqrt(pooled.square)
        parameters = [
            self.constant("fc_out_scale", np.float32(_SIGMAS * sigma / 127)),
            self.constant("fc_out_zero", np.int8(0)),
        ]
        self.node("QuantizeLinear", [y, *parameters], "fc_q")
        self.node("DequantizeLinear", ["fc_q", *parameters], output)

    def model(self, name: str, size: int) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])],
            self.constants,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )
        onnx.checker.check_model(model)
        return model


def resnet18(size: int = 224, seed: int = 18) -> onnx.ModelProto:
    """ResNet-18 v1 in QDQ form, ``(1, 3, size, size)`` float32 to 1000 logits."""
    b = Builder(seed)
    x = b.conv_relu(b.input("image", 3, size), "conv1", 64, 7, 2)
    x = b.max_pool(x, "maxpool")
    for stage, channels in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            name = f"layer{stage}_{block}"
            stride = 2 if block == 0 and stage > 1 else 1
            y = b.conv_relu(x, f"{name}_conv1", channels, 3, stride)
            y = b.conv_linear(y, f"{name}_conv2", channels, 3)
            if stride == 2:
                x = b.conv_linear(x, f"{name}_down", channels, 1, 2)
            x = b.residual(y, x, f"{name}_add")
    b.classifier(x, "logits")
    return b.model("resnet18", size)


def mobilenet_v1(size: int = 224, seed: int = 1) -> onnx.ModelProto:
    """MobileNetV1 1.0 in QDQ form, ``(1, 3, size, size)`` float32 to 1000 logits."""
    b = Builder(seed)
    x = b.conv_relu(b.input("image", 3, size), "conv0", 32, 3, 2)
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5,
            (1024, 2), (1024, 1)]  # fmt: skip
    for index, (channels, stride) in enumerate(plan, start=1):
        x = b.conv_relu(x, f"dw{index}", x.channels, 3, stride, groups=x.channels)
        x = b.conv_relu(x, f"pw{index}", channels, 1)
    b.classifier(x, "logits")
    return b.model("mobilenetv1", size)


NETWORKS = {"resnet18": resnet18, "mobilenetv1": mobilenet_v1}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--size", type=int, default=224, help="height and width of the image")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    onnx.save(NETWORKS[arguments.network](arguments.size), arguments.output)


if __name__ == "__main__":
    main()
