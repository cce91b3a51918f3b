"""Quantized networks built in code, and how they are compared with onnxruntime."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper

import accelc
from accelc.artifact import Artifact

Array = NDArray[Any]
SEED = 31


class Net:
    """Writes a quantized network; values are integers with ``scale`` and ``zero`` by name."""

    def __init__(self, opset: int = 17, dtype: Any = np.int8) -> None:
        self.rng = np.random.default_rng(SEED)
        self.opset = opset
        self.dtype = np.dtype(dtype)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    @staticmethod
    def odd(scale: Any) -> Array:
        """About ``scale``, but no ratio of two is a simple fraction: results halfway between two
        steps, where the order of float operations decides, are as rare as in real networks."""
        return np.asarray(scale * (1 + 0.01 * np.sin(1e4 * np.asarray(scale))), np.float32)

    def const(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        domain, _, op = op.rpartition(".")
        output = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, list(inputs), [output], name=output, domain=domain, **attrs)
        )
        return output

    def input(self, *shape: int, dtype: Any = None) -> str:
        name = f"x{len(self.inputs)}"
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.dtype))
        self.inputs.append(helper.make_tensor_value_info(name, elem, shape))
        return name

    def output(self, value: str, dtype: Any = None) -> None:
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.dtype))
        self.outputs.append(helper.make_tensor_value_info(value, elem, None))

    def raw_dq(self, value: str, scale: Any, zero: Any, **attrs: Any) -> str:
        return self.node("DequantizeLinear", value, self.const(scale), self.const(zero), **attrs)

    def dq(self, value: str, scale: float = 0.05, zero: int = 0) -> str:
        return self.raw_dq(value, self.odd(scale), self.dtype.type(zero))

    def q(self, value: str, scale: float = 0.05, zero: Any = 0) -> str:
        scales = self.const(self.odd(scale))
        return self.node("QuantizeLinear", value, scales, self.const(self.dtype.type(zero)))

    def qdq(self, value: str, scale: float = 0.05, zero: int = 0) -> str:
        return self.dq(self.q(value, scale, zero), scale, zero)

    def weights(self, shape: Sequence[int], axis: int | None = 0, dtype: Any = np.int8) -> str:
        """Weights over the whole range of ``dtype``; per channel along ``axis``."""
        info = np.iinfo(dtype)
        data = self.rng.integers(info.min, info.max + 1, shape).astype(dtype)
        count = () if axis is None else (shape[axis],)
        fan_in = int(np.prod(shape)) // (1 if axis is None else shape[axis])
        scale = self.rng.uniform(0.5, 2, count).astype(np.float32) / (60 * np.sqrt(fan_in))
        zero = np.zeros(count, dtype) if dtype == np.int8 else np.full(count, 119, dtype)
        self.w_scale = np.asarray(scale, np.float32)
        return self.raw_dq(
            self.const(data), self.w_scale, zero, **({} if axis is None else {"axis": axis})
        )

    def bias(self, channels: int, x_scale: float = 0.05, **attrs: Any) -> str:
        """int32 at the accumulator's scale; the axis stays the default, 1, of a rank-1 tensor."""
        data = self.rng.integers(-4000, 4000, channels).astype(np.int32)
        scale = self.odd(x_scale) * self.w_scale
        return self.raw_dq(self.const(data), scale, np.zeros(scale.shape, np.int32), **attrs)

    def conv(
        self,
        value: str,
        shape: Sequence[int],
        *,
        axis: int | None = 0,
        w_dtype: Any = np.int8,
        bias: bool = True,
        x_scale: float = 0.05,
        **attrs: Any,
    ) -> str:
        w = self.weights(shape, axis, w_dtype)
        if bias:
            # older onnxruntimes want the axis of a rank-1 tensor stated
            b = self.bias(shape[0], x_scale, **({} if axis is None else {"axis": 0}))
            return self.node("Conv", value, w, b, **attrs)
        return self.node("Conv", value, w, **attrs)

    def model(self) -> ModelProto:
        graph = helper.make_graph(self.nodes, "case", self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self) -> dict[str, Array]:
        feeds: dict[str, Array] = {}
        for value in self.inputs:
            tensor = value.type.tensor_type
            shape = [d.dim_value for d in tensor.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            if dtype.kind == "f":
                feeds[value.name] = self.rng.normal(size=shape).astype(dtype) * 3
            else:
                info = np.iinfo(dtype)
                feeds[value.name] = self.rng.integers(info.min, info.max + 1, shape).astype(dtype)
        return feeds


def runtime(model: ModelProto, feeds: dict[str, Array]) -> list[Array]:
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def check(net: Net, config: str = "1x16x16", oracle: ModelProto | None = None) -> Artifact:
    """Run a network on the functional device with the CPU for the rest, wholly on the CPU, and
    compiled for the CPU alone: bit for bit alike. With onnxruntime (graph optimizations off, which
    are wrong for int8 on x86) they agree within one step, in all but one of 10,000 values.
    ``oracle`` is the same network in a form onnxruntime reads, if it does not read this one."""
    model, feeds = net.model(), net.feeds()
    artifact = accelc.compile(model, config=config)
    session = accelc.load(artifact)
    ours = session.run(feeds)
    again = session.run(feeds)
    alone = accelc.load(accelc.compile(model, target="cpu"), "cpu").run(feeds)
    on_cpu = accelc.load(artifact, "cpu").run(feeds)
    for name, theirs in zip(ours, runtime(oracle or model, feeds), strict=True):
        assert ours[name].tobytes() == again[name].tobytes(), "the second run differs"
        assert ours[name].tobytes() == on_cpu[name].tobytes(), "the CPU differs"
        assert ours[name].tobytes() == alone[name].tobytes(), "the network for the CPU differs"
        assert ours[name].shape == theirs.shape and ours[name].dtype == theirs.dtype
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours[name], theirs, rtol=1e-4, atol=1e-6)
            continue
        assert theirs.size < 8 or len(np.unique(theirs)) > 3, "a case that tests nothing"
        delta = np.abs(ours[name].astype(np.int64) - theirs.astype(np.int64))
        assert delta.max() <= 1
        assert np.count_nonzero(delta) <= delta.size / 10_000, f"{np.count_nonzero(delta)} differ"
    return artifact


@pytest.fixture
def new_net() -> type[Net]:
    return Net


@pytest.fixture
def check_net() -> Callable[..., Artifact]:
    """Run a network on every device there is without hardware, and compare; see ``check``."""
    return check
