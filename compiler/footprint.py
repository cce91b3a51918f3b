"""Which scratchpad rows and which bytes of memory an instruction reads and writes.

Dependency tokens are derived from these sets, and the verifier checks programs against them; a test
holds them to ``isa.semantics``.
"""

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelc.isa.config import AccelConfig
from accelc.isa.semantics import firing_columns, memory_runs
from accelc.isa.spec import Alu, Buffer, Gemm, Instruction, Load, Source, Store, Unit

Rows = NDArray[np.int64]


class Space(enum.IntEnum):
    """What two units can conflict on; the first five are numbered as ``isa.spec.Buffer``."""

    INP = 0
    WGT = 1
    PRM = 2
    VIN = 3
    LUT = 4
    ACC = 5
    OUT = 6
    MEMORY = 7

    @property
    def writer(self) -> Unit:
        """The only unit that writes this space."""
        return _WRITER[self]

    @property
    def reader(self) -> Unit:
        """The only other unit that reads this space."""
        return _READER[self]


_WRITER = {
    **{space: Unit.LOAD for space in (Space.INP, Space.WGT, Space.PRM, Space.VIN, Space.LUT)},
    Space.ACC: Unit.GEMM,
    Space.OUT: Unit.ALU,
    Space.MEMORY: Unit.STORE,
}
_READER = {
    Space.INP: Unit.GEMM,
    Space.WGT: Unit.GEMM,
    Space.PRM: Unit.ALU,
    Space.VIN: Unit.ALU,
    Space.LUT: Unit.ALU,
    Space.ACC: Unit.ALU,
    Space.OUT: Unit.STORE,
    Space.MEMORY: Unit.LOAD,
}


def depth(space: Space, config: AccelConfig) -> int:
    """Rows of a scratchpad."""
    if space in (Space.ACC, Space.OUT):
        return config.acc_rows if space is Space.ACC else config.out_rows
    return config.rows(Buffer(space))


def row_bytes(space: Space, config: AccelConfig) -> int:
    """Bytes that a row takes in memory."""
    return config.vec_row_bytes if space is Space.OUT else config.row_bytes(Buffer(space))


@dataclass(frozen=True)
class Access:
    """Rows (of ``MEMORY``: bus beats) that an instruction touches, each at least once."""

    space: Space
    rows: Rows
    write: bool


def spread(base: int, *loops: tuple[int, int]) -> Rows:
    """The distinct rows of a loop nest of ``(count, stride)``, modulo 2^16, in no useful order."""
    rows = np.array([base & 0xFFFF], np.int64)
    for count, stride in sorted(loops, key=lambda loop: loop[0]):
        if count == 0:
            return rows[:0]
        if count > 1 and stride & 0xFFFF:
            steps = np.arange(count, dtype=np.int64) * stride
            rows = ((rows[:, None] + steps[None, :]) & 0xFFFF).reshape(-1)
            if rows.size > 4096:
                rows = np.flatnonzero(np.bincount(rows, minlength=1))
    return rows


def beats(i: Load | Store, nbytes: int, bus_bytes: int) -> Rows:
    """Numbers of the bus beats a LOAD or STORE moves; a row is ``nbytes`` long."""
    if i.n0 * i.n1 * i.n2 == 0:
        return np.zeros(0, np.int64)
    per_row = -(-nbytes // bus_bytes)
    if i.n1 == 1 and i.n2 == 1:
        first = i.dram // bus_bytes
        return np.arange(first, first + i.n0 * per_row, dtype=np.int64)
    starts = memory_runs(i, nbytes)[:, :, 0].reshape(-1) // bus_bytes
    return (starts[:, None] + np.arange(i.n0 * per_row)[None, :]).reshape(-1)


def footprint(i: Instruction, config: AccelConfig) -> tuple[Access, ...]:
    """Everything ``i`` reads and writes; rows may lie beyond the scratchpad."""
    match i:
        case Load():
            space = Space(Buffer(i.buffer))
            # data and padding together are one run of rows
            pitch = i.pad_left + i.n1 * i.n0 + i.pad_right
            end = i.row + i.pad_top + i.n2 * pitch + i.pad_bottom
            rows = np.arange(i.row, end, dtype=np.int64)
            memory = beats(i, row_bytes(space, config), config.bus_bytes)
            return Access(Space.MEMORY, memory, False), Access(space, rows, True)
        case Store():
            count = i.n0 * i.n1 * i.n2
            rows = np.arange(i.row, i.row + count, dtype=np.int64)
            memory = beats(i, config.vec_row_bytes, config.bus_bytes)
            return Access(Space.OUT, rows, False), Access(Space.MEMORY, memory, True)
        case Gemm():
            return _gemm(i)
        case Alu():
            return _alu(i)
        case _:
            return ()


def _gemm(i: Gemm) -> tuple[Access, ...]:
    steps = (i.n_k0, i.inp_k0), (i.n_k1, i.inp_k1), (i.n_k2, i.inp_k2)
    inner = (i.n_y, i.inp_y), (i.n_x, i.inp_x)
    columns = i.n_x
    if i.window:
        inner = (*inner, (i.n_t, i.inp_t))
        columns = firing_columns(i).size
    inp = spread(i.inp, (i.n_o, i.inp_o), *steps, *inner)
    wgt = spread(
        i.wgt, (i.n_o, i.wgt_o), (i.n_k0, i.wgt_k0), (i.n_k1, i.wgt_k1), (i.n_k2, i.wgt_k2)
    )
    acc = spread(i.acc, (i.n_o, i.acc_o), (i.n_y, i.acc_y), (columns, i.acc_x))
    accesses = Access(Space.INP, inp, False), Access(Space.WGT, wgt, False)
    if i.accumulate:
        accesses = (*accesses, Access(Space.ACC, acc, False))
    return (*accesses, Access(Space.ACC, acc, True))


def _alu(i: Alu) -> tuple[Access, ...]:
    loops = (i.n0, i.src_0), (i.n1, i.src_1), (i.n2, i.src_2)
    accesses: list[Access] = []
    if i.source == Source.ACC:
        accesses.append(Access(Space.ACC, spread(i.src, *loops), False))
    else:
        rows = spread(i.src, *loops, (i.n_ky, i.src_ky), (i.n_kx, i.src_kx))
        accesses.append(Access(Space.VIN, rows, False))
    if i.add:
        rows = spread(i.vin, (i.n0, i.vin_0), (i.n1, i.vin_1), (i.n2, i.vin_2))
        accesses.append(Access(Space.VIN, rows, False))
    if i.scale:
        accesses.append(Access(Space.PRM, spread(i.prm, (i.n0, i.prm_0)), False))
    if i.lut:
        accesses.append(Access(Space.LUT, np.zeros(1, np.int64), False))
    rows = spread(i.dst, (i.n0, i.dst_0), (i.n1, i.dst_1), (i.n2, i.dst_2))
    accesses.append(Access(Space.OUT, rows, True))
    return tuple(accesses)
