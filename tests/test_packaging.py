"""pyproject.toml says what is in the tree, and says why it needs what it needs."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import accelc

ROOT = Path(__file__).parents[1]
TREES = ("boards", "compiler", "hw", "isa", "sim")
TEXT = (ROOT / "pyproject.toml").read_text()
CONFIG = tomllib.loads(TEXT)


def test_every_package_is_listed() -> None:
    inits = [p for tree in TREES for p in (ROOT / tree).rglob("__init__.py")]
    found = {"accelc." + ".".join(p.parent.relative_to(ROOT).parts) for p in inits}
    root = (ROOT / "src").rglob("__init__.py")
    found |= {".".join(p.parent.relative_to(ROOT / "src").parts) for p in root}
    assert set(CONFIG["tool"]["setuptools"]["packages"]) == found


def test_every_source_file_is_in_a_package() -> None:
    lost = [p for tree in TREES for p in (ROOT / tree).rglob("*.py")]
    assert [p for p in lost if not (p.parent / "__init__.py").exists()] == []


def test_data_files_are_listed() -> None:
    listed = CONFIG["tool"]["setuptools"]["package-data"]
    for tree in TREES:
        for path in (ROOT / tree).rglob("*"):
            if path.is_dir() or path.suffix in {".py", ".pyc", ".md"}:
                continue
            package = "accelc." + ".".join(path.parent.relative_to(ROOT).parts)
            assert any(path.match(pattern) for pattern in listed.get(package, ())), path


def test_every_dependency_is_justified() -> None:
    groups = [CONFIG["project"]["dependencies"]]
    groups += CONFIG["project"]["optional-dependencies"].values()
    for requirement in {r for group in groups for r in group if not r.startswith("accelc[")}:
        lines = [line for line in TEXT.splitlines() if f'"{requirement}",' in line]
        assert lines, requirement
        # in at least one of its groups the dependency carries a sentence
        assert any(re.search(r",  # \S.{10,}$", line) for line in lines), requirement


def test_version_is_the_installed_one() -> None:
    assert accelc.__version__ == CONFIG["project"]["version"] == version("accelc")


def test_licence_is_there() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert CONFIG["project"]["license"] == "Apache-2.0"
