"""benchmarks/boards.py prints what reports and simulations say."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KWS = ROOT.parent / "shared" / "models" / "t_kws_dscnn_q.onnx"
RESOURCES = {"LUT": (4000, 8640), "FF": (2000, 6480), "DSP": (16, 20), "block RAM": (20, 26)}
REPORT: dict[str, Any] = {
    "board": "tang-nano-9k",
    "device": "GW1NR-9C",
    "clock_mhz": 45.0,
    "fmax_mhz": 51.25,
    "macs_per_cycle": 16,
    "gops": 1.44,
    "resources": [
        {"resource": name, "cell": name, "used": used, "available": available}
        for name, (used, available) in RESOURCES.items()
    ],
}


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    folder = tmp_path / "builds"
    (folder / "nano").mkdir(parents=True)
    (folder / "nano" / "report.json").write_text(json.dumps(REPORT))
    return folder


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "benchmarks" / "boards.py", *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def test_a_build_is_a_row(builds: Path) -> None:
    # the network does not fit into the board, so that nothing is simulated
    done = run("--builds", builds, "--network", "kws", "--markdown")
    assert done.returncode == 0, done.stderr
    head, rule, row = done.stdout.splitlines()[:3]
    assert head.startswith("| board | FPGA | LUT | FF | DSP | block RAM | clock MHz | Fmax MHz |")
    assert rule.startswith("| --- | --- | ---: |")
    assert row == (
        "| tang-nano-9k | GW1NR-9C | 4000 / 8640 | 2000 / 6480 | 16 / 20 | 20 / 26 | 45 | 51.2 "
        "| 16 | 1.44 |"
    )


@pytest.mark.skipif(not KWS.is_file(), reason=f"{KWS} is not here")
def test_a_network_that_does_not_fit_says_so(builds: Path) -> None:
    done = run("--builds", builds, "--network", "kws", "--json")
    result = json.loads(done.stdout)
    assert result["builds"] == [REPORT]
    (measured,) = result["runs"]
    assert measured["board"] == "tang-nano-9k"
    assert measured["reason"].startswith("needs ")
    assert {"network": "kws", "milliseconds": 2100.0} in [
        {name: peer[name] for name in ("network", "milliseconds")} for peer in result["peers"]
    ]


def test_a_folder_without_builds_is_an_error(tmp_path: Path) -> None:
    done = run("--builds", tmp_path)
    assert done.returncode == 2
    assert f"there is no */report.json in {tmp_path}" in done.stderr
