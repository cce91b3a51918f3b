"""Operators as every operator set from 7 on defines them, beside onnxruntime.

Each case is one operator in the forms that older sets had: attributes that became inputs, other
defaults, other meanings. It runs at every version at which its schema changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import accelc

Array = NDArray[Any]
OLDEST, NEWEST = 7, onnx.defs.onnx_opset_version()
#: What onnxruntime reads for certain.
ORACLE_NEWEST = 21
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(3)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


@dataclass
class Case:
    """``constants`` follow ``x`` as inputs; None is an absent one."""

    op: str
    x: Array
    constants: list[Any] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[int, ...] = (FLOAT,)
    first: int = OLDEST
    last: int = ORACLE_NEWEST


IMAGE = normal(1, 4, 6, 5)
POSITIVE = np.abs(normal(4)) + np.float32(0.5)
CASES: dict[str, Case] = {
    "BatchNormalization": Case(
        "BatchNormalization", IMAGE, [normal(4), normal(4), normal(4), POSITIVE], {"epsilon": 1e-3}
    ),
    "BatchNormalization spatial": Case(
        "BatchNormalization", IMAGE, [normal(4), normal(4), normal(4), POSITIVE], {"spatial": 1},
        last=8,
    ),
    "Upsample attribute": Case("Upsample", IMAGE, [], {"scales": [1.0, 1.0, 2.0, 2.0]}, last=8),
    "Upsample bilinear": Case(
        "Upsample", IMAGE, [], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}, last=8
    ),
    "Upsample input": Case(
        "Upsample", IMAGE, [np.array([1, 1, 2, 2], np.float32)], {}, first=9, last=9
    ),
    "Resize asymmetric": Case(
        "Resize", IMAGE, [np.array([1, 1, 2, 1.5], np.float32)], {"mode": "linear"}, first=10,
        last=10,
    ),
    "Resize nearest": Case(
        "Resize", IMAGE, [np.array([1, 1, 0.6, 1.5], np.float32)], {}, first=10, last=10
    ),
    "Resize scales": Case(
        "Resize", IMAGE, [np.array([], np.float32), np.array([1, 1, 2, 1.5], np.float32)],
        {"mode": "linear"}, first=11,
    ),
    "Resize sizes": Case(
        "Resize", IMAGE, [None, None, ints(1, 4, 3, 9)], {"mode": "nearest"}, first=13
    ),
    "Clip attributes": Case("Clip", IMAGE, [], {"min": -0.5, "max": 0.25}, last=10),
    "Clip one attribute": Case("Clip", IMAGE, [], {"min": -0.5}, last=10),
    "Clip inputs": Case("Clip", IMAGE, [np.array(-0.5, "f"), np.array(0.25, "f")], first=11),
    "Clip one input": Case("Clip", IMAGE, [None, np.array(0.25, "f")], first=11),
    "Dropout attribute": Case("Dropout", IMAGE, [], {"ratio": 0.3}, last=11),
    "Dropout input": Case("Dropout", IMAGE, [np.array(0.3, np.float32)], first=12),
    "Reshape": Case("Reshape", IMAGE, [ints(0, -1, 3)]),
    "Reshape allowzero": Case("Reshape", normal(0, 4), [ints(0, 4)], {"allowzero": 1}, first=14),
    "Pad attributes": Case(
        "Pad", IMAGE, [], {"pads": [0, 0, 1, 2, 0, 1, 0, 1], "value": 1.5}, last=10
    ),
    "Pad negative": Case("Pad", IMAGE, [], {"pads": [0, 0, -1, 2, 0, 0, 1, -2]}, last=10),
    "Pad reflect": Case(
        "Pad", IMAGE, [], {"pads": [0, 0, 1, 2, 0, 0, 1, 1], "mode": "reflect"}, last=10
    ),
    "Pad inputs": Case("Pad", IMAGE, [ints(0, 0, 1, 2, 0, 1, 0, 1), np.array(2, "f")], first=11),
    "Pad axes": Case(
        "Pad", IMAGE, [ints(1, 2, 0, 1), np.array(2, "f"), ints(2, -1)], first=18
    ),
    "Slice attributes": Case(
        "Slice", IMAGE, [], {"starts": [1, -3], "ends": [9, -1], "axes": [1, 2]}, last=9
    ),
    "Slice all axes": Case("Slice", IMAGE, [], {"starts": [0, 1], "ends": [1, 3]}, last=9),
    "Slice inputs": Case(
        "Slice", IMAGE, [ints(3, -1), ints(-9, 0), ints(1, 2), ints(-1, -2)], first=10
    ),
    "Unsqueeze attribute": Case("Unsqueeze", IMAGE, [], {"axes": [0, 3]}, last=12),
    "Unsqueeze input": Case("Unsqueeze", IMAGE, [ints(0, -2)], first=13),
    "Squeeze attribute": Case("Squeeze", IMAGE, [], {"axes": [0]}, last=12),
    "Squeeze none": Case("Squeeze", IMAGE),
    "Squeeze input": Case("Squeeze", IMAGE, [ints(0)], first=13),
    "Softmax flat": Case("Softmax", IMAGE, last=12),
    "Softmax axis 2": Case("Softmax", IMAGE, [], {"axis": 2}),
    "Softmax negative": Case("Softmax", IMAGE, [], {"axis": -1}, first=11),
    "LogSoftmax": Case("LogSoftmax", IMAGE, [], {"axis": 1}),
    "Hardmax": Case("Hardmax", IMAGE, [], {"axis": 2}),
    "ReduceSum attribute": Case("ReduceSum", IMAGE, [], {"axes": [1, 3], "keepdims": 0}, last=12),
    "ReduceSum input": Case("ReduceSum", IMAGE, [ints(1, -1)], {"keepdims": 0}, first=13),
    "ReduceSum no axes": Case(
        "ReduceSum", IMAGE, [ints()], {"noop_with_empty_axes": 1}, first=13
    ),
    "ReduceMean attribute": Case("ReduceMean", IMAGE, [], {"axes": [2]}, last=17),
    "ReduceMean input": Case("ReduceMean", IMAGE, [ints(2)], {}, first=18),
    "ReduceL2": Case("ReduceL2", IMAGE, [], {"axes": [1]}, last=17),
    "ReduceMax": Case("ReduceMax", IMAGE, [], {"axes": [3]}, last=17),
    "ReduceLogSumExp": Case("ReduceLogSumExp", IMAGE, [], {"axes": [1, 2]}, last=17),
    "Split attribute": Case(
        "Split", IMAGE, [], {"axis": 1, "split": [1, 3]}, (FLOAT, FLOAT), last=12
    ),
    "Split equal": Case("Split", IMAGE, [], {"axis": 1}, (FLOAT, FLOAT), last=17),
    "Split input": Case("Split", IMAGE, [ints(1, 3)], {"axis": 1}, (FLOAT, FLOAT), first=13),
    "Split number": Case(
        "Split", IMAGE, [], {"axis": 2, "num_outputs": 4}, (FLOAT,) * 4, first=18
    ),
    "TopK attribute": Case("TopK", IMAGE, [], {"k": 2, "axis": 2}, (FLOAT, INT64), last=9),
    "TopK input": Case("TopK", IMAGE, [ints(3)], {"axis": 1}, (FLOAT, INT64), first=10),
    "TopK smallest": Case("TopK", IMAGE, [ints(3)], {"largest": 0}, (FLOAT, INT64), first=11),
    "ArgMax": Case("ArgMax", IMAGE, [], {"axis": 2, "keepdims": 0}, (INT64,)),
    "ArgMax last": Case("ArgMax", IMAGE, [], {"select_last_index": 1}, (INT64,), first=12),
    "Cast": Case("Cast", IMAGE * 9, [], {"to": INT64}, (INT64,)),
    "Gemm": Case("Gemm", normal(3, 5), [normal(5, 2), normal(2)], {"alpha": 0.5, "beta": 2.0}),
    "Gemm without bias": Case("Gemm", normal(3, 5), [normal(2, 5)], {"transB": 1}, first=11),
    "PRelu": Case("PRelu", IMAGE, [normal(4, 1, 1)]),
    "Flatten": Case("Flatten", IMAGE, [], {"axis": 2}),
    "Flatten negative": Case("Flatten", IMAGE, [], {"axis": -1}, first=11),
    "Expand": Case("Expand", normal(3, 1), [ints(2, 1, 4)], first=8),
    "Tile": Case("Tile", IMAGE, [ints(1, 2, 1, 3)]),
    "Gather": Case("Gather", IMAGE, [ints(2, 0)], {"axis": 1}),
    "Scatter": Case(
        "Scatter", normal(3, 4), [ints(0, 2).reshape(1, 2), normal(1, 2)], {}, first=9, last=10
    ),
    "ScatterElements": Case(
        "ScatterElements", normal(3, 4), [ints(0, 2).reshape(1, 2), normal(1, 2)], first=11
    ),
    "ConvTranspose": Case(
        "ConvTranspose", IMAGE, [normal(4, 3, 3, 3)], {"strides": [2, 2], "output_padding": [1, 1]}
    ),
    "MaxPool": Case("MaxPool", IMAGE, [], {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]}),
    "MaxPool ceil": Case(
        "MaxPool", IMAGE, [], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}, first=10
    ),
    "AveragePool": Case(
        "AveragePool", IMAGE, [],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "LRN": Case("LRN", IMAGE, [], {"size": 3}),
    "InstanceNormalization": Case("InstanceNormalization", IMAGE, [normal(4), normal(4)]),
    "DepthToSpace": Case("DepthToSpace", IMAGE, [], {"blocksize": 2}),
    "DepthToSpace CRD": Case(
        "DepthToSpace", IMAGE, [], {"blocksize": 2, "mode": "CRD"}, first=11
    ),
    "SpaceToDepth": Case("SpaceToDepth", normal(1, 2, 4, 6), [], {"blocksize": 2}),
    "HardSigmoid": Case("HardSigmoid", IMAGE, [], {"alpha": 0.4}),
    "Selu": Case("Selu", IMAGE),
    "LSTM": Case(
        "LSTM", normal(3, 2, 4), [normal(1, 20, 4), normal(1, 20, 5), normal(1, 40)],
        {"hidden_size": 5}, (FLOAT, FLOAT, FLOAT),
    ),
    "GRU": Case(
        "GRU", normal(3, 2, 4), [normal(1, 15, 4), normal(1, 15, 5)],
        {"hidden_size": 5, "linear_before_reset": 1}, (FLOAT, FLOAT),
    ),
    "RNN": Case(
        "RNN", normal(3, 2, 4), [normal(2, 5, 4), normal(2, 5, 5)],
        {"hidden_size": 5, "direction": "bidirectional"}, (FLOAT, FLOAT),
    ),
    "CumSum": Case("CumSum", IMAGE, [np.array(2, np.int64)], {"exclusive": 1}, first=11),
    "Gelu": Case("Gelu", IMAGE, first=20),
    "LayerNormalization": Case("LayerNormalization", IMAGE, [normal(5), normal(5)], first=17),
    "Mod": Case("Mod", IMAGE, [np.array([0.7], np.float32)], {"fmod": 1}, first=10),
    "Pow": Case("Pow", np.abs(IMAGE), [np.array([1.7], np.float32)]),
}  # fmt: skip


def model_of(case: Case, opset: int) -> onnx.ModelProto:
    constants = {
        f"c{k}": np.asarray(value) for k, value in enumerate(case.constants) if value is not None
    }
    inputs = [
        "x", *(f"c{k}" if v is not None else "" for k, v in enumerate(case.constants))
    ]  # fmt: skip
    outputs = [f"y{k}" for k in range(len(case.outputs))]
    graph = helper.make_graph(
        [helper.make_node(case.op, inputs, outputs, **case.attrs)],
        "case",
        [helper.make_tensor_value_info("x", FLOAT, case.x.shape)],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(outputs, case.outputs, strict=True)
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def versions(case: Case) -> list[int]:
    """Operator sets at which the schema of the operator, or the model around it, changed."""
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == case.op]
    changed = {s.since_version for s in schemas if s.domain == "" and not s.deprecated}
    inside = {v for v in changed if case.first <= v <= case.last}
    return sorted({case.first, *inside, case.last})


CASE_VERSIONS = [(name, opset) for name, case in CASES.items() for opset in versions(case)]


def oracle(model: onnx.ModelProto, x: Array) -> list[Array]:
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})


@pytest.mark.parametrize(("name", "opset"), CASE_VERSIONS)
def test_operator(name: str, opset: int) -> None:
    case = CASES[name]
    model = model_of(case, opset)
    session = accelc.load(accelc.compile(model, target="cpu"), "cpu")
    found = list(session.run({"x": case.x}).values())
    for ours, theirs in zip(found, oracle(model, case.x), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def small_network(opset: int) -> onnx.ModelProto:
    """Operators that every set has, in its form where they have several."""
    unsqueeze = opset >= 13
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Squeeze", ["g", "axes"], ["q"])
        if unsqueeze
        else helper.make_node("Squeeze", ["g"], ["q"], axes=[2, 3]),
        helper.make_node("Gemm", ["q", "k", "o"], ["l"], transB=1),
        helper.make_node("Softmax", ["l"], ["y"], axis=1),
    ]
    arrays = {
        "w": normal(8, 3, 3, 3), "s": normal(8), "b": normal(8), "m": normal(8),
        "v": np.abs(normal(8)) + np.float32(0.1), "k": normal(5, 8), "o": normal(5),
    }  # fmt: skip
    if unsqueeze:
        arrays["axes"] = ints(2, 3)
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", FLOAT, ("n", 3, 8, 8))],
        [helper.make_tensor_value_info("y", FLOAT, ("n", 5))],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("opset", range(OLDEST, NEWEST + 1))
def test_network(opset: int) -> None:
    model = small_network(opset)
    compiled: Callable[..., Any] = accelc.load(accelc.compile(model, target="cpu"), "cpu").run
    reference = model
    if opset > ORACLE_NEWEST:
        reference = onnx.ModelProto()
        reference.CopyFrom(model)
        reference.opset_import[0].version = ORACLE_NEWEST
    for batch in (2, 1):
        x = normal(batch, 3, 8, 8)
        (theirs,) = oracle(reference, x)
        np.testing.assert_allclose(compiled({"x": x})["y"], theirs, rtol=1e-4, atol=1e-5)
