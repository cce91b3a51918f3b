"""Whole networks: what quantization costs, what is left float, what onnxruntime makes of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import accelc
from accelc.compiler.quantize.statistics import Noise
from accelc.isa.errors import InputError, ModelError
from accelc.quantizer import Quantized

MODELS = Path(__file__).parents[2] / "models"
MakeModel = Callable[..., ModelProto]


@pytest.fixture(scope="module")
def scenes(load_script: Callable[[str], Any]) -> Any:
    """The training script of the residual network, which makes its data."""
    return load_script("models/resnet8_train.py")


def digits_calibration(count: int = 128) -> np.ndarray:
    with np.load(MODELS / "resnet8_digits.npz") as data:
        return data["x"][:count].astype(np.float32)[:, None] / 16


def digits_test() -> tuple[np.ndarray, np.ndarray]:
    with np.load(MODELS / "digits_test.npz") as data:
        return data["x"], data["y"]


@pytest.fixture(scope="module")
def digits() -> Quantized:
    return accelc.quantize(MODELS / "digits_float.onnx", digits_calibration())


def run_onnxruntime(model: bytes, x: np.ndarray, name: str = "image") -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model, options)
    return np.concatenate([np.asarray(session.run(None, {name: s[None]})[0]) for s in x])


def run_accelc(model: ModelProto, x: np.ndarray, device: str = "cpu") -> np.ndarray:
    session = accelc.load(accelc.compile(model), device)
    (name,) = session.inputs
    return np.concatenate([next(iter(session.run({name: s[None]}).values())) for s in x])


def share(logits: np.ndarray, y: np.ndarray) -> float:
    return float((logits.argmax(axis=1) == y).mean())


def check(
    quantized: Quantized, model: Path, data: tuple[np.ndarray, np.ndarray], bar: float, name: str
) -> None:
    """Both executors stay within ``bar`` points of the float network; onnx finds it valid."""
    onnx.checker.check_model(quantized.model, full_check=True)
    x, y = data
    exact = share(run_onnxruntime(model.read_bytes(), x, name), y)
    ours = run_accelc(quantized.model, x)
    theirs = run_onnxruntime(quantized.model.SerializeToString(), x, name)
    assert 100 * (exact - share(ours, y)) <= bar
    assert 100 * (exact - share(theirs, y)) <= bar
    assert quantized.report.accelerator_mac_share == 1.0
    edges = {"QuantizeLinear", "DequantizeLinear", "Transpose", "Reshape"}
    placements = accelc.compile(quantized.model).model.placements
    assert {p.op for p in placements if p.place == "cpu"} <= edges


def test_the_digits_network(digits: Quantized) -> None:
    check(digits, MODELS / "digits_float.onnx", digits_test(), 0.3, "image")


def test_the_residual_network(scenes: Any) -> None:
    """MLPerf Tiny's ResNet-8, batch normalizations unfolded, on held-out scenes."""
    images, _ = scenes.calibration()
    model = MODELS / "resnet8_float.onnx"
    check(accelc.quantize(model, images[:128]), model, scenes.held_out(), 0.5, "image")


def test_mnist(shared: Path) -> None:
    with np.load(shared / "data" / "mnist_1000.npz") as data:
        x, y = data["x"].astype(np.float32).reshape(-1, 1, 28, 28), data["y"]
    model = shared / "mnist_8.onnx"
    check(accelc.quantize(model, x[:100]), model, (x[200:], y[200:]), 0.3, "Input3")


def test_at_least_as_good_as_onnxruntime(digits: Quantized, tmp_path: Path) -> None:
    """On the same samples; onnxruntime's per-channel int8 QDQ with its percentile method too."""
    from onnxruntime.quantization import CalibrationMethod

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = iter(digits_calibration())

        def get_next(self) -> Any:
            sample = next(self.left, None)
            return None if sample is None else {"image": sample[None]}

    x, y = digits_test()
    exact = run_onnxruntime((MODELS / "digits_float.onnx").read_bytes(), x)

    def worth(logits: np.ndarray) -> tuple[float, float]:
        noise = Noise()
        noise.add(exact, logits)
        return share(logits, y), noise.decibels

    ours = worth(run_accelc(digits.model, x))
    for method in (CalibrationMethod.MinMax, CalibrationMethod.Percentile):
        path = tmp_path / f"{method.name}.onnx"
        quantize_static(
            str(MODELS / "digits_float.onnx"), str(path), Reader(),
            quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8, calibrate_method=method,
        )  # fmt: skip
        theirs = worth(run_onnxruntime(path.read_bytes(), x))
        assert ours[0] >= theirs[0] and ours[1] >= theirs[1] - 0.1


def test_the_functional_device_agrees(digits: Quantized) -> None:
    x = digits_test()[0][:4]
    ours, same = run_accelc(digits.model, x), run_accelc(digits.model, x, "functional")
    assert ours.tobytes() == same.tobytes()


