"""``accelc diff``: two executors, or two models, layer by layer."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accelc.command import console
from accelc.command.build import CONFIG_OPTION, DIM_OPTION, parse_dims
from accelc.command.run import INPUT_OPTION
from accelc.isa.errors import InputError

if TYPE_CHECKING:
    from accelc.layer_diff import Difference


#: What a tensor's bound is a number of.
UNITS = {"integers": " steps", "floats": "", "models": " dB"}


def _executor(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    from accelc.trace import require_executor

    return None if value is None else require_executor(value)


@click.command(short_help="Compare two executors, or two models, layer by layer.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path), required=False)
@click.option("--a", metavar="EXECUTOR", callback=_executor, help="What runs MODEL.")
@click.option("--b", metavar="EXECUTOR", callback=_executor, help="What it is compared with.")
@INPUT_OPTION
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of random inputs.",
)
@CONFIG_OPTION
@DIM_OPTION
@click.option("--steps", type=click.IntRange(0), default=1, show_default=True,
              help="Bound of integers against the reference, in steps.")  # fmt: skip
@click.option("--tolerance", type=click.FloatRange(0), default=1e-4, show_default=True,
              help="Bound of floats, relative to the largest of the tensor.")  # fmt: skip
@click.option("--sqnr", type=float, default=10.0, show_default=True,
              help="Bound of two models, in dB.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def diff(
    model: Path,
    other: Path | None,
    a: str | None,
    b: str | None,
    assignments: tuple[str, ...],
    seed: int,
    config: str | None,
    dims: tuple[str, ...],
    steps: int,
    tolerance: float,
    sqnr: float,
    as_json: bool,
) -> int:
    """Run MODEL on two executors and compare every tensor between its layers.

    With OTHER, the same network quantized, tensors are matched by name and held to a signal to
    noise ratio. Exit code 1 says that a tensor leaves its bound; the first that does is named.
    docs/inspecting.md explains the bounds.

    \b
    Executors:
      reference   the model as it is, operator by operator, by onnx.reference
      golden, functional, rtl   the compiled network on the accelerator's devices
      cpu         the compiled network in native code on this machine
    As default reference is compared with functional, and two models by the reference.

    \b
    Examples:
      accelc diff net.onnx                               is the compiler right?
      accelc diff net.onnx --a functional --b rtl        is the hardware?
      accelc diff net.onnx --input image=cat.npy --json
      accelc diff float.onnx int8.onnx                   where does quantization hurt?
      accelc diff float.onnx int8.onnx --b functional
    """
    from accelc.configuration import resolve
    from accelc.inputs import random_inputs, read_inputs
    from accelc.layer_diff import Bounds, differences, first_outside
    from accelc.layer_diff import as_json as entry
    from accelc.trace import REFERENCE, Model

    first = a or REFERENCE
    second = b or (REFERENCE if other is not None else "functional")
    if other is None and first == second:
        raise InputError(f"--a and --b are both {first}; a comparison needs two executors")
    resolved, sizes, given = resolve(config), parse_dims(dims), read_inputs(assignments)
    with console.progress("reading the model") as report:
        left = Model(model, resolved, sizes)
        right = left if other is None else Model(other, resolved, sizes)
        _require_alike(left, right)
        for note in left.graph.notes:
            console.note(note)
        missing = {name: kind for name, kind in left.inputs.items() if name not in given}
        if missing:
            console.note(f"random values (seed {seed}) for {', '.join(missing)}")
        # beyond what it was calibrated for, a quantized network differs from any other
        ranges = {**left.calibrated(), **right.calibrated()}
        inputs = {**given, **random_inputs(missing, seed, ranges)}
        left.check_inputs(inputs)
        traces = left.trace(first, inputs, report), right.trace(second, inputs, report)
        relayed, side = None, 0 if second == REFERENCE else 1
        if other is None and REFERENCE in (first, second):
            report(f"{model.name}: onnx.reference, layer by layer")
            relayed = left.relay(inputs, traces[side])
    bounds = Bounds(steps=steps, tolerance=tolerance, sqnr_db=sqnr)
    found = differences(
        *traces, bounds, relayed=relayed, relayed_side=side, same_model=other is None
    )
    outside = first_outside(found)
    if as_json:
        console.print_json(
            {
                "model": str(model),
                "other": None if other is None else str(other),
                "a": first,
                "b": second,
                "within": outside is None,
                "first_outside": None if outside is None else outside.name,
                "tensors": [entry(difference) for difference in found],
            }
        )
    else:
        title = f"{model.name} on {first}, {(other or model).name} on {second}"
        console.show(difference_table(title, found), *_verdict(found, outside))
    return 1 if outside is not None else 0


def _require_alike(left: object, right: object) -> None:
    from accelc.trace import Model

    assert isinstance(left, Model) and isinstance(right, Model)
    for name, kind in left.inputs.items():
        have = right.inputs.get(name)
        if have is None or have.shape != kind.shape or have.dtype != kind.dtype:
            theirs = "no such input" if have is None else f"{have.dtype} {list(have.shape)}"
            raise InputError(
                f"input {name!r} is {kind.dtype} {list(kind.shape)} in {left.path.name}, "
                f"{right.path.name} has {theirs}: give two models of one network"
            )


def _decibels(value: float) -> str:
    return "equal" if value == math.inf else f"{value:.1f}"


def difference_table(title: str, found: "list[Difference]") -> object:
    """A row for every tensor; what leaves its bound is marked."""
    rows = [
        ["" if d.within else "!", d.name, d.op, str(list(d.shape)), str(d.differing),
         f"{d.worst:.6g}", "" if d.alone is None else f"{d.alone:.6g}",
         f"{d.limit:.6g}{UNITS[d.kind]}", _decibels(d.sqnr_db),
         f"{list(d.index)}: {d.a:.6g}, {d.b:.6g}" if d.differing else ""]
        for d in found
    ]  # fmt: skip
    columns = ("~", "~tensor", "operator", "shape", ">differ", ">worst", ">alone", ">bound",
               ">SQNR dB", "worst at: a, b")  # fmt: skip
    return console.table(title, columns, rows)


def _verdict(found: "list[Difference]", outside: "Difference | None") -> list[str]:
    if outside is None:
        equal = sum(not d.differing for d in found)
        return [f"{len(found)} tensors are within their bounds, {equal} of them are equal"]
    beyond = sum(not d.within for d in found)
    unit = UNITS[outside.kind]
    if outside.kind == "models":
        value, what = outside.sqnr_db, "SQNR"
    else:
        value, what = outside.worst, "worst element"
        if outside.alone is not None:
            value, what = outside.alone, "error of the layer alone"
    line = f"{outside.name} ({outside.op}) is the first of {beyond} tensors that leave their bound"
    return [f"{line}: {what} {value:.6g}{unit}, bound {outside.limit:.6g}{unit}"]
