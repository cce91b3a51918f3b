"""Hostile models, kind by kind: attributes at their extremes, sizes beyond all memory, deep and
cyclic graphs, strange names, noise. The answer is outputs or one ``AccelcError``, soon, and within
``LIMIT_BYTES`` of memory.

``ACCELC_FUZZ=N python -m pytest tests/test_fuzz_kinds.py`` tries N times as many;
``benchmarks/fuzz.py`` goes on for as long as one likes, and survives a crash.
"""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import accelc
from accelc.compiler import memory_limit
from accelc.compiler.onnx_wire import message
from accelc.inputs import random_inputs
from accelc.isa.errors import AccelcError

EFFORT = int(os.environ.get("ACCELC_FUZZ", "1"))
LIMIT_SECONDS = 10.0
#: What refusing or running a small model may take beyond what this process had before.
LIMIT_BYTES = 1 << 30
FLOAT = TensorProto.FLOAT
node = helper.make_node


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused must not depend on the machine the tests run on."""
    monkeypatch.setattr(memory_limit, "available_bytes", lambda: LIMIT_BYTES // 2)


def resident_bytes() -> int:
    """Largest resident memory of this process so far."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next(int(x.split()[1]) << 10 for x in status.splitlines() if x.startswith("VmHWM:"))


def survive(model: ModelProto | Path, target: str = "cpu") -> str:
    """Compile and run; what it said, "" for outputs."""
    before, start = resident_bytes(), time.process_time()
    said = ""
    try:
        session = accelc.load(accelc.compile(model, target, "1x8x8"), "functional")
        session.run(random_inputs(session.inputs, 0))
    except AccelcError as error:
        said = str(error)
        assert said and "\n" not in said
    assert time.process_time() - start < LIMIT_SECONDS
    assert resident_bytes() - before < LIMIT_BYTES
    return said


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: tuple[str, ...] = ("y",),
    constants: dict[str, Any] | None = None,
    opset: int = 21,
) -> ModelProto:
    """``inputs`` are float32 by shape."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.mark.parametrize("name", ["attributes", "operands", "constants", "nodes", "heads"])
def test_mutants_of_operators(name: str, hostile: ModuleType, tmp_path: Path) -> None:
    """As ``benchmarks/fuzz.py`` does for as long as one likes."""
    models, path = hostile.operator_tests(), tmp_path / "mutant.onnx"
    for seed in range(40 * EFFORT):
        rng = random.Random(seed)
        source = rng.choice(list(models))
        print(name, "seed", seed, source)
        path.write_bytes(hostile.MUTATIONS[name](rng, models[source].SerializeToString()))
        survive(path, rng.choice(("cpu", "vta")))


#: One layer each, of the kinds that quantized networks have.
def quantized(op: str, attrs: dict[str, Any]) -> ModelProto:
    weights = np.random.default_rng(0).integers(-9, 9, (8, 8, 3, 3)).astype(np.int8)
    constants = {"s": np.float32(0.1), "z": np.int8(3), "w": weights, "n": np.int8(0)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "s", "n"], ["v"]),
        node(op, ["d", "v"] if op == "Conv" else ["d"], ["c"], **attrs),
        node("QuantizeLinear", ["c", "s", "z"], ["r"]),
        node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    return model_of(nodes, {"x": (1, 8, 9, 9)}, constants=constants)


@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_attributes_of_layers_on_the_accelerator(op: str, hostile: ModuleType) -> None:
    attrs: dict[str, Any] = {
        "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1],
        "auto_pad": "NOTSET", **({"group": 1} if op == "Conv" else {"ceil_mode": 0}),
    }  # fmt: skip
    base = quantized(op, attrs)
    assert survive(base, "vta") == ""
    layer = base.graph.node[3]
    mutants = [(i, c) for i, a in enumerate(layer.attribute) for c in hostile.extremes(a)]
    for index, changed in random.Random(5).sample(mutants, min(len(mutants), 25 * EFFORT)):
        print(op, str(changed)[:300])
        mutant = ModelProto()
        mutant.CopyFrom(base)
        mutant.graph.node[3].attribute[index].CopyFrom(changed)
        survive(mutant, "vta")


SIZES: dict[str, Callable[[int], ModelProto]] = {
    "input": lambda n: model_of([node("Relu", ["x"], ["y"])], {"x": (n,)}),
    "two dimensions": lambda n: model_of([node("Relu", ["x"], ["y"])], {"x": (n, n)}),
    "four dimensions": lambda n: model_of([node("Softmax", ["x"], ["y"])], {"x": (n, n, n, n)}),
    "outer product": lambda n: model_of(
        [node("MatMul", ["x", "w"], ["y"])], {"x": (n, 1), "w": (1, n)}
    ),
    "constant of shape": lambda n: model_of(
        [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["c", "x"], ["y"])],
        {"x": (1,)}, constants={"s": np.array([n], np.int64)},
    ),
    "expand": lambda n: model_of(
        [node("Expand", ["x", "s"], ["e"]), node("Exp", ["e"], ["y"])],
        {"x": (1,)}, constants={"s": np.array([n], np.int64)},
    ),
    "expand of a constant": lambda n: model_of(
        [node("Expand", ["c", "s"], ["e"]), node("Add", ["e", "x"], ["y"])],
        {"x": (1,)}, constants={"s": np.array([n], np.int64), "c": np.ones(1, np.float32)},
    ),
    "tile": lambda n: model_of(
        [node("Tile", ["x", "s"], ["y"])], {"x": (3,)}, constants={"s": np.array([n], np.int64)}
    ),
    "range": lambda n: model_of(
        [node("Range", ["a", "b", "c"], ["r"]), node("Cast", ["r"], ["f"], to=FLOAT),
         node("Add", ["f", "x"], ["y"])],
        {"x": (1,)}, constants={"a": np.int64(0), "b": np.int64(n), "c": np.int64(1)},
    ),
    "pad": lambda n: model_of(
        [node("Pad", ["x", "p"], ["y"])], {"x": (3,)}, constants={"p": np.array([0, n], np.int64)}
    ),
    "one hot": lambda n: model_of(
        [node("OneHot", ["i", "d", "v"], ["h"]), node("Add", ["h", "x"], ["y"])], {"x": (1,)},
        constants={
            "i": np.array([1, 2]), "d": np.int64(n), "v": np.array([0, 1], np.float32)
        },
    ),
    "resize": lambda n: model_of(
        [node("Resize", ["x", "", "", "s"], ["y"])], {"x": (1, 1, 2, 2)},
        constants={"s": np.array([1, 1, n, 2], np.int64)},
    ),
    "identity matrix": lambda n: model_of(
        [node("EyeLike", ["x"], ["y"])], {"x": (n, n)}
    ),
    "convolution": lambda n: model_of(
        [node("Conv", ["x", "w"], ["y"])], {"x": (1, 1, n, 3)},
        constants={"w": np.ones((1, 1, 1, 1), np.float32)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "size", [2**31 - 1, 2**31, 2**40, 2**62], ids=("2^31-1", "2^31", "2^40", "2^62")
)
@pytest.mark.parametrize("name", SIZES)
def test_sizes_beyond_all_memory(name: str, size: int) -> None:
    """Refused before anything of that size is allocated."""
    try:
        model = SIZES[name](size)
    except ValueError:
        pytest.skip("protobuf does not hold it")
    assert survive(model)


@pytest.mark.parametrize("op", ["If", "Loop", "Scan"])
def test_slices_of_impossible_sizes_in_bodies(op: str, hostile: ModuleType) -> None:
    """onnx's own shape inference runs out of memory, or ends the process, on some of them."""
    empty = helper.make_empty_tensor_value_info
    body_inputs = {"If": (), "Loop": ("trip", "going"), "Scan": ("row",)}[op]
    shapes = [(0,), (3,), (0, 3), (3, 0), (2**31 - 1,), (2**28,), (2**62,)]
    for seed in range(40 * EFFORT):
        rng = random.Random(seed)
        bounds = {name: np.array([rng.choice(hostile.INTS)]) for name in ("start", "end", "step")}
        bounds["axis"] = np.array([rng.choice((0, 0, -1, 1, 2**40))])
        constants = [numpy_helper.from_array(array, name) for name, array in bounds.items()]
        inside = rng.random() < 0.5
        nodes = [
            node("Slice", ["x", "start", "end", "axis", "step"], ["s"]),
            node("Identity", ["s"], ["o"]),
            *([node("Identity", ["going"], ["on"])] if op == "Loop" else []),
        ]
        results = [empty("on"), empty("o")] if op == "Loop" else [empty("o")]
        body = helper.make_graph(
            nodes, "b", list(map(empty, body_inputs)), results, constants if inside else []
        )
        outer = {"c": np.array(True), "t": np.int64(2)} | ({} if inside else bounds)
        control = {
            "If": lambda b: node("If", ["c"], ["y"], then_branch=b, else_branch=b),
            "Loop": lambda b: node("Loop", ["t", "c"], ["y"], body=b),
            "Scan": lambda b: node("Scan", ["z"], ["y"], body=b, num_scan_inputs=1),
        }[op](body)
        shape = rng.choice(shapes)
        print("seed", seed, shape, bounds, inside)
        survive(model_of([control], {"x": shape, "z": (3,)}, constants=outer))


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("LayerNormalization", [(2, 3), (3,)], {"axis": 2**63 - 1}),
        ("LayerNormalization", [(2, 3), (3,)], {"axis": -(2**31)}),
        ("GatherND", [(2, 2), (1, 2)], {"batch_dims": -5}),
        ("Split", [(2, 2)], {"num_outputs": 2**40}),
        ("Einsum", [(1,)], {"equation": "a."}),
        ("Einsum", [()], {"equation": b"\xff\xfe"}),
        ("TfIdfVectorizer", [(12,)], {
            "max_skip_count": 2**63 - 1, "max_gram_length": 2, "min_gram_length": 2, "mode": "TF",
            "ngram_counts": [0, 4], "ngram_indexes": [0, 1], "pool_int64s": [2, 3, 5, 4],
        }),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
