"""Which rows and bytes an instruction reads and writes, and the tokens that order them.

This is the random generator's own account, independent of the compiler's verifier: two accounts
that agree say more than one that is shared.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from accelc.isa.config import AccelConfig
from accelc.isa.semantics import Rows, affine, firing_columns, gemm_tiles, load_rows, memory_runs
from accelc.isa.spec import Alu, Buffer, Finish, Gemm, Instruction, Load, Source, Store, Unit


class Space(enum.Enum):
    """A memory instructions share: a scratchpad in rows, or ``MEMORY`` in bus words."""

    INP = "inp"
    WGT = "wgt"
    PRM = "prm"
    VIN = "vin"
    LUT = "lut"
    ACC = "acc"
    OUT = "out"
    MEMORY = "memory"


def depth(config: AccelConfig, space: Space) -> int:
    """Rows of a scratchpad."""
    return 1 if space is Space.LUT else getattr(config, f"{space.value}_rows")


@dataclass(frozen=True)
class Effects:
    """Sorted unique row numbers per space."""

    reads: dict[Space, Rows]
    writes: dict[Space, Rows]

    def conflicts(self, later: "Effects") -> bool:
        """Whether ``later`` must not start before this is done."""
        for mine, theirs in (
            (self.writes, later.reads),
            (self.reads, later.writes),
            (self.writes, later.writes),
        ):
            for space, rows in mine.items():
                if space in theirs and np.intersect1d(rows, theirs[space], True).size:
                    return True
        return False


def _words(addresses: Rows, nbytes: int, config: AccelConfig) -> Rows:
    bus = config.bus_bytes
    return np.unique((addresses.reshape(-1, 1) // bus) + np.arange(nbytes // bus))


def _gemm(i: Gemm, config: AccelConfig) -> Effects:
    inp, wgt, acc = gemm_tiles(i)
    if i.window:
        read = affine(0, (i.n_y, i.inp_y), (i.n_x, i.inp_x), (i.n_t, i.inp_t))
        written = affine(0, (i.n_y, i.acc_y), (firing_columns(i).size, i.acc_x))
    else:
        read = affine(0, (i.n_y, i.inp_y), (i.n_x, i.inp_x))
        written = affine(0, (i.n_y, i.acc_y), (i.n_x, i.acc_x))
    sources = np.unique((inp.reshape(-1, 1) + read.reshape(1, -1)) & 0xFFFF)
    targets = np.unique((acc.reshape(-1, 1) + written.reshape(1, -1)) & 0xFFFF)
    reads = {Space.INP: sources, Space.WGT: np.unique(wgt)}
    if i.accumulate:
        reads[Space.ACC] = targets
    return Effects(reads, {Space.ACC: targets})


def _alu(i: Alu) -> Effects:
    source = affine(
        i.src,
        (i.n0, i.src_0),
        (i.n1, i.src_1),
        (i.n2, i.src_2),
        (i.n_ky, i.src_ky),
        (i.n_kx, i.src_kx),
    )
    first = Space.ACC if i.source == Source.ACC else Space.VIN
    reads = {first: np.unique(source)}
    if i.add:
        second = affine(i.vin, (i.n0, i.vin_0), (i.n1, i.vin_1), (i.n2, i.vin_2))
        reads[Space.VIN] = np.unique(np.append(reads.get(Space.VIN, np.zeros(0, int)), second))
    if i.scale:
        reads[Space.PRM] = np.unique(affine(i.prm, (i.n0, i.prm_0)))
    if i.lut:
        reads[Space.LUT] = np.zeros(1, np.int64)
    written = affine(i.dst, (i.n0, i.dst_0), (i.n1, i.dst_1), (i.n2, i.dst_2))
    return Effects(reads, {Space.OUT: np.unique(written)})


def effects(instruction: Instruction, config: AccelConfig) -> Effects:
    """Everything ``instruction`` reads from outside itself, and everything it writes."""
    match instruction:
        case Load():
            buffer = Buffer(instruction.buffer)
            nbytes = config.row_bytes(buffer)
            _, _, end = load_rows(instruction)
            memory = _words(memory_runs(instruction, nbytes), nbytes, config)
            rows = np.arange(instruction.row, end, dtype=np.int64)
            return Effects({Space.MEMORY: memory}, {Space(buffer.name.lower()): rows})
        case Gemm():
            return _gemm(instruction, config)
        case Alu():
            return _alu(instruction)
        case Store():
            addresses = memory_runs(instruction, config.vec_row_bytes)
            rows = instruction.row + np.arange(addresses.size, dtype=np.int64)
            memory = _words(addresses, config.vec_row_bytes, config)
            return Effects({Space.OUT: rows}, {Space.MEMORY: memory})
        case _:
            return Effects({}, {})


def synchronise(
    instructions: Sequence[Instruction],
    config: AccelConfig,
    rng: np.random.Generator,
    extra: float = 0.0,
) -> tuple[Instruction, ...]:
    """Set the masks so that conflicting instructions of different units run in program order.

    Tokens are counted, so the k-th wait on a unit meets its k-th signal: a wait is placed only
    where no earlier one covers the conflict, and takes the token of the youngest conflicting
    instruction. With probability ``extra`` an instruction also waits where it need not.
    """
    footprints = [effects(i, config) for i in instructions]
    wait, signal = [0] * len(instructions), [0] * len(instructions)
    covered = {(a, b): -1 for a in Unit for b in Unit}
    for index, instruction in enumerate(instructions):
        unit = instruction.unit
        if unit is None:
            continue
        for other in Unit:
            if other == unit:
                continue
            earlier = [
                e for e in range(covered[other, unit] + 1, index) if instructions[e].unit == other
            ]
            need = [e for e in earlier if footprints[e].conflicts(footprints[index])]
            if not need and earlier and rng.random() < extra:
                need = [int(rng.choice(earlier))]
            if need:
                last = need[-1]
                covered[other, unit] = last
                signal[last] |= 1 << unit
                wait[index] |= 1 << other
    return tuple(
        instruction if isinstance(instruction, Finish) else replace(instruction, wait=w, signal=s)
        for instruction, w, s in zip(instructions, wait, signal, strict=True)
    )
