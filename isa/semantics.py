"""What every instruction does, in NumPy: the living definition all executors are held to.

Written to be read against the docstrings of ``spec``, one loop nest as one array of row numbers.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.isa.config import LUT_ENTRIES, AccelConfig
from accelc.isa.errors import AddressError, EncodingError, RowRangeError
from accelc.isa.legality import field_faults
from accelc.isa.spec import Alu, Buffer, Finish, Gemm, Instruction, Load, Source, Store

Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Rows = NDArray[np.int64]

#: dtype of one ``prm`` lane entry as it lies in memory: 32 bits bias, then 24 bits multiplier and
#: 6 bits shift.
PRM_DTYPE = np.dtype([("bias", "<i4"), ("scale", "<u4")])


@dataclass
class State:
    """Architectural state: memory and scratchpads. ``memory`` is ``(bytes,)`` uint8."""

    config: AccelConfig
    memory: NDArray[np.uint8]
    seed: int | None = None
    inp: Int8 = field(init=False)
    wgt: Int8 = field(init=False)
    acc: Int32 = field(init=False)
    vin: Int8 = field(init=False)
    out: Int8 = field(init=False)
    prm: NDArray[Any] = field(init=False)
    lut: Int8 = field(init=False)

    def __post_init__(self) -> None:
        c = self.config
        # Scratchpads power up with anything: a seed makes "anything" repeatable noise.
        rng = np.random.default_rng(self.seed)

        def noise(*shape: int) -> Int8:
            return np.frombuffer(rng.bytes(int(np.prod(shape))), np.int8).reshape(shape).copy()

        self.inp = noise(c.inp_rows, c.batch, c.block_in)
        self.wgt = noise(c.wgt_rows, c.block_out, c.block_in)
        self.acc = noise(c.acc_rows, c.batch, c.block_out * 4).view(np.int32)
        self.vin = noise(c.vin_rows, c.vec_inp_rows, c.batch, c.block_in)
        self.out = noise(c.out_rows, c.vec_inp_rows, c.batch, c.block_in)
        self.prm = noise(c.prm_rows, c.block_out * 8).view(PRM_DTYPE)
        self.lut = noise(1, LUT_ENTRIES)

    def buffer(self, buffer: Buffer) -> NDArray[np.uint8]:
        """The scratchpad as ``(rows, row_bytes)`` uint8, a view."""
        array: NDArray[Any] = getattr(self, buffer.name.lower())
        return array.reshape(array.shape[0], -1).view(np.uint8)


def affine(base: int, *loops: tuple[int, int]) -> Rows:
    """Row numbers of a loop nest, shape ``(count of each loop...)``, modulo 2^16."""
    rows = np.full((1,) * len(loops), base, np.int64)
    for axis, (count, stride) in enumerate(loops):
        shape = [1] * len(loops)
        shape[axis] = count
        rows = rows + (np.arange(count, dtype=np.int64) * stride).reshape(shape)
    return rows & 0xFFFF


def _check_rows(rows: Rows, depth: int, what: str) -> Rows:
    if rows.size and int(rows.max()) >= depth:
        raise RowRangeError(f"{what} row {int(rows.max())} is beyond the scratchpad's {depth} rows")
    return rows


def memory_runs(i: Load | Store, row_bytes: int) -> Rows:
    """Byte addresses of the rows a LOAD or STORE moves, shape ``(n2, n1, n0)``."""
    i2 = np.arange(i.n2, dtype=np.int64)[:, None, None] * i.stride2
    i1 = np.arange(i.n1, dtype=np.int64)[None, :, None] * i.stride1
    i0 = np.arange(i.n0, dtype=np.int64)[None, None, :] * row_bytes
    return i.dram + i2 + i1 + i0


def load_rows(i: Load) -> tuple[Rows, Rows, int]:
    """Scratchpad rows a LOAD copies to ``(n2, n1, n0)``, rows it pads, one past its last row."""
    run = i.n1 * i.n0
    pitch = i.pad_left + run + i.pad_right
    first = i.row + i.pad_top + i.pad_left
    data = first + np.arange(i.n2)[:, None] * pitch + np.arange(run)[None, :]
    end = i.row + i.pad_top + i.n2 * pitch + i.pad_bottom
    pads = np.setdiff1d(np.arange(i.row, end), data.reshape(-1), assume_unique=True)
    return data.reshape(i.n2, i.n1, i.n0).astype(np.int64), pads, end


def _check_addresses(addresses: Rows, row_bytes: int, s: State, what: str) -> None:
    if not addresses.size:
        return
    end = int(addresses.max()) + row_bytes
    if end > s.memory.size:
        raise AddressError(f"{what} ends at address {end}, memory has {s.memory.size} bytes")
    if (addresses % s.config.bus_bytes).any():
        raise AddressError(
            f"{what} address is not a multiple of the bus width, {s.config.bus_bytes}"
        )


def load(i: Load, s: State) -> None:
    destination = s.buffer(Buffer(i.buffer))
    data, pads, end = load_rows(i)
    _check_rows(np.array([end - 1]), destination.shape[0], f"LOAD {Buffer(i.buffer).name.lower()}")
    row_bytes = destination.shape[1]
    addresses = memory_runs(i, row_bytes)
    _check_addresses(addresses, row_bytes, s, "LOAD")
    if addresses.size:
        source = np.lib.stride_tricks.sliding_window_view(s.memory, row_bytes)
        destination[data.reshape(-1)] = source[addresses.reshape(-1)]
    destination[pads] = np.uint8(i.pad_value & 0xFF)


def store(i: Store, s: State) -> None:
    source = s.out.reshape(s.config.out_rows, -1).view(np.uint8)
    addresses = memory_runs(i, source.shape[1]).reshape(-1)
    _check_addresses(addresses, source.shape[1], s, "STORE")
    rows = _check_rows(i.row + np.arange(addresses.size), s.config.out_rows, "STORE out")
    s.memory[addresses[:, None] + np.arange(source.shape[1])] = source[rows]


def gemm_tiles(i: Gemm) -> tuple[Rows, Rows, Rows]:
    """First input row, weight tile and first accumulator row per ``(n_o, n_k0, n_k1, n_k2)``."""
    inp = affine(
        i.inp, (i.n_o, i.inp_o), (i.n_k0, i.inp_k0), (i.n_k1, i.inp_k1), (i.n_k2, i.inp_k2)
    )
    wgt = affine(
        i.wgt, (i.n_o, i.wgt_o), (i.n_k0, i.wgt_k0), (i.n_k1, i.wgt_k1), (i.n_k2, i.wgt_k2)
    )
    acc = affine(i.acc, (i.n_o, i.acc_o))
    return inp, wgt, acc


def firing_columns(i: Gemm) -> Rows:
    """Window mode: the columns after which the array fires."""
    return np.arange(i.first - 1, i.n_x, i.step, dtype=np.int64)


def gemm(i: Gemm, s: State) -> None:
    c = s.config
    if 0 in (i.n_o, i.n_k0, i.n_k1, i.n_k2, i.n_y, i.n_x):
        return
    inp, wgt, acc = gemm_tiles(i)
    _check_rows(wgt, c.wgt_rows, "GEMM wgt")
    taps = i.first * i.n_t
    lane = np.arange(c.block_out) % c.block_in
    if i.window:
        fires = firing_columns(i)
        # window[j] at a firing is the row read j rows earlier in (column, t) order
        back = np.arange(taps)
        columns = fires[:, None] - back // i.n_t
        within = i.n_t - 1 - back % i.n_t
        read = affine(0, (i.n_y, i.inp_y))[:, None, None] + columns * i.inp_x + within * i.inp_t
        _check_rows(
            (
                inp[..., None, None, None]
                + affine(0, (i.n_y, i.inp_y), (i.n_x, i.inp_x), (i.n_t, i.inp_t))
            )
            & 0xFFFF,
            c.inp_rows,
            "GEMM inp",
        )
        written = affine(0, (i.n_y, i.acc_y), (fires.size, i.acc_x)).reshape(-1)
    else:
        read = affine(0, (i.n_y, i.inp_y), (i.n_x, i.inp_x)).reshape(-1)
        written = affine(0, (i.n_y, i.acc_y), (i.n_x, i.acc_x)).reshape(-1)
    for io in range(i.n_o):
        destination = _check_rows((acc[io] + written) & 0xFFFF, c.acc_rows, "GEMM acc")
        for k in np.ndindex(i.n_k0, i.n_k1, i.n_k2):
            rows = (inp[(io, *k)] + read) & 0xFFFF
            weights = s.wgt[wgt[(io, *k)]].astype(np.int32)
            if i.window:
                # (p, tap, batch, block_out)
                x = s.inp[rows.reshape(-1, taps)][..., lane].astype(np.int32)
                products = np.einsum("ptbo,ot->pbo", x, weights[:, :taps])
            else:
                x = s.inp[_check_rows(rows, c.inp_rows, "GEMM inp")].astype(np.float32)
                # exact: block_in * 2^14 is far below 2^24
                products = (x @ weights.T.astype(np.float32)).astype(np.int32)
            if not i.accumulate and not any(k):
                # a row named twice keeps the last, as in the loop nest
                s.acc[destination] = products
            else:
                np.add.at(s.acc, destination, products)


def round_shift(value: NDArray[np.int64], shift: Any, parity: Any = 0) -> NDArray[np.int64]:
    """``value / 2**shift`` rounded half to even; odd ``parity`` makes it half to odd."""
    # |value| is below 2^61: a shift by 63 gives 0 just as one by 62 does, which fits int64.
    shift = np.minimum(np.asarray(shift, np.int64), 62)
    floor = value >> shift
    rest = value - (floor << shift)
    twice = rest << 1
    one = np.int64(1) << shift
    up = (twice > one) | ((twice == one) & ((floor + parity) & 1 == 1))
    return np.where(shift == 0, value, floor + up)


def split_params(prm: NDArray[Any]) -> tuple[Int32, NDArray[np.int64], NDArray[np.int64]]:
    """``bias``, ``mult`` and ``shift`` of prm entries."""
    return (
        prm["bias"],
        (prm["scale"] & 0xFFFFFF).astype(np.int64),
        (prm["scale"] >> 24 & 0x3F).astype(np.int64),
    )


def alu(i: Alu, s: State) -> None:
    c = s.config
    if 0 in (i.n0, i.n1, i.n2):
        return
    src = affine(i.src, (i.n0, i.src_0), (i.n1, i.src_1), (i.n2, i.src_2))
    dst = affine(i.dst, (i.n0, i.dst_0), (i.n1, i.dst_1), (i.n2, i.dst_2))
    _check_rows(dst, c.out_rows, "ALU out")

    def lanes(rows: NDArray[np.int8]) -> NDArray[np.int64]:
        """``(..., block_out/block_in, batch, block_in)`` to ``(..., batch, block_out)``."""
        moved = np.moveaxis(rows, -3, -2)
        return moved.reshape(*moved.shape[:-2], c.block_out).astype(np.int64)

    if i.source == Source.ACC:
        x = s.acc[_check_rows(src, c.acc_rows, "ALU acc")].astype(np.int64)
    else:
        window = affine(0, (i.n_ky, i.src_ky), (i.n_kx, i.src_kx))
        rows = (src[..., None, None] + window) & 0xFFFF
        x = lanes(s.vin[_check_rows(rows, c.vin_rows, "ALU vin")]).max(axis=(3, 4))
    if i.scale:
        rows = _check_rows(affine(i.prm, (i.n0, i.prm_0)), c.prm_rows, "ALU prm")
        bias, mult, shift = (p[:, None, None, None, :] for p in split_params(s.prm[rows]))
        value = (x + bias).astype(np.int32).astype(np.int64) * mult
        x = round_shift(value, shift, i.a_zero if i.a_inside else 0) + i.a_zero
    x = np.clip(x, i.a_min, i.a_max)
    if i.add:
        rows = affine(i.vin, (i.n0, i.vin_0), (i.n1, i.vin_1), (i.n2, i.vin_2))
        v = lanes(s.vin[_check_rows(rows, c.vin_rows, "ALU vin")])
        x = round_shift(x * i.m1 + v * i.m2 + i.offset, i.b_shift) + i.b_zero
        x = np.clip(x, i.b_min, i.b_max)
    if i.lut:
        x = s.lut[0][x + 128].astype(np.int64)
    narrow = x.astype(np.int8).reshape(*x.shape[:-1], c.vec_inp_rows, c.block_in)
    s.out[dst] = np.moveaxis(narrow, -2, -3)


def execute(instruction: Instruction, state: State) -> None:
    """Apply one instruction's whole effect to ``state``.

    Raises:
        EncodingError: a row, address or combination of fields the hardware would report.
    """
    for fault in field_faults(instruction, state.config):
        raise EncodingError(f"{instruction.opcode.name}: {fault}")
    match instruction:
        case Load():
            load(instruction, state)
        case Gemm():
            gemm(instruction, state)
        case Alu():
            alu(instruction, state)
        case Store():
            store(instruction, state)
        case Finish():
            pass
        case _:
            raise EncodingError(f"{type(instruction).__name__} has no meaning")
