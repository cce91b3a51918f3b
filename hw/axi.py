"""AXI4 and AXI4-Lite port bundles, seen from the master, with the standard's signal names."""

import enum

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.isa.config import AccelConfig
from accelc.isa.registers import REGISTER_BYTES

#: No burst crosses a boundary of this many bytes (AMBA AXI, A3.4.1).
PAGE_BYTES = 4096
ADDRESS_BITS = 32
ID_BITS = 1
LITE_ADDRESS_BITS = exact_log2(REGISTER_BYTES)


class Burst(enum.IntEnum):
    """AxBURST."""

    FIXED = 0
    INCR = 1
    WRAP = 2


class Response(enum.IntEnum):
    """RRESP and BRESP; bit 1 tells an error from a success."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


#: AxCACHE of ordinary memory that may buffer writes but not cache: Normal Non-cacheable Bufferable.
CACHE_BUFFERABLE = 0b0011


def _address_channel(prefix: str) -> dict[str, wiring.Member]:
    return {
        f"{prefix}id": Out(ID_BITS),
        f"{prefix}addr": Out(ADDRESS_BITS),
        f"{prefix}len": Out(8),
        f"{prefix}size": Out(3),
        f"{prefix}burst": Out(2),
        f"{prefix}lock": Out(1),
        f"{prefix}cache": Out(4),
        f"{prefix}prot": Out(3),
        f"{prefix}valid": Out(1),
        f"{prefix}ready": In(1),
    }


class Axi4(wiring.Signature):
    """A full AXI4 port with 32-bit addresses and ``bus_bytes`` of data.

    Members
    -------
    aw*, w*, ar* : Out, except the ready signals
    b*, r* : In, except the ready signals
    """

    def __init__(self, config: AccelConfig) -> None:
        super().__init__(
            {
                **_address_channel("aw"),
                "wdata": Out(config.bus_bytes * 8),
                "wstrb": Out(config.bus_bytes),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(ID_BITS),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                **_address_channel("ar"),
                "rid": In(ID_BITS),
                "rdata": In(config.bus_bytes * 8),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class Axi4Lite(wiring.Signature):
    """An AXI4-Lite port with 32-bit data that addresses the register block.

    Members
    -------
    aw*, w*, ar* : Out, except the ready signals
    b*, r* : In, except the ready signals
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "awaddr": Out(LITE_ADDRESS_BITS),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(LITE_ADDRESS_BITS),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )
