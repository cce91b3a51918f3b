"""Placement, order and tokens, on steps built by hand."""

import pytest

from accelc.compiler.footprint import Space
from accelc.compiler.layout import Part, View
from accelc.compiler.schedule import schedule
from accelc.compiler.scratch import Ring
from accelc.compiler.task import Block, Step
from accelc.compiler.tokens import insert_tokens
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.errors import DoesNotFitError
from accelc.isa.spec import Alu, Gemm, Load, Store, Unit

CONFIG = PRESETS["1x4x4"]


def block(space: Space, rows: int, *reads: Part) -> Block:
    return Block(space, rows, (Load(buffer=space, row=0, dram=1 << 16, n0=rows),), reads)


def tiles(count: int, rows: int) -> list[Step]:
    """``count`` tiles of a GEMM of ``rows`` input rows each, its requantization and its STORE."""
    weights, params = block(Space.WGT, 1), block(Space.PRM, 1)
    steps: list[Step] = []
    for index in range(count):
        inp = block(Space.INP, rows)
        acc, out = Block(Space.ACC, rows), Block(Space.OUT, rows)
        gemm = Gemm(inp=0, wgt=0, acc=0, n_x=rows, inp_x=1, acc_x=1)
        alu = Alu(source=0, scale=1, src=0, dst=0, prm=0, n2=rows, src_2=1, dst_2=1)
        store = Store(row=0, dram=index * rows * CONFIG.vec_row_bytes, n0=rows)
        steps.append(Step(0, gemm, (("inp", inp), ("wgt", weights), ("acc", acc))))
        steps.append(Step(0, alu, (("src", acc), ("prm", params), ("dst", out))))
        steps.append(Step(0, store, (("row", out),)))
    return steps


def kinds(steps: list[Step]) -> str:
    letters = {Load: "l", Gemm: "g", Alu: "a", Store: "s"}
    return "".join(letters[type(t.instruction)] for t in schedule(steps, CONFIG))


def test_loads_run_ahead_of_compute() -> None:
    # the first GEMM needs 2 loads and the ALU 1; the next tiles' loads come before they are needed
    order = kinds(tiles(4, 100))
    assert order.index("g") >= 3
    assert order.rindex("l") < order.rindex("g")
    for tile in range(3):
        gemm = [i for i, kind in enumerate(order) if kind == "g"][tile]
        assert order[:gemm].count("l") >= tile + 2 + 1


def test_loads_ahead_leave_a_place_in_the_queue() -> None:
    order = kinds(tiles(40, 4))
    assert max(len(run) for run in order.replace("g", " ").split()) <= CONFIG.queue_depth
    assert order.index("g") <= CONFIG.queue_depth


def test_large_blocks_wait_for_room() -> None:
    order = kinds(tiles(3, 256))
    assert order.count("l") == 5
    with pytest.raises(DoesNotFitError, match="a block of 600 rows finds no room in acc"):
        schedule(tiles(1, 600), CONFIG)


def test_loads_wait_for_the_stores_they_read() -> None:
    view = View(value="y", address=0, groups=1, h=4, w=2, blocks=1, pixel_bytes=4)
    first = tiles(2, 4)
    halves = [Part(view, (0, 2), (0, 2), (0, 1)), Part(view, (2, 4), (0, 2), (0, 1))]
    first[2] = Step(0, first[2].instruction, first[2].rows, stores=halves[0])
    first[5] = Step(0, first[5].instruction, first[5].rows, stores=halves[1])
    reader = block(Space.INP, 4, Part(view, (1, 2), (0, 2), (0, 1)))
    last = block(Space.INP, 4, Part(view, (1, 3), (0, 2), (0, 1)))
    weights = block(Space.WGT, 1)
    for inp in (reader, last):
        gemm = Gemm(inp=0, wgt=0, acc=0)
        acc = Block(Space.ACC, 1)
        first.append(Step(1, gemm, (("inp", inp), ("wgt", weights), ("acc", acc))))
    tasks = schedule(first, CONFIG)
    order = "".join(
        {Load: "l", Gemm: "g", Alu: "a", Store: "s"}[type(t.instruction)] for t in tasks
    )
    stores = [i for i, kind in enumerate(order) if kind == "s"]
    loads = [
        i
        for i, task in enumerate(tasks)
        if isinstance(task.instruction, Load) and task.layer == 1 and task.instruction.buffer == 0
    ]
    # constants need not wait
    weights_load = [
        i
        for i, task in enumerate(tasks)
        if isinstance(task.instruction, Load) and task.layer == 1 and task.instruction.buffer == 1
    ]
    assert weights_load[0] < stores[0]
    # the first reader needs only the first store, the last one both
    assert stores[0] < loads[0] < stores[1] < loads[-1]


def test_the_oldest_rows_are_overwritten_next() -> None:
    ring = Ring(10)
    a, b, c = (Block(Space.INP, rows) for rows in (4, 4, 4))
    for item in (a, b):
        row = ring.place(item.rows)
        assert row is not None
        ring.take(item, row)
    assert (a.row, b.row) == (0, 4)
    assert ring.place(c.rows) is None
    ring.free(b)
    assert ring.place(c.rows) == 4
    ring.free(a)
    assert ring.place(c.rows) == 0
    assert ring.place(10) == 0
    assert ring.place(11) is None


def test_tokens_are_the_minimum() -> None:
    weights, inp = Load(buffer=1, row=0, dram=4096), Load(buffer=0, row=0, dram=4096)
    params = Load(buffer=2, row=0, dram=4096)
    gemm = Gemm(inp=0, wgt=0, acc=0)
    alu = Alu(source=0, scale=1, src=0, dst=0, prm=0)
    store = Store(row=0, dram=0)
    done = insert_tokens([weights, inp, params, gemm, alu, store], CONFIG, 4)
    masks = [(i.wait, i.signal) for i in done]
    load, array, vector = 1 << Unit.LOAD, 1 << Unit.GEMM, 1 << Unit.ALU
    assert masks == [
        # in order: the input's token covers the weights too
        (0, 0),
        (0, array),
        (0, vector),
        (load, vector),
        (load | array, 1 << Unit.STORE),
        (vector, 0),
    ]


def test_small_counters_never_overflow() -> None:
    config = AccelConfig(name="small counters", token_bits=2, queue_depth=8)
    steps: list[Step] = []
    for _ in range(200):
        inp, weights, acc = block(Space.INP, 1), block(Space.WGT, 1), Block(Space.ACC, 1)
        gemm = Gemm(inp=0, wgt=0, acc=0)
        steps.append(Step(0, gemm, (("inp", inp), ("wgt", weights), ("acc", acc))))
    instructions = insert_tokens([t.instruction for t in schedule(steps, config)], config, 0)
    lying = {(a, b): 0 for a in Unit for b in Unit}
    for i in instructions:
        assert i.unit is not None
        for other in Unit:
            lying[other, i.unit] -= i.wait >> other & 1
            lying[i.unit, other] += i.signal >> other & 1
            assert 0 <= lying[other, i.unit] <= config.max_tokens
            assert 0 <= lying[i.unit, other] <= config.max_tokens
    assert not any(lying.values())
