"""Builds the bitstream of a board as it is: accelerator, memory, host link."""

from pathlib import Path
from typing import TYPE_CHECKING

from accelc.boards.board import Board
from accelc.boards.build.advice import explain
from accelc.boards.build.build import Build, Progress, TooLargeError, build
from accelc.boards.build.report import clock_timings
from accelc.boards.build.wrapper import clock_settings
from accelc.boards.primitives.arrays import mac_array
from accelc.isa.errors import DoesNotFitError, TimingError

if TYPE_CHECKING:
    from accelc.boards.top import BoardTop

#: Seed where neither the user nor the board names one.
DEFAULT_SEED = 1


def board_top(board: Board) -> "BoardTop":
    """The board's top with the family's multipliers."""
    from accelc.boards.top import BoardTop

    array = mac_array(board.family, board.config, dsps=board.options.get("dsps"))
    return BoardTop(board, array=array)


def build_board(
    board: Board,
    *,
    seed: int | None = None,
    force: bool = False,
    progress: Progress = lambda _: None,
    failed: Path | None = None,
) -> Build:
    """Build the board's bitstream; see :func:`accelc.boards.build.build.build`.

    Raises:
        DoesNotFitError: the message names the nearest configuration that should fit.
    """
    clock_settings(board, board.platform())  # before work is done for a clock that cannot be
    chosen = int(board.options.get("seed", DEFAULT_SEED) if seed is None else seed)
    try:
        return build(
            board, board_top(board), seed=chosen, force=force, progress=progress, failed=failed
        )
    except TooLargeError as error:
        raise DoesNotFitError(explain(error, board.family, board.config)) from error


def require_timing(build: Build) -> None:
    """Raises:
    TimingError: a clock is faster than what was placed and routed bears.
    """
    slowest = clock_timings(build)[0]
    if slowest.met:
        return
    raise TimingError(
        f"{build.board.name} does not work at {slowest.wanted_mhz:g} MHz: clock {slowest.name} "
        f"reaches {slowest.achieved_mhz:.1f} MHz; build with --clock {slowest.achieved_mhz:.0f} "
        f"or lower, try another --seed than {build.seed}, or accept it with --allow-slow"
    )
