"""Calibration data from every source: what is accepted, and one clear line for what is not."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accelc.compiler.graph import TensorType
from accelc.isa.errors import InputError
from accelc.quantize_data import Samples, from_iterable, read_npz
from accelc.quantize_source import open_samples

FLOAT = np.dtype(np.float32)
ONE = {"x": TensorType((1, 2, 3), FLOAT)}
TWO = {"x": TensorType((1, 2, 3), FLOAT), "k": TensorType((1, 1), np.dtype(np.int64))}
FOUR = {"x": TensorType((4, 3), FLOAT)}
DATA = np.arange(60, dtype=np.float32).reshape(10, 2, 3)


def everything(samples: Samples) -> list[Any]:
    return list(samples.runs())


def test_npz_by_input_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=DATA, k=np.arange(10).reshape(10, 1), other=np.ones(3))
    runs = everything(read_npz(tmp_path / "d.npz", TWO, None, None))
    assert len(runs) == 10 and runs[3].labels is None
    assert np.array_equal(runs[3].inputs["x"], DATA[3:4])
    assert runs[3].inputs["k"].tolist() == [[3]]


def test_npz_of_a_network_with_one_input_may_say_x(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=DATA, y=np.arange(10))
    samples = read_npz(tmp_path / "d.npz", {"image": ONE["x"]}, "y", 4)
    assert [int(run.labels[0]) for run in everything(samples)] == [0, 1, 2, 3]


def test_batches_are_filled_up(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.arange(18.0).reshape(6, 3), y=np.arange(6))
    samples = read_npz(tmp_path / "d.npz", FOUR, "y", None)
    first, last = everything(samples)
    assert (first.count, last.count) == (4, 2)
    assert last.labels.tolist() == [4, 5]
    assert np.array_equal(last.inputs["x"][2], last.inputs["x"][1])
    assert samples.notes == ["x: float64 data taken as float32"]


@pytest.mark.parametrize(
    ("shape", "note"),
    [
        ((2, 3), None),
        ((1, 2, 3), None),
        ((5, 2, 3), None),
        ((6,), "reshaped"),
        ((3, 2), "reshaped"),
    ],
)
def test_samples_come_with_or_without_batch(shape: tuple[int, ...], note: str | None) -> None:
    samples = from_iterable([np.ones(shape, np.float32)] * 2, ONE, None, None)
    runs = everything(samples)
    assert len(runs) == (10 if shape[0] == 5 else 2)
    assert all(run.inputs["x"].shape == (1, 2, 3) for run in runs)
    assert [note in text for text in samples.notes if note] == ([True] if note else [])


def test_inputs_without_a_common_batch_come_whole() -> None:
    types = {"x": TensorType((2, 3), FLOAT), "m": TensorType((5,), FLOAT)}
    types["flag"] = TensorType((), np.dtype(np.bool_))
    sample = {"x": DATA[0], "m": np.arange(5, dtype=np.float32), "flag": np.array(True)}
    (run,) = everything(from_iterable([sample], types, None, None))
    assert {name: array.shape for name, array in run.inputs.items()} == {
        "x": (2, 3), "m": (5,), "flag": (),
    }  # fmt: skip
    with pytest.raises(InputError, match="the network takes \\[5\\]"):
        everything(from_iterable([sample | {"m": DATA[0]}], types, None, None))


def test_functions_are_called_for_every_pass_and_generators_once() -> None:
    calls: list[int] = []

    def source() -> Iterator[Any]:
        calls.append(1)
        for index in range(3):
            yield {"x": DATA[index], "label": index}

    called = from_iterable(source, ONE, "label", None)
    assert len(everything(called)) == len(everything(called)) == 3
    assert len(calls) == 2
    kept = from_iterable(source(), ONE, "label", None)
    for _ in range(2):
        runs = everything(kept)
        assert [int(run.labels[0]) for run in runs] == [0, 1, 2]
        assert np.array_equal(runs[2].inputs["x"][0], DATA[2])
    assert len(calls) == 3


def test_a_function_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("calibration_of_a_test.py").write_text(
        "import numpy as np\n"
        "number = 3\n"
        "def samples():\n"
        "    return [np.ones((2, 3), np.float32)] * 5\n"
    )
    before = list(sys.path)
    samples = open_samples("calibration_of_a_test:samples", ONE, None, None, None)
    assert len(everything(samples)) == 5 and sys.path == before
    for text, part in (
        ("calibration_of_a_test:nothing", "no attribute 'nothing'"),
        ("calibration_of_a_test:number", "is no function"),
        ("no_such_module_at_all:samples", "No module named"),
    ):
        with pytest.raises(InputError, match=re.escape(part)):
            open_samples(text, ONE, None, None, None)


ERRORS: dict[str, tuple[Any, Any, str | None, str]] = {
    "a wrong shape": ([DATA[0, :1]], ONE, None, "is [1, 3], the network takes [2, 3]; reshape"),
    "a missing input": ([{"x": DATA[0]}], TWO, None, "no input 'k', only x"),
    "an unknown input": ([{"x": DATA[0], "z": DATA[0]}], ONE, None, "there is no input 'z'"),
    "an array for two inputs": ([DATA[0]], TWO, None, "must be a mapping with x, k"),
    "text": ([np.array([["a"] * 3] * 2)], ONE, None, "is <U1, the network takes float32"),
    "floats for integers": (
        [{"x": DATA[0], "k": np.array([0.5])}], TWO, None, "is float64, the network takes int64"
    ),
    "NaN": ([DATA[0], DATA[1] * np.nan], ONE, None, "sample 1 of input 'x' holds NaN or infinity"),
    "infinity": ([DATA[0] + np.inf], ONE, None, "sample 0 of input 'x' holds NaN or infinity"),
    "nothing": ([], ONE, None, "the calibration data is empty; give at least one sample"),
    "no label": ([{"x": DATA[0]}], ONE, "y", "sample 0 has no label 'y', only x"),
    "labels of a sample": ([{"x": DATA[0], "y": [1, 2]}], ONE, "y", "is [2], not one number"),
    "different counts": (
        [{"x": DATA[:3], "k": np.zeros((2, 1), np.int64)}], TWO, None, "not one number"
    ),
    "a number": (7, ONE, None, "must be a file, a folder or an iterable of samples, not int"),
    "one mapping": ({"x": DATA[0]}, ONE, None, "not one mapping"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_samples(name: str) -> None:
    source, types, labels, message = ERRORS[name]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        everything(open_samples(source, types, labels, None, None))
    assert "\n" not in str(caught.value)


def test_errors_of_files(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"

    def message(types: Any = ONE, labels: str | None = None) -> str:
        with pytest.raises(InputError) as caught:
            everything(open_samples(str(path), types, labels, None, None))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "No such file" in message()
    path.write_bytes(b"nothing of the kind")
    assert "cannot read" in message()
    np.savez(path, a=DATA)
    assert "has no array 'x' for that input of the network; it has a" in message()
    np.savez(path, x=DATA, k=np.zeros((9, 1), np.int64))
    assert "one entry per sample each, they have {'x': 10, 'k': 9}" in message(TWO)
    assert "has no labels 'y'; it has x, k" in message(ONE, "y")
    np.savez(path, x=DATA, y=np.full(10, 0.5))
    assert "labels must be one class number per sample" in message(ONE, "y")
    np.savez(path, x=DATA[:0])
    assert "the calibration data is empty" in message()
    np.savez(path, x=np.array([None]))
    assert "cannot read" in message()
    assert "say how its images are preprocessed" in _folder_message(tmp_path)


def _folder_message(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        open_samples(folder, ONE, None, None, None)
    return str(caught.value)
