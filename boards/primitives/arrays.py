"""The matrix array of each FPGA family: vendor multipliers for gates, their double for simulation.

Both have the same latency, so that a board simulated with the portable array counts the cycles the
board itself will count.
"""

import importlib

from accelc.boards.board import Family
from accelc.hw.mac import MacArray
from accelc.isa.config import AccelConfig

#: Each has a function ``array(config) -> MacArray | None``. By name: whoever builds for one family
#: loads nothing of the others.
_MODULES = {
    Family.ICE40: "accelc.boards.primitives.ice40_mac",
    Family.ECP5: "accelc.boards.primitives.ecp5_mac",
    Family.GOWIN: "accelc.boards.primitives.gowin_mac",
}


def mac_array(family: Family, config: AccelConfig, *, dsps: int | None = None) -> MacArray | None:
    """The array made of a family's multipliers; ``None``: the portable one is the best there is.

    ``dsps`` is how many hardware multipliers the device has for it, by default enough. The array's
    cells exist in that family only: for simulation take :func:`simulated_array`.
    """
    module = importlib.import_module(_MODULES[family])
    return module.array(config) if dsps is None else module.array(config, dsps=dsps)


def simulated_array(family: Family, config: AccelConfig) -> MacArray | None:
    """``mac_array(family, config)`` without its vendor cells, as many cycles deep."""
    array = mac_array(family, config)
    if array is not None:
        array.portable = True
    return array
