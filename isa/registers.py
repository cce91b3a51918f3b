"""The AXI4-Lite register map, defined once for hardware, host driver, manual and C header.

All registers are 32 bits wide, little-endian, at byte offsets that are multiples of 4. 64-bit
counters are two registers, low word first; they are cleared by start and stand still when idle.
"""

import enum
from dataclasses import dataclass

from accelc.isa.config import AccelConfig
from accelc.isa.spec import ISA_VERSION

#: Value of the ``id`` register: "acc1" in ASCII, first letter in the lowest byte.
IDENTITY = int.from_bytes(b"acc1", "little")
#: Bytes of address space the register block decodes.
REGISTER_BYTES = 0x200


class ErrorCode(enum.IntEnum):
    """What the ``error`` register reports; 0 is no error. The first error wins."""

    NONE = 0
    ILLEGAL_INSTRUCTION = 1
    ILLEGAL_FIELD = 2
    ROW_OUT_OF_RANGE = 3
    ADDRESS_OUT_OF_RANGE = 4
    READ_RESPONSE = 5
    WRITE_RESPONSE = 6
    WATCHDOG = 7
    MISSING_FINISH = 8


ERROR_MEANINGS: dict[ErrorCode, str] = {
    ErrorCode.NONE: "no error",
    ErrorCode.ILLEGAL_INSTRUCTION: (
        "unknown opcode, a reserved bit set, or a unit's own bit in its masks"
    ),
    ErrorCode.ILLEGAL_FIELD: (
        "a field breaks a rule of its instruction or needs what the configuration lacks"
    ),
    ErrorCode.ROW_OUT_OF_RANGE: "a scratchpad row beyond the configured depth",
    ErrorCode.ADDRESS_OUT_OF_RANGE: (
        "a memory address at or beyond `memory_bytes`, or not a multiple of the bus width"
    ),
    ErrorCode.READ_RESPONSE: "memory answered a read with SLVERR or DECERR",
    ErrorCode.WRITE_RESPONSE: "memory answered a write with SLVERR or DECERR",
    ErrorCode.WATCHDOG: "no unit made progress for `watchdog_cycles` while the program was running",
    ErrorCode.MISSING_FINISH: "the instruction list ended without FINISH",
}


class Access(enum.Enum):
    """How software may use a register."""

    READ_ONLY = "ro"
    READ_WRITE = "rw"
    WRITE_ONE = "w1"


@dataclass(frozen=True)
class Register:
    """One 32-bit register."""

    name: str
    offset: int
    access: Access
    doc: str
    #: Value after reset.
    reset: int = 0


def _layout() -> tuple[Register, ...]:
    ro, rw, w1 = Access.READ_ONLY, Access.READ_WRITE, Access.WRITE_ONE
    registers = [
        Register("id", 0x000, ro, "constant 0x31636361, 'acc1'"),
        Register("version", 0x004, ro, "ISA version"),
        Register("config", 0x008, ro, "fingerprint of the configuration (AccelConfig.digest)"),
        Register(
            "shape", 0x00C, ro, "bits 7:0 batch, 15:8 block_in, 23:16 block_out, 31:24 bus_bytes"
        ),
        Register(
            "control", 0x010, w1, "bit 0 start; bit 1 abort and clear: stop, drain, clear the error"
        ),
        Register("status", 0x014, ro, "bit 0 busy, bit 1 done (until the next start), bit 2 error"),
        Register("error", 0x018, ro, "error code, see below"),
        Register(
            "error_info",
            0x01C,
            ro,
            "bits 23:0 instructions fetched so far, "
            "31:24 unit (0 load, 1 gemm, 2 alu, 3 store, 4 fetch)",
        ),
        Register(
            "program_address",
            0x020,
            rw,
            "address of the first instruction, relative to memory_base",
        ),
        Register("program_length", 0x024, rw, "instructions, FINISH included"),
        Register("memory_base", 0x028, rw, "added to every address the core sends to the bus"),
        Register(
            "memory_bytes", 0x02C, rw, "addresses at or beyond this are an error", 0xFFFF_FFFF
        ),
        Register(
            "watchdog_cycles",
            0x030,
            rw,
            "cycles without progress before WATCHDOG; 0 disables",
            1 << 20,
        ),
    ]
    counters = [
        ("cycles", "cycles from start to done"),
        *(
            (f"{u}_busy", f"cycles the {u} unit executed an instruction")
            for u in ("load", "gemm", "alu", "store")
        ),
        *(
            (f"{u}_wait", f"cycles the {u} unit had an instruction that waited for tokens")
            for u in ("load", "gemm", "alu", "store")
        ),
        ("gemm_issue", "cycles the matrix array took an operand: fired rows"),
        (
            "gemm_stall",
            "cycles the running matrix unit waited for weights, accumulators or hazards",
        ),
        None,  # those behind it keep their addresses
        ("read_bytes", "bytes read from memory, instructions included"),
        ("write_bytes", "bytes written to memory"),
    ]
    for index, counter in enumerate(counters):
        if counter is None:
            continue
        name, doc = counter
        registers.append(Register(f"{name}_low", 0x100 + 8 * index, ro, doc + ", low word"))
        registers.append(Register(f"{name}_high", 0x104 + 8 * index, ro, doc + ", high word"))
    for unit_index, unit in enumerate(("load", "gemm", "alu", "store")):
        registers.append(
            Register(
                f"{unit}_retired",
                0x180 + 4 * unit_index,
                ro,
                f"instructions the {unit} unit has finished",
            )
        )
    return tuple(registers)


REGISTERS: tuple[Register, ...] = _layout()
BY_NAME: dict[str, Register] = {register.name: register for register in REGISTERS}


def identity_registers(config: AccelConfig) -> dict[str, int]:
    """The registers that never change: what a core of ``config`` says it is."""
    shape = bytes([config.batch, config.block_in, config.block_out, config.bus_bytes])
    return {
        "id": IDENTITY,
        "version": ISA_VERSION,
        "config": config.digest,
        "shape": int.from_bytes(shape, "little"),
    }
