"""Runs a compiled network on a device, and says what that cost."""

import contextlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from accelc.artifact import Artifact
from accelc.attached import FORMS, check_address, is_address, open_board
from accelc.compiler.graph import Graph, TensorType
from accelc.compiler.layout import Packing, pack, unpack
from accelc.compiler.onnx_node import OPAQUE
from accelc.compiler.pipeline import Step
from accelc.isa.config import AccelConfig
from accelc.isa.errors import DeviceError, DoesNotFitError, InputError
from accelc.isa.program import Program
from accelc.sim.device import Counters, Device, MemoryModel

if TYPE_CHECKING:
    from accelc.boards.link.host import Connection

Array = NDArray[Any]
Values = dict[str, Array]

#: Device name to module and class; imported when a session asks for it.
DEVICES: dict[str, tuple[str, str]] = {
    "golden": ("accelc.sim.golden", "GoldenDevice"),
    "functional": ("accelc.sim.functional", "FunctionalDevice"),
    "timing": ("accelc.sim.timing", "TimingDevice"),
    "rtl": ("accelc.sim.rtl", "RtlDevice"),
}
#: Devices whose cycles depend on the memory behind them.
TIMED = ("timing", "rtl")
#: Memories and registers power up as noise, so that nothing can depend on zeros; the noise repeats.
_NOISE = {"seed": 1}
#: What ``load(..., device=...)`` accepts by name: the devices, and the whole network on the CPU.
#: Boards come by address, see ``accelc.attached``.
DEVICE_NAMES = (*DEVICES, "cpu")


class Runner(Protocol):
    """Anything that computes a graph: the CPU back end's result has this form."""

    @property
    def reference_operators(self) -> tuple[str, ...]: ...

    def run(self, inputs: Mapping[str, Array]) -> Values: ...


@dataclass(frozen=True, kw_only=True)
class LayerReport:
    """What one layer cost in the last run; cycles are 0 where the device does not count them."""

    name: str
    op: str
    cycles: int
    macs: int
    dram_bytes: int
    #: What the layer takes at least by itself: all multipliers busy, or the memory bus busy. Fewer
    #: cycles mean that its weights were loaded while the layer before was computed.
    limit_cycles: int
    #: Share of the matrix unit's multiply-accumulates that were useful, 0 to 1.
    utilisation: float


