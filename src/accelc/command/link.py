"""``accelc flash`` and ``accelc selftest``: a bitstream onto a board; whether the board works."""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click

from accelc.attached import FORMS, is_address, is_simulated, open_board
from accelc.boards.registry import find
from accelc.command import console
from accelc.command.build import CONFIG_OPTION
from accelc.configuration import resolve
from accelc.isa.errors import ConfigError, InputError, ToolError

#: Writing a board's flash takes a minute or two.
_LOAD_SECONDS = 600
_LOADER_VARIABLE = "OPENFPGALOADER"
_LOADER = "openFPGALoader"
#: Lines of the loader's output that say what went wrong.
_TAIL_LINES = 8


def find_loader() -> str:
    """The path of openFPGALoader.

    Raises:
        ToolError: it is not there.
    """
    named = os.environ.get(_LOADER_VARIABLE)
    found = shutil.which(named or _LOADER)
    if found is not None:
        return found
    if named:
        raise ToolError(f"{_LOADER_VARIABLE} names {named!r}, which is no program")
    raise ToolError(
        f"{_LOADER} is missing; install it (Debian and Ubuntu: apt install openfpgaloader, macOS: "
        f"brew install openfpgaloader, others: https://trabucayre.github.io/openFPGALoader), or "
        f"set {_LOADER_VARIABLE} to its path"
    )


def _read_report(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        return {
            "board": str(report["board"]),
            "file": str(report["bitstream"]["file"]),
            "sha256": str(report["bitstream"]["sha256"]),
            "timing_met": bool(report["timing_met"]),
        }
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no report of accelc build ({error})") from error


def chosen_bitstream(path: Path, board: str | None, force: bool) -> tuple[Path, str]:
    """The bitstream that ``path``, a file or the folder of a build, means, and its board's name.

    Raises:
        InputError: there is no bitstream, or nothing says which board it is for.
        ConfigError: it is for another board, not what was built, or too slow.
    """
    report_path = (path if path.is_dir() else path.parent) / "report.json"
    if not path.exists():
        raise InputError(f"there is no {path}; accelc build writes bitstreams")
    if not report_path.exists() and force and board is not None and path.is_file():
        return path, board
    if not report_path.exists():
        raise InputError(
            f"there is no {report_path}, so nothing says which board the bitstream is for; name "
            "the folder accelc build wrote, or use --force with --board and a file"
        )
    report = _read_report(report_path)
    bitstream = path / report["file"] if path.is_dir() else path
    try:
        content = bitstream.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {bitstream}: {error.strerror}") from error
    if board is not None and board != report["board"]:
        raise ConfigError(
            f"{bitstream} is for board {report['board']}, not {board}; build it with "
            f"accelc build --board {board}"
        )
    if force:
        return bitstream, report["board"]
    if hashlib.sha256(content).hexdigest() != report["sha256"]:
        raise ConfigError(
            f"{bitstream} is not the file {report_path} describes; build it again, or use --force"
        )
    if not report["timing_met"]:
        raise ConfigError(
            f"{bitstream} may not work at its clock (built with --allow-slow); build it with a "
            "lower --clock, or use --force"
        )
    return bitstream, report["board"]


@click.command("flash", short_help="Load a bitstream onto a board.")
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option("--board", metavar="NAME", help="Board it must be for, see accelc boards.")
@click.option(
    "--permanent", is_flag=True,
    help="Write the board's flash, so that it starts with this bitstream from now on.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Trust the user more than report.json.")
@click.option("--dry-run", is_flag=True, help="Print the command instead of running it.")
def flash(path: Path, board: str | None, permanent: bool, force: bool, dry_run: bool) -> None:
    """Load the bitstream in PATH, the folder or a file of accelc build, with openFPGALoader.

    \b
    Examples:
      accelc build --board ulx3s-85f -o build && accelc flash build
      accelc flash build --board icebreaker --permanent
      accelc selftest --on /dev/ttyUSB0
    """
    if board is not None:
        find(board)
    bitstream, name = chosen_bitstream(path, board, force)
    command = [find_loader(), "-b", find(name).loader]
    command += ["--write-flash"] if permanent else []
    command += [str(bitstream)]
    if dry_run:
        console.show(" ".join(command))
        return
    with console.progress(f"loading {bitstream} onto {name}"):
        _load(command, name)
    console.show(f"loaded {bitstream} onto {name}; next: accelc selftest --on PORT")


def _load(command: list[str], name: str) -> None:
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_LOAD_SECONDS,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{_LOADER} did not end within {_LOAD_SECONDS} s") from error
    except OSError as error:
        raise ToolError(f"cannot start {command[0]}: {error.strerror}") from error
    if result.returncode:
        lines = (result.stdout + "\n" + result.stderr).strip().splitlines()
        tail = "; ".join(line.strip() for line in lines[-_TAIL_LINES:] if line.strip())
        raise ToolError(
            f"{_LOADER} failed with exit code {result.returncode}: {tail or 'it printed nothing'}; "
            f"is {name} plugged in, and may this user access it?"
        )


@click.command("selftest", short_help="Check a board: link, memory, core.")
@click.option("--on", "address", metavar="PORT|sim:BOARD", help="The board; default: list ports.")
@CONFIG_OPTION
@click.option(
    "--memory", "kibibytes", type=click.IntRange(1), metavar="KIB",
    help="Memory to fill and read back; default 256, 4 if simulated.",
)  # fmt: skip
@click.option(
    "--programs", type=click.IntRange(1), help="Random programs; default 20, 2 if simulated."
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of all randomness."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of a table.")
def selftest(
    address: str | None,
    config: str | None,
    kibibytes: int | None,
    programs: int | None,
    seed: int,
    as_json: bool,
) -> int:
    """Check a board from end to end; memory is overwritten. The exit code is 1 if a check fails.

    Checked are the handshake, the identity and every bit of the registers, the address lines and a
    part of the memory, random programs for every unit against the definition of the instructions,
    and how errors are reported. The line's own errors are counted.

    \b
    Examples:
      accelc selftest                            list serial ports
      accelc selftest --on /dev/ttyUSB0
      accelc selftest --on sim:icebreaker
    """
    if address is None:
        from accelc.boards.link.port import port_names

        ports = port_names()
        console.show(*(ports or ["no serial port found"]))
        return 0
    if not is_address(address):
        raise InputError(f"{address!r} is no board; give {FORMS}")
    from accelc.boards.link.selftest import Check, Selftest

    simulated = is_simulated(address)
    known = None if config is None else resolve(config)
    checks: list[Check] = []
    with console.progress(f"opening {address}") as report, open_board(address, known, report) as c:
        test = Selftest(
            c,
            memory_bytes=1024 * (kibibytes or (4 if simulated else 256)),
            programs=programs or (2 if simulated else 20),
            seed=seed,
            config=known,
        )
        for check in test.run():
            checks.append(check)
            report(f"{check.name} done, {check.seconds:.1f} s")
    failed = [check for check in checks if check.passed is False]
    if as_json:
        console.print_json([dataclasses.asdict(check) for check in checks])
    else:
        words = {True: "pass", False: "FAIL", None: "skip"}
        rows = [
            [check.name, words[check.passed], f"{check.seconds:.2f}", check.detail]
            for check in checks
        ]
        columns = ["check", "result", ">seconds", "~found"]
        console.show(console.table(f"selftest of {address}", columns, rows))
        console.show("all passed" if not failed else f"{len(failed)} failed")
    return 1 if failed else 0
