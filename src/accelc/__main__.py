"""The ``accelc`` command; ``python -m accelc`` is the same."""

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from accelc.command.main import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while the imports above take their time
        print("error: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
