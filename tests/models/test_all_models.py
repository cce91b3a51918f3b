"""Every network of ``../shared/models``: compiles, runs, and gives what onnxruntime gives.

Float networks agree within 1e-4 of the largest value of an output, quantized ones in all but one
of 10,000 values, and those by one step; networks whose dimensions are open run in several sizes.
The networks are not part of the project: tests skip where they are absent.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

import accelc
from accelc.artifact import Artifact
from accelc.compiler.dynamic import fix
from accelc.inputs import random_inputs

Array = NDArray[Any]
SHARED = Path(__file__).parents[3] / "shared" / "models"
#: Open dimensions the networks run with, in this order on one session; all twelve are here.
NETWORKS: dict[str, tuple[dict[str, int], ...]] = {
    "deeploy_cct_fp32_32_op20": ({},),
    "dory_frontnet_int": ({},),
    "mlon_kws_m_qoperator": ({},),
    "mnist_8": ({},),
    "ppocr_v2_cls": (
        {"x.0": 1, "x.2": 48, "x.3": 192},
        {"x.0": 3, "x.2": 64, "x.3": 100},
        {"x.0": 1, "x.2": 48, "x.3": 192},
    ),
    "super_resolution_10": ({"batch_size": 1}, {"batch_size": 2}, {"batch_size": 1}),
    "t_ad_q": ({"input_1.0": 1}, {"input_1.0": 5}),
    "t_coral_mnv1_05_160_q": ({},),
    "t_ic_resnet8_q": ({"input_1_int8.0": 1}, {"input_1_int8.0": 3}),
    "t_kws_dscnn_q": ({"input_1.0": 1}, {"input_1.0": 4}),
    "t_vww_q": ({"input_1_int8.0": 1},),
    "ultraface_slim320_nopost": ({},),
}
#: Networks that are not quantized but whose values are whole numbers: they agree exactly.
EXACT = ("dory_frontnet_int",)


def require(name: str) -> Path:
    path = SHARED / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"{path.name} is not here ({SHARED} is not part of the project)")
    return path


def runtime(path: Path, feeds: dict[str, Array]) -> list[Array]:
    """onnxruntime in the mode that is right for int8 on x86."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = ort.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def agree(name: str, ours: dict[str, Array], theirs: list[Array]) -> None:
    """Fail where an output is not onnxruntime's, as the module says."""
    quantized = any(found.dtype.kind != "f" for found in theirs)
    for (output, found), wanted in zip(ours.items(), theirs, strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), output
        delta = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        if name in EXACT:
            assert delta.max() == 0, output
        elif quantized:
            assert delta.max() <= 1, output
            # of few values, one or two may fall on the other side of a rounding
            assert np.count_nonzero(delta) <= max(2, delta.size / 10_000), output
        else:
            assert delta.max() <= 1e-4 * np.abs(wanted).max(), output


def test_no_network_is_left_out() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not part of the project")
    assert {path.stem for path in SHARED.glob("*.onnx")} == set(NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
def test_on_the_cpu(name: str) -> None:
    """Compiled for the CPU with all dimensions open, written and read again."""
    path = require(name)
    artifact = Artifact.from_bytes(accelc.compile(path, target="cpu").to_bytes())
    session = accelc.load(artifact, "cpu")
    for seed, dims in enumerate(NETWORKS[name]):
        feeds = random_inputs(fix(session.graph, dims), seed)
        agree(name, session.run(feeds), runtime(path, feeds))


@pytest.mark.parametrize("name", NETWORKS)
def test_with_the_accelerator(name: str) -> None:
    """Compiled for the accelerator at the first size; what it cannot do runs on the CPU."""
    path = require(name)
    artifact = accelc.compile(path, dims=NETWORKS[name][0])
    session = accelc.load(artifact, "functional")
    feeds = random_inputs(session.inputs, 7)
    agree(name, session.run(feeds), runtime(path, feeds))


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("mnist_8", "Input3", "Plus214_Output_0"),
        ("super_resolution_10", "input", "output"),
    ],
)
def test_published_pairs_of_input_and_output(name: str, source: str, target: str) -> None:
    session = accelc.load(accelc.compile(require(name), target="cpu"), "cpu")
    for folder in sorted((SHARED / "data" / name).glob("test_data_set_*")):
        x, y = (
            numpy_helper.to_array(onnx.load_tensor(str(folder / f"{kind}_0.pb")))
            for kind in ("input", "output")
        )
        found = session.run({source: x})[target]
        assert np.abs(found - y).max() <= 1e-4 * np.abs(y).max()


def test_the_published_output_of_frontnet() -> None:
    """Integers carried in floats, layer by layer requantized by hand: exact."""
    path = require("dory_frontnet_int")
    folder = SHARED / "data" / "dory_frontnet"
    x, wanted = (
        [float(line.split(",")[0]) for line in text.splitlines() if not line.startswith("#")]
        for text in ((folder / name).read_text() for name in ("input.txt", "out_layer8.txt"))
    )
    session = accelc.load(accelc.compile(path, target="cpu"), "cpu")
    found = session.run({"0": np.array(x, np.float32).reshape(1, 1, 96, 160)})
    assert wanted == [float(v[0, 0]) for v in found.values()]
