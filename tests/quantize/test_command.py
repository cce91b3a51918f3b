"""``accelc quantize`` on the command line: files, tables, JSON, and one line for every mistake."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from accelc.command.main import ExitCode, run

PRECIOUS = "precious"
NET = """(float[N,3,8,8] image) => (float[N,4] scores) { [conv] a = Conv (image, w)
[relu] b = Relu (a) c = GlobalAveragePool (b) d = Flatten (c) [fc] scores = Gemm (d, v) }"""


@pytest.fixture
def folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_model: Callable[..., ModelProto],
    rng: np.random.Generator,
) -> Path:
    """A model, data for it, and an output that must survive every failure."""
    monkeypatch.chdir(tmp_path)
    model = make_model(NET, w=rng.standard_normal((5, 3, 3, 3)), v=rng.standard_normal((5, 4)))
    onnx.save(model, "net.onnx")
    x = rng.standard_normal((12, 3, 8, 8)).astype(np.float32)
    np.savez("data.npz", image=x, label=rng.integers(0, 4, 12))
    np.savez("nan.npz", image=np.full((1, 3, 8, 8), np.nan, np.float32))
    np.savez("small.npz", image=x[..., :4])
    Path("out.onnx").write_text(PRECIOUS)
    return tmp_path


def test_it_writes_a_model_and_says_what_became_of_it(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = "quantize net.onnx -o out.onnx --calibration data.npz --labels label --sensitivity"
    assert run([*words.split(), "--report", "report.json"]) == ExitCode.OK
    captured = capfd.readouterr()
    for part in (
        "ways tried", "conv", "Gemm", "int8", "drop alone", "calibrated with 12 samples",
        "output SQNR", "100.0 % of the MACs on the accelerator", "a drop of",
    ):  # fmt: skip
        assert part in captured.out, part
    assert captured.err == ""
    model = onnx.load("out.onnx")
    onnx.checker.check_model(model, full_check=True)
    report = json.loads(Path("report.json").read_text())
    assert [layer["name"] for layer in report["layers"]][0] == "conv"
    assert report["accuracy"]["samples"] == 12
    assert report["accelerator_mac_share"] == 1.0
    assert run(["compile", "out.onnx", "-q", "--config", "1x4x4"]) == ExitCode.OK


def test_json(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = "quantize net.onnx -o out.onnx --calibration data.npz --json --observer min-max"
    words += " --equalization none --no-bias-correction --keep-float fc --samples 5"
    assert run(words.split()) == ExitCode.OK
    report = json.loads(capfd.readouterr().out)
    assert report["samples"] == 5 and len(report["candidates"]) == 1
    forms = {layer["name"]: layer["form"] for layer in report["layers"]}
    assert (forms["conv"], forms["fc"]) == ("int8", "float")


def test_quiet(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = "quantize net.onnx -o out.onnx --calibration data.npz -q --observer mse"
    assert run(words.split()) == ExitCode.OK
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_images(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    Path("photos").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (9, 12, 3)).astype(np.uint8)
        image.fromarray(pixels).save(f"photos/{number}.png")
    words = "quantize net.onnx -o out.onnx --calibration photos --observer min-max"
    assert run([*words.split(), "--image", "scale=1/255", "--image", "fit=crop"]) == ExitCode.OK
    assert "calibrated with 3 samples" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("net.onnx -o out.onnx", ("--calibration",)),
        ("net.onnx --calibration data.npz", ("--output",)),
        ("gone.onnx -o out.onnx --calibration data.npz", ("gone.onnx", "no such file")),
        ("data.npz -o out.onnx --calibration data.npz", ("not an ONNX model",)),
        ("net.onnx -o out.onnx --calibration gone.npz", ("gone.npz", "No such file")),
        ("net.onnx -o out.onnx --calibration net.onnx", ("cannot read net.onnx",)),
        ("net.onnx -o gone/out.onnx --calibration data.npz", ("there is no folder gone",)),
        ("net.onnx -o . --calibration data.npz", ("it is a folder",)),
        ("net.onnx -o out.onnx --calibration nan.npz", ("NaN or infinity",)),
        ("net.onnx -o out.onnx --calibration small.npz", ("[3, 8, 4]", "[3, 8, 8]")),
        ("net.onnx -o out.onnx --calibration .", ("is a folder", "--image scale=1/255")),
        ("net.onnx -o out.onnx --calibration . --image size=8", ("images need --image scale=",)),
        ("net.onnx -o out.onnx --calibration gone:samples", ("cannot import gone:samples",)),
        ("net.onnx -o out.onnx --calibration data.npz --labels y", ("no labels 'y'", "label")),
        ("net.onnx -o out.onnx --calibration data.npz --max-accuracy-drop 1", ("--labels",)),
        ("net.onnx -o out.onnx --calibration data.npz --keep-float con", ("did you mean conv",)),
        ("net.onnx -o out.onnx --calibration data.npz --dim M=2", ("M",)),
        ("net.onnx -o out.onnx --calibration data.npz --report out.onnx", ("the same file",)),
        ("net.onnx -o out.onnx --calibration data.npz --config 9x9", ("9x9",)),
    ],
)
def test_mistakes(
    words: str, parts: tuple[str, ...], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = {path.name for path in folder.iterdir()}
    assert run(["quantize", *words.split()]) == ExitCode.USER_ERROR
    captured = capfd.readouterr()
    errors = captured.err.splitlines()
    assert len(errors) == 1 and errors[0].startswith("error: "), captured.err
    for part in parts:
        assert part in errors[0], errors[0]
    assert Path("out.onnx").read_text() == PRECIOUS and captured.out == ""
    assert {path.name for path in folder.iterdir()} == before


def test_a_quantized_model_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = "quantize net.onnx -o int8.onnx --calibration data.npz -q --observer min-max"
    assert run(first.split()) == ExitCode.OK
    words = "quantize int8.onnx -o out.onnx --calibration data.npz"
    assert run(words.split()) == ExitCode.USER_ERROR
    assert "quantized already" in capfd.readouterr().err
    assert Path("out.onnx").read_text() == PRECIOUS
