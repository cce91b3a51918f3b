"""A finished program: instructions, constants and where everything lies in the device's memory."""

from dataclasses import dataclass, field

from accelc.isa.codec import encode_all
from accelc.isa.config import AccelConfig
from accelc.isa.spec import Instruction


@dataclass(frozen=True, kw_only=True)
class Region:
    """A named range of device memory."""

    name: str
    address: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of the network and the instructions that compute it.

    ``first`` and ``last`` index ``Program.instructions``; layers follow one another in program
    order, and a layer's last instruction is its last STORE. ``macs`` counts the useful
    multiply-accumulates of the model (no padding), ``moved_bytes`` the unpadded bytes that must
    move at least once: inputs, weights, biases, outputs.
    """

    name: str
    op: str
    first: int
    last: int
    macs: int
    moved_bytes: int
    #: Bytes the layer's LOADs and STOREs really move.
    dram_bytes: int


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a device runs. Addresses are bytes relative to the memory base."""

    config: AccelConfig
    instructions: tuple[Instruction, ...]
    #: Where the encoded instructions lie.
    instructions_address: int
    memory_bytes: int
    #: ``(address, data)`` of weights, parameters and tables.
    constants: tuple[tuple[int, bytes], ...] = ()
    inputs: tuple[Region, ...] = ()
    outputs: tuple[Region, ...] = ()
    #: Every named allocation, constants and intermediate tensors included, for reports.
    regions: tuple[Region, ...] = ()
    layers: tuple[Layer, ...] = field(default=())

    def segments(self) -> tuple[tuple[int, bytes], ...]:
        """Everything to write to memory before the first run."""
        return (*self.constants, (self.instructions_address, encode_all(self.instructions)))
