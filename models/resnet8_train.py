#!/usr/bin/env python3
"""Train a float residual network of MLPerf Tiny's size on coloured scenes of handwritten digits.

The network is the image classification benchmark's ResNet-8: 32x32 colour images, 12.5 million
multiply-accumulates, 78 thousand parameters, 10 classes. Its data set, CIFAR-10, is in no package;
what it is trained on here are scikit-learn's handwritten digits, enlarged, turned, moved and
coloured on coloured, shaded, noisy backgrounds. The script writes, next to itself:

``resnet8_float.onnx``
    the network in float32 (opset 17, symbolic batch), batch normalizations as nodes of their own;
``resnet8_digits.npz``
    the 256 training digits, 8x8, that quantization is calibrated on.

The held-out images are scenes of the 450 digits in ``digits_test.npz``, which none of the training
scenes shows. :func:`calibration` and :func:`held_out` make both sets from the files, without
scikit-learn; scenes are drawn from a seed, so they are the same everywhere.

Examples::

    python models/resnet8_train.py                 # train and write, about two minutes of one core
    python models/resnet8_train.py --evaluate      # held-out accuracy of what is there
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    import torch

HERE = Path(__file__).resolve().parent
MODEL_NAME, DIGITS_NAME, TEST_NAME = "resnet8_float.onnx", "resnet8_digits.npz", "digits_test.npz"
SIZE = 32
CALIBRATION_DIGITS, CALIBRATION_SEED = 256, 7
#: Scenes of each held-out digit.
HELD_OUT_SCENES, HELD_OUT_SEED = 2, 11
OPSET, IR_VERSION = 17, 8
Array = np.ndarray


# ---- scenes --------------------------------------------------------------------------------------


def scenes(digits: Array, rng: np.random.Generator) -> Array:
    """One coloured scene per digit: ``(n, 3, 32, 32)`` uint8 from ``(n, 8, 8)`` in 0..1."""
    n = len(digits)
    shape = _placed(digits, rng)[:, None]
    # a digit is brighter than its background, by more or by less
    back = rng.uniform(0.0, 0.6, (n, 3)).astype(np.float32)
    gain = rng.uniform(0.15, 1.0, (n, 3)).astype(np.float32)
    front = (back + (1.0 - back) * gain)[:, :, None, None]
    back = back[:, :, None, None]
    axis = np.linspace(-0.5, 0.5, SIZE, dtype=np.float32)
    slope = rng.uniform(-0.4, 0.4, (n, 2, 1, 1, 1)).astype(np.float32)
    shade = slope[:, 0] * axis[:, None] + slope[:, 1] * axis[None, :]
    noise = rng.normal(0.0, 1.0, (n, 3, SIZE, SIZE)).astype(np.float32)
    strength = rng.uniform(0.0, 0.12, (n, 1, 1, 1)).astype(np.float32)
    pixels = back * (1 - shape) + front * shape + shade + strength * noise
    return np.rint(np.clip(pixels, 0.0, 1.0) * 255).astype(np.uint8)


def _placed(digits: Array, rng: np.random.Generator) -> Array:
    """The digits as masks ``(n, 32, 32)``, turned, scaled and moved; bilinear."""
    n = len(digits)
    angle = rng.uniform(-0.25, 0.25, n)
    scale = rng.uniform(0.85, 1.25, n)
    move = rng.uniform(-1.0, 1.0, (n, 2))
    grid = (np.arange(SIZE) + 0.5) / SIZE * 8 - 4
    y, x = np.meshgrid(grid, grid, indexing="ij")
    cos, sin = (np.cos(angle) * scale)[:, None, None], (np.sin(angle) * scale)[:, None, None]
    rows = cos * y - sin * x + move[:, 0, None, None] + 3.5
    columns = sin * y + cos * x + move[:, 1, None, None] + 3.5
    padded = np.pad(digits, ((0, 0), (1, 1), (1, 1)))
    rows, columns = np.clip(rows + 1, 0, 8.999), np.clip(columns + 1, 0, 8.999)
    r, c = rows.astype(int), columns.astype(int)
    fr, fc = rows - r, columns - c
    k = np.arange(n)[:, None, None]
    top = padded[k, r, c] * (1 - fc) + padded[k, r, c + 1] * fc
    bottom = padded[k, r + 1, c] * (1 - fc) + padded[k, r + 1, c + 1] * fc
    return (top * (1 - fr) + bottom * fr).astype(np.float32)


def network_input(pixels: Array) -> Array:
    """Pixels 0 to 255 as the network takes them: float32, -1 to 1."""
    return (pixels.astype(np.float32) - 127.5) / np.float32(127.5)


def calibration(folder: Path = HERE) -> tuple[Array, Array]:
    """Images ``(256, 3, 32, 32)`` float32 and labels that were trained on."""
    with np.load(folder / DIGITS_NAME) as data:
        x, y = data["x"].astype(np.float32) / 16, data["y"]
    return network_input(scenes(x, np.random.default_rng(CALIBRATION_SEED))), y


def held_out(folder: Path = HERE) -> tuple[Array, Array]:
    """Images ``(900, 3, 32, 32)`` float32 and labels that nothing was trained on."""
    with np.load(folder / TEST_NAME) as data:
        x, y = data["x"][:, 0], data["y"]
    rng = np.random.default_rng(HELD_OUT_SEED)
    x, y = np.concatenate([x] * HELD_OUT_SCENES), np.concatenate([y] * HELD_OUT_SCENES)
    return network_input(scenes(x, rng)), y


# ---- the network ---------------------------------------------------------------------------------

#: Name, channels of the block's convolutions, stride of the first one.
BLOCKS = (("block1", 16, 1), ("block2", 32, 2), ("block3", 64, 2))
STEM_CHANNELS, CLASSES = 16, 10


def make_module() -> torch.nn.Module:
    """ResNet-8 with batch normalization after every convolution."""
    from torch import nn

    def conv(name: str, cin: int, cout: int, kernel: int, stride: int) -> None:
        layers[name] = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)
        layers[f"{name}_norm"] = nn.BatchNorm2d(cout)

    layers: dict[str, nn.Module] = {}
    conv("stem", 3, STEM_CHANNELS, 3, 1)
    cin = STEM_CHANNELS
    for name, cout, stride in BLOCKS:
        conv(f"{name}_conv1", cin, cout, 3, stride)
        conv(f"{name}_conv2", cout, cout, 3, 1)
        if stride > 1:
            conv(f"{name}_shortcut", cin, cout, 1, stride)
        cin = cout
    layers["classes"] = nn.Linear(cin, CLASSES)

    class ResNet8(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleDict(layers)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            def normed(name: str, x: torch.Tensor) -> torch.Tensor:
                return self.layers[f"{name}_norm"](self.layers[name](x))

            x = normed("stem", image).relu()
            for name, _, stride in BLOCKS:
                y = normed(f"{name}_conv1", x).relu()
                y = normed(f"{name}_conv2", y)
                x = (y + (normed(f"{name}_shortcut", x) if stride > 1 else x)).relu()
            return self.layers["classes"](x.mean(dim=(2, 3)))

    return ResNet8()


def train(digits: Array, labels: Array, epochs: int, seed: int) -> torch.nn.Module:
    """Train on fresh scenes of ``digits`` in every epoch; the last epoch's module, in eval mode."""
    import torch
    import torch.nn.functional as F

    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    module = make_module().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batch = 32
    steps = len(digits) // batch
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=4e-3, total_steps=epochs * steps, pct_start=0.2
    )
    started = time.perf_counter()
    for epoch in range(1, epochs + 1):
        module.train()
        order = rng.permutation(len(digits))
        images = network_input(scenes(digits[order], rng))
        total = 0.0
        for step in range(steps):
            rows = slice(step * batch, (step + 1) * batch)
            x = torch.from_numpy(images[rows]).to(memory_format=torch.channels_last)
            loss = F.cross_entropy(
                module(x), torch.from_numpy(labels[order[rows]]), label_smoothing=0.05
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        if epoch == 1 or epoch % 5 == 0:
            seconds = time.perf_counter() - started
            print(f"epoch {epoch:3d}/{epochs}  loss {total / steps:.4f}  {seconds:6.1f} s")
    return module.eval()


def to_onnx(module: torch.nn.Module) -> onnx.ModelProto:
    """The trained network node by node, names and order under this file's control."""
    layers: Any = module.layers
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(name: str, value: Any) -> str:
        constants.append(numpy_helper.from_array(value.detach().contiguous().numpy(), name))
        return name

    def node(kind: str, name: str, inputs: list[str], output: str, **attrs: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], name=name, **attrs))
        return output

    def normed(name: str, x: str) -> str:
        conv, norm = layers[name], layers[f"{name}_norm"]
        kernel, stride = conv.kernel_size[0], conv.stride[0]
        y = node(
            "Conv", name, [x, constant(f"{name}_weight", conv.weight)], f"{name}_out",
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4,
        )  # fmt: skip
        parts = {
            "gain": norm.weight, "shift": norm.bias, "mean": norm.running_mean,
            "variance": norm.running_var,
        }  # fmt: skip
        inputs = [constant(f"{name}_{part}", value) for part, value in parts.items()]
        return node(
            "BatchNormalization", f"{name}_norm", [y, *inputs], f"{name}_normed", epsilon=norm.eps
        )

    x = node("Relu", "stem_relu", [normed("stem", "image")], "stem_active")
    for name, _, stride in BLOCKS:
        y = node("Relu", f"{name}_relu1", [normed(f"{name}_conv1", x)], f"{name}_active")
        y = normed(f"{name}_conv2", y)
        shortcut = normed(f"{name}_shortcut", x) if stride > 1 else x
        total = node("Add", f"{name}_add", [y, shortcut], f"{name}_sum")
        x = node("Relu", f"{name}_relu2", [total], f"{name}_result")
    x = node("GlobalAveragePool", "average", [x], "averages")
    x = node("Flatten", "flatten", [x], "features", axis=1)
    fc = layers["classes"]
    weights = [constant("classes_weight", fc.weight), constant("classes_bias", fc.bias)]
    node("Gemm", "classes", [x, *weights], "logits", transB=1)
    graph = helper.make_graph(
        nodes, "resnet8_float",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        constants, doc_string="ResNet-8 for coloured scenes of digits, float32",
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
        producer_name="resnet8_train.py",
    )  # fmt: skip
    onnx.checker.check_model(model, full_check=True)
    return model


