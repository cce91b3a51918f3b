"""The accelerator's parameters: primary knobs as fields, what follows from them as properties."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from accelc.isa.errors import ConfigError
from accelc.isa.spec import Buffer

#: Bytes of one lane's entry in the parameter scratchpad (bias, multiplier, shift).
PARAM_BYTES = 8
#: Bytes of one encoded instruction.
INSTRUCTION_BYTES = 64
#: Entries of the int8 look-up table.
LUT_ENTRIES = 256


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, kw_only=True)
class AccelConfig:
    """Every hardware parameter. One object drives the RTL, the compiler and all models.

    A *row* is the unit each scratchpad is addressed in:

    ========== ============================================ ======================
    scratchpad row                                          bytes of a row
    ========== ============================================ ======================
    ``inp``    ``(batch, block_in)`` int8                   ``batch * block_in``
    ``wgt``    one tile, ``(block_out, block_in)`` int8     ``block_out * block_in``
    ``acc``    ``(batch, block_out)`` int32                 not visible in memory
    ``vin``    ``(block_out / block_in, batch, block_in)``  ``batch * block_out``
    ``out``    as ``vin``                                   ``batch * block_out``
    ``prm``    ``(block_out,)`` of bias, multiplier, shift  ``block_out * 8``
    ``lut``    the whole table, ``(256,)`` int8             256
    ========== ============================================ ======================
    """

    name: str = "custom"
    #: Images processed side by side; rows of the input vector.
    batch: int = 1
    #: Input channels reduced by one matrix operation.
    block_in: int = 16
    #: Output channels produced by one matrix operation; a multiple of ``block_in``.
    block_out: int = 16
    #: Width of the AXI4 data bus.
    bus_bytes: int = 8
    inp_rows: int = 2048
    #: Capacity of the weight scratchpad in tiles.
    wgt_rows: int = 1024
    acc_rows: int = 2048
    vin_rows: int = 2048
    out_rows: int = 2048
    prm_rows: int = 256
    #: int32 lanes of the vector unit; a row takes ``batch * block_out / vector_lanes`` cycles.
    vector_lanes: int = 16
    #: Bits of the requantization multiplier; 24 holds a float32 scale exactly.
    mult_bits: int = 24
    #: Whether the matrix unit has the sliding window that depthwise convolution needs.
    window: bool = True
    #: Whether the vector unit has the two-operand add stage.
    add: bool = True
    #: Whether the vector unit has the 256-entry look-up table.
    lut: bool = True
    #: Whether one instruction runs at a time, in program order, instead of four units with queues
    #: of their own: a third of the area, for the smallest FPGAs.
    sequential: bool = False
    #: Instructions each unit's queue holds.
    queue_depth: int = 8
    #: A token counter holds up to ``2**token_bits - 1`` tokens.
    token_bits: int = 6
    #: Longest AXI4 burst the core issues, in beats.
    max_burst_beats: int = 32
    #: Whether the matrix and the vector unit copy an instruction out of its queue, which then
    #: prepares the next one. Without, an instruction that ends within 30 cycles makes the next one
    #: wait for it, and some 900 flip-flops fewer are needed.
    lookahead: bool = True

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConfigError(f"{field.name} must be an integer, not {value!r}")
            if field.type is str and not isinstance(value, str):
                raise ConfigError(f"{field.name} must be text, not {value!r}")
            if field.type is bool and not isinstance(value, bool):
                raise ConfigError(f"{field.name} must be true or false, not {value!r}")
        for name in (
            "batch",
            "block_in",
            "block_out",
            "bus_bytes",
            "vector_lanes",
            "max_burst_beats",
        ):
            value = getattr(self, name)
            if not _is_power_of_two(value):
                raise ConfigError(f"{name} must be a power of two, not {value}")
        for name in ("inp_rows", "wgt_rows", "acc_rows", "vin_rows", "out_rows", "prm_rows"):
            value = getattr(self, name)
            if not _is_power_of_two(value) or not 4 <= value <= 1 << 16:
                raise ConfigError(f"{name} must be a power of two from 4 to 65536, not {value}")
        self._require(self.batch <= 16, "batch must be at most 16", self.batch)
        self._require(2 <= self.block_in <= 64, "block_in must be 2 to 64", self.block_in)
        self._require(
            self.block_out % self.block_in == 0 and self.block_out <= 64,
            f"block_out must be a multiple of block_in ({self.block_in}) and at most 64",
            self.block_out,
        )
        self._require(4 <= self.bus_bytes <= 64, "bus_bytes must be 4 to 64", self.bus_bytes)
        self._require(
            self.bus_bytes <= self.block_in,
            f"bus_bytes must be at most block_in ({self.block_in}): a row is whole beats",
            self.bus_bytes,
        )
        self._require(
            self.vector_lanes <= self.block_out,
            f"vector_lanes must be at most block_out ({self.block_out})",
            self.vector_lanes,
        )
        self._require(8 <= self.mult_bits <= 24, "mult_bits must be 8 to 24", self.mult_bits)
        self._require(2 <= self.queue_depth <= 64, "queue_depth must be 2 to 64", self.queue_depth)
        self._require(2 <= self.token_bits <= 16, "token_bits must be 2 to 16", self.token_bits)
        self._require(
            self.max_burst_beats <= 256,
            "max_burst_beats must be at most 256 (AXI4)",
            self.max_burst_beats,
        )

        if self.sequential:
            for name in ("batch", "vector_lanes"):
                value = getattr(self, name)
                self._require(value == 1, f"a sequential core has {name} 1", value)
            for name in ("add", "lut"):
                self._require(
                    not getattr(self, name), f"a sequential core has no {name} stage", True
                )

    @staticmethod
    def _require(holds: bool, rule: str, value: object) -> None:
        if not holds:
            raise ConfigError(f"{rule}, not {value}")

    @property
    def inp_row_bytes(self) -> int:
        return self.batch * self.block_in

    @property
    def wgt_row_bytes(self) -> int:
        return self.block_out * self.block_in

    @property
    def vec_row_bytes(self) -> int:
        """Bytes of a row of ``vin`` and ``out``."""
        return self.batch * self.block_out

    @property
    def prm_row_bytes(self) -> int:
        return self.block_out * PARAM_BYTES

    def rows(self, buffer: Buffer) -> int:
        """Rows of a scratchpad that LOAD can write."""
        return {
            Buffer.INP: self.inp_rows,
            Buffer.WGT: self.wgt_rows,
            Buffer.PRM: self.prm_rows,
            Buffer.VIN: self.vin_rows,
            Buffer.LUT: 1,
        }[buffer]

    def row_bytes(self, buffer: Buffer) -> int:
        """Bytes LOAD moves for one row of ``buffer``; a power of two."""
        return {
            Buffer.INP: self.inp_row_bytes,
            Buffer.WGT: self.wgt_row_bytes,
            Buffer.PRM: self.prm_row_bytes,
            Buffer.VIN: self.vec_row_bytes,
            Buffer.LUT: LUT_ENTRIES,
        }[buffer]

    @property
    def vec_inp_rows(self) -> int:
        """Rows of ``inp`` that hold what one row of ``vin`` or ``out`` holds."""
        return self.block_out // self.block_in

    @property
    def macs_per_cycle(self) -> int:
        return self.batch * self.block_in * self.block_out

    @property
    def max_tokens(self) -> int:
        return (1 << self.token_bits) - 1

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AccelConfig":
        """Build a configuration, naming every unknown key at once."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"unknown configuration keys {unknown}; known are {sorted(known)}")
        return cls(**values)

    @property
    def digest(self) -> int:
        """32-bit fingerprint of everything but the name; the hardware reports it in a register."""
        values = {k: v for k, v in self.to_dict().items() if k != "name"}
        return int.from_bytes(
            hashlib.sha256(json.dumps(values, sort_keys=True).encode()).digest()[:4], "little"
        )


