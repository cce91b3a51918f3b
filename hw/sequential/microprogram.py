"""The sequencer's whole microprogram for a configuration."""

from accelc.hw.sequential.assembler import Microprogram, assemble
from accelc.hw.sequential.microcode_compute import compute_text
from accelc.hw.sequential.microcode_control import control_text
from accelc.hw.sequential.microcode_move import move_text
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig


def microprogram(config: AccelConfig) -> Microprogram:
    """Assemble it; it begins with what happens at reset."""
    symbols = {"BEATS_OF_INSTRUCTION": INSTRUCTION_BYTES // config.bus_bytes - 1}
    return assemble(control_text(config) + move_text(config) + compute_text(config), symbols)
