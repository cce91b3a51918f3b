"""ONNX's own backend tests, run through :mod:`accelc.backend`, and the tier each one ran on."""

import contextlib
import io
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from accelc import backend
from accelc.isa.errors import InputError

Kind = Literal["node", "simple", "pytorch-converted", "pytorch-operator", "light"]
KINDS: tuple[Kind, ...] = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
Status = Literal["native", "reference", "failed", "excluded"]
STATUSES: tuple[Status, ...] = ("native", "reference", "failed", "excluded")

#: Tests that are not run, with the reason for each.
EXCLUDED: Mapping[str, str] = {
    **{
        f"test_bernoulli{form}": "its result is random: any backend's differs from the stored one"
        for form in (
            "", "_double", "_double_expanded", "_expanded", "_seed", "_seed_expanded"
        )
    },
    **{
        f"test_gradient_of_{what}": "automatic differentiation is no inference"
        for what in ("add", "add_and_mul")
    },
    **{
        f"test_resize_downsample_scales_{mode}_align_corners": "its result takes the length before"
        " rounding; the operator's text, PyTorch and onnxruntime take the tensor's"
        for mode in ("cubic", "linear")
    },
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of one test.

    ``status`` is ``native`` when no node needed ``onnx.reference``, ``reference`` when some did
    (``operators`` names them); ``detail`` is the error of a failed test or the reason of an
    excluded one.
    """

    kind: Kind
    name: str
    status: Status
    seconds: float = 0.0
    operators: tuple[str, ...] = ()
    detail: str = ""


@cache
def cases(kind: Kind) -> Mapping[str, TestCase]:
    """The tests of ``kind`` that the installed onnx brings, by name.

    Those of kind ``node`` are computed when they are loaded, which takes seconds. The light models
    are the published networks with the weights left out; the full ones would have to be downloaded.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the overflow that tests of casts are about
        found = load_model_tests(kind="real" if kind == "light" else kind)
    if kind == "light":
        found = [case for case in found if case.url and "/data/light/" in case.url]
    return {case.name: case for case in found}


def _plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    """A stored input or output of a test."""
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _stored(folder: Path, stem: str, values: Iterable[onnx.ValueInfoProto]) -> list[Any]:
    paths = ((folder / f"{stem}_{number}.pb", value) for number, value in enumerate(values))
    return [_read(path, value.type) for path, value in paths if path.exists()]


def _light(url: str) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """A network without its weights and the answer to the ramp every test feeds it."""
    path = Path(onnx.__file__).parents[1] / url
    model = onnx.load(path)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    given = [Runner.generate_dummy_data(value, name=path.stem) for value in inputs]
    return model, [(given, _stored(path.parent, f"{path.stem}_output", model.graph.output))]


def load(case: TestCase) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """The model of a test, and pairs of inputs and expected outputs."""
    if case.model is not None:
        sets = [([_plain(v) for v in i], [_plain(v) for v in o]) for i, o in case.data_sets or ()]
        return case.model, sets
    if case.url:
        return _light(case.url)
    folder = Path(str(case.model_dir))
    model = onnx.load(folder / "model.onnx")
    return model, [
        (_stored(data, "input", model.graph.input), _stored(data, "output", model.graph.output))
        for data in sorted(folder.glob("test_data_set*"))
    ]


def compare(expected: list[Any], found: list[Any], case: TestCase) -> None:
    """Compare outputs by the tolerances of the test; sequences element by element, which onnx's own
    function does not do where an element is a scalar.

    Raises:
        AssertionError: they differ.
    """
    assert len(found) == len(expected), f"{len(found)} outputs, not {len(expected)}"
    for want, have in zip(expected, found, strict=True):
        if isinstance(want, list) and isinstance(have, list):
            compare(want, have, case)
        elif want is None or have is None:
            assert want is have, f"{have} instead of {want}"
        else:
            Runner.assert_similar_outputs([want], [have], case.rtol, case.atol, case.name)


def check(case: TestCase, device: str = "CPU") -> tuple[str, ...]:
    """Run one test; the operators that ran through ``onnx.reference``.

    Raises:
        AssertionError: a result differs, by the tolerances of the test.
        AccelcError: the model was refused.
    """
    model, sets = load(case)
    if not sets:
        raise InputError(f"{case.name} has no data")
    rep = backend.prepare(model, device)
    for inputs, expected in sets:
        compare(expected, list(rep.run(inputs)), case)
    return rep.reference_operators


def run_case(kind: Kind, name: str, device: str = "CPU") -> Outcome:
    """Run one test and say what became of it; errors of any kind are its failure."""
    if name in EXCLUDED:
        return Outcome(kind, name, "excluded", detail=EXCLUDED[name])
    begin = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            operators = check(cases(kind)[name], device)
    except Exception as error:  # any error at all is a failed test, not the end of the suite
        line = " ".join(str(error).split())[:300]
        detail = f"{type(error).__name__}: {line}"
        return Outcome(kind, name, "failed", time.perf_counter() - begin, detail=detail)
    status: Status = "reference" if operators else "native"
    return Outcome(kind, name, status, time.perf_counter() - begin, operators)


def run(kinds: Iterable[Kind] = KINDS, pattern: str = "", device: str = "CPU") -> Iterator[Outcome]:
    """Run the tests of ``kinds`` whose name contains ``pattern``, in the order of their names."""
    for kind in kinds:
        for name in sorted(cases(kind)):
            if pattern in name:
                yield run_case(kind, name, device)


def counts(outcomes: Iterable[Outcome]) -> dict[Kind, dict[Status, int]]:
    """Outcomes of each kind by status."""
    table: dict[Kind, dict[Status, int]] = {}
    for outcome in outcomes:
        row = table.setdefault(outcome.kind, dict.fromkeys(STATUSES, 0))
        row[outcome.status] += 1
    return table
