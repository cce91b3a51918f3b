"""Measures a whole network on the accelerator: cycles of each layer against what is possible.

    python benchmarks/accelerator.py --network resnet18
    python benchmarks/accelerator.py --network kws --config 1x8x8 --json

``digits`` is the model in models/. ``kws``, ``ic``, ``vww`` and ``ad`` are the four networks of
MLPerf Tiny, read from ../shared/models where that folder exists; any other model is measured with
``--model FILE.onnx``. ``resnet18`` and ``mobilenetv1`` are built with random weights (networks.py).
The network runs once on one random input.

The limit of a layer is max(MACs / MACs per cycle, bytes that must move / bytes per cycle): nothing
that computes the layer by itself can be faster. Layers overlap, though: a layer's cycles run from
the last STORE of the layer before to its own, so one whose weights came early can beat its limit.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import networks

import accelc
from accelc.command import console
from accelc.inputs import random_inputs
from accelc.isa.errors import AccelcError, InputError
from accelc.report import run_report
from accelc.session import TIMED, Session
from accelc.sim.device import MemoryModel

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "models"
FILES = {
    "digits": ROOT / "models" / "digits_resnet8_int8.onnx",
    "kws": SHARED / "t_kws_dscnn_q.onnx",
    "ic": SHARED / "t_ic_resnet8_q.onnx",
    "vww": SHARED / "t_vww_q.onnx",
    "ad": SHARED / "t_ad_q.onnx",
}
NAMES = (*FILES, *networks.NETWORKS)


def find(name: str | None, model: Path | None, size: int) -> tuple[str, Any]:
    """Name and model of what is to be measured.

    Raises:
        InputError: the network's file is not here.
    """
    if model is not None:
        return name or model.stem, model
    if name is None:
        raise InputError("give --network or --model")
    if name in networks.NETWORKS:
        return name, networks.NETWORKS[name](size)
    if not FILES[name].is_file():
        raise InputError(f"{name} needs {FILES[name]}, which is not here; use --model FILE.onnx")
    return name, FILES[name]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compile, run once, and report; the object that ``--json`` prints."""
    name, model = find(arguments.network, arguments.model, arguments.size)
    memory = MemoryModel(latency_cycles=arguments.latency, bytes_per_cycle=arguments.bandwidth)
    with console.progress(f"compiling {name}") as report:
        artifact = accelc.compile(model, "vta", arguments.config, progress=report)
        report(f"preparing {arguments.device} (the first build takes about a minute)")
        session = Session(artifact, arguments.device, memory)
        report("running")
        start = time.perf_counter()
        session.run(random_inputs(session.inputs, seed=0))
        seconds = time.perf_counter() - start
    result: dict[str, Any] = run_report(session) | {"network": name}
    result["seconds"] = round(seconds, 3)
    result["cycles_per_second"] = round(result["cycles"] / seconds)
    return result


def show(result: dict[str, Any]) -> None:
    """The report as a table."""
    rows = [
        [
            layer["name"],
            layer["op"],
            console.count(layer["macs"]),
            console.count(layer["dram_bytes"]),
            console.count(layer["cycles"]),
            console.count(layer["limit_cycles"]),
            console.percent(layer["limit_cycles"] / layer["cycles"]) if layer["cycles"] else "",
            console.percent(layer["utilisation"]),
        ]
        for layer in result["layers"]
    ]
    columns = (
        "layer", "operator", ">MACs", ">bytes", ">cycles", ">limit", ">of limit", ">utilisation"
    )  # fmt: skip
    title = f"{result['network']} on {result['device']}, configuration {result['config']}"
    share = result["limit_cycles"] / result["cycles"]
    console.show(
        console.table(title, columns, rows),
        f"{console.count(result['cycles'])} cycles, {console.percent(share)} of the limit "
        f"{console.count(result['limit_cycles'])}; {console.count(result['macs'])} MACs, "
        f"{console.percent(result['utilisation'])} of the matrix unit; "
        f"{console.count(result['dram_bytes'])} bytes moved",
        f"simulated {console.count(result['cycles_per_second'])} cycles/s ({result['seconds']} s)",
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", choices=NAMES, help="what to measure")
    parser.add_argument("--model", type=Path, help="an ONNX file of your own instead")
    parser.add_argument("--size", type=int, default=224, help="image size of the built networks")
    parser.add_argument("--config", help="preset or configuration file (1x16x16)")
    parser.add_argument("--device", choices=TIMED, default="rtl")
    parser.add_argument("--latency", type=int, default=64, help="memory latency in cycles (64)")
    parser.add_argument("--bandwidth", type=int, default=8, help="memory bytes per cycle (8)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    try:
        result = measure(arguments)
    except AccelcError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        console.print_json(result)
    else:
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
