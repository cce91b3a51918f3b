"""``accelc compile``, ``asm`` and ``disasm``: models to artifacts, text to bits and back."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accelc.command import console
from accelc.command.passes import DISABLE_OPTION
from accelc.files import Content, require_writable, write_atomically
from accelc.isa.errors import InputError

if TYPE_CHECKING:
    from accelc.artifact import Artifact

#: What --emit can stop at, in the order of compilation.
STAGES = ("graph", "schedule", "asm", "c", "llvm", "obj", "lib", "artifact")
CONFIG_OPTION = click.option(
    "--config",
    metavar="NAME|FILE",
    help="Accelerator configuration: a preset (see accelc config --list) or a .json or .toml file.",
)
DIM_OPTION = click.option(
    "--dim",
    "dims",
    metavar="NAME=N",
    multiple=True,
    help="Size of a symbolic dimension; repeat for more. Those not given stay open for the CPU; "
    "for the accelerator a batch is then 1, others need a size.",
)


def parse_dims(dims: tuple[str, ...]) -> dict[str, int]:
    """``("N=4",)`` as ``{"N": 4}``."""
    sizes: dict[str, int] = {}
    for text in dims:
        name, equals, number = text.rpartition("=")
        if not equals or not name or not number.isdecimal() or int(number) < 1:
            raise InputError(f"--dim needs NAME=N with N of at least 1, not {text!r}")
        if name in sizes:
            raise InputError(f"--dim {name} is given twice")
        sizes[name] = int(number)
    return sizes


#: What a stage gives: content by file suffix; "" is the file the user names.
Files = dict[str, Content]


def _cpu_stage(stage: str) -> Callable[["Artifact", str], Files]:
    def emit(artifact: "Artifact", stem: str) -> Files:
        from accelc.aot import emit_cpu

        return {**emit_cpu(artifact, stage)}

    return emit


def _text_stage(name: str) -> Callable[["Artifact", str], Files]:
    def emit(artifact: "Artifact", stem: str) -> Files:
        from accelc import render
        from accelc.compiler.text import to_text

        if name == "graph":
            return {"": to_text(artifact.model.graph)}
        if not artifact.programs:
            raise InputError(
                f"there is no {name}: nothing runs on the accelerator; compile with --target vta"
            )
        function = render.schedule_text if name == "schedule" else render.assembly_text
        return {"": function(artifact.model)}

    return emit


def _c_stage(artifact: "Artifact", stem: str) -> Files:
    from accelc.emit_c import emit_c

    return {**emit_c(artifact, stem)}


#: Each takes the artifact and the file name's stem.
EMITTERS: dict[str, Callable[["Artifact", str], Files]] = {
    **{name: _text_stage(name) for name in ("graph", "schedule", "asm")},
    **{name: _cpu_stage(name) for name in ("llvm", "obj", "lib")},
    "c": _c_stage,
    "artifact": lambda artifact, stem: {"": artifact.write},
}


_SUFFIXES = {"artifact": ".accel", "c": ".c", "obj": ".o", "lib": ".so"}


def compile_summary(artifact: "Artifact", report: dict[str, Any], output: Path) -> list[str]:
    """What was compiled and where it runs, in words."""
    from accelc.compiler.partition import Place

    model = artifact.model
    lines = [
        f"{output}: {report['nodes']['accelerator']} nodes on the accelerator"
        + (f" {model.config.name}" if model.config else "")
        + f", {report['nodes']['cpu']} on the CPU; {console.count(model.macs)} MACs"
    ]
    lines += [line for region in report["regions"] for line in _region_lines(region)]
    if model.config is not None:
        lines += [
            f"on the CPU: {p.node} ({p.op}): {p.reason}"
            for p in model.placements
            if p.place is Place.CPU
        ]
    return lines


def _region_lines(region: dict[str, Any]) -> list[str]:
    """One region in words: its program, and the memory for what it computes."""
    planned, least = (
        console.size(region.get(key, 0))
        for key in ("activation_bytes", "activation_bytes_at_least")
    )
    memory = f"{planned} as planned, no plan could do with less than {least}"
    if "instructions" not in region:
        arena = f"arena of {region['nodes']} CPU nodes: {memory}"
        return [arena] if region.get("activation_bytes") else []
    program = f"{region['instructions']} instructions, {console.size(region['memory_bytes'])}"
    cycles = console.count(region["predicted_cycles"])
    used = console.percent(region["predicted_utilisation"])
    return [
        f"program: {program} of memory, verified",
        f"activations: {memory}",
        f"predicted: {cycles} cycles, matrix unit used {used}",
    ]


def pass_table(report: dict[str, Any]) -> Any:
    """What each pass did, as a table."""
    rows = [
        [p["name"], console.count(p["nodes_before"]), console.count(p["nodes_after"]),
         f"{p['milliseconds']:.1f}",
         ", ".join(f"{rule} {count}" for rule, count in p["fired"].items())]
        for p in report["passes"]
    ]  # fmt: skip
    columns = ("pass", ">nodes before", ">after", ">ms", "~rules that fired, how often")
    return console.table("passes", columns, rows)


@click.command("compile")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--target",
    type=click.Choice(["vta", "cpu"]),
    default="vta",
    show_default=True,
    help="vta: the accelerator, with the CPU for what it cannot do; cpu: the CPU alone.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write.")
@CONFIG_OPTION
@DIM_OPTION
@click.option(
    "--emit",
    type=click.Choice(STAGES),
    default="artifact",
    show_default=True,
    help="Stop at a stage. graph, schedule and asm are text. c is the network for a host beside "
    "the plain core: C source and header. llvm, obj and lib are the CPU's code: lib is a shared "
    "library with a C header, obj its instructions without the constants.",
)
@DISABLE_OPTION
@click.option("--report", "with_report", is_flag=True, help="Say what each pass did.")
@click.option("--json", "as_json", is_flag=True, help="Print that report as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def compile_command(
    model: Path,
    target: str,
    output: Path | None,
    config: str | None,
    dims: tuple[str, ...],
    emit: str,
    disable: tuple[str, ...],
    with_report: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compile MODEL, an ONNX file, into an .accel file.

    Every finished program is verified before it is written. What was at OUTPUT stays there if
    anything goes wrong. Without -o, text goes to the terminal and anything else into the current
    folder, named after the model. --emit lib writes the C header beside the library.

    \b
    Examples:
      accelc compile net.onnx                        for the reference accelerator, to net.accel
      accelc compile net.onnx -o small.accel --config 1x8x8
      accelc compile net.onnx -o cpu.accel --target cpu
      accelc compile net.onnx --dim batch=4
      accelc compile net.onnx --emit asm             read the program
      accelc compile net.onnx --emit graph           read what became of the network
      accelc compile net.onnx --emit c -o net.c      net.c and net.h, see docs/integration.md
      accelc compile net.onnx --target cpu --emit obj -o net.o
      accelc compile net.onnx --report               what the passes did, see docs/passes.md
    """
    import accelc

    sizes = parse_dims(dims)
    if as_json and output is None and emit not in _SUFFIXES:
        raise InputError(f"--json and --emit {emit} both print; name a file for one with -o")
    if output is not None:
        require_writable(output, model)
    with console.progress("reading the model") as report:
        artifact = accelc.compile(
            model, target, config, dims=sizes, disable=disable, progress=report
        )
        report("writing")
        destination = output or Path(model.stem + _SUFFIXES.get(emit, ""))
        files = EMITTERS[emit](artifact, destination.stem)
    if not quiet:
        for note in artifact.model.graph.notes:
            console.note(note)
    main = files.pop("")
    if output is None and emit not in _SUFFIXES:
        click.echo(main, nl=False)
        return
    for suffix, content in files.items():
        write_atomically(destination.with_suffix(suffix), content)
    write_atomically(destination, main)
    if as_json:
        from accelc.report import compile_report

        console.print_json({"output": str(destination), **compile_report(artifact)})
    elif not quiet and emit == "artifact":
        from accelc.report import compile_report

        summary = compile_report(artifact, arenas=with_report)
        console.show(*([pass_table(summary)] if with_report else []))
        console.show(*compile_summary(artifact, summary, destination))
    elif not quiet:
        written = [destination, *(destination.with_suffix(suffix) for suffix in files)]
        console.show(f"wrote {' and '.join(map(str, written))}")


