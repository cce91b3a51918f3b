"""The build cache: whole or not there, built once."""

import os
import threading
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from accelc.isa.errors import ToolError
from accelc.sim.cache import cache_root, cached_folder, content_key


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "accelc"


def test_what_is_there_is_not_built_again(private_cache: Path) -> None:
    built: list[Path] = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "result").write_text("done")

    first = cached_folder("kind", "key", build)
    assert cached_folder("kind", "key", build) == first == cache_root() / "kind" / "key"
    assert len(built) == 1
    assert (first / "result").read_text() == "done"
    assert cached_folder("kind", "other", build) != first


def test_a_failed_build_leaves_nothing(private_cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cached_folder("kind", "key", fail)
    left = [p for p in (private_cache / "kind").iterdir() if not p.name.endswith(".lock")]
    assert left == []
    assert cached_folder("kind", "key", lambda folder: None).is_dir()


def _slow_build(folder: Path) -> None:
    (folder / str(os.getpid())).write_text("")
    time.sleep(0.3)


def _build_in_process(_: int) -> list[str]:
    return os.listdir(cached_folder("kind", "key", _slow_build))


def test_processes_build_once() -> None:
    with get_context("fork").Pool(2) as pool:
        first, second = pool.map(_build_in_process, range(2), chunksize=1)
    assert first == second
    assert len(first) == 1


def test_threads_build_once() -> None:
    found: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: found.append(_build_in_process(0))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert all(names == found[0] for names in found)


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ToolError, match="XDG_CACHE_HOME"):
        cached_folder("kind", "key", lambda folder: None)


def test_keys_tell_contents_apart() -> None:
    assert content_key(["ab", "c"]) != content_key(["a", "bc"])
    assert content_key(["ab"]) == content_key([b"ab"])
