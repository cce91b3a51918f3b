"""A cache of built things by content, safe under parallel processes."""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from accelc.isa.errors import ToolError


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/accelc``, by default ``~/.cache/accelc``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "accelc"


def content_key(parts: Iterable[str | bytes]) -> str:
    """A fingerprint of ``parts``, each delimited from the next."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


@contextlib.contextmanager
def _only_builder(lock: Path) -> Iterator[None]:
    """Wait until no other process builds the same thing; the lock ends with its holder."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cached_folder(kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """The folder ``kind/key`` of the cache, filled by ``build`` if it is not there.

    ``build`` works in a temporary folder that is renamed when it is complete: what is in the cache
    is whole. Of two processes that want the same thing one builds and the other waits for it.

    Raises:
        ToolError: there is no cache and none can be made.
    """
    folder = cache_root() / kind / key
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(folder.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ToolError(
            f"cannot keep built simulators in {cache_root()}: {error.strerror}; "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    with _only_builder(folder.parent / f".{key}.lock"):
        if folder.is_dir():
            return folder
        work = Path(tempfile.mkdtemp(prefix=f".{key[:12]}-", dir=folder.parent))
        try:
            # mkdtemp's folders are private; a cache may be shared.
            work.chmod(0o755)
            build(work)
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return folder