@pytest.mark.parametrize("inside", [False, True], ids=("outside", "in a body"))
def test_what_nothing_survives_is_refused(
    op: str, inputs: list[tuple[int, ...]], attrs: dict[str, Any], inside: bool
) -> None:
    """onnx's shape inference ends the process, or it or its reference never comes back."""
    constants: dict[str, Any] = {
        f"i{k}": np.ones(shape, np.float32) for k, shape in enumerate(inputs)
    }
    if op in ("GatherND", "TfIdfVectorizer"):
        last = f"i{len(inputs) - 1}"
        constants[last] = constants[last].astype(np.int64)
    layer = node(op, list(constants), ["y"], **attrs)
    if inside:
        body = helper.make_graph([layer], "b", [], [helper.make_empty_tensor_value_info("y")])
        layer = node("If", ["c"], ["y"], then_branch=body, else_branch=body)
        constants["c"] = np.array(True)
    assert survive(model_of([layer], {"x": (1,)}, constants=constants))


def test_empty_lists_of_attributes_that_became_inputs() -> None:
    for op in ("ReduceMean", "Squeeze"):
        survive(model_of([node(op, ["x"], ["y"], axes=[1])], {"x": (2, 1)}, opset=11))
        layer = node(op, ["x"], ["y"])
        layer.attribute.append(onnx.AttributeProto(name="axes", type=onnx.AttributeProto.INTS))
        survive(model_of([layer], {"x": (2, 1)}, opset=11))