PRESETS: dict[str, AccelConfig] = {
    config.name: config
    for config in (
        AccelConfig(name="1x16x16"),
        AccelConfig(
            name="1x8x8",
            block_in=8,
            block_out=8,
            vector_lanes=8,
            inp_rows=2048,
            wgt_rows=2048,
            acc_rows=1024,
            vin_rows=1024,
            out_rows=1024,
            prm_rows=256,
        ),
        AccelConfig(
            name="1x4x4",
            block_in=4,
            block_out=4,
            bus_bytes=4,
            vector_lanes=4,
            inp_rows=1024,
            wgt_rows=1024,
            acc_rows=512,
            vin_rows=512,
            out_rows=512,
            prm_rows=128,
        ),
        AccelConfig(
            name="2x16x16", batch=2, inp_rows=1024, acc_rows=1024, vin_rows=1024, out_rows=1024
        ),
        AccelConfig(
            name="1x4x8",
            block_in=4,
            block_out=8,
            bus_bytes=4,
            vector_lanes=4,
            inp_rows=2048,
            wgt_rows=1024,
            acc_rows=512,
            vin_rows=512,
            out_rows=512,
            prm_rows=128,
        ),
        AccelConfig(
            name="1x4x4s",
            sequential=True,
            block_in=4,
            block_out=4,
            bus_bytes=4,
            vector_lanes=1,
            mult_bits=15,
            add=False,
            lut=False,
            inp_rows=512,
            wgt_rows=128,
            acc_rows=256,
            vin_rows=64,
            out_rows=256,
            prm_rows=32,
        ),
    )
}
#: The preset commands use when none is named: VTA's default scratchpads at 256 MAC a cycle.
REFERENCE = PRESETS["1x16x16"]
