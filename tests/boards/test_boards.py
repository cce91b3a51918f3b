"""The boards there are, what they say about themselves, and the commands that list and build."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accelc.boards.board import Board, BoardMemory, Family, OnChip, OnChipKind
from accelc.boards.build.wrapper import clock_settings
from accelc.boards.registry import BOARDS, find
from accelc.command.main import ExitCode
from accelc.configuration import read, resolve
from accelc.isa.errors import ConfigError


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
class TestBoard:
    def test_names_are_as_people_type_them(self, board: Board) -> None:
        assert BOARDS[board.name] is board and find(board.name) is board
        assert board.name == board.name.lower() and " " not in board.name
        assert board.config.name == board.name
        assert board.title and board.loader and board.url.startswith("https://")

    def test_the_platform_has_every_resource(self, board: Board) -> None:
        platform = board.platform()
        uart = platform.request(*board.uart, dir="-")
        assert uart.rx is not uart.tx
        for resource in (*board.leds, board.reset):
            if resource is not None:
                platform.request(*resource, dir="-")
        for name, number, part in board.high:
            assert getattr(platform.request(name, number, dir="-"), part) is not None
        assert board.platform() is not platform  # each build uses one up

    def test_the_clock_can_be_made(self, board: Board) -> None:
        settings = clock_settings(board, board.platform())
        assert settings.output_hz == board.clock_hz
        # half a bit of ten bits is five percent; leave most of it to the other end
        cycles = board.clock_hz / board.baud
        assert abs(round(cycles) / cycles - 1) < 0.05 or cycles > 8

    def test_the_memory_holds_a_network(self, board: Board) -> None:
        memory, platform = board.memory, board.platform()
        assert memory.nbytes >= 16 << 10
        if memory.sdram is not None:
            # registers in the I/O cells, one on the way there and one on the way back
            assert memory.io_cycles == 2
            ports = getattr(platform, "sdram_ports", None)
            pins = ports() if ports else platform.request("sdram", 0, dir="-")
            assert len(pins.dq) == memory.sdram.data_bits
            assert len(pins.ba) == memory.sdram.bank_bits
            assert len(pins.a) == memory.sdram.row_bits
            assert memory.masks == (getattr(pins, "dqm", None) is not None)
            # at some latency the chip bears the clock
            assert min(memory.sdram.min_period_ns.values()) <= 1e9 / board.clock_hz

    def test_its_name_is_a_configuration(self, board: Board, tmp_path: Path) -> None:
        assert resolve(board.name) is board.config
        path = tmp_path / "mine.toml"
        path.write_text(f'base = "{board.name}"\nprm_rows = 16\n')
        assert read(path) == replace(board.config, name="mine", prm_rows=16)


def test_boards_have_different_names_and_configurations_differ() -> None:
    assert {board.family for board in BOARDS.values()} >= {Family.ICE40, Family.ECP5}
    assert len({board.config.name for board in BOARDS.values()}) == len(BOARDS)


def test_an_unknown_board_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="icestick.*icebreaker.*ulx3s-85f"):
        find("icestick")
    with pytest.raises(ConfigError, match="1x16x16.*icebreaker"):
        resolve("icestick")


def test_memory_has_rules() -> None:
    with pytest.raises(ConfigError, match="needs on-chip memory or an SDRAM"):
        BoardMemory()
    with pytest.raises(ConfigError, match="4096-byte pages, not 5000"):
        BoardMemory(on_chip=OnChip(kind=OnChipKind.BLOCK, nbytes=5000))


def test_boards_as_table_and_json(command: Any) -> None:
    code, out, err = command("boards")
    assert code == 0 and err == ""
    for board in BOARDS.values():
        line = next(line for line in out.splitlines() if line.split()[:1] == [board.name])
        assert f" {board.config.macs_per_cycle} " in line
        assert f" {board.clock_hz / 1e6:g} " in line
    code, out, err = command("boards", "--json")
    entries = {entry["name"]: entry for entry in json.loads(out)}
    assert code == 0 and list(entries) == list(BOARDS)
    entry = entries["ulx3s-85f"]
    board = find("ulx3s-85f")
    assert entry["device"] == "LFE5U-85F" and entry["memory_bytes"] == 32 << 20
    assert entry["config"] == board.config.to_dict()
    assert entry["gops"] == pytest.approx(2 * board.config.macs_per_cycle * board.clock_hz / 1e9)


def test_build_refuses_before_it_works(command: Any, tmp_path: Path) -> None:
    code, _, err = command("build", "--board", "icestick", "-o", tmp_path)
    assert code == ExitCode.USER_ERROR and "no board 'icestick'" in err
    code, _, err = command("build", "--board", "icebreaker", "-o", tmp_path, "--clock", 40)
    assert code == ExitCode.USER_ERROR and "40.5" in err
    file = tmp_path / "file"
    file.touch()
    code, _, err = command("build", "--board", "icebreaker", "-o", file)
    assert code == ExitCode.USER_ERROR and str(file) in err
    code, _, err = command("build", "--board", "icebreaker", "-o", tmp_path, "--config", "nothing")
    assert code == ExitCode.USER_ERROR and "nothing" in err
    assert list(tmp_path.iterdir()) == [file]
