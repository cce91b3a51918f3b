"""Whole graphs: segments, aliases, memory, errors, ahead-of-time code."""

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accelc.compiler.cpu import CpuModule, compile_graph, supports, target_for
from accelc.compiler.graph import Graph, Node, TensorType
from accelc.compiler.integer_reference import evaluate
from accelc.isa.errors import ArtifactError, ConfigError, InputError, UnsupportedOpError

FLOAT = np.dtype(np.float32)


def graph_of(nodes: tuple[Node, ...], shapes: Mapping[str, tuple[int, ...]], **other: Any) -> Graph:
    """Inputs ``x``, outputs ``other["outputs"]`` or ``y``; every value float32."""
    types = {name: TensorType(shape, FLOAT) for name, shape in shapes.items()}
    constants = other.get("constants", {})
    types |= {name: TensorType(a.shape, a.dtype) for name, a in constants.items()}
    return Graph("test", nodes, types, constants, ("x",), other.get("outputs", ("y",)), 17)


def small_network(rng: np.random.Generator) -> Graph:
    shape = (1, 4, 9, 9)
    constants = {
        "w": rng.standard_normal((4, 4, 3, 3)).astype(np.float32),
        "f": rng.standard_normal((324, 10)).astype(np.float32),
        "s": np.array([1, -1], np.int64),
    }
    nodes = (
        Node("Conv", "conv", ("x", "w"), ("a",), {"pads": (1, 1, 1, 1)}),
        Node("Relu", "relu", ("a",), ("b",)),
        Node("Add", "add", ("b", "x"), ("c",)),
        Node("Reshape", "flat", ("c", "s"), ("d",)),
        Node("MatMul", "dense", ("d", "f"), ("e",)),
        Node("Softmax", "soft", ("e",), ("y",), {"axis": -1}),
    )
    shapes = {name: shape for name in "xabc"} | {"d": (1, 324), "e": (1, 10), "y": (1, 10)}
    return graph_of(nodes, shapes, constants=constants)


def test_reference_nodes_between_native_segments(rng: np.random.Generator) -> None:
    nodes = (
        Node("Relu", "native1", ("x",), ("a",)),
        Node("ai.onnx.ml.Binarizer", "reference", ("a",), ("b",), {"threshold": 0.5}),
        Node("Neg", "native2", ("b",), ("y",)),
    )
    shapes = {name: (3, 8) for name in "xaby"}
    graph = graph_of(nodes, shapes)
    module = compile_graph(graph)
    assert module.reference_nodes == ["reference"]
    assert [supports(node, graph) for node in nodes] == [True, False, True]
    x = rng.standard_normal((3, 8)).astype(np.float32)
    want = -(x > 0.5).astype(np.float32)
    for _ in range(2):
        np.testing.assert_allclose(module.run({"x": x})["y"], want, rtol=1e-6, atol=1e-6)
    with pytest.raises(UnsupportedOpError, match="'reference'"):
        module.shared_library("never.so")


def test_shapes_that_depend_on_data(rng: np.random.Generator) -> None:
    nodes = (
        Node("Relu", "relu", ("x",), ("a",)),
        Node("NonZero", "find", ("a",), ("i",)),
        Node("Cast", "cast", ("i",), ("y",), {"to": 1}),
    )
    types = {
        "x": TensorType((5,), FLOAT),
        "a": TensorType((5,), FLOAT),
        "i": TensorType((1, -1), np.dtype(np.int64)),
        "y": TensorType((1, -1), FLOAT),
    }
    module = compile_graph(Graph("test", nodes, types, {}, ("x",), ("y",), 17))
    assert module.host_nodes == ["find", "cast"]
    assert module.reference_nodes == ["find"]
    x = np.array([1, -1, 2, 0, 3], np.float32)
    np.testing.assert_array_equal(module.run({"x": x})["y"], [[0, 2, 4]])
    np.testing.assert_array_equal(module.run({"x": -x})["y"], [[1]])


