"""From kernel calls to machine code: one module, one relocatable object, linked into the process."""

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ll

from accelc.compiler.cpu.arena import Location
from accelc.compiler.cpu.ir import I8, I64, POINTER, Kernel
from accelc.compiler.cpu.plan import KernelCall, Plan
from accelc.compiler.cpu.target import Target, initialize

#: C type of a segment: ``void f(const void **inputs, void **outputs, void *arena, const void *constants)``.
SEGMENT_SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
PREFIX = "accelc_segment_"


def build_module(
    plan: Plan,
    segments: Sequence[Sequence[KernelCall]],
    locations: Mapping[str, Location],
    target: Target,
) -> ll.Module:
    """One function for each distinct kernel, and one entry for each segment that calls them in order."""
    module = ll.Module(name=plan.graph.name or "accelc")
    module.triple = target.triple
    kernels: dict[Hashable, ll.Function] = {}
    for number, calls in enumerate(segments):
        entry = ll.Function(
            module, ll.FunctionType(ll.VoidType(), [POINTER] * 4), f"{PREFIX}{number}"
        )
        b = ll.IRBuilder(entry.append_basic_block("entry"))
        inputs, outputs, arena, constants = entry.args
        cache: dict[Location, ll.Value] = {}

        def pointer(name: str) -> ll.Value:
            location = locations[plan.root(name)]
            if location not in cache:
                offset = ll.Constant(I64, location.offset)
                if location.place in ("input", "output"):
                    table = inputs if location.place == "input" else outputs
                    slot = b.gep(table, [offset], source_etype=POINTER)
                    cache[location] = b.load(slot, typ=POINTER)
                else:
                    base = arena if location.place == "arena" else constants
                    cache[location] = b.gep(base, [offset], source_etype=I8)
            return cache[location]

        for call in calls:
            function = kernels.get(call.key)
            if function is None:
                name = f"k{len(kernels)}_{call.emit.__name__}"
                kernel = Kernel(module, name, len(call.reads) + len(call.writes), target)
                call.emit(kernel, call.params)
                kernel.finish()
                function = kernels[call.key] = kernel.function
            b.call(function, [pointer(name) for name in (*call.reads, *call.writes)])
        b.ret_void()
    return module


def compile_object(module: ll.Module, target: Target) -> bytes:
    """Relocatable object code of ``module``."""
    machine = target.machine()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    builder = llvm.create_pass_builder(machine, llvm.PipelineTuningOptions(speed_level=0))
    passes = llvm.create_new_function_pass_manager()
    passes.add_instruction_combine_pass()
    passes.add_new_gvn_pass()
    passes.add_simplify_cfg_pass()
    for function in parsed.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return machine.emit_object(parsed)


class LoadedObject:
    """An object linked into this process; its functions stay callable while this lives."""

    def __init__(self, image: bytes, segments: int, name: str) -> None:
        initialize()
        self._jit: Any = llvm.create_lljit_compiler(use_jit_link=True)
        library = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
        names = [f"{PREFIX}{number}" for number in range(segments)]
        for symbol in names:
            library.export_symbol(symbol)
        self._tracker: Any = library.link(self._jit, name)
        self.functions: list[Callable[..., None]] = [
            SEGMENT_SIGNATURE(self._tracker[symbol]) for symbol in names
        ]
