"""Many controllers with traffic of their own, each with a chip that watches it.

Run by test_memory.py, which says in an environment variable what each chip should report.
"""

import json
import os
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles

from accelc.boards.memory.chip_model import RULES, describe

SETTINGS = json.loads(os.environ["ACCELC_SETTINGS"])
#: The rules one of which each chip reports first; none for the controller as it is.
EXPECTED: dict[str, list[int]] = SETTINGS["expected"]


@cocotb.test()
async def every_mutation_is_caught(dut: Any) -> None:
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, SETTINGS["cycles"])
    wrong = []
    for name, rules in EXPECTED.items():
        report = [
            int(getattr(dut, f"{name}_{what}").value)
            for what in ("violations", "first_rule", "first_time")
        ]
        cocotb.log.info("%s: %s", name, describe(*report))
        if not int(getattr(dut, f"{name}_beats").value) > 100:
            wrong.append(f"{name} moved no data")
        if report[1] not in (rules or [0]):
            wanted = " or ".join(RULES[rule] for rule in rules) or "nothing"
            wrong.append(f"{name}: {describe(*report)}, not {wanted}")
    assert not wrong, "\n".join(wrong)
