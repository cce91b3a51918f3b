"""The benchmark networks compile and compute, and the benchmark reports what it promises."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accelc
from accelc.inputs import random_inputs

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


@pytest.mark.parametrize(("name", "gmacs"), [("resnet18", 1.8141), ("mobilenetv1", 0.5688)])
def test_networks_have_their_known_size(networks: Any, name: str, gmacs: float) -> None:
    artifact = accelc.compile(networks.NETWORKS[name](224), "cpu")
    assert artifact.model.macs / 1e9 == pytest.approx(gmacs, rel=1e-3)


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv1"])
def test_networks_use_their_eight_bits(networks: Any, name: str) -> None:
    artifact = accelc.compile(networks.NETWORKS[name](64))
    on_cpu = [p.op for p in artifact.model.placements if p.place == "cpu"]
    assert set(on_cpu) <= {"QuantizeLinear", "DequantizeLinear", "Transpose", "Reshape"}
    session = accelc.load(artifact)
    inputs = random_inputs(session.inputs, 0)
    outputs = session.run(inputs)["logits"]
    assert len(np.unique(outputs)) > 30  # of at most 256 steps: neither vanished nor saturated
    same = accelc.load(artifact, "cpu").run(inputs)["logits"]
    assert outputs.tobytes() == same.tobytes()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "accelerator.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("device", ["timing", pytest.param("rtl", marks=pytest.mark.rtl)])
def test_the_report_is_one_object(device: str) -> None:
    result = run("--network", "digits", "--config", "1x4x4", "--device", device, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["network"], report["device"], report["config"]) == ("digits", device, "1x4x4")
    assert report["memory"]["latency_cycles"] == 64
    assert report["memory"]["bytes_per_cycle"] == 8
    layers = report["layers"]
    keys = {"name", "op", "cycles", "macs", "dram_bytes", "limit_cycles"}
    assert all(keys <= set(layer) for layer in layers)
    assert report["macs"] == sum(layer["macs"] for layer in layers) == 554_944
    assert report["limit_cycles"] == sum(layer["limit_cycles"] for layer in layers)
    # what is left after the last layer is FINISH
    assert 0 <= report["cycles"] - sum(layer["cycles"] for layer in layers) < 1000
    assert report["cycles"] >= report["macs"] / 16


def test_errors_are_one_line() -> None:
    for arguments in ((), ("--model", "none.onnx"), ("--network", "digits", "--config", "?")):
        result = run(*arguments)
        assert result.returncode == 2
        assert result.stderr.startswith("error: ")
        assert len(result.stderr.splitlines()) == 1
