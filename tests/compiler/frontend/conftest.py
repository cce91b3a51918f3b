"""Small quantized models built in code, and what a compiled graph must agree with."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper

from accelc.compiler.frontend import build
from accelc.compiler.graph import Graph
from accelc.compiler.integer_reference import evaluate, run_any
from accelc.compiler.onnx import import_model
from accelc.compiler.passes.table import run_passes
from accelc.isa.config import REFERENCE, AccelConfig

Array = NDArray[Any]


class Builder:
    """Writes an ONNX model node by node; every method returns the name of a value."""

    def __init__(self, seed: int = 0, opset: int = 17) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def input(self, shape: Sequence[int | str], dtype: Any = np.int8, name: str = "x") -> str:
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, elem, shape))
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, name: str = "", **attrs: Any) -> str:
        domain, _, op = op.rpartition(".")
        output = name or f"{op.lower()}{len(self.nodes)}"
        made = helper.make_node(op, list(inputs), [output], name=output, domain=domain, **attrs)
        self.nodes.append(made)
        return output

    def dequantize(self, value: str, scale: Any, zero: Any, **attrs: Any) -> str:
        scale = self.constant(np.asarray(scale, np.float32))
        return self.node("DequantizeLinear", value, scale, self.constant(zero), **attrs)

    def quantize(self, value: str, scale: float, zero: Any, **attrs: Any) -> str:
        scale_name = self.constant(np.asarray(scale, np.float32))
        return self.node("QuantizeLinear", value, scale_name, self.constant(zero), **attrs)

    def weights(
        self, shape: Sequence[int], axis: int | None = 0, dtype: Any = np.int8, zero: int = 0
    ) -> tuple[str, Array]:
        """Random dequantized weights and their scales, per channel along ``axis`` if given."""
        info = np.iinfo(dtype)
        data = self.rng.integers(info.min, info.max + 1, shape).astype(dtype)
        count = () if axis is None else (shape[axis],)
        scale = self.rng.uniform(0.001, 0.02, count).astype(np.float32)
        zeros = np.full(count, zero, dtype)
        attrs = {} if axis is None else {"axis": axis}
        return self.dequantize(self.constant(data), scale, zeros, **attrs), scale

    def bias(self, x_scale: float, w_scale: Array, channels: int) -> str:
        """Random int32 bias at the accumulator's scale, dequantized."""
        data = self.rng.integers(-3000, 3000, channels).astype(np.int32)
        scale = np.float32(x_scale) * w_scale
        zeros = np.zeros(scale.shape, np.int32)
        attrs = {"axis": 0} if scale.ndim else {}
        return self.dequantize(self.constant(data), scale, zeros, **attrs)

    def output(self, value: str, dtype: Any = np.int8) -> None:
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.outputs.append(helper.make_tensor_value_info(value, elem, None))

    def model(self) -> ModelProto:
        graph = helper.make_graph(
            self.nodes, "test", self.inputs, self.outputs, initializer=self.constants
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feeds(self) -> dict[str, Array]:
        """Random values for every input: all integers, or normal floats."""
        result: dict[str, Array] = {}
        for value in self.inputs:
            shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            if dtype.kind == "f":
                result[value.name] = self.rng.normal(size=shape).astype(dtype)
            else:
                info = np.iinfo(dtype)
                result[value.name] = self.rng.integers(info.min, info.max + 1, shape).astype(dtype)
        return result


def onnxruntime_outputs(model: ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """The model run by onnxruntime without graph optimizations, which are wrong for int8 on x86."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def difference(ours: Array, theirs: Array) -> tuple[float, int]:
    """Share of elements that differ, and by how much at most."""
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    delta = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    return float((delta > 0).mean()), int(delta.max(initial=0))


@pytest.fixture
def runtime_outputs() -> Callable[[ModelProto, dict[str, Array]], list[Array]]:
    return onnxruntime_outputs


@pytest.fixture
def builder() -> type[Builder]:
    return Builder


@pytest.fixture
def agree() -> Callable[..., Graph]:
    """Compile, compare the outputs with the model's own after every pass, return the graph.

    ``runtime``: compare with onnxruntime rather than ``onnx.reference``. ``lsb`` is the largest
    difference allowed, and ``share`` the largest share of outputs that may differ.
    """

    def run(
        b: Builder,
        config: AccelConfig = REFERENCE,
        *,
        lsb: int = 1,
        share: float = 0.002,
        runtime: bool = False,
    ) -> Graph:
        model, feeds = b.model(), b.feeds()
        graph = import_model(model)
        if runtime:
            expected = dict(zip(graph.outputs, onnxruntime_outputs(model, feeds), strict=True))
        else:
            expected = evaluate(graph, feeds)

        seen: list[list[int]] = []

        def compare(name: str, after: Graph) -> None:
            seen.append([id(node) for node in after.nodes])
            if seen[-1] in seen[:-1]:
                return  # the pass changed nothing
            if runtime and any(n.op.startswith("com.microsoft") for n in after.nodes):
                return  # onnx.reference does not know them
            for output, ours in evaluate(after, feeds).items():
                differing, most = difference(ours, expected[output])
                assert most <= lsb and differing <= share, f"after {name}: {differing:.2%}, {most}"

        final = run_passes(graph, config, observer=compare)
        assert final.inputs == graph.inputs and final.outputs == graph.outputs
        for output in final.outputs:
            assert final.types[output].shape == graph.types[output].shape
        assert [n.op for n in build(model, config=config).nodes] == [n.op for n in final.nodes]
        return final

    return run


def as_seen(value: str, graph: Graph, values: dict[str, Any]) -> NDArray[Any] | None:
    """An ONNX value of onnxruntime in the layout and sign the compiled graph gives it."""
    if value in graph.constants:
        return graph.constants[value]
    array = values.get(value.partition(":nhwc")[0])
    if array is None:
        return None
    wanted = graph.types[value]
    if array.dtype == np.uint8 and wanted.dtype == np.int8:
        array = (array.astype(np.int16) - 128).astype(np.int8)
    if array.ndim == 4 and value.endswith(":nhwc"):
        array = array.transpose(0, 2, 3, 1)
    return array.reshape(wanted.shape) if array.size == np.prod(wanted.shape) else None


@pytest.fixture
def each_operator() -> Callable[[Graph, dict[str, Any]], tuple[int, int]]:
    """Run every integer operator of a graph on the inputs the original network had there.

    Takes the graph and the original's values by ONNX name; returns how many results differ, of
    how many. A result may be off by one step; by what a fused sum or function makes of a step.
    """

    def run(graph: Graph, values: dict[str, Any]) -> tuple[int, int]:
        computed: dict[str, Any] = {}
        differing = total = 0
        for node in graph.nodes:
            seen = [as_seen(value, graph, values) for value in node.inputs]
            inputs = [
                computed.get(v) if a is None else a for v, a in zip(node.inputs, seen, strict=True)
            ]
            if any(array is None for array in inputs):
                continue
            (ours,) = run_any(node, inputs, graph.opset)
            computed[node.outputs[0]] = ours
            expected = as_seen(node.outputs[0], graph, values)
            if not node.op.startswith("int.") or expected is None:
                continue
            delta = np.abs(ours.astype(int) - expected.astype(int))
            post = node.attrs.get("post")
            fused = post is not None and (post.add is not None or post.table)
            assert delta.max(initial=0) <= (4 if fused else 1), node.name
            differing += int((delta > 0).sum())
            total += delta.size
        return differing, total

    return run
