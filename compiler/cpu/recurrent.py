"""RNN, GRU and LSTM: one matrix product for the inputs of all steps, then a loop over the steps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu import functions
from accelc.compiler.cpu.copies import permute, strided_copy
from accelc.compiler.cpu.elementwise import contiguous, single
from accelc.compiler.cpu.expressions import FLOATS
from accelc.compiler.cpu.ir import Index, Kernel
from accelc.compiler.cpu.lanes import INT32, INT64, Val
from accelc.compiler.cpu.matmul import multiply, transposed
from accelc.compiler.cpu.parse import Operand, require, text
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.cpu.planes import require_native
from accelc.compiler.graph import Node

#: Gates of a step, in the order of the rows of W and R.
GATES: Mapping[str, int] = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
#: Alpha and beta that an activation has where the node gives none.
_PARAMETERS: Mapping[str, tuple[float, float]] = {
    "Affine": (1.0, 0.0),
    "Elu": (1.0, 0.0),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01, 0.0),
    "ScaledTanh": (1.0, 1.0),
    "ThresholdedRelu": (1.0, 0.0),
}
_ACTIVATIONS: Mapping[str, Callable[[Val, float, float], Val]] = {
    "Affine": lambda x, a, b: x * a + b,
    "Elu": lambda x, a, b: (x < 0.0).select((functions.exp(x) - 1.0) * a, x),
    "HardSigmoid": lambda x, a, b: (x * a + b).clamp(0.0, 1.0),
    "LeakyRelu": lambda x, a, b: (x < 0.0).select(x * a, x),
    "Relu": lambda x, a, b: x.maximum(0.0),
    "ScaledTanh": lambda x, a, b: functions.tanh(x * b) * a,
    "Sigmoid": lambda x, a, b: functions.sigmoid(x),
    "Softplus": lambda x, a, b: functions.log1p_exp(x),
    "Softsign": lambda x, a, b: x / (x.call("fabs") + 1.0),
    "Tanh": lambda x, a, b: functions.tanh(x),
    "ThresholdedRelu": lambda x, a, b: (x > a).select(x, 0.0),
}
#: Columns of the recurrent product whose sums are kept in registers, in vectors.
_VECTORS = 4


@dataclass(frozen=True)
class Activation:
    """A named function with its parameters."""

    name: str
    alpha: float
    beta: float

    def apply(self, x: Val) -> Val:
        return _ACTIVATIONS[self.name](x, self.alpha, self.beta)


@dataclass(frozen=True)
class Recurrence:
    """One direction of a layer: ``steps`` of ``batch`` states of ``hidden`` elements.

    ``x`` is ``(steps, batch, gates * hidden)``, the inputs' share of every gate with all biases
    that may be added early; ``r`` is ``(hidden, gates * hidden)``.
    """

    op: str
    dtype: str
    steps: int
    batch: int
    hidden: int
    reverse: bool
    activations: tuple[Activation, ...]
    clip: float
    #: GRU: the reset gate scales the product instead of the state.
    linear_before_reset: bool
    #: LSTM: the forget gate is what the input gate leaves.
    coupled: bool
    peepholes: bool
    #: Whether every item of the batch has a number of steps of its own.
    lengths: bool

    @property
    def columns(self) -> int:
        return GATES[self.op] * self.hidden


def emit_recurrence(k: Kernel, s: Recurrence) -> None:
    """Pointers: x, r, bias of the recurrent side ``(gates * hidden,)``, [peepholes
    ``(3 * hidden,)``], [lengths ``(batch,)`` int32], first h, [first c]; gate sums ``(columns,)``,
    scaled state ``(hidden,)``, h, [c], every h ``(steps, batch, hidden)``.

    h and c are ``(batch, hidden)`` and hold the states between the steps.
    """
    pointers = list(k.args)
    x, r, bias = pointers[:3]
    rest = pointers[3:]
    peephole = rest.pop(0) if s.peepholes else None
    lengths = rest.pop(0) if s.lengths else None
    lstm = s.op == "LSTM"
    first_h = rest.pop(0)
    first_c = rest.pop(0) if lstm else None
    sums, scaled, h = rest[:3]
    c = rest[3] if lstm else None
    every = rest[-1]
    dtype = np.dtype(s.dtype)
    lanes = k.lanes_of(dtype)

    def clipped(value: Val) -> Val:
        return value.clamp(-s.clip, s.clip) if math.isfinite(s.clip) else value

    def product(state: Any, base: Index, first: int, count: int) -> None:
        """``sums[first : first + count] = bias + state @ r`` for these columns."""

        def strip(at: Index, width: int) -> None:
            vectors = max(1, width // lanes)
            each = width // vectors
            start = [
                k.load(bias, dtype, k.iadd(first, k.iadd(at, v * each)), each)
                for v in range(vectors)
            ]

            def deep(i: Index, *totals: Val) -> list[Val]:
                left = k.splat(k.load(state, dtype, k.iadd(base, i)), each)
                row = k.affine((i, s.columns), (first, 1), (at, 1))
                return [
                    left.muladd(k.load(r, dtype, k.iadd(row, v * each), each), total)
                    for v, total in enumerate(totals)
                ]

            for v, total in enumerate(k.loop(s.hidden, deep, start)):
                k.store(total, sums, k.iadd(first, k.iadd(at, v * each)))

        k.strips(count, lanes * _VECTORS, strip)

    def start_state() -> None:
        for source, target in ((first_h, h), (first_c, c)):
            if source is None or target is None:
                continue

            def strip(at: Index, width: int, source: Any = source, target: Any = target) -> None:
                k.store(k.load(source, dtype, at, width), target, at)

            k.strips(s.batch * s.hidden, lanes, strip)

    def step(i: Index) -> None:
        time = k.iadd(k.imul(i, -1), s.steps - 1) if s.reverse else i

        def item(b: Index) -> None:
            state = k.imul(b, s.hidden)
            inputs = k.affine((time, s.batch * s.columns), (b, s.columns))
            output = k.affine((time, s.batch * s.hidden), (b, s.hidden))
            alive: Val | None = None
            if lengths is not None:  # beyond its length a state stays, its output is 0
                alive = Val(k, k.index(time), INT64) < k.load(lengths, INT32, b).convert(INT64)

            def gate(number: int, at: Index, n: int) -> Val:
                """Both shares of a gate."""
                offset = k.iadd(at, number * s.hidden)
                given = k.load(x, dtype, k.iadd(inputs, offset), n)
                return given + k.load(sums, dtype, offset, n)

            def living(new: Val, old: Val) -> Val:
                return new if alive is None else k.splat(alive, new.lanes).select(new, old)

            def keep(value: Val, at: Index) -> None:
                old = k.load(h, dtype, k.iadd(state, at), value.lanes)
                k.store(living(value, old), h, k.iadd(state, at))
                k.store(living(value, value.like(0.0)), every, k.iadd(output, at))

            def plain(at: Index, n: int) -> None:
                keep(s.activations[0].apply(clipped(gate(0, at, n))), at)

            def lstm_cell(at: Index, n: int) -> None:
                assert c is not None
                f, g, o = s.activations

                def weighted(cell: Val, number: int) -> Val:
                    if peephole is None:
                        return cell.like(0.0)
                    return cell * k.load(peephole, dtype, k.iadd(at, number * s.hidden), n)

                old = k.load(c, dtype, k.iadd(state, at), n)
                entry = f.apply(clipped(gate(0, at, n) + weighted(old, 0)))
                forget = 1.0 - entry
                if not s.coupled:
                    forget = f.apply(clipped(gate(2, at, n) + weighted(old, 2)))
                new = forget * old + entry * g.apply(clipped(gate(3, at, n)))
                open_ = f.apply(clipped(gate(1, at, n) + weighted(new, 1)))
                k.store(living(new, old), c, k.iadd(state, at))
                keep(open_ * o.apply(new), at)

            def gru_reset(at: Index, n: int) -> None:
                reset = s.activations[0].apply(clipped(gate(1, at, n)))
                if s.linear_before_reset:
                    inner = k.iadd(at, 2 * s.hidden)
                    k.store(reset * k.load(sums, dtype, inner, n), sums, inner)
                else:
                    k.store(reset * k.load(h, dtype, k.iadd(state, at), n), scaled, at)

            def gru_state(at: Index, n: int) -> None:
                f, g = s.activations
                update = f.apply(clipped(gate(0, at, n)))
                new = g.apply(clipped(gate(2, at, n)))
                old = k.load(h, dtype, k.iadd(state, at), n)
                keep((1.0 - update) * new + update * old, at)

            if s.op == "GRU":
                product(h, state, 0, s.columns if s.linear_before_reset else 2 * s.hidden)
                # the strips of what is changed in place must not overlap
                whole(k, s.hidden, lanes, gru_reset)
                if not s.linear_before_reset:
                    product(scaled, 0, 2 * s.hidden, s.hidden)
                whole(k, s.hidden, lanes, gru_state)
            else:
                product(h, state, 0, s.columns)
                whole(k, s.hidden, lanes, lstm_cell if lstm else plain)

        k.loop(s.batch, item)

    start_state()
    k.loop(s.steps, step)


def whole(k: Kernel, count: int, lanes: int, body: Callable[[Index, int], None]) -> None:
    """``body(first, lanes)`` over ``range(count)`` without overlap: vectors, then one by one."""
    vectors = count // lanes
    k.loop(vectors, lambda i: body(k.imul(i, lanes), lanes))
    k.loop(count - vectors * lanes, lambda i: body(k.iadd(i, vectors * lanes), 1))


def activations_of(node: Node, direction: int) -> tuple[Activation, ...]:
    """The activations of one direction, with their parameters."""
    count = len(_DEFAULTS[node.op])
    names = [text(name) for name in node.attrs.get("activations") or ()]
    alphas = list(node.attrs.get("activation_alpha") or ())
    betas = list(node.attrs.get("activation_beta") or ())
    known = {name.lower(): name for name in _ACTIVATIONS}
    result: list[Activation] = []
    for place, name in enumerate(names or _DEFAULTS[node.op] * 2):
        require(name.lower() in known, f"activation {name}")
        name = known[name.lower()]
        alpha, beta = _PARAMETERS.get(name, (0.0, 0.0))
        # parameters are listed for the activations that have some, in their order, or for all
        if len(alphas) > place and name in _PARAMETERS:
            alpha = float(alphas[place])
        if len(betas) > place and name in _PARAMETERS:
            beta = float(betas[place])
        result.append(Activation(name, alpha, beta))
    return tuple(result[direction * count : (direction + 1) * count])


@dataclass(frozen=True)
class _Layout:
    """Extents of a layer, and whether the batch is the first axis of everything."""

    steps: int
    batch: int
    hidden: int
    directions: int
    batch_first: bool
    dtype: np.dtype[Any]


def _part(plan: Plan, name: str, first: int, shape: Sequence[int]) -> str:
    """``shape`` elements of a value from ``first`` on; constants are cut now."""
    size = math.prod(shape)
    known = plan.known(name)
    if known is not None:
        part = known.reshape(-1)[first : first + size].reshape(shape)
        return plan.constant(np.ascontiguousarray(part))
    out = plan.temporary(shape, plan.dtype(name))
    strided_copy(plan, name, out, (size,), (1,), (1,), read_start=first)
    return out


def _first_state(plan: Plan, name: str, direction: int, layout: _Layout) -> str:
    """``(batch, hidden)``; zeros where there is none."""
    n, d, hidden = layout.batch, layout.directions, layout.hidden
    if not name:
        return plan.constant(np.zeros((n, hidden), layout.dtype))
    if not layout.batch_first:
        return _part(plan, name, direction * n * hidden, (n, hidden))
    out = plan.temporary((n, hidden), layout.dtype)
    shape, read = (n, hidden), (d * hidden, 1)
    strided_copy(plan, name, out, shape, read, contiguous(shape), read_start=direction * hidden)
    return out


def _give_state(plan: Plan, state: str, out: str, direction: int, layout: _Layout) -> None:
    """Put the last state of one direction in its place of Y_h or Y_c."""
    n, d, hidden = layout.batch, layout.directions, layout.hidden
    write = (d * hidden, 1) if layout.batch_first else (hidden, 1)
    first = direction * hidden if layout.batch_first else direction * n * hidden
    shape = (n, hidden)
    strided_copy(plan, state, out, shape, contiguous(shape), write, write_start=first)


def _give_sequence(plan: Plan, every: str, out: str, direction: int, layout: _Layout) -> None:
    """Put the states of one direction in their places of Y."""
    t, n, d, hidden = layout.steps, layout.batch, layout.directions, layout.hidden
    if layout.batch_first:
        write = (d * hidden, t * d * hidden, 1)
        first = direction * hidden
    else:
        write = (d * n * hidden, hidden, 1)
        first = direction * n * hidden
    shape = (t, n, hidden)
    strided_copy(plan, every, out, shape, contiguous(shape), write, write_start=first)


def lower_recurrent(plan: Plan, node: Node) -> None:
    x, w, r, bias, lengths, first_h, first_c, peepholes = (*node.inputs, *("",) * 8)[:8]
    y, y_h, y_c = (*node.outputs, "", "")[:3]
    dtype = plan.dtype(x)
    require(dtype in FLOATS, "element type")
    require_native(plan, x, w, r)
    lstm = node.op == "LSTM"
    directions, columns, hidden = plan.shape(r)
    batch_first = bool(node.attrs.get("layout", 0))
    steps, batch, width = plan.shape(x)
    if batch_first:
        steps, batch = batch, steps
        turned = plan.temporary((steps, batch, width), dtype)
        permute(plan, x, turned, (batch, steps, width), (1, 0, 2))
        x = turned
    layout = _Layout(steps, batch, hidden, directions, batch_first, dtype)
    rows = steps * batch
    for d in range(directions):
        product = plan.temporary((rows, columns), dtype)
        weights = transposed(plan, _part(plan, w, d * columns * width, (columns, width)))
        multiply(plan, x, (rows, width), weights, (width, columns), product)
        if bias:
            own = _part(plan, bias, 2 * d * columns, (columns,))
            biased = plan.temporary((rows, columns), dtype)
            operands: list[Operand] = [(product, (rows, columns)), (own, (columns,))]
            single(plan, "Add", operands, (), biased, (rows, columns))
            product = biased
            inner = _part(plan, bias, (2 * d + 1) * columns, (columns,))
        else:
            inner = plan.constant(np.zeros(columns, dtype))
        recurrent = transposed(plan, _part(plan, r, d * columns * hidden, (columns, hidden)))
        reads = [product, recurrent, inner]
        if peepholes:
            reads.append(_part(plan, peepholes, d * 3 * hidden, (3 * hidden,)))
        if lengths:
            reads.append(lengths)
        for given in (first_h, first_c) if lstm else (first_h,):
            reads.append(_first_state(plan, given, d, layout))
        params = Recurrence(
            node.op,
            dtype.name,
            steps,
            batch,
            hidden,
            text(node.attrs.get("direction", "forward")) == "reverse" or d == 1,
            activations_of(node, d),
            float(node.attrs.get("clip") or math.inf),
            bool(node.attrs.get("linear_before_reset", 0)),
            bool(node.attrs.get("input_forget", 0)),
            bool(peepholes),
            bool(lengths),
        )
        h, c = plan.temporary((batch, hidden), dtype), plan.temporary((batch, hidden), dtype)
        sums, scaled = plan.temporary((columns,), dtype), plan.temporary((hidden,), dtype)
        every = plan.temporary((steps, batch, hidden), dtype)
        states = [h, c] if lstm else [h]
        plan.call(emit_recurrence, params, reads, [sums, scaled, *states, every])
        if y:
            _give_sequence(plan, every, y, d, layout)
        for state, out in ((h, y_h), (c, y_c)):
            if out:
                _give_state(plan, state, out, d, layout)


LOWERINGS: dict[str, Callable[[Plan, Node], Any]] = {op: lower_recurrent for op in GATES}
