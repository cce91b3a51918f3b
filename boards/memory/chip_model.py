"""A simulated SDRAM chip that reports every violation of its data sheet."""

import re
from fractions import Fraction
from pathlib import Path

from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from accelc.boards.memory.chips import SdramChip
from accelc.isa.errors import ConfigError

_SOURCE = Path(__file__).with_name("chip_model.v")

#: The name of :func:`chip_verilog`'s module unless another one is asked for.
CHIP = "sdram_chip"

#: What a violation's number (``first_rule``) says.
RULES = {
    1: "a command within the pause after power-up",
    2: "a command before the power-up sequence was complete (precharge all, refreshes, mode)",
    3: "a command or feature that the model does not have",
    4: "a mode register value that the chip does not have at this clock",
    5: "a command that needs an idle bank to one with an open row",
    6: "READ or WRITE to a bank without an open row",
    7: "tRC: ACTIVATE to ACTIVATE of one bank",
    8: "tRCD: ACTIVATE to READ or WRITE",
    9: "tRP: PRECHARGE to the next command of the bank",
    10: "tRAS (min): ACTIVATE to PRECHARGE",
    11: "tRAS (max): a row open for too long",
    12: "tWR: last data in to PRECHARGE",
    13: "tRRD: ACTIVATE to ACTIVATE of another bank",
    14: "tRFC: REFRESH to the next command",
    15: "tMRD: MODE REGISTER SET to the next command",
    16: "more refreshes overdue than may be postponed",
    17: "a row not refreshed in time",
    18: "a burst cut short by the next command",
    19: "nobody drives the data of a WRITE",
    20: "controller and chip drive the data bus at a time",
}
#: Ports of the chip beside those of :class:`~accelc.boards.memory.pins.SdramPins`.
REPORTS = {"violations": 32, "first_rule": 8, "first_time": 64}


def describe(violations: int, first_rule: int, first_time: int) -> str:
    """The chip's report in words; ``first_time`` is in femtoseconds since power-up."""
    if violations == 0:
        return "no violation"
    return (
        f"{violations} violation{'s' if violations > 1 else ''}, the first at "
        f"{first_time / 1e6:.1f} ns: {RULES[first_rule]}"
    )