def layer_reports(
    program: Program, counters: Counters, memory: MemoryModel
) -> tuple[LayerReport, ...]:
    """Split a run's cycles by layer: from one layer's last STORE to the next one's."""
    peak = program.config.macs_per_cycle
    bytes_per_cycle = min(memory.bytes_per_cycle, program.config.bus_bytes)
    reports: list[LayerReport] = []
    before = 0
    for layer in program.layers:
        cycles = 0
        if counters.retired.size:
            end = int(counters.retired[layer.last])
            cycles, before = end - before, end
        limit = max(-(-layer.macs // peak), -(-layer.moved_bytes // bytes_per_cycle))
        reports.append(
            LayerReport(
                name=layer.name,
                op=layer.op,
                cycles=cycles,
                macs=layer.macs,
                dram_bytes=layer.dram_bytes,
                limit_cycles=limit,
                utilisation=layer.macs / (cycles * peak) if cycles > 0 else 0.0,
            )
        )
    return tuple(reports)


def require_device(name: str) -> None:
    """Refuse what is no device.

    Raises:
        InputError: there is no such device.
        ConfigError: there is no such board to simulate.
    """
    if is_address(name):
        check_address(name)
    elif name not in DEVICE_NAMES:
        raise InputError(
            f"there is no device {name!r}; there are {', '.join(DEVICE_NAMES)}, {FORMS}"
        )


def make_device(name: str, config: AccelConfig, memory: MemoryModel) -> Device:
    """Build the device called ``name``, or open the board there.

    Raises:
        InputError: there is no such device.
        ToolError: a tool the device needs is missing.
        DeviceError: no board answers.
        ConfigError: the board has another configuration.
    """
    if is_address(name):
        return board_device(config, open_board(name, config))
    if name not in DEVICES:
        require_device(name)
        raise InputError(f"{name!r} runs whole networks, not programs of the accelerator")
    module, cls = DEVICES[name]
    kind: Callable[..., Device] = getattr(importlib.import_module(module), cls)
    return kind(config, memory=memory, **_NOISE) if name in TIMED else kind(config, **_NOISE)


def board_device(config: AccelConfig, connection: "Connection") -> Device:
    """A share of a board's memory, and its accelerator."""
    from accelc.boards.link.host import BoardDevice

    return BoardDevice(config, connection)


def _cpu_runner(graph: Graph) -> Runner:
    from accelc.compiler.dynamic import DynamicModule, is_dynamic

    return DynamicModule(graph, _optimized) if is_dynamic(graph) else _native(graph)


def _optimized(graph: Graph) -> Runner:
    """The runner of a part of a network whose shapes have just become known."""
    from accelc.compiler.passes.table import run_passes

    return _native(run_passes(graph))


def _native(graph: Graph) -> Runner:
    from accelc.compiler.cpu import compile_graph

    try:
        return compile_graph(graph)
    except MemoryError as error:
        raise DoesNotFitError(f"this machine's memory does not suffice: {error}") from error


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether ``shape`` is ``wanted``, whose open dimensions (-1) take any size."""
    return len(shape) == len(wanted) and all(
        want in (-1, have) for want, have in zip(wanted, shape, strict=True)
    )


class _AcceleratorStep:
    """One accelerator region on its own device, whose memory keeps the constants between runs."""

    def __init__(self, step: Step, make: Callable[[AccelConfig], Device]) -> None:
        if step.program is None or step.packings is None:
            raise AssertionError("an accelerator step has a program and packings")
        self.program = step.program
        self.packings: Mapping[str, Packing] = step.packings
        self.device = make(self.program.config)
        self.device.load(self.program)
        self.counters = Counters()

    def run(self, values: Values) -> Values:
        config = self.program.config
        for region in self.program.inputs:
            packing = self.packings[region.name]
            self.device.write(region.address, pack(values[packing.value], packing, config))
        self.counters = self.device.run(self.program)
        results: Values = {}
        for region in self.program.outputs:
            packing = self.packings[region.name]
            data = self.device.read(region.address, region.nbytes)
            results[packing.value] = unpack(data, packing, config)
        return results


class _CpuStep:
    """One region in native code."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.runner = _cpu_runner(graph)

    def run(self, values: Values) -> Values:
        return dict(self.runner.run({name: values[name] for name in self.graph.inputs}))


class Session:
    """A network ready to run: constants in place, code generated, devices built.

    ``device`` runs the accelerator's steps; the rest runs in native code on this machine. With
    ``device="cpu"`` everything does. A board is let go of by :meth:`close`, or at the end of a
    ``with`` block.
    """

    def __init__(
        self,
        artifact: Artifact,
        device: str = "functional",
        memory: MemoryModel | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        require_device(device)
        self.artifact = artifact
        self.device = device
        self.memory = memory or MemoryModel()
        self.graph = artifact.model.graph
        self._steps: list[_AcceleratorStep | _CpuStep] = []
        self._connection: Connection | None = None
        if device == "cpu" or artifact.config is None:
            self._steps.append(_CpuStep(self.graph))
            return
        if is_address(device):
            self._connection = open_board(device, artifact.config, report)
        try:
            for step in artifact.model.steps:
                if step.program is None:
                    self._steps.append(_CpuStep(step.graph))
                else:
                    self._steps.append(_AcceleratorStep(step, self._make))
        except BaseException:
            self.close()
            raise

    def _make(self, config: AccelConfig) -> Device:
        """A device of its own for each step; those on a board share it."""
        if self._connection is not None:
            return board_device(config, self._connection)
        return make_device(self.device, config, self.memory)

    def close(self) -> None:
        """Let go of the board, if there is one; again is no error.

        Raises:
            DeviceError: a simulated board broke a rule of its memory chip.
        """
        if self._connection is not None:
            self._connection.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # what went wrong first is what the user should read
        with contextlib.suppress(DeviceError) if kind else contextlib.nullcontext():
            self.close()

    @property
    def clock_hz(self) -> int | None:
        """Clock of the board the session runs on; None elsewhere."""
        return None if self._connection is None else self._connection.record.clock_hz

    def __repr__(self) -> str:
        return f"<Session of network {self.graph.name!r} on {self.device}>"

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Name, shape and element type of every input; an open dimension is -1."""
        return {name: self.graph.types[name] for name in self.graph.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        return {name: self.graph.types[name] for name in self.graph.outputs}

    @property
    def counters(self) -> tuple[Counters, ...]:
        """Of the last run, one per accelerator step in execution order."""
        return tuple(s.counters for s in self._steps if isinstance(s, _AcceleratorStep))

    @property
    def reference_operators(self) -> tuple[str, ...]:
        """Operators that so far ran through ``onnx.reference``."""
        found = {
            operator
            for step in self._steps
            if isinstance(step, _CpuStep)
            for operator in step.runner.reference_operators
        }
        return tuple(sorted(found))

    @property
    def cycles(self) -> int:
        """Accelerator cycles of the last run; 0 if the device does not count."""
        return sum(counters.cycles for counters in self.counters)

    @property
    def layers(self) -> tuple[LayerReport, ...]:
        """What each accelerator layer cost in the last run, in execution order."""
        return tuple(
            report
            for step in self._steps
            if isinstance(step, _AcceleratorStep)
            for report in layer_reports(step.program, step.counters, self.memory)
        )

    def check_inputs(self, inputs: Mapping[str, Array]) -> None:
        """Refuse anything but one array of the right shape and type per input.

        Raises:
            InputError: naming everything that is wrong.
        """
        expected = self.inputs
        if not isinstance(inputs, Mapping):
            found = type(inputs).__name__
            raise InputError(f"inputs must be arrays by name ({', '.join(expected)}), not {found}")
        problems = [f"input {name!r} is missing" for name in expected if name not in inputs]
        for name, array in inputs.items():
            if name not in expected:
                problems.append(f"there is no input {name!r}, only {', '.join(expected)}")
                continue
            want = expected[name]
            if want == OPAQUE:
                continue
            found = np.asarray(array)
            if not _fits(found.shape, want.shape) or found.dtype != want.dtype:
                problems.append(
                    f"input {name!r} must be {want.dtype} {self._shape_text(name)}, "
                    f"not {found.dtype} {list(found.shape)}"
                )
        if problems:
            raise InputError("; ".join(problems))
        if self.graph.symbols:
            from accelc.compiler.dynamic import sizes

            sizes(self.graph, {name: np.shape(array) for name, array in inputs.items()})

    def _shape_text(self, name: str) -> str:
        """The shape of an input with the names of its open dimensions."""
        shape = self.graph.types[name].shape
        symbols = self.graph.symbols.get(name, ("",) * len(shape))
        parts = [s or str(n) for n, s in zip(shape, symbols, strict=True)]
        return f"[{', '.join(parts)}]"

    def run(self, inputs: Mapping[str, Array]) -> Values:
        """Run the network once.

        Args:
            inputs: one array per input, shape and element type as in :attr:`inputs`.

        Raises:
            InputError: an input is missing, unknown, or has another shape or type.
            DeviceError: the device reported an error; the session is usable again afterwards.
        """
        self.check_inputs(inputs)
        types = self.graph.types
        values: Values = {
            name: array if types[name] == OPAQUE else np.asarray(array)
            for name, array in inputs.items()
        }
        for step in self._steps:
            values.update(step.run(values))
        missing = [name for name in self.graph.outputs if name not in values]
        constants = self.graph.constants
        values.update({name: constants[name] for name in missing if name in constants})
        if lost := [name for name in missing if name not in constants]:
            raise DeviceError(f"no step computed {', '.join(lost)}")
        return {name: values[name] for name in self.graph.outputs}
