#!/usr/bin/env python3
"""Train the example digit classifier and quantize it to an int8 ONNX (QDQ) model.

The script produces the three artefacts that live next to it:

``digits_float.onnx``
    a small residual CNN in float32, batch normalization already folded into the convolutions;
``digits_resnet8_int8.onnx``
    the same network after post-training quantization, every operator between a
    DequantizeLinear and a QuantizeLinear;
``digits_test.npz``
    the labelled held-out images, which are used for neither training nor calibration.

Why it is built this way:

* There is *one* description of the network, :data:`NETWORK`. The torch module that is trained,
  the float graph and the int8 graph are all generated from it, so they cannot drift apart.
* The ONNX graphs are assembled node by node with ``onnx.helper`` rather than by an exporter, so
  that node order, names and quantization parameters are fully under the control of this file.
* Post-training quantization is sufficient: with per-channel weights and asymmetric activations
  the network loses next to nothing, so no quantization-aware training is needed.
* Nothing is selected on the held-out images: the last epoch is what gets exported.

Examples::

    python models/digits_train.py                 # retrain, overwrite the artefacts
    python models/digits_train.py --out /tmp/d    # retrain, write somewhere else
    python models/digits_train.py --evaluate      # accuracy of the existing artefacts

Training needs torch and scikit-learn; ``--evaluate`` only needs numpy, onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    import torch

FLOAT_NAME = "digits_float.onnx"
INT8_NAME = "digits_resnet8_int8.onnx"
TEST_NAME = "digits_test.npz"

OPSET = 17  # old enough for every runtime of interest, new enough for per-channel DequantizeLinear
IR_VERSION = 8
HELD_OUT = 450  # images, a quarter of the 1797
SPLIT_SEED = 2024  # independent of --seed, so that retraining never moves the held-out set
INT8_MIN, INT8_MAX = -128, 127

Array = np.ndarray
Weights = dict[str, tuple[Array, Array]]
"""Folded parameters: layer name -> (weight, bias), both float32."""


# --------------------------------------------------------------------------------------------------
# The network
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Op:
    """One operator of the network; its output tensor carries the operator's name.

    ``kind`` is one of conv, relu, add, maxpool, gap (global average pool), flatten and fc (fully
    connected). The remaining fields only matter for the kinds that have weights or a window.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    cin: int = 0
    cout: int = 0
    kernel: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def pad(self) -> int:
        """Symmetric padding that keeps the size at stride 1 ("same" for odd kernels)."""
        return self.kernel // 2


def _conv(name: str, x: str, cin: int, cout: int, kernel: int = 3, **kwargs: int) -> Op:
    return Op("conv", name, (x,), cin=cin, cout=cout, kernel=kernel, **kwargs)


def _relu(name: str, x: str) -> Op:
    return Op("relu", name, (x,))


INPUT, OUTPUT = "image", "logits"

NETWORK: tuple[Op, ...] = (
    # Stem, 8x8.
    _conv("stem_conv", INPUT, 1, 16),
    _relu("stem_relu", "stem_conv"),
    # Residual block with an identity shortcut.
    _conv("res1_conv1", "stem_relu", 16, 16),
    _relu("res1_relu1", "res1_conv1"),
    _conv("res1_conv2", "res1_relu1", 16, 16),
    Op("add", "res1_add", ("res1_conv2", "stem_relu")),
    _relu("res1_relu2", "res1_add"),
    # Strided residual block, 8x8 -> 4x4, with a 1x1 projection on the shortcut: the two operands
    # of the Add come from different convolutions and hence have different scales.
    _conv("res2_conv1", "res1_relu2", 16, 32, stride=2),
    _relu("res2_relu1", "res2_conv1"),
    _conv("res2_conv2", "res2_relu1", 32, 32),
    _conv("res2_proj", "res1_relu2", 16, 32, kernel=1, stride=2),
    Op("add", "res2_add", ("res2_conv2", "res2_proj")),
    _relu("res2_relu2", "res2_add"),
    # Depthwise-separable block.
    _conv("sep_depthwise", "res2_relu2", 32, 32, groups=32),
    _relu("sep_relu1", "sep_depthwise"),
    _conv("sep_pointwise", "sep_relu1", 32, 32, kernel=1),
    _relu("sep_relu2", "sep_pointwise"),
    # Head: 4x4 -> 2x2 -> 1x1 -> 10 classes.
    Op("maxpool", "pool", ("sep_relu2",), kernel=2, stride=2),
    Op("gap", "gap", ("pool",)),
    Op("flatten", "features", ("gap",)),
    Op("fc", OUTPUT, ("features",), cin=32, cout=10),
)