@click.command(short_help="Assemble text into encoded instructions.")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write.  [default: SOURCE with the suffix .bin]",
)
def asm(source: Path, output: Path | None) -> None:
    """Assemble SOURCE, text, into encoded instructions of 64 bytes each.

    docs/ISA.md has the instructions and the notation; accelc disasm and accelc compile --emit asm
    write it.

    \b
    Examples:
      accelc asm program.s -o program.bin
      accelc disasm net.accel > net.s && accelc asm net.s
    """
    from accelc.isa.asm import assemble
    from accelc.isa.codec import encode_all
    from accelc.isa.errors import EncodingError

    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read {source}: {reason}") from error
    try:
        instructions = assemble(text)
    except EncodingError as error:
        raise EncodingError(f"{source}: {error}") from error
    destination = output or source.with_suffix(".bin")
    write_atomically(destination, encode_all(instructions))
    console.show(f"{destination}: {len(instructions)} instructions")


@click.command(short_help="Print encoded instructions as text.")
@click.argument("program", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write.  [default: the terminal]",
)
def disasm(program: Path, output: Path | None) -> None:
    """Print the instructions of PROGRAM, an .accel file or encoded instructions, as assembly.

    \b
    Examples:
      accelc disasm net.accel
      accelc disasm program.bin -o program.s
    """
    from accelc.isa.asm import disassemble
    from accelc.isa.codec import decode_all
    from accelc.isa.errors import EncodingError

    try:
        data = program.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {program}: {error.strerror}") from error
    if data.startswith(b"PK"):
        from accelc import render
        from accelc.artifact import Artifact

        artifact = Artifact.from_bytes(data, str(program))
        if not artifact.programs:
            raise InputError(f"{program} has no instructions: everything runs on the CPU")
        text = render.assembly_text(artifact.model)
    else:
        try:
            text = disassemble(decode_all(data))
        except EncodingError as error:
            raise EncodingError(f"{program}: {error}") from error
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text)
