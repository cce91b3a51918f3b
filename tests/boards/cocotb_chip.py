"""The chip model, driven by hand: what it keeps, and that it reports every rule that is broken.

Run by test_memory_chip.py, which describes the chip in an environment variable: a clock of 10 ns,
tRCD and tRP 2 cycles, tRRD 2, tRAS 5 to 100, tRC 9, tRFC 7, tWR 2, tMRD 2.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge

from accelc.boards.memory.chip_model import RULES, describe
from accelc.boards.memory.scheduler import Command

SETTINGS = json.loads(os.environ["ACCELC_SETTINGS"])
#: Cycles of the pause after power-up; average cycles between refreshes; rows.
POWER_UP: int = SETTINGS["power_up"]
INTERVAL: int = SETTINGS["interval"]
ROWS: int = SETTINGS["rows"]
ALL = 1 << 10
#: CAS latency 2, bursts of 4 words.
MODE = 2 << 4 | 2
BURST = 4


@dataclass(frozen=True)
class Do:
    """A command, ``after`` cycles after the one before; ``drives`` words from then on."""

    command: Command
    ba: int = 0
    a: int = 0
    after: int = 1
    drives: tuple[int, ...] = ()
    cke: int = 1


NOP, READ, WRITE = Command.NO_OPERATION, Command.READ, Command.WRITE
ACTIVATE, PRECHARGE, REFRESH = Command.ACTIVATE, Command.PRECHARGE, Command.REFRESH
MRS = Command.MODE_REGISTER_SET
WORDS = (0x1234, 0x5678, 0x9ABC, 0xDEF0)
CLOSE = Do(PRECHARGE, a=ALL, after=POWER_UP + 1)
REFRESHED = (Do(REFRESH, after=2), Do(REFRESH, after=7))
#: The power-up sequence; the next command may come 2 cycles later.
READY = (CLOSE, *REFRESHED, Do(MRS, a=MODE, after=7))
OPEN = (*READY, Do(ACTIVATE, after=2))
WRITTEN = (*OPEN, Do(WRITE, after=2, drives=WORDS))

#: Where each rule is broken for the first time, and just not.
BROKEN: dict[str, tuple[int, Iterable[Do]]] = {
    "early after power-up": (1, (Do(PRECHARGE, a=ALL, after=POWER_UP - 1),)),
    "refresh before precharge": (2, (Do(REFRESH, after=POWER_UP + 1),)),
    "activate before mode": (2, (CLOSE, *REFRESHED, Do(ACTIVATE, after=7))),
    "one refresh": (2, (CLOSE, REFRESHED[0], Do(MRS, a=MODE, after=7), Do(ACTIVATE, after=2))),
    "burst stop": (3, (*OPEN, Do(READ, after=2), Do(0b110, after=2))),  # type: ignore[arg-type]
    "automatic precharge": (3, (*OPEN, Do(READ, a=ALL, after=5))),
    "clock off": (3, (*OPEN, Do(NOP, after=2, cke=0))),
    "unaligned": (3, (*OPEN, Do(READ, a=2, after=2))),
    "CAS latency 1": (4, (CLOSE, *REFRESHED, Do(MRS, a=1 << 4 | 2, after=7))),
    "interleaved": (4, (CLOSE, *REFRESHED, Do(MRS, a=MODE | 8, after=7))),
    "active twice": (5, (*OPEN, Do(ACTIVATE, after=20))),
    "refresh with an open row": (5, (*OPEN, Do(REFRESH, after=20))),
    "read of nothing": (6, (*READY, Do(READ, after=3))),
    "write of nothing": (6, (*OPEN, Do(WRITE, ba=1, after=3, drives=WORDS))),
    "tRC": (7, (*OPEN, Do(PRECHARGE, after=5), Do(ACTIVATE, after=2))),
    "tRCD": (8, (*OPEN, Do(READ, after=1))),
    "tRP": (9, (*OPEN, Do(PRECHARGE, after=10), Do(ACTIVATE, after=1))),
    "tRP, refresh": (9, (*OPEN, Do(PRECHARGE, after=10), Do(REFRESH, after=1))),
    "tRAS, least": (10, (*OPEN, Do(PRECHARGE, after=4))),
    "tRAS, most": (11, (*OPEN, Do(PRECHARGE, after=101))),
    "tWR": (12, (*WRITTEN, Do(PRECHARGE, after=4))),
    "tRRD": (13, (*OPEN, Do(ACTIVATE, ba=1, after=1))),
    "tRFC, refresh": (14, (CLOSE, REFRESHED[0], Do(REFRESH, after=6))),
    "tRFC, activate": (14, (*READY, Do(REFRESH, after=2), Do(ACTIVATE, after=6))),
    "tMRD": (15, (*READY, Do(ACTIVATE, after=1))),
    "no refreshes": (16, (*READY, Do(NOP, after=10 * INTERVAL))),
    "read cut by a read": (18, (*OPEN, Do(READ, after=2), Do(READ, after=3))),
    "read cut by a precharge": (18, (*OPEN, Do(READ, after=5), Do(PRECHARGE, after=3))),
    "no data": (19, (*OPEN, Do(WRITE, after=2, drives=WORDS[:2]), Do(NOP, after=5))),
    "contention": (20, (*OPEN, Do(READ, after=2), Do(NOP, after=3, drives=(0,)))),
    "no turn": (20, (*OPEN, Do(READ, after=2), Do(WRITE, after=BURST + 2, drives=WORDS))),
}
KEPT: dict[str, Iterable[Do]] = {
    "shortest": (
        *WRITTEN,
        Do(PRECHARGE, after=5),
        Do(ACTIVATE, after=2, a=1),
        Do(ACTIVATE, after=2, ba=1),
        Do(READ, after=2),
        Do(READ, after=BURST, ba=1),
        Do(WRITE, after=BURST + 3, drives=WORDS),
        Do(READ, after=BURST, a=8),
        Do(PRECHARGE, after=BURST, a=ALL),
        Do(REFRESH, after=2),
        Do(ACTIVATE, after=7),
    ),
    "nine refreshes late": (
        *READY,
        Do(REFRESH, after=9 * INTERVAL - 20),
        *(Do(REFRESH, after=7) for _ in range(8)),
    ),
    "closing what is closed": (*READY, Do(PRECHARGE, ba=2, after=2), Do(ACTIVATE, ba=1)),
}


class Bench:
    """The chip's pins under a clock."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut

    def show(self, do: Do) -> None:
        dut = self.dut
        dut.cs_n.value, dut.cke.value = 0, do.cke
        command = int(do.command)
        dut.ras_n.value, dut.cas_n.value = command >> 2 & 1, command >> 1 & 1
        dut.we_n.value = command & 1
        dut.ba.value, dut.a.value, dut.dqm.value = do.ba, do.a, 0

    async def run(self, script: Iterable[Do], masks: tuple[int, ...] = ()) -> list[int]:
        """Power up and do all that; the words seen before each edge since the last command."""
        dut = self.dut
        self.show(Do(NOP))
        dut.dq_oe.value = 0
        dut.rst.value = 1
        await ClockCycles(dut.clk, 2)
        await FallingEdge(dut.clk)
        dut.rst.value = 0
        driven: list[int] = []
        seen: list[int] = []

        async def cycle(do: Do) -> None:
            self.show(do)
            dut.dq_oe.value = bool(driven)
            dut.dqm.value = masks[len(masks) - len(driven)] if masks and driven else 0
            dut.dq_o.value = driven.pop(0) if driven else 0
            await FallingEdge(dut.clk)
            seen.append(int(dut.dq_i.value))

        for do in (*script, Do(NOP, after=1), *(Do(NOP) for _ in range(8))):
            if do.after > 40:
                self.show(Do(NOP))
                dut.dq_oe.value = 0
                await ClockCycles(dut.clk, do.after - 3)
                await FallingEdge(dut.clk)
                skipped = do.after - 3
            else:
                skipped = 0
            for _ in range(do.after - 1 - skipped):
                await cycle(Do(NOP))
            driven.extend(do.drives)
            if do.command != NOP:
                seen.clear()
            await cycle(do)
        return seen

    @property
    def report(self) -> tuple[int, int, int]:
        dut = self.dut
        return (
            int(dut.violations.value),
            int(dut.first_rule.value),
            int(dut.first_time.value),
        )


