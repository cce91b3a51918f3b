"""Mapped netlists of whole boards do what their RTL does, cycle for cycle, through the UART."""

import itertools
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields

import onnx
import pytest

import accelc
from accelc.boards.board import Board, Family
from accelc.boards.gate_level import cell_models, gate_level_port, netlist
from accelc.boards.link.core import RemoteCore
from accelc.boards.link.host import BoardDevice, Connection
from accelc.boards.registry import find
from accelc.boards.simulate import SimulatedPort, simulated_port
from accelc.isa.config import AccelConfig
from accelc.isa.errors import AccelcError, DeviceError
from accelc.isa.program import Program
from accelc.sim.device import Counters
from accelc.sim.golden import GoldenDevice
from accelc.sim.random_programs import random_program

pytestmark = pytest.mark.rtl

#: Of what a program loads. Each byte more takes the UART 40 cycles there and 40 back.
SOURCE_BYTES = 5 << 10
#: A random program is looked for that changes as many bytes of memory.
MARK_BYTES = 100


#: Boards as they are. Of the ECP5 it is one with a core whose LUTs take a minute to compile, not
#: ten, but with an SDRAM.
BOARDS = {Family.ICE40: find("icebreaker"), Family.GOWIN: find("tang-nano-9k")}
#: LUTs of the core that can be broken, on the board whose netlist compiles fastest. (Of the link's
#: some make the line bad, which then takes long.)
BREAKABLE_BOARD = BOARDS[Family.GOWIN]
BREAKABLE = 24
BREAKABLE_SEED = 1
#: Times as many looks at its status as it should take.
LONGER = 10
_CORE_LUT = r"^  LUT4 #\((\n    \.INIT\(\S+\)\n  \) \\core\.)"
#: One of its entries is wrong if the simulator is told the LUT's number: one build for all.
BROKEN_LUT = """
module broken_LUT4 #(parameter [15:0] INIT = 0, parameter NUMBER = 0, ENTRY = 0)
    (output F, input I0, I1, I2, I3);
    integer broken = 0;
    initial if (!$value$plusargs("broken=%d", broken)) broken = 0;
    wire [15:0] entries = INIT ^ (broken == NUMBER ? 16'b1 << ENTRY : 16'b0);
    assign F = entries[{I3, I2, I1, I0}];
endmodule
"""


def breakable(gates: str, seed: int) -> str:
    """A netlist in which LUTs 1 to BREAKABLE, chosen at random, can be broken."""
    generator = random.Random(seed)
    luts = list(re.finditer(_CORE_LUT, gates, re.MULTILINE))
    chosen = {lut.start(): k for k, lut in enumerate(generator.sample(luts, BREAKABLE), 1)}
    assert len(chosen) == BREAKABLE

    def replaced(lut: re.Match[str]) -> str:
        number = chosen.get(lut.start())
        if number is None:
            return lut[0]
        entry = generator.randrange(16)
        return f"  broken_LUT4 #(.NUMBER({number}), .ENTRY({entry}),{lut[1]}"

    return re.sub(_CORE_LUT, replaced, gates, flags=re.MULTILINE)


def gate_level(board: Board, plusarg: str = "") -> SimulatedPort:
    """A board's netlist, in which ``+broken=number`` breaks one LUT if it is BREAKABLE_BOARD."""
    if board is not BREAKABLE_BOARD:
        return gate_level_port(board)
    print(f"seed {BREAKABLE_SEED}")
    parts = (breakable(netlist(board), BREAKABLE_SEED), BROKEN_LUT, cell_models(board.family))
    return simulated_port(board, verilog="\n".join(parts), plusarg=plusarg)


def device(port: SimulatedPort, patience: float = 120.0) -> BoardDevice:
    """The board at ``port``, which closes with its connection."""
    return BoardDevice(port.board.config, Connection(port.port, patience=patience, behind=port))


@pytest.fixture(scope="module", params=Family, ids=[family.name for family in Family])
def devices(
    request: pytest.FixtureRequest, small_board: Board
) -> Iterator[tuple[BoardDevice, BoardDevice]]:
    """The RTL of a board of each family, and its netlist."""
    board = BOARDS.get(request.param, small_board)
    assert board.family is request.param
    with ExitStack() as stack:
        rtl, gates = (device(port) for port in (simulated_port(board), gate_level(board)))
        stack.enter_context(rtl.connection)
        stack.enter_context(gates.connection)
        yield rtl, gates


