"""The arithmetic stages of the vector unit: exact rounding shifts, requantization, scaled addition.

Every stage has a register behind it and moves only when it holds a row, so that the simulated and
the real thing spend nothing on idle lanes. What differs per instruction (zero points, limits) is
kept for two instructions; ``bank`` travels with the row and tells which, so that consecutive
instructions follow each other without a gap. Expressions between registers are used once each, for
the same reason: what a simulator shares between two uses it computes in every cycle. Likewise each
lane has its own ports, which need no packing.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from accelc.hw.loops import any_of
from accelc.hw.scratchpad import ACC_BITS
from accelc.isa.config import PARAM_BYTES, AccelConfig

#: Integer bits kept of a rounded result: with an int8 zero point added, everything beyond them is
#: beyond int8 all the same.
NARROW_BITS = 10
#: Unsigned bits of a factor that one 18 x 18 multiplier takes. Each partial product has a register
#: of its own: two such multipliers and an adder in one cycle would be the longest path of all.
PARTIAL_BITS = 17
#: Bits of a shift in ``prm``.
SHIFT_BITS = 6

#: What the vector unit keeps per instruction in flight for its arithmetic. Lower limits are at most
#: the upper ones.
SETTINGS = data.StructLayout(
    {
        "a_parity": 1,
        "a_zero": signed(8),
        "a_min": signed(8),
        "a_max": signed(8),
        "m1": signed(25),
        "m2": signed(25),
        "offset": signed(40),
        "b_shift": 5,
        "b_zero": signed(8),
        "b_min": signed(8),
        "b_max": signed(8),
        "lut": 1,
    }
)


class Flow:
    """Valid and bank bits of a pipeline, one pair per stage; stage 0 is the input."""

    def __init__(self, m: Module, en: Value, bank: Value, settings: Any) -> None:
        self._m = m
        self._settings = settings
        self.valid: list[Value] = [en]
        self.bank: list[Value] = [bank]

    def extend(self, stages: int) -> None:
        """Make stages up to and including number ``stages`` exist."""
        while len(self.valid) <= stages:
            s = len(self.valid)
            valid, bank = Signal(name=f"valid_{s}"), Signal(name=f"bank_{s}")
            self._m.d.sync += valid.eq(self.valid[-1])
            with self._m.If(self.valid[-1]):
                self._m.d.sync += bank.eq(self.bank[-1])
            self.valid.append(valid)
            self.bank.append(bank)

    def setting(self, name: str, stage: int) -> Signal:
        """An instruction's setting as the row in ``stage``, at least 1, needs it."""
        self.extend(stage)
        chosen = Signal(SETTINGS[name].shape, name=f"{name}_{stage}", reset_less=True)
        with self._m.If(self.valid[stage - 1]):
            self._m.d.sync += chosen.eq(
                Mux(self.bank[stage - 1], self._settings[1][name], self._settings[0][name])
            )
        return chosen


def shift_groups(bits: int) -> list[tuple[int, int]]:
    """Bit ranges of a shift amount, two bits for each stage, most significant first."""
    groups = [(low, min(low + 2, bits)) for low in range(0, bits, 2)]
    return groups[::-1]


