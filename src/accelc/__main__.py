"""The ``accelc`` command; ``python -m accelc`` is the same."""

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    from accelc.command.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