# ---- command line --------------------------------------------------------------------------------


def produce(folder: Path, epochs: int, seed: int) -> None:
    """Train and write both files to ``folder``."""
    import torch
    from sklearn.datasets import load_digits

    with np.load(HERE / TEST_NAME) as data:
        kept = np.setdiff1d(np.arange(len(load_digits().target)), data["index"])
    digits = load_digits()
    x = (digits.images[kept] / 16).astype(np.float32)
    y = digits.target[kept].astype(np.int64)
    print(f"training on scenes of {len(y)} digits")
    module = train(x, y, epochs, seed)
    folder.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(CALIBRATION_SEED).permutation(len(y))
    chosen = np.sort(order[:CALIBRATION_DIGITS])
    np.savez_compressed(
        folder / DIGITS_NAME, x=digits.images[kept][chosen].astype(np.uint8), y=y[chosen]
    )
    model = to_onnx(module)
    (folder / MODEL_NAME).write_bytes(model.SerializeToString(deterministic=True))
    images, _ = calibration(folder)
    with torch.no_grad():
        expected = module(torch.from_numpy(images)).numpy()
    error = np.abs(run_model(folder / MODEL_NAME, images) - expected).max()
    if error > 1e-3:
        raise RuntimeError(f"the ONNX graph deviates from the trained module by {error:g}")


def run_model(path: Path, images: Array) -> Array:
    """The network's logits for ``images`` with onnxruntime."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"image": images})[0]


def main() -> None:
    """Parse the command line, train unless only evaluating, print the held-out accuracy."""
    parser = argparse.ArgumentParser(description="Train the float residual network.")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR")
    parser.add_argument("--epochs", type=int, default=40, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--evaluate", action="store_true", help="do not train")
    args = parser.parse_args()
    if args.epochs < 1:
        parser.error("--epochs must be at least 1")
    try:
        if not args.evaluate:
            produce(args.out, args.epochs, args.seed)
        images, labels = held_out()
        hits = run_model(args.out / MODEL_NAME, images).argmax(axis=1) == labels
    except ModuleNotFoundError as error:
        extra = "test" if args.evaluate else "train"
        parser.exit(1, f"{error.name} is missing; install it with `pip install -e '.[{extra}]'`\n")
    print(f"held-out accuracy {100 * hits.mean():.2f} % ({int(hits.sum())}/{len(hits)})")


if __name__ == "__main__":
    main()