class RoundingShift(wiring.Component):
    """Shifts every lane right, rounds half to even and saturates to ``NARROW_BITS``.

    Each stage shifts by one of four amounts, remembers whether it dropped a one, and drops the
    upper bits that no shift to come can bring down, remembering whether they mattered.

    Throughput one row a cycle, latency ``len(shift_groups(shift_bits)) + 1``.

    Members
    -------
    en : ``In(1)``
    value : ``In(signed(value_bits)).array(lanes)``
    shift : ``In(shift_bits).array(lanes)``
        With ``value``. ``2**shift_bits`` may exceed the width of ``value``.
    parity : ``In(1)``
        With the row in the last stage: 1 rounds half to odd.
    o : ``Out(signed(NARROW_BITS + 1)).array(lanes)``
    """

    en: Signal
    value: list[Signal]
    shift: list[Signal]
    parity: Signal
    o: list[Signal]

    def __init__(self, *, lanes: int, value_bits: int, shift_bits: int) -> None:
        self.lanes = lanes
        self.value_bits = value_bits
        self.shift_bits = shift_bits
        super().__init__(
            {
                "en": In(1),
                "value": In(signed(value_bits)).array(lanes),
                "shift": In(shift_bits).array(lanes),
                "parity": In(1),
                "o": Out(signed(NARROW_BITS + 1)).array(lanes),
            }
        )

    @property
    def latency(self) -> int:
        return len(shift_groups(self.shift_bits)) + 1

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        valid: list[Value] = [self.en]
        for s in range(1, self.latency):
            register = Signal(name=f"valid_{s}")
            m.d.sync += register.eq(valid[-1])
            valid.append(register)
        for lane in range(self.lanes):
            # The lowest bit is the one below the result: a half.
            value: Value = Cat(Const(0, 1), self.value[lane]).as_signed()
            amount: Value = self.shift[lane]
            dropped: Value = Const(0, 1)
            beyond: Value = Const(0, 1)
            negative: Value = value[-1]
            needed = len(value)
            for s, (low, high) in enumerate(shift_groups(self.shift_bits)):
                unit = 1 << low
                select = amount[low:high]
                lost = [
                    (select > steps) & value[steps * unit : (steps + 1) * unit].any()
                    for steps in range((1 << len(select)) - 1)
                ]
                bits = min(len(value), needed)
                above = value[bits - 1 :]
                # what is left of the amount is below ``unit``
                needed = NARROW_BITS + unit
                name = f"{s + 1}_{lane}"
                value_q = Signal(signed(bits), name=f"value_{name}", reset_less=True)
                amount_q = Signal(low, name=f"amount_{name}", reset_less=True)
                dropped_q = Signal(name=f"dropped_{name}", reset_less=True)
                beyond_q = Signal(name=f"beyond_{name}", reset_less=True)
                negative_q = Signal(name=f"negative_{name}", reset_less=True)
                with m.If(valid[s]):
                    m.d.sync += [
                        value_q.eq(value[:bits].as_signed() >> Cat(Const(0, low), select)),
                        amount_q.eq(amount),
                        dropped_q.eq(any_of(dropped, *lost)),
                        beyond_q.eq(beyond | (above.any() & ~above.all())),
                        negative_q.eq(negative),
                    ]
                value, amount, dropped = value_q, amount_q, dropped_q
                beyond, negative = beyond_q, negative_q
            above = value[needed - 1 :]
            floor = value[1:needed].as_signed()
            beyond = beyond | (above.any() & ~above.all())
            up = value[0] & (dropped | (floor[0] ^ self.parity))
            limit = Mux(negative, Const(-(1 << NARROW_BITS - 1)), Const((1 << NARROW_BITS - 1) - 1))
            with m.If(valid[-1]):
                m.d.sync += self.o[lane].eq(Mux(beyond, limit, floor + up))
        return m


def clamp(value: Value, low: Value, high: Value) -> Value:
    """``min(max(value, low), high)``, narrowed to int8; ``low`` is at most ``high``."""
    return Mux(value > high, high, Mux(value < low, low, value))[:8].as_signed()


