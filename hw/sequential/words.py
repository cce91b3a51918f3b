"""The sequencer's register file, word by word, and the codes of its microprogram.

The register file has 256 words of 16 bits. The host's registers lie in it at half their byte
offset, low half first; so the host's copy of them (``accelc.hw.sequential.host``) needs no other
address. Writing a word of ``Device`` or of the parameters of the compute engines also acts on the
hardware of that name; what is read back is what was written last.
"""

import enum
from collections.abc import Iterator

from accelc.hw.sequential.ports import AluParam, GemmParam
from accelc.isa.registers import REGISTER_BYTES, REGISTERS
from accelc.isa.spec import INSTRUCTION_BITS

#: Words of the register file.
WORDS = REGISTER_BYTES // 2
#: Parameters of the engines (``accelc.hw.sequential.ports``), by number.
COMPUTE_WORD = 0x20
#: The instruction that is being executed, 32 words.
INSTRUCTION_WORD = 0x40
#: Devices, 16 words, and the second place where the mover's address can be written.
DEVICE_WORD = 0x60
ALIAS_WORD = 0x70
#: Tokens from unit ``f`` to unit ``t`` are counted at ``TOKEN_WORD + 4 + 4 * f + t``.
TOKEN_WORD = 0xE0
#: Counters and instruction counts of the host's registers, and the tokens: zeroed by a start.
ZEROED_WORDS = (range(0x80, 0x94), range(0xB0, 0xF4))
#: The counter of busy cycles of unit ``u`` lies at ``BUSY_WORD ^ 4 * (u + 1)``.
BUSY_WORD = 0x80
RETIRED_WORD = 0xC0
#: What comes before the first instruction is accounted to a unit there is not: its number (as in
#: ``RETIRE``) leads to words nobody looks at, those of busy cycles here, and tokens from LOAD to
#: LOAD.
NO_UNIT = 0x4C
NOWHERE_WORD = BUSY_WORD ^ NO_UNIT
#: What the host can see of the register file.
VISIBLE_WORDS = (range(0x00, 0x1A), range(0x80, 0xB8), range(0xC0, 0xC8))


class Device(enum.IntEnum):
    """Words whose writing acts on hardware."""

    #: The mover's next bus address in bytes: first run, then run after run.
    ADDRESS_LOW = DEVICE_WORD
    ADDRESS_HIGH = DEVICE_WORD + 1
    #: From the end of a run to the start of the next, in bytes.
    STRIDE_LOW = DEVICE_WORD + 2
    STRIDE_HIGH = DEVICE_WORD + 3
    #: The highest bus address at which a run may start.
    LIMIT_LOW = DEVICE_WORD + 4
    LIMIT_HIGH = DEVICE_WORD + 5
    #: Runs, less one; used up when the mover is done.
    RUNS = DEVICE_WORD + 6
    #: Beats of a run, less one.
    BEATS = DEVICE_WORD + 7
    #: First scratchpad beat; counts on.
    SCRATCH = DEVICE_WORD + 8
    #: Starts the mover: ``Command``, and the byte to fill with in bits 15:8.
    MOVE = DEVICE_WORD + 9
    #: The index register: bits 7:0.
    INDEX = DEVICE_WORD + 10
    #: ``Control``.
    CONTROL = DEVICE_WORD + 11
    #: The unit whose instruction begins.
    UNIT = DEVICE_WORD + 12
    #: ``4 * (unit + 1)`` of the unit whose instruction is done.
    RETIRE = DEVICE_WORD + 13
    #: Bit 0 starts the matrix engine, bit 1 the vector engine.
    COMPUTE = DEVICE_WORD + 14


class Command(enum.IntFlag):
    """What the mover does; bits 1:0 are the scratchpad (``Buffer``)."""

    FILL = 1 << 2
    #: To memory instead of from it.
    WRITE = 1 << 3
    #: To the instruction's words, from a place that was checked.
    FETCH = 1 << 4


class Control(enum.IntFlag):
    """One cycle each."""

    TAKE_START = 1 << 0
    TAKE_ABORT = 1 << 1
    TAKE_MOMENT = 1 << 2
    TAKE_PROGRESS = 1 << 3
    RESET_ENGINES = 1 << 4
    #: No further burst; what is under way comes to its end and writes nothing to memory.
    STOP_MOVER = 1 << 5


class Status(enum.IntFlag):
    """Bits of the host's register ``status``; writing it sets the wires of these names."""

    BUSY = 1
    DONE = 2
    ERROR = 4


