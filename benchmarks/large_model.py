"""Compiles and runs a model of gigabytes and measures the memory that takes.

    python benchmarks/large_model.py --gigabytes 2.5
    python benchmarks/large_model.py --gigabytes 0.2 --form embedded

The model is a chain of fully connected layers with random weights, in a temporary folder. It is
compiled for the CPU and run in a process of its own; printed are seconds, the peak of the resident
memory of that process, pages of mapped files included, and its ratio to the size of the weights.
``--limit`` makes the command fail (exit code 1) if the ratio is larger.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

#: Rows and columns of the square float32 weights: 64 MiB each.
WIDTH = 4096
LAYER_BYTES = 4 * WIDTH * WIDTH
#: Every third layer is a Gemm with transposed weights, which no kernel takes as they are.
TRANSPOSED = 3


def write_model(folder: Path, layers: int, embedded: bool) -> Path:
    """A model of ``layers`` layers; weights in ``weights.bin``, or in the model itself.

    Written layer by layer: this process needs the memory of one.
    """
    rng = np.random.default_rng(0)
    value = helper.make_tensor_value_info
    nodes: list[onnx.NodeProto] = []
    tensors: list[TensorProto] = []
    last = "x"
    with open(folder / "weights.bin", "wb") as file:
        for k in range(layers):
            weights = rng.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(WIDTH**0.5)
            tensor = TensorProto(name=f"w{k}", data_type=TensorProto.FLOAT, dims=(WIDTH, WIDTH))
            if embedded:
                tensor.raw_data = weights.tobytes()
            else:
                tensor.data_location = TensorProto.EXTERNAL
                entries = {"location": "weights.bin", "offset": file.tell(), "length": LAYER_BYTES}
                for key, entry in entries.items():
                    tensor.external_data.add(key=key, value=str(entry))
                file.write(weights.data)
            tensors.append(tensor)
            if k % TRANSPOSED == TRANSPOSED - 1:
                nodes.append(helper.make_node("Gemm", [last, f"w{k}"], [f"p{k}"], transB=1))
            else:
                nodes.append(helper.make_node("MatMul", [last, f"w{k}"], [f"p{k}"]))
            nodes.append(helper.make_node("Relu", [f"p{k}"], [f"r{k}"]))
            last = f"r{k}"
    graph = helper.make_graph(
        nodes,
        "large",
        [value("x", TensorProto.FLOAT, ("n", WIDTH))],
        [value(last, TensorProto.FLOAT, ("n", WIDTH))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.graph.initializer.extend(tensors)
    path = folder / "large.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def peak_bytes() -> int:
    """Largest resident memory of this process so far; ``getrusage`` would count its parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system does not say how much memory a process had")


def work(path: Path, through: str) -> None:
    """Compile and run the model in this process, and print what it took as JSON."""
    import accelc
    from accelc.compiler.dynamic import fix
    from accelc.inputs import random_inputs

    before, start = peak_bytes(), time.perf_counter()
    artifact = accelc.compile(path, target="cpu")
    compiled = time.perf_counter()
    if through == "file":
        artifact.save(path.with_suffix(".accel"))
        session = accelc.load(path.with_suffix(".accel"), "cpu")
    else:
        session = accelc.load(artifact, "cpu")
    outputs = session.run(random_inputs(fix(session.graph, {"n": 1}), 0))
    (y,) = outputs.values()
    print(
        json.dumps(
            {
                "compile_seconds": round(compiled - start, 2),
                "run_seconds": round(time.perf_counter() - compiled, 2),
                "start_bytes": before,
                "peak_bytes": peak_bytes(),
                "checksum": float(np.abs(y).mean()),
            }
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.5, help="size of the weights")
    parser.add_argument(
        "--form", choices=("external", "embedded"), default="external",
        help="weights in a file of their own, or in the model's (less than 2 GB)",
    )  # fmt: skip
    parser.add_argument(
        "--through", choices=("memory", "file"), default="memory",
        help="run what was compiled, or what was written to an .accel file",
    )  # fmt: skip
    parser.add_argument("--limit", type=float, help="largest ratio of peak memory to weights")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.through)
        return 0
    layers = max(1, round(options.gigabytes * 1e9 / LAYER_BYTES))
    size = layers * LAYER_BYTES
    folder = Path(tempfile.mkdtemp(prefix="accelc-large-"))
    try:
        free = shutil.disk_usage(folder).free
        if free < 3 * size:
            raise SystemExit(f"{folder} has {free / 1e9:.1f} GB free, {3 * size / 1e9:.1f} needed")
        path = write_model(folder, layers, options.form == "embedded")
        command = [sys.executable, __file__, "--work", str(path), "--through", options.through]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
        if done.returncode:
            raise SystemExit(f"the model could not be compiled and run:\n{done.stderr[-800:]}")
        result = json.loads(done.stdout)
    finally:
        shutil.rmtree(folder)
    result |= {"weight_bytes": size, "ratio": round(result["peak_bytes"] / size, 3)}
    if options.json:
        print(json.dumps(result))
    else:
        print(
            f"{layers} layers, {size / 1e9:.2f} GB of weights ({options.form}, {options.through}):"
            f" compiled in {result['compile_seconds']} s, ready and run in"
            f" {result['run_seconds']} s, peak memory {result['peak_bytes'] / 1e9:.2f} GB,"
            f" ratio {result['ratio']:.2f}"
        )
    return 1 if options.limit and result["ratio"] > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
