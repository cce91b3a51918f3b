"""``accelc suite``: table, JSON, exit codes."""

import json

import pytest

from accelc import suite
from accelc.command.main import run


def test_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["suite", "--kind", "pytorch-operator", "-k", "operator_add"]
    assert run(arguments) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "pytorch-operator" in line)
    number = str(sum("operator_add" in name for name in suite.cases("pytorch-operator")))
    assert row.split()[1:] == [number, number, number, "0", "0", "0"]
    assert run([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["counts"]["pytorch-operator"]["native"] == int(number)
    assert {test["status"] for test in report["tests"]} == {"native"}


def test_excluded_tests_are_shown_with_their_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["suite", "--kind", "simple", "-k", "gradient_of_add"]) == 0
    assert "automatic differentiation" in capsys.readouterr().out


def test_a_failure_is_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "EXCLUDED", {})
    assert run(["suite", "--kind", "simple", "-k", "gradient_of_add"]) == 1
    assert "Gradient" in capsys.readouterr().out


def test_unknown_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["suite", "--kind", "nodes"]) == 2
    assert "there is no kind 'nodes'; there are node, simple, " in capsys.readouterr().err
