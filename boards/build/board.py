"""Builds the bitstream of a board as it is: accelerator, memory, host link."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from accelc.boards.board import Board, Family
from accelc.boards.build.advice import explain
from accelc.boards.build.build import Build, build
from accelc.boards.build.family import Resource
from accelc.boards.build.job import Progress
from accelc.boards.build.report import clock_timings
from accelc.boards.build.synthesis import TooLargeError
from accelc.boards.build.wrapper import clock_settings
from accelc.boards.primitives.arrays import mac_array
from accelc.boards.primitives.clocks import frequencies
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

    If there are not enough multipliers, the matrix array is built again with as many fewer.

    Raises:
        DoesNotFitError: the message names the nearest configuration that should fit.
    """
    clock_settings(board, board.platform())  # before work is done for a clock that cannot be
    chosen = int(board.options.get("seed", DEFAULT_SEED) if seed is None else seed)

    def attempt(variant: Board) -> Build:
        return build(
            variant, board_top(variant), seed=chosen, force=force, progress=progress, failed=failed
        )

    try:
        try:
            return attempt(board)
        except TooLargeError as error:
            dsps = _fewer_multipliers(board, error)
            if dsps is None:
                raise
            return attempt(replace(board, options=board.options | {"dsps": dsps}))
    except TooLargeError as error:
        raise DoesNotFitError(explain(error, board.family, board.config)) from error


def _fewer_multipliers(board: Board, error: TooLargeError) -> int | None:
    """Multipliers left for an array that can do without, if nothing else is too much."""
    missing = {item.resource: item.excess for item in error.usage if item.excess}
    if board.family is not Family.ECP5 or set(missing) != {Resource.DSP}:
        return None
    dsps = board.options.get("dsps", board.config.macs_per_cycle) - missing[Resource.DSP]
    return dsps if dsps >= 0 else None


def require_timing(build: Build) -> None:
    """Raises:
    TimingError: a clock is faster than what was placed and routed bears.
    """
    slowest = clock_timings(build)[0]
    if slowest.met:
        return
    settings = clock_settings(build.board, build.platform)
    possible = frequencies(settings.family, settings.device, settings.input_hz)
    slower = [hz for hz in possible if hz <= slowest.achieved_mhz * 1e6]
    clock = f"build with --clock {slower[-1] / 1e6:g}, " if slower else ""
    raise TimingError(
        f"{build.board.name} does not work at {slowest.wanted_mhz:g} MHz: clock {slowest.name} "
        f"reaches {slowest.achieved_mhz:.1f} MHz; {clock}try another --seed than {build.seed}, "
        "or accept it with --allow-slow"
    )
