"""Where everything of a compiled graph is: values, constants, segments of native code."""

import hashlib

import llvmlite.ir as ll
import numpy as np

from accelc.compiler.cpu.arena import Location, lifetimes
from accelc.compiler.cpu.fallback import in_memory
from accelc.compiler.cpu.jit import build_module, compile_object
from accelc.compiler.cpu.lower import lower_graph
from accelc.compiler.cpu.plan import HostCall, KernelCall, copy
from accelc.compiler.cpu.target import Target, host_target
from accelc.compiler.graph import Array, Graph
from accelc.compiler.memory_plan import ALIGNMENT_BYTES, MemoryPlan, aligned, plan_memory
from accelc.compiler.onnx_weights import release

#: Smaller constants are copied into one image.
POINTED_BYTES = 1 << 16


def aligned_buffer(size: int) -> Array:
    """``(size,)`` uint8 that starts on a cache line."""
    raw = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[start : start + size]


class Layout:
    """The plan of a graph with a place for every value, split in native segments.

    Large constants stay where they are, and code finds their addresses behind those of the inputs;
    with ``whole`` they are in the constants' image, for code that is to run elsewhere.

    Members:
        program: in order, a segment's number or ``(step number, HostCall)``.
        weights: the constants that stay where they are, in the order of their addresses.
    """

    def __init__(self, graph: Graph, target: Target, *, whole: bool = False) -> None:
        self.target = target
        self.whole = whole
        self.plan = lower_graph(graph, target)
        self.locations: dict[str, Location] = {}
        self._place_ends()
        self.segments: list[list[KernelCall]] = []
        self.program: list[int | tuple[int, HostCall]] = []
        native = False
        for number, step in enumerate(self.plan.steps):
            if isinstance(step, HostCall):
                self.program.append((number, step))
                native = False
                continue
            if not native:
                self.program.append(len(self.segments))
                self.segments.append([])
                native = True
            self.segments[-1].append(step)
        values = [
            v for v in lifetimes(self.plan, self.locations) if in_memory(self.plan.types[v.name])
        ]
        self.memory = plan_memory(values)
        self.arena_bytes = self.memory.peak_bytes
        for name, offset in self.memory.addresses.items():
            self.locations[name] = Location("arena", offset)

    def _place_ends(self) -> None:
        """Inputs, outputs, constants; outputs that share bytes with something else get a copy."""
        plan, graph = self.plan, self.plan.graph
        for number, name in enumerate(graph.inputs):
            self.locations[name] = Location("input", number)
        for number, name in enumerate(graph.outputs):
            root = plan.root(name)
            if not in_memory(plan.types[name]):
                continue
            if root in self.locations or root in plan.constants:
                # an input, a constant, or already another output
                plan.types[f"%out{number}"] = plan.types[name]
                self.locations[f"%out{number}"] = Location("output", number)
                copy(plan, name, f"%out{number}")
            else:
                self.locations[root] = Location("output", number)
        offset = 0
        self._images: list[tuple[int, Array]] = []
        self.weights: list[Array] = []
        known: dict[tuple[object, ...], Location] = {}
        used = {plan.root(name) for step in plan.steps for name in step.reads}
        for name in sorted(used & plan.constants.keys()):
            array = np.ascontiguousarray(plan.constants[name])
            if array.dtype.kind in "OUS":
                continue
            if array.nbytes >= POINTED_BYTES and not self.whole:
                place = ("weight", array.ctypes.data, array.nbytes)
                if place not in known:
                    known[place] = Location("input", len(graph.inputs) + len(self.weights))
                    self.weights.append(array if array.flags.aligned else array.copy())
                    release(array)
                self.locations[name] = known[place]
                continue
            key = (array.dtype.str, array.tobytes())
            if key not in known:
                known[key] = Location("constant", offset)
                self._images.append((offset, array))
                offset += aligned(max(1, array.nbytes))
            self.locations[name] = known[key]
        self.constant_bytes = offset

    def constants_image(self) -> Array:
        """All constants, ``(bytes,)`` uint8."""
        image = aligned_buffer(max(ALIGNMENT_BYTES, self.constant_bytes))
        image[:] = 0
        for offset, array in self._images:
            image[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
        return image

    def compile(self) -> bytes:
        """Relocatable object code of every segment."""
        return compile_object(self.module(), self.target)

    def module(self) -> ll.Module:
        """LLVM code of every segment."""
        return build_module(
            self.plan, self.segments, self.locations, self.target, self.fingerprint()
        )

    def fingerprint(self) -> str:
        """What code must agree with: processor, kernels, where every value is."""
        calls = [
            (call.emit.__name__, call.params, [self.locations[self.plan.root(n)] for n in names])
            for segment in self.segments
            for call in segment
            for names in [(*call.reads, *call.writes)]
        ]
        text = repr((self.target, self.arena_bytes, self.constant_bytes, calls))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def arena_plan(graph: Graph) -> MemoryPlan:
    """How the values of ``graph``, all of known shape, share the arena on this processor."""
    return Layout(graph, host_target()).memory