def test_outputs_that_share_memory(rng: np.random.Generator) -> None:
    """An input, a constant, a view and an intermediate value as outputs, one of them twice."""
    constants = {"k": np.arange(6, dtype=np.float32), "s": np.array([6], np.int64)}
    nodes = (
        Node("Identity", "i", ("x",), ("same",)),
        Node("Identity", "k", ("k",), ("constant",)),
        Node("Relu", "r", ("x",), ("relu",)),
        Node("Reshape", "f", ("relu", "s"), ("flat",)),
        Node("Neg", "n", ("relu",), ("y",)),
    )
    shapes = {n: (2, 3) for n in ("x", "same", "relu", "y")} | {"constant": (6,), "flat": (6,)}
    outputs = ("same", "constant", "relu", "flat", "y")
    graph = graph_of(nodes, shapes, constants=constants, outputs=outputs)
    x = rng.standard_normal((2, 3)).astype(np.float32)
    got = compile_graph(graph).run({"x": x})
    want = {
        "same": x,
        "constant": constants["k"],
        "relu": np.maximum(x, 0),
        "flat": np.maximum(x, 0).reshape(6),
        "y": -np.maximum(x, 0),
    }
    for name in outputs:
        np.testing.assert_array_equal(got[name], want[name])
    got["same"][:] = 0
    assert x.any()


def test_element_types_without_kernels() -> None:
    """Views of them are native all the same; computing goes through the reference."""
    dtype = np.complex64
    kind = TensorType((2, 3), np.dtype(dtype))
    nodes = (
        Node("Identity", "view", ("x",), ("same",)),
        Node("Transpose", "turn", ("x",), ("y",)),
    )
    types = {"x": kind, "same": kind, "y": TensorType((3, 2), np.dtype(dtype))}
    module = compile_graph(Graph("test", nodes, types, {}, ("x",), ("same", "y"), 17))
    assert module.reference_nodes == ["turn"]
    x = np.arange(6).reshape(2, 3).astype(dtype)
    got = module.run({"x": x})
    np.testing.assert_array_equal(got["same"], x)
    np.testing.assert_array_equal(got["y"], x.T)


def test_constant_nodes_are_folded(rng: np.random.Generator) -> None:
    constants = {"q": rng.integers(-9, 9, (4, 4)).astype(np.int8), "s": np.float32(0.5)}
    constants = {name: np.asarray(value) for name, value in constants.items()}
    nodes = (
        Node("DequantizeLinear", "dq", ("q", "s"), ("w",)),
        Node("MatMul", "mm", ("x", "w"), ("y",)),
    )
    graph = graph_of(nodes, {"x": (2, 4), "w": (4, 4), "y": (2, 4)}, constants=constants)
    module = compile_graph(graph)
    x = rng.standard_normal((2, 4)).astype(np.float32)
    want = x @ (constants["q"] * np.float32(0.5))
    np.testing.assert_allclose(module.run({"x": x})["y"], want, rtol=1e-5)
    assert module.arena_bytes == 0


def test_input_errors(rng: np.random.Generator) -> None:
    module = compile_graph(small_network(rng))
    good = np.zeros((1, 4, 9, 9), np.float32)
    with pytest.raises(InputError, match=r"^input 'x' is missing; given are \['z'\]$"):
        module.run({"z": good})
    with pytest.raises(InputError, match=r"float32 \(1, 4, 9, 9\), not float32 \(4, 9, 9\)$"):
        module.run({"x": good[0]})
    with pytest.raises(InputError, match=r"not float64 \(1, 4, 9, 9\)$"):
        module.run({"x": good.astype(np.float64)})
    with pytest.raises(InputError, match="^no input 'z'"):
        module.run({"x": good, "z": good})


def test_inputs_of_any_layout(rng: np.random.Generator) -> None:
    graph = small_network(rng)
    module = compile_graph(graph)
    x = rng.standard_normal((9, 9, 4, 1)).astype(np.float32).transpose(3, 2, 0, 1)
    want = evaluate(graph, {"x": np.ascontiguousarray(x)})["y"]
    np.testing.assert_allclose(module.run({"x": x})["y"], want, rtol=1e-4, atol=1e-6)


def other_network() -> Graph:
    nodes = (Node("Relu", "relu", ("x",), ("y",)),)
    return graph_of(nodes, {"x": (3,), "y": (3,)})


