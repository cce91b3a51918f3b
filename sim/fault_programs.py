"""Programs that must fail, each in one known way, for the tests of every device."""

from dataclasses import dataclass

from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.program import Program
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import Alu, Buffer, Finish, Gemm, Instruction, Load, Source, Store

_DATA_BYTES = 8192


@dataclass(frozen=True)
class Fault:
    """A program, what the device must report, and at which instruction it stops."""

    code: ErrorCode
    program: Program
    index: int = 1


def small_program(config: AccelConfig, *instructions: Instruction) -> Program:
    """``instructions`` behind 8 KiB of data."""
    return Program(
        config=config,
        instructions=instructions,
        instructions_address=_DATA_BYTES,
        memory_bytes=_DATA_BYTES + len(instructions) * INSTRUCTION_BYTES,
        constants=((0, bytes(range(256)) * (_DATA_BYTES // 256)),),
    )


def _beyond_rows(c: AccelConfig) -> dict[str, Instruction]:
    second = {"second vin": Alu(source=Source.VIN, add=1, vin=c.vin_rows)} if c.add else {}
    return {
        **second,
        "inp": Gemm(inp=c.inp_rows - 1, n_x=2, inp_x=1),
        "inp wraps": Gemm(inp=0, n_x=2, inp_x=0xFFFF),
        "inp in window": Gemm(window=1, inp=c.inp_rows - 1, n_x=2, inp_x=1, first=3),
        "wgt": Gemm(wgt=c.wgt_rows - 2, n_k0=3, wgt_k0=1),
        "acc": Gemm(acc=c.acc_rows),
        "acc of alu": Alu(source=Source.ACC, scale=1, src=c.acc_rows),
        "vin": Alu(source=Source.VIN, src=c.vin_rows - 1, n_kx=2, src_kx=1),
        "prm": Alu(source=Source.ACC, scale=1, prm=c.prm_rows - 1, n0=2, prm_0=1),
        "out": Alu(source=Source.VIN, dst=c.out_rows - 1, n2=2, dst_2=1),
        "out of store": Store(row=c.out_rows - 1, n0=2),
        "loaded": Load(buffer=Buffer.INP, row=c.inp_rows - 1, n0=2),
        "padded": Load(buffer=Buffer.VIN, row=c.vin_rows - 1, pad_bottom=1),
    }


def _beyond_memory() -> dict[str, Instruction]:
    return {
        "load address": Load(buffer=Buffer.INP, dram=1 << 20),
        "load end": Load(buffer=Buffer.INP, dram=_DATA_BYTES, n1=2, stride1=1 << 31),
        "load alignment": Load(buffer=Buffer.INP, dram=1),
        "store address": Store(dram=0, n1=2, stride1=1 << 20),
        "store alignment": Store(dram=2),
    }


def _illegal_fields(c: AccelConfig) -> dict[str, Instruction]:
    return {
        "buffer": Load(buffer=7),
        "pads of weights": Load(buffer=Buffer.WGT, pad_left=1),
        "two tables": Load(buffer=Buffer.LUT, n0=2),
        "taps": Gemm(window=1, first=c.block_in, n_t=2),
        "no taps": Gemm(window=1, first=0),
        "no step": Gemm(window=1, step=0),
        "acc unscaled": Alu(source=Source.ACC),
        "window of acc": Alu(source=Source.ACC, scale=1, n_kx=2),
        "empty window": Alu(source=Source.VIN, n_kx=0),
    }


def fault_programs(config: AccelConfig) -> dict[str, Fault]:
    """One program per fault, named after what is wrong; ``config`` has the window mode."""
    first = Load(buffer=Buffer.INP)
    named: dict[str, Fault] = {}
    for code, instructions in (
        (ErrorCode.ROW_OUT_OF_RANGE, _beyond_rows(config)),
        (ErrorCode.ADDRESS_OUT_OF_RANGE, _beyond_memory()),
        (ErrorCode.ILLEGAL_FIELD, _illegal_fields(config)),
    ):
        for name, instruction in instructions.items():
            named[name] = Fault(code, small_program(config, first, instruction, Finish()))
    named["missing token"] = Fault(
        ErrorCode.WATCHDOG, small_program(config, first, Gemm(wait=1), Finish())
    )
    named["missing finish"] = Fault(ErrorCode.MISSING_FINISH, small_program(config, first))
    return named


def damaged_words() -> dict[str, bytes]:
    """Encodings no encoder makes: each must be reported as ILLEGAL_INSTRUCTION."""

    def word(value: int) -> bytes:
        return value.to_bytes(INSTRUCTION_BYTES, "little")

    return {
        "erased memory": word(0),
        "unknown opcode": word(0xF),
        "reserved bit of the header": word(1 | 1 << 12),
        "reserved bit at the end": word(2 | 1 << 511),
        "own unit in wait": word(1 | 1 << 4),
        "own unit in signal": word(4 | 8 << 8),
        "finish that waits": word(5 | 1 << 4),
        "finish that signals": word(5 | 2 << 8),
    }
