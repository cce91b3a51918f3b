"""What a graph becomes before code generation: kernel and reference calls on named values."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from accelc.compiler.cpu.ir import Kernel
from accelc.compiler.cpu.lanes import NATIVE_DTYPES
from accelc.compiler.cpu.narrow import NARROW_NAMES
from accelc.compiler.cpu.target import Target
from accelc.compiler.graph import Array, Graph, Node, TensorType

#: Element types kernels load and store.
MEMORY_DTYPES = NATIVE_DTYPES | NARROW_NAMES

#: Writes a kernel's body; ``kernel.args`` are the pointers of the reads, then of the writes.
#: The second argument are the kernel's static parameters: with the function they are its identity.
Emit = Callable[[Kernel, Any], None]


class NotNative(Exception):
    """Why a node has no native kernel; it then runs through the reference."""


@dataclass(frozen=True)
class KernelCall:
    """One call of a generated function; ``reads`` and ``writes`` are value names."""

    node: str
    emit: Emit
    params: Hashable
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def key(self) -> Hashable:
        return (self.emit, self.params, len(self.reads), len(self.writes))


#: Who runs a node that is no kernel: code made when its inputs are there, this package's own
#: control flow and sequences, or ``onnx.reference``.
Host = Literal["specialize", "control", "sequence", "reference"]


@dataclass(frozen=True)
class HostCall:
    """One node that Python calls between kernels."""

    node: Node
    host: Host
    reads: tuple[str, ...]
    writes: tuple[str, ...]


Step = KernelCall | HostCall


@dataclass
class Plan:
    """Steps in order, and every value they mention. An alias names whose bytes it shares."""

    graph: Graph
    target: Target
    steps: list[Step] = field(default_factory=list)
    types: dict[str, TensorType] = field(init=False)
    constants: dict[str, Array] = field(init=False)
    aliases: dict[str, str] = field(default_factory=dict)
    #: The node being lowered, for names of temporaries.
    current: str = ""

    def __post_init__(self) -> None:
        self.types = dict(self.graph.types)
        self.constants = dict(self.graph.constants)
        for name, array in self.constants.items():
            self.types[name] = TensorType(array.shape, array.dtype)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.types[name].shape)

    def dtype(self, name: str) -> np.dtype[Any]:
        return np.dtype(self.types[name].dtype)

    def size(self, name: str) -> int:
        return int(np.prod(self.shape(name), dtype=np.int64))

    def temporary(self, shape: Sequence[int], dtype: Any) -> str:
        """A value in the arena, written by one call and read by later ones."""
        name = f"%t{len(self.types)}"
        self.types[name] = TensorType(tuple(int(s) for s in shape), np.dtype(dtype))
        return name

    def constant(self, array: Array) -> str:
        """A constant for kernels to read."""
        name = f"%c{len(self.types)}"
        array = np.asarray(array)
        self.constants[name] = array
        self.types[name] = TensorType(array.shape, array.dtype)
        return name

    def known(self, name: str) -> Array | None:
        """The value if it is a compile-time constant, following aliases."""
        return self.constants.get(self.root(name))

    def needed(self, name: str, what: str) -> Array:
        """The value of ``name``, which code is made for.

        Raises:
            NotNative: it is computed at run time.
        """
        value = self.known(name)
        if value is None:
            raise NotNative(f"{what} not known at compile time")
        return value.reshape(self.shape(name))

    def alias(self, output: str, source: str) -> None:
        """``output`` has the bytes of ``source`` (another shape, perhaps)."""
        for name in (output, source):
            if any(extent < 0 for extent in self.shape(name)):
                raise NotNative(f"the shape of {name} depends on data")
        self.aliases[output] = source

    def root(self, name: str) -> str:
        while name in self.aliases:
            name = self.aliases[name]
        return name

    def call(
        self, emit: Emit, params: Hashable, reads: Iterable[str], writes: Iterable[str]
    ) -> None:
        """Append a kernel call; a call that writes nothing but empty values is dropped."""
        call = KernelCall(self.current, emit, params, tuple(reads), tuple(writes))
        for name in (*call.reads, *call.writes):
            if any(extent < 0 for extent in self.shape(name)):
                raise NotNative(f"the shape of {name} depends on data")
            if self.dtype(name).name not in MEMORY_DTYPES:
                raise NotNative(f"{name} has element type {self.dtype(name).name}")
        if any(self.size(name) for name in call.writes):
            self.steps.append(call)


def copy_bytes(k: Kernel, size: int) -> None:
    """``size`` bytes from the first pointer to the second."""
    lanes = k.target.vector_bytes

    def strip(first: Any, lanes: int) -> None:
        k.store(k.load(k.args[0], np.dtype(np.uint8), first, lanes), k.args[1], first)

    k.strips(size, lanes, strip)


def copy(plan: Plan, source: str, output: str) -> None:
    """Copy all bytes of ``source`` to ``output``, whatever their element type is."""
    size = plan.size(output) * plan.dtype(output).itemsize
    if size:
        plan.steps.append(KernelCall(plan.current, copy_bytes, size, (source,), (output,)))
