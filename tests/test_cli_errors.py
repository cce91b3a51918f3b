"""Bad input of every kind through the command line: one line, an exit code, nothing overwritten."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from accelc.command.main import ExitCode, run

MODEL = Path(__file__).parents[1] / "models" / "digits_resnet8_int8.onnx"
PRECIOUS = "precious"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("errors") / "digits.accel"
    assert run(["compile", str(MODEL), "-o", str(path), "--config", "1x4x4", "-q"]) == 0
    return path.read_bytes()


@pytest.fixture
def fails(
    tmp_path: Path,
    artifact: bytes,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., None]:
    """Run a command in a folder of its own, where ``ok.accel`` is fine and ``out`` is precious."""
    monkeypatch.chdir(tmp_path)
    Path("ok.accel").write_bytes(artifact)
    Path("out").write_text(PRECIOUS)
    Path("folder").mkdir()

    def check(command: str, *parts: str, code: ExitCode = ExitCode.USER_ERROR) -> None:
        before = {path.name for path in tmp_path.iterdir()}
        capfd.readouterr()
        found = run([word.replace("MODEL", str(MODEL)) for word in command.split(" ")])
        captured = capfd.readouterr()
        errors = [line for line in captured.err.splitlines() if not line.startswith("note: ")]
        assert found == code, captured.err
        assert len(errors) == 1 and errors[0].startswith("error: "), captured.err
        for part in parts:
            assert part in errors[0], errors[0]
        assert Path("out").read_text() == PRECIOUS
        assert {path.name for path in tmp_path.iterdir()} == before, "files are left behind"

    return check


def save(graph: str, name: str, opset: int = 17, **constants: Any) -> None:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> case {graph}'
    model = onnx.parser.parse_model(text)
    for key, value in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), key))
    onnx.save(model, name)


X = "(float[1,4] x) => (float[] y)"
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown operators": (
        f"{X} {{ a = Sparkle (x) y = Glitter (a) }}", {}, "Glitter (y); Sparkle (a)"
    ),
    "unknown attribute": (f"{X} {{ y = Relu <colour = 3> (x) }}", {}, "colour"),
    "missing attribute": (f"{X} {{ y = Concat (x, x) }}", {}, "axis"),
    "axis out of range": (f"{X} {{ y = Softmax <axis = 7> (x) }}", {}, "Softmax"),
    "not a permutation": (f"{X} {{ y = Transpose <perm = [0, 0]> (x) }}", {}, "Transpose"),
    "impossible reshape": (f"{X} {{ y = Reshape (x, s) }}", {"s": np.array([3, -1])}, "Reshape"),
    "impossible sum": (f"{X} {{ y = Add (x, w) }}", {"w": np.ones(3, np.float32)}, "Add"),
    "types that differ": (f"{X} {{ y = Add (x, w) }}", {"w": np.ones(4, np.int8)}, "Add"),
    "unknown element type": (f"{X} {{ y = Cast <to = 77> (x) }}", {}, "ast"),
    "a name computed twice": (f"{X} {{ y = Relu (x) y = Neg (x) }}", {}, "y"),
    "a circle": (f"{X} {{ a = Add (x, y) y = Neg (a) }}", {}, "Add is not output of any"),
    "an output nobody computes": (f"{X} {{ z = Relu (x) }}", {}, "y"),
    "two symbols without size": (
        "(float[n,c,h] x) => (float[] y) { y = Relu (x) }", {}, "'c' (x.1), 'h' (x.2)"
    ),
    "an input of unknown rank": ("(float[] x) => (float[] y) { y = Relu (x) }", {}, "no shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", MODELS)
def test_models(fails: Any, case: str) -> None:
    graph, constants, part = MODELS[case]
    save(graph, "bad.onnx", **constants)
    fails("compile bad.onnx -o out", part)
    fails("inspect bad.onnx", part)


@pytest.mark.parametrize("content", [b"", b"hello", bytes(999), MODEL.read_bytes()[:3000]])
def test_files_that_are_no_models(fails: Any, content: bytes) -> None:
    Path("bad.onnx").write_bytes(content)
    fails("compile bad.onnx -o out", "bad.onnx", "not an ONNX model")


def test_opset_of_the_future(fails: Any) -> None:
    save(f"{X} {{ y = Relu (x) }}", "bad.onnx", opset=99)
    fails("compile bad.onnx -o out", "opset 99", "update onnx")


@pytest.mark.parametrize(
    ("location", "part"),
    [
        ("gone.bin", "is missing"),
        ("../w.bin", "outside"),
        ("/etc/hostname", "outside"),
        ("", "out"),
    ],
)
def test_external_data(fails: Any, location: str, part: str) -> None:
    save(f"{X} {{ y = MatMul (x, w) }}", "bad.onnx", w=np.ones((4, 4), np.float32))
    model = onnx.load("bad.onnx")
    (tensor,) = model.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    Path("bad.onnx").write_bytes(model.SerializeToString())
    fails("compile bad.onnx -o out", "'w'", part)


@pytest.mark.parametrize(
    "given",
    ["n", "n=", "=3", "n=x", "n=-1", "n=0", "n=1.5", "n=99999999999999999999", "n=²", "batch=3"],
)
def test_dimensions(fails: Any, given: str) -> None:
    save("(float[n,4] x) => (float[] y) { y = Relu (x) }", "net.onnx")
    fails(f"compile net.onnx -o out --dim {given}")


def test_sizes_nothing_can_hold(fails: Any) -> None:
    fails("compile MODEL -o out --dim batch=99999999", "instructions address 4294967296")
    save("(float[a,b] x) => (float[] y) { y = Relu (x) }", "net.onnx")
    fails("compile net.onnx -o out --dim a=99999999 --dim b=99999999", "[99999999, 99999999]")


CONFIGS: dict[str, tuple[Any, str]] = {
    "unknown keys": ({"foo": 1, "bar": 2}, "['bar', 'foo']"),
    "text for a number": ({"block_in": "16"}, "block_in"),
    "nothing for a number": ({"block_in": None}, "block_in"),
    "a float for a number": ({"block_in": 16.0}, "block_in"),
    "truth for a number": ({"block_in": True}, "block_in"),
    "text for truth": ({"lut": "yes"}, "lut"),
    "a number for text": ({"name": 5}, "name"),
    "a broken rule": ({"block_in": 3}, "power of two"),
    "negative": ({"block_in": -16, "block_out": -16}, "power of two"),
    "huge": ({"inp_rows": 2**70}, "inp_rows"),
    "unknown base": ({"base": "nope"}, "base"),
    "a base of another kind": ({"base": ["x"]}, "base"),
    "a list": ([1], "list"),
    "not JSON": ("{", "not JSON"),
    "not text": (b"\xff\xfe", "cannot read"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_configurations(fails: Any, case: str) -> None:
    value, part = CONFIGS[case]
    text = value if isinstance(value, (str, bytes)) else json.dumps(value)
    Path("c.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    fails("compile MODEL -o out --config c.json", part)
    fails("config c.json", part)


@pytest.mark.parametrize("name", ["none.json", "folder", "3x3", ".", ""])
def test_configurations_that_are_not_there(fails: Any, name: str) -> None:
    fails(f"compile MODEL -o out --config {name}", "configuration")


def test_toml(fails: Any) -> None:
    Path("c.toml").write_text("= 3")
    fails("config c.toml", "not TOML")


@pytest.mark.parametrize("out", ["folder", "none/x.accel", "/dev/full", "ok.accel/x"])
def test_outputs(fails: Any, out: str) -> None:
    fails(f"compile MODEL -q --config 1x4x4 -o {out}", "cannot write", out)
    fails(f"run ok.accel --output {out}", "cannot write", out)


Edit = Callable[[dict[str, Any]], Any]


def rewrite(data: bytes, name: str, entry: str, edit: Callable[[bytes], bytes | None]) -> None:
    """Write ``data``, an artifact, to ``name`` with one entry edited or, if None, left out."""
    Path("source").write_bytes(data)
    with zipfile.ZipFile("source") as old, zipfile.ZipFile(name, "w") as new:
        for item in old.namelist():
            content = edit(old.read(item)) if item == entry else old.read(item)
            if content is not None:
                new.writestr(item, content)
    Path("source").unlink()


def as_json(edit: Edit) -> Callable[[bytes], bytes]:
    return lambda data: json.dumps(edit(json.loads(data))).encode()


ARTIFACTS: dict[str, tuple[str, Callable[[bytes], bytes | None], str]] = {
    "another version": ("manifest.json", as_json(lambda m: m | {"format_version": 99}), "99"),
    "another ISA version": ("manifest.json", as_json(lambda m: m | {"isa_version": 99}), "99"),
    "another format": ("manifest.json", as_json(lambda m: m | {"format": "x"}), "not an accelc"),
    "another target": ("manifest.json", as_json(lambda m: m | {"target": "gpu"}), "gpu"),
    "another fingerprint": (
        "manifest.json", as_json(lambda m: m | {"config_digest": 1}), "00000001"
    ),
    "another configuration": (
        "manifest.json",
        as_json(lambda m: m | {"config": m["config"] | {"queue_depth": 4}}),
        "fingerprint",
    ),
    "unknown parameter": (
        "manifest.json", as_json(lambda m: m | {"config": m["config"] | {"foo": 1}}), "foo"
    ),
    "no configuration": ("manifest.json", as_json(lambda m: m | {"config": None}), "configuration"),
    "no steps": ("manifest.json", as_json(lambda m: m | {"steps": []}), "steps"),
    "steps of another kind": ("manifest.json", as_json(lambda m: m | {"steps": None}), "damaged"),
    "a key less": (
        "manifest.json", as_json(lambda m: {k: m[k] for k in m if k != "steps"}), "steps"
    ),
    "no object": ("manifest.json", lambda _: b"[]", "damaged"),
    "no JSON": ("manifest.json", lambda _: b"{", "damaged"),
    "no manifest": ("manifest.json", lambda _: None, "damaged"),
    "no graph": ("graph.json", lambda _: None, "graph.json"),
    "an unknown class": ("graph.json", lambda d: d.replace(b'"Graph"', b'"Grape"'), "Grape"),
    "constants cut short": ("arrays.bin", lambda d: d[:1000], "damaged"),
    "no program": ("program1.bin", lambda _: None, "program1.bin"),
    "half an instruction": ("program1.bin", lambda d: d[:-1], "whole 64-byte instructions"),
    "bits that must be zero": ("program1.bin", lambda d: b"\xff" * 64 + d[64:], "damaged"),
    "too much memory": ("program1.json", as_json(lambda p: p | {"memory_bytes": 2**50}), "memory"),
    "negative memory": ("program1.json", as_json(lambda p: p | {"memory_bytes": -5}), "memory"),
    "instructions beyond memory": (
        "program1.json", as_json(lambda p: p | {"instructions_address": 2**31}), "beyond"
    ),
    "constants beyond memory": (
        "program1.json", as_json(lambda p: p | {"constants": [[2**31, 100]]}), "beyond"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ARTIFACTS)
def test_edited_artifacts(fails: Any, artifact: bytes, case: str) -> None:
    entry, edit, part = ARTIFACTS[case]
    rewrite(artifact, "bad.accel", entry, edit)
    for command in ("run", "verify", "inspect", "disasm"):
        fails(f"{command} bad.accel", "bad.accel", part)


def test_artifacts_that_are_none(fails: Any, artifact: bytes) -> None:
    Path("half.accel").write_bytes(artifact[: len(artifact) // 2])
    Path("empty.accel").write_bytes(b"")
    for name in ("half.accel", "empty.accel", "none.accel", "folder", "out"):
        fails(f"run {name} --output out", name)
        fails(f"verify {name}", name)


IMAGE = np.zeros((1, 1, 8, 8), np.float32)
INPUTS: dict[str, tuple[Any, str]] = {
    "double": (IMAGE.astype(np.float64), "must be float32 [1, 1, 8, 8], not float64"),
    "flat": (IMAGE.reshape(-1), "not float32 [64]"),
    "text": (np.array(["a"]), "must be float32"),
    "objects": (np.array([{}], object), "cannot read"),
    "empty file": (b"", "cannot read"),
    "no array": (b"\x93NUMPY", "cannot read"),
}


@pytest.mark.parametrize("case", INPUTS)
def test_inputs(fails: Any, case: str) -> None:
    value, part = INPUTS[case]
    if isinstance(value, bytes):
        Path("image.npy").write_bytes(value)
    else:
        np.save("image.npy", value, allow_pickle=True)
    fails("run ok.accel --output out --input image=image.npy", part)


DATA: dict[str, tuple[dict[str, Any], str]] = {
    "no samples": ({"y": np.zeros(3, int)}, "x and y"),
    "no labels": ({"x": np.zeros((3, 1, 8, 8), np.float32)}, "x and y"),
    "one label less": (
        {"x": np.zeros((3, 1, 8, 8), np.float32), "y": np.zeros(2, int)}, "one label"
    ),
    "an empty set": ({"x": np.zeros((0, 1, 8, 8), np.float32), "y": np.zeros(0, int)}, "one label"),
    "numbers": ({"x": np.float32(1), "y": np.int64(1)}, "one label"),
    "text for labels": (
        {"x": np.zeros((2, 1, 8, 8), np.float32), "y": np.array(["a", "b"])}, "class numbers"
    ),
    "no labels but NaN": (
        {"x": np.zeros((2, 1, 8, 8), np.float32), "y": np.full(2, np.nan)}, "class numbers"
    ),
    "another size": ({"x": np.zeros((3, 9, 9), np.float32), "y": np.zeros(3, int)}, "a sample is"),
    "another type": ({"x": np.zeros((3, 64), np.int64), "y": np.zeros(3, int)}, "x is int64"),
}  # fmt: skip


@pytest.mark.parametrize("case", DATA)
def test_labelled_data(fails: Any, case: str) -> None:
    arrays, part = DATA[case]
    np.savez("data.npz", **arrays)
    fails("run ok.accel --output out --data data.npz", "data.npz", part)


@pytest.mark.parametrize(
    "options",
    [
        "--limit -1", "--limit 0", "--limit x", "--limit 1.5", "--seed -5", "--seed x",
        "--stall 2", "--stall -0.1", "--latency -1", "--latency 99999999999999999999",
        "--bandwidth 0", "--on moon", "--on cpu,", "--on cpu,cpu", "--compare moon",
        "--input image", "--input =x.npy", "--input image=", "--input image=none.npy",
        "--input image=folder", "--data folder", "--data none.npz", "--data ok.accel",
    ],
)  # fmt: skip
def test_options(fails: Any, options: str) -> None:
    fails(f"run ok.accel --output out {options}")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_values_beyond_all_bounds_are_no_errors(
    fails: Any, value: float, capfd: pytest.CaptureFixture[str], recwarn: Any
) -> None:
    """They are quantized as the contract says, alike on every device."""
    np.save("image.npy", np.full_like(IMAGE, value))
    command = "run ok.accel --on functional,golden,cpu --input image=image.npy"
    assert run(command.split()) == ExitCode.OK
    assert "bit for bit" in capfd.readouterr().out
    assert not recwarn.list
