"""What a program will cost, from the timing model alone: nothing is computed, no input needed."""

from accelc.isa.codec import encode_all
from accelc.isa.program import Program
from accelc.session import LayerReport, layer_reports
from accelc.sim.descriptors import decode_table
from accelc.sim.device import Counters, MemoryModel
from accelc.sim.timing_model import predict


def predict_program(
    program: Program, memory: MemoryModel | None = None
) -> tuple[Counters, tuple[LayerReport, ...]]:
    """Counters and layers of one run of ``program`` behind ``memory`` (the reference memory)."""
    model = memory or MemoryModel()
    counters = predict(program.config, decode_table(encode_all(program.instructions)), model)
    return counters, layer_reports(program, counters, model)
