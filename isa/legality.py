"""Combinations of fields an instruction must not have: the hardware says ILLEGAL_FIELD."""

from collections.abc import Iterator

from accelc.isa.config import AccelConfig
from accelc.isa.spec import Alu, Buffer, Gemm, Instruction, Load, Source


def field_faults(i: Instruction, config: AccelConfig) -> Iterator[str]:
    """What is wrong with ``i`` on a device of ``config``, each fault with its remedy."""
    match i:
        case Load():
            yield from _load_faults(i)
        case Gemm():
            if i.window and not config.window:
                yield "window mode in a configuration without it; set window"
            if i.window and not (i.first and i.n_t and i.step):
                yield "window mode needs first, n_t and step of at least 1"
            if i.window and i.first * i.n_t > config.block_in:
                yield (
                    f"a window of {i.first * i.n_t} rows exceeds block_in {config.block_in}; "
                    "split the kernel"
                )
        case Alu():
            if i.source == Source.ACC and not (i.scale and i.n_ky == i.n_kx == 1):
                yield "source acc needs scale and no window"
            if not (i.n_ky and i.n_kx):
                yield "the maximum's window needs at least one row"
            if i.add and not config.add:
                yield "add stage in a configuration without it; set add"
            if i.lut and not config.lut:
                yield "look-up in a configuration without a table; set lut"
        case _:
            pass


def _load_faults(i: Load) -> Iterator[str]:
    if i.buffer not in tuple(Buffer):
        yield f"buffer {i.buffer} is no scratchpad"
        return
    if i.pads and i.buffer not in (Buffer.INP, Buffer.VIN):
        yield f"{Buffer(i.buffer).name.lower()} can not be padded; only inp and vin can"
    if i.buffer == Buffer.LUT and (i.n0, i.n1, i.n2) != (1, 1, 1):
        yield "lut takes exactly one row"
