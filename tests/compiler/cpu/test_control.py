"""If, Loop and Scan in this package's hands, nodes compiled when they run, sequences."""

from typing import Any

import numpy as np
import onnx.parser
import pytest

import accelc
from accelc.compiler.cpu.control import MAX_FORMS
from accelc.session import Session


def session(graph: str, opset: int = 21) -> Session:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> case {graph}'
    return accelc.load(accelc.compile(onnx.parser.parse_model(text), "cpu"), "cpu")


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def test_a_branch_is_taken_when_running() -> None:
    net = session(
        """(bool c, float[3] x) => (float[3] y) {
            y = If (c) <then_branch = a () => (float[3] p) { p = Relu(x) },
                        else_branch = b () => (float[3] q) { q = Neg(x) }> }"""
    )
    x = floats(-1, 0, 2)
    for _ in range(2):
        np.testing.assert_array_equal(net.run({"c": np.array(True), "x": x})["y"], [0, 0, 2])
        np.testing.assert_array_equal(net.run({"c": np.array(False), "x": x})["y"], [1, 0, -2])
    assert net.reference_operators == ()


def test_a_branch_that_is_known_leaves_no_control_flow() -> None:
    net = session(
        """(float[3] x) => (float[3] y) <bool c = {1}> {
            y = If (c) <then_branch = a () => (float[3] p) { p = Relu(x) },
                        else_branch = b () => (float[3] q) { q = Neg(x) }> }"""
    )
    np.testing.assert_array_equal(net.run({"x": floats(-1, 0, 2)})["y"], [0, 0, 2])
    assert net._steps[0].runner.host_nodes == []  # type: ignore[union-attr]


LOOP = """(int64 n, float[2] x) => (float[2] y, float[k, 2] z) <bool on = {1}> {
    y, z = Loop (n, on, x) <body = b (int64 i, bool go, float[2] s)
        => (bool more, float[2] t, float[2] u) {
            more = Identity(go) t = Add(s, x) f = CastLike(i, s) u = Mul(t, f) }> }"""


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_loop_carries_and_collects(trips: int) -> None:
    net = session(LOOP)
    x = floats(1, -2)
    found = net.run({"n": np.array(trips, np.int64), "x": x})
    np.testing.assert_array_equal(found["y"], x * (trips + 1))
    want = [x * (i + 2) * i for i in range(trips)]
    np.testing.assert_array_equal(found["z"], np.reshape(want, (trips, 2)))
    assert net.reference_operators == ()


def test_a_state_that_grows() -> None:
    """Every step meets a new shape: a few are compiled for, beyond them the reference takes over,
    and the result is the same."""
    net = session(
        """(int64 n, float[k] x) => (float[m] y) <bool on = {1}> {
            y = Loop (n, on, x) <body = b (int64 i, bool go, float[r] s)
                => (bool more, float[q] t) {
                    more = Identity(go) t = Concat <axis = 0> (s, x) }> }"""
    )
    for trips in (3, MAX_FORMS + 2):
        found = net.run({"n": np.array(trips, np.int64), "x": floats(1, 2)})["y"]
        np.testing.assert_array_equal(found, np.tile(floats(1, 2), trips + 1))
        assert bool(net.reference_operators) == (trips > MAX_FORMS)


def test_scan_backwards_along_another_axis() -> None:
    net = session(
        """(float[2] h, float[2, 5] x) => (float[2] y, float[2, 5] z) {
            y, z = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
                         scan_input_directions = [1], scan_output_directions = [1],
                         body = b (float[2] s, float[2] e) => (float[2] t, float[2] u) {
                             t = Add(s, e) u = Identity(t) }> (h, x) }"""
    )
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    found = net.run({"h": floats(100, 200), "x": x})
    sums = x[:, ::-1].cumsum(axis=1)[:, ::-1] + floats(100, 200)[:, None]
    np.testing.assert_array_equal(found["z"], sums)
    np.testing.assert_array_equal(found["y"], sums[:, 0])
    assert net.reference_operators == ()


def test_a_slice_whose_bounds_come_late() -> None:
    """Code is made for the bounds that occur, and kept; beyond a number of them, the reference."""
    net = session("(float[50] x, int64[1] a, int64[1] b) => (float[n] y) { y = Slice(x, a, b) }")
    x = np.arange(50, dtype=np.float32)
    for first in range(40):
        found = net.run({"x": x, "a": np.array([first]), "b": np.array([first + 7])})["y"]
        np.testing.assert_array_equal(found, x[first : first + 7])
        if first == 0:
            assert net.reference_operators == ()
    assert net.reference_operators == ("Slice",)


def test_sequences_need_no_reference() -> None:
    net = session(
        """(float[6] x, int64 i) => (float[n] y, int64 k) <int64[3] s = {1, 2, 3}> {
            q = SplitToSequence(x, s) r = SequenceInsert(q, x) e = SequenceErase(r, i)
            k = SequenceLength(e) y = ConcatFromSequence <axis = 0> (e) }"""
    )
    x = np.arange(6, dtype=np.float32)
    found = net.run({"x": x, "i": np.array(1, np.int64)})
    np.testing.assert_array_equal(found["y"], np.concatenate([x[:1], x[3:], x]))
    assert found["k"] == 3
    assert net.reference_operators == ()
