"""What the boards achieve: what their builds came to, and what the MLPerf Tiny networks take.

    for board in icebreaker ulx3s-25f ulx3s-85f; do
      accelc build --board $board -o build/boards/$board
    done
    python benchmarks/boards.py --builds build/boards
    python benchmarks/boards.py --builds build/boards --markdown   # as in the README
    python benchmarks/boards.py --board icebreaker --network kws --json

Cells, Fmax and GOPS are from the ``report.json`` of each folder in ``--builds``. Cycles are counted
by the board's own registers in a simulation of the whole board, memory controller and chip
included: the network is compiled for the board, uploaded through the serial port and run on one
random input, and its outputs must be those of the functional simulator, bit for bit. What the CPU
does before and after is not in them. Times are those cycles at the board's clock, or at the Fmax
of a build that missed it. Cycles are kept by content: a second run measures nothing anew.

The networks are read from ../shared/models; what is not there is left out.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import accelerator

import accelc
from accelc.artifact import Artifact
from accelc.boards.board import Board
from accelc.boards.registry import BOARDS, find
from accelc.boards.simulate import HARNESS, board_verilog, surrounded
from accelc.command import console
from accelc.inputs import random_inputs
from accelc.isa.errors import AccelcError, DeviceError, DoesNotFitError, InputError
from accelc.session import Session
from accelc.sim.cache import cached_folder, content_key

NETWORKS = ("kws", "ic", "vww", "ad")


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A published figure for one of the networks."""

    network: str
    system: str
    milliseconds: float
    source: str


PEERS = (
    Peer(
        network="kws",
        system="CFU Playground, iCE40UP5K, 12 MHz, open tools",
        milliseconds=2100.0,
        source="its kws_micro_accel design notes: 25.2 M cycles",
    ),
    Peer(
        network="kws",
        system="reference: NUCLEO-L4R5ZI",
        milliseconds=182.0,
        source="mlcommons/tiny_results_v0.5",
    ),
    Peer(
        network="ic",
        system="hls4ml RN08, PYNQ-Z2, Vivado",
        milliseconds=7.6,
        source="mlcommons/tiny_results_v1.0, open division",
    ),
    Peer(
        network="ic",
        system="FINN CNV-W1A1 (1 bit), PYNQ-Z2, Vivado",
        milliseconds=1.51,
        source="mlcommons/tiny_results_v0.7, open division",
    ),
    Peer(
        network="ic",
        system="reference: NUCLEO-L4R5ZI",
        milliseconds=704.0,
        source="mlcommons/tiny_results_v0.5",
    ),
    Peer(
        network="vww",
        system="reference: NUCLEO-L4R5ZI",
        milliseconds=601.0,
        source="mlcommons/tiny_results_v0.5",
    ),
    Peer(
        network="ad",
        system="reference: NUCLEO-L4R5ZI",
        milliseconds=10.05,
        source="mlcommons/tiny_results_v0.5",
    ),
)


def reports(folder: Path | None) -> dict[str, dict[str, Any]]:
    """The reports of the builds in ``folder``, by board.

    Raises:
        InputError: there are none.
    """
    if folder is None:
        return {}
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*/report.json"))]
    if not found:
        raise InputError(
            f"there is no */report.json in {folder}; build with accelc build --board NAME "
            f"-o {folder}/NAME"
        )
    return {report["board"]: report for report in found}


def _simulated_cycles(board: Board, artifact: Artifact) -> int:
    """Cycles of one run on the simulated board, whose outputs are compared.

    Raises:
        DeviceError: they are not those of the functional simulator.
    """
    with Session(artifact) as expected, Session(artifact, f"sim:{board.name}") as session:
        inputs = random_inputs(session.inputs, seed=0)
        right, outputs = expected.run(inputs), session.run(inputs)
        for name, value in right.items():
            if outputs[name].tobytes() != value.tobytes():
                raise DeviceError(f"{board.name} and the functional simulator differ in {name}")
        return session.cycles


def cycles(board: Board, model: Path) -> int:
    """Accelerator cycles of one inference on the whole board; kept by content.

    Raises:
        DoesNotFitError: the network needs more memory than the board has.
    """
    artifact = accelc.compile(model, "vta", board.config)
    needed = sum(program.memory_bytes for program in artifact.programs)
    if needed > board.memory.nbytes:
        raise DoesNotFitError(f"needs {needed >> 10} KiB of memory")
    content = [data for p in artifact.programs for _, data in p.segments()]
    verilog = surrounded(board, board_verilog(board))

    def measure(folder: Path) -> None:
        (folder / "cycles.json").write_text(json.dumps(_simulated_cycles(board, artifact)))

    key = content_key([verilog, HARNESS.read_text(), *content])
    return json.loads((cached_folder("benchmarks", key, measure) / "cycles.json").read_text())


