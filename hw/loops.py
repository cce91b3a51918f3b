"""Affine loop nests in hardware: one row number per channel and cycle, without a multiplier."""

from collections.abc import Mapping, Sequence

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

#: Bits of a row number; arithmetic wraps here as the instruction set says.
ROW_BITS = 16


def any_of(*values: Value) -> Value:
    """1 if any bit of any value is set."""
    return Cat(*values).any()


class LoopNest(wiring.Component):
    """Steps through a loop nest and names, for every position, one row per channel.

    A channel's row is ``base + sum(index[loop] * stride[loop])`` modulo 2^16 over the loops in
    which it has a stride. The stages are counters, stride selection, and one addition per channel
    to the base address of the loop that advances; each has a register behind it.

    Throughput one position a cycle; the first appears 3 cycles after ``start``.

    Members
    -------
    start : ``In(1)``
        Begin a nest. Only while ``idle``; ``params`` must hold from then until ``idle`` again.
    single : ``In(1)``
        With ``start``: visit one position only, whatever the counts (which may then be 0).
    idle : ``Out(1)``
        No position is left that still needs ``params``; the last may yet be at the output.
    params : ``In(params_layout)``
        ``count`` per loop (at least 1), ``base`` per channel, ``stride`` per channel and loop.
    o : ``Out(stream.Signature(position_layout))``
        ``row`` per channel; ``entered``, one-hot: the loop whose index just advanced, or ``start``;
        ``last``: per loop, whether its index is at its last value.
    """

    start: Signal
    single: Signal
    idle: Signal
    params: data.View
    o: stream.Interface

    def __init__(self, loops: Mapping[str, int], channels: Mapping[str, Sequence[str]]) -> None:
        """Describe the nest.

        Parameters
        ----------
        loops
            Bits of the count of every loop, outermost first.
        channels
            For every channel the loops in which it has a stride, outermost first.
        """
        self.loops = dict(loops)
        self.channels = {name: tuple(strides) for name, strides in channels.items()}
        order = list(self.loops)
        for name, strides in self.channels.items():
            if not strides or sorted(strides, key=order.index) != list(strides):
                raise ValueError(f"channel {name!r} must list loops of {order}, not {strides!r}")
        self.params_layout = data.StructLayout(
            {
                "count": data.StructLayout(self.loops),
                "base": data.StructLayout({name: ROW_BITS for name in self.channels}),
                "stride": data.StructLayout(
                    {
                        name: data.StructLayout({loop: ROW_BITS for loop in strides})
                        for name, strides in self.channels.items()
                    }
                ),
            }
        )
        self._entered_layout = data.StructLayout({"start": 1, **{loop: 1 for loop in self.loops}})
        self._last_layout = data.StructLayout({loop: 1 for loop in self.loops})
        self.position_layout = data.StructLayout(
            {
                "row": data.StructLayout({name: ROW_BITS for name in self.channels}),
                "entered": self._entered_layout,
                "last": self._last_layout,
            }
        )
        super().__init__(
            {
                "start": In(1),
                "single": In(1),
                "idle": Out(1),
                "params": In(self.params_layout),
                "o": Out(stream.Signature(self.position_layout)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        advance = Signal()
        m.d.comb += advance.eq(~self.o.valid | self.o.ready)

        # Counters: which position comes next does not depend on addresses, so it is known early.
        active = Signal()
        entered = Signal(self._entered_layout, reset_less=True)
        last = Signal(self._last_layout, reset_less=True)
        inner_last: Value = Const(1, 1)
        with m.If(active & advance):
            m.d.sync += entered.start.eq(0)
        for loop, bits in reversed(self.loops.items()):
            count = self.params.count[loop]
            left = Signal(bits, name=f"left_{loop}", reset_less=True)
            steps = Signal(name=f"steps_{loop}")
            m.d.comb += steps.eq(inner_last & ~last[loop])
            with m.If(self.start):
                m.d.sync += [
                    left.eq(count - 1),
                    last[loop].eq((count == 1) | self.single),
                    entered[loop].eq(0),
                ]
            with m.Elif(active & advance):
                m.d.sync += entered[loop].eq(steps)
                with m.If(steps):
                    m.d.sync += [left.eq(left - 1), last[loop].eq(left == 1)]
                with m.Elif(inner_last):
                    m.d.sync += [left.eq(count - 1), last[loop].eq(count == 1)]
            inner_last = inner_last & last[loop]
        with m.If(self.start):
            m.d.sync += [active.eq(1), entered.start.eq(1)]
        with m.Elif(active & advance & inner_last):
            m.d.sync += active.eq(0)

        # Stride selection.
        chosen_valid = Signal()
        chosen_entered = Signal(self._entered_layout, reset_less=True)
        chosen_last = Signal(self._last_layout, reset_less=True)
        with m.If(advance):
            m.d.sync += chosen_valid.eq(active)
            with m.If(active):
                m.d.sync += [chosen_entered.eq(entered), chosen_last.eq(last)]
        m.d.comb += self.idle.eq(~active & ~chosen_valid)

        # Addition. A loop's base is the row at the start of its current index.
        entered_q = Signal(self._entered_layout, reset_less=True)
        last_q = Signal(self._last_layout, reset_less=True)
        with m.If(advance):
            m.d.sync += self.o.valid.eq(chosen_valid)
            with m.If(chosen_valid):
                m.d.sync += [entered_q.eq(chosen_entered), last_q.eq(chosen_last)]
        m.d.comb += [self.o.payload.entered.eq(entered_q), self.o.payload.last.eq(last_q)]
        order = list(self.loops)
        for channel, strides in self.channels.items():
            stride = Signal(ROW_BITS, name=f"stride_{channel}", reset_less=True)
            with m.If(advance & active):
                m.d.sync += stride.eq(
                    _one_hot(
                        ROW_BITS,
                        [(entered[loop], self.params.stride[channel][loop]) for loop in strides],
                    )
                )
            bases = {
                loop: Signal(ROW_BITS, name=f"base_{channel}_{loop}", reset_less=True)
                for loop in strides
            }
            sources: list[tuple[Value, Value]] = [(chosen_entered.start, self.params.base[channel])]
            for index, loop in enumerate(order):
                # Entering a loop without a stride returns to the start of the next outer index.
                around = [s for s in strides if order.index(s) <= index]
                source = bases[around[-1]] if around else self.params.base[channel]
                sources.append((chosen_entered[loop], source))
            row = Signal(ROW_BITS, name=f"row_{channel}")
            m.d.comb += row.eq(_one_hot(ROW_BITS, sources) + stride)
            with m.If(advance & chosen_valid):
                for loop, base in bases.items():
                    outer = [chosen_entered[name] for name in order[: order.index(loop) + 1]]
                    with m.If(any_of(chosen_entered.start, *outer)):
                        m.d.sync += base.eq(row)
            m.d.comb += self.o.payload.row[channel].eq(bases[strides[-1]])
        return m


def _one_hot(bits: int, choices: Sequence[tuple[Value, Value]]) -> Value:
    """The value whose selector is 1; 0 if none is. At most one may be."""
    result: Value = Const(0, bits)
    for select, value in choices:
        result = result | Mux(select, value, 0)
    return result