class Requantize(wiring.Component):
    """``clamp(round((x + bias) * mult / 2**shift) + zero)`` on every lane.

    Throughput one row a cycle, ``latency`` cycles from ``en`` to ``o_valid``.

    Members
    -------
    en, bank : ``In(1)``
    x : ``In(signed(32)).array(lanes)``
    params_en : ``In(1)``
        The rows from the next cycle on use ``params``.
    params : ``In(64 * lanes)``
        Entries of a ``prm`` row: 32 bits bias, 24 multiplier, 6 shift.
    scale : ``In(1)``
        With ``params_en``; 0: pass ``x`` through to the clamp instead.
    settings : ``In(ArrayLayout(SETTINGS, 2))``
    o_valid, o_bank : ``Out(1)``
    o : ``Out(signed(8)).array(lanes)``
    """

    #: Registers for the bias, the partial products, and two levels of their sum.
    PRODUCT_STAGES = 4

    en: Signal
    bank: Signal
    x: list[Signal]
    params_en: Signal
    params: Signal
    scale: Signal
    settings: data.View
    o_valid: Signal
    o_bank: Signal
    o: list[Signal]

    def __init__(self, config: AccelConfig) -> None:
        self.config = config
        lanes = config.vector_lanes
        self.shift = RoundingShift(
            lanes=lanes, value_bits=ACC_BITS + config.mult_bits, shift_bits=SHIFT_BITS
        )
        super().__init__(
            {
                "en": In(1),
                "bank": In(1),
                "x": In(signed(ACC_BITS)).array(lanes),
                "params_en": In(1),
                "params": In(lanes * PARAM_BYTES * 8),
                "scale": In(1),
                "settings": In(data.ArrayLayout(SETTINGS, 2)),
                "o_valid": Out(1),
                "o_bank": Out(1),
                "o": Out(signed(8)).array(lanes),
            }
        )

    @property
    def latency(self) -> int:
        return self.PRODUCT_STAGES + self.shift.latency + 2

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self.config
        m.submodules.shift = shift = self.shift
        flow = Flow(m, self.en, self.bank, self.settings)
        rounded_at = self.PRODUCT_STAGES + shift.latency
        parity = flow.setting("a_parity", rounded_at - 1)
        zero = flow.setting("a_zero", rounded_at)
        a_min, a_max = (flow.setting(name, rounded_at + 1) for name in ("a_min", "a_max"))
        flow.extend(self.latency)
        valid = flow.valid
        m.d.comb += [shift.en.eq(valid[self.PRODUCT_STAGES]), shift.parity.eq(parity)]

        # Parameters follow the rows; stage s holds those of the row in stage s.
        changed: list[Value] = [self.params_en]
        for s in range(self.PRODUCT_STAGES):
            register = Signal(name=f"changed_{s}")
            m.d.sync += register.eq(changed[-1])
            changed.append(register)
        halves = -(-config.mult_bits // PARTIAL_BITS)
        part_bits = -(-config.mult_bits // halves)
        for lane in range(config.vector_lanes):
            entry = self.params[lane * PARAM_BYTES * 8 : (lane + 1) * PARAM_BYTES * 8]
            bias = Signal(signed(ACC_BITS), name=f"bias_{lane}", reset_less=True)
            mults = [
                Signal(config.mult_bits, name=f"mult_{s}_{lane}", reset_less=True) for s in (0, 1)
            ]
            shifts = [
                Signal(SHIFT_BITS, name=f"shift_{s}_{lane}", reset_less=True)
                for s in range(self.PRODUCT_STAGES + 1)
            ]
            with m.If(changed[0]):
                m.d.sync += [
                    bias.eq(Mux(self.scale, entry[:32], 0)),
                    mults[0].eq(Mux(self.scale, entry[32 : 32 + config.mult_bits], 1)),
                    shifts[0].eq(Mux(self.scale, entry[56:62], 0)),
                ]
            with m.If(changed[1]):
                m.d.sync += [mults[1].eq(mults[0]), shifts[1].eq(shifts[0])]
            for s in range(2, self.PRODUCT_STAGES + 1):
                with m.If(changed[s]):
                    m.d.sync += shifts[s].eq(shifts[s - 1])

            biased = Signal(signed(ACC_BITS), name=f"biased_{lane}", reset_less=True)
            with m.If(valid[0]):
                m.d.sync += biased.eq(self.x[lane] + bias)
            # The signed accumulator in two halves, times the unsigned multiplier in one or two.
            low, high = biased[: ACC_BITS // 2], biased[ACC_BITS // 2 :].as_signed()
            scaled: list[Value] = []
            for half in range(halves):
                factor = mults[1][half * part_bits : (half + 1) * part_bits]
                bits = ACC_BITS // 2 + len(factor)
                part_low = Signal(bits, name=f"low_{half}_{lane}", reset_less=True)
                part_high = Signal(signed(bits), name=f"high_{half}_{lane}", reset_less=True)
                with m.If(valid[1]):
                    m.d.sync += [part_low.eq(low * factor), part_high.eq(high * factor)]
                both = Signal(
                    signed(ACC_BITS + len(factor)), name=f"both_{half}_{lane}", reset_less=True
                )
                with m.If(valid[2]):
                    m.d.sync += both.eq((part_high << ACC_BITS // 2) + part_low)
                scaled.append(both << half * part_bits)
            product = Signal(
                signed(ACC_BITS + config.mult_bits), name=f"product_{lane}", reset_less=True
            )
            with m.If(valid[3]):
                m.d.sync += product.eq(sum(scaled[1:], start=scaled[0]))
            m.d.comb += [shift.value[lane].eq(product), shift.shift[lane].eq(shifts[-1])]
            _finish(m, lane, shift.o[lane], zero, a_min, a_max, valid[rounded_at:], self.o[lane])
        m.d.comb += [self.o_valid.eq(valid[-1]), self.o_bank.eq(flow.bank[-1])]
        return m


class ScaledAdd(wiring.Component):
    """``clamp(round((x * m1 + v * m2 + offset) / 2**shift) + zero)`` on every lane.

    Throughput one row a cycle, ``latency`` cycles from ``en`` to ``o_valid``.

    Members
    -------
    en, bank : ``In(1)``
    x, v : ``In(signed(8)).array(lanes)``
    settings : ``In(ArrayLayout(SETTINGS, 2))``
    o_valid, o_bank : ``Out(1)``
    o : ``Out(signed(8)).array(lanes)``
    """

    #: Registers for the partial products, their sums, the sum of both, and that with the offset.
    SUM_STAGES = 4
    #: Two products of int8 by 25 bits and a 40-bit constant.
    SUM_BITS = 41

    en: Signal
    bank: Signal
    x: list[Signal]
    v: list[Signal]
    settings: data.View
    o_valid: Signal
    o_bank: Signal
    o: list[Signal]

    def __init__(self, config: AccelConfig) -> None:
        self.lanes = config.vector_lanes
        self.shift = RoundingShift(lanes=self.lanes, value_bits=self.SUM_BITS, shift_bits=5)
        super().__init__(
            {
                "en": In(1),
                "bank": In(1),
                "x": In(signed(8)).array(self.lanes),
                "v": In(signed(8)).array(self.lanes),
                "settings": In(data.ArrayLayout(SETTINGS, 2)),
                "o_valid": Out(1),
                "o_bank": Out(1),
                "o": Out(signed(8)).array(self.lanes),
            }
        )

    @property
    def latency(self) -> int:
        # the settings of the first stage are fetched in a stage of their own
        return 1 + self.SUM_STAGES + self.shift.latency + 2

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.shift = shift = self.shift
        flow = Flow(m, self.en, self.bank, self.settings)
        m1, m2 = flow.setting("m1", 1), flow.setting("m2", 1)
        offset = flow.setting("offset", self.SUM_STAGES)
        summed_at = 1 + self.SUM_STAGES
        amount = flow.setting("b_shift", summed_at)
        rounded_at = summed_at + shift.latency
        zero = flow.setting("b_zero", rounded_at)
        b_min, b_max = (flow.setting(name, rounded_at + 1) for name in ("b_min", "b_max"))
        flow.extend(self.latency)
        valid = flow.valid
        m.d.comb += shift.en.eq(valid[summed_at])
        for lane in range(self.lanes):
            x = Signal(signed(8), name=f"x_{lane}", reset_less=True)
            v = Signal(signed(8), name=f"v_{lane}", reset_less=True)
            with m.If(valid[0]):
                m.d.sync += [x.eq(self.x[lane]), v.eq(self.v[lane])]
            partials = []
            for value, factor, name in ((x, m1, "x"), (v, m2, "v")):
                low = Signal(signed(8 + PARTIAL_BITS), name=f"low_{name}_{lane}", reset_less=True)
                high = Signal(signed(16), name=f"high_{name}_{lane}", reset_less=True)
                with m.If(valid[1]):
                    m.d.sync += [
                        low.eq(value * factor[:PARTIAL_BITS]),
                        high.eq(value * factor[PARTIAL_BITS:].as_signed()),
                    ]
                partials.append((low, high))
            (low_x, high_x), (low_v, high_v) = partials
            low_sum = Signal(signed(9 + PARTIAL_BITS), name=f"low_sum_{lane}", reset_less=True)
            high_sum = Signal(signed(17), name=f"high_sum_{lane}", reset_less=True)
            with m.If(valid[2]):
                m.d.sync += [low_sum.eq(low_x + low_v), high_sum.eq(high_x + high_v)]
            both = Signal(signed(34), name=f"both_{lane}", reset_less=True)
            with m.If(valid[3]):
                m.d.sync += both.eq((high_sum << PARTIAL_BITS) + low_sum)
            total = Signal(signed(self.SUM_BITS), name=f"total_{lane}", reset_less=True)
            with m.If(valid[4]):
                m.d.sync += total.eq(both + offset)
            m.d.comb += [shift.value[lane].eq(total), shift.shift[lane].eq(amount)]
            _finish(m, lane, shift.o[lane], zero, b_min, b_max, valid[rounded_at:], self.o[lane])
        m.d.comb += [self.o_valid.eq(valid[-1]), self.o_bank.eq(flow.bank[-1])]
        return m


def _finish(
    m: Module,
    lane: int,
    rounded: Value,
    zero: Value,
    low: Value,
    high: Value,
    valid: list[Value],
    o: Value,
) -> None:
    """Two stages: add the zero point, clamp into ``o``."""
    moved = Signal(signed(NARROW_BITS + 2), name=f"moved_{lane}", reset_less=True)
    with m.If(valid[0]):
        m.d.sync += moved.eq(rounded + zero)
    with m.If(valid[1]):
        m.d.sync += o.eq(clamp(moved, low, high))
