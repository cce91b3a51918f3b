"""``accelc inspect``: tiers, costs and remedies of small networks, and the picture."""

import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from accelc.explain import explain_model
from accelc.isa.config import PRESETS, REFERENCE, AccelConfig
from accelc.picture import BOX_HEIGHT, BOX_WIDTH, STYLES, picture

SVG = "{http://www.w3.org/2000/svg}"
Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a float model of ``nodes`` with input ``x`` and constants to a file."""

    def write(
        nodes: list[onnx.NodeProto],
        shape: list[int | str],
        output: str,
        constants: dict[str, Any] | None = None,
    ) -> Path:
        graph = helper.make_graph(
            nodes,
            "small",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
        )
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
        return tmp_path / "m.onnx"

    return write


def convolution(save: Save, shape: list[int | str]) -> Path:
    weights = np.ones((4, 3, 3, 3), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"]), helper.make_node("Det", ["y"], ["z"])]
    return save(nodes, shape, "z", {"w": weights})


def quantized(save: Save, channels: tuple[int, int], op: str = "Conv", size: int = 8) -> Path:
    """``op`` of int8 features, as QDQ model whose input is float."""
    c, o = channels
    scale = {"s": np.float32(0.05), "q": np.int8(0), "t": np.float32(0.01)}
    rng = np.random.default_rng(0)
    scale["w"] = rng.integers(-9, 9, (o, c, 3, 3)).astype(np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "q"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "q"], ["b"]),
        helper.make_node("DequantizeLinear", ["w", "t", "q"], ["v"]),
        helper.make_node(op, ["b", "v"] if op == "Conv" else ["b"], ["d"]),
        helper.make_node("QuantizeLinear", ["d", "s", "q"], ["e"]),
        helper.make_node("DequantizeLinear", ["e", "s", "q"], ["y"]),
    ]
    return save(nodes, [1, c, size, size], "y", scale)


def kinds(report: dict[str, Any]) -> list[str]:
    return [remedy["kind"] for remedy in report["remedies"]]


def test_a_float_model_is_told_to_calibrate_and_to_choose_a_batch(save: Save) -> None:
    report = explain_model(convolution(save, ["N", 3, 6, 6]), REFERENCE, {})
    assert [n["tier"] for n in report["nodes"]] == ["native", "reference"]
    assert report["tiers"]["accelerator"]["nodes"] == 0 and report["cycles"] is None
    assert kinds(report) == ["calibrate", "dimension", "reference"]
    texts = [remedy["what"] for remedy in report["remedies"]]
    assert "accelc quantize" in texts[0] and "--dim N=" in texts[1] and "Det" in texts[2]
    conv = report["nodes"][0]
    assert conv["macs"] == 4 * 4 * 4 * 3 * 9
    assert conv["bytes"] == 4 * (3 * 36 + 4 * 16 + 4 * 27) and conv["constant_bytes"] == 4 * 4 * 27
    assert "computes on float32" in conv["reason"]


def test_a_layer_with_few_channels_is_told_to_widen(save: Save) -> None:
    report = explain_model(quantized(save, (32, 18)), REFERENCE, {})
    (widen,) = (r for r in report["remedies"] if r["kind"] == "channels")
    assert "outputs from 18 to 32 channels" in widen["what"]
    assert not {"channels"} & {*kinds(explain_model(quantized(save, (32, 32)), REFERENCE, {}))}


def test_a_missing_unit_is_named(save: Save) -> None:
    config = AccelConfig.from_dict(PRESETS["1x4x4"].to_dict() | {"lut": False, "name": "plain"})
    report = explain_model(quantized(save, (4, 4), "Sigmoid"), config, {})
    assert kinds(report) == ["configuration"]
    assert "lut = true" in report["remedies"][0]["what"]


def test_predicted_cycles_are_those_of_the_program(save: Save) -> None:
    report = explain_model(quantized(save, (32, 32)), REFERENCE, {})
    (node,) = (n for n in report["nodes"] if n["tier"] == "accelerator")
    assert 0 < node["cycles"] <= report["cycles"]
    assert node["utilisation"] == node["macs"] / (256 * node["cycles"])


def boxes(text: str) -> list[tuple[float, float, str]]:
    """Corner and tooltip of every box of a picture."""
    found = []
    for group in ET.fromstring(text).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        if title is not None and rect is not None:
            found.append((float(rect.attrib["x"]), float(rect.attrib["y"]), title.text or ""))
    return found


def test_the_picture_shows_every_operator_in_its_tier(save: Save) -> None:
    report = explain_model(convolution(save, ["N", 3, 6, 6]), REFERENCE, {})
    text = picture(report)
    assert len(boxes(text)) == len(report["nodes"]) + 2
    for name in ("native", "reference"):
        assert STYLES[name].fill in text and STYLES[name].label in text
    assert STYLES["accelerator"].fill not in text
    assert "computes on float32, not on quantized data" in text
    assert text == picture(report)


def test_a_thousand_operators_are_drawn_in_seconds_without_touching() -> None:
    nodes: list[dict[str, Any]] = []
    rng = np.random.default_rng(0)
    for k in range(1000):
        sources = [f"v{k - 1}" if k else "x"]
        if k > 30 and k % 7 == 0:
            sources.append(f"v{int(rng.integers(k - 30, k - 1))}")
        nodes.append(
            {
                "name": f"n<{k}>", "op": "Conv", "reason": "", "macs": 9, "bytes": 10,
                "tier": ("accelerator", "native", "reference")[k % 3], "cycles": 5,
                "inputs": sources,
                "outputs": [{"name": f"v{k}", "dtype": "int8", "shape": [1, -1]}],
            }
        )  # fmt: skip
    value = {"name": "x", "dtype": "int8", "shape": [1, 8]}
    report = {
        "model": "big & <wide>", "network": "big", "config": "1x4x4", "macs": 9000, "cycles": 5000,
        "tiers": {t: {"nodes": 333, "macs": 3000} for t in ("accelerator", "native", "reference")},
        "inputs": [value], "outputs": [value | {"name": "v999"}], "nodes": nodes,
    }  # fmt: skip
    start = time.process_time()
    text = picture(report)
    assert time.process_time() - start < 5
    placed = boxes(text)
    assert len(placed) == 1002
    for number, (x, y, _) in enumerate(placed):
        for other_x, other_y, _ in placed[:number]:
            assert abs(x - other_x) >= BOX_WIDTH or abs(y - other_y) >= BOX_HEIGHT
    root = ET.fromstring(text)
    width, height = (float(root.attrib[side]) for side in ("width", "height"))
    assert 0.5 < width / height < 4
