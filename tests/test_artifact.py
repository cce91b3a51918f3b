"""Artifacts: what is saved comes back exactly, damage is refused, failures overwrite nothing."""

import enum
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import accelc
from accelc.artifact import FORMAT_VERSION, Artifact
from accelc.compiler.graph import Graph, Node, Quant, TensorType
from accelc.compiler.integer import AddStage, ConvAttrs, Post
from accelc.compiler.partition import Place
from accelc.files import OutputError, write_atomically
from accelc.isa.codec import encode_all
from accelc.isa.errors import ArtifactError
from accelc.isa.spec import ISA_VERSION
from accelc.values import Reader, Writer

MODEL = Path(__file__).parents[1] / "models" / "digits_resnet8_int8.onnx"


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return accelc.compile(MODEL, config="1x4x4")


@pytest.fixture(scope="module")
def data(artifact: Artifact) -> bytes:
    return artifact.to_bytes()


def same(a: Any, b: Any) -> bool:
    """Deep equality that compares arrays bit by bit."""
    if isinstance(a, np.ndarray):
        equal = a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
        return a.dtype == b.dtype and a.shape == b.shape and equal
    if fields := getattr(type(a), "__dataclass_fields__", None):
        names = [name for name, field in fields.items() if field.compare]
        return type(a) is type(b) and all(same(getattr(a, n), getattr(b, n)) for n in names)
    if hasattr(a, "items"):
        return list(a) == list(b) and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    # an enumeration's member in an instruction comes back as its number
    return a == b and (type(a) is type(b) or isinstance(a, enum.IntEnum))


def test_what_is_saved_comes_back(artifact: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "digits.accel"
    artifact.save(path)
    assert same(artifact.model, Artifact.load(path).model)
    assert [p.name for p in tmp_path.iterdir()] == ["digits.accel"]


def test_programs_come_back_bit_for_bit(artifact: Artifact, data: bytes) -> None:
    again = Artifact.from_bytes(data)
    assert len(again.programs) == len(artifact.programs) == 1
    for before, after in zip(artifact.programs, again.programs, strict=True):
        assert encode_all(before.instructions) == encode_all(after.instructions)
        assert before.segments() == after.segments()
        assert before == after


def test_equal_compilations_make_equal_files(data: bytes) -> None:
    assert accelc.compile(MODEL, config="1x4x4").to_bytes() == data


def test_saving_again_changes_nothing(data: bytes) -> None:
    assert Artifact.from_bytes(data).to_bytes() == data


VALUES: list[Any] = [
    None, True, 3, 1 << 70, 0.1, float("inf"), "text", b"\x00\xff", (), (1, (2, "x")), [1, [2]],
    {"a": 1, 2: (3,)}, np.dtype("int8"), np.dtype(ml_dtypes.bfloat16), np.float32(0.1), Place.CPU,
    np.arange(6, dtype=np.int16).reshape(2, 3), np.zeros((0, 3), np.float64),
    np.array([1.5, -2], ml_dtypes.bfloat16), np.array([2], ">i4"),
    np.array([1, 2], ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2),
    np.array([1, -2], ml_dtypes.int4), np.array(7), np.array([1.5], ml_dtypes.float8_e5m2),
    np.array(["a", "bc"], object), Quant(np.asarray(0.5, np.float32), np.asarray(3, np.int8)),
    TensorType((1, 2), np.dtype("uint8")), ConvAttrs(kernel=(3, 3), pads=(0, 1, 2, 3)),
    Post(zero=-3, add=AddStage(m1=1, m2=2, offset=3, shift=4)),
    Node("int.add", "n", ("a", "b"), ("c",), {"k": [1]}),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_every_kind_of_value_round_trips(value: Any) -> None:
    writer = Writer()
    text = json.dumps(writer.encode(value))
    assert same(value, Reader(bytes(writer.blob)).decode(json.loads(text)))


def test_nan_keeps_its_bits() -> None:
    array = np.array([0x7FC12345, 0x7F812345], np.uint32).view(np.float32)
    writer = Writer()
    form = writer.encode(array)
    assert Reader(bytes(writer.blob)).decode(form).tobytes() == array.tobytes()


def test_protos_round_trip() -> None:
    proto = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [], [])
    writer = Writer()
    again = Reader(b"").decode(json.loads(json.dumps(writer.encode(proto))))
    assert again == proto


def test_unknown_values_are_refused() -> None:
    with pytest.raises(TypeError, match="^object cannot be stored in an artifact$"):
        Writer().encode(object())


def rewritten(data: bytes, name: str, change: Any) -> bytes:
    """The archive with ``change`` applied to one JSON entry."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(result, "w") as new:
        for entry in old.namelist():
            content = old.read(entry)
            if entry == name:
                form = json.loads(content)
                change(form)
                content = json.dumps(form).encode()
            new.writestr(entry, content)
    return result.getvalue()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", "something", "^x.accel is not an accelc artifact$"),
        (
            "format_version",
            FORMAT_VERSION + 1,
            f"^x.accel has format version {FORMAT_VERSION + 1}, this accelc reads 1; ",
        ),
        ("isa_version", 99, f"^x.accel has ISA version 99, this accelc reads {ISA_VERSION}; "),
        ("config_digest", 1, "^x.accel was compiled for configuration '1x4x4' with fingerprint "),
        ("config", {"block_in": 3}, "^x.accel is damaged .ConfigError: block_in must be a power"),
        ("steps", [{"place": "CPU"}], "^x.accel is damaged .KeyError: 'nodes'.; compile the model"),
        ("steps", 5, "^x.accel is damaged .TypeError"),
    ],
)
def test_other_versions_and_damage_are_refused(
    data: bytes, key: str, value: Any, message: str
) -> None:
    wrong = rewritten(data, "manifest.json", lambda form: form.update({key: value}))
    with pytest.raises(ArtifactError, match=message):
        Artifact.from_bytes(wrong, "x.accel")


@pytest.mark.parametrize("part", [0, 1, 100, 0.5, -1])
def test_truncated_files_are_refused(data: bytes, part: float) -> None:
    end = int(part * len(data)) if isinstance(part, float) else part
    with pytest.raises(ArtifactError, match="^x.accel is not an accelc artifact, or is damaged"):
        Artifact.from_bytes(data[:end], "x.accel")


def test_every_flipped_byte_is_noticed(data: bytes) -> None:
    # the archive's checksums cover contents; a few places hold nothing (time stamps, flags)
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        starts = [info.header_offset + 30 + len(info.filename) for info in archive.infolist()]
        sizes = [info.compress_size for info in archive.infolist()]
    for start, size in zip(starts, sizes, strict=True):
        position = start + int(rng.integers(size))
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(bytes(damaged))


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x08\x07onnx"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.accel"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="make one with: accelc compile"):
        Artifact.load(path)


def test_a_missing_file_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="^cannot read .*: No such file or directory$"):
        Artifact.load(tmp_path / "none.accel")


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    path.write_text("old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OutputError, match=f"^cannot write {path}: No space left on device$"):
        write_atomically(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["none/out", "", "file/out"])
def test_unwritable_places_are_one_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError, match="^cannot write "):
        write_atomically(tmp_path / name, b"new")
    assert sorted(tmp_path.rglob("*")) == before


def test_writing_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_graph_of_artifact_is_a_graph(artifact: Artifact) -> None:
    assert isinstance(artifact.model.graph, Graph)
    assert artifact.config is not None and artifact.config.name == "1x4x4"


def test_pipes_are_written_to() -> None:
    reader, writer = os.pipe()
    try:
        write_atomically(f"/dev/fd/{writer}", "text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
        os.close(writer)
