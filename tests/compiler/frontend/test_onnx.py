"""Reading models: forms, dimensions, and files that must be refused in one line."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from accelc.compiler.integer_reference import evaluate
from accelc.compiler.onnx import import_model
from accelc.compiler.passes.table import run_passes
from accelc.isa.errors import AccelcError, ModelError, UnsupportedOpError

MODEL = Path(__file__).parents[3] / "models" / "digits_resnet8_int8.onnx"


def small_model(*nodes: onnx.NodeProto, opset: int = 17, shape: Any = (2, 3)) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes), "small", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def fails(model: Any, kind: type[AccelcError], *words: str, **options: Any) -> None:
    with pytest.raises(kind) as caught:
        import_model(model, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_types_carry_quantization() -> None:
    graph = import_model(MODEL)
    quant = graph.types["stem_conv_q"].quant
    assert quant is not None and quant.per_tensor and int(quant.zero_point) == 4
    weights = next(n.inputs[0] for n in graph.nodes if n.name == "stem_conv_weight_dq" or
                   n.outputs[0] == "stem_conv_weight_dq")  # fmt: skip
    per_channel = graph.types[weights].quant
    assert per_channel is not None and per_channel.scale.shape == (16,) and per_channel.axis == 0


def test_batch_defaults_to_one_with_a_note() -> None:
    graph = import_model(MODEL)
    assert graph.types["image"].shape == (1, 1, 8, 8)
    assert graph.notes == ("symbolic batch dimension 'batch' set to 1",)
    graph = import_model(MODEL, dims={"batch": 5})
    assert graph.types["logits"].shape == (5, 10) and graph.notes == ()
    graph = import_model(MODEL, dims={"image.0": 3})
    assert graph.types["logits"].shape == (3, 10)


def test_unknown_and_missing_dimensions() -> None:
    fails(MODEL, ModelError, "no symbolic dimension", "'height'", "'batch'", dims={"height": 3})
    fails(MODEL, ModelError, "from 1 to", dims={"batch": 0})
    model = small_model(helper.make_node("Relu", ["x"], ["y"]), shape=("n", "h"))
    fails(model, ModelError, "'h' (x.1)", "--dim")
    assert import_model(model, dims={"h": 7}).types["y"].shape == (1, 7)


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 21, onnx.defs.onnx_opset_version()])
def test_operator_sets(opset: int) -> None:
    model = small_model(helper.make_node("Relu", ["x"], ["y"]), opset=opset)
    assert import_model(model).opset == opset


def test_operator_sets_out_of_range() -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    assert import_model(small_model(relu, opset=5)).opset == 7
    fails(small_model(relu, opset=9999), ModelError, "opset 9999", "update onnx")


def test_shapes_computed_at_run_time_become_static() -> None:
    """Shape, Gather, Concat and Reshape as exporters write them."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Constant", [], ["i"], value=numpy_helper.from_array(np.array([0]))),
        helper.make_node("Gather", ["s", "i"], ["n"]),
        helper.make_node("Constant", [], ["m"], value=numpy_helper.from_array(np.array([-1]))),
        helper.make_node("Concat", ["n", "m"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    graph = import_model(small_model(*nodes, shape=("n", 3, 4)), dims={"n": 2})
    assert graph.types["y"].shape == (2, 12)


def test_subgraphs_name_what_they_capture() -> None:
    def branch(op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("b", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [], [out])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Greater", ["sum", "zero"], ["cond"]),
        helper.make_node(
            "If", ["cond"], ["y"], then_branch=branch("Neg"), else_branch=branch("Abs")
        ),
    ]
    graph = import_model(small_model(*nodes))
    last = graph.nodes[-1]
    assert last.inputs == ("cond", "x") and last.attrs["captured"] == ("x",)
    x = np.array([[1, -2, 3], [4, 5, 6]], np.float32)
    assert np.array_equal(evaluate(graph, {"x": x})["y"], -x)
    assert np.array_equal(evaluate(graph, {"x": -x})["y"], np.abs(x))


def test_functions_of_the_model_are_inlined() -> None:
    body = [helper.make_node("Neg", ["a"], ["t"]), helper.make_node("Relu", ["t"], ["b"])]
    function = helper.make_function(
        "mine", "NegRelu", ["a"], ["b"], body, [helper.make_opsetid("", 17)]
    )
    model = small_model(helper.make_node("NegRelu", ["x"], ["y"], domain="mine"))
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    assert [node.op for node in import_model(model).nodes] == ["Neg", "Relu"]


def test_all_unknown_operators_are_listed_at_once() -> None:
    nodes = [
        helper.make_node("Fancy", ["x"], ["a"], name="first", domain="acme"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Fancy", ["b"], ["c"], name="second", domain="acme"),
        helper.make_node("NoSuchOp", ["c"], ["y"], name="third"),
    ]
    model = small_model(*nodes)
    model.opset_import.append(helper.make_opsetid("acme", 1))
    fails(model, UnsupportedOpError, "acme.Fancy (first, second)", "NoSuchOp (third)")


def test_files_that_are_no_models(tmp_path: Path) -> None:
    fails(tmp_path / "none.onnx", ModelError, "none.onnx", "no such file")
    data = MODEL.read_bytes()
    for name, content in (
        ("empty.onnx", b""),
        ("text.onnx", b"this is not a model, however long the text may be"),
        ("half.onnx", data[: len(data) // 2]),
        ("shorter.onnx", data[:-7]),
        ("config.json", b'{"base": "1x8x8"}'),  # the file's name does not choose its format
        ("image.onnx", b"\x89PNG\r\n\x1a\n" + bytes(200)),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        fails(path, ModelError, name)
    fails(tmp_path, ModelError, str(tmp_path))


def test_malformed_graphs() -> None:
    fails(small_model(helper.make_node("Relu", ["nothing"], ["y"])), ModelError, "nothing")
    fails(small_model(helper.make_node("Relu", ["x"], ["other"])), ModelError)
    wrong = helper.make_node("Concat", ["x", "x"], ["y"])
    fails(small_model(wrong), ModelError, "axis")
    product = helper.make_node("MatMul", ["x", "x"], ["y"])
    fails(small_model(product), ModelError)


def external_model(tmp_path: Path) -> Path:
    weights = numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
    model = small_model(helper.make_node("MatMul", ["x", "w"], ["y"]))
    model.graph.initializer.append(weights)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def _relocate(path: Path, **entries: str) -> None:
    model = onnx.load(path, load_external_data=False)
    tensor = model.graph.initializer[0]
    kept = {e.key: e.value for e in tensor.external_data} | entries
    del tensor.external_data[:]
    for key, value in kept.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())


def test_external_data(tmp_path: Path) -> None:
    path = external_model(tmp_path)
    graph = import_model(path)
    assert np.array_equal(graph.constants["w"], np.ones((3, 4), np.float32))
    fails(onnx.load(path, load_external_data=False), ModelError, "external")
    _relocate(path, offset="40")
    fails(path, ModelError, "beyond the end")
    _relocate(path, offset="many")
    fails(path, ModelError, "offset")
    (tmp_path / "weights.bin").unlink()
    fails(path, ModelError, "'w'", "missing")


@pytest.mark.parametrize(
    "location", ["../outside.bin", "/etc/hostname", "inside/../../outside.bin", ""]
)
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(48))
    path = external_model(folder)
    _relocate(path, location=location)
    fails(path, ModelError, "outside the model's folder")


def test_external_data_through_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(48))
    path = external_model(folder)
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to(tmp_path / "outside.bin")
    fails(path, ModelError, "outside the model's folder")


def test_node_cases_of_onnx_are_read_and_optimized() -> None:
    """A part of the cases onnx itself is tested with: any operator, type and attribute."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases compute their expected values with overflows
        cases = collect_testcases(None)[::10]
    for case in cases:
        assert case.model is not None
        graph = run_passes(import_model(case.model))
        assert graph.outputs == tuple(value.name for value in case.model.graph.output), case.name
    assert len(cases) > 100


@pytest.mark.parametrize(
    ("node", "shapes", "words"),
    [
        (("QuantizeLinear", {}), [(5,)], "scale of shape [5]"),
        (("QuantizeLinear", {"axis": 4}), [(6,)], "axis 4"),
        (("QuantizeLinear", {}), [(), (6,)], "zero point [6]"),
        (("Conv", {}), [(8, 4, 3, 3)], "has 6 channels, its weights need 4"),
        (("Conv", {"group": 4}), [(8, 1, 3, 3)], "cannot form 4 groups"),
        (("Conv", {"kernel_shape": [5, 5]}), [(8, 6, 3, 3)], "kernel_shape [5, 5]"),
        (("Conv", {}), [(8, 6, 3, 3), (7,)], "bias is [7], not [8]"),
        (("Conv", {"pads": [1, 2**40, 1, 1]}), [(8, 6, 3, 3)], "goes beyond 1048576"),
        (("ConvTranspose", {}), [(8, 6, 3, 3)], "its weights need 8"),
        (("Conv", {}), [(8, 6, 10, 3)], "its window [10, 3] is larger"),
        (("MaxPool", {"kernel_shape": [2, 12], "pads": [0, 1, 0, 1]}), [], "larger"),
    ],
)
def test_operands_that_do_not_belong_together(
    node: tuple[str, dict[str, Any]], shapes: list[tuple[int, ...]], words: str
) -> None:
    op, attrs = node
    names = [f"w{k}" for k in range(len(shapes))]
    model = small_model(helper.make_node(op, ["x", *names], ["y"], **attrs), shape=(1, 6, 9, 9))
    for k, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        dtype = np.uint8 if op == "QuantizeLinear" and k == 1 else np.float32
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, dtype), name))
    fails(model, ModelError, op, words)


def test_strings_that_are_no_text() -> None:
    model = small_model(helper.make_node("Relu", ["x"], ["y"], name="rectify"))
    damaged = model.SerializeToString().replace(b"rectify", b"rec\xfffy!")
    fails(onnx.load_from_string(damaged), ModelError, "NodeProto.name", "no text")


def test_types_an_operator_does_not_have() -> None:
    model = small_model(helper.make_node("DequantizeLinear", ["x", "x"], ["y"]))
    fails(model, ModelError, "types are inconsistent", "DequantizeLinear")


@pytest.mark.parametrize("opset", [11, 18, 22])
def test_ceil_mode_counts_no_window_wholly_in_the_padding(opset: int) -> None:
    attrs = {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1] * 4, "ceil_mode": 1}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], **attrs),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    graph = import_model(small_model(*nodes, opset=opset, shape=(1, 6, 13, 14)))
    assert graph.types["y"].shape == (1, 6, 5, 5)
