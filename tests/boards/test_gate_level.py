"""Mapped netlists of whole boards do what their RTL does, cycle for cycle, through the UART."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields, replace

import pytest

from accelc.boards.board import Board, Family, OnChip, OnChipKind
from accelc.boards.gate_level import gate_level_port
from accelc.boards.link.host import BoardDevice, Connection
from accelc.boards.registry import find
from accelc.boards.simulate import simulated_port
from accelc.isa.config import AccelConfig
from accelc.sim.device import Counters
from accelc.sim.golden import GoldenDevice
from accelc.sim.random_programs import random_program

pytestmark = [
    pytest.mark.rtl,
    pytest.mark.skipif(
        "ACCELC_WHOLE_BOARDS" not in os.environ,
        reason="whole boards take long to build; set ACCELC_WHOLE_BOARDS=1 to run them",
    ),
]

SEEDS = range(3)
#: Enough for every program.
ON_CHIP_BYTES = 32 << 10
#: A core of every part, small: what it takes to simulate gates grows with their number.
SMALL = AccelConfig(
    name="small", block_in=4, block_out=8, bus_bytes=4, inp_rows=512, wgt_rows=128, acc_rows=256,
    vin_rows=256, out_rows=256, prm_rows=32, vector_lanes=2, queue_depth=4,
)  # fmt: skip


def _small(name: str) -> Board:
    """The small core on a board: its family, memory chip and link, and programs on the chip.

    How long a program takes in SDRAM depends on when the next refresh is due.
    """
    board = find(name)
    on_chip = OnChip(kind=OnChipKind.BLOCK, nbytes=ON_CHIP_BYTES)
    memory = replace(board.memory, on_chip=on_chip)
    return replace(board, name=f"small on {name}", config=SMALL, memory=memory, mlperf=False)


#: One of each family. The iCE40's is the board as it is.
BOARDS = {
    Family.ICE40: find("icebreaker"),
    Family.ECP5: _small("ulx3s-25f"),
    Family.GOWIN: _small("tang-nano-20k"),
}


@pytest.fixture(scope="module", params=Family, ids=[family.name for family in Family])
def devices(request: pytest.FixtureRequest) -> Iterator[tuple[Board, BoardDevice, BoardDevice]]:
    """A board, its RTL and its netlist."""
    board = BOARDS[request.param]
    with ExitStack() as stack:
        rtl, gates = (
            BoardDevice(
                board.config,
                stack.enter_context(Connection(port.port, patience=120, behind=port)),
            )
            for port in (simulated_port(board), gate_level_port(board))
        )
        yield board, rtl, gates


def figures(counters: Counters) -> dict[str, object]:
    return {
        field.name: getattr(counters, field.name)
        for field in fields(counters)
        if field.name not in ("started", "retired")  # boards do not trace
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_leave_the_same_memory_after_as_many_cycles(
    devices: tuple[Board, BoardDevice, BoardDevice], seed: int
) -> None:
    board, rtl, gates = devices
    program = random_program(board.config, seed)
    golden = GoldenDevice(board.config)
    images: list[bytes] = []
    counted: list[dict[str, object]] = []
    for device in (golden, rtl, gates):
        device.load(program)
        counted.append(figures(device.run(program)))
        images.append(device.read(0, program.memory_bytes))
    assert images[1] == images[0], f"the RTL computes something else (seed {seed})"
    assert images[2] == images[1], f"the netlist computes something else (seed {seed})"
    assert counted[2] == counted[1]
    assert counted[1]["cycles"]


def test_programs_in_the_memory_chip_do_too(
    devices: tuple[Board, BoardDevice, BoardDevice],
) -> None:
    board, _, gates = devices
    if board.memory.sdram is None:
        pytest.skip(f"{board.name} has no memory chip")
    program = random_program(board.config, 100)
    golden = GoldenDevice(board.config)
    # whatever is in the chip stays there: the next area is behind it
    gates.connection.allocate(ON_CHIP_BYTES)
    chip = BoardDevice(board.config, gates.connection)
    for device in (golden, chip):
        device.load(program)
        device.run(program)
    size = program.memory_bytes
    assert chip.read(0, size) == golden.read(0, size)
