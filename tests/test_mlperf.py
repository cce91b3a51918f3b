"""Networks laid out for the MLPerf Tiny protocol: their tables against the compiler's own means."""

from pathlib import Path

import numpy as np
import pytest

import accelc
from accelc.artifact import Artifact
from accelc.boards.mlperf.layout import PARAMETERS, float_order, page_address
from accelc.compiler.layout import GATHER_CONSTANT, pack
from accelc.isa.errors import DoesNotFitError, UnsupportedOpError
from accelc.mlperf import BENCHMARKS, prepare
from accelc.session import Session

MODELS = Path(__file__).parents[2] / "shared" / "models"
NETWORKS = {
    "kws01": "t_kws_dscnn_q.onnx",
    "ic01": "t_ic_resnet8_q.onnx",
    "vww01": "t_vww_q.onnx",
    "ad01": "t_ad_q.onnx",
}
MEMORY_BYTES = 1 << 23

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="needs ../shared/models")


def network(benchmark: str) -> Artifact:
    return accelc.compile(str(MODELS / NETWORKS[benchmark]), config="1x8x8")


@pytest.mark.parametrize("benchmark", ["kws01", "ic01", "vww01"])
def test_gathered_bytes_are_packed_bytes_and_classes_are_found(benchmark: str) -> None:
    artifact = network(benchmark)
    prepared = prepare(artifact, benchmark, memory_bytes=MEMORY_BYTES, device="test")
    program, step = prepared.program, artifact.model.steps[0]
    assert step.packings is not None
    segments = dict(prepared.segments)
    page = segments[page_address(MEMORY_BYTES)]
    words = np.frombuffer(page[: 4 * len(PARAMETERS)], "<u4")
    parameters = dict(zip(PARAMETERS, map(int, words), strict=True))

    packing = step.packings[program.inputs[0].name]
    raw = np.random.default_rng(1).integers(0, 256, prepared.input_bytes, np.uint8)
    logical = (raw ^ BENCHMARKS[benchmark].xor).view(np.int8).reshape(packing.shape)
    table = np.frombuffer(segments[parameters["gather_address"]], "<u4")
    constant = table >= GATHER_CONSTANT
    packed = (raw ^ BENCHMARKS[benchmark].xor)[np.where(constant, 0, table)]
    packed[constant] = table[constant] & 0xFF
    assert packed.tobytes() == pack(logical, packing, program.config)
    assert packed.size == parameters["packed_bytes"] == program.inputs[0].nbytes

    # the softmax of the page against the network's own
    session = Session(artifact, "functional")
    (name, value), *_ = session.inputs.items()
    result = next(iter(session.run({name: logical.reshape(value.shape)}).values()))
    device = session._steps[0].device  # pyright: ignore
    offset = parameters["outputs_address"] - page_address(MEMORY_BYTES)
    addresses = np.frombuffer(page, "<u4", parameters["outputs"], offset)
    logits = [int.from_bytes(device.read(int(a), 1), "little", signed=True) for a in addresses]
    offset = parameters["table_address"] - page_address(MEMORY_BYTES)
    exponentials = np.frombuffer(page, "<u4", 256, offset).astype(np.int64)
    powers = exponentials[max(logits) - np.array(logits)]
    steps = np.minimum((powers * 256 + powers.sum() // 2) // powers.sum(), 255)
    assert np.abs(steps - 128 - result.reshape(-1)).max() <= 1
    assert addresses.size == result.size


def test_thresholds_quantize_as_onnx_does() -> None:
    artifact = network("ad01")
    prepared = prepare(artifact, "ad01", memory_bytes=MEMORY_BYTES, device="test")
    segments = dict(prepared.segments)
    page = segments[page_address(MEMORY_BYTES)]
    words = np.frombuffer(page[: 4 * len(PARAMETERS)], "<u4")
    parameters = dict(zip(PARAMETERS, map(int, words), strict=True))
    assert prepared.input_bytes == 4 * 640 == parameters["raw_bytes"]
    offset = parameters["table_address"] - page_address(MEMORY_BYTES)
    thresholds = np.frombuffer(page, "<u4", 255, offset)
    graph = artifact.model.graph
    quant = graph.types[graph.inputs[0]].quant
    assert quant is not None
    scale, zero = np.float32(quant.scale), int(quant.zero_point)
    rng = np.random.default_rng(1)
    floats = rng.uniform(-150, 50, 2000).astype(np.float32)
    ties = ((np.arange(-130, 130) - 0.5 - zero) * scale).astype(np.float32)
    near = [np.nextafter(ties, np.float32(s)) for s in (-np.inf, np.inf)]
    for x in np.concatenate([floats, ties, *near]):
        expected = int(np.clip(np.rint(x / scale) + zero, -128, 127))
        assert np.searchsorted(thresholds, float_order(float(x)), "right") - 128 == expected


def test_what_is_not_a_classifier_is_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="does not end with one softmax"):
        prepare(network("ad01"), "kws01", memory_bytes=MEMORY_BYTES, device="test")
    with pytest.raises(UnsupportedOpError, match="DequantizeLinear.*runs on the CPU"):
        prepare(network("kws01"), "ad01", memory_bytes=MEMORY_BYTES, device="test")


def test_a_small_memory_is_refused() -> None:
    with pytest.raises(DoesNotFitError, match="do not fit"):
        prepare(network("kws01"), "kws01", memory_bytes=1 << 16, device="test")