def test_the_report(digits: Quantized) -> None:
    report = digits.report
    assert report.samples == 128 and report.chosen in report.candidates
    assert report.chosen.sqnr_db == max(c.sqnr_db for c in report.candidates)
    assert {c.observer for c in report.candidates} == {"min-max", "percentile", "entropy", "mse"}
    assert {layer.form for layer in report.layers} == {"int8"}
    by_name = {layer.name: layer for layer in report.layers}
    conv = by_name["stem_conv"]
    assert (conv.op, conv.weight_bits, conv.zero_point, conv.low) == ("Conv", 8, -128, 0.0)
    assert all(layer.sqnr_db is not None and layer.sqnr_db > 15 for layer in report.layers)
    assert by_name["pool"].scale == by_name["sep_pointwise"].scale
    before, after = report.constant_bytes
    assert after < before / 2
    assert report.accuracy is None and report.notes == ()


def test_repeating_gives_the_same_file(digits: Quantized) -> None:
    again = accelc.quantize(MODELS / "digits_float.onnx", digits_calibration())
    assert again.model.SerializeToString(deterministic=True) == digits.model.SerializeToString(
        deterministic=True
    )


def test_weights_in_files_of_their_own(digits: Quantized, tmp_path: Path) -> None:
    model = onnx.load(MODELS / "digits_float.onnx")
    path = tmp_path / "external.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    found = accelc.quantize(path, digits_calibration())
    assert found.report.chosen == digits.report.chosen
    assert found.report.layers == digits.report.layers


def test_kept_nodes_stay_float(make_model: MakeModel, rng: np.random.Generator) -> None:
    """Also by the name of a node that is folded into the layer."""
    w = rng.standard_normal((4, 4, 1, 1))
    one = np.ones(4)
    model = make_model(
        """(float[1,4,4,4] x) => (float[1,4,4,4] y) { [c] a = Conv (x, w)
        [n] b = BatchNormalization (a, one, one, one, one) [r] d = Relu (b)
        [e] y = Conv (d, w) }""",
        w=w, one=one,
    )  # fmt: skip
    samples = [rng.standard_normal((4, 4, 4)).astype(np.float32) for _ in range(8)]
    for name in ("c", "n", "r"):
        report = accelc.quantize(model, samples, keep_float=[name]).report
        assert [(layer.name, layer.form) for layer in report.layers] == [
            ("c", "float"),
            ("e", "int8"),
        ]
        assert report.layers[0].reason == "asked for"
    with pytest.raises(InputError, match="no node 'ee' to keep float; did you mean e"):
        accelc.quantize(model, samples, keep_float=["ee"])


