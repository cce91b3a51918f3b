"""Builds the core and its units for cocotb and runs their testbenches on Verilator."""

import os
import shutil
from pathlib import Path

import pytest
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator

from accelc.hw.alu import AluUnit
from accelc.hw.gemm import GemmUnit
from accelc.hw.load import Load
from accelc.hw.store import Store
from accelc.hw.verilog import component_rtlil, to_verilog
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


def simulate(folder: Path, text: str, module: str, tests: int, **settings: object) -> None:
    """Build ``text`` and run the testbenches of ``module`` on it; all ``tests`` must pass."""
    print(f"{module}: {settings}")
    source, ports = folder / f"{TOP}.v", folder / "ports.vlt"
    source.write_text(text)
    ports.write_text(f'`verilator_config\npublic_flat_rw -module "{TOP}" -port "*"\n')
    runner = PortsOnly()
    runner.build(
        sources=[ports, source],
        hdl_toplevel=TOP,
        build_dir=folder / "build",
        build_args=["--x-initial", "unique", "-Wno-fatal", "-Wno-lint"],
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        test_module=module,
        hdl_toplevel=TOP,
        test_dir=HERE,
        build_dir=folder / "build",
        results_xml=str(folder / "results.xml"),
        extra_env={
            "PYTHONDONTWRITEBYTECODE": "1",
            **{f"ACCELC_{name.upper()}": str(value) for name, value in settings.items()},
        },
    )
    assert get_results(results) == (tests, 0)


def test_core(tmp_path: Path, tools: None) -> None:
    text = verilog(PRESETS["1x4x4"])
    simulate(tmp_path, text, "cocotb_core", 6, config="1x4x4", seed=1, programs=9)


@pytest.mark.parametrize("unit", [Load, GemmUnit, AluUnit, Store], ids=lambda c: c.__name__)
def test_unit(unit: type, tmp_path: Path, tools: None) -> None:
    text = to_verilog(component_rtlil(unit(PRESETS["1x4x4"])))
    name = unit.__name__.removesuffix("Unit").lower()
    simulate(tmp_path, text, "cocotb_units", 1, unit=name, seed=1, programs=12)
