"""What a board is: one frozen record per board drives gateware, build, simulation and driver."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from accelc.boards.memory.chips import SdramChip
from accelc.isa.config import AccelConfig
from accelc.isa.errors import ConfigError


class Family(enum.Enum):
    """FPGA families with an open toolchain; the value is how people write them."""

    ICE40 = "iCE40"
    ECP5 = "ECP5"
    GOWIN = "Gowin"


class OnChipKind(enum.Enum):
    """What on-chip memory is made of."""

    BLOCK = "block RAM"
    #: The iCE40 UltraPlus's four 256 kbit single-port RAMs.
    SPRAM = "SPRAM"


@dataclass(frozen=True, kw_only=True)
class OnChip:
    """Memory inside the FPGA."""

    kind: OnChipKind
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class BoardMemory:
    """The accelerator's memory: on-chip memory first, external memory behind it.

    Addresses below ``on_chip.nbytes`` are on the chip, those from there to ``nbytes`` in the SDRAM
    (whose first ``on_chip.nbytes`` stay unused, so that an address is the same in both).
    """

    on_chip: OnChip | None = None
    sdram: SdramChip | None = None
    #: Cycles by which registers between the SDRAM controller and the pins, both ways together,
    #: lengthen the way from a command to its data (simulations delay the data alike).
    io_cycles: int = 0
    #: Whether the chip's byte masks (DQM) are wired to the FPGA. Where they are tied low, every
    #: beat that is written is written whole, and bursts cannot be cut short by masking.
    masks: bool = True
    #: Whether registers keep the memory's combinational paths from the core's and the hosts': a
    #: cycle more each way, for clocks that need it.
    buffered: bool = False

    def __post_init__(self) -> None:
        if self.on_chip is None and self.sdram is None:
            raise ConfigError("a board needs on-chip memory or an SDRAM")
        if self.on_chip is not None and self.on_chip.nbytes % 4096:
            raise ConfigError(
                f"on-chip memory must be whole 4096-byte pages, not {self.on_chip.nbytes} bytes"
            )

    @property
    def nbytes(self) -> int:
        if self.sdram is not None:
            return self.sdram.nbytes
        return self.on_chip.nbytes if self.on_chip is not None else 0


#: A resource of a platform: what ``platform.request`` takes.
Resource = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board people can buy, and the accelerator that fits it.

    ``platform`` returns a fresh Amaranth platform: its resources name the pins, its device the
    chip. The import of amaranth-boards happens inside, so that listing boards needs none of it.
    """

    #: As users type it: lower case, hyphens.
    name: str
    title: str
    family: Family
    platform: Callable[[], Any]
    config: AccelConfig
    #: Clock of the accelerator, the memory controller and the host link.
    clock_hz: int
    memory: BoardMemory
    #: Baud rate of the host link.
    baud: int = 3_000_000
    #: Whether the MLPerf Tiny serial protocol is on board beside the host link.
    mlperf: bool = True
    #: Name under which openFPGALoader knows the board.
    loader: str
    #: The serial port's resource, with ``rx`` and ``tx`` as the FPGA sees them.
    uart: Resource = ("uart", 0)
    #: LEDs for ready, busy and error; None where one has none of its own.
    leds: tuple[Resource | None, ...] = (("led", 0), ("led", 1), ("led", 2))
    #: A push button that resets everything.
    reset: Resource | None = None
    #: Outputs to hold high: resource, number, and which of its signals.
    high: tuple[tuple[str, int, str], ...] = ()
    #: Where it is described, for `accelc boards`.
    url: str = ""
    #: Further options of the build: ``seed`` of place and route (int), ``dsps`` the matrix array
    #: may use (int), ``nextpnr`` arguments (strings).
    options: dict[str, Any] = field(default_factory=dict)
