# amaranth: UnusedElaboratable=no
"""The board's top: its ports, which do not need the rest of it, and who has a bus."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator

from accelc.boards.registry import BOARDS
from accelc.boards.top import BoardTop, BusChoice
from accelc.hw.axi import Axi4, Axi4Lite
from accelc.isa.config import PRESETS


@pytest.mark.parametrize("name", BOARDS)
def test_ports_are_the_line_the_leds_and_the_memory_chip(name: str) -> None:
    board = BOARDS[name]
    ports = set(BoardTop(board).signature.members)
    assert ports == {"rx", "tx", "leds"} | ({"sdram"} if board.memory.sdram else set())


def test_rates_are_the_boards_and_the_benchmarks_or_one_for_both() -> None:
    board = BOARDS["ulx3s-25f"]
    assert (BoardTop(board).baud, BoardTop(board).mlperf_baud) == (board.baud, 115200)
    top = BoardTop(board, baud=1_000_000)
    assert (top.baud, top.mlperf_baud) == (1_000_000, 1_000_000)


#: What the masters always say alike.
CONSTANT = {
    channel + name
    for channel in ("ar", "aw")
    for name in ("id", "size", "burst", "lock", "cache", "prot")
}


@pytest.mark.parametrize("signature", [Axi4(PRESETS["1x4x4"]), Axi4Lite()], ids=["full", "lite"])
def test_one_master_has_the_bus_and_the_other_hears_nothing(signature: Axi4 | Axi4Lite) -> None:
    seed = 5
    rng = random.Random(seed)
    dut = BusChoice(signature)
    m = Module()
    m.submodules.dut = dut

    async def bench(ctx) -> None:
        for _ in range(20):
            chosen = rng.randrange(2)
            ctx.set(dut.select, chosen)
            values = {}
            for name, member in signature.members.items():
                targets = dut.masters if member.flow is Out else [dut.bus]
                for k, target in enumerate(targets):
                    width = len(getattr(target, name))
                    values[name, k] = 0 if name in CONSTANT else rng.getrandbits(width)
                    ctx.set(getattr(target, name), values[name, k])
            await ctx.delay(1e-6)
            for name, member in signature.members.items():
                if member.flow is Out:
                    assert ctx.get(getattr(dut.bus, name)) == values[name, chosen], (name, seed)
                    continue
                for k, master in enumerate(dut.masters):
                    heard = ctx.get(getattr(master, name))
                    if name.endswith(("valid", "ready")) and k != chosen:
                        assert heard == 0, (name, seed)
                    else:
                        assert heard == values[name, 0], (name, seed)

    sim = Simulator(m)
    sim.add_testbench(bench)
    sim.run()
