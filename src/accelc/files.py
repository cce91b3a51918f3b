"""Writing files so that a failure leaves what was there before."""

import os
from pathlib import Path

from accelc.isa.errors import AccelcError


class OutputError(AccelcError):
    """An output file cannot be written."""


def require_writable(path: str | os.PathLike[str]) -> None:
    """Find out before hours of work whether there is a place for their result.

    Raises:
        OutputError: the folder is missing or not writable, or ``path`` is a folder.
    """
    target = Path(path)
    if target.is_dir():
        raise OutputError(f"cannot write {target}: it is a folder")
    if not target.parent.is_dir():
        raise OutputError(f"cannot write {target}: there is no folder {target.parent}")
    replaced = target.is_file() or not target.exists()  # a device or a pipe is written to itself
    if not os.access(target.parent if replaced else target, os.W_OK):
        raise OutputError(f"cannot write {target}: no permission")


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Write ``data`` to ``path``: all of it or, on any failure, nothing.

    Raises:
        OutputError: the folder is missing or not writable, the disk is full, ...
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        named = Path(path)
        if named.exists() and not named.is_file() and not named.is_dir():
            named.write_bytes(content)  # a device or a pipe, where there is nothing to replace
            return
        target = named.resolve()
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            # "x" and not tempfile: the file gets the permissions the user's umask says
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error
