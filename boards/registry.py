"""All boards, by name."""

from accelc.boards.board import Board
from accelc.boards.definitions.colorlight_i5 import COLORLIGHT_I5
from accelc.boards.definitions.icebreaker import ICEBREAKER
from accelc.boards.definitions.tang_nano_9k import TANG_NANO_9K
from accelc.boards.definitions.tang_nano_20k import TANG_NANO_20K
from accelc.boards.definitions.ulx3s import ULX3S_25F, ULX3S_85F
from accelc.isa.errors import ConfigError

#: In the order `accelc boards` lists them: by family, the larger chip first.
BOARDS: dict[str, Board] = {
    board.name: board
    for board in (ICEBREAKER, ULX3S_85F, ULX3S_25F, COLORLIGHT_I5, TANG_NANO_20K, TANG_NANO_9K)
}


def find(name: str) -> Board:
    """The board of a name.

    Raises:
        ConfigError: there is none; the message names them all.
    """
    if name not in BOARDS:
        raise ConfigError(f"there is no board {name!r}; boards are {', '.join(BOARDS)}")
    return BOARDS[name]
