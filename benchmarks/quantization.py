"""Quantizes float networks with accelc and with onnxruntime, and compares what each one costs.

Both get the same calibration samples; accuracy is measured on held-out samples. onnxruntime is
given its best: int8 QDQ with a scale per channel, every one of its calibration methods, and the
result with the highest accuracy (of equals, the highest SQNR) counts. accelc chooses by itself,
without labels. "SQNR" is of the network's outputs against the float network, on the held-out
samples.

    python benchmarks/quantization.py
    python benchmarks/quantization.py --mnist FOLDER     with mnist_8.onnx and data/mnist_1000.npz

onnxruntime computes both quantized models with its graph optimizations switched off, as without
VNNI its fused 8-bit kernels saturate; "run by accelc" is what the accelerator computes, to the bit.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import accelc
from accelc.command import console
from accelc.compiler.quantize.statistics import Noise

Array = NDArray[Any]
ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "models"
#: Samples of MNIST that calibrate; the others are held out.
MNIST_CALIBRATION = 200
_EXTRA_OPTIONS = {"ActivationSymmetric": False, "WeightSymmetric": True}


@dataclass(frozen=True)
class Case:
    """A float network with calibration samples and held-out, labelled ones, batch axis first."""

    name: str
    model: Path
    input: str
    calibration: Array
    x: Array
    y: Array


@dataclass(frozen=True)
class Result:
    """``accuracy`` in percent on held-out samples, ``drop`` in points from the float network."""

    network: str
    quantizer: str
    executor: str
    options: str
    accuracy: float
    drop: float
    sqnr_db: float


def load_script(path: Path) -> Any:
    """A script of the project as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def digits() -> Case:
    with np.load(MODELS / "resnet8_digits.npz") as data:
        calibration = data["x"].astype(np.float32)[:, None] / 16
    with np.load(MODELS / "digits_test.npz") as data:
        x, y = data["x"], data["y"]
    return Case("digits CNN", MODELS / "digits_float.onnx", "image", calibration, x, y)


def resnet8() -> Case:
    script = load_script(MODELS / "resnet8_train.py")
    calibration, _ = script.calibration()
    return Case("ResNet-8", MODELS / "resnet8_float.onnx", "image", calibration, *script.held_out())


def mnist(folder: Path) -> Case:
    with np.load(folder / "data" / "mnist_1000.npz") as data:
        x, y = data["x"].astype(np.float32).reshape(-1, 1, 28, 28), data["y"].astype(np.int64)
    split = MNIST_CALIBRATION
    return Case("mnist_8", folder / "mnist_8.onnx", "Input3", x[:split], x[split:], y[split:])


# ---- executors -----------------------------------------------------------------------------------


def run_onnxruntime(model: Path, case: Case, *, optimize: bool) -> Array:
    """Logits of the held-out samples, one run each."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    runs = [session.run(None, {case.input: sample[None]})[0] for sample in case.x]
    return np.concatenate([np.asarray(run) for run in runs])


def run_accelc(model: Path, case: Case) -> Array:
    session = accelc.load(accelc.compile(model), "cpu")
    return np.concatenate([next(iter(session.run({case.input: s[None]}).values())) for s in case.x])


# ---- onnxruntime's quantizer ---------------------------------------------------------------------


def quantize_onnxruntime(case: Case, folder: Path) -> Iterator[tuple[str, Path]]:
    """onnxruntime's int8 QDQ models, one for each of its calibration methods."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(case.calibration)

        def get_next(self) -> dict[str, Array] | None:
            sample = next(self._left, None)
            return None if sample is None else {case.input: sample[None]}

    prepared = folder / "prepared.onnx"
    converted = folder / "converted.onnx"
    proto = onnx.load(case.model)
    if max(o.version for o in proto.opset_import if not o.domain) < 13:
        proto = onnx.version_converter.convert_version(proto, 13)
    onnx.save(proto, converted)
    quant_pre_process(str(converted), str(prepared), skip_symbolic_shape=True)
    _flatten_biases(prepared)
    for method in (
        CalibrationMethod.MinMax,
        CalibrationMethod.Entropy,
        CalibrationMethod.Percentile,
    ):
        path = folder / f"{method.name}.onnx"
        with contextlib.redirect_stdout(io.StringIO()):  # it tells how it gets on
            quantize_static(
                str(prepared), str(path), Reader(),
                quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8, calibrate_method=method,
                extra_options=_EXTRA_OPTIONS,
            )  # fmt: skip
        yield method.name, path


