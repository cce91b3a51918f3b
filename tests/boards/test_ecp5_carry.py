"""ECP5: what becomes of a carry cell's zeros."""

import re
import subprocess
from pathlib import Path

import pytest

from accelc.boards.board import Family
from accelc.boards.build.flows import flow_for
from accelc.boards.build.tools import YOSYS, find_tool
from accelc.boards.gate_level import cell_models

FLOW = flow_for(Family.ECP5)
CELL_MODELS = ("LUT2", "LUT4", "CCU2C", "PFUMX", "L6MUX21")

SOURCE = """
module top(input [9:0] a, b, input down, output [10:0] sum, less, either, more, output above);
    assign sum = a + b;
    assign less = a - b;
    assign either = down ? a - b : a + b;
    assign more = a + 11'd613;
    assign above = a > b;
endmodule
"""
#: A cell of its own: every input that may be 0 is, in one half or the other.
CELLS = """
module top(input a, b, c, d, i, output [4:0] s, output [4:0] t);
    CCU2C #(.INIT0(16'h7888), .INIT1(16'h8777), .INJECT1_0("NO"), .INJECT1_1("NO")) x (
        .CIN(i), .A0(a), .B0(b), .C0(1'b0), .D0(d), .A1(1'b0), .B1(b), .C1(c), .D1(1'b0),
        .S0(s[0]), .S1(s[1]), .COUT(s[2]));
    CCU2C #(.INIT0(16'h1e5a), .INIT1(16'hc3a5), .INJECT1_0("NO"), .INJECT1_1("YES")) y (
        .CIN(i), .A0(a), .B0(1'b0), .C0(1'b1), .D0(1'b0), .A1(a), .B1(1'b0), .C1(c), .D1(d),
        .S0(t[0]), .S1(t[1]), .COUT(t[2]));
    assign s[4:3] = 0, t[4:3] = 0;
endmodule
"""


def _yosys(folder: Path, *script: str) -> None:
    (folder / "x.ys").write_text("\n".join(script))
    yosys = find_tool(YOSYS)
    subprocess.run([yosys.command, "-q", "-s", "x.ys"], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize("source", [SOURCE, CELLS], ids=["arithmetic", "cells"])
def test_zeros_become_ones_and_nothing_else_changes(source: str, tmp_path: Path) -> None:
    (tmp_path / "x.v").write_text(source)
    for path in FLOW.maps:
        (tmp_path / path.name).write_text(path.read_text())
    synthesis, *zeros = FLOW.synthesis()
    _yosys(
        tmp_path,
        "read_verilog x.v",
        f"{synthesis} -noiopad",
        "write_verilog -noattr before.v",
        *zeros,
        "check -assert",
        "write_verilog -noattr after.v",
    )
    before, after = (tmp_path / "before.v").read_text(), (tmp_path / "after.v").read_text()
    zero = r"\.[ABCD][01]\(1'h0\)"
    assert re.search(zero, before) and not re.search(zero, after)
    models = cell_models(Family.ECP5)
    cells = [re.search(rf"module {n}\b.*?endmodule", models, re.S) for n in CELL_MODELS]
    (tmp_path / "cells.v").write_text("\n".join(m.group(0) for m in cells if m))
    _yosys(
        tmp_path,
        "read_verilog before.v",
        "rename top before",
        "read_verilog after.v",
        "rename top after",
        "read_verilog cells.v",
        "proc",
        "flatten",
        "miter -equiv -flatten -make_outputs before after miter",
        "sat -verify -prove trigger 0 miter",
    )
