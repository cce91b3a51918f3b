"""Writing files so that a failure leaves what was there before."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from accelc.isa.errors import AccelcError


class OutputError(AccelcError):
    """An output file cannot be written."""


def require_writable(
    path: str | os.PathLike[str], *inputs: str | os.PathLike[str] | None
) -> None:
    """Find out before hours of work whether there is a place for their result.

    Raises:
        OutputError: the folder is missing or not writable, ``path`` is a folder, or one of the
            ``inputs``.
    """
    target = Path(path)
    for used in inputs:
        if used is not None and Path(used).exists() and target.exists() and target.samefile(used):
            raise OutputError(
                f"cannot write {target}: it is read, and would be lost; name another file"
            )
    if target.is_dir():
        raise OutputError(f"cannot write {target}: it is a folder")
    if not target.parent.is_dir():
        raise OutputError(f"cannot write {target}: there is no folder {target.parent}")
    replaced = target.is_file() or not target.exists()  # a device or a pipe is written to itself
    if not os.access(target.parent if replaced else target, os.W_OK):
        raise OutputError(f"cannot write {target}: no permission")


#: Content of a file, or what writes it.
Content = bytes | str | Callable[[BinaryIO], None]


def write_atomically(path: str | os.PathLike[str], data: Content) -> None:
    """Write ``data`` to ``path``: all of it or, on any failure, nothing.

    Raises:
        OutputError: the folder is missing or not writable, the disk is full, ...
    """
    try:
        named = Path(path)
        if named.exists() and not named.is_file() and not named.is_dir():
            buffer = io.BytesIO()
            _put(data, buffer)
            named.write_bytes(buffer.getvalue())  # a device or a pipe: nothing to replace
            return
        target = named.resolve()
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            # "x" and not tempfile: the file gets the permissions the user's umask says
            with open(temporary, "xb") as file:
                _put(data, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error


def _put(data: Content, file: BinaryIO) -> None:
    if callable(data):
        data(file)
    else:
        file.write(data.encode() if isinstance(data, str) else data)
