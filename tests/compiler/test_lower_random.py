"""Random graphs through the whole back end, bit for bit, on presets and tiny scratchpads."""

import pytest

from accelc.compiler.random_graphs import random_graph
from accelc.isa.config import PRESETS, AccelConfig

#: Scratchpads in which nearly every tensor has to be cut along every dimension.
TINY = [
    AccelConfig(
        name="tiny",
        block_in=4,
        block_out=4,
        bus_bytes=4,
        vector_lanes=4,
        inp_rows=16,
        wgt_rows=32,
        acc_rows=8,
        vin_rows=32,
        out_rows=16,
        prm_rows=4,
        queue_depth=2,
        token_bits=2,
    ),
    AccelConfig(
        name="tiny-no-window",
        block_in=4,
        block_out=8,
        bus_bytes=4,
        vector_lanes=4,
        inp_rows=32,
        wgt_rows=64,
        acc_rows=16,
        vin_rows=64,
        out_rows=16,
        prm_rows=8,
        queue_depth=3,
        token_bits=3,
        window=False,
    ),
    AccelConfig(
        name="tiny-batch",
        batch=2,
        block_in=4,
        block_out=16,
        bus_bytes=4,
        vector_lanes=4,
        inp_rows=64,
        wgt_rows=64,
        acc_rows=16,
        vin_rows=64,
        out_rows=32,
        prm_rows=8,
        queue_depth=4,
        token_bits=2,
    ),
]


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("config", [*PRESETS.values(), *TINY], ids=lambda c: c.name)
def test_random_graphs_agree_with_the_reference(check, config: AccelConfig, seed: int) -> None:
    check(random_graph(seed, config), config, seed)


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
def test_larger_random_graphs_agree_with_the_reference(check, config: AccelConfig) -> None:
    for seed in range(1000, 1003):
        check(random_graph(seed, config, nodes=12), config, seed)
