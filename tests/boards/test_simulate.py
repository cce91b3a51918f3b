"""Simulated boards: a serial port that echoes, a small board behind the driver, real boards."""

import os
import resource
import select
import time
from collections.abc import Iterator

import numpy as np
import pytest

from accelc.boards.board import Board
from accelc.boards.link.host import Connection
from accelc.boards.link.protocol import (
    NO_SESSION,
    Deframer,
    Region,
    Request,
    Response,
    Status,
    command,
)
from accelc.boards.link.simulation import SimulatedEndpoint
from accelc.boards.registry import find
from accelc.boards.simulate import SimulatedPort, simulated_port
from accelc.isa.errors import DeviceError
from accelc.isa.registers import BY_NAME, IDENTITY

pytestmark = pytest.mark.rtl

BOARD = find("ulx3s-25f")
#: Echoes bit by bit. The SDRAM's pins stand still, but for one READ in the pause after power up.
FORBIDDEN = """
module accel (
    input clk, rst, rx, output reg tx, output [2:0] leds,
    output sdram_cke, sdram_cs_n, sdram_ras_n, sdram_cas_n, sdram_we_n,
    output [1:0] sdram_ba, output [12:0] sdram_a, output [1:0] sdram_dqm,
    output [15:0] sdram_dq_o, output sdram_dq_oe, input [15:0] sdram_dq_i
);
    reg [15:0] count = 0;
    always @(posedge clk) begin
        tx <= rx;
        count <= rst ? 0 : count + ~&count;
    end
    assign leds = 1;
    assign sdram_cs_n = count != 2000;
    assign {sdram_cke, sdram_ras_n, sdram_cas_n, sdram_we_n} = 4'b1101;
    assign sdram_ba = 0, sdram_a = 0, sdram_dqm = 0, sdram_dq_o = 0, sdram_dq_oe = 0;
endmodule
"""
ECHO = FORBIDDEN.replace("count != 2000", "1")


@pytest.fixture
def echo() -> Iterator[SimulatedPort]:
    with simulated_port(BOARD, verilog=ECHO) as port:
        yield port


def exchange(port: SimulatedPort, data: bytes, count: int) -> bytes:
    """Write ``data`` to the terminal, read ``count`` bytes or what comes within 30 s."""
    terminal = os.open(port.port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        received = b""
        limit = time.monotonic() + 30
        while len(received) < count and time.monotonic() < limit:
            readable, writable, _ = select.select([terminal], [terminal] if data else [], [], 0.1)
            if writable:
                data = data[os.write(terminal, data) :]
            if readable:
                received += os.read(terminal, 4096)
        return received
    finally:
        os.close(terminal)


def test_every_byte_goes_there_and_comes_back(echo: SimulatedPort) -> None:
    data = np.random.default_rng(1).bytes(20_000) + bytes(range(256))
    assert exchange(echo, data, len(data)) == data
    # ten bits a byte, one after the other
    assert echo.cycles >= 10 * 4 * len(data)
    assert echo.leds == (True, False, False)


def test_the_terminal_outlives_who_opens_it(echo: SimulatedPort) -> None:
    assert exchange(echo, b"first", 5) == b"first"
    assert exchange(echo, b"second", 6) == b"second"


def test_a_break_is_no_byte(echo: SimulatedPort) -> None:
    echo.send_break()
    assert exchange(echo, b"x", 1) == b"x"


def test_waiting_costs_little(echo: SimulatedPort) -> None:
    assert exchange(echo, b"x", 1) == b"x"
    time.sleep(0.5)

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    before, cycles = used(), echo.cycles
    time.sleep(1.0)
    assert used() - before < 0.3
    # but time goes on
    assert echo.cycles > cycles


def test_an_ended_simulation_keeps_its_figures(echo: SimulatedPort) -> None:
    exchange(echo, b"x", 1)
    echo.close()
    echo.close()
    assert echo.cycles > 40
    assert echo.violations == 0
    with pytest.raises(DeviceError, match="the simulation of ulx3s-25f has ended"):
        echo.press_reset()


def test_broken_rules_of_the_memory_chip_are_an_error() -> None:
    with pytest.raises(DeviceError, match="ulx3s-25f broke rules .* pause after power-up"):
        with simulated_port(BOARD, verilog=FORBIDDEN) as port:
            assert exchange(port, b"long enough" * 100, 1100) == b"long enough" * 100
            assert port.violations


def test_what_went_wrong_before_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        with simulated_port(BOARD, verilog=FORBIDDEN) as port:
            exchange(port, b"long enough" * 100, 1100)
            raise ZeroDivisionError


def test_the_driver_finds_the_board(small_board: Board) -> None:
    data = np.random.default_rng(2).bytes(3000)
    with simulated_port(small_board) as port:
        with Connection(port.port, patience=60) as board:
            assert board.record.name == small_board.name
            assert board.record.clock_hz == small_board.clock_hz
            assert board.record.memory_bytes == small_board.memory.nbytes
            assert board.digest == small_board.config.digest
            assert port.leds == (True, False, False)
            board.write(0x1234, data, "writing")
            assert board.read(0x1234, len(data), "reading") == data
            identity = board.requester.read(Region.REGISTERS, BY_NAME["id"].offset, 4)
            assert int.from_bytes(identity, "little") == IDENTITY
    assert port.violations == 0


def test_reset_forgets_the_session(small_board: Board) -> None:
    with simulated_port(small_board) as port, Connection(port.port, patience=60) as board:
        board.write(0, bytes(64), "writing")
        port.press_reset()
        with pytest.raises(DeviceError, match="was reset"):
            board.read(0, 64, "reading")
        assert board.lost
        board.open()
        board.write(0, bytes(64), "writing")
        assert board.read(0, 64, "reading") == bytes(64)


def test_unplugging_ends_the_connection(small_board: Board) -> None:
    with simulated_port(small_board) as port, Connection(port.port, patience=60) as board:
        port.unplug()
        with pytest.raises(DeviceError, match="gone"):
            board.read(0, 64, "reading")


@pytest.mark.parametrize("latency", [0, 20, 41, 200])
def test_answers_wait_for_slow_buses(small_board: Board, latency: int) -> None:
    """Counters answer later than the line takes for a byte, memory chips when they refresh."""
    endpoint = SimulatedEndpoint(small_board)
    endpoint.set_bus(latency)
    read = Request(command=command(Region.REGISTERS, write=False), session=NO_SESSION, length=24)
    (content,) = Deframer(64).feed(endpoint.receive(read.encode()))
    response = Response.decode(content)
    assert response is not None and response.status is Status.OK
    assert response.data == endpoint.registers[:24].tobytes()