@pytest.mark.parametrize("k", [-(2**63), -4, -3, 5, 6, 2**63 - 1])
def test_diagonals_beyond_the_corners(k: int) -> None:
    for upper in (0, 1):
        layer = node("Trilu", ["x", "k"], ["y"], upper=upper)
        model = model_of([layer], {"x": (3, 5)}, constants={"k": np.int64(k)})
        x = np.ones((3, 5), np.float32)
        (y,) = accelc.load(accelc.compile(model, "cpu")).run({"x": x}).values()
        cut = min(max(k, -9), 9)
        assert np.array_equal(y, np.triu(x, cut) if upper else np.tril(x, cut))


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("LRN", ["x"], {"size": 0}),
        ("Range", ["e", "e", "e"], {}),
        ("ConvTranspose", ["x", "w"], {"strides": [3, 2], "output_shape": [2, 8]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_attributes_no_kernel_makes_sense_of(
    op: str, inputs: list[str], attrs: dict[str, Any]
) -> None:
    weights = {"w": np.ones((1, 2, 3, 3), np.float32), "e": np.ones(0, np.float32)}
    survive(model_of([node(op, inputs, ["y"], **attrs)], {"x": (1, 1, 3, 3)}, constants=weights))


@pytest.mark.parametrize(
    "attrs",
    [
        {"num_scan_inputs": 0},
        {"num_scan_inputs": 2},
        {"scan_input_axes": [0, 1]},
        {"scan_input_axes": [5]},
        {"scan_input_directions": [0, 0]},
        {"scan_output_axes": [0, 0]},
        {"scan_output_directions": [0, 1, 0]},
    ],
    ids=str,
)
def test_scans_of_other_lengths(attrs: dict[str, Any]) -> None:
    empty = helper.make_empty_tensor_value_info
    body = helper.make_graph([node("Neg", ["a"], ["b"])], "body", [empty("a")], [empty("b")])
    given: dict[str, Any] = {"body": body, "num_scan_inputs": 1, **attrs}
    layer = node("Scan", ["x"], ["y"], **given)
    assert survive(model_of([layer], {"x": (3, 4)}))


def nested(depth: int) -> bytes:
    """If in If in If, as bytes: protobuf itself refuses to build what it cannot read."""
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, ())
    body = helper.make_graph([node("Identity", ["x"], ["y"])], "b", [], [])
    body.output.add(name="y")
    inner = body.SerializeToString()
    for _ in range(depth):
        branches = b"".join(
            message(5, message(1, name) + message(6, inner) + b"\xa0\x01\x05")
            for name in (b"then_branch", b"else_branch")[: 2 if len(inner) < 1000 else 1]
        )
        conditional = message(1, b"c") + message(2, b"y") + message(4, b"If") + branches
        inner = message(1, conditional) + message(2, b"b") + message(12, message(1, b"y"))
    x = helper.make_tensor_value_info("x", FLOAT, (2,))
    graph = inner + message(11, x.SerializeToString()) + message(11, condition.SerializeToString())
    model = ModelProto(ir_version=8)
    model.opset_import.add(version=17)
    return model.SerializeToString() + message(7, graph)


@pytest.mark.parametrize("depth", [1, 3, 10, 30, 33, 40, 100, 1000])
def test_deep_graphs(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "deep.onnx"
    path.write_bytes(nested(depth))
    assert survive(path)


def test_long_chains_and_wide_nodes() -> None:
    count = 2000
    chain = [node("Relu", [f"v{k}"], [f"v{k + 1}"]) for k in range(count)]
    assert survive(model_of(chain, {"v0": (3,)}, (f"v{count}",))) == ""
    assert survive(model_of([node("Sum", ["x"] * count, ["y"])], {"x": (3,)})) == ""
    assert survive(model_of([node("Concat", ["x"] * count, ["y"], axis=0)], {"x": (3,)})) == ""
    assert "dimensions" in survive(model_of([node("Relu", ["x"], ["y"])], {"x": (1,) * 200}))


def test_cycles_and_other_orders() -> None:
    cases = [
        [node("Relu", ["y"], ["y"])],
        [node("Relu", ["b"], ["y"]), node("Relu", ["y"], ["b"])],
        [node("Add", ["x", "b"], ["y"]), node("Neg", ["y"], ["b"])],
        [node("Relu", ["a"], ["y"]), node("Neg", ["x"], ["a"])],
        [node("Relu", ["x"], ["x"])],
        [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])],
        [node("Relu", ["x"], [""])],
        [node("Relu", [""], ["y"])],
        [node("Relu", [], ["y"])],
        [node("Relu", ["x", "x"], ["y"])],
        [node("Relu", ["x"], ["y", "z"])],
        [],
    ]
    for nodes in cases:
        for opset in (21, 5):  # which is converted first
            assert survive(model_of(nodes, {"x": (3,)}, opset=opset))
    no_input = model_of([node("Not", ["x"], ["y"])], {}, opset=1)
    assert "cannot be converted" in survive(no_input)


