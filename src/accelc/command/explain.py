"""``accelc inspect``, ``verify``, ``verilog`` and ``config``: what is there, and is it right."""

import json
from pathlib import Path
from typing import Any

import click

from accelc.command import console
from accelc.command.build import CONFIG_OPTION, DIM_OPTION, parse_dims
from accelc.files import require_writable, write_atomically
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.errors import InputError


@click.command(short_help="Explain a model or an .accel file: what runs where and why.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--target",
    type=click.Choice(["vta", "cpu"]),
    default="vta",
    show_default=True,
    help="Target a model is inspected for.",
)
@CONFIG_OPTION
@DIM_OPTION
@click.option(
    "--svg",
    type=click.Path(path_type=Path),
    help="Also draw the network into this file, coloured by where operators run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def inspect(
    path: Path,
    target: str,
    config: str | None,
    dims: tuple[str, ...],
    svg: Path | None,
    as_json: bool,
) -> None:
    """Explain PATH, an ONNX model or an .accel file: what runs where, why, and what it costs.

    Of every operator: the accelerator, native CPU code or onnx.reference; MACs, bytes, and the
    cycles that the timing model predicts for its program. At the end stands what would bring more
    to the accelerator. Nothing is written but the picture. docs/inspecting.md explains the columns.

    \b
    Examples:
      accelc inspect net.onnx
      accelc inspect net.onnx --config 1x8x8 --svg net.svg
      accelc inspect net.onnx --json | jq .remedies
      accelc inspect net.accel                       also the programs in it
    """
    from accelc.artifact import Artifact
    from accelc.configuration import resolve
    from accelc.explain import explain_artifact, explain_model

    if svg is not None:
        require_writable(svg, path)
    try:
        packed = path.read_bytes()[:2] == b"PK"
    except OSError:
        packed = path.suffix == ".accel"
    if packed:
        if config is not None or dims or target != "vta":
            raise InputError(
                f"{path} is compiled already: --target, --config and --dim are for ONNX models"
            )
        report = explain_artifact(Artifact.load(path), path.name)
    else:
        with console.progress("reading and compiling the model"):
            resolved = resolve(config)
            report = explain_model(path, resolved if target == "vta" else None, parse_dims(dims))
    if svg is not None:
        from accelc.picture import picture

        write_atomically(svg, picture(report))
    if as_json:
        console.print_json(report)
    else:
        _show(report)


def _show(report: dict[str, Any]) -> None:
    for text in report["notes"]:
        console.note(text)
    config = report["config"] or "none"
    console.show(f"network {report['network']} for {report['target']}, configuration {config}")
    for kind in ("inputs", "outputs"):
        for value in report[kind]:
            console.show(f"  {kind[:-1]} {value['name']}: {value['dtype']} {value['shape']}")
    rows = [
        [n["name"], n["op"], n["tier"], console.count(n["macs"]), console.size(n["bytes"]),
         "" if n["cycles"] is None else console.count(n["cycles"]),
         "" if n["utilisation"] is None else console.percent(n["utilisation"]),
         n["reason"]]
        for n in report["nodes"]
    ]  # fmt: skip
    columns = ("node", "operator", "tier", ">MACs", ">bytes", ">cycles", ">used", "~reason")
    console.show(console.table("nodes in execution order", columns, rows))
    console.show(*_totals(report))
    for program in report.get("programs", []):
        counts = ", ".join(f"{n} {name}" for name, n in program["instructions"].items())
        rows = [
            [layer["name"], layer["op"], console.count(layer["macs"]),
             console.count(layer["dram_bytes"]), console.count(layer["cycles"]),
             console.count(layer["limit_cycles"]), console.percent(layer["utilisation"])]
            for layer in program["layers"]
        ]  # fmt: skip
        columns = (
            "layer", "operator", ">MACs", ">bytes moved", ">cycles", ">limit", ">utilisation"
        )  # fmt: skip
        console.show(
            console.table("accelerator layers, cycles predicted", columns, rows),
            f"program: {counts}; {console.size(program['memory_bytes'])} of device memory; "
            f"predicted {console.count(program['predicted_cycles'])} cycles, matrix unit used "
            f"{console.percent(program['predicted_utilisation'])}",
        )