@cocotb.test()
async def every_rule_is_reported(dut: Any) -> None:
    Clock(dut.clk, 10, unit="ns").start()
    bench = Bench(dut)
    assert {rule for rule, _ in BROKEN.values()} | {17} == set(RULES)
    wrong = []
    for name, (rule, script) in BROKEN.items():
        await bench.run(script)
        if bench.report[1] != rule:
            wrong.append(f"{name}: {describe(*bench.report)}, not {RULES[rule]}")
    for name, script in KEPT.items():
        await bench.run(script)
        if bench.report[0]:
            wrong.append(f"{name}: {describe(*bench.report)}")
    assert not wrong, "\n".join(wrong)


@cocotb.test()
async def rows_are_refreshed_in_turn(dut: Any) -> None:
    """As many refreshes as on average, yet some rows had to wait for longer than allowed."""
    Clock(dut.clk, 10, unit="ns").start()
    bench = Bench(dut)
    # a little faster, because those of the power-up come one after the other
    faster = [Do(REFRESH, after=INTERVAL - 1) for _ in range(2 * ROWS)]
    await bench.run((*READY, *faster))
    assert bench.report[0] == 0, describe(*bench.report)
    # ahead of time, then late by the same: the second round comes late to the first rows
    steady = [Do(REFRESH, after=INTERVAL) for _ in range(ROWS)]
    early = [Do(REFRESH, after=7) for _ in range(ROWS)]
    late = [Do(REFRESH, after=8 * INTERVAL)]
    await bench.run((*READY, *early, *steady[: ROWS - 8], *late, *steady[:8]))
    assert bench.report[1] == 17, describe(*bench.report)


@cocotb.test()
async def words_are_kept_and_masked(dut: Any) -> None:
    Clock(dut.clk, 10, unit="ns").start()
    bench = Bench(dut)
    seen = await bench.run((*WRITTEN, Do(READ, after=BURST)))
    # taken at the edge two cycles after the command's: the first is between them
    assert seen[1 : 1 + BURST] == list(WORDS)
    over = (*WRITTEN, Do(WRITE, after=BURST, drives=(0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF)))
    assert bench.report[0] == 0
    await bench.run(over, masks=(0, 1, 2, 3))
    seen = await bench.run((*OPEN, Do(READ, after=2)))
    assert seen[1 : 1 + BURST] == [0xFFFF, 0xFF78, 0x9AFF, 0xDEF0]