SAME_SCALE_KINDS = frozenset({"maxpool", "flatten"})
"""Operators that only select or move values: output and input share scale and zero point."""


# --------------------------------------------------------------------------------------------------
# Data
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Images (n,1,8,8) in 0..1, labels, and the rows of ``load_digits`` that are held out."""

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    test_index: Array


def load_split() -> Split:
    """Load scikit-learn's handwritten digits and split them, stratified by class."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    x = (digits.images / 16.0).astype(np.float32)[:, None]
    y = digits.target.astype(np.int64)
    train, test = train_test_split(
        np.arange(len(y)), test_size=HELD_OUT, stratify=y, random_state=SPLIT_SEED
    )
    train, test = np.sort(train), np.sort(test)
    return Split(x[train], y[train], x[test], y[test], test.astype(np.int64))


def augment(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Randomly rotate, scale, shift and add noise to a batch of images.

    The ranges are deliberately small: at 8x8 a shift of one pixel is already an eighth of the
    image, and stronger rotations start to turn digits into one another.
    """
    import torch
    import torch.nn.functional as F

    n = x.shape[0]

    def uniform(low: float, high: float) -> torch.Tensor:
        return torch.rand(n, generator=generator) * (high - low) + low

    angle = uniform(-0.21, 0.21)  # about 12 degrees
    scale_x, scale_y = uniform(0.88, 1.12), uniform(0.88, 1.12)
    one_pixel = 2.0 / x.shape[-1]  # grid coordinates span -1..1
    shift_x, shift_y = uniform(-one_pixel, one_pixel), uniform(-one_pixel, one_pixel)
    cos, sin = torch.cos(angle), torch.sin(angle)
    theta = torch.stack(
        [
            torch.stack([cos * scale_x, -sin * scale_y, shift_x], dim=1),
            torch.stack([sin * scale_x, cos * scale_y, shift_y], dim=1),
        ],
        dim=1,
    )
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    warped = F.grid_sample(x, grid, mode="bilinear", align_corners=False)
    # Interpolation blurs, so leave some of the images geometrically untouched.
    keep = (uniform(0.0, 1.0) < 0.15).view(n, 1, 1, 1)
    out = torch.where(keep, x, warped)
    noise = torch.randn(x.shape, generator=generator) * 0.04
    return (out + noise).clamp(0.0, 1.0)


# --------------------------------------------------------------------------------------------------
# Training
# --------------------------------------------------------------------------------------------------


def make_module() -> torch.nn.Module:
    """Build the torch module for :data:`NETWORK`, with batch norm after every convolution."""
    from torch import nn
    from torch.nn import functional as F

    class DigitsNet(nn.Module):
        """Interprets the operator list; only conv and fc own parameters."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleDict()
            for op in NETWORK:
                if op.kind == "conv":
                    conv = nn.Conv2d(
                        op.cin, op.cout, op.kernel, op.stride, op.pad, groups=op.groups, bias=False
                    )
                    self.layers[op.name] = nn.Sequential(conv, nn.BatchNorm2d(op.cout))
                elif op.kind == "fc":
                    self.layers[op.name] = nn.Linear(op.cin, op.cout)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            values = {INPUT: image}
            for op in NETWORK:
                args = [values[name] for name in op.inputs]
                match op.kind:
                    case "conv" | "fc":
                        out = self.layers[op.name](*args)
                    case "relu":
                        out = F.relu(*args)
                    case "add":
                        out = args[0] + args[1]
                    case "maxpool":
                        out = F.max_pool2d(args[0], op.kernel, op.stride)
                    case "gap":
                        out = args[0].mean(dim=(2, 3), keepdim=True)
                    case "flatten":
                        out = args[0].flatten(1)
                    case _:
                        raise ValueError(f"unknown operator kind {op.kind!r}")
                values[op.name] = out
            return values[OUTPUT]

    return DigitsNet()


def train(x: Array, y: Array, epochs: int, seed: int, batch_size: int = 64) -> torch.nn.Module:
    """Train on the given images only and return the module of the last epoch, in eval mode.

    Seeded, and single-threaded because the order of floating-point sums, and with it the result,
    otherwise depends on the number of cores.
    """
    import torch
    import torch.nn.functional as F

    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)

    module = make_module()
    images, labels = torch.from_numpy(x), torch.from_numpy(y)
    steps = len(x) // batch_size
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=6e-3, total_steps=epochs * steps, pct_start=0.2
    )
    started = time.perf_counter()
    for epoch in range(1, epochs + 1):
        module.train()
        order = torch.randperm(len(images), generator=generator)
        total = 0.0
        for step in range(steps):  # the incomplete last batch is dropped, batch norm dislikes it
            rows = order[step * batch_size : (step + 1) * batch_size]
            logits = module(augment(images[rows], generator))
            loss = F.cross_entropy(logits, labels[rows], label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        if epoch == 1 or epoch == epochs or epoch % 10 == 0:
            seconds = time.perf_counter() - started
            print(f"epoch {epoch:3d}/{epochs}  loss {total / steps:.4f}  {seconds:6.1f} s")
    return module.eval()


def fold_weights(module: torch.nn.Module) -> Weights:
    """Fold each batch norm into the convolution before it; return plain float32 arrays."""
    weights: Weights = {}
    layers: Any = module.layers
    for op in NETWORK:
        if op.kind == "conv":
            conv, norm = layers[op.name]
            gain = norm.weight / (norm.running_var + norm.eps).sqrt()
            weight = conv.weight * gain.view(-1, 1, 1, 1)
            bias = norm.bias - norm.running_mean * gain
        elif op.kind == "fc":
            weight, bias = layers[op.name].weight, layers[op.name].bias
        else:
            continue
        weights[op.name] = (weight.detach().numpy().copy(), bias.detach().numpy().copy())
    return weights


# --------------------------------------------------------------------------------------------------
# ONNX graphs
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QParams:
    """Per-tensor asymmetric int8 quantization: real = scale * (q - zero_point)."""

    scale: np.float32
    zero_point: np.int8

    @classmethod
    def from_range(cls, low: float, high: float) -> QParams:
        """Cover low..high, widened to contain 0 so that 0 (zero padding!) is exact."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = np.float32(max(high - low, 1e-6) / (INT8_MAX - INT8_MIN))
        zero_point = np.clip(np.rint(INT8_MIN - low / scale), INT8_MIN, INT8_MAX)
        return cls(scale, np.int8(zero_point))


def quantize_parameters(
    weight: Array, bias: Array, x_scale: np.float32
) -> tuple[Array, Array, Array, Array]:
    """Quantize weights per output channel (symmetric int8) and the bias to int32.

    The bias scale is ``x_scale * w_scale[c]``, the scale of the int32 accumulator, so that
    hardware can add it without rescaling. Returns (weight, w_scale, bias, b_scale).
    """
    channels = weight.reshape(len(weight), -1)
    w_scale = (np.maximum(np.abs(channels).max(axis=1), 1e-6) / INT8_MAX).astype(np.float32)
    shape = (-1,) + (1,) * (weight.ndim - 1)
    w_int = np.clip(np.rint(weight / w_scale.reshape(shape)), -INT8_MAX, INT8_MAX).astype(np.int8)
    b_scale = (x_scale * w_scale).astype(np.float32)
    b_real = np.rint(bias.astype(np.float64) / b_scale)
    if np.abs(b_real).max() > np.iinfo(np.int32).max:
        raise ValueError("bias does not fit in int32; a channel has nearly no weight")
    return w_int, w_scale, b_real.astype(np.int32), b_scale


class GraphBuilder:
    """Collects the nodes and initializers of one graph, float or QDQ.

    With ``qparams`` (tensor name -> parameters) every activation gets a QuantizeLinear /
    DequantizeLinear pair and every weight a DequantizeLinear; without, the graph is plain float.
    """

    def __init__(self, weights: Weights, qparams: Mapping[str, QParams] | None = None) -> None:
        self.weights = weights
        self.qparams = qparams
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def build(self, name: str, doc: str) -> onnx.ModelProto:
        """Emit the whole network and return the checked model."""
        tensors = {INPUT: self._activation(INPUT, INPUT)}
        for op in NETWORK:
            tensors[op.name] = self._operator(op, [tensors[x] for x in op.inputs])
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", 1, 8, 8])],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", 10])],
            self.initializers,
            doc_string=doc,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="digits_train.py",
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def _constant(self, name: str, value: Array | np.generic) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _node(self, kind: str, name: str, inputs: list[str], output: str, **attrs: Any) -> None:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attrs))

    def _activation(self, tensor: str, raw: str) -> str:
        """Quantize and dequantize the activation ``raw``; return the name to read it from.

        ``tensor`` is its logical name. The network output must itself be called ``logits``, so
        there the dequantized tensor takes the name and the value before it is ``logits_raw``.
        """
        if self.qparams is None:
            return tensor
        q = self.qparams[tensor]
        params = [
            self._constant(f"{tensor}_scale", q.scale),
            self._constant(f"{tensor}_zero_point", q.zero_point),
        ]
        output = tensor if tensor == OUTPUT else f"{tensor}_dq"
        self._node("QuantizeLinear", f"{tensor}/quantize", [raw, *params], f"{tensor}_q")
        self._node("DequantizeLinear", f"{tensor}/dequantize", [f"{tensor}_q", *params], output)
        return output

    def _parameters(self, op: Op) -> list[str]:
        """Emit weight and bias of ``op``; return the names of the (dequantized) tensors."""
        weight, bias = self.weights[op.name]
        w_name, b_name = f"{op.name}_weight", f"{op.name}_bias"
        if self.qparams is None:
            return [self._constant(w_name, weight), self._constant(b_name, bias)]
        w_int, w_scale, b_int, b_scale = quantize_parameters(
            weight, bias, self.qparams[op.inputs[0]].scale
        )
        outputs = []
        for name, value, scale in ((w_name, w_int, w_scale), (b_name, b_int, b_scale)):
            inputs = [
                self._constant(f"{name}_q", value),
                self._constant(f"{name}_scale", scale),
                self._constant(f"{name}_zero_point", np.zeros(len(scale), value.dtype)),
            ]
            self._node("DequantizeLinear", f"{name}/dequantize", inputs, f"{name}_dq", axis=0)
            outputs.append(f"{name}_dq")
        return outputs

    def _operator(self, op: Op, inputs: list[str]) -> str:
        """Emit ``op`` reading ``inputs``; return the name to read its result from."""
        quantized = self.qparams is not None
        out = f"{op.name}_raw" if quantized else op.name
        match op.kind:
            case "conv":
                self._node(
                    "Conv",
                    op.name,
                    inputs + self._parameters(op),
                    out,
                    kernel_shape=[op.kernel] * 2,
                    strides=[op.stride] * 2,
                    pads=[op.pad] * 4,
                    group=op.groups,
                )
            case "fc":
                self._node("Gemm", op.name, inputs + self._parameters(op), out, transB=1)
            case "relu":
                self._node("Relu", op.name, inputs, out)
            case "add":
                self._node("Add", op.name, inputs, out)
            case "maxpool":
                window = {"kernel_shape": [op.kernel] * 2, "strides": [op.stride] * 2}
                self._node("MaxPool", op.name, inputs, out, **window)
            case "gap":
                self._node("GlobalAveragePool", op.name, inputs, out)
            case "flatten":
                self._node("Flatten", op.name, inputs, out, axis=1)
            case _:
                raise ValueError(f"unknown operator kind {op.kind!r}")
        return self._activation(op.name, out)


# --------------------------------------------------------------------------------------------------
# Calibration and evaluation
# --------------------------------------------------------------------------------------------------


def run_model(model: onnx.ModelProto | Path, x: Array, *, optimize: bool = True) -> list[Array]:
    """Run a model on images with onnxruntime (CPU) and return all its outputs.

    ``optimize=False`` executes the graph literally, node by node: DequantizeLinear, float
    operator, QuantizeLinear. With optimization the pairs are fused into integer kernels, and the
    session option makes these stay int8 instead of being rewritten to uint8.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return session.run(None, {INPUT: x})


def calibrate(float_model: onnx.ModelProto, x: Array) -> dict[str, QParams]:
    """Determine activation ranges (min-max) by running the float graph on training images.

    Plain min-max rather than a percentile: no training image is clipped, and at 8 bits the
    accuracy is that of the float network anyway.
    """
    probe = onnx.ModelProto()
    probe.CopyFrom(float_model)
    names = [op.name for op in NETWORK]
    del probe.graph.output[:]
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    values = dict(zip(names, run_model(probe, x, optimize=False), strict=True))
    values[INPUT] = x
    qparams = {k: QParams.from_range(float(v.min()), float(v.max())) for k, v in values.items()}
    for op in NETWORK:
        if op.kind in SAME_SCALE_KINDS:
            qparams[op.name] = qparams[op.inputs[0]]
    return qparams


def evaluate(directory: Path) -> dict[str, float]:
    """Print and return held-out accuracies of the artefacts in ``directory``."""
    with np.load(directory / TEST_NAME) as data:
        x, y = data["x"], data["y"]
    print(f"held-out images: {len(y)}  (onnxruntime {ort.__version__})")
    accuracies: dict[str, float] = {}
    runs = (
        ("float", FLOAT_NAME, True),
        ("int8, optimized", INT8_NAME, True),
        ("int8, unoptimized", INT8_NAME, False),
    )
    for label, name, optimize in runs:
        path = directory / name
        hits = run_model(path, x, optimize=optimize)[0].argmax(axis=1) == y
        accuracies[label] = float(hits.mean())
        print(
            f"{label:18s} accuracy {100 * hits.mean():6.2f} %  ({int(hits.sum())}/{len(y)})  "
            f"{name}, {path.stat().st_size} bytes"
        )
    return accuracies


# --------------------------------------------------------------------------------------------------
# Command line
# --------------------------------------------------------------------------------------------------


def produce(directory: Path, epochs: int, seed: int) -> None:
    """Train, quantize and write all artefacts to ``directory``."""
    import torch

    directory.mkdir(parents=True, exist_ok=True)
    split = load_split()
    print(f"training on {len(split.y_train)} images, {len(split.y_test)} held out")
    module = train(split.x_train, split.y_train, epochs, seed)
    weights = fold_weights(module)

    float_model = GraphBuilder(weights).build("digits_float", "Digit classifier, float32")
    with torch.no_grad():
        expected = module(torch.from_numpy(split.x_train)).numpy()
    error = np.abs(run_model(float_model, split.x_train)[0] - expected).max()
    if error > 1e-3:
        raise RuntimeError(f"the float ONNX graph deviates from the trained module by {error:g}")

    qparams = calibrate(float_model, split.x_train)
    int8_model = GraphBuilder(weights, qparams).build("digits_int8", "Digit classifier, int8 QDQ")

    (directory / FLOAT_NAME).write_bytes(float_model.SerializeToString(deterministic=True))
    (directory / INT8_NAME).write_bytes(int8_model.SerializeToString(deterministic=True))
    np.savez_compressed(
        directory / TEST_NAME, x=split.x_test, y=split.y_test, index=split.test_index
    )


def main() -> None:
    """Parse the command line, then train (unless only evaluating) and print accuracies."""
    parser = argparse.ArgumentParser(description="Train and quantize the example digit classifier.")
    here = Path(__file__).resolve().parent
    parser.add_argument(
        "--out",
        type=Path,
        default=here,
        metavar="DIR",
        help="directory of the artefacts (default: where this script is)",
    )
    parser.add_argument("--epochs", type=int, default=120, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--evaluate",
        action="store_true",
        help="do not train, only print the accuracies of the existing artefacts",
    )
    args = parser.parse_args()
    if args.epochs < 1:
        parser.error("--epochs must be at least 1")
    try:
        if not args.evaluate:
            produce(args.out, args.epochs, args.seed)
        evaluate(args.out)
    except ModuleNotFoundError as error:
        extra = "test" if args.evaluate else "train"
        parser.exit(1, f"{error.name} is missing; install it with `pip install -e '.[{extra}]'`\n")


if __name__ == "__main__":
    main()
