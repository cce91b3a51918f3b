"""Critical paths in the gateware's names."""

from typing import Any

import pytest

from accelc.boards.build.path import clock_name, critical_path, critical_paths, source_name


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("board.core.load.count_TRELLIS_FF_Q_3_D_LUT4_Z", "core.load.count"),
        ("board.core.gemm.array.sum_1_0_1_TRELLIS_FF_Q_15", "core.gemm.array.sum_1_0_1"),
        ("board.core.gemm.array.dsp_product_0_1_4", "core.gemm.array.dsp_product_0_1_4"),
        ("board.core.alu.requantize.high_1_0_TRELLIS_FF_Q_27_DI_MULT18X18D_P27",
         "core.alu.requantize.high_1_0"),
        ("board.core.acc_scratchpad.rows.0.6_DOA8_LUT4_Z", "core.acc_scratchpad.rows"),
        ("board.core.load.jobs.storage.0.30_DO_1_L6MUX21_Z", "core.load.jobs.storage"),
        ("board.core.wgt_scratchpad.memory.0.5", "core.wgt_scratchpad.memory"),
        ("board.core.a_queue.read__data_TRELLIS_FF_Q_30_DI_PFUMX_Z", "core.a_queue.read.data"),
        ("board.mlperf$523.processor.$signature__addr_TRELLIS_FF_Q_5_DI", "mlperf.processor.addr"),
        ("board.memory.controller.scheduler.$signal$3_LUT4_D_Z", "memory.controller.scheduler"),
        ("board.c_SB_DFFSR_Q_21_D_SB_LUT4_O_LC", "c"),
        ("board.memory.on_chip.storage.0.3_MASKWREN_1", "memory.on_chip.storage"),
        ("board.memory.on_chip.storage.0.3_RAM", "memory.on_chip.storage"),
        ("$glbnet$board.clk", "clk"),
        ("sdram_clock.buf.buf0$IOL", "sdram_clock.buf.buf0"),
        ("board.core.fetch.staged.storage.0.5$DPRAM_COMB3", "core.fetch.staged.storage"),
        ("$nextpnr_ICESTORM_LC_0", None),
        ("$PACKER_GND", None),
        ("$auto$ff.cc:266:slice$1234", None),
    ],
)  # fmt: skip
def test_source_names(cell: str, name: str | None) -> None:
    assert source_name(cell) == name


def test_clock_names() -> None:
    assert clock_name("posedge $glbnet$board.clk") == "sync"
    assert clock_name("$glbnet$sdram_clk") == "sdram"


def segment(kind: str, delay: float, start: str, end: str, net: str = "") -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": kind,
        "delay": delay,
        "from": {"cell": start, "port": "O", "loc": [0, 0]},
        "to": {"cell": end, "port": "I", "loc": [0, 0]},
    }
    return entry | ({"net": net} if net else {})


A, B, C = (f"board.core.unit.{name}_TRELLIS_FF_Q_1" for name in "abc")
PATH = [
    segment("clk-to-q", 0.5, A, A),
    segment("routing", 1.0, A, "$auto$1", "board.core.unit.a[3]"),
    segment("logic", 0.25, "$auto$1", "$auto$1"),
    segment("routing", 2.0, "$auto$1", B, "$auto$2"),
    segment("logic", 0.25, B, B),
    segment("routing", 4.0, B, C, "board.core.unit.b[0]"),
    segment("setup", 0.125, C, C),
]


def test_delays_are_split_between_names() -> None:
    path = critical_path("sync", PATH)
    assert (path.start, path.end, path.levels) == ("core.unit.a", "core.unit.c", 2)
    assert path.logic_ns == 0.5 + 0.25 + 0.25 + 0.125 and path.routing_ns == 7.0
    assert path.delay_ns == 8.125
    hops = [(hop.name, hop.logic_ns, hop.routing_ns) for hop in path.hops]
    # what has no name counts towards the next that has one; the setup belongs to the end
    assert hops == [("core.unit.b", 0.75, 3.0), ("core.unit.c", 0.375, 4.0)]


def test_a_start_without_a_name_is_named_after_its_net() -> None:
    path = critical_path(
        "sync",
        [
            segment("clk-to-q", 0.5, "$nextpnr_1", "$nextpnr_1"),
            segment("routing", 1.0, "$nextpnr_1", C, "board.core.unit.a[3]"),
        ],
    )
    assert (path.start, path.end) == ("core.unit.a[3]", "core.unit.c")


def test_paths_within_a_clock_slowest_first() -> None:
    fast = [segment("clk-to-q", 0.5, A, A)]
    timing = {
        "critical_paths": [
            {"from": "posedge $glbnet$sdram_clk", "to": "posedge $glbnet$sdram_clk", "path": fast},
            {"from": "<async>", "to": "posedge clk", "path": PATH},
            {"from": "<async>", "to": "<async>", "path": PATH},
            {"from": "posedge clk", "to": "posedge clk", "path": PATH},
        ]
    }
    assert [path.clock for path in critical_paths(timing)] == ["sync", "sdram"]
