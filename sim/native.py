"""Native code for the functional device: one LLVM module per configuration.

The generated ``run`` walks a descriptor table (``sim.descriptors``) and executes every instruction
by the loop nests of ``isa.spec``, with the block sizes as constants, so that a row of accumulators
is one vector. It stops at the first instruction that touches a row or address out of range.
"""

import ctypes
import functools
from collections.abc import Callable

import numpy as np
from llvmlite import binding, ir

from accelc.isa.config import AccelConfig
from accelc.isa.semantics import State
from accelc.isa.spec import Buffer, Opcode
from accelc.sim.descriptors import OPCODE, WIDTH, Descriptors
from accelc.sim.native_alu import emit_alu
from accelc.sim.native_gemm import emit_gemm
from accelc.sim.native_ir import (
    ACC,
    BUFFER_TABLE,
    I64,
    MEMORY,
    MEMORY_BYTES,
    OUT,
    POINTER,
    Kernel,
    kernel,
)
from accelc.sim.native_move import emit_load, emit_store

_EMIT: dict[Opcode, Callable[[Kernel], None]] = {
    Opcode.LOAD: emit_load,
    Opcode.GEMM: emit_gemm,
    Opcode.ALU: emit_alu,
    Opcode.STORE: emit_store,
}


def _emit_run(module: ir.Module, kernels: dict[Opcode, ir.Function]) -> None:
    """``i64 run(table, first, count, state)``: index of the instruction that failed, or count."""
    function = ir.Function(module, ir.FunctionType(I64, [POINTER, I64, I64, POINTER]), "run")
    table, first, count, state = function.args
    entry, head, body, after, done = (
        function.append_basic_block(name) for name in ("entry", "head", "body", "next", "done")
    )
    builder = ir.IRBuilder(entry)
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(I64, "index")
    index.add_incoming(first, entry)
    builder.cbranch(builder.icmp_signed("<", index, count), body, done)
    builder.position_at_end(body)
    row = builder.gep(table, [builder.mul(index, I64(WIDTH))], source_etype=I64)
    opcode = builder.load(builder.gep(row, [I64(OPCODE)], source_etype=I64), "opcode", typ=I64)
    switch = builder.switch(opcode, after)
    for number, callee in kernels.items():
        block = function.append_basic_block(number.name.lower())
        switch.add_case(I64(int(number)), block)
        builder.position_at_end(block)
        ok = builder.call(callee, [row, state])
        builder.cbranch(ok, after, done)
    builder.position_at_end(after)
    index.add_incoming(builder.add(index, I64(1)), after)
    builder.branch(head)
    builder.position_at_end(done)
    builder.ret(index)


def build_module(config: AccelConfig) -> str:
    """LLVM assembly of the whole interpreter for ``config``."""
    module = ir.Module(f"functional_{config.name}")
    kernels: dict[Opcode, ir.Function] = {}
    for opcode, emit in _EMIT.items():
        context = kernel(module, config, opcode)
        emit(context)
        context.finish()
        kernels[opcode] = context.function
    _emit_run(module, kernels)
    return str(module)


class NativeCode:
    """The compiled interpreter of one configuration."""

    def __init__(self, config: AccelConfig) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(
            cpu=binding.get_host_cpu_name(),
            features=binding.get_host_cpu_features().flatten(),
            opt=2,
        )
        module = binding.parse_assembly(build_module(config))
        module.verify()
        passes = binding.create_pass_builder(
            machine, binding.create_pipeline_tuning_options(speed_level=2)
        )
        passes.getModulePassManager().run(module, passes)
        self._config = config
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self._run = ctypes.CFUNCTYPE(
            ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        )(self._engine.get_function_address("run"))

    def run(self, descriptors: Descriptors, state: State) -> int:
        """Execute all of ``descriptors``; return how many instructions went well."""
        table = np.ascontiguousarray(descriptors.table)
        # The table keeps raw addresses: the arrays of ``state`` outlive the call below.
        addresses = np.zeros(BUFFER_TABLE + 3 * len(Buffer), np.int64)
        addresses[MEMORY] = state.memory.ctypes.data
        addresses[MEMORY_BYTES] = state.memory.size
        addresses[ACC] = state.acc.ctypes.data
        addresses[OUT] = state.out.ctypes.data
        for buffer in Buffer:
            array = state.buffer(buffer)
            at = BUFFER_TABLE + 3 * buffer
            addresses[at : at + 3] = array.ctypes.data, array.shape[1], array.shape[0]
        return self._run(table.ctypes.data, 0, len(descriptors), addresses.ctypes.data)


@functools.cache
def native_code(config: AccelConfig) -> NativeCode:
    """Compile the interpreter of ``config`` once per process."""
    return NativeCode(config)
