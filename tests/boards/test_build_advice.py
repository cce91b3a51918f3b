"""What a configuration costs, and which one would fit where one does not."""

import dataclasses
from dataclasses import replace

import pytest

from accelc.boards.board import Board, Family
from accelc.boards.build import cost
from accelc.boards.build.advice import MARGIN, REDUCTIONS, explain, nearest_that_fits
from accelc.boards.build.cost import MEASURED, core_cost, estimate, scratchpad_rams
from accelc.boards.build.family import Resource, Usage
from accelc.boards.build.flows import flow_for
from accelc.boards.build.synthesis import TooLargeError
from accelc.boards.registry import BOARDS, find
from accelc.isa.config import AccelConfig


@pytest.mark.parametrize("family", MEASURED)
def test_the_model_explains_what_was_measured(family: Family) -> None:
    for values, dsps, used in MEASURED[family]:
        config = AccelConfig(**values)
        total = used.get("DSP", dsps)
        guess = core_cost(family, config, total)
        for resource in (Resource.LUT, Resource.FF, Resource.DSP):
            count = used.get(resource.name, guess[resource])
            assert guess[resource] == pytest.approx(count, rel=0.1), (values, resource)


@pytest.mark.parametrize("family", MEASURED)
def test_block_rams_follow_from_the_shapes(family: Family) -> None:
    for values, _, used in MEASURED[family]:
        if "RAM" in used:
            # what is not a scratchpad: queues, or a microprogram
            assert 0 <= used["RAM"] - scratchpad_rams(family, AccelConfig(**values)) <= 12


def test_what_shapes_cost() -> None:
    config = AccelConfig(
        block_in=8, block_out=8, vector_lanes=2, inp_rows=2048, wgt_rows=256, acc_rows=512,
        vin_rows=512, out_rows=512, prm_rows=64,
    )  # fmt: skip
    # wgt is 64 x 2048: 8 RAMs of 9 x 2048; halved, 4 of 18 x 1024
    assert scratchpad_rams(Family.ECP5, replace(config, inp_rows=4096)) > scratchpad_rams(
        Family.ECP5, config
    )
    halved = replace(config, wgt_rows=128)
    assert scratchpad_rams(Family.ECP5, config) - scratchpad_rams(Family.ECP5, halved) == 4
    # acc is two copies of 512 x 256: of 8 ECP5 RAMs each, 512 deep, so not fewer with half the
    # rows; of 32 iCE40 RAMs each, which are 256 deep
    for family, fewer in ((Family.ICE40, 2 * 16), (Family.ECP5, 0)):
        deep = scratchpad_rams(family, config)
        assert deep - scratchpad_rams(family, replace(config, acc_rows=256)) == fewer
    deeper = scratchpad_rams(Family.ICE40, replace(config, acc_rows=1024))
    assert deeper - scratchpad_rams(Family.ICE40, config) == 2 * 32


def usage(board: Board, **used: int) -> tuple[Usage, ...]:
    available = flow_for(board.family).available(board.platform())
    return tuple(
        Usage(resource=r, cell=cell, used=used.get(r.name, n // 2), available=n)
        for r, (cell, n) in available.items()
    )


@pytest.fixture
def linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cost model one can do in one's head: a LUT per 2 MACs, 3000 per lane, one DSP per MAC."""

    def model(_: Family, config: AccelConfig, dsps: int) -> dict[Resource, float]:
        return {
            Resource.LUT: config.macs_per_cycle / 2 + 3000 * config.vector_lanes,
            Resource.FF: 0.0,
            Resource.DSP: config.macs_per_cycle,
            Resource.RAM: scratchpad_rams(Family.ECP5, config),
        }

    monkeypatch.setattr(cost, "core_cost", model)


@pytest.mark.usefixtures("linear")
class TestNearest:
    board = find("ulx3s-85f")
    config = AccelConfig(block_in=8, block_out=16, vector_lanes=4, wgt_rows=512, inp_rows=2048)

    def nearest(self, **used: int) -> dict[str, object] | None:
        advice = nearest_that_fits(Family.ECP5, self.config, usage(self.board, **used))
        return None if advice is None else advice.changes

    def test_too_many_luts_cost_lanes(self) -> None:
        assert self.nearest(LUT=84_000) == {"vector_lanes": 2}
        assert self.nearest(LUT=86_000) == {"vector_lanes": 1}  # 80,000 leave no margin

    def test_too_many_multipliers_cost_outputs(self) -> None:
        assert self.nearest(DSP=160) == {"block_out": 8}

    def test_too_many_rams_cost_the_scratchpad_that_has_them(self) -> None:
        changes = self.nearest(RAM=210)
        assert changes is not None and len(changes) == 1
        name, value = next(iter(changes.items()))
        assert name.endswith("_rows") and value == getattr(self.config, name) // 2

    def test_nothing_helps_where_the_rest_is_too_large(self) -> None:
        assert self.nearest(LUT=200_000) is None

    def test_the_message_says_what_and_that_it_is_a_guess(self) -> None:
        error = TooLargeError("LFE5U-85F", usage(self.board, LUT=84_000))
        text = explain(error, Family.ECP5, self.config)
        assert "84000 LUTs of 83640 (360 too many)" in text
        assert "vector_lanes = 2" in text and "estimated: 78000 LUTs" in text


def test_reductions_name_real_parameters() -> None:
    names = {field.name for field in dataclasses.fields(AccelConfig)}
    config = AccelConfig(block_in=8)  # one whose two blocks differ
    for _, reduction in REDUCTIONS:
        changes = reduction(config)
        assert changes and set(changes) <= names
        assert replace(config, **changes) != config


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_advice_for_every_board(board: Board) -> None:
    """Eight times the scratchpads do not fit; the advice does by its own estimate."""
    rows = ("inp_rows", "wgt_rows", "acc_rows", "out_rows")
    large = replace(board.config, **{name: 8 * getattr(board.config, name) for name in rows})
    fitting = usage(board)
    dsps = next(u.available for u in fitting if u.resource is Resource.DSP)
    used = estimate(board.family, {u.resource: u.used for u in fitting}, dsps, board.config, large)
    too_much = tuple(replace(u, used=used[u.resource]) for u in fitting)
    assert any(u.resource is Resource.RAM and u.excess for u in too_much)
    advice = nearest_that_fits(board.family, large, too_much)
    assert advice is not None
    for item in too_much:
        assert advice.used[item.resource] <= item.available
    assert advice.config.macs_per_cycle == board.config.macs_per_cycle
    assert set(advice.changes) <= set(rows) | {"vin_rows", "prm_rows", "lookahead"}
    assert MARGIN < 1
