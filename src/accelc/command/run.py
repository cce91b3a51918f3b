"""``accelc run``: a compiled network on a device."""

import contextlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from accelc.command import console
from accelc.command.build import parse_dims
from accelc.compiler.graph import TensorType
from accelc.evaluate import Batch, Difference, Tally, evaluate, tensors
from accelc.files import require_writable, write_atomically
from accelc.inputs import npz_bytes, random_inputs, read_inputs, read_labelled
from accelc.isa.errors import InputError
from accelc.report import run_report
from accelc.session import TIMED, Session, require_device

INPUT_OPTION = click.option(
    "--input",
    "assignments",
    metavar="NAME=FILE.npy",
    multiple=True,
    help="Array for an input; repeat for more. Inputs not given are random.",
)


def open_sessions(path: Path, devices: Iterable[str], memory: Any = None) -> list[Session]:
    """One session per device name, all of one artifact.

    Raises:
        ArtifactError: the artifact cannot be read.
        ToolError: a device needs a tool that is missing.
        DeviceError: a board does not answer.
    """
    from accelc.artifact import Artifact

    artifact = Artifact.load(path)
    with contextlib.ExitStack() as opened:
        sessions: list[Session] = []
        for device in devices:
            message = f"preparing device {device}"
            if device == "rtl":
                message += " (building the Verilated model takes about a minute the first time)"
            with console.progress(message) as report:
                session = Session(artifact, device, memory, report)
            sessions.append(opened.enter_context(session))
        opened.pop_all()
    return sessions


