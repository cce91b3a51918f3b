"""What the commands share on the terminal: progress on stderr, tables and JSON on stdout."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Progress and notes go here, so that stdout stays clean for results.
stderr = Console(stderr=True, highlight=False)
#: Where there is no terminal, a row is one line, however long its names: scripts read it.
_MINIMUM_COLUMNS = 1000


@contextlib.contextmanager
def progress(first: str) -> Iterator[Callable[[str], None]]:
    """Show what is being done while it is done; yields a function to name the next stage.

    On a terminal one line comes and goes; elsewhere nothing is printed.
    """
    if not stderr.is_terminal:
        yield lambda _: None
        return
    with stderr.status(first) as status:
        yield status.update


def note(message: str) -> None:
    """Tell the user, on stderr, about a decision made on their behalf."""
    click.echo(f"note: {message}", err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1))


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A table; columns whose name starts with ``>`` hold numbers and are aligned right.

    Where the terminal is narrow the first column, names, and columns of text (``~``) are broken.
    """
    result = Table(
        title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
        padding=(0, 1, 0, 0),
    )  # fmt: skip
    for number, column in enumerate(columns):
        broken = number == 0 or column.startswith("~")
        result.add_column(
            column.lstrip(">~"),
            justify="right" if column.startswith(">") else "left",
            no_wrap=not broken,
            overflow="fold" if broken else "ellipsis",
        )
    for row in rows:
        result.add_row(*(Text(str(cell)) for cell in row))  # names may look like markup
    return result


def show(*items: Any) -> None:
    """Print tables and lines on stdout; wide enough for a table when stdout is not a terminal."""
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console = Console(highlight=False, width=max(console.width, _MINIMUM_COLUMNS))
    for item in items:
        console.print(item, markup=False, soft_wrap=True) if isinstance(
            item, str
        ) else console.print(item)


def count(value: float) -> str:
    """A number with thousands separated."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def size(nbytes: int) -> str:
    """Bytes in the largest unit that keeps three digits."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes} B"