def clock_hz(board: Board, report: dict[str, Any] | None) -> float:
    """The clock the board runs at: its own, if what was built bears it."""
    wanted = float(board.clock_hz)
    return wanted if report is None else min(wanted, report["fmax_mhz"] * 1e6)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything, as the object that ``--json`` prints."""
    builds = reports(arguments.builds)
    boards = [find(name) for name in arguments.board or (builds or BOARDS)]
    runs: list[dict[str, Any]] = []
    with console.progress("measuring") as progress:
        for network in arguments.network or NETWORKS:
            model = accelerator.FILES[network]
            if not model.is_file():
                progress(f"{network} needs {model}, which is not here")
                continue
            for board in boards:
                progress(f"{network} on {board.name}")
                run: dict[str, Any] = {"network": network, "board": board.name}
                try:
                    count = cycles(board, model)
                except DoesNotFitError as error:
                    runs.append(run | {"reason": str(error)})
                    continue
                hz = clock_hz(board, builds.get(board.name))
                runs.append(
                    run | {"cycles": count, "clock_mhz": hz / 1e6, "milliseconds": 1e3 * count / hz}
                )
    return {
        "builds": [builds[board.name] for board in boards if board.name in builds],
        "runs": runs,
        "peers": [asdict(peer) for peer in PEERS],
    }


def build_rows(result: dict[str, Any]) -> list[list[str]]:
    rows: list[list[str]] = []
    for report in result["builds"]:
        used = {
            item["resource"]: f"{item['used']} / {item['available']}"
            for item in report["resources"]
        }
        rows.append(
            [
                report["board"],
                report["device"],
                used["LUT"],
                used.get("FF", ""),
                used["DSP"],
                used["block RAM"],
                f"{report['clock_mhz']:g}",
                f"{report['fmax_mhz']:.1f}",
                str(report["macs_per_cycle"]),
                f"{report['gops']:.2f}",
            ]
        )
    return rows


BUILD_COLUMNS = (
    "board", "FPGA", ">LUT", ">FF", ">DSP", ">block RAM", ">clock MHz", ">Fmax MHz", ">MACs/cycle",
    ">GOPS",
)  # fmt: skip
RUN_COLUMNS = ("network", "on", ">cycles", ">MHz", ">ms", "source")


def run_rows(result: dict[str, Any]) -> list[list[str]]:
    """Our boards and, below each network, its peers."""
    rows: list[list[str]] = []
    for network in NETWORKS:
        for run in result["runs"]:
            if run["network"] != network:
                continue
            if "reason" in run:
                rows.append([network, run["board"], "", "", "", run["reason"]])
                continue
            rows.append(
                [
                    network,
                    run["board"],
                    console.count(run["cycles"]),
                    f"{run['clock_mhz']:g}",
                    f"{run['milliseconds']:.2f}",
                    "whole-board simulation",
                ]
            )
        if any(run["network"] == network for run in result["runs"]):
            rows += [
                [network, peer["system"], "", "", f"{peer['milliseconds']:g}", peer["source"]]
                for peer in result["peers"]
                if peer["network"] == network
            ]
    return rows


def markdown(columns: tuple[str, ...], rows: list[list[str]]) -> str:
    """A table for the README."""
    head = [name.removeprefix(">") for name in columns]
    rule = ["---:" if name.startswith(">") else "---" for name in columns]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--builds", type=Path, help="folder with a build of each board in it")
    parser.add_argument("--board", action="append", choices=sorted(BOARDS), help="may be repeated")
    parser.add_argument("--network", action="append", choices=NETWORKS, help="may be repeated")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print Markdown tables")
    arguments = parser.parse_args()
    try:
        result = measure(arguments)
    except AccelcError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    tables = [
        ("builds", BUILD_COLUMNS, build_rows(result)),
        ("MLPerf Tiny", RUN_COLUMNS, run_rows(result)),
    ]
    if arguments.json:
        console.print_json(result)
    elif arguments.markdown:
        print("\n\n".join(markdown(columns, rows) for _, columns, rows in tables if rows))
    else:
        console.show(*(console.table(title, *table) for title, *table in tables if table[-1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
