"""``accelc boards`` and ``accelc build``: boards people own, and bitstreams for them."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accelc.command import console
from accelc.command.build import CONFIG_OPTION
from accelc.files import OutputError, write_atomically

if TYPE_CHECKING:
    from accelc.boards.board import Board
    from accelc.boards.build.build import Build


def board_dict(board: "Board") -> dict[str, Any]:
    """What `accelc boards --json` says about a board."""
    platform, memory = board.platform(), board.memory
    return {
        "name": board.name,
        "title": board.title,
        "family": board.family.value,
        "device": platform.device,
        "package": platform.package,
        "config": board.config.to_dict(),
        "config_digest": f"{board.config.digest:08x}",
        "macs_per_cycle": board.config.macs_per_cycle,
        "clock_mhz": board.clock_hz / 1e6,
        "gops": 2 * board.config.macs_per_cycle * board.clock_hz / 1e9,
        "memory_bytes": memory.nbytes,
        "on_chip_bytes": memory.on_chip.nbytes if memory.on_chip else 0,
        "on_chip_kind": memory.on_chip.kind.value if memory.on_chip else None,
        "sdram": memory.sdram.name if memory.sdram else None,
        "link": {"kind": "uart", "baud": board.baud},
        "mlperf": board.mlperf,
        "loader": board.loader,
        "url": board.url,
    }


def _memory(entry: dict[str, Any]) -> str:
    parts = []
    if entry["on_chip_bytes"]:
        parts.append(f"{console.size(entry['on_chip_bytes'])} {entry['on_chip_kind']}")
    if entry["sdram"]:
        parts.append(f"{console.size(entry['memory_bytes'])} SDRAM")
    return " + ".join(parts)


def _shape(config: dict[str, Any]) -> str:
    shape = f"{config['batch']}x{config['block_in']}x{config['block_out']}"
    return shape + (" sequential" if config["sequential"] else "")


@click.command("boards", short_help="List the boards there are bitstreams for.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of a table.")
def boards(as_json: bool) -> None:
    """List the boards: chip, accelerator, memory and link.

    A board's name is also the name of its configuration: accelc compile --config ulx3s-85f.

    \b
    Examples:
      accelc boards
      accelc boards --json
      accelc build --board icebreaker -o build
    """
    from accelc.boards.registry import BOARDS

    entries = [board_dict(board) for board in BOARDS.values()]
    if as_json:
        console.print_json(entries)
        return
    rows = [
        [e["name"], e["device"], _shape(e["config"]), e["macs_per_cycle"],
         f"{e['clock_mhz']:g}", f"{e['gops']:.1f}", _memory(e),
         f"UART, {e['link']['baud'] / 1e6:g} MBd"]
        for e in entries
    ]  # fmt: skip
    columns = ("board", "chip", "core", ">MACs/cycle", ">MHz", ">GOPS", "memory", "link")
    console.show(console.table("boards", columns, rows))


def report_tables(report: dict[str, Any]) -> list[Any]:
    """A build's report for people."""
    rows = [
        [r["resource"], r["cell"], console.count(r["used"]), console.count(r["available"]),
         console.percent(r["used"] / r["available"])]
        for r in report["resources"]
    ]  # fmt: skip
    columns = ("resource", "cell", ">used", ">available", ">share")
    title = f"{report['board']} ({report['device']}), configuration {report['config']['name']}"
    items: list[Any] = [console.table(title, columns, rows)]
    for clock in report["clocks"]:
        verdict = "met" if clock["met"] else "NOT MET"
        items.append(
            f"clock {clock['name']}: {clock['wanted_mhz']:g} MHz wanted, "
            f"{clock['achieved_mhz']:.1f} MHz achieved, {verdict}"
        )
    items.append(
        f"{report['macs_per_cycle']} MACs a cycle: {report['gops']:.1f} GOPS at "
        f"{report['clock_mhz']:g} MHz, {report['gops_at_fmax']:.1f} at the achieved clock"
    )
    if report["critical_paths"]:
        path = report["critical_paths"][0]
        items.append(
            f"critical path: {path['start']} -> {path['end']}, {path['delay_ns']:.1f} ns "
            f"({path['logic_ns']:.1f} logic in {path['levels']} levels, "
            f"{path['routing_ns']:.1f} routing)"
        )
    return items


def _write(build: "Build", report: dict[str, Any], destination: Path) -> Path:
    """Write bitstream, logs and, last, the report; returns the bitstream's path."""
    import json

    bitstream = destination / report["bitstream"]["file"]
    for log in build.logs:
        write_atomically(destination / log.name, log.read_bytes())
    write_atomically(bitstream, build.bitstream.read_bytes())
    write_atomically(destination / "report.json", json.dumps(report, indent=1) + "\n")
    shutil.rmtree(destination / FAILED, ignore_errors=True)
    return bitstream


#: Folder inside the destination for the logs of a build that failed.
FAILED = "failed"


def _prepare(destination: Path) -> None:
    try:
        destination.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make folder {destination}: {error.strerror}") from error


@click.command("build", short_help="Build the bitstream of a board.")
@click.option("--board", "name", metavar="NAME", required=True, help="Board, see accelc boards.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True,
    help="Folder for bitstream, report.json and logs; made if it is not there.",
)  # fmt: skip
@CONFIG_OPTION
@click.option("--clock", type=float, metavar="MHZ", help="Clock, if not the board's own.")
@click.option("--seed", type=click.IntRange(0), help="Seed of place and route.")
@click.option("--force", is_flag=True, help="Build again what is in the cache.")
@click.option(
    "--allow-slow", is_flag=True,
    help="Write the bitstream even if it may not work at the clock; the report says so.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the report instead of tables.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def build(
    name: str,
    output: Path,
    config: str | None,
    clock: float | None,
    seed: int | None,
    force: bool,
    allow_slow: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Build the bitstream of a board with Yosys and nextpnr, and report what came out.

    The tools are the ones on the PATH if they are new enough, else those of the YoWASP wheels
    (pip install 'accelc[boards]'). Steps are cached by content. What is in the folder stays there
    if anything fails; the logs of a failed build are then in its folder "failed".

    \b
    Examples:
      accelc build --board icebreaker -o build
      accelc build --board ulx3s-85f -o build --clock 87.5 --seed 3
      accelc build --board ulx3s-25f -o build --config small.toml --allow-slow
    """
    import dataclasses

    from accelc.boards.build.board import build_board, require_timing
    from accelc.boards.build.report import report as report_of
    from accelc.boards.registry import find
    from accelc.configuration import resolve

    board = find(name)
    changes: dict[str, Any] = {}
    if config is not None:
        changes["config"] = resolve(config)
    if clock is not None:
        changes["clock_hz"] = round(clock * 1e6)
    board = dataclasses.replace(board, **changes)
    _prepare(output)
    with console.progress(f"building {board.name}") as progress:
        built = build_board(
            board, seed=seed, force=force, progress=progress, failed=output / FAILED
        )
    for found in built.tools:
        if found.note:
            console.note(found.note)
    report = report_of(built)
    if not allow_slow:
        require_timing(built)
    bitstream = _write(built, report, output)
    if as_json:
        console.print_json(report)
    elif not quiet:
        console.show(*report_tables(report), f"wrote {bitstream}, report.json and logs")
