"""``onnx.backend`` implementation: the interface other ONNX tools and test suites expect.

::

    import accelc.backend as backend
    outputs = backend.prepare(model, device="VTA").run([image])

Devices: ``CPU`` runs everything in native code; ``VTA`` runs on the accelerator's functional
simulator, ``VTA:rtl`` (or ``golden``, ``timing``) on another of its devices.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

import accelc
from accelc.isa.config import AccelConfig
from accelc.isa.errors import InputError, UnsupportedOpError
from accelc.session import DEVICES, Session

Array = NDArray[Any]
_ACCELERATOR = "VTA"
_DEFAULT_DEVICE = "functional"


def parse_device(device: str) -> tuple[str, str]:
    """Compilation target and session device of an ``onnx.backend`` device string.

    Raises:
        InputError: the string names no device.
    """
    kind, _, which = device.partition(":")
    if kind == "CPU" and which in ("", "0"):
        return "cpu", "cpu"
    if kind == _ACCELERATOR and which in ("", "0", *DEVICES):
        return "vta", which if which in DEVICES else _DEFAULT_DEVICE
    raise InputError(
        f"there is no device {device!r}; there are CPU, {_ACCELERATOR}, "
        + ", ".join(f"{_ACCELERATOR}:{name}" for name in DEVICES)
    )


def _data_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs a caller feeds: before IR version 4 initializers were listed as inputs too."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def _is_static(value: onnx.ValueInfoProto) -> bool:
    """Whether the shape of an input is known; sequences and optionals have none."""
    if not value.type.HasField("tensor_type"):
        return True
    kind = value.type.tensor_type
    return kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim)


def _with_shapes(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> onnx.ModelProto:
    """A copy whose inputs have the arrays' shapes, so that symbolic ones become known."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in _data_inputs(fixed):
        if _is_static(value) or value.name not in arrays:
            continue
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for size in arrays[value.name].shape:
            shape.dim.add().dim_value = size
    return fixed


def _value(given: Any) -> Any:
    """An input as sessions take it: a sequence stays a list, an absent optional None."""
    return given if given is None or isinstance(given, list) else np.asarray(given)


def _shape(value: Any) -> tuple[int, ...]:
    return value.shape if isinstance(value, np.ndarray) else ()


class AccelcRep(BackendRep):
    """A model that is ready to run; one with symbolic shapes is compiled per shape it meets."""

    def __init__(
        self,
        model: onnx.ModelProto,
        device: str = "CPU",
        config: AccelConfig | str | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.target, self.device = parse_device(device)
        self._names = [value.name for value in _data_inputs(model)]
        self._sessions: dict[tuple[tuple[int, ...], ...], Session] = {}
        if all(_is_static(value) for value in _data_inputs(model)):
            shapes = [
                tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
                for value in _data_inputs(model)
            ]
            self._sessions[tuple(shapes)] = self._compile(model)

    def _compile(self, model: onnx.ModelProto) -> Session:
        return accelc.load(accelc.compile(model, self.target, self.config), self.device)

    def session(self, arrays: Mapping[str, Array]) -> Session:
        """The session for inputs of these shapes, compiled when they are first seen."""
        key = tuple(_shape(arrays[name]) for name in self._names if name in arrays)
        if key not in self._sessions:
            static = all(_is_static(value) for value in _data_inputs(self.model))
            if static and self._sessions:
                return next(iter(self._sessions.values()))  # whose check names the wrong shape
            self._sessions[key] = self._compile(_with_shapes(self.model, arrays))
        return self._sessions[key]

    @property
    def reference_operators(self) -> tuple[str, ...]:
        """Operators that so far ran through ``onnx.reference``."""
        found = {name for s in self._sessions.values() for name in s.reference_operators}
        return tuple(sorted(found))

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run once on a sequence of arrays in the model's order, a mapping, or one array.

        Raises:
            InputError: the arrays are not what the model takes.
        """
        if isinstance(inputs, Mapping):
            arrays = {name: _value(array) for name, array in inputs.items()}
        else:
            given: Sequence[Any] = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) > len(self._names):
                raise InputError(f"the model takes {len(self._names)} inputs, not {len(given)}")
            arrays = {n: _value(a) for n, a in zip(self._names, given, strict=False)}
        results = self.session(arrays).run(arrays)
        return namedtupledict("Outputs", list(results))(*results.values())


class AccelcBackend(Backend):
    """See the module; ``prepare`` also takes ``config``, the accelerator's configuration."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether every operator of ``model`` has an implementation."""
        try:
            cls.prepare(model, device, **kwargs)
        except BackendIsNotSupposedToImplementIt:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> AccelcRep:
        """Compile ``model``.

        Raises:
            BackendIsNotSupposedToImplementIt: it holds an operator nobody implements.
            AccelcError: it is malformed, or ``device`` does not exist.
        """
        try:
            return AccelcRep(model, device, kwargs.get("config"))
        except UnsupportedOpError as error:
            raise BackendIsNotSupposedToImplementIt(str(error)) from error

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node; ``opset_version`` chooses the meaning of its operator."""
        arrays = [np.asarray(array) for array in inputs]
        names = list(dict.fromkeys(name for name in node.input if name))
        values = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in zip(names, arrays, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        domains = {"": opset} | ({node.domain: 1} if node.domain else {})
        graph = helper.make_graph([node], node.op_type, values, outputs)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(name, version) for name, version in domains.items()],
        )
        inferred = onnx.shape_inference.infer_shapes(model)
        return cls.run_model(inferred, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        try:
            parse_device(device)
        except InputError:
            return False
        return True


is_compatible = AccelcBackend.is_compatible
prepare = AccelcBackend.prepare
run_model = AccelcBackend.run_model
run_node = AccelcBackend.run_node
supports_device = AccelcBackend.supports_device
