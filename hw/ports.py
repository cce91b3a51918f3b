"""What every core shows to the outside, whatever executes its instructions."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.axi import Axi4, Axi4Lite
from accelc.isa.config import AccelConfig
from accelc.isa.spec import Unit


def core_members(config: AccelConfig) -> dict[str, wiring.Member]:
    """The members of a core's signature; ``hw.core.Core`` says what they mean."""
    return {
        "m_axi": Out(Axi4(config)),
        "s_axil": In(Axi4Lite()),
        "irq": Out(1),
        "busy": Out(1),
        "failed": Out(1),
        **{
            f"{unit.name.lower()}_{event}": Out(1) for unit in Unit for event in ("start", "retire")
        },
    }