def _totals(report: dict[str, Any]) -> list[str]:
    """Sums over all nodes, and what could be done."""
    macs, share = console.count(report["macs"]), console.percent(report["accelerator_mac_share"])
    constants = console.size(report["constant_bytes"])
    lines = [f"{macs} MACs, {share} of them on the accelerator; {constants} of constants"]
    tiers = ", ".join(f"{found['nodes']} {name}" for name, found in report["tiers"].items())
    lines.append(f"{len(report['nodes'])} nodes: {tiers}")
    if report["cycles"] is not None:
        lines.append(f"predicted: {console.count(report['cycles'])} cycles on the accelerator")
    for remedy in report["remedies"]:
        lines.append(f"remedy: {remedy['what']} ({remedy['why']})")
    return lines


@click.command(short_help="Prove that the programs of an .accel file are safe to run.")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def verify(artifact: Path, as_json: bool) -> int:
    """Prove that the programs of ARTIFACT, an .accel file, cannot go wrong on the hardware.

    Tokens balance, nothing can deadlock, no row is read before it is written, no two accesses that
    conflict are unordered, every address is in bounds. The same proof ends every compilation.

    \b
    Examples:
      accelc verify net.accel
      accelc verify net.accel && accelc run net.accel --on rtl
    """
    from accelc.artifact import Artifact
    from accelc.compiler.verify import verify as verify_program
    from accelc.isa.errors import VerifyError

    results: list[dict[str, Any]] = []
    with console.progress("verifying"):
        for program in Artifact.load(artifact).programs:
            fault = None
            try:
                verify_program(program)
            except VerifyError as error:
                fault = str(error)
            results.append({"instructions": len(program.instructions), "fault": fault})
    if as_json:
        console.print_json(
            {"artifact": str(artifact), "verified": not any(r["fault"] for r in results),
             "programs": results}
        )  # fmt: skip
    else:
        for number, result in enumerate(results):
            verdict = result["fault"] or "no fault"
            console.show(f"program {number}, {result['instructions']} instructions: {verdict}")
        if not results:
            console.show("no programs: everything runs on the CPU")
    return 1 if any(r["fault"] for r in results) else 0


@click.command(short_help="Write the accelerator as Verilog.")
@CONFIG_OPTION
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="File to write."
)
def verilog(config: str | None, output: Path) -> None:
    """Write the accelerator as Verilog: one module, AXI4 to memory, AXI4-Lite registers.

    docs/ISA.md has the registers; any synthesis tool or simulator takes the file.

    \b
    Examples:
      accelc verilog -o core.v
      accelc verilog --config 1x8x8 -o core.v
      accelc verilog --config mine.toml -o core.v
    """
    from accelc.configuration import resolve
    from accelc.hw.verilog import emit

    resolved = resolve(config)
    require_writable(output)
    with console.progress(f"converting {resolved.name}"):
        text = emit(resolved)
    write_atomically(output, text)
    console.show(f"{output}: configuration {resolved.name}, {len(text.splitlines())} lines")


@click.command(short_help="Show hardware configurations.")
@click.argument("name", required=False)
@click.option("--list", "as_list", is_flag=True, help="List the presets, one name a line.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as --config FILE.json reads it.")
def config(name: str | None, as_list: bool, as_json: bool) -> None:
    """Show hardware configurations: the preset or file NAME, or all presets side by side.

    A configuration of your own is a .json or .toml file with the parameters that differ from the
    preset named by "base" (1x16x16 if there is none).

    \b
    Examples:
      accelc config                          all presets in one table
      accelc config 1x8x8                    one preset
      accelc config 1x8x8 --json > mine.json
      echo 'base = "1x8x8"
      inp_rows = 4096' > mine.toml; accelc config mine.toml
    """
    from accelc.configuration import resolve

    if as_list:
        click.echo("\n".join(PRESETS))
        return
    if as_json:
        shown = resolve(name).to_dict() if name else {k: c.to_dict() for k, c in PRESETS.items()}
        click.echo(json.dumps(shown, indent=1))
        return
    configs = [resolve(name)] if name else list(PRESETS.values())
    names = [key for key in AccelConfig().to_dict() if key != "name"]
    rows = [[key, *(c.to_dict()[key] for c in configs)] for key in names]
    rows += [
        ["MACs per cycle", *(c.macs_per_cycle for c in configs)],
        ["fingerprint", *(f"{c.digest:08x}" for c in configs)],
    ]
    columns = ["parameter", *(f">{c.name}" for c in configs)]
    console.show(console.table("configurations", columns, rows))
