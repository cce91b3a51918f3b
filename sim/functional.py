"""The functional device: the same results as the golden one, in native code."""

from accelc.isa.config import AccelConfig
from accelc.sim.descriptors import Descriptors
from accelc.sim.golden import StateDevice
from accelc.sim.native import native_code


class FunctionalDevice(StateDevice):
    """Executes programs at hundreds of millions of multiply-accumulates a second; no timing."""

    name = "functional"

    def __init__(self, config: AccelConfig, seed: int | None = None) -> None:
        super().__init__(config, seed)
        self._code = native_code(config)

    def execute(self, data: bytes, descriptors: Descriptors) -> None:
        done = self._code.run(descriptors, self.state)
        if done < len(descriptors):
            # The definition knows what is wrong with the instruction native code gave up at.
            self.execute_one(data, done)
            raise AssertionError(f"native code refused instruction {done}, its definition did not")
