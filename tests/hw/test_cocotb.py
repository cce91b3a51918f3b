"""Builds the core for cocotb and runs its testbenches on Verilator."""

import os
import shutil
from pathlib import Path

import pytest
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator

from accelc.isa.config import PRESETS
from accelc.sim.verilator import TOP, find_verilator, make_flags, verilog

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.rtl,
    pytest.mark.skipif(
        not (shutil.which("g++") and shutil.which("make")), reason="needs g++ and make"
    ),
]


class PortsOnly(Verilator):
    """Shows the simulator the top's ports instead of every signal: three times as fast."""

    def _build_command(self) -> list[list[str]]:
        commands = super()._build_command()
        return [[word for word in c if word != "--public-flat-rw"] for c in commands]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put Verilator where the runner looks, with variables that make its makefile work."""
    tool = find_verilator()
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "verilator").symlink_to(tool.binary)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MAKEFLAGS", f"{make_flags()} OPT_FAST=-O1")
    if tool.root is not None:
        monkeypatch.setenv("VERILATOR_ROOT", str(tool.root))


@pytest.mark.parametrize(("name", "programs"), [("1x4x4", 9)])
def test_core(name: str, programs: int, tmp_path: Path, tools: None) -> None:
    seed = 1
    print(f"configuration {name}, seed {seed}")
    source = tmp_path / f"{TOP}.v"
    source.write_text(verilog(PRESETS[name]))
    ports = tmp_path / "ports.vlt"
    ports.write_text(f'`verilator_config\npublic_flat_rw -module "{TOP}" -port "*"\n')
    runner = PortsOnly()
    runner.build(
        sources=[ports, source],
        hdl_toplevel=TOP,
        build_dir=tmp_path / "build",
        build_args=["--x-initial", "unique", "-Wno-fatal", "-Wno-lint"],
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        test_module="cocotb_core",
        hdl_toplevel=TOP,
        test_dir=HERE,
        build_dir=tmp_path / "build",
        results_xml=str(tmp_path / "results.xml"),
        extra_env={
            "ACCELC_CONFIG": name,
            "ACCELC_SEED": str(seed),
            "ACCELC_PROGRAMS": str(programs),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    tests, failures = get_results(results)
    assert (tests, failures) == (6, 0)
