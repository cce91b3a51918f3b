"""``accelc passes``, and ``accelc compile`` with passes left out or reported."""

import json
from collections.abc import Callable
from pathlib import Path

from accelc.artifact import Artifact
from accelc.compiler.cpu import compile_graph
from accelc.compiler.passes.table import BY_NAME, ORDER

MODEL = Path(__file__).parents[1] / "models" / "digits_resnet8_int8.onnx"
Command = Callable[..., tuple[int, str, str]]


def test_the_table_names_every_pass_and_rule(command: Command) -> None:
    code, out, _ = command("passes")
    assert code == 0
    for found in BY_NAME.values():
        assert found.summary in out
        assert all(step.name in out and step.before in out for step in found.steps)
    _, out, _ = command("passes", "--json")
    report = json.loads(out)
    assert report["order"] == list(ORDER)
    assert {p["name"] for p in report["passes"]} == {*BY_NAME}
    _, one, _ = command("passes", "fuse", "--json")
    assert [p["name"] for p in json.loads(one)["passes"]] == ["fuse"]
    assert "did you mean fuse" in command("passes", "fuze")[2]
    assert "is a rule, not a pass" in command("passes", "no-op-pad")[2]


def test_what_passes_did_is_reported(command: Command, tmp_path: Path) -> None:
    target = tmp_path / "net.accel"
    code, out, _ = command("compile", MODEL, "-o", target, "--config", "1x4x4", "--json")
    report = json.loads(out)
    assert code == 0 and report["output"] == str(target) and target.exists()
    assert [p["name"] for p in report["passes"]] == list(ORDER)
    lowered = next(p for p in report["passes"] if p["name"] == "lower")
    assert lowered["fired"]["lower-quantize"] > 0 and lowered["milliseconds"] > 0
    (region,) = (r for r in report["regions"] if r["place"] == "accelerator")
    assert 0 < region["activation_bytes_at_least"] <= region["activation_bytes"]
    code, out, _ = command("compile", MODEL, "-o", target, "--config", "1x4x4", "--report")
    assert code == 0 and "lower-quantize" in out
    assert "activations: " in out and "as planned, no plan could do with less than" in out


def test_the_arena_of_the_cpu_is_reported(command: Command, tmp_path: Path) -> None:
    target, options = tmp_path / "net.accel", ("--target", "cpu", "--dim", "batch=2")
    code, out, _ = command("compile", MODEL, "-o", target, *options, "--json")
    (region,) = json.loads(out)["regions"]
    assert code == 0 and region["place"] == "cpu"
    assert 0 < region["activation_bytes_at_least"] <= region["activation_bytes"]
    planned = compile_graph(Artifact.load(target).model.graph)
    assert region["activation_bytes"] == planned.arena_bytes
    code, out, _ = command("compile", MODEL, "-o", target, *options, "--report")
    assert code == 0 and "as planned, no plan could do with less than" in out
    assert f"arena of {region['nodes']} CPU nodes: " in out


def test_passes_can_be_left_out(command: Command, tmp_path: Path) -> None:
    target = tmp_path / "net.accel"

    def compiled(*names: str) -> dict[str, int]:
        options = [option for name in names for option in ("--disable-pass", name)]
        code, out, _ = command("compile", MODEL, "-o", target, "--json", *options)
        report = json.loads(out)
        assert code == 0 and not {*names} & {p["name"] for p in report["passes"]}
        regions = [r for r in report["regions"] if r["place"] == "accelerator"]
        return report["nodes"] | {"bytes": sum(r["activation_bytes"] for r in regions)}

    usual = compiled()
    assert compiled("fuse")["accelerator"] > usual["accelerator"]
    assert compiled("lower")["accelerator"] == 0
    assert compiled("share-memory", "join-in-place")["bytes"] > usual["bytes"]


def test_mistakes_are_explained(command: Command) -> None:
    code, _, err = command("compile", MODEL, "--disable-pass", "fold-padz")
    assert code == 2 and "no pass or rule 'fold-padz'; did you mean fold-pads" in err
    code, _, err = command("compile", MODEL, "--disable-pass", "decompose")
    assert code == 2 and "decompose cannot be disabled" in err
    code, _, err = command("compile", MODEL, "--emit", "graph", "--json")
    assert code == 2 and "name a file for one with -o" in err