def _devices(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        require_device(name)
    if len(set(names)) != len(names):
        raise InputError(f"--on names a device twice: {text}")
    return names


def _device_option(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    return _devices(value)


def _other_device(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        require_device(value)
    return value


def layer_table(session: Session) -> Any:
    """The accelerator's layers of the last run as a table."""
    timed = session.device in TIMED
    columns = ["layer", "operator", ">MACs", ">bytes moved"]
    columns += [">cycles", ">limit", ">utilisation"] if timed else []
    rows: list[list[str]] = []
    for layer in session.layers:
        row = [layer.name, layer.op, console.count(layer.macs), console.count(layer.dram_bytes)]
        if timed:
            row += [
                console.count(layer.cycles),
                console.count(layer.limit_cycles),
                console.percent(layer.utilisation),
            ]
        rows.append(row)
    return console.table(f"accelerator layers on {session.device}, last input", columns, rows)


def tally_lines(tally: Tally) -> list[str]:
    """What one device did, in words."""
    session = tally.session
    report = run_report(session)
    runs = "1 run" if tally.batches == 1 else f"{tally.batches} runs"
    line = f"{session.device}: {runs} in {tally.seconds:.2f} s"
    if session.device != "cpu" and not session.counters:
        line += "; nothing of this network runs on the accelerator"
    elif session.device in TIMED:
        used = console.percent(report["utilisation"])
        line += f"; the last took {console.count(report['cycles'])} cycles, matrix unit used {used}"
        if tally.seconds > 0 and session.device == "rtl":
            line += f"; simulated {console.count(round(tally.cycles / tally.seconds))} cycles/s"
    elif session.clock_hz is not None and session.counters:
        used, milliseconds = console.percent(report["utilisation"]), 1e3 * report["device_seconds"]
        line += (
            f"; the last took {console.count(report['cycles'])} cycles, {milliseconds:.3f} ms at "
            f"{session.clock_hz / 1e6:g} MHz, matrix unit used {used}"
        )
    lines = [line]
    if tally.accuracy is not None:
        lines.append(
            f"{session.device}: accuracy {console.percent(tally.accuracy)} "
            f"({tally.correct} of {tally.labelled})"
        )
    return lines


def difference_lines(differences: list[Difference], first: str) -> list[str]:
    return [
        f"{d.device} differs from {first} at input {d.batch + 1}: "
        f"output {d.output}, {d.differing} of {d.elements} elements"
        for d in differences
    ]


def json_report(path: str, tallies: list[Tally], differences: list[Difference]) -> dict[str, Any]:
    """One object: the first device's report, further devices in ``others``."""
    reports: list[dict[str, Any]] = []
    for tally in tallies:
        report = run_report(tally.session)
        report |= {
            "runs": tally.batches,
            "seconds": round(tally.seconds, 6),
            "total_cycles": tally.cycles,
            "outputs": {
                name: {"shape": list(array.shape), "dtype": str(array.dtype)}
                for name, array in tally.outputs.items()
            },
        }
        if tally.accuracy is not None:
            report |= {
                "accuracy": tally.accuracy,
                "correct": tally.correct,
                "labelled": tally.labelled,
            }
        reports.append(report)
    result = {"artifact": path, **reports[0]}
    if len(reports) > 1:
        result |= {"others": reports[1:], "agree": not differences}
    return result


@click.command("run", short_help="Run an .accel file on one or more devices.")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option(
    "--on",
    "devices",
    metavar="DEVICE[,DEVICE]",
    default="functional",
    show_default=True,
    callback=_device_option,
    help="golden, functional, timing, rtl, cpu, sim:BOARD or a serial port; several run in turn "
    "and must agree.",
)
@click.option(
    "--compare",
    metavar="DEVICE",
    callback=_other_device,
    help="A second device that must give the same outputs, bit for bit.",
)
@INPUT_OPTION
@click.option(
    "--dim",
    "dims",
    metavar="NAME=N",
    multiple=True,
    help="Size of an open dimension for --data and random inputs; repeat for more.  [default: 1]",
)
@click.option(
    "--data",
    "--labels",
    "data",
    metavar="FILE.npz",
    type=click.Path(path_type=Path),
    help="Labelled set: arrays x (samples) and y (class numbers); prints the accuracy.",
)
@click.option("--limit", type=click.IntRange(1), help="Use only the first samples of --data.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of random inputs and stalls.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the outputs of the last input, as .npz.",
)
@click.option("--latency", type=click.IntRange(0, 1_000_000), default=64, show_default=True,
              help="Memory latency in cycles, for timing and rtl.")  # fmt: skip
@click.option("--bandwidth", type=click.IntRange(1, 4096), default=8, show_default=True,
              help="Memory bytes per cycle, for timing and rtl.")  # fmt: skip
@click.option("--stall", type=click.FloatRange(0, 0.9), default=0.0, show_default=True,
              help="Probability that memory stalls in a cycle, for rtl alone.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def run_command(
    artifact: Path,
    devices: list[str],
    compare: str | None,
    assignments: tuple[str, ...],
    dims: tuple[str, ...],
    data: Path | None,
    limit: int | None,
    seed: int,
    output: Path | None,
    latency: int,
    bandwidth: int,
    stall: float,
    as_json: bool,
) -> int:
    """Run ARTIFACT, an .accel file, and say what came out and what it cost.

    \b
    Devices:
      golden      the NumPy definition of every instruction: slow, right by definition
      functional  the same results in native code, in no time; counts bytes, not cycles
      timing      a model that predicts the hardware's cycles
      rtl         the Verilated hardware itself, cycle by cycle
      cpu         the whole network in native code on this machine, without accelerator
      /dev/ttyUSB0, COM3, ...   a board on a cable; add @BAUD if its rate is not 3000000
      sim:BOARD   a whole board, Verilated: core, memory chip, serial link

    \b
    Examples:
      accelc run net.accel                                   random input, functional
      accelc run net.accel --on rtl --input image=cat.npy --output out.npz
      accelc run net.accel --on functional,rtl               both must agree
      accelc run net.accel --data test.npz --limit 100       accuracy of 100 samples
      accelc run net.accel --on cpu --dim batch=4            a network with open dimensions
      accelc run net.accel --on rtl --json | jq .layers      cycles of each layer
      accelc run net.accel --on /dev/ttyUSB0,functional      a board, checked
    """
    from accelc.sim.device import MemoryModel

    if compare is not None:
        if compare in devices:
            raise InputError(f"--compare {compare} compares {compare} with itself; --on has it")
        devices = [*devices, compare]
    if data is not None and assignments:
        raise InputError("give either --data or --input, not both")
    if limit is not None and data is None:
        raise InputError("--limit is a number of samples of --data, which is not given")
    if output is not None:
        given_files = (text.partition("=")[2] or None for text in assignments)
        require_writable(output, artifact, data, *given_files)
    memory = MemoryModel(
        latency_cycles=latency,
        bytes_per_cycle=bandwidth,
        stall_per_65536=round(stall * 65536),
        seed=seed & 0x7FFF_FFFF,
    )
    given, sizes = read_inputs(assignments), parse_dims(dims)
    with contextlib.ExitStack() as opened:
        sessions = open_sessions(artifact, devices, memory)
        for session in sessions:
            opened.enter_context(session)
        types = _input_types(sessions[0], given, sizes)
        batches = _batches(sessions[0], types, given, data, limit, seed)
        with console.progress("running") as report:
            tallies, differences = evaluate(sessions, batches, [None] * len(sessions), report)
    if output is not None:
        write_atomically(output, npz_bytes(tensors(tallies[0].outputs)))
    if as_json:
        console.print_json(json_report(str(artifact), tallies, differences))
    else:
        _show(tallies, differences)
    if differences and as_json:
        print(*difference_lines(differences[:5], devices[0]), sep="\n", file=sys.stderr)
    return 1 if differences else 0


def _input_types(
    session: Session, given: Mapping[str, Any], dims: Mapping[str, int]
) -> dict[str, TensorType]:
    """Types of the inputs with the sizes that ``dims`` and the ``given`` inputs fix.

    Raises:
        InputError: a name that is no open dimension, or two sizes for one.
    """
    from accelc.compiler.dynamic import fix, sizes

    known = sizes(session.graph, {n: a.shape for n, a in given.items() if n in session.inputs})
    for name, size in dims.items():
        if known.get(name, size) != size:
            raise InputError(f"--dim {name}={size}, but an input has {known[name]} there")
    return fix(session.graph, {**known, **dims})


def _batches(
    session: Session,
    types: Mapping[str, TensorType],
    given: dict[str, Any],
    data: Path | None,
    limit: int | None,
    seed: int,
) -> Iterable[Batch]:
    if data is not None:
        labelled = read_labelled(data, types, limit)
        for text in labelled.notes:
            console.note(text)
        return labelled.batches()
    missing = {name: kind for name, kind in types.items() if name not in given}
    if missing:
        names = ", ".join(missing)
        console.note(f"random values (seed {seed}) for {names}; give them with --input NAME=FILE")
    inputs = {**given, **random_inputs(missing, seed)}
    session.check_inputs(inputs)
    return [(inputs, None)]


def _show(tallies: list[Tally], differences: list[Difference]) -> None:
    for tally in tallies:
        if tally.session.layers:
            console.show(layer_table(tally.session))
    for name, array in tensors(tallies[0].outputs).items():
        text = np.array2string(array, threshold=20, edgeitems=4, precision=6)
        console.show(f"output {name}: {array.dtype} {list(array.shape)}", text)
    for tally in tallies:
        console.show(*tally_lines(tally))
    first = tallies[0].session.device
    if differences:
        console.show(*difference_lines(differences[:20], first))
    elif len(tallies) > 1:
        names = ", ".join(tally.session.device for tally in tallies)
        console.show(f"{names}: all outputs equal, bit for bit")
