"""Real networks: what is lowered, and how the result compares with onnxruntime."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from accelc.compiler.frontend import build
from accelc.compiler.integer_reference import evaluate
from accelc.isa.config import REFERENCE, AccelConfig

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "models"
DIGITS = ROOT / "models" / "digits_resnet8_int8.onnx"
#: Nodes outside the accelerator: quantization of input and output, layout, the final softmax.
EDGES = {"QuantizeLinear", "DequantizeLinear", "Reshape", "Transpose", "Softmax"}
NETWORKS = (
    "t_kws_dscnn_q",
    "t_ic_resnet8_q",
    "t_vww_q",
    "t_ad_q",
    "mlon_kws_m_qoperator",
    "t_coral_mnv1_05_160_q",
)


def network(name: str) -> Path:
    if name == "digits":
        return DIGITS
    path = SHARED / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not in {SHARED}")
    return path


@pytest.mark.parametrize("name", [*NETWORKS, "digits"])
def test_everything_between_the_edges_is_integer(name: str) -> None:
    graph = build(network(name))
    ops = [node.op for node in graph.nodes]
    assert {op for op in ops if not op.startswith("int.")} <= EDGES
    # one region: nothing of the CPU between two integer operators
    first = next(k for k, op in enumerate(ops) if op.startswith("int."))
    last = max(k for k, op in enumerate(ops) if op.startswith("int."))
    assert all(op.startswith("int.") for op in ops[first : last + 1])
    if name.startswith("t_"):
        assert "Transpose" not in ops
    assert not graph.reasons or set(graph.reasons) <= {n.name for n in graph.nodes}


def test_residual_blocks_are_one_operator() -> None:
    graph = build(network("t_ic_resnet8_q"))
    assert Counter(n.op for n in graph.nodes)["int.conv"] == 11
    assert sum(n.attrs["post"].add is not None for n in graph.nodes if n.op == "int.conv") == 3


def runtime_values(path: Path, names: list[str], feeds: dict[str, Any]) -> dict[str, Any]:
    """Intermediate values of onnxruntime in the mode that is right for int8 on x86."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = onnx.load(path)
    known = {v.name for v in model.graph.output}
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {v.name: v for v in inferred.graph.value_info}
    for name in dict.fromkeys(names):
        if name not in known:
            model.graph.output.append(
                types.get(name) or onnx.helper.make_value_info(name, onnx.TypeProto())
            )
    options = ort.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    outputs = [o.name for o in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, feeds), strict=True)) | feeds


@pytest.mark.parametrize("name", [*NETWORKS, "digits"])
def test_every_operator_against_onnxruntime(name: str, each_operator: Any) -> None:
    """Each operator from onnxruntime's own inputs: 1 step at most, fewer than 1 in 10,000."""
    rng = np.random.default_rng(7)
    path = network(name)
    probe = build(path)
    inputs = probe.types[probe.inputs[0]]
    symbol = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_param
    count = {"t_ad_q": 64, "t_coral_mnv1_05_160_q": 1}.get(name, 16) if symbol else 1
    shape = (count, *inputs.shape[1:])
    if inputs.dtype == np.float32:
        x = rng.normal(size=shape).astype(np.float32)
    else:
        info = np.iinfo(inputs.dtype)
        x = rng.integers(info.min, info.max + 1, shape).astype(inputs.dtype)
    graph = build(path, dims={symbol: count} if symbol else {})
    produced = {o for n in onnx.load(path).graph.node for o in n.output}
    used = [v for n in graph.nodes for v in (*n.inputs, *n.outputs)]
    names = [v.partition(":nhwc")[0] for v in used]
    values = runtime_values(path, [v for v in names if v in produced], {probe.inputs[0]: x})
    differing, total = each_operator(graph, values)
    assert total > 1000
    assert differing < total / 10_000, f"{differing} of {total}"


@pytest.mark.parametrize("name", ["t_kws_dscnn_q", "digits"])
def test_configurations_without_optional_units(name: str) -> None:
    config = AccelConfig(window=False, add=False, lut=False)
    graph = build(network(name), config=config)
    for node in graph.nodes:
        post = node.attrs.get("post")
        assert post is None or (post.add is None and not post.table)
        assert not node.attrs.get("depthwise", False)
    plain = build(network(name), config=REFERENCE)
    rng = np.random.default_rng(3)
    kind = graph.types[graph.inputs[0]]
    x = rng.integers(-128, 128, kind.shape).astype(kind.dtype)
    feeds = {graph.inputs[0]: x if kind.dtype == np.int8 else x / np.float32(128)}
    for ours, theirs in zip(
        evaluate(graph, feeds).values(), evaluate(plain, feeds).values(), strict=True
    ):
        scale = 1 if ours.dtype == np.int8 else 0.04
        assert np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max() <= 2 * scale
