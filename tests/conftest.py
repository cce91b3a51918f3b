"""The command line, as tests call it."""

from collections.abc import Callable

import pytest

from accelc.command.main import run

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
