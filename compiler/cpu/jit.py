"""From kernel calls to machine code: one module, one object, linked into the process."""

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ll

from accelc.compiler.cpu.arena import Location
from accelc.compiler.cpu.ir import Kernel
from accelc.compiler.cpu.lanes import I8, I64, POINTER
from accelc.compiler.cpu.plan import KernelCall, Plan
from accelc.compiler.cpu.target import Target, initialize

#: C type of a segment: ``void f(const void **inputs, void **outputs, void *arena, const void
#: *constants)``.
SEGMENT_SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
PREFIX = "accelc_segment_"
#: Kernel calls in one function; LLVM's passes take more than linear time in what is longer.
CALLS_A_FUNCTION = 500
#: Followed by a fingerprint: a symbol that only objects of one layout and processor define.
BUILD_PREFIX = "accelc_build_"


class Pointers:
    """The addresses of values inside a segment's entry function, each computed once."""

    def __init__(self, entry: ll.Function, locations: Mapping[str, Location]) -> None:
        self.b = ll.IRBuilder(entry.append_basic_block("entry"))
        self._bases = dict(zip(("input", "output", "arena", "constant"), entry.args, strict=True))
        self._locations = locations
        self._known: dict[Location, ll.Value] = {}

    def of(self, root: str) -> ll.Value:
        location = self._locations[root]
        if location not in self._known:
            base, offset = self._bases[location.place], ll.Constant(I64, location.offset)
            if location.place in ("input", "output"):
                slot = self.b.gep(base, [offset], source_etype=POINTER)
                self._known[location] = self.b.load(slot, typ=POINTER)
            else:
                self._known[location] = self.b.gep(base, [offset], source_etype=I8)
        return self._known[location]


def build_module(
    plan: Plan,
    segments: Sequence[Sequence[KernelCall]],
    locations: Mapping[str, Location],
    target: Target,
    fingerprint: str,
) -> ll.Module:
    """One function a distinct kernel, and one entry a segment that calls them in order."""
    module = ll.Module(name="accelc")  # names of networks may hold anything
    module.triple = target.triple
    mark = ll.GlobalVariable(module, I8, BUILD_PREFIX + fingerprint)
    mark.global_constant = True
    mark.initializer = ll.Constant(I8, 1)
    kernels: dict[Hashable, ll.Function] = {}
    kind = ll.FunctionType(ll.VoidType(), [POINTER] * 4)
    for number, calls in enumerate(segments):
        name = f"{PREFIX}{number}"
        parts = [
            _part(kernels, plan, batch, locations, target, ll.Function(module, kind, f"{name}_{k}"))
            for k, batch in enumerate(batched(calls))
        ]
        entry = ll.Function(module, kind, name)
        builder = ll.IRBuilder(entry.append_basic_block("entry"))
        for part in parts:
            builder.call(part, entry.args)
        builder.ret_void()
    return module


def batched(calls: Sequence[KernelCall]) -> list[Sequence[KernelCall]]:
    """``calls`` in runs of ``CALLS_A_FUNCTION``."""
    starts = range(0, len(calls), CALLS_A_FUNCTION)
    return [calls[start : start + CALLS_A_FUNCTION] for start in starts]


def _part(
    kernels: dict[Hashable, ll.Function],
    plan: Plan,
    calls: Sequence[KernelCall],
    locations: Mapping[str, Location],
    target: Target,
    part: ll.Function,
) -> ll.Function:
    """``part`` with the calls of kernels as its body; kernels that are new are generated."""
    part.linkage = "internal"
    part.attributes.add("noinline")
    pointers = Pointers(part, locations)
    for call in calls:
        function = kernels.get(call.key)
        if function is None:
            name = f"k{len(kernels)}_{call.emit.__name__}"
            kernel = Kernel(part.module, name, len(call.reads) + len(call.writes), target)
            call.emit(kernel, call.params)
            kernel.finish()
            function = kernels[call.key] = kernel.function
        names = (*call.reads, *call.writes)
        pointers.b.call(function, [pointers.of(plan.root(name)) for name in names])
    pointers.b.ret_void()
    return part


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

    def __init__(self, image: bytes, segments: int, fingerprint: str, name: str) -> None:
        """Link ``image``.

        Raises:
            RuntimeError: it is no object, or one of another layout or processor.
        """
        initialize()
        self._jit: Any = llvm.create_lljit_compiler(use_jit_link=True)
        library = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
        names = [f"{PREFIX}{number}" for number in range(segments)]
        for symbol in (*names, BUILD_PREFIX + fingerprint):
            library.export_symbol(symbol)
        self._tracker: Any = library.link(self._jit, name)
        self.functions: list[Callable[..., None]] = [
            SEGMENT_SIGNATURE(self._tracker[symbol]) for symbol in names
        ]