NAMES = (
    "a\nb", "a\0b", "\x1b[31m", "é中文🙂", "../../x", "%s%n", '"quoted"', "a b", "{x}", "$(reboot)",
    "a" * 100_000, "%t5", "%c1", "%out0", "int.conv", "x/y:z", "\\", "​", "accelc_segment_0", ".",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_strange_names(name: str) -> None:
    for target in ("cpu", "vta"):
        nodes = [
            helper.make_node("Exp", [name], [name + "1"], name=name),
            helper.make_node("Neg", [name + "1"], [name + "2"], name=name),
        ]
        model = model_of(nodes, {name: (3,)}, (name + "2",))
        model.graph.name = name
        artifact = accelc.compile(model, target)
        again = accelc.artifact.Artifact.from_bytes(artifact.to_bytes())
        (y,) = accelc.load(again).run({name: np.zeros(3, np.float32)}).values()
        assert np.array_equal(y, [-1, -1, -1])


def test_noise(hostile: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "noise.onnx"
    for seed in range(300 * EFFORT):
        print("seed", seed)
        path.write_bytes(hostile.noise(random.Random(seed)))
        assert survive(path)


UNARY = ("Relu", "Exp", "Neg", "Sigmoid", "Tanh", "Softmax", "Identity", "Abs", "Floor", "Erf")
BINARY = ("Add", "Mul", "Sub", "Div", "Max", "Min", "Pow", "MatMul")
SHAPED = ("Reshape", "Transpose", "ReduceSum", "Slice", "Gather", "Pad", "Concat", "Expand", "TopK")


def random_graph(rng: random.Random) -> ModelProto:
    """Operators on values drawn at random: some fit together, some do not."""
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Any] = {}
    values = ["x", "z"]

    def numbers(count: int) -> str:
        name = f"c{len(constants)}"
        constants[name] = np.array([rng.randrange(-2, 5) for _ in range(count)], np.int64)
        return name

    for k in range(rng.randrange(1, 12)):
        out, a, b = f"v{k}", rng.choice(values), rng.choice(values)
        kind = rng.choice((UNARY, BINARY, SHAPED))
        op = rng.choice(kind)
        if kind is UNARY:
            nodes.append(node(op, [a], [out]))
        elif kind is BINARY:
            nodes.append(node(op, [a, b], [out]))
        elif op == "Transpose":
            nodes.append(node(op, [a], [out]))
        elif op == "Concat":
            nodes.append(node(op, [a, b], [out], axis=rng.randrange(-2, 3)))
        elif op == "Slice":
            nodes.append(node(op, [a, *(numbers(1) for _ in range(3))], [out]))
        elif op == "TopK":
            nodes.append(node(op, [a, numbers(1)], [out, f"{out}_indices"]))
        else:
            nodes.append(node(op, [a, numbers(rng.randrange(1, 4))], [out]))
        values.append(out)
    shapes = {n: tuple(rng.randrange(1, 5) for _ in range(rng.randrange(1, 4))) for n in "xz"}
    return model_of(nodes, shapes, tuple(values[2:][-2:]), constants)


def test_random_graphs() -> None:
    ran = 0
    for seed in range(120 * EFFORT):
        print("seed", seed)
        ran += survive(random_graph(random.Random(seed))) == ""
    assert ran > 10 * EFFORT
