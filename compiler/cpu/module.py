"""A graph compiled for the processor: native segments, reference nodes between them, one arena."""

import ctypes
import math
import threading
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from accelc.compiler.cpu import native_library
from accelc.compiler.cpu.control import ControlNode
from accelc.compiler.cpu.fallback import ReferenceNode, in_memory
from accelc.compiler.cpu.jit import LoadedObject
from accelc.compiler.cpu.layout import Layout, aligned_buffer
from accelc.compiler.cpu.plan import HostCall
from accelc.compiler.cpu.sequences import SequenceNode
from accelc.compiler.cpu.specialize import SpecializedNode
from accelc.compiler.cpu.target import Target, host_target
from accelc.compiler.dynamic import DynamicModule, is_dynamic
from accelc.compiler.graph import Array, Graph, Node, TensorType
from accelc.compiler.memory_limit import require_memory
from accelc.compiler.onnx_node import OPAQUE
from accelc.isa.errors import ArtifactError, InputError, ModelError, UnsupportedOpError


class HostNode(Protocol):
    """A node that Python calls between kernels."""

    @property
    def node(self) -> Node: ...

    @property
    def reference_operators(self) -> Set[str]: ...

    def run(self, values: Mapping[str, Any]) -> list[Any]: ...


class CpuModule:
    """Executes one graph. Calls of ``run`` from several threads take turns.

    Members:
        arena_bytes: memory for all intermediate values.
    """

    def __init__(
        self, graph: Graph, object_code: bytes | None = None, target: Target | None = None
    ) -> None:
        """Compile ``graph``, or take the code from ``object_code`` that ``object_bytes`` once gave.

        ``target`` is the processor, which must be able to run here; as default the one this is.

        Raises:
            UnsupportedOpError: a node has neither a kernel nor a reference implementation.
            ArtifactError: ``object_code`` does not load or belongs to another graph or processor.
        """
        self.graph = graph
        self._layout = Layout(graph, target or host_target(), whole=object_code is not None)
        self._whole: dict[Target, Layout] = {}
        layout = self._layout
        outputs = sum(_nbytes(graph.types[name]) for name in graph.outputs)
        require_memory(
            layout.arena_bytes + layout.constant_bytes + outputs, f"network {graph.name!r}"
        )
        self._constants = layout.constants_image()
        self._hosts = {
            number: self._host(step)
            for number, step in enumerate(layout.plan.steps)
            if isinstance(step, HostCall)
        }
        self.arena_bytes = layout.arena_bytes
        self._object = object_code if object_code is not None else layout.compile()
        try:
            self._loaded = LoadedObject(
                self._object,
                len(layout.segments),
                layout.fingerprint(),
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

    def _host(self, call: HostCall) -> HostNode:
        opset = self.graph.opset
        match call.host:
            case "specialize":
                return SpecializedNode(call.node, opset, compile_graph)
            case "control":
                plan = self._layout.plan
                known = {
                    name: plan.constants[plan.root(name)].reshape(plan.shape(name))
                    for name in call.reads
                    if plan.root(name) in plan.constants
                }
                return ControlNode(call.node, opset, known, compile_any)
            case "sequence":
                return SequenceNode(call.node)
        return ReferenceNode(call.node, opset)

    @property
    def reference_nodes(self) -> list[str]:
        """Names of the nodes that run through ``onnx.reference``, as far as is known.

        Whether one does that is compiled, or a body is, when its inputs are there, turns out then.
        """
        return [host.node.name for host in self._hosts.values() if host.reference_operators]

    @property
    def reference_operators(self) -> tuple[str, ...]:
        """Operators that ``reference_nodes`` needed it for."""
        return tuple(sorted({op for h in self._hosts.values() for op in h.reference_operators}))

    @property
    def host_nodes(self) -> list[str]:
        """Names of the nodes that are no kernels: code for them alone is not the whole network."""
        return [host.node.name for host in self._hosts.values()]

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
            nothing = np.empty(0)
            given = [array if isinstance(array, np.ndarray) else nothing for array in arrays]
            given += self._layout.weights
            pointers = _pointers(given), _pointers(outputs)
            places = {"input": [*arrays, *self._layout.weights], "output": outputs}
            for step in self._layout.program:
                if isinstance(step, int):
                    self._loaded.functions[step](
                        *pointers, self._arena.ctypes.data, self._constants.ctypes.data
                    )
                else:
                    self._run_host(step[0], step[1], places, objects)
        return {
            name: array if in_memory(types[name]) else self._object_value(name, objects)
            for name, array in zip(self.graph.outputs, outputs, strict=True)
        }

    def _checked(self, name: str, inputs: Mapping[str, Array]) -> Array:
        kind = self.graph.types[name]
        if kind == OPAQUE and name in inputs:
            return inputs[name]
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

    def _run_host(
        self,
        number: int,
        step: HostCall,
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
        results = self._hosts[number].run(values)
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
        layout = self._layout_for(target)
        return self._object if layout is self._layout else layout.compile()

    def _layout_for(self, target: Target | None) -> Layout:
        target = target or self._layout.target
        if target == self._layout.target and not self._layout.weights:
            return self._layout
        if target not in self._whole:
            self._whole[target] = Layout(self.graph, target, whole=True)
        return self._whole[target]

    def llvm_text(self, target: Target | None = None) -> str:
        """The LLVM assembly that ``object_bytes`` is made from."""
        return str(self._layout_for(target).module())

    def constants_bytes(self, target: Target | None = None) -> bytes:
        """The constants in the layout the object code expects."""
        return self._layout_for(target).constants_image().tobytes()

    def shared_library(
        self, path: str | Path, compiler: str | None = None, target: Target | None = None
    ) -> Path:
        """Link the model into a shared library and write a C header beside it.

        The code is for this processor, or for ``target``, which ``compiler`` must link for.

        Raises:
            UnsupportedOpError: some nodes have no native kernel.
            ToolError: there is no C compiler, or it failed.
        """
        self._require_native("a shared library")
        layout = self._layout_for(target)
        return native_library.link(
            Path(path),
            self.object_bytes(target),
            layout.constants_image().tobytes(),
            self.header(target),
            segments=len(layout.segments),
            compiler=compiler,
        )

    def header(self, target: Target | None = None) -> str:
        """The C header of ``shared_library``: the entry point, sizes, inputs and outputs."""
        types: Mapping[str, TensorType] = self.graph.types
        return native_library.header(
            self.graph.name,
            [(name, types[name]) for name in self.graph.inputs],
            [(name, types[name]) for name in self.graph.outputs],
            self._layout_for(target).arena_bytes,
        )

    def _require_native(self, what: str) -> None:
        if self.host_nodes:
            names = ", ".join(repr(name) for name in self.host_nodes[:5])
            raise UnsupportedOpError(
                f"{what} needs native kernels for every node, these have none: {names}; "
                "replace them or run the model from Python"
            )


def _nbytes(kind: TensorType) -> int:
    """Size of a value; 0 where it is not known yet."""
    return math.prod(kind.shape) * kind.dtype.itemsize if in_memory(kind) else 0


def _pointers(arrays: list[Array]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays))


def compile_any(graph: Graph) -> CpuModule | DynamicModule:
    """Code for ``graph``, made anew for every shape where its shapes are open."""
    return DynamicModule(graph, compile_graph) if is_dynamic(graph) else compile_graph(graph)


def compile_graph(
    graph: Graph, object_code: bytes | None = None, target: Target | None = None
) -> CpuModule:
    """Compile ``graph`` for this machine, or take code that ``object_bytes`` gave earlier."""
    return CpuModule(graph, object_code, target)
