"""Products of two activations on the golden semantics, and what goes around them."""

import math

import numpy as np
import pytest

from accelc.compiler.accelerator import lower
from accelc.compiler.integer import MatmulAttrs
from accelc.compiler.partition import Place, partition, subgraph
from accelc.compiler.random_graphs import SMALL, GraphBuilder
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.spec import Gemm

CONFIGS = [SMALL, PRESETS["1x16x16"], PRESETS["1x4x8"], PRESETS["2x16x16"], PRESETS["1x4x4s"]]


def builder(config: AccelConfig) -> GraphBuilder:
    return GraphBuilder(config, np.random.default_rng(1))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("rows", "depth", "outputs", "matmul"),
    [
        pytest.param(1, 1, 1, MatmulAttrs(), id="one number"),
        pytest.param(17, 33, 9, MatmulAttrs(), id="ragged"),
        pytest.param(3, 700, 5, MatmulAttrs(), id="deeper than wgt"),
        pytest.param(3, 5, 300, MatmulAttrs(), id="wider than acc and prm"),
        pytest.param(500, 20, 6, MatmulAttrs(b_zero=3), id="more rows than every scratchpad"),
        pytest.param(19, 21, 18, MatmulAttrs(a_batch=(3,), b_batch=(3,)), id="heads"),
        pytest.param(7, 40, 18, MatmulAttrs(a_batch=(3,), b_batch=(1,)), id="heads of a"),
        pytest.param(7, 40, 18, MatmulAttrs(a_batch=(1,), b_batch=(3,)), id="heads of b"),
        pytest.param(5, 9, 6, MatmulAttrs(a_batch=(2, 1), b_batch=(1, 3)), id="both broadcast"),
        pytest.param(
            9, 37, 21, MatmulAttrs(a_batch=(2,), b_batch=(2,), a_zero=-128), id="a from 0"
        ),
        pytest.param(
            9, 37, 21, MatmulAttrs(a_batch=(2,), b_batch=(2,), b_zero=-128), id="b from 0"
        ),
        pytest.param(9, 37, 21, MatmulAttrs(a_zero=127, b_zero=-77), id="two zero points"),
    ],
)
def test_products(
    check, config: AccelConfig, rows: int, depth: int, outputs: int, matmul: MatmulAttrs
) -> None:
    b = builder(config)
    x = b.input((rows, 1, math.prod(matmul.a_batch), depth))
    lowered = check(b.graph(b.matmul(x, outputs, matmul, table=True)), config)
    assert {packing.kind for packing in lowered.packings.values()} == {"nhwc", "tiles"}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_a_value_times_itself_and_constants(check, config: AccelConfig) -> None:
    b = builder(config)
    x = b.input((6, 1, 2, 9))
    heads = MatmulAttrs(a_batch=(2,), b_batch=(2,), b_zero=5)
    square = b.matmul(x, 6, heads, b=x)
    left = b.matmul(b.constant("left", b.int8(7, 1, 2, 9)), 6, heads, b=x)
    right = b.matmul(x, 11, heads, b=b.constant("right", b.int8(11, 1, 2, 9)))
    lowered = check(b.graph(square, left, right), config)
    names = [region.name for region in lowered.program.inputs]
    assert names == ["x0", f"x0@{square}", f"x0@{left}"]


def test_a_zero_point_of_0_costs_no_further_product() -> None:
    config = PRESETS["1x16x16"]
    steps: list[int] = []
    for a_zero, b_zero in ((0, 0), (0, 1), (-128, 0)):
        b = builder(config)
        matmul = MatmulAttrs(a_zero=a_zero, b_zero=b_zero)
        y = b.matmul(b.input((32, 1, 1, 64)), 32, matmul)
        gemms = [i for i in lower(b.graph(y), config).program.instructions if isinstance(i, Gemm)]
        steps.append(sum(i.n_o * i.n_k0 * i.n_k1 * i.n_y * i.n_x for i in gemms))
    # 128 is no int8: it is added as 64 twice
    assert steps == [256, 512, 768]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_what_becomes_weights_begins_a_region(config: AccelConfig) -> None:
    """Another layer's result has another layout: the host brings it into that of weights."""
    b = builder(config)
    x = b.input((5, 1, 1, 8))
    scaled = b.scale(x)
    product = b.matmul(scaled, 5, MatmulAttrs(), b=scaled)
    graph = b.graph(b.scale(product))
    segments = partition(graph, [Place.ACCELERATOR] * 3)
    assert [segment.nodes for segment in segments] == [(0,), (1, 2)]
    with pytest.raises(AssertionError, match="must come from outside of the region"):
        lower(graph, config)
    lower(subgraph(graph, segments[1].nodes, "second"), config)
