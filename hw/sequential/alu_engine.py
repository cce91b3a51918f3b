"""The vector engine: requantizes one channel block, with the matrix array as its multiplier."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from accelc.hw.layouts import fit
from accelc.hw.requantize import NARROW_BITS, SHIFT_BITS, RoundingShift
from accelc.hw.scratchpad import ACC_BITS, AccRead, OutWrite, VinRead
from accelc.hw.sequential import digits
from accelc.hw.sequential.array import SequentialArray, loads
from accelc.hw.sequential.digit_plan import DigitPlan
from accelc.hw.sequential.links import AddressPort, ArrayPort, ParamRead
from accelc.hw.sequential.scratchpad import READ_CYCLES
from accelc.isa.config import AccelConfig

#: Registers behind the rounding: zero point, lower limit, upper limit.
NARROW_CYCLES = 3


class AluEngine(wiring.Component):
    """Reads elements, ``clamp(round((x + bias) * mult / 2**shift) + zero)``, writes them.

    Lane after lane, because a lane's multiplier stays in the array: fetch its parameters, load the
    array, let the lane's elements of all rows pass.

    Cycles: ``DigitPlan.passes``, at least 2, per element and about 9 per lane; 22 more at the end.

    Members
    -------
    start : ``In(1)``
        Only while ``idle``.
    idle : ``Out(1)``
        All results are written.
    range_error : ``Out(1)``
        Held: a row lies beyond its scratchpad. The engine stands still.
    addresses : ``Out(AddressPort())``
        Flag 0: source is vin. Flag 1: scale. Flag 2: a_inside.
    array : ``Out(ArrayPort(array))``
    acc_read, vin_read, prm_read, out_write : ``Out``
        Scratchpad ports; reads take one cycle and hold.
    """

    start: Signal
    idle: Signal
    range_error: Signal
    addresses: wiring.PureInterface
    array: wiring.PureInterface
    acc_read: wiring.PureInterface
    vin_read: wiring.PureInterface
    prm_read: wiring.PureInterface
    out_write: wiring.PureInterface

    def __init__(self, config: AccelConfig, array: SequentialArray) -> None:
        self.config = config
        self._array = array
        super().__init__(
            {
                "start": In(1),
                "idle": Out(1),
                "range_error": Out(1),
                "addresses": Out(AddressPort()),
                "array": Out(ArrayPort(array)),
                "acc_read": Out(AccRead(config)),
                "vin_read": Out(VinRead(config)),
                "prm_read": Out(ParamRead(config)),
                "out_write": Out(OutWrite(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config, array, addresses = self.config, self.array, self.addresses
        plan = DigitPlan(config)
        from_vin, scale, a_inside = addresses.flags

        # Cycles after an element's read: it is x, is biased and enters the array, its
        # digits are there, are added up, are the product, are rounded.
        x_at = READ_CYCLES + 2
        biased_at = x_at + 2
        digits_at = biased_at + self._array.latency
        partial_at = digits_at + plan.product_cycles
        product_at = partial_at + plan.passes
        m.submodules.shift = shift = RoundingShift(
            lanes=1, value_bits=ACC_BITS + config.mult_bits, shift_bits=SHIFT_BITS
        )
        rounded_at = product_at + shift.latency

        # a maximum is compared with in the second cycle after it was
        interval = max(plan.passes, 2)

        idle = Signal(init=1, name="idle_state")
        fetching, loading, running = (
            Signal(name=name) for name in ("fetching", "loading", "running")
        )
        lane = Signal(range(config.block_out))
        written_lane = Signal.like(lane)
        m.d.comb += self.idle.eq(idle)

        # A position is the last of its element when the maximum's window ends with it.
        advance = Signal()
        window_ends = addresses.last[2:].all()
        element = _delays(m, "element", advance & window_ends, rounded_at)
        ends_line = _delays(m, "ends_line", advance & addresses.last[1:].all(), rounded_at)
        # without scale, x goes to the limits directly
        late, late_ends_line = (
            _delays(m, name, Mux(scale, flow[rounded_at], flow[x_at + 1]), cycles)
            for name, flow, cycles in (
                ("late", element, NARROW_CYCLES),
                ("late_ends_line", ends_line, NARROW_CYCLES - 1),
            )
        )
        done = late[-1]
        m.d.comb += [
            addresses.written_step.eq(late[-2]),
            addresses.written_line.eq(late_ends_line[-1]),
        ]

        # A lane's multiplier goes to the array and its shift to a register while they are at the
        # memory's output; then comes the bias, and stays.
        last_load = loads(config, self._array.rows_per_load) - 1
        load = Signal(range(last_load + 1))
        loaded = loading & (load == last_load)
        turns = _delays(m, "turn", loaded, product_at + 1)
        turn = Mux(scale, turns[-1], turns[x_at + 1 + NARROW_CYCLES])
        entry = self.prm_read.data
        bias = entry.as_signed()
        next_amount, amount = (
            Signal(SHIFT_BITS, name=name, reset_less=True) for name in ("next_amount", "amount")
        )
        with m.If(loading):
            m.d.sync += next_amount.eq(entry[24:])
        with m.If(turn):
            m.d.sync += [amount.eq(next_amount), written_lane.eq(lane)]
        weights = digits.weight_rows(
            plan, entry[: config.mult_bits], load, self._array.rows_per_load
        )
        m.d.comb += [
            self.prm_read.en.eq(fetching | loaded),
            self.prm_read.addr.eq(Cat(fetching, lane, addresses.table)),
            addresses.written_restart.eq(turn),
            array.load_en.eq(loading),
            array.load_part.eq(load),
            array.load_data.eq(weights),
        ]

        # Read, take the maximum, add the bias.
        opens_window = Signal()
        restart = Signal()
        with m.If(restart):
            m.d.sync += opens_window.eq(1)
        with m.Elif(advance):
            m.d.sync += opens_window.eq(window_ends)
        reads = _delays(m, "read", advance, x_at)
        opens = _delays(m, "opens", opens_window, x_at)
        m.d.comb += [
            addresses.step.eq(advance),
            self.acc_read.en.eq(advance & ~from_vin),
            self.acc_read.addr.eq(addresses.row),
            self.vin_read.en.eq(advance & from_vin),
            self.vin_read.addr.eq(Cat(lane, addresses.row)),
        ]
        wide = Signal(signed(ACC_BITS), reset_less=True)
        narrow, greater = Signal(signed(8), reset_less=True), Signal()
        x = Signal(signed(ACC_BITS), reset_less=True)
        m.d.sync += [
            wide.eq(self.acc_read.data.word_select(lane, ACC_BITS)),
            narrow.eq(self.vin_read.data),
            greater.eq(~from_vin | opens[x_at - 1] | (narrow > x[:8].as_signed())),
        ]
        with m.If(reads[x_at] & greater):
            m.d.sync += x.eq(Mux(from_vin, narrow, wide))
        biased = Signal(signed(ACC_BITS), reset_less=True)
        with m.If(element[x_at + 1]):
            m.d.sync += biased.eq(x + bias)

        # Multiply.
        passes = element[biased_at : biased_at + plan.passes]
        m.d.comb += [
            array.row_en.eq(Cat(passes).any()),
            array.row.eq(digits.digit_row(plan, biased, passes)),
        ]
        partial = digits.product(m, plan, list(array.sums))
        rest_bits = (plan.passes - 1) * plan.pass_bits
        product_bits = ACC_BITS + config.mult_bits
        # Passes before the last are not negative, carry included below 2^(pass_bits + mult_bits).
        upper = Signal(
            signed(max(product_bits - rest_bits, plan.pass_bits + config.mult_bits + 1)),
            reset_less=True,
        )
        lower = Signal(rest_bits, reset_less=True)
        total = fit((upper >> plan.pass_bits) + partial, len(upper))
        m.d.sync += [
            upper.eq(Mux(element[partial_at], fit(partial, len(upper)), total)),
            lower.eq(Cat(lower, upper[: plan.pass_bits])[plan.pass_bits :]),
        ]

        # Narrow.
        zero, low, high = (
            v.as_signed() for v in (addresses.a_zero, addresses.a_min, addresses.a_max)
        )
        m.d.comb += [
            shift.en.eq(element[product_at]),
            shift.value[0].eq(Cat(lower, upper)[:product_bits].as_signed()),
            shift.shift[0].eq(amount),
            shift.parity.eq(a_inside & zero[0]),
        ]
        moved = Signal(signed(NARROW_BITS + 2), reset_less=True)
        raised = Signal(signed(NARROW_BITS + 2), reset_less=True)
        result = Signal(8, reset_less=True)
        m.d.sync += [
            moved.eq(Mux(scale, shift.o[0] + zero, x[:8].as_signed())),
            raised.eq(Mux(moved < low, low, moved)),
            result.eq(Mux(raised > high, high, raised)),
        ]
        m.d.comb += [
            self.out_write.en.eq(done),
            self.out_write.addr.eq(Cat(written_lane, addresses.written_row)),
            self.out_write.data.eq(result),
        ]

        # What comes next: as plain functions, since enables and resets are longer ways.
        pause = Signal(range(interval))
        halted = self.range_error
        runs_on = running & ~(advance & addresses.last.all())
        next_lane, last_lane = Signal(), lane == config.block_out - 1
        # A lane's multiplier is loaded when the last row of the lane before has been multiplied,
        # four cycles from being in no stage that is looked at here; by then its bias is free, too.
        # What the stages behind go by changes between the elements of both lanes.
        multiplying = element[1 : biased_at + plan.passes - 3]
        at_work = Cat(halted, fetching, loading, restart, running, multiplying, turns[1:]).any()
        drains = Cat(element[1:], late[1:]).any()
        m.d.comb += addresses.restart.eq(loaded)
        m.d.sync += [
            next_lane.eq(~(idle | at_work | next_lane | (last_lane & drains))),
            idle.eq(~self.start & (idle | (next_lane & last_lane))),
            fetching.eq(~halted & (self.start | (next_lane & ~last_lane))),
            loading.eq(~halted & (fetching | (loading & ~loaded))),
            restart.eq(loaded),
            advance.eq(~halted & (restart | (runs_on & (pause == interval - 1)))),
            load.eq(Mux(loading, load + 1, 0)),
            running.eq(~halted & (restart | runs_on)),
            pause.eq(Mux(restart | (pause == interval - 1), 0, pause + 1)),
            lane.eq(Mux(idle, 0, lane + next_lane)),
        ]

        beyond_acc = addresses.row[len(self.acc_read.addr) :].any()
        beyond_vin = addresses.row[ceil_log2(config.vin_rows) :].any()
        beyond = (
            (fetching & scale & addresses.table[ceil_log2(config.prm_rows) :].any())
            | (running & Mux(from_vin, beyond_vin, beyond_acc))
            | (done & addresses.written_row[ceil_log2(config.out_rows) :].any())
        )
        with m.If(beyond):
            m.d.sync += self.range_error.eq(1)
        return m


def _delays(m: Module, name: str, value: Value, cycles: int) -> list[Value]:
    """``value`` and what it was 1 to ``cycles`` cycles ago."""
    delayed = [value]
    for cycle in range(1, cycles + 1):
        register = Signal(name=f"{name}_{cycle}")
        m.d.sync += register.eq(delayed[-1])
        delayed.append(register)
    return delayed
