"""The UART: rates, tolerance, noise, breaks."""

import random
from collections.abc import Sequence

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.sim import Simulator, SimulatorContext

from accelc.boards.link.uart import Uart, bit_cycles
from accelc.hw.testbench import receives, sends
from accelc.isa.errors import ConfigError

CLOCK_HZ = 40_000_000
PERIOD = 1 / CLOCK_HZ


def received(
    baud: int, levels: Sequence[tuple[int, float]], ready: bool = True
) -> tuple[list[int], int]:
    """Bytes and breaks a UART of ``baud`` makes of levels, each lasting some seconds."""
    uart = Uart(CLOCK_HZ, baud)
    got: list[int] = []
    breaks = 0

    async def line(ctx: SimulatorContext) -> None:
        for level, seconds in levels:
            ctx.set(uart.rx, level)
            await ctx.delay(seconds)
        ctx.set(uart.rx, 1)
        await ctx.delay(20 / baud)

    async def watch(ctx: SimulatorContext) -> None:
        nonlocal breaks
        while True:
            _, _, found = await ctx.tick().sample(uart.line_break)
            breaks += found

    simulator = Simulator(uart)
    simulator.add_clock(PERIOD)
    simulator.add_testbench(line)
    simulator.add_testbench(watch, background=True)
    if ready:
        simulator.add_testbench(receives(uart.received, got), background=True)
    simulator.run()
    return got, breaks


def levels(data: bytes, bit_seconds: float, stop_bits: float = 1) -> list[tuple[int, float]]:
    """What the line does to send ``data``."""
    result = [(1, 3.3 * PERIOD)]
    for byte in data:
        bits = [0, *(byte >> n & 1 for n in range(8))]
        result += [(bit, bit_seconds) for bit in bits]
        result.append((1, stop_bits * bit_seconds))
    return result


@pytest.mark.parametrize("baud", [115_200, 3_000_000, 4_000_000, 8_000_000, 10_000_000])
def test_bits_are_as_long_as_they_should_be(baud: int) -> None:
    cycles = bit_cycles(CLOCK_HZ, baud)
    assert len(cycles) == 10
    for n in range(11):
        assert abs(sum(cycles[:n]) - n * CLOCK_HZ / baud) <= 0.5


@pytest.mark.parametrize(("clock", "baud"), [(40_000_000, 10_000_001), (40_000_000, 0), (1, 1)])
def test_rates_out_of_reach(clock: int, baud: int) -> None:
    with pytest.raises(ConfigError, match=f"reaches at most {clock // 4} baud, not {baud}"):
        Uart(clock, baud)


@pytest.mark.parametrize(
    ("baud", "tolerance"), [(1_000_000, 0.045), (3_000_000, 0.038), (10_000_000, 0.012)]
)
def test_rates_that_differ(baud: int, tolerance: float) -> None:
    """As much as the docstring says, in both directions, at any phase."""
    data = bytes([0x00, 0xFF, 0x55, 0xAA, 0x01, 0x80, 0x7E])
    for rate in (1 - tolerance, 1 + tolerance):
        for shift in range(4):
            wave = [(1, shift * PERIOD / 4), *levels(data, rate / baud)]
            assert received(baud, wave) == (list(data), 0)


def test_a_rate_far_off_is_noticed() -> None:
    """Twice as fast, half as fast: no such bytes."""
    data = random.Random(1).randbytes(20)
    for factor in (0.5, 2):
        assert received(3_000_000, levels(data, factor / 3_000_000))[0] != list(data)


def test_both_ends_together() -> None:
    """Back to back, at the highest rate, with pauses of the receiver."""
    data = list(random.Random(2).randbytes(60))

    class Loop(wiring.Component):
        send: stream.Interface
        received: stream.Interface

        def __init__(self) -> None:
            super().__init__(
                {"send": In(stream.Signature(8)), "received": Out(stream.Signature(8))}
            )

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.submodules.uart = uart = Uart(4, 1)
            connect(m, flipped(self.send), uart.send)
            connect(m, uart.received, flipped(self.received))
            m.d.comb += uart.rx.eq(uart.tx)
            return m

    loop = Loop()
    got: list[int] = []

    async def wait(ctx: SimulatorContext) -> None:
        while len(got) < len(data):
            await ctx.tick()

    simulator = Simulator(loop)
    simulator.add_clock(PERIOD)
    simulator.add_testbench(sends(loop.send, data), background=True)
    simulator.add_testbench(receives(loop.received, got, stall=0.8, seed=3), background=True)
    simulator.add_testbench(wait)
    simulator.run_until(60 * 50 * PERIOD)
    assert got == data


def test_a_spike_is_no_start_bit() -> None:
    bit = 1 / 3_000_000
    wave = [(1, bit), (0, 0.3 * bit), (1, 2 * bit), *levels(b"ok", bit)]
    assert received(3_000_000, wave) == (list(b"ok"), 0)


def test_a_missing_stop_bit_is_no_byte() -> None:
    bit = 1 / 3_000_000
    broken = [*levels(b"a", bit)[:-1], (0, bit), (1, 2 * bit)]
    assert received(3_000_000, [*broken, *levels(b"b", bit)]) == ([ord("b")], 0)


@pytest.mark.parametrize("length", [10.2, 15, 200])
def test_a_break_is_told_once(length: float) -> None:
    bit = 1 / 3_000_000
    wave = [*levels(b"x", bit), (0, length * bit), (1, 2 * bit), *levels(b"y", bit)]
    assert received(3_000_000, wave) == ([ord("x"), ord("y")], 1)


def test_what_is_not_taken_is_replaced() -> None:
    """Without a taker nothing hangs."""
    assert received(3_000_000, levels(b"abc", 1 / 3_000_000), ready=False) == ([], 0)