def test_object_code_as_a_cache(rng: np.random.Generator) -> None:
    graph = small_network(rng)
    first = compile_graph(graph)
    again = compile_graph(graph, first.object_bytes())
    x = rng.standard_normal((1, 4, 9, 9)).astype(np.float32)
    np.testing.assert_array_equal(first.run({"x": x})["y"], again.run({"x": x})["y"])
    for wrong in (b"not an object file", compile_graph(other_network()).object_bytes()):
        with pytest.raises(ArtifactError, match="for another processor or model"):
            compile_graph(graph, wrong)


@pytest.mark.parametrize(
    "triple", ["aarch64-linux-gnu", "riscv64-linux-gnu", "armv7-linux-gnueabihf"]
)
def test_objects_for_other_targets(triple: str, rng: np.random.Generator) -> None:
    """ELF objects of the architecture asked for."""
    abi = "lp64d" if triple.startswith("riscv64") else ""
    features = "+m,+f,+d" if abi else ""
    code = compile_graph(small_network(rng)).object_bytes(
        target_for(triple, features=features, abi=abi)
    )
    machine = {"aarch64": 183, "riscv64": 243, "armv7": 40}[triple.split("-")[0]]
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == machine


def test_unknown_target(rng: np.random.Generator) -> None:
    with pytest.raises(ConfigError, match="no target 'pdp11-dec-unix'"):
        compile_graph(small_network(rng)).object_bytes(target_for("pdp11-dec-unix"))


C_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "model.h"

int main(void)
{
    static float x[324], y[10];
    for (int i = 0; i < 324; i++)
        x[i] = (float)((i * 37) % 101) / 50.0f - 1.0f;
    const void *inputs[ACCELC_INPUTS] = {x};
    void *outputs[ACCELC_OUTPUTS] = {y};
    void *arena = aligned_alloc(64, (ACCELC_ARENA_BYTES + 63) / 64 * 64);
    accelc_run(inputs, outputs, arena);
    for (int i = 0; i < 10; i++)
        printf("%.9g\\n", y[i]);
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler (cc)")
def test_shared_library_from_c(tmp_path: Path, rng: np.random.Generator) -> None:
    module = compile_graph(small_network(rng))
    library = module.shared_library(tmp_path / "model.so")
    (tmp_path / "main.c").write_text(C_MAIN)
    program = tmp_path / "main"
    subprocess.run(
        ["cc", "-Wall", "-Werror", "main.c", library.name, "-Wl,-rpath,.", "-o", program.name],
        cwd=tmp_path,
        check=True,
    )
    done = subprocess.run([str(program)], cwd=tmp_path, capture_output=True, text=True, check=True)
    got = np.array(done.stdout.split(), np.float32)
    x = ((np.arange(324) * 37) % 101).astype(np.float32) / np.float32(50) - np.float32(1)
    want = module.run({"x": x.reshape(1, 4, 9, 9)})["y"][0]
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler (cc)")
def test_shared_library_through_ctypes(tmp_path: Path, rng: np.random.Generator) -> None:
    module = compile_graph(small_network(rng))
    run = ctypes.CDLL(str(module.shared_library(tmp_path / "model.so"))).accelc_run
    x = rng.standard_normal((1, 4, 9, 9)).astype(np.float32)
    y = np.empty((1, 10), np.float32)
    arena = np.empty(module.arena_bytes + 64, np.uint8)
    inputs = (ctypes.c_void_p * 1)(x.ctypes.data)
    outputs = (ctypes.c_void_p * 1)(y.ctypes.data)
    run(inputs, outputs, ctypes.c_void_p(arena.ctypes.data))
    np.testing.assert_array_equal(y, module.run({"x": x})["y"])


def test_threads_take_turns(rng: np.random.Generator) -> None:
    from concurrent.futures import ThreadPoolExecutor

    module: CpuModule = compile_graph(small_network(rng))
    xs = rng.standard_normal((16, 1, 4, 9, 9)).astype(np.float32)
    alone = [module.run({"x": x})["y"] for x in xs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda x: module.run({"x": x})["y"], xs))
    np.testing.assert_array_equal(alone, together)
