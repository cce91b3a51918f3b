"""Runs the driver against the board's end of the host link over lines with faults, and counts.

The gateware is Verilated, UARTs included; between it and the driver, which sees a serial port,
bytes are lost, repeated, changed and inserted, answers come late, and noise inverts the line for a
quarter of a bit. Every transfer is checked. The exit code is 1 if anything was lost or wrong.

    python benchmarks/link_faults.py --transfers 10000
"""

import argparse
import random
import sys
import time
from dataclasses import dataclass

from accelc.boards.link import line as line_module
from accelc.boards.link.endpoint import board_record
from accelc.boards.link.exercise import Exercise
from accelc.boards.link.faults import BadLine, Endpoint, FaultRates
from accelc.boards.link.model import EndpointModel, PlainBus
from accelc.boards.link.port import Port
from accelc.boards.link.requester import Requester
from accelc.boards.link.simulation import REGISTER_BYTES, SimulatedEndpoint
from accelc.boards.registry import BOARDS, find
from accelc.command import console
from accelc.isa.errors import AccelcError

#: Answers to a pseudo-terminal are late sooner than those to a USB adapter.
_TIMEOUT_SECONDS = 0.01
_LONGEST_BYTES = 150
_MEMORY_BYTES = 1 << 15


@dataclass(frozen=True, kw_only=True)
class Line:
    """A kind of line."""

    name: str
    rates: FaultRates
    #: Chance, in each cycle, that the wire to the board is inverted; of the gateware only.
    noise: float = 0.0


LINES = (
    Line(name="perfect", rates=FaultRates()),
    Line(name="lost bytes", rates=FaultRates(drop=1e-3)),
    Line(name="repeated", rates=FaultRates(duplicate=1e-3, repeat=1e-2)),
    Line(name="changed", rates=FaultRates(corrupt=1e-3)),
    Line(name="inserted", rates=FaultRates(insert=1e-3)),
    Line(name="late", rates=FaultRates(stall=5e-3, stall_seconds=0.02)),
    Line(
        name="all of it",
        rates=FaultRates(
            drop=3e-4, duplicate=3e-4, corrupt=3e-4, insert=3e-4, repeat=3e-3, stall=1e-3,
            stall_seconds=0.01,
        ),
    ),
    Line(name="noise on the wire", rates=FaultRates(), noise=1e-4),
)  # fmt: skip


@dataclass
class Outcome:
    """One line's row."""

    cells: list[str]
    good: bool


def run(endpoint: Endpoint, line: Line, transfers: int, seed: int) -> tuple[Exercise, list[str]]:
    """The exercise, done, and what happened on the line."""
    with BadLine(endpoint, line.rates, seed=seed) as bad:
        requester = Requester(Port(bad.port, 3_000_000), patience=30)
        requester.connect()
        exercise = Exercise(
            requester, memory_bytes=_MEMORY_BYTES, longest=_LONGEST_BYTES, seed=seed
        )
        start = time.monotonic()
        for _ in range(transfers):
            exercise.step()
        seconds = time.monotonic() - start
        if isinstance(endpoint, SimulatedEndpoint):
            endpoint.set_noise(0)
        exercise.check()
    statistics = requester.statistics
    faults = sum(bad.counts.values())
    if isinstance(endpoint, SimulatedEndpoint):
        faults += endpoint.flips
    return exercise, [
        console.count(transfers),
        console.count(exercise.moved_bytes),
        console.count(faults),
        console.count(statistics.requests),
        console.count(statistics.repeated),
        console.count(statistics.refused),
        console.count(statistics.damaged),
        console.count(statistics.timeouts),
        f"{seconds:.1f}",
    ]


def on_gateware(board: str, line: Line, transfers: int, seed: int) -> Outcome:
    gateware = SimulatedEndpoint(find(board), seed=seed)
    gateware.set_bus(5, 0.1)
    gateware.set_noise(line.noise)
    exercise, cells = run(gateware, line, transfers, seed)
    held = bytes(gateware.memory[:_MEMORY_BYTES])
    lost = sum(a != b for a, b in zip(held, exercise.memory, strict=True))
    twice = gateware.rings - len(exercise.rung)
    return Outcome(
        ["gateware", line.name, *cells, str(exercise.wrong_bytes), str(lost), str(twice)],
        exercise.wrong_bytes == lost == twice == 0,
    )


class _Counting(PlainBus):
    """Registers that are written down."""

    def write(self, address: int, value: int) -> bool | None:
        self.rings = getattr(self, "rings", 0) + (address == 0x40)
        return super().write(address, value)


def on_model(board: str, line: Line, transfers: int, seed: int) -> Outcome:
    memory, registers = PlainBus(bytearray(_MEMORY_BYTES)), _Counting(bytearray(REGISTER_BYTES))
    model = EndpointModel(
        record=board_record(find(board)), memory=memory, registers=registers, address_bits=17
    )
    exercise, cells = run(model, line, transfers, seed)
    lost = sum(a != b for a, b in zip(memory.data, exercise.memory, strict=True))
    twice = getattr(registers, "rings", 0) - len(exercise.rung)
    return Outcome(
        ["model", line.name, *cells, str(exercise.wrong_bytes), str(lost), str(twice)],
        exercise.wrong_bytes == lost == twice == 0,
    )


COLUMNS = (
    "endpoint", "line", ">transfers", ">bytes", ">faults", ">requests", ">repeated", ">refused",
    ">damaged answers", ">timeouts", ">seconds", ">wrong bytes", ">lost bytes", ">done twice",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Transfers over bad lines, checked.")
    parser.add_argument("--transfers", type=int, default=10_000, help="on each line")
    parser.add_argument("--endpoint", choices=("gateware", "model", "both"), default="gateware")
    parser.add_argument("--board", choices=BOARDS, default="icebreaker")
    parser.add_argument("--line", action="append", choices=[line.name for line in LINES])
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 30) if arguments.seed is None else arguments.seed
    line_module.MIN_TIMEOUT_SECONDS = _TIMEOUT_SECONDS
    kinds = {"gateware": (on_gateware,), "model": (on_model,), "both": (on_gateware, on_model)}
    outcomes: list[Outcome] = []
    with console.progress("starting") as report:
        for endpoint in kinds[arguments.endpoint]:
            for line in LINES:
                if arguments.line and line.name not in arguments.line:
                    continue
                if endpoint is on_model and line.noise:
                    continue
                report(f"{endpoint.__name__}: {line.name}")
                try:
                    outcomes.append(endpoint(arguments.board, line, arguments.transfers, seed))
                except AccelcError as error:
                    print(f"seed {seed}, {line.name}: {error}", file=sys.stderr)
                    return 1
    title = f"host link of {arguments.board}, seed {seed}"
    console.show(console.table(title, COLUMNS, [outcome.cells for outcome in outcomes]))
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
