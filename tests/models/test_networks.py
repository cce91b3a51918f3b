"""Real networks, every layer: golden, functional and RTL leave the same bytes in memory.

The networks of MLPerf Tiny are not part of the project; tests that need them skip where
``../shared/models`` is absent.
"""

from pathlib import Path

import numpy as np
import pytest

import accelc
from accelc.artifact import Artifact
from accelc.compiler.accelerator import LoweredRegion, lower
from accelc.compiler.graph import Graph
from accelc.compiler.layout import pack, unpack
from accelc.compiler.partition import Place, partition, subgraph
from accelc.compiler.pipeline import build_graph, place_nodes
from accelc.isa.config import PRESETS, AccelConfig
from accelc.session import make_device
from accelc.sim.device import MemoryModel

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "models" / "digits_resnet8_int8.onnx"
SHARED = ROOT.parent / "shared" / "models"
NETWORKS = {
    "digits": DIGITS,
    "kws": SHARED / "t_kws_dscnn_q.onnx",
    "ic": SHARED / "t_ic_resnet8_q.onnx",
    "vww": SHARED / "t_vww_q.onnx",
    "ad": SHARED / "t_ad_q.onnx",
    "kws_m": SHARED / "mlon_kws_m_qoperator.onnx",
}
CONFIGS = ["1x16x16", "1x8x8"]
#: What may run on the CPU: conversion, layout and the classifier's softmax.
ON_CPU = {
    "QuantizeLinear", "DequantizeLinear", "Reshape", "Transpose", "Flatten", "Squeeze", "Softmax",
    "com.microsoft.QLinearSoftmax",
}  # fmt: skip


def require(name: str) -> Path:
    path = NETWORKS[name]
    if not path.is_file():
        pytest.skip(f"{path.name} is not here ({path.parent} is not part of the project)")
    return path


def regions(graph: Graph, config: AccelConfig) -> list[Graph]:
    """The accelerator's parts of ``graph``, with every layer's result kept as an output."""
    placed = place_nodes(graph, "vta", config)
    parts: list[Graph] = []
    for number, segment in enumerate(partition(graph, [p.place for p in placed])):
        if segment.place is Place.ACCELERATOR:
            part = subgraph(graph, segment.nodes, f"part{number}")
            parts.append(part.with_(outputs=tuple(o for n in part.nodes for o in n.outputs)))
    return parts


def run_region(
    device: str, lowered: LoweredRegion, inputs: dict[str, np.ndarray], memory: MemoryModel
) -> dict[str, np.ndarray]:
    """Every layer's result, by value name."""
    program = lowered.program
    target = make_device(device, program.config, memory)
    target.load(program)
    for region in program.inputs:
        packing = lowered.packings[region.name]
        target.write(region.address, pack(inputs[packing.value], packing, program.config))
    target.run(program)
    return {
        region.name: unpack(
            target.read(region.address, region.nbytes),
            lowered.packings[region.name],
            program.config,
        )
        for region in program.outputs
    }


def compare_layers(name: str, config: AccelConfig, devices: list[str]) -> None:
    graph = build_graph(require(name), config)
    rng = np.random.default_rng(0)
    # a memory that stalls at random: results must not depend on timing
    memory = MemoryModel(stall_per_65536=6000, seed=7)
    for part in regions(graph, config):
        lowered = lower(part, config)
        inputs = {
            value: rng.integers(-128, 128, part.types[value].shape).astype(np.int8)
            for value in part.inputs
        }
        results = [run_region(device, lowered, inputs, memory) for device in devices]
        assert set(results[0]) == {output for node in part.nodes for output in node.outputs}
        for device, result in zip(devices[1:], results[1:], strict=True):
            for layer, expected in results[0].items():
                assert np.array_equal(expected, result[layer]), f"{device} differs in {layer}"


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_layer_is_the_same_on_golden_and_functional(network: str, config: str) -> None:
    compare_layers(network, PRESETS[config], ["golden", "functional"])


@pytest.mark.rtl
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_layer_is_the_same_on_rtl(network: str, config: str) -> None:
    compare_layers(network, PRESETS[config], ["functional", "rtl"])


@pytest.mark.parametrize("network", NETWORKS)
def test_everything_but_the_edges_runs_on_the_accelerator(network: str) -> None:
    model = accelc.compile(require(network)).model
    on_cpu = {p.op for p in model.placements if p.place is Place.CPU}
    assert on_cpu <= ON_CPU
    assert sum(step.place is Place.ACCELERATOR for step in model.steps) == 1


@pytest.mark.rtl
@pytest.mark.parametrize("config", CONFIGS)
def test_two_inferences_without_reset(config: str) -> None:
    """The shipped model end to end, twice on one device, and again after another input."""
    artifact = Artifact.from_bytes(accelc.compile(DIGITS, config=config).to_bytes())
    sessions = [accelc.load(artifact, device) for device in ("functional", "rtl")]
    with np.load(ROOT / "models" / "digits_test.npz") as data:
        images = data["x"]
    for index in (0, 0, 1, 0):
        expected, found = (s.run({"image": images[index : index + 1]})["logits"] for s in sessions)
        assert expected.tobytes() == found.tobytes()
