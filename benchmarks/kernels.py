"""Times the native kernels that networks spend their time in against onnxruntime, at one thread.

Both run the same single-operator model in turn, so that what else the machine does disturbs both;
the fastest of many runs counts.

    python benchmarks/kernels.py [--seconds 2] [--json]
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

import accelc

OPSET = 18
Shape = tuple[int, ...]


def model(
    op: str, x: Shape, constants: dict[str, Shape], y: Shape, **attrs: Any
) -> tuple[ModelProto, NDArray[Any]]:
    """One operator on an input, with random constants behind it; and an input."""
    rng = np.random.default_rng(0)
    info = helper.make_tensor_value_info
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in constants.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *constants], ["y"], **attrs)],
        op,
        [info("x", TensorProto.FLOAT, x)],
        [info("y", TensorProto.FLOAT, y)],
        weights,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return proto, rng.standard_normal(x).astype(np.float32)


def convolution(c: int, o: int, size: int, kernel: int, stride: int = 1, groups: int = 1) -> Any:
    out, pad = -(-size // stride), kernel // 2
    return model(
        "Conv",
        (1, c, size, size),
        {"w": (o, c // groups, kernel, kernel), "b": (o,)},
        (1, o, out, out),
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[pad, pad, pad, pad],
        group=groups,
    )


CASES: dict[str, Callable[[], tuple[ModelProto, NDArray[Any]]]] = {
    "matmul 512 x 512 x 512": lambda: model("MatMul", (512, 512), {"w": (512, 512)}, (512, 512)),
    "matmul 1 x 2048 x 1000": lambda: model("MatMul", (1, 2048), {"w": (2048, 1000)}, (1, 1000)),
    "conv 7x7 /2, 3 to 64, 224": lambda: convolution(3, 64, 224, 7, 2),
    "conv 3x3, 64 to 64, 56": lambda: convolution(64, 64, 56, 3),
    "conv 3x3, 128 to 128, 28": lambda: convolution(128, 128, 28, 3),
    "conv 3x3, 256 to 256, 14": lambda: convolution(256, 256, 14, 3),
    "conv 3x3, 512 to 512, 7": lambda: convolution(512, 512, 7, 3),
    "conv 3x3 /2, 64 to 128, 56": lambda: convolution(64, 128, 56, 3, 2),
    "conv 1x1, 256 to 64, 56": lambda: convolution(256, 64, 56, 1),
    "conv 1x1, 1024 to 256, 14": lambda: convolution(1024, 256, 14, 1),
    "depthwise 3x3, 144, 56": lambda: convolution(144, 144, 56, 3, groups=144),
    "depthwise 3x3 /2, 144, 56": lambda: convolution(144, 144, 56, 3, 2, 144),
    "softmax 1536 x 128": lambda: model("Softmax", (12, 128, 128), {}, (12, 128, 128)),
    "layer normalization 128 x 768": lambda: model(
        "LayerNormalization", (128, 768), {"s": (768,), "b": (768,)}, (128, 768)
    ),
}


def fastest(runs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The fastest time of each, in seconds; they take turns."""
    best = dict.fromkeys(runs, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Times of one case and the largest difference of the results."""
    proto, x = CASES[name]()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    ours = accelc.load(accelc.compile(proto, "cpu"), "cpu")
    wanted, found = peer.run(None, {"x": x})[0], ours.run({"x": x})["y"]
    runs = {"accelc": lambda: ours.run({"x": x}), "onnxruntime": lambda: peer.run(None, {"x": x})}
    best = fastest(runs, seconds)
    return {
        "case": name,
        **{f"{key}_ms": 1e3 * value for key, value in best.items()},
        "ratio": best["onnxruntime"] / best["accelc"],
        "error": float(np.abs(wanted - found).max() / np.abs(wanted).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each case")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    if not arguments.json:
        print(f"{'case':32} {'accelc':>10} {'ort':>10} {'ort/accelc':>11} {'error':>9}")
    for name in CASES:
        found = measure(name, arguments.seconds)
        results.append(found)
        if not arguments.json:
            print(
                f"{name:32} {found['accelc_ms']:7.3f} ms {found['onnxruntime_ms']:7.3f} ms"
                f" {found['ratio']:11.2f} {found['error']:9.1e}"
            )
    mean = float(np.exp(np.mean([np.log(found["ratio"]) for found in results])))
    if arguments.json:
        print(json.dumps({"cases": results, "geometric_mean": mean}, indent=1))
    else:
        print(f"geometric mean of onnxruntime's time over ours: {mean:.2f}")


if __name__ == "__main__":
    main()
