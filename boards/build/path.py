"""The critical path, from nextpnr's cells back to the names in the gateware."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Where Yosys's name for a cell stops being the name of the signal it makes: it appends the cell's
#: type and port, and does so again for whatever drives a cell without a name.
_CELL = re.compile(
    r"_(?:SB_|TRELLIS_|DFF|LUT\d|CCU2C|PFUMX|L6MUX21|MUX2_LUT|ALU_|DP16KD|DPX?9|SDPX?9|MULT\d|"
    r"[IO]FS1P3DX|rPLL|EHXPLL|RAM16|DPR16|DO[AB]?\d*(?:_|$)|RDATA(?:_|$)|"
    r"RAM$|MASKWREN)"
)
#: What the tools invent where there is no name at all.
_INVENTED = re.compile(r"^\$|\$(?:auto|abc|nextpnr|techmap|signal|like)\b|\$[A-Z]")
#: The tiles of a memory that takes several RAMs.
_TILE = re.compile(r"(?:\.\d+)+$")
#: What Amaranth appends to tell signals of one name apart.
_NUMBER = re.compile(r"\$\d+")


@dataclass(frozen=True, kw_only=True)
class Hop:
    """A stretch of the path: to the next signal that has a name in the gateware."""

    name: str
    logic_ns: float
    routing_ns: float


@dataclass(frozen=True, kw_only=True)
class CriticalPath:
    """The slowest way from a register to a register of one clock."""

    clock: str
    start: str
    end: str
    logic_ns: float
    routing_ns: float
    #: Cells of logic passed through.
    levels: int
    hops: tuple[Hop, ...]

    @property
    def delay_ns(self) -> float:
        return self.logic_ns + self.routing_ns


def source_name(name: str) -> str | None:
    """The hierarchical name in the gateware of a cell or net, or None if it has none.

    ``board.core.load.count_TRELLIS_FF_Q_3_D_LUT4_Z`` is ``core.load.count``.
    """
    text = name.removeprefix("$glbnet$")
    invented = _INVENTED.search(text)
    if invented:
        text = text[: invented.start()].rstrip("._")
    found = _CELL.search(text)
    text = text[: found.start()] if found else text
    # the members of an interface are joined by two underscores
    text = _NUMBER.sub("", _TILE.sub("", text)).replace("$signature__", "").replace("__", ".")
    return text.removeprefix("board.") or None


def clock_name(net: str) -> str:
    """The clock domain of a clock net: ``sync`` for Amaranth's ``clk``, ``x`` for ``x_clk``."""
    text = net.removeprefix("posedge ").removeprefix("negedge ").removeprefix("$glbnet$")
    last = text.rsplit(".", 1)[-1]
    return "sync" if last == "clk" else last.removesuffix("_clk")


def _name(segment: Mapping[str, Any], side: str) -> str | None:
    return source_name(segment[side]["cell"])


def critical_path(clock: str, segments: Sequence[Mapping[str, Any]]) -> CriticalPath:
    """Sum up nextpnr's segments (``type``, ``delay``, ``from``, ``to``, ``net``) of one path."""
    logic = routing = 0.0
    levels = 0
    hops: list[Hop] = []
    since_logic = since_routing = 0.0
    start = _name(segments[0], "from")
    previous = start
    for segment in segments:
        is_routing = segment["type"] == "routing"
        if is_routing:
            routing += segment["delay"]
            since_routing += segment["delay"]
        else:
            logic += segment["delay"]
            since_logic += segment["delay"]
            levels += segment["type"] == "logic"
        name = source_name(segment["net"]) if is_routing else None
        if is_routing and start is None:
            start = previous = name
        arrived = _name(segment, "to")
        if arrived is not None and arrived != previous:
            hops.append(Hop(name=arrived, logic_ns=since_logic, routing_ns=since_routing))
            previous, since_logic, since_routing = arrived, 0.0, 0.0
    if not hops and previous is not None:  # from a register to itself
        hops.append(Hop(name=previous, logic_ns=0.0, routing_ns=0.0))
    if hops and (since_logic or since_routing):
        last = hops[-1]
        hops[-1] = Hop(
            name=last.name,
            logic_ns=last.logic_ns + since_logic,
            routing_ns=last.routing_ns + since_routing,
        )
    end = _name(segments[-1], "to") or previous
    return CriticalPath(
        clock=clock,
        start=start or "(unnamed)",
        end=end or "(unnamed)",
        logic_ns=round(logic, 3),
        routing_ns=round(routing, 3),
        levels=levels,
        hops=tuple(
            Hop(name=h.name, logic_ns=round(h.logic_ns, 3), routing_ns=round(h.routing_ns, 3))
            for h in hops
        ),
    )


def critical_paths(timing: Mapping[str, Any]) -> tuple[CriticalPath, ...]:
    """The critical path within each clock of nextpnr's report, the slowest first."""
    paths = [
        critical_path(clock_name(path["from"]), path["path"])
        for path in timing["critical_paths"]
        if path["from"] == path["to"] and path["from"] != "<async>" and path["path"]
    ]
    return tuple(sorted(paths, key=lambda path: -path.delay_ns))