def _flatten_biases(path: Path) -> None:
    """A Gemm's bias of shape ``(1, n)`` as ``(n,)``: onnxruntime 1.32 quantizes no other."""
    proto = onnx.load(path)
    biases = {
        node.input[2] for node in proto.graph.node if node.op_type == "Gemm" and node.input[2:]
    }
    for tensor in proto.graph.initializer:
        if tensor.name in biases and len(tensor.dims) == 2 and tensor.dims[0] == 1:
            del tensor.dims[0]
            for values in (proto.graph.input, proto.graph.value_info):
                for value in [value for value in values if value.name == tensor.name]:
                    values.remove(value)
    onnx.save(proto, path)


# ---- comparison ----------------------------------------------------------------------------------


def decibels(reference: Array, found: Array) -> float:
    noise = Noise()
    noise.add(reference, found)
    return noise.decibels


def compare(case: Case) -> list[Result]:
    """The float network and both quantizers' results."""
    exact = run_onnxruntime(case.model, case, optimize=True)
    reference = 100.0 * float((exact.argmax(axis=1) == case.y).mean())

    def result(quantizer: str, executor: str, options: str, logits: Array) -> Result:
        accuracy = 100.0 * float((logits.argmax(axis=1) == case.y).mean())
        return Result(
            case.name, quantizer, executor, options, accuracy, reference - accuracy,
            decibels(exact, logits),
        )  # fmt: skip

    results = [result("float", "onnxruntime", "", exact)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        samples = [{case.input: sample} for sample in case.calibration]
        quantized = accelc.quantize(case.model, samples)
        path = folder / "accelc.onnx"
        quantized.save(path)
        chosen = quantized.report.chosen
        text = chosen.observer
        text += f", equalized by {chosen.equalization}" if chosen.equalization != "none" else ""
        text += ", biases corrected" if chosen.bias_correction else ""
        results.append(result("accelc", "accelc", text, run_accelc(path, case)))
        logits = run_onnxruntime(path, case, optimize=False)
        results.append(result("accelc", "onnxruntime", text, logits))
        others = [
            result(
                "onnxruntime", "onnxruntime", method, run_onnxruntime(path, case, optimize=False)
            )
            for method, path in quantize_onnxruntime(case, folder)
        ]
    results.append(max(others, key=lambda found: (found.accuracy, found.sqnr_db)))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mnist", type=Path, metavar="FOLDER", help="where mnist_8.onnx lies")
    parser.add_argument("--only", metavar="NAME", help="one network: digits, resnet8 or mnist")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    cases: dict[str, Any] = {"digits": digits, "resnet8": resnet8}
    if args.mnist:
        cases["mnist"] = lambda: mnist(args.mnist)
    if args.only is not None and args.only not in cases:
        parser.error(f"--only is one of {', '.join(cases)}")
    results = [
        found
        for name, make in cases.items()
        if args.only in (None, name)
        for found in compare(make())
    ]
    if args.json:
        print(json.dumps([asdict(found) for found in results], indent=1))
        return
    rows = [
        [r.network, r.quantizer, r.executor, f"{r.accuracy:.2f} %", f"{r.drop:+.2f}",
         "" if r.quantizer == "float" else f"{r.sqnr_db:.1f} dB", r.options]
        for r in results
    ]  # fmt: skip
    columns = ("network", "quantized by", "run by", ">accuracy", ">drop", ">SQNR", "~how")
    console.show(console.table("post-training quantization to int8", columns, rows))


if __name__ == "__main__":
    main()
