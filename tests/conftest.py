"""What tests of every kind use: the command line, and the project's scripts as modules."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from accelc.command.main import run

ROOT = Path(__file__).parents[1]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Run the command line; its exit code, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return int(code), out, err

    return call


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """Import a script of a folder that is no package, by its path in the checkout."""

    def load(path: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where its dataclasses look for their own names
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def networks(load_script: Callable[[str], ModuleType]) -> ModuleType:
    """benchmarks/networks.py, which builds networks layer by layer."""
    return load_script("benchmarks/networks.py")


@pytest.fixture(scope="session")
def hostile(load_script: Callable[[str], ModuleType]) -> ModuleType:
    """benchmarks/hostile.py, which makes hostile models."""
    return load_script("benchmarks/hostile.py")
