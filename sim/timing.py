"""The timing device: values from the functional device, cycles from the timing model."""

from accelc.isa.config import AccelConfig
from accelc.isa.program import Program
from accelc.sim.device import Counters, MemoryModel
from accelc.sim.functional import FunctionalDevice
from accelc.sim.timing_model import predict


class TimingDevice(FunctionalDevice):
    """Runs programs as the functional device does and predicts what they cost behind ``memory``."""

    name = "timing"

    def __init__(
        self, config: AccelConfig, memory: MemoryModel | None = None, seed: int | None = None
    ) -> None:
        super().__init__(config, seed)
        self.memory_model = memory or MemoryModel()

    def run(self, program: Program) -> Counters:
        data, descriptors = self.fetch(program)
        self.execute(data, descriptors)
        return predict(self.config, descriptors, self.memory_model)
