"""RNN, GRU and LSTM against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import accelc
from accelc.compiler.cpu.recurrent import GATES

STEPS, BATCH, WIDTH, HIDDEN = 7, 3, 5, 11
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reverse": {"direction": "reverse"},
    "both": {"direction": "bidirectional"},
    "bias": {"bias": True},
    "states": {"bias": True, "states": True},
    "lengths": {"direction": "bidirectional", "lengths": True, "states": True},
    "clip": {"clip": 0.3},
}


def check(op: str, form: dict[str, Any], rng: np.random.Generator, **attrs: Any) -> None:
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    form = {**form, **attrs}
    flags = {key: form.pop(key, False) for key in ("bias", "states", "lengths", "peepholes")}
    directions = 2 if form.get("direction") == "bidirectional" else 1
    rows = GATES[op] * HIDDEN

    def numbers(*shape: int) -> Any:
        return (rng.standard_normal(shape) * 0.5).astype(np.float32)

    weights = {"w": numbers(directions, rows, WIDTH), "r": numbers(directions, rows, HIDDEN)}
    names = ["x", "w", "r", *[""] * 5]
    feeds = {"x": numbers(STEPS, BATCH, WIDTH)}
    if flags["bias"]:
        weights["b"], names[3] = numbers(directions, 2 * rows), "b"
    if flags["lengths"]:
        feeds["n"], names[4] = np.array([7, 3, 1], np.int32), "n"
    if flags["states"]:
        feeds["h"], names[5] = numbers(directions, BATCH, HIDDEN), "h"
        if op == "LSTM":
            feeds["c"], names[6] = numbers(directions, BATCH, HIDDEN), "c"
    if flags["peepholes"]:
        weights["p"], names[7] = numbers(directions, 3 * HIDDEN), "p"
    while not names[-1]:
        names.pop()
    outputs = ["y", "last", *(["cell"] if op == "LSTM" else [])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, hidden_size=HIDDEN, **form)],
        op,
        [info(n, TensorProto.INT32 if n == "n" else 1, a.shape) for n, a in feeds.items()],
        [info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(outputs, feeds)
    ours = accelc.load(accelc.compile(model, "cpu"), "cpu")
    found = ours.run(feeds)
    assert ours.reference_operators == ()
    for name, want in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", GATES)
def test_layer(op: str, form: str, rng: np.random.Generator) -> None:
    check(op, FORMS[form], rng)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_gru_that_resets_the_product(direction: str, rng: np.random.Generator) -> None:
    check("GRU", {"bias": True}, rng, linear_before_reset=1, direction=direction)


def test_lstm_with_peepholes(rng: np.random.Generator) -> None:
    check("LSTM", {"bias": True, "states": True, "peepholes": True}, rng)


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Softsign", "HardSigmoid", "LeakyRelu"])
def test_activations(name: str, rng: np.random.Generator) -> None:
    alpha = {"HardSigmoid": [0.2], "LeakyRelu": [0.01]}.get(name, [])
    beta = {"HardSigmoid": [0.5]}.get(name, [])
    attrs: dict[str, Any] = {"activations": [name]}
    if alpha:
        attrs["activation_alpha"] = alpha
    if beta:
        attrs["activation_beta"] = beta
    check("RNN", {"bias": True}, rng, **attrs)