class Operation(enum.IntEnum):
    """Bits 13:9 of what is neither a jump nor an extraction, one meaning each.

    Bit 4: leave A alone, store it (bit 0: the time; bit 2: the traffic) or jump to it (bit 1). Else
    A becomes
    the sum of A (if bit 3) and the word, inverted (bit 2), with the carry (bit 1) or with bit 2 as
    carry in; bit 0 masks the word with A. Bit 3 also sets the carry.
    """

    LOAD = 0b00000
    AND = 0b00001
    ADD = 0b01000
    ADD_CARRY = 0b01010
    SUBTRACT = 0b01100
    SUBTRACT_CARRY = 0b01110
    STORE = 0b10000
    STORE_TIME = 0b10001
    STORE_TRAFFIC = 0b10100
    JUMP = 0b10010


class Condition(enum.IntEnum):
    """What a jump may ask."""

    ALWAYS = 0
    ZERO = 1
    CARRY = 2
    #: The mover or an engine is at work, or memory still owes something.
    WORKING = 3
    #: The mover stopped: beyond the limit, beyond the scratchpad, or memory answered with an error.
    LIMIT_FAULT = 4
    ROW_FAULT = 5
    RESPONSE_FAULT = 6
    #: An engine stopped: beyond a scratchpad.
    COMPUTE_FAULT = 7
    #: Something happened on the bus since ``TAKE_PROGRESS``, or an engine is at work.
    PROGRESS = 8
    #: ``MOMENT_CYCLES`` have passed since ``TAKE_MOMENT``, or will have soon.
    MOMENT = 9
    START = 10
    ABORT = 11
    #: A word of the instruction at or behind the number in A, as it was an operation ago, was not
    #: zero.
    TAIL = 12


#: Cycles from moment to moment: what a wait looks after besides its end.
MOMENT_CYCLES = 2048
#: Words of the microprogram's own; ``name/2`` has 32 bits.
_COMMON = (
    "k link back now before delta unit_index due left/2 memory_end/2 patience/2 t0 t1 "
    "traffic traffic_before"
)
#: Variables of one kind of instruction each: they share their places.
_SHARED = (
    "buffer command fill_command depth run_bytes first middle last",
    "flags flags_now acc_row count_o count_a count_b n_a n_b start_inp start_wgt line_inp line_wgt",
    "count prm_0",
)
#: Where fields come to lie that ``then`` keeps: LOAD and STORE leave theirs in the same places.
_KEPT = {
    "row": 3, "dram": 4, "n0": 6, "n1": 7, "n2": 8, "stride1": 9, "stride2": 11,
    "pad_top": 13, "pad_bottom": 14, "pad_left": 15,
    "inp_o": 11, "inp_k0": 12, "inp_k1": 13, "wgt_o": 18, "wgt_k0": 19, "wgt_k1": 20, "acc_o": 22,
}  # fmt: skip
VARIABLE_WORDS = (
    *range(0xF4, 0x100),
    *range(0xC8, NOWHERE_WORD),
    *range(NOWHERE_WORD + 2, 0xE4),
    *range(0xB8, 0xC0),
)
#: Words for constants: between the host's registers, behind the devices, and where the host reads
#: zeros from its copy: counters that have no meaning here.
CONSTANT_WORDS = (
    *range(0x1A, 0x20),
    *range(COMPUTE_WORD + 20, INSTRUCTION_WORD - 4),
    *range(ALIAS_WORD + 2, ALIAS_WORD + 16),
    *range(0x94, 0xA4),
    *range(0xA8, 0xB0),
)
#: Rows of the scratchpads by ``Buffer``, for the index register to choose from.
DEPTH_WORD = INSTRUCTION_WORD - 4


def _variables(names: str, places: Iterator[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names.split():
        name, _, words = name.partition("/")
        found[name] = next(places)
        for _ in range(int(words or 1) - 1):
            if next(places) != found[name] + 1:
                raise AssertionError(f"the halves of {name} lie apart")
    return found


def word_names() -> dict[str, int]:
    """Every word that has a name in the microprogram; the first of several."""
    names = {register.name.removesuffix("_low"): register.offset // 2 for register in REGISTERS}
    names |= {f"word{k}": INSTRUCTION_WORD + k for k in range(INSTRUCTION_BITS // 16)}
    names |= {f"kept_{name}": INSTRUCTION_WORD + k for name, k in _KEPT.items()}
    names |= {device.name.lower(): device for device in Device}
    names |= {f"gemm_{p.name.lower()}": COMPUTE_WORD + p for p in GemmParam}
    names |= {f"alu_{p.name.lower()}": COMPUTE_WORD + p for p in AluParam}
    names |= {"pc": ALIAS_WORD, "depths": DEPTH_WORD, "tokens": TOKEN_WORD}
    names |= {"busy_cycles": BUSY_WORD, "retired": RETIRED_WORD}
    common = _variables(_COMMON, iter(VARIABLE_WORDS))
    for shared in _SHARED:
        used = len(_COMMON.split()) + _COMMON.count("/2")
        names |= _variables(shared, iter(VARIABLE_WORDS[used:]))
    return names | common
