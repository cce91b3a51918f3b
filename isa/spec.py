"""The instructions, defined once: fields, widths, units and meaning.

Encoder, decoder, assembler, hardware layouts, the manual and the C header all derive from the
dataclasses below. Every instruction is 512 bits, little-endian. Bits 0 to 15 are the header
(opcode, wait mask, signal mask, reserved), the instruction's own fields follow from bit 16 upwards
in the order they are declared; what is left is reserved and zero.
"""

import enum
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

#: Version of the encoding and of the instructions' meaning; programs and hardware must agree on it.
ISA_VERSION = 1
INSTRUCTION_BITS = 512
HEADER_BITS = 16


class Unit(enum.IntEnum):
    """The four units that execute instructions, each in program order from its own queue."""

    LOAD = 0
    GEMM = 1
    ALU = 2
    STORE = 3


class Opcode(enum.IntEnum):
    """What an instruction does; 0 is illegal, so that erased memory is never executed."""

    LOAD = 1
    GEMM = 2
    ALU = 3
    STORE = 4
    FINISH = 5


class Buffer(enum.IntEnum):
    """A scratchpad that LOAD can write."""

    INP = 0
    WGT = 1
    PRM = 2
    VIN = 3
    LUT = 4


class Source(enum.IntEnum):
    """Where the first operand of ALU comes from."""

    ACC = 0
    VIN = 1


