"""A graph compiled for the processor: native segments, reference nodes between them, one arena."""

import ctypes
import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import llvmlite.ir as ll
import numpy as np

from accelc.compiler.cpu import native_library
from accelc.compiler.cpu.arena import ALIGNMENT, Location, align, assign, lifetimes
from accelc.compiler.cpu.fallback import ReferenceNode, in_memory
from accelc.compiler.cpu.jit import LoadedObject, build_module, compile_object
from accelc.compiler.cpu.lower import lower_graph
from accelc.compiler.cpu.plan import KernelCall, ReferenceCall, copy
from accelc.compiler.cpu.target import Target, host_target
from accelc.compiler.graph import Array, Graph, TensorType
from accelc.isa.errors import ArtifactError, InputError, ModelError, UnsupportedOpError


def aligned_buffer(size: int) -> Array:
    """``(size,)`` uint8 that starts on a cache line."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


class CpuModule:
    """Executes one graph. Calls of ``run`` from several threads take turns.

    Members:
        reference_nodes: names of the nodes that run through ``onnx.reference``.
        arena_bytes: memory for all intermediate values.
    """

    def __init__(self, graph: Graph, object_code: bytes | None = None) -> None:
        """Compile ``graph``, or take the code from ``object_code`` that ``object_bytes`` once gave.

        Raises:
            UnsupportedOpError: a node has neither a kernel nor a reference implementation.
            ArtifactError: ``object_code`` does not load or belongs to another graph.
        """
        self.graph = graph
        self._target = host_target()
        self._layout = Layout(graph, self._target)
        layout = self._layout
        self._constants = layout.constants_image()
        self._references = {
            number: ReferenceNode(step.node, graph.opset)
            for number, step in enumerate(layout.plan.steps)
            if isinstance(step, ReferenceCall)
        }
        self.reference_nodes = [r.node.name for r in self._references.values()]
        self.arena_bytes = layout.arena_bytes
        self._object = object_code if object_code is not None else layout.compile(self._target)
        try:
            self._loaded = LoadedObject(
                self._object,
                len(layout.segments),
                layout.fingerprint(self._target),
                f"accelc_{id(self)}",
            )
        except RuntimeError as error:
            if object_code is None:
                raise
            raise ArtifactError(
                f"object code of {graph.name!r} is damaged or made for another processor or model"
                f" ({str(error).strip()}); compile the model again"
            ) from error
        self._arena = aligned_buffer(max(1, self.arena_bytes))
        self._lock = threading.Lock()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Values of the graph's outputs for ``inputs``, all of them by name.

        Raises:
            InputError: a name, shape or element type is not the graph's.
        """
        plan = self._layout.plan
        arrays = [self._checked(name, inputs) for name in self.graph.inputs]
        if len(inputs) != len(self.graph.inputs):
            extra = sorted(set(inputs) - set(self.graph.inputs))
            raise InputError(f"no input {extra[0]!r}; inputs are {list(self.graph.inputs)}")
        types = plan.types
        outputs = [
            np.empty(plan.shape(name), plan.dtype(name)) if in_memory(types[name]) else np.empty(0)
            for name in self.graph.outputs
        ]
        objects: dict[str, Any] = {
            name: array
            for name, array in zip(self.graph.inputs, arrays, strict=True)
            if not in_memory(types[name])
        }
        with self._lock:
            pointers = _pointers(arrays), _pointers(outputs)
            places = {"input": arrays, "output": outputs}
            for step in self._layout.program:
                if isinstance(step, int):
                    self._loaded.functions[step](
                        *pointers, self._arena.ctypes.data, self._constants.ctypes.data
                    )
                else:
                    self._run_reference(step[0], step[1], places, objects)
        return {
            name: array if in_memory(types[name]) else self._object_value(name, objects)
            for name, array in zip(self.graph.outputs, outputs, strict=True)
        }

    def _checked(self, name: str, inputs: Mapping[str, Array]) -> Array:
        kind = self.graph.types[name]
        if name not in inputs:
            raise InputError(f"input {name!r} is missing; given are {sorted(inputs)}")
        array = np.asarray(inputs[name])
        shape, dtype = tuple(kind.shape), np.dtype(kind.dtype)
        same_type = array.dtype == dtype or (dtype.kind == "O" and array.dtype.kind in "OUS")
        same_shape = array.ndim == len(shape) and all(
            want in (-1, have) for want, have in zip(shape, array.shape, strict=True)
        )
        if not (same_type and same_shape):
            raise InputError(
                f"input {name!r} must be {dtype.name} {shape}, not {array.dtype.name} {array.shape}"
            )
        return np.ascontiguousarray(array).reshape(array.shape)

    def _view(self, name: str, places: Mapping[str, list[Array]]) -> Array:
        """The memory of a value as an array."""
        plan = self._layout.plan
        location = self._layout.locations[plan.root(name)]
        dtype, shape = plan.dtype(name), plan.shape(name)
        if location.place in places:
            return places[location.place][location.offset].reshape(-1).view(dtype).reshape(shape)
        base = self._arena if location.place == "arena" else self._constants
        size = plan.size(name) * dtype.itemsize
        return base[location.offset : location.offset + size].view(dtype).reshape(shape)

    def _run_reference(
        self,
        number: int,
        step: ReferenceCall,
        places: Mapping[str, list[Array]],
        objects: dict[str, Any],
    ) -> None:
        plan = self._layout.plan
        values: dict[str, Any] = {}
        for name in step.reads:
            if in_memory(plan.types[plan.root(name)]):
                values[name] = self._view(name, places)
            else:
                values[name] = self._object_value(name, objects)
        results = self._references[number].run(values)
        for name, result in zip(step.writes, results, strict=True):
            if not in_memory(plan.types[name]):
                objects[plan.root(name)] = result
                continue
            if np.shape(result) != plan.shape(name):
                raise ModelError(
                    f"node {step.node.name!r}: output {name!r} has shape {np.shape(result)} at run "
                    f"time, {plan.shape(name)} at compile time; leave its shape open in the model"
                )
            self._view(name, places)[...] = result.astype(plan.dtype(name), copy=False)

    def _object_value(self, name: str, objects: Mapping[str, Any]) -> Any:
        root = self._layout.plan.root(name)
        return objects[root] if root in objects else self._layout.plan.constants[root]

    def object_bytes(self, target: Target | None = None) -> bytes:
        """Relocatable object code: what this process runs, or for another ``target``.

        It holds ``accelc_segment_0...``, each ``void (const void **inputs, void **outputs, void
        *arena, const void *constants)``; ``constants_bytes`` gives what the last one points to.
        """
        if target is None or target == self._target:
            return self._object
        return Layout(self.graph, target).compile(target)

    def llvm_text(self, target: Target | None = None) -> str:
        """The LLVM assembly that ``object_bytes`` is made from."""
        layout = self._layout if target in (None, self._target) else Layout(self.graph, target)
        return str(layout.module(target or self._target))

    def constants_bytes(self, target: Target | None = None) -> bytes:
        """The constants in the layout the object code expects."""
        if target is None or target == self._target:
            return self._constants.tobytes()
        return Layout(self.graph, target).constants_image().tobytes()

    def shared_library(self, path: str | Path, compiler: str | None = None) -> Path:
        """Link the model into a shared library and write a C header beside it.

        Raises:
            UnsupportedOpError: some nodes have no native kernel.
            ToolError: there is no C compiler, or it failed.
        """
        self._require_native("a shared library")
        layout = self._layout
        return native_library.link(
            Path(path),
            self._object,
            self._constants.tobytes(),
            self.header(),
            arena_bytes=layout.arena_bytes,
            segments=len(layout.segments),
            compiler=compiler,
        )

    def header(self) -> str:
        """The C header of ``shared_library``: the entry point, sizes, inputs and outputs."""
        types: Mapping[str, TensorType] = self.graph.types
        return native_library.header(
            self.graph.name,
            [(name, types[name]) for name in self.graph.inputs],
            [(name, types[name]) for name in self.graph.outputs],
            self.arena_bytes,
        )

    def _require_native(self, what: str) -> None:
        if self.reference_nodes:
            names = ", ".join(repr(name) for name in self.reference_nodes[:5])
            raise UnsupportedOpError(
                f"{what} needs native kernels for every node, these have none: {names}; "
                "replace them or run the model from Python"
            )


