"""What surrounds a board's top on the FPGA: pins, clock generation, reset."""

from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, Elaboratable, Module, ResetSignal, Signal
from amaranth.lib import io, wiring
from amaranth.lib.cdc import ResetSynchronizer

from accelc.boards.board import Board, Family
from accelc.boards.build.phase import sdram_phase
from accelc.boards.primitives.clocks import PllSettings, add_pll, pll_settings

_IN, _OUT, _BOTH = io.Direction.Input, io.Direction.Output, io.Direction.Bidir

#: From locked PLL to release of reset. Block RAMs of iCE40 read as zeros until 3 us after
#: configuration; the rest of the margin lets the supply settle.
RESET_US = 20


def clock_settings(board: Board, platform: Any) -> PllSettings:
    """How the board's clock is made.

    Raises:
        ConfigError: it cannot be made.
    """
    frequency = round(platform.default_clk_frequency)
    return pll_settings(board.family, platform.device, frequency, board.clock_hz)


class BoardWrapper(Elaboratable):
    """A board's top between its pins: makes the clock ``sync``, holds reset, buffers every pin.

    The platform's default clock feeds a PLL. ``sync`` is in reset from configuration until 20 us
    after the PLL has locked, and while the reset button is pressed.

    SDRAM: every output goes through a register in its I/O cell, and so does incoming data: two
    cycles more from a command to its data than between controller and chip alone, which boards
    state as ``memory.io_cycles``. The chip's clock is a second output of the PLL, later than
    ``sync`` by the phase that `accelc.boards.build.phase` derives.
    """

    def __init__(self, board: Board, top: wiring.Component) -> None:
        """Wrap ``top``, which has the members of :class:`accelc.boards.top.BoardTop`."""
        self.board = board
        self.top = top

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self._clocks(m, platform)
        m.submodules.board = top = self.top
        self._uart(m, platform)
        self._leds(m, platform)
        for name, number, part in self.board.high:
            port = getattr(platform.request(name, number, dir="-"), part)
            m.submodules[f"high_{name}_{part}"] = buffer = io.Buffer(_OUT, port)
            m.d.comb += buffer.o.eq(1)
        if self.board.memory.sdram is not None:
            self._sdram(m, platform, top.sdram)
        return m

    def _clocks(self, m: Module, platform: Any) -> None:
        board = self.board
        pin = platform.request(platform.default_clk, 0, dir="-")
        if board.family is Family.ICE40:
            source = pin.io  # the PLL has the pad to itself
        else:
            m.submodules.clock_pin = buffer = io.Buffer(_IN, pin)
            source = buffer.i
        settings = clock_settings(board, platform)
        phase = 0.0 if board.memory.sdram is None else sdram_phase(board.clock_hz)
        pll = add_pll(m, settings, source, phase)
        m.domains.sync = ClockDomain("sync")
        m.domains.start = ClockDomain("start", local=True)
        m.d.comb += [ClockSignal("sync").eq(pll.clock), ClockSignal("start").eq(pll.clock)]
        if board.memory.sdram is not None:
            m.domains.sdram = ClockDomain("sdram", reset_less=True)
            m.d.comb += ClockSignal("sdram").eq(pll.shifted)
        hold = ~pll.locked
        if board.reset is not None:
            name, number = board.reset
            button = platform.request(name, number, dir="-")
            m.submodules.reset_pin = buffer = io.Buffer(_IN, button)
            hold = hold | buffer.i
        m.submodules.reset_start = ResetSynchronizer(hold, domain="start")
        cycles = -(-board.clock_hz * RESET_US // 1_000_000)
        left = Signal(range(cycles + 1), init=cycles)
        reset = Signal(init=1)
        with m.If(left != 0):
            m.d.start += left.eq(left - 1)
        m.d.start += reset.eq(left != 0)
        m.d.comb += ResetSignal("sync").eq(reset)

    def _uart(self, m: Module, platform: Any) -> None:
        name, number = self.board.uart
        port = platform.request(name, number, dir="-")
        m.submodules.rx_pin = rx = io.Buffer(_IN, port.rx)
        m.submodules.tx_pin = tx = io.Buffer(_OUT, port.tx)
        # the line must not break while reset lasts: the host would take it for a byte
        m.d.comb += [self.top.rx.eq(rx.i), tx.o.eq(self.top.tx | ResetSignal("sync"))]

    def _leds(self, m: Module, platform: Any) -> None:
        for index, led in enumerate(self.board.leds):
            if led is not None:
                m.submodules[f"led{index}_pin"] = pin = io.Buffer(
                    _OUT, platform.request(*led, dir="-")
                )
                m.d.comb += pin.o.eq(self.top.leds[index])

    def _sdram(self, m: Module, platform: Any, pins: Any) -> None:
        """Registers in the I/O cells; the clock through an output register of both edges."""
        ports = sdram_ports(platform)
        m.submodules.sdram_clock = clock = io.DDRBuffer(_OUT, ports.clk, o_domain="sdram")
        m.d.comb += [clock.o[0].eq(1), clock.o[1].eq(0)]
        outputs = {
            # resource's name: signal, as the pin's own inversion sees it
            "clk_en": pins.cke,
            "cs": ~pins.cs_n,
            "ras": ~pins.ras_n,
            "cas": ~pins.cas_n,
            "we": ~pins.we_n,
            "ba": pins.ba,
            "a": pins.a,
            "dqm": pins.dqm,
        }
        for name, value in outputs.items():
            port = getattr(ports, name, None)
            if port is None:
                continue  # tied off on the board
            m.submodules[f"sdram_{name}"] = buffer = io.FFBuffer(_OUT, port)
            m.d.comb += buffer.o.eq(value)
        m.submodules.sdram_dq = dq = io.FFBuffer(_BOTH, ports.dq)
        m.d.comb += [dq.o.eq(pins.dq_o), dq.oe.eq(pins.dq_oe), pins.dq_i.eq(dq.i)]


def sdram_ports(platform: Any) -> Any:
    """The ports of the board's SDRAM, named as amaranth-boards names them.

    A platform whose SDRAM has no pins that could be named (it is inside the package) makes them
    itself, in a method ``sdram_ports``.
    """
    if hasattr(platform, "sdram_ports"):
        return platform.sdram_ports()
    return platform.request("sdram", 0, dir="-")
