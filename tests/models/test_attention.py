"""A block of attention: its projections and both its products on the accelerator, bit for bit."""

from typing import Any

import numpy as np
import pytest

import accelc
from accelc.compiler.partition import Place
from accelc.compiler.verify import verify


def block(net: Any, tokens: int, heads: int, width: int, probability_zero: int = -128) -> None:
    """Queries, keys and values of ``heads`` heads, softmax, and the projection behind them."""
    channels = heads * width
    x = net.dq(net.input(1, tokens, channels), 0.05, 3)

    def project(value: str, scale: float, zero: int) -> str:
        y = net.node("MatMul", value, net.weights((channels, channels), 1))
        return net.qdq(net.node("Add", y, net.bias(channels, axis=0)), scale, zero)

    def split(value: str, order: list[int]) -> str:
        shape = net.const(np.array([1, tokens, heads, width], np.int64))
        return net.node("Transpose", net.node("Reshape", value, shape), perm=order)

    query = split(project(x, 0.05, 0), [0, 2, 1, 3])
    key = split(project(x, 0.05, 0), [0, 2, 3, 1])
    value = split(project(x, 0.05, -6), [0, 2, 1, 3])
    scores = net.qdq(net.node("MatMul", query, key), 0.25 * width**0.5, 4)
    scale = net.const(np.float32(width**-0.5))
    weights = net.node("Softmax", net.node("Mul", scores, scale), axis=-1)
    weights = net.qdq(weights, 1 / 255 if probability_zero else 1 / 127, probability_zero)
    mixed = net.qdq(net.node("MatMul", weights, value), 0.03, 5)
    joined = net.node("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = net.node("Reshape", joined, net.const(np.array([1, tokens, channels], np.int64)))
    net.output(net.q(net.node("MatMul", joined, net.weights((channels, channels), 1)), 0.04, 2))


SHAPES = [
    pytest.param((1, 1, 4), id="one token"),
    pytest.param((9, 3, 5), id="ragged"),
    pytest.param((33, 2, 32), id="whole blocks"),
    pytest.param((150, 2, 24), id="more tokens than a tile"),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("config", "zero"), [("1x16x16", -128), ("2x16x16", 0)])
def test_attention(
    new_net: Any, check_net: Any, config: str, shape: tuple[int, int, int], zero: int
) -> None:
    net = new_net()
    block(net, *shape, zero)
    artifact = check_net(net, config)
    places = [(p.op, p.place) for p in artifact.model.placements]
    assert places.count(("int.conv", Place.ACCELERATOR)) == 4
    assert places.count(("int.matmul", Place.ACCELERATOR)) == 2
    for program in artifact.programs:
        verify(program)


@pytest.mark.rtl
@pytest.mark.parametrize("config", ["1x16x16", "1x8x8"])
def test_every_executor_gives_the_same(new_net: Any, config: str) -> None:
    net = new_net()
    block(net, 9, 3, 5)
    artifact = accelc.compile(net.model(), config=config)
    feeds = net.feeds()
    results = [
        [*accelc.load(artifact, name).run(feeds).values()]
        for name in ("golden", "functional", "rtl", "cpu")
    ]
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    timing = accelc.load(artifact, "timing")
    timing.run(feeds)
    assert timing.cycles > 0
