"""The SDRAM chip model on its own, and the times the controller computes from a data sheet."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator

from accelc.boards.memory.chip_model import chip_verilog, describe
from accelc.boards.memory.chips import SdramChip
from accelc.boards.memory.requests import words_per_beat
from accelc.boards.memory.timing import SdramTiming, cas_latency, cycles
from accelc.isa.config import PRESETS
from accelc.isa.errors import ConfigError
from accelc.sim.verilator import TOP, find_verilator, make_flags

HERE = Path(__file__).parent
#: Short pauses and few rows, so that everything can be waited for.
CHIP = SdramChip(
    name="test",
    source="none",
    data_bits=16,
    bank_bits=2,
    row_bits=11,
    column_bits=8,
    min_period_ns={2: 10.0, 3: 7.0},
    trc_ns=90.0,
    trcd_ns=20.0,
    trp_ns=15.0,
    tras_min_ns=45.0,
    tras_max_ns=1000.0,
    twr_ns=14.0,
    trrd_ns=15.0,
    trfc_ns=70.0,
    refresh_ms=1.024,
    init_us=2.0,
)


@pytest.mark.rtl
@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make")
def test_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = find_verilator()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "verilator").symlink_to(tool.binary)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MAKEFLAGS", f"{make_flags()} OPT_FAST=-O1")
    if tool.root is not None:
        monkeypatch.setenv("VERILATOR_ROOT", str(tool.root))
    source = tmp_path / f"{TOP}.v"
    source.write_text(chip_verilog(CHIP, 100_000_000, name=TOP))
    runner = Verilator()
    runner.build(
        sources=[source],
        hdl_toplevel=TOP,
        build_dir=tmp_path / "build",
        build_args=["--x-initial", "unique", "-Wno-fatal", "-Wno-lint"],
        timescale=("1ns", "1ps"),
    )
    settings = {"power_up": 200, "interval": 50, "rows": 2048}
    results = runner.test(
        test_module="cocotb_chip",
        hdl_toplevel=TOP,
        test_dir=HERE,
        build_dir=tmp_path / "build",
        results_xml=str(tmp_path / "results.xml"),
        extra_env={"PYTHONDONTWRITEBYTECODE": "1", "ACCELC_SETTINGS": json.dumps(settings)},
    )
    assert get_results(results) == (3, 0)


def test_reports_in_words() -> None:
    assert describe(0, 0, 0) == "no violation"
    assert describe(1, 8, 12_345_600) == (
        "1 violation, the first at 12.3 ns: tRCD: ACTIVATE to READ or WRITE"
    )
    assert describe(7, 20, 10**9).startswith("7 violations, the first at 1000.0 ns: ")


def test_cycles_are_rounded_up() -> None:
    assert [cycles(ns, 100_000_000) for ns in (0.0, 9.9, 10.0, 10.1, 66.0)] == [0, 1, 1, 2, 7]
    # 3 periods of 133 MHz, which are not quite 22.56 ns in binary
    assert cycles(3e9 / 133_000_000, 133_000_000) == 3


def test_timing_from_the_data_sheet() -> None:
    timing = SdramTiming.of(CHIP, 100_000_000, burst=4)
    assert timing == SdramTiming(
        cas=2,
        burst=4,
        precharge=2,
        activate=2,
        # tRC less tRP, which is longer than tRAS
        active=7,
        read_to_precharge=5,
        write_to_precharge=5,
        read_to_write=7,
        refresh=7,
        mode=2,
        # 50, and a little less so that some may be late
        refresh_interval=49,
        power_up=200,
    )
    fast = SdramTiming.of(CHIP, 140_000_000, burst=1)
    assert (fast.cas, fast.precharge, fast.activate, fast.active) == (3, 3, 3, 10)
    assert (fast.read_to_precharge, fast.write_to_precharge) == (7, 7)
    slow = SdramTiming.of(CHIP, 10_000_000, burst=8)
    assert (slow.precharge, slow.activate, slow.active, slow.refresh) == (1, 2, 2, 1)
    # write recovery is two cycles, however long
    assert (slow.read_to_precharge, slow.write_to_precharge) == (8, 9)


def test_the_shortest_cas_latency_is_chosen() -> None:
    assert [cas_latency(CHIP, mhz * 1_000_000) for mhz in (10, 100, 101, 142)] == [2, 2, 3, 3]
    with pytest.raises(
        ConfigError,
        match=r"^test runs at up to 142\.9 MHz, not at 150\.0; lower the board's clock$",
    ):
        cas_latency(CHIP, 150_000_000)


def test_words_of_a_beat() -> None:
    wide = dataclasses.replace(CHIP, data_bits=32)
    reference = PRESETS["1x16x16"]
    for width, words in ((4, 2), (8, 4), (16, 8)):
        config = dataclasses.replace(reference, bus_bytes=width)
        assert words_per_beat(config, CHIP) == words
        assert words_per_beat(config, wide) == words // 2
    config = dataclasses.replace(reference, block_in=32, block_out=32, bus_bytes=32)
    with pytest.raises(ConfigError, match=r"^a bus of 256 bits is not 1, 2, 4 or 8 words of 16"):
        words_per_beat(config, CHIP)