def figures(counters: Counters) -> dict[str, object]:
    return {
        field.name: getattr(counters, field.name)
        for field in fields(counters)
        if field.name not in ("started", "retired")  # boards do not trace
    }


def result(
    executor: BoardDevice | GoldenDevice, program: Program, seed: int
) -> tuple[bytes, dict[str, object]]:
    """Memory after ``program``, whose inputs are noise, and what was counted."""
    # what a program leaves alone is noise in memory that nobody wrote, but 0 in this one
    image, generator = bytearray(program.memory_bytes), random.Random(seed)
    inputs = [(r.address, generator.randbytes(r.nbytes)) for r in program.inputs]
    for address, data in (*program.segments(), *inputs):
        image[address : address + len(data)] = data
    executor.load(program)
    executor.write(0, bytes(image))
    counted = figures(executor.run(program))
    return executor.read(0, program.memory_bytes), counted


def compare(devices: tuple[BoardDevice, BoardDevice], program: Program, seed: int) -> None:
    rtl, gates = devices
    expected, _ = result(GoldenDevice(rtl.config), program, seed)
    image, counted = result(rtl, program, seed)
    assert image == expected, "the RTL computes something else"
    image, counted_by_gates = result(gates, program, seed)
    assert image == expected, "the netlist computes something else"
    names = set(counted)
    if rtl.connection.record.memory_bytes > 1 << 20:
        # when an SDRAM is refreshed is a matter of when the program was started
        names -= {"cycles", "busy"}
    assert {n: counted_by_gates[n] for n in names} == {n: counted[n] for n in names}
    assert counted["cycles"] and counted["write_bytes"]


def compiled(network: onnx.ModelProto, config: AccelConfig) -> Program:
    (program,) = accelc.compile(network, "vta", config).programs
    return program


@pytest.mark.parametrize("seed", range(2))
def test_a_network_leaves_the_same_memory_after_as_many_cycles(
    devices: tuple[BoardDevice, BoardDevice], small_network: onnx.ModelProto, seed: int
) -> None:
    print(f"seed {seed}")
    compare(devices, compiled(small_network, devices[0].config), seed)


def test_a_random_program_does_too(devices: tuple[BoardDevice, BoardDevice]) -> None:
    config = devices[0].config
    for seed in itertools.count():
        program = random_program(config, seed, SOURCE_BYTES)
        after, _ = result(GoldenDevice(config), program, seed)
        (target,) = program.outputs
        before = dict(program.constants)[target.address]
        changed = zip(before, after[target.address :], strict=False)
        # many store little, and that saturated
        if sum(a != b for a, b in changed) >= MARK_BYTES:
            break
    print(f"seed {seed}")
    compare(devices, program, seed)


def test_one_wrong_bit_of_one_lut_is_found(
    small_network: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A broken core may run for ever and count whatever it likes: one that has been asked so much
    # more often than the netlist as it is whether it is done has been found.
    asked, limit = 0, 1 << 32

    def read(core: RemoteCore, name: str) -> int:
        nonlocal asked
        asked += name == "status"
        if asked > limit:
            raise DeviceError(f"still busy when asked for the {asked}th time")
        return status(core, name)

    status = RemoteCore.read
    monkeypatch.setattr(RemoteCore, "read", read)
    board = BREAKABLE_BOARD
    program = compiled(small_network, board.config)
    found: list[int] = []
    wanted: tuple[bytes, dict[str, object]] | None = None
    for number in range(BREAKABLE + 1):
        port, asked = gate_level(board, f"+broken={number}"), 0
        try:
            executor = device(port, patience=10.0)
            with executor.connection:
                outcome = result(executor, program, seed=0)
        except AccelcError as error:
            print(number, error)
            assert number, "the netlist as it is fails"
            found.append(number)
            break
        finally:
            port.close()
        if wanted is None:
            wanted = outcome
            limit = LONGER * asked
            assert wanted[0] == result(GoldenDevice(board.config), program, seed=0)[0]
        elif outcome != wanted:
            print(number, "differs")
            found.append(number)
            break
        else:
            print(number, "makes no difference")
    # not every entry is for what this program does, or for what ever happens; the first that is
    # must be found
    assert found