def chip_verilog(
    chip: SdramChip,
    clock_hz: int,
    *,
    io_cycles: int = 0,
    name: str = CHIP,
    model: bool = True,
) -> str:
    """Verilog of ``chip`` at a clock.

    The module has the ports of ``SdramPins`` seen from the chip, ``clk``, ``rst`` (off and on
    again) and the outputs :data:`REPORTS`: the number of violations, rule and time (fs) of the
    first.

    Parameters
    ----------
    chip
    clock_hz
    io_cycles
        As :attr:`accelc.boards.board.BoardMemory.io_cycles`.
    name
        Of the module.
    model
        Whether the text holds the model all such modules share; once per simulation.
    """
    data, bank, row = chip.data_bits, chip.bank_bits, chip.row_bits
    inputs = {"clk": 1, "rst": 1, "cke": 1, "cs_n": 1, "ras_n": 1, "cas_n": 1, "we_n": 1}
    inputs |= {"ba": bank, "a": row, "dqm": data // 8, "dq_o": data, "dq_oe": 1}
    outputs = {"dq_i": data, **REPORTS}
    ports = [f"  input [{bits - 1}:0] {port}" for port, bits in inputs.items()]
    ports += [f"  output [{bits - 1}:0] {port}" for port, bits in outputs.items()]
    values = {
        "DATA_BITS": f"{data}",
        "BANK_BITS": f"{bank}",
        "ROW_BITS": f"{row}",
        "COLUMN_BITS": f"{chip.column_bits}",
        "IO_CYCLES": f"{io_cycles}",
        **{key: f"64'd{value}" for key, value in _times(chip, clock_hz).items()},
    }
    parameters = ",\n".join(f"    .{key}({value})" for key, value in values.items())
    connections = ", ".join(f".{port}({port})" for port in (*inputs, *outputs))
    listed = ",\n".join(ports)
    wrapper = (
        f"module {name} (\n{listed}\n);\n"
        f"  sdram_model #(\n{parameters}\n  ) model ({connections});\nendmodule\n"
    )
    return (_SOURCE.read_text() if model else "") + wrapper


def with_chip(
    verilog: str,
    component: wiring.Component,
    chip: SdramChip,
    clock_hz: int,
    *,
    io_cycles: int = 0,
    top: str = "accel",
    model: bool = True,
) -> str:
    """A simulation's source: a design with its chip attached, under the design's own name.

    The new top module has the design's ports but those of ``sdram``, and :data:`REPORTS`.

    Parameters
    ----------
    verilog
        Of the design, RTL or netlist; its top module is ``top``.
    component
        What the ports are those of; its member ``sdram`` is :class:`SdramPins`.
    chip, clock_hz, io_cycles, model
        See :func:`chip_verilog`.
    """
    inside, chip_name = f"{top}_alone", f"{top}_chip"
    header = re.compile(rf"^module {top}\b(?=\s*[(#;])", flags=re.MULTILINE)
    renamed, found = header.subn(f"module {inside}", verilog)
    if found != 1:
        raise ConfigError(f"the design has {found} modules {top!r}, not one")
    ports = ["input clk", "input rst"]
    wires = []
    inner = [".clk(clk)", ".rst(rst)"]
    outer = [".clk(clk)", ".rst(rst)"]
    for path, member, value in component.signature.flatten(component):
        name = "_".join(map(str, path))
        width = f"[{len(Value.cast(value)) - 1}:0]"
        inner.append(f".{name}({name})")
        if path[0] == "sdram":
            wires.append(f"  wire {width} {name};")
            outer.append(f".{path[1]}({name})")
        else:
            ports.append(f"{'output' if member.flow is Out else 'input'} {width} {name}")
    for name, bits in REPORTS.items():
        ports.append(f"output [{bits - 1}:0] {name}")
        outer.append(f".{name}({name})")
    listed = ",\n  ".join(ports)
    lines = [
        f"module {top} (\n  {listed}\n);",
        *wires,
        f"  {inside} user ({', '.join(inner)});",
        f"  {chip_name} chip ({', '.join(outer)});",
        "endmodule\n",
    ]
    own = chip_verilog(chip, clock_hz, io_cycles=io_cycles, name=chip_name, model=model)
    return renamed + own + "\n".join(lines)


def _times(chip: SdramChip, clock_hz: int) -> dict[str, int]:
    """The model's times in femtoseconds."""
    unknown = set(chip.min_period_ns) - {2, 3}
    if unknown:
        raise ConfigError(f"the chip model has CAS latencies 2 and 3, not {sorted(unknown)}")
    # A period rounded up: a distance of so many cycles is never shorter than it is.
    period = -(-(10**15) // clock_hz)
    ns = {
        "TCK2": chip.min_period_ns.get(2, 0.0),
        "TCK3": chip.min_period_ns.get(3, 0.0),
        "TRC": chip.trc_ns,
        "TRCD": chip.trcd_ns,
        "TRP": chip.trp_ns,
        "TRAS_MIN": chip.tras_min_ns,
        "TRAS_MAX": chip.tras_max_ns,
        "TWR": chip.twr_ns,
        "TRRD": chip.trrd_ns,
        "TRFC": chip.trfc_ns,
        "TREF": chip.refresh_ms * 1e6,
        "TINIT": chip.init_us * 1e3,
    }
    times = {key: int(Fraction(value).limit_denominator(1000) * 10**6) for key, value in ns.items()}
    times["TWR"] = max(times["TWR"], chip.twr_cycles * period)
    return {"PERIOD": period, "TMRD": chip.tmrd_cycles * period, **times}