@dataclass(frozen=True)
class FieldSpec:
    """One field of an instruction: where it lies and what it means."""

    name: str
    bits: int
    signed: bool
    unit: str
    doc: str
    offset: int

    @property
    def minimum(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def maximum(self) -> int:
        return (1 << (self.bits - (1 if self.signed else 0))) - 1


def _bits(bits: int, doc: str, *, unit: str = "", signed: bool = False, default: Any = 0) -> Any:
    metadata = {"bits": bits, "doc": doc, "unit": unit, "signed": signed}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """What all instructions share: the dependency masks.

    A unit starts an instruction when every unit named in ``wait`` has sent it a token; it takes one
    token from each. When the instruction's last effect is visible to every other unit (for STORE:
    acknowledged by memory) it sends one token to every unit named in ``signal``.

    A loop count of 0 makes an instruction do nothing but exchange its tokens; LOAD still pads.
    """

    opcode: ClassVar[Opcode]
    unit: ClassVar[Unit | None]

    #: Bit ``u`` set: take a token that unit ``u`` sent. The own unit's bit must be 0.
    wait: int = field(default=0, metadata={"header": True})
    #: Bit ``u`` set: send a token to unit ``u``. The own unit's bit must be 0.
    signal: int = field(default=0, metadata={"header": True})


@dataclass(frozen=True, kw_only=True)
class Load(Instruction):
    """Copy a strided block of memory into a scratchpad, padding it on the way.

    ::

        row = self.row
        fill(pad_top)
        for i2 in range(n2):
            fill(pad_left)
            for i1 in range(n1):
                for i0 in range(n0):           # n0 rows, contiguous in memory
                    buffer[row] = memory[dram + i2*stride2 + i1*stride1 + i0*row_bytes]; row += 1
            fill(pad_right)
        fill(pad_bottom)                       # fill(n): n rows of pad_value; row += n

    ``n2 = 0`` fills only. LOAD of ``lut`` copies one row of 256 bytes; entry ``i`` is the image of
    the int8 value ``i - 128``. Padding is allowed for ``inp`` and ``vin`` only.
    """

    opcode = Opcode.LOAD
    unit = Unit.LOAD

    buffer: int = _bits(3, "destination scratchpad: 0 inp, 1 wgt, 2 prm, 3 vin, 4 lut")
    pad_value: int = _bits(8, "value of every padded byte", signed=True)
    row: int = _bits(16, "first destination row", unit="rows")
    dram: int = _bits(32, "first source address, a multiple of the bus width", unit="bytes")
    n0: int = _bits(16, "rows of a contiguous run", unit="rows", default=1)
    n1: int = _bits(16, "runs of a plane", default=1)
    n2: int = _bits(16, "planes", default=1)
    stride1: int = _bits(32, "from run to run, a multiple of the bus width", unit="bytes")
    stride2: int = _bits(32, "from plane to plane, a multiple of the bus width", unit="bytes")
    pad_top: int = _bits(16, "rows filled before the first plane", unit="rows")
    pad_bottom: int = _bits(16, "rows filled after the last plane", unit="rows")
    pad_left: int = _bits(16, "rows filled before each plane's runs", unit="rows")
    pad_right: int = _bits(16, "rows filled after each plane's runs", unit="rows")

    @property
    def pads(self) -> bool:
        """Whether anything is filled."""
        return bool(self.pad_top or self.pad_bottom or self.pad_left or self.pad_right)


@dataclass(frozen=True, kw_only=True)
class Gemm(Instruction):
    """Multiply input rows by stationary weight tiles and accumulate.

    ::

        for io, i0, i1, i2 in loops(n_o, n_k0, n_k1, n_k2):   # one weight tile each
            W = wgt[wgt + io*wgt_o + i0*wgt_k0 + i1*wgt_k1 + i2*wgt_k2]      # (block_out, block_in)
            clear = not accumulate and i0 == i1 == i2 == 0
            A = inp + io*inp_o + i0*inp_k0 + i1*inp_k1 + i2*inp_k2
            C = acc + io*acc_o
            for iy, ix in loops(n_y, n_x):
                x = inp[A + iy*inp_y + ix*inp_x]                             # (batch, block_in)
                d = C + iy*acc_y + ix*acc_x
                acc[d] = (0 if clear else acc[d]) + x @ W.T                  # int32, wraps

    With ``window`` set the two inner loops slide a window of the last ``block_in`` rows read
    instead, for depthwise convolution: ``n_x`` counts columns of ``n_t`` rows each, and after
    column ``ix`` the array fires if ``ix >= first - 1`` and ``(ix - (first - 1)) % step == 0``::

            for iy, ix in loops(n_y, n_x):
                for it in range(n_t):
                    shift inp[A + iy*inp_y + ix*inp_x + it*inp_t] into the window
                if fires(ix):                                 # iz counts the firings of this line
                    d = C + iy*acc_y + iz*acc_x
                    acc[d][b, o] = (0 if clear else acc[d][b, o])
                                 + sum(W[o, j] * window[j][b, o % block_in] for j < first*n_t)

    where ``window[0]`` is the row read last; ``first * n_t <= block_in``. Addresses are taken
    modulo 2^16, so a stride may be the two's complement of a negative one.
    """

    opcode = Opcode.GEMM
    unit = Unit.GEMM

    accumulate: int = _bits(1, "1: add to what acc holds; 0: the first reduction step overwrites")
    window: int = _bits(1, "1: sliding-window (depthwise) mode")
    inp: int = _bits(16, "first input row", unit="rows")
    wgt: int = _bits(16, "first weight tile", unit="rows")
    acc: int = _bits(16, "first accumulator row", unit="rows")
    n_o: int = _bits(12, "output blocks", default=1)
    n_k0: int = _bits(12, "outer reduction steps", default=1)
    n_k1: int = _bits(8, "middle reduction steps", default=1)
    n_k2: int = _bits(8, "inner reduction steps", default=1)
    n_y: int = _bits(12, "output lines", default=1)
    n_x: int = _bits(12, "output columns; in window mode input columns", default=1)
    n_t: int = _bits(8, "window mode: rows of a column", default=1)
    first: int = _bits(8, "window mode: columns before the first firing", default=1)
    step: int = _bits(8, "window mode: columns from firing to firing", default=1)
    inp_o: int = _bits(16, "input stride of n_o", unit="rows")
    inp_k0: int = _bits(16, "input stride of n_k0", unit="rows")
    inp_k1: int = _bits(16, "input stride of n_k1", unit="rows")
    inp_k2: int = _bits(16, "input stride of n_k2", unit="rows")
    inp_y: int = _bits(16, "input stride of n_y", unit="rows")
    inp_x: int = _bits(16, "input stride of n_x", unit="rows")
    inp_t: int = _bits(16, "input stride of n_t", unit="rows")
    wgt_o: int = _bits(16, "weight stride of n_o", unit="rows")
    wgt_k0: int = _bits(16, "weight stride of n_k0", unit="rows")
    wgt_k1: int = _bits(16, "weight stride of n_k1", unit="rows")
    wgt_k2: int = _bits(16, "weight stride of n_k2", unit="rows")
    acc_o: int = _bits(16, "accumulator stride of n_o", unit="rows")
    acc_y: int = _bits(16, "accumulator stride of n_y", unit="rows")
    acc_x: int = _bits(16, "accumulator stride of n_x, per firing in window mode", unit="rows")


@dataclass(frozen=True, kw_only=True)
class Alu(Instruction):
    """Run rows through the vector pipeline: reduce, requantize, add, clamp, look up, narrow.

    ::

        for i0, i1, i2 in loops(n0, n1, n2):
            P = prm[prm + i0*prm_0]                                  # bias, mult, shift per lane
            s = src + i0*src_0 + i1*src_1 + i2*src_2
            if source == acc: x = acc[s]                             # int32
            else: x = max(vin[s + iy*src_ky + ix*src_kx] for iy, ix in loops(n_ky, n_kx))
            if scale:  x = round(wrap32(x + P.bias) * P.mult / 2**P.shift) + a_zero
            x = clamp(x, a_min, a_max)                               # int8 from here on
            if add:
                v = vin[vin + i0*vin_0 + i1*vin_1 + i2*vin_2]
                x = round((x*m1 + v*m2 + offset) / 2**b_shift) + b_zero
                x = clamp(x, b_min, b_max)
            if lut: x = table[x + 128]
            out[dst + i0*dst_0 + i1*dst_1 + i2*dst_2] = x

    ``round`` is half to even. With ``a_inside`` the zero point takes part in the parity:
    ``round(v / 2**shift + a_zero)``, which differs at ties when ``a_zero`` is odd. ``source = acc``
    needs ``scale``, and ``n_ky = n_kx = 1``.
    """

    opcode = Opcode.ALU
    unit = Unit.ALU

    source: int = _bits(1, "first operand: 0 acc, 1 vin")
    scale: int = _bits(1, "1: requantize with the prm row")
    add: int = _bits(1, "1: add a second operand from vin")
    lut: int = _bits(1, "1: replace the result by its table entry")
    a_inside: int = _bits(1, "1: a_zero is added before rounding")
    a_zero: int = _bits(8, "zero point added by the requantization", signed=True)
    a_min: int = _bits(8, "lower clamp after requantization", signed=True, default=-128)
    a_max: int = _bits(8, "upper clamp after requantization", signed=True, default=127)
    b_zero: int = _bits(8, "zero point added by the add stage", signed=True)
    b_min: int = _bits(8, "lower clamp after the add stage", signed=True, default=-128)
    b_max: int = _bits(8, "upper clamp after the add stage", signed=True, default=127)
    b_shift: int = _bits(5, "right shift of the add stage")
    m1: int = _bits(25, "multiplier of the first operand", signed=True)
    m2: int = _bits(25, "multiplier of the second operand", signed=True)
    offset: int = _bits(40, "constant of the add stage, at 2^-b_shift", signed=True)
    src: int = _bits(16, "first row of the first operand", unit="rows")
    vin: int = _bits(16, "first row of the second operand", unit="rows")
    dst: int = _bits(16, "first row of out", unit="rows")
    prm: int = _bits(16, "first parameter row", unit="rows")
    n0: int = _bits(12, "outer count: channel blocks", default=1)
    n1: int = _bits(12, "middle count: lines", default=1)
    n2: int = _bits(12, "inner count: columns", default=1)
    n_ky: int = _bits(8, "rows of the maximum's window", default=1)
    n_kx: int = _bits(8, "columns of the maximum's window", default=1)
    prm_0: int = _bits(8, "parameter stride of n0", unit="rows")
    src_0: int = _bits(16, "first operand stride of n0", unit="rows")
    src_1: int = _bits(16, "first operand stride of n1", unit="rows")
    src_2: int = _bits(16, "first operand stride of n2", unit="rows")
    src_ky: int = _bits(16, "first operand stride of n_ky", unit="rows")
    src_kx: int = _bits(16, "first operand stride of n_kx", unit="rows")
    vin_0: int = _bits(16, "second operand stride of n0", unit="rows")
    vin_1: int = _bits(16, "second operand stride of n1", unit="rows")
    vin_2: int = _bits(16, "second operand stride of n2", unit="rows")
    dst_0: int = _bits(16, "out stride of n0", unit="rows")
    dst_1: int = _bits(16, "out stride of n1", unit="rows")
    dst_2: int = _bits(16, "out stride of n2", unit="rows")


@dataclass(frozen=True, kw_only=True)
class Store(Instruction):
    """Copy rows of ``out`` to a strided block of memory.

    ::

        for i2, i1, i0 in loops(n2, n1, n0):
            memory[dram + i2*stride2 + i1*stride1 + i0*row_bytes] = out[row]; row += 1
    """

    opcode = Opcode.STORE
    unit = Unit.STORE

    row: int = _bits(16, "first source row of out", unit="rows")
    dram: int = _bits(32, "first destination address, a multiple of the bus width", unit="bytes")
    n0: int = _bits(16, "rows of a contiguous run", unit="rows", default=1)
    n1: int = _bits(16, "runs of a plane", default=1)
    n2: int = _bits(16, "planes", default=1)
    stride1: int = _bits(32, "from run to run, a multiple of the bus width", unit="bytes")
    stride2: int = _bits(32, "from plane to plane, a multiple of the bus width", unit="bytes")


@dataclass(frozen=True, kw_only=True)
class Finish(Instruction):
    """End the program: when every unit is idle and every write acknowledged, report done."""

    opcode = Opcode.FINISH
    unit = None


INSTRUCTIONS: dict[Opcode, type[Instruction]] = {
    cls.opcode: cls for cls in (Load, Gemm, Alu, Store, Finish)
}


def field_specs(cls: type[Instruction]) -> tuple[FieldSpec, ...]:
    """The instruction's own fields with their bit offsets, header excluded."""
    specs: list[FieldSpec] = []
    offset = HEADER_BITS
    for f in fields(cls):
        if "header" in f.metadata:
            continue
        specs.append(
            FieldSpec(
                name=f.name,
                bits=f.metadata["bits"],
                signed=f.metadata["signed"],
                unit=f.metadata["unit"],
                doc=f.metadata["doc"],
                offset=offset,
            )
        )
        offset += f.metadata["bits"]
    if offset > INSTRUCTION_BITS:
        raise AssertionError(
            f"{cls.__name__} needs {offset} bits, an instruction has {INSTRUCTION_BITS}"
        )
    return tuple(specs)


#: Header fields, the same in every instruction.
HEADER_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec("opcode", 4, False, "", "what the instruction does", 0),
    FieldSpec(
        "wait", 4, False, "", "units to take a token from: bit 0 load, 1 gemm, 2 alu, 3 store", 4
    ),
    FieldSpec(
        "signal", 4, False, "", "units to send a token to: bit 0 load, 1 gemm, 2 alu, 3 store", 8
    ),
)
FIELDS: dict[Opcode, tuple[FieldSpec, ...]] = {
    op: field_specs(cls) for op, cls in INSTRUCTIONS.items()
}
