"""What commands do with outputs that are unusual, and with outputs that are also inputs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import accelc
from accelc.isa.errors import ModelError

FLOAT = TensorProto.FLOAT
Command = Callable[..., tuple[int, str, str]]


def save(path: Path, nodes: list, inputs: list, outputs: list, constants: list) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    onnx.save(model, path)
    return path


@pytest.fixture
def recurrent(tmp_path: Path) -> Path:
    """An LSTM of which only the last state is wanted: its first output has no name."""
    constants = [
        numpy_helper.from_array(np.ones((1, 16, size), np.float32), name)
        for name, size in (("w", 6), ("r", 4))
    ]
    return save(
        tmp_path / "lstm.onnx",
        [helper.make_node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=4)],
        [helper.make_tensor_value_info("x", FLOAT, [5, 1, 6])],
        [helper.make_tensor_value_info("h", FLOAT, [1, 1, 4])],
        constants,
    )


@pytest.fixture
def sequence(tmp_path: Path) -> Path:
    return save(
        tmp_path / "sequence.onnx",
        [helper.make_node("SequenceConstruct", ["x", "x"], ["y"])],
        [helper.make_tensor_value_info("x", FLOAT, [3])],
        [helper.make_tensor_sequence_value_info("y", FLOAT, None)],
        [],
    )


def test_outputs_nobody_wants(recurrent: Path, tmp_path: Path, command: Command) -> None:
    artifact = tmp_path / "lstm.accel"
    for target in ("vta", "cpu"):
        assert command("compile", recurrent, "-o", artifact, "--target", target)[0] == 0
        assert "output h: float32 [1, 1, 4]" in command("run", artifact)[1]
    assert "LSTM" in command("inspect", recurrent)[1]


def test_sequences(sequence: Path, tmp_path: Path, command: Command) -> None:
    artifact, results = tmp_path / "sequence.accel", tmp_path / "results.npz"
    assert command("compile", sequence, "-o", artifact)[0] == 0
    shown = command("run", artifact, "-o", results, "--on", "functional,cpu")[1]
    assert "output y[0]: float32 [3]" in shown and "all outputs equal" in shown
    with np.load(results) as loaded:
        assert np.array_equal(loaded["y[0]"], loaded["y[1]"])


def test_what_is_read_is_not_overwritten(recurrent: Path, tmp_path: Path, command: Command) -> None:
    artifact = tmp_path / "lstm.accel"
    command("compile", recurrent, "-o", artifact)
    sample = tmp_path / "x.npy"
    np.save(sample, np.zeros((5, 1, 6), np.float32))
    (tmp_path / "link.onnx").symlink_to(recurrent)
    for arguments, read in (
        (("compile", recurrent, "-o", recurrent), recurrent),
        (("inspect", recurrent, "--svg", tmp_path / "link.onnx"), recurrent),
        (("quantize", recurrent, "-o", recurrent, "--calibration", sample), recurrent),
        (("quantize", recurrent, "-o", sample, "--calibration", sample), sample),
        (("run", artifact, "-o", artifact), artifact),
        (("run", artifact, "--input", f"x={sample}", "-o", sample), sample),
    ):
        before = read.read_bytes()
        code, _, error = command(*arguments)
        assert code == 2 and "it is read, and would be lost" in error
        assert read.read_bytes() == before


def test_a_program_for_another_board_is_refused_before_anything_is_built(
    recurrent: Path, tmp_path: Path, command: Command
) -> None:
    root = Path(__file__).parents[1]
    artifact = tmp_path / "digits.accel"
    command("compile", root / "models" / "digits_resnet8_int8.onnx", "-o", artifact)
    code, _, error = command("run", artifact, "--on", "sim:icebreaker")
    assert code == 2 and "compile it with --config icebreaker" in error


def test_labels_that_are_no_classes(tmp_path: Path, command: Command) -> None:
    root = Path(__file__).parents[1] / "models"
    with np.load(root / "digits_test.npz") as loaded:
        arrays = dict(loaded)
    arrays["y"] = arrays["y"] + 50
    data, artifact = tmp_path / "wrong.npz", tmp_path / "digits.accel"
    np.savez(data, **arrays)
    command("compile", root / "digits_resnet8_int8.onnx", "-o", artifact)
    code, _, error = command("run", artifact, "--data", data, "--limit", 8)
    assert code == 2 and "is none of the output's 10 classes" in error


def test_a_dimension_has_one_size_and_a_whole_one(recurrent: Path, command: Command) -> None:
    code, _, error = command("inspect", recurrent, "--dim", "x.0=5", "--dim", "x.0=6")
    assert code == 2 and "--dim x.0 is given twice" in error
    for size in ("2", 1.5):
        with pytest.raises(ModelError, match="dimension 'x.0' must be from 1"):
            accelc.compile(recurrent, dims={"x.0": size})  # pyright: ignore[reportArgumentType]


def test_options_that_would_do_nothing(recurrent: Path, tmp_path: Path, command: Command) -> None:
    artifact = tmp_path / "lstm.accel"
    command("compile", recurrent, "-o", artifact)
    for arguments, text in (
        (("inspect", artifact, "--dim", "x.0=5"), "is compiled already"),
        (("inspect", artifact, "--config", "1x8x8"), "is compiled already"),
        (("suite", "-k", "no such test"), "'no such test' in its name"),
        (("suite", "-k", "relu", "--on", "nowhere"), "there is no device 'nowhere'"),
    ):
        code, _, error = command(*arguments)
        assert code == 2 and text in error


def test_quantized_outputs_of_undeclared_shape(tmp_path: Path, command: Command) -> None:
    weights = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    model = save(
        tmp_path / "float.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [helper.make_tensor_value_info("x", FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    samples, quantized = tmp_path / "samples.npz", tmp_path / "int8.onnx"
    np.savez(samples, x=np.random.default_rng(1).normal(size=(16, 8)).astype(np.float32))
    assert command("quantize", model, "-o", quantized, "--calibration", samples)[0] == 0
    output = onnx.load(quantized).graph.output[0].type.tensor_type
    assert len(output.shape.dim) == 2


@pytest.mark.parametrize(
    "samples, doubt",
    [
        (np.zeros((8, 1, 8, 8)), "input 'image' is 0 in all samples"),
        (np.random.default_rng(0).random((1, 1, 8, 8)), "calibrated with a single sample"),
        (np.random.default_rng(0).random((2, 1, 8, 8)), None),
    ],
)
def test_samples_that_stand_for_little(
    samples: np.ndarray, doubt: str | None, tmp_path: Path, command: Command
) -> None:
    model = Path(__file__).parents[1] / "models" / "digits_float.onnx"
    data, output = tmp_path / "samples.npz", tmp_path / "int8.onnx"
    np.savez(data, image=samples.astype(np.float32))
    code, out, error = command("quantize", model, "-o", output, "--calibration", data)
    assert code == 0
    for text in ("in all samples", "with a single sample"):
        assert (text in out + error) == (doubt is not None and text in doubt)


def test_a_float_model_and_its_quantized_one_without_inputs(
    tmp_path: Path, command: Command
) -> None:
    root = Path(__file__).parents[1] / "models"
    data, output = tmp_path / "samples.npz", tmp_path / "int8.onnx"
    with np.load(root / "digits_test.npz") as loaded:
        np.savez(data, image=loaded["x"][:64])
    command("quantize", root / "digits_float.onnx", "-o", output, "--calibration", data)
    # the noise stays where the network was calibrated
    code, out, _ = command("diff", root / "digits_float.onnx", output)
    assert code == 0 and "within their bounds" in out
