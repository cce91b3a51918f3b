"""What the processor finds in memory: one page with parameters, tables and texts.

The page lies at the end of the board's memory. The host writes it with the network; the program in
the processor is the same for every network.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from accelc.boards.mlperf.protocol import TEXTS
from accelc.isa.errors import DoesNotFitError
from accelc.isa.registers import REGISTERS

PAGE_BYTES = 4096
#: 32-bit parameters at the start of the page, in this order.
PARAMETERS = (
    "raw_bytes",  # bytes of an input as the benchmark's files have it
    "raw_address",
    "raw_xor",  # 0x80 where files hold uint8 and the network takes int8, else 0
    "packed_address",
    "packed_bytes",
    "gather_address",  # a word per packed byte: its place in the raw input, or bit 31 and a byte
    "program_address",
    "program_length",
    "memory_bytes",
    "outputs",
    "outputs_address",  # a word per class: the address of its int8 value
    "raw_float",  # 1: files hold float32, and the result is a mean squared error
    "table_address",  # 256 words: EXPONENTIAL_ONE * exp(-step * i), or 255 thresholds of floats
    "values_address",  # 256 words: 256 times the real value of output value i - 128
    "mean_divisor",  # 256 times the number of outputs
    "line_address",  # buffer for a command
    "powers_address",  # 10**9, 10**8, ... 1
)
#: The largest entry of a table of exponentials. Twelve of them times 256 stay below 2^31.
EXPONENTIAL_ONE = 1 << 18
MAX_OUTPUTS = 12
LINE_BYTES = 128
#: Longest device and model name, NUL included.
NAME_BYTES = 48

_TEXT_BASE = 4 * len(PARAMETERS)


def _places() -> dict[str, int]:
    places: dict[str, int] = {}
    offset = _TEXT_BASE
    for name, text in TEXTS.items():
        places[name] = offset
        offset += len(text) + 1
    for name in ("DEVICE", "MODEL"):
        places[name] = offset
        offset += NAME_BYTES
    return places


#: Offsets of all texts in the page; "DEVICE" and "MODEL" are the network's.
TEXT_PLACES: dict[str, int] = _places()
_TABLES = -(-(TEXT_PLACES["MODEL"] + NAME_BYTES) // 4) * 4
LINE_PLACE = _TABLES
POWERS_PLACE = LINE_PLACE + LINE_BYTES
OUTPUTS_PLACE = POWERS_PLACE + 40
TABLE_PLACE = OUTPUTS_PLACE + 4 * MAX_OUTPUTS
if TABLE_PLACE + 4 * 256 > PAGE_BYTES:
    raise AssertionError("the page is too small")


def float_order(value: float) -> int:
    """A float32's place among all others, as an unsigned number."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return bits ^ (0xFFFF_FFFF if bits >> 31 else 0x8000_0000)


def page_address(memory_bytes: int) -> int:
    """Where the page begins in a memory of ``memory_bytes``."""
    return memory_bytes - PAGE_BYTES


def firmware_symbols(memory_bytes: int) -> Mapping[str, int]:
    """Names the program uses: ``P_`` offsets of parameters, ``T_`` of texts, ``R_`` registers."""
    return {
        "PAGE": page_address(memory_bytes),
        **{f"P_{name.upper()}": 4 * index for index, name in enumerate(PARAMETERS)},
        **{f"T_{name}": place for name, place in TEXT_PLACES.items()},
        **{f"R_{register.name.upper()}": register.offset for register in REGISTERS},
    }


@dataclass(frozen=True, kw_only=True)
class Page:
    """One network's parameters; addresses are the accelerator's."""

    parameters: Mapping[str, int]
    #: Address of every class's int8 output value; empty if ``parameters`` say where they are.
    outputs: tuple[int, ...]
    #: Exponentials or thresholds.
    table: tuple[int, ...]
    device: str
    model: str

    def encode(self, memory_bytes: int) -> bytes:
        """The page's bytes for a board with ``memory_bytes``.

        Raises:
            DoesNotFitError: too many classes, or a name is too long.
        """
        if len(self.outputs) > MAX_OUTPUTS:
            raise DoesNotFitError(
                f"the MLPerf page holds {MAX_OUTPUTS} classes, the network has {len(self.outputs)}"
            )
        base = page_address(memory_bytes)
        values = {
            "outputs": len(self.outputs),
            "outputs_address": base + OUTPUTS_PLACE,
            **dict.fromkeys(("raw_float", "values_address", "mean_divisor"), 0),
            **self.parameters,
            "table_address": base + TABLE_PLACE,
            "line_address": base + LINE_PLACE,
            "powers_address": base + POWERS_PLACE,
        }
        page = bytearray(PAGE_BYTES)

        def words(place: int, numbers: tuple[int, ...]) -> None:
            for index, number in enumerate(numbers):
                page[place + 4 * index : place + 4 * index + 4] = number.to_bytes(4, "little")

        words(0, tuple(values[name] for name in PARAMETERS))
        words(POWERS_PLACE, tuple(10**n for n in range(9, -1, -1)))
        words(OUTPUTS_PLACE, self.outputs)
        words(TABLE_PLACE, self.table)
        texts = {**TEXTS, "DEVICE": self.device, "MODEL": self.model}
        for name, text in texts.items():
            data = text.encode("ascii") + b"\0"
            if name not in TEXTS and len(data) > NAME_BYTES:
                raise DoesNotFitError(
                    f"{name.lower()} name {text!r} is longer than {NAME_BYTES - 1} characters"
                )
            page[TEXT_PLACES[name] : TEXT_PLACES[name] + len(data)] = data
        return bytes(page)