@pytest.fixture(scope="module")
def fragile() -> tuple[bytes, list[dict[str, np.ndarray]]]:
    """A classifier one of whose layers cannot do with 8 bits, and samples labelled by it.

    The first product puts a small signal beside numbers a thousand times larger, the second takes
    it from there again.
    """
    import onnx.parser

    rng = np.random.default_rng(3)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[1,8] x) => (float[1,4] y) '
        "{ [hide] a = MatMul (x, w) [find] b = MatMul (a, v) [last] y = MatMul (b, u) }"
    )
    w = rng.standard_normal((8, 12)) * np.r_[np.ones(4), np.full(8, 2000.0)]
    v = np.vstack([np.eye(4), np.zeros((8, 4))])
    for name, array in (("w", w), ("v", v), ("u", rng.standard_normal((4, 4)))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    u = onnx.numpy_helper.to_array(model.graph.initializer[2])
    x = rng.standard_normal((200, 8)).astype(np.float32)
    labels = (x @ w[:, :4] @ u).argmax(axis=1)
    samples = [{"x": s, "label": np.array(n)} for s, n in zip(x, labels, strict=True)]
    return model.SerializeToString(), samples


def test_layers_that_cost_too_much_stay_float(fragile: Any) -> None:
    model = onnx.load_from_string(fragile[0])
    plain = accelc.quantize(model, fragile[1], labels="label", equalization="none").report
    assert plain.accuracy is not None and plain.accuracy.drop_points > 20
    report = accelc.quantize(
        model, fragile[1], labels="label", equalization="none", max_accuracy_drop=5
    ).report
    assert report.accuracy is not None and report.accuracy.drop_points <= 5
    forms = {layer.name: (layer.form, layer.reason) for layer in report.layers}
    assert forms["hide"] == ("float", "accuracy") and forms["last"] == ("int8", "")
    drops = {layer.name: layer.alone_drop for layer in report.layers}
    assert drops["hide"] == max(d for d in drops.values() if d is not None)


def test_equalization_repairs_the_same_network(fragile: Any) -> None:
    report = accelc.quantize(onnx.load_from_string(fragile[0]), fragile[1], labels="label").report
    assert report.chosen.equalization != "none"
    assert report.accuracy is not None and report.accuracy.drop_points < 5


def test_the_bar_is_measured_on_the_validation_data(fragile: Any) -> None:
    model = onnx.load_from_string(fragile[0])
    plain = [{"x": sample["x"]} for sample in fragile[1][:20]]
    report = accelc.quantize(
        model, plain, labels="label", validation=fragile[1], max_accuracy_drop=0
    ).report
    assert report.accuracy is not None
    assert (report.samples, report.accuracy.samples) == (20, 200)
    assert report.accuracy.drop_points <= 0


def test_sensitivity_without_labels(make_model: MakeModel, rng: np.random.Generator) -> None:
    model = make_model(
        "(float[1,4] x) => (float[1,4] y) { [c] a = MatMul (x, w) [r] b = Tanh (a) "
        "[e] y = MatMul (b, w) }",
        w=rng.standard_normal((4, 4)),
    )
    samples = [rng.standard_normal(4).astype(np.float32) for _ in range(8)]
    report = accelc.quantize(model, samples, sensitivity=True).report
    for layer in report.layers:
        assert layer.alone_sqnr_db is not None and layer.alone_drop is None
        assert layer.alone_sqnr_db > report.output_sqnr_db - 3


def test_attention(make_model: MakeModel, rng: np.random.Generator) -> None:
    """Products with weights and of two activations are int8; Softmax and LayerNorm stay float."""
    square = {name: rng.standard_normal((16, 16)) / 4 for name in ("q", "k", "v", "o")}
    model = make_model(
        """(float[1,6,16] x) => (float[1,6,16] y) {
        n = LayerNormalization <axis = -1> (x, gain)
        a = MatMul (n, q) b = MatMul (n, k) c = MatMul (n, v)
        t = Transpose <perm = [0, 2, 1]> (b) [scores] s = MatMul (a, t)
        p = Softmax <axis = -1> (s) [mix] m = MatMul (p, c) d = MatMul (m, o) y = Add (d, x) }""",
        **square, gain=np.ones(16),
    )  # fmt: skip
    samples = [rng.standard_normal((6, 16)).astype(np.float32) for _ in range(16)]
    quantized = accelc.quantize(model, samples)
    forms = {layer.op: layer.form for layer in quantized.report.layers}
    assert forms == {"MatMul": "int8", "Transpose": "int8", "Add": "int8"}
    x = np.stack(samples[:4])
    exact = run_onnxruntime(model.SerializeToString(), x, "x")
    for found in (
        run_onnxruntime(quantized.model.SerializeToString(), x, "x"),
        run_accelc(quantized.model, x),
    ):
        assert np.abs(found - exact).max() < 0.1 * np.abs(exact).max()
    compiled = accelc.compile(quantized.model).model
    ops = [p.op for p in compiled.placements if p.place != "cpu"]
    assert ops.count("int.conv") == 4 and ops.count("int.matmul") == 2
    on_cpu = {p.op for p in compiled.placements if p.place == "cpu"}
    conversions = {"QuantizeLinear", "DequantizeLinear", "Reshape", "Transpose"}
    assert on_cpu - conversions == {"Softmax", "LayerNormalization"}
    # queries, keys and values reach as far to both sides; probabilities keep all eight bits
    products = [node.attrs["matmul"] for node in compiled.graph.nodes if node.op == "int.matmul"]
    assert [(p.a_zero, p.b_zero) for p in products] == [(0, 0), (-128, 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(float[1,4] x) => (float[1,4] y) { y = Softmax (x) }", "nothing to quantize"),
        (
            """(float[1,4] x) => (float[1,4] y) { s = Constant <value_float = 0.5> ()
            a = QuantizeLinear (x, s) y = DequantizeLinear (a, s) }""",
            "quantized already",
        ),
        (
            "(float[N,C,4,4] x) => (float[N,C,4,4] y) { y = Relu (x) }",
            "symbolic dimensions need a size (--dim NAME=N)",
        ),
    ],
)
def test_models_that_cannot_be_quantized(text: str, message: str, make_model: MakeModel) -> None:
    with pytest.raises(ModelError) as caught:
        accelc.quantize(make_model(text), [np.zeros((4,), np.float32)])
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_network_that_computes_nan(make_model: MakeModel) -> None:
    model = make_model(
        "(float[1,4] x) => (float[1,4] y) { a = Log (x) y = MatMul (a, w) }", w=np.eye(4)
    )
    with pytest.raises(InputError, match="'a' of the float network is NaN or infinite in run 1"):
        accelc.quantize(model, [np.ones(4, np.float32), -np.ones(4, np.float32)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observer": "mean"}, "observer must be one of auto, min-max"),
        ({"equalization": "all"}, "equalization must be one of"),
        ({"percentile": 20}, "above 50 and at most 100"),
        ({"max_accuracy_drop": -1}, "must not be negative"),
        ({"max_accuracy_drop": 1}, "needs labelled samples"),
        ({"validation": []}, "--validation needs the name of its labels"),
    ],
)
def test_options_that_make_no_sense(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        accelc.quantize(MODELS / "digits_float.onnx", digits_calibration(2), **options)