class Layout:
    """The plan of a graph with a place for every value, split in native segments.

    Members:
        program: in order, a segment's number or ``(step number, ReferenceCall)``.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self.plan = lower_graph(graph, target)
        self.locations: dict[str, Location] = {}
        self._place_ends()
        self.segments: list[list[KernelCall]] = []
        self.program: list[int | tuple[int, ReferenceCall]] = []
        native = False
        for number, step in enumerate(self.plan.steps):
            if isinstance(step, ReferenceCall):
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
        offsets, self.arena_bytes = assign(values)
        for name, offset in offsets.items():
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
        known: dict[tuple[str, bytes], Location] = {}
        used = {plan.root(name) for step in plan.steps for name in step.reads}
        for name in sorted(used & plan.constants.keys()):
            array = np.ascontiguousarray(plan.constants[name])
            if array.dtype.kind in "OUS":
                continue
            key = (array.dtype.str, array.tobytes())
            if key not in known:
                known[key] = Location("constant", offset)
                self._images.append((offset, array))
                offset += align(max(1, array.nbytes))
            self.locations[name] = known[key]
        self.constant_bytes = offset

    def constants_image(self) -> Array:
        """All constants, ``(bytes,)`` uint8."""
        image = aligned_buffer(max(ALIGNMENT, self.constant_bytes))
        image[:] = 0
        for offset, array in self._images:
            image[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
        return image

    def compile(self, target: Target) -> bytes:
        """Relocatable object code of every segment."""
        return compile_object(self.module(target), target)

    def module(self, target: Target) -> ll.Module:
        """LLVM code of every segment."""
        fingerprint = self.fingerprint(target)
        return build_module(self.plan, self.segments, self.locations, target, fingerprint)

    def fingerprint(self, target: Target) -> str:
        """What code must agree with: processor, kernels, where every value is."""
        calls = [
            (call.emit.__name__, call.params, [self.locations[self.plan.root(n)] for n in names])
            for segment in self.segments
            for call in segment
            for names in [(*call.reads, *call.writes)]
        ]
        text = repr((target, self.arena_bytes, self.constant_bytes, calls))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _pointers(arrays: list[Array]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays))


def compile_graph(graph: Graph, object_code: bytes | None = None) -> CpuModule:
    """Compile ``graph`` for this machine, or take code that ``object_bytes`` gave earlier."""
    return CpuModule(graph, object_code)
