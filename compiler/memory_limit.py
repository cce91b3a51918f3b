"""What this machine's memory holds, asked before it is taken.

An allocation beyond it often succeeds, and the process is ended when the memory is used.
"""

from pathlib import Path

from accelc.isa.errors import DoesNotFitError

_MEMINFO = Path("/proc/meminfo")
#: Limit of a container, and what it has used of it.
_CGROUP = Path("/sys/fs/cgroup")
#: Where the system does not say how much there is: what any machine is taken to have.
UNKNOWN_BYTES = 8 << 30
#: Less than this is never asked about.
SMALL_BYTES = 64 << 20


def available_bytes() -> int:
    """Memory that a process can take without taking it from another."""
    found = UNKNOWN_BYTES
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        limit, used = ((_CGROUP / f"memory.{name}").read_text() for name in ("max", "current"))
        found = min(found, max(0, int(limit) - int(used)))
    except (OSError, ValueError):
        pass  # no container, or one without a limit ("max")
    return found


def require_memory(nbytes: int, what: str) -> None:
    """Check that this machine has ``nbytes`` for ``what``.

    Raises:
        DoesNotFitError: it has not.
    """
    if nbytes > SMALL_BYTES and nbytes > (available := available_bytes()):
        raise DoesNotFitError(
            f"{what} takes {nbytes / 1e9:,.1f} GB of memory, this machine has"
            f" {available / 1e9:,.1f} GB left"
        )
