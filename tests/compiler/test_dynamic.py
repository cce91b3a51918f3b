"""Networks with open dimensions, and with shapes that depend on data, beside onnx.reference."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import accelc
from accelc.artifact import Artifact
from accelc.compiler.dynamic import KEPT_SHAPES, DynamicModule, fix, is_dynamic, sizes
from accelc.compiler.onnx import import_model
from accelc.inputs import random_inputs
from accelc.isa.errors import InputError, ModelError

Array = NDArray[Any]
DIGITS = Path(__file__).parents[2] / "models" / "digits_resnet8_int8.onnx"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(5)
node = helper.make_node


def constant(name: str, array: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int, Sequence[Any] | None]],
    outputs: dict[str, int] | None = None,
    constants: Sequence[TensorProto] = (),
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "case",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in (outputs or {"y": FLOAT}).items()
        ],
        list(constants),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def session_of(model: onnx.ModelProto) -> Any:
    artifact = accelc.compile(model, target="cpu")
    return accelc.load(Artifact.from_bytes(artifact.to_bytes()), "cpu")


def check(model: onnx.ModelProto, *feeds: dict[str, Array]) -> Any:
    """Run one session on all ``feeds`` in turn; each gives what the reference gives."""
    session, reference = session_of(model), ReferenceEvaluator(model)
    for given in feeds:
        ours = session.run(given)
        for (name, found), wanted in zip(ours.items(), reference.run(None, given), strict=True):
            assert (np.shape(found), found.dtype) == (np.shape(wanted), wanted.dtype), name
            want = np.asarray(wanted)
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5, err_msg=name)
    return session


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def test_batches_of_different_sizes_in_turn() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "m"], ["y"]),
    ]
    constants = [constant("w", normal(8, 3, 3, 3)), constant("m", normal(8, 5))]
    model = model_of(nodes, {"x": (FLOAT, ("n", 3, "h", "w_"))}, constants=constants)
    shapes = ((1, 3, 8, 8), (4, 3, 8, 8), (1, 3, 8, 8), (2, 3, 5, 17), (1, 3, 1, 1))
    session = check(model, *({"x": normal(*shape)} for shape in shapes))
    assert session.reference_operators == ()
    assert session.inputs["x"].shape == (-1, 3, -1, -1)


def test_a_quantized_network_gives_the_same_bits_for_every_batch() -> None:
    session = accelc.load(accelc.compile(DIGITS, target="cpu"), "cpu")
    images = RNG.random((5, 1, 8, 8), np.float32)
    together = session.run({"image": images})["logits"]
    for k, image in enumerate(images):
        alone = session.run({"image": image[None]})["logits"]
        assert alone.tobytes() == together[k : k + 1].tobytes()
    fixed = accelc.load(accelc.compile(DIGITS, target="cpu", dims={"batch": 5}), "cpu")
    assert fixed.run({"image": images})["logits"].tobytes() == together.tobytes()


def test_a_name_is_one_size_in_all_inputs() -> None:
    inputs = {"a": (FLOAT, ("n", 2)), "b": (FLOAT, ("n", 2)), "c": (FLOAT, ("?", "?"))}
    nodes = [node("Add", ["a", "b"], ["s"]), node("Concat", ["s", "c"], ["y"], axis=0)]
    model = model_of(nodes, inputs)
    session = check(model, {"a": normal(3, 2), "b": normal(3, 2), "c": normal(5, 2)})
    with pytest.raises(InputError, match="^dimension 'n' is 3 in input 'a' and 4 in input 'b'$"):
        session.run({"a": normal(3, 2), "b": normal(4, 2), "c": normal(5, 2)})
    with pytest.raises(InputError, match=r"input 'a' must be float32 \[n, 2\], not float32 \[3\]"):
        session.run({"a": normal(3), "b": normal(3, 2), "c": normal(5, 2)})
    with pytest.raises(InputError, match=r"does not take .*'c' \[1, 3\]"):
        session.run({"a": normal(3, 2), "b": normal(3, 2), "c": normal(1, 3)})


def test_some_sizes_fixed_at_compilation() -> None:
    model = model_of([node("Relu", ["x"], ["y"])], {"x": (FLOAT, ("n", "?", "w"))})
    session = accelc.load(accelc.compile(model, target="cpu", dims={"x.1": 4, "w": 2}), "cpu")
    assert session.inputs["x"].shape == (-1, 4, 2)
    assert session.run({"x": normal(7, 4, 2)})["y"].shape == (7, 4, 2)
    with pytest.raises(InputError, match=r"must be float32 \[n, 4, 2\]"):
        session.run({"x": normal(7, 5, 2)})
    with pytest.raises(ModelError, match=r"^the model has no symbolic dimension \['h'\]; it has "):
        accelc.compile(model, target="cpu", dims={"h": 4})
    with pytest.raises(ModelError, match=r"^symbolic dimensions need a size .*x\.1, 'w' \(x\.2\)"):
        accelc.compile(model, target="vta")


def test_a_stated_inner_shape_that_is_only_the_exporters() -> None:
    """Exporters trace with one batch and leave its size in the shapes of inner values."""
    model = model_of(
        [node("Relu", ["x"], ["r"]), node("Neg", ["r"], ["y"])], {"x": (FLOAT, ("n",))}
    )
    model.graph.value_info.append(helper.make_tensor_value_info("r", FLOAT, (1,)))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, (1,)))
    check(model, {"x": normal(3)}, {"x": normal(1)})


def test_empty_dimensions() -> None:
    model = model_of([node("Relu", ["x"], ["r"]), node("ReduceSum", ["r"], ["y"], keepdims=0)],
                     {"x": (FLOAT, ("n", 3))})  # fmt: skip
    check(model, {"x": normal(0, 3)}, {"x": normal(2, 3)})


def test_behind_nonzero_everything_is_native() -> None:
    nodes = [
        node("Greater", ["x", "zero"], ["g"]),
        node("NonZero", ["g"], ["i"]),
        node("Transpose", ["i"], ["t"]),
        node("GatherND", ["x", "t"], ["v"]),
        node("Exp", ["v"], ["e"]),
        node("Unsqueeze", ["e", "one"], ["u"]),
        node("MatMul", ["u", "m"], ["y"]),
    ]
    constants = [
        constant("zero", np.float32(0)),
        constant("one", np.array([1], np.int64)),
        constant("m", normal(1, 6)),
    ]
    model = model_of(nodes, {"x": (FLOAT, (4, 5))}, {"y": FLOAT, "i": INT64}, constants)
    check(model, {"x": -np.ones((4, 5), np.float32)})
    session = check(model, *({"x": normal(4, 5)} for _ in range(4)))
    assert not {"Exp", "MatMul", "Transpose", "Unsqueeze"} & set(session.reference_operators)


def test_shapes_computed_from_data() -> None:
    nodes = [
        node("Reshape", ["x", "s"], ["r"]),
        node("MatMul", ["r", "r"], ["q"]),
        node("Range", ["zero", "n", "one"], ["k"]),
        node("Cast", ["k"], ["f"], to=FLOAT),
        node("Tanh", ["f"], ["z"]),
        node("Expand", ["q", "big"], ["y"]),
    ]
    inputs = {
        "x": (FLOAT, (16,)), "s": (INT64, (2,)), "n": (INT64, ()), "big": (INT64, (3,)),
    }  # fmt: skip
    constants = [constant("zero", np.int64(0)), constant("one", np.int64(1))]
    model = model_of(nodes, inputs, {"y": FLOAT, "z": FLOAT}, constants)
    feeds = [
        {"x": normal(16), "s": np.array(s), "n": np.array(n), "big": np.array(big)}
        for s, n, big in (([4, 4], 3, [2, 4, 4]), ([-1, 4], 7, [1, 4, 4]), ([4, 4], 0, [5, 1, 1]))
    ]
    session = check(model, *feeds)
    assert not {"MatMul", "Tanh", "Cast"} & set(session.reference_operators)


def test_slices_at_run_time() -> None:
    nodes = [node("Slice", ["x", "a", "b"], ["s"]), node("Softmax", ["s"], ["y"])]
    model = model_of(nodes, {"x": (FLOAT, (6, 4)), "a": (INT64, (1,)), "b": (INT64, (1,))})
    for_rows = lambda a, b: {"x": normal(6, 4), "a": np.array([a]), "b": np.array([b])}  # noqa: E731
    session = check(model, for_rows(0, 3), for_rows(2, 6), for_rows(-2, 9))
    assert "Softmax" not in session.reference_operators


def loop_model() -> onnx.ModelProto:
    """Appends a row to its state in every trip."""
    body = helper.make_graph(
        [
            node("Concat", ["state", "row"], ["longer"], axis=0),
            node("Identity", ["go"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("state", FLOAT, (None, 3)),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("longer", FLOAT, (None, 3)),
        ],
    )
    nodes = [node("Loop", ["n", "true", "x"], ["l"], body=body), node("MatMul", ["l", "m"], ["y"])]
    inputs = {"n": (INT64, ()), "x": (FLOAT, ("k", 3)), "row": (FLOAT, (1, 3))}
    constants = [constant("m", normal(3, 4)), constant("true", np.bool_(True))]
    return model_of(nodes, inputs, constants=constants)


def test_behind_a_loop_everything_is_native() -> None:
    feeds = [
        {"n": np.array(n), "x": normal(k, 3), "row": normal(1, 3)}
        for n, k in ((2, 1), (5, 1), (0, 2))
    ]
    session = check(loop_model(), *feeds)
    assert "MatMul" not in session.reference_operators


def test_branches_of_different_rank() -> None:
    branches: dict[str, Any] = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["x", "axis"] if op == "Squeeze" else ["x"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, FLOAT, None)],
        )
        for name, op in (("then", "Squeeze"), ("else", "Identity"))
    }
    nodes = [node("If", ["c"], ["i"], **branches), node("Exp", ["i"], ["y"])]
    inputs = {"c": (TensorProto.BOOL, ()), "x": (FLOAT, (1, "n"))}
    model = model_of(nodes, inputs, constants=[constant("axis", np.array([0]))])
    feeds = [{"c": np.array(c), "x": normal(1, n)} for c, n in ((True, 3), (False, 3), (True, 2))]
    session = check(model, *feeds)
    assert "Exp" not in session.reference_operators


def test_sequences_inside() -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["s"], axis=0),
        node("SequenceAt", ["s", "k"], ["v"]),
        node("Exp", ["v"], ["y"]),
    ]
    model = model_of(nodes, {"x": (FLOAT, ("n", 3)), "k": (INT64, ())})
    check(model, {"x": normal(2, 3), "k": np.array(1)}, {"x": normal(4, 3), "k": np.array(0)})


def test_few_forms_are_kept() -> None:
    model = model_of([node("Exp", ["x"], ["y"])], {"x": (FLOAT, ("n",))})
    session = session_of(model)
    (step,) = session._steps
    module = step.runner
    assert isinstance(module, DynamicModule)
    for size in (*range(1, KEPT_SHAPES + 5), 1):
        x = normal(size)
        np.testing.assert_allclose(session.run({"x": x})["y"], np.exp(x), rtol=1e-5)
        assert len(module._root.forms) <= KEPT_SHAPES


def test_what_is_dynamic() -> None:
    graph = import_model(DIGITS, dynamic=True)
    assert graph.symbols == {"image": ("batch", "", "", "")} and is_dynamic(graph)
    assert not is_dynamic(import_model(DIGITS))
    assert graph.types["logits"].shape == (-1, 10)
    assert sizes(graph, {"image": (4, 1, 8, 8)}) == {"batch": 4}
    assert fix(graph, {"image.0": 3})["image"].shape == (3, 1, 8, 8)
    assert fix(graph, {}, 2)["image"].shape == (2, 1, 8, 8)
    assert random_inputs(fix(graph, {}), 0)["image"].shape == (1, 1, 8, 8)
    with pytest.raises(InputError, match=r"^the network has no open dimension \['n'\]; it has "):
        fix(graph, {"n": 1})
    with pytest.raises(InputError, match="was compiled for fixed shapes"):
        fix(import_model(DIGITS), {"batch": 1})
