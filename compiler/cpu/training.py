"""The optimizers ONNX has operators for: one step for every parameter, element by element."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from accelc.compiler.cpu.elementwise import single
from accelc.compiler.cpu.expressions import FLOATS, OPERATORS
from accelc.compiler.cpu.functions import pow_
from accelc.compiler.cpu.lanes import Val
from accelc.compiler.cpu.parse import Operand, require, text
from accelc.compiler.cpu.plan import Plan
from accelc.compiler.graph import Node

_DOMAIN = "ai.onnx.preview.training"
Numbers = tuple[float, ...]


def _gradient(v: Sequence[Val], p: Numbers, d: np.dtype[Any]) -> Val:
    """Parameter, gradient: with the share ``p`` of the parameter (L2 regularization)."""
    return v[0] * p[0] + v[1]


def _mixed(v: Sequence[Val], p: Numbers, d: np.dtype[Any]) -> Val:
    """Average so far, new value."""
    return v[0] * p[0] + v[1] * p[1]


def _mixed_square(v: Sequence[Val], p: Numbers, d: np.dtype[Any]) -> Val:
    return v[0] * p[0] + v[1] * v[1] * p[1]


def _momentum(v: Sequence[Val], p: Numbers, d: np.dtype[Any]) -> Val:
    """Momentum, gradient, step number: the first step takes the whole gradient."""
    share = (v[2] > 0).select(v[1].like(p[1]), v[1].like(1.0))
    return v[0] * p[0] + v[1] * share


def _along(v: Sequence[Val], p: Numbers, d: np.dtype[Any]) -> Val:
    """Parameter, rate, direction."""
    return v[0] - v[1] * v[2]


def _nesterov(v: Sequence[Val], p: Numbers, d: np.dtype[Any]) -> Val:
    """Parameter, rate, gradient, momentum."""
    return v[0] - v[1] * (v[2] + v[3] * p[0])


def _adagrad(v: Sequence[Val], p: Numbers, d: np.dtype[Any]) -> Val:
    """Parameter, rate, step number, gradient, sum of squares; ``p``: decay, epsilon."""
    rate = v[1] / (v[2].convert(d) * p[0] + 1.0)
    return v[0] - rate * v[3] / (v[4].call("sqrt") + p[1])


def _adam(v: Sequence[Val], p: Numbers, d: np.dtype[Any]) -> Val:
    """Parameter, rate, step number, both averages; ``p``: alpha, beta, epsilon, shrinking."""
    x, rate, number, average, squares = v
    alpha, beta, epsilon, shrink = p
    times = number.convert(d)
    right = rate * (1.0 - pow_(rate.like(beta), times)).call("sqrt")
    right = right / (1.0 - pow_(rate.like(alpha), times))
    rate = (number > 0).select(right, rate)
    return (x - rate * average / (squares.call("sqrt") + epsilon)) * (1.0 - shrink)


OPERATORS.update(
    {
        "train.gradient": _gradient,
        "train.mixed": _mixed,
        "train.mixed_square": _mixed_square,
        "train.momentum": _momentum,
        "train.along": _along,
        "train.nesterov": _nesterov,
        "train.adagrad": _adagrad,
        "train.adam": _adam,
    }
)


class _Step:
    """Appends elementwise operators on values of one shape."""

    def __init__(self, plan: Plan, node: Node, like: str) -> None:
        self.plan = plan
        self.shape = plan.shape(like)
        self.dtype = plan.dtype(like)
        require(self.dtype in FLOATS, "element type")
        self.rate, self.number = node.inputs[:2]

    def apply(self, op: str, names: Sequence[str], params: Numbers, out: str = "") -> str:
        target = out or self.plan.temporary(self.shape, self.dtype)
        operands: list[Operand] = [
            (name, () if name in (self.rate, self.number) else self.shape) for name in names
        ]
        single(self.plan, f"train.{op}", operands, params, target, self.shape)
        return target


def _groups(node: Node, kinds: int) -> list[tuple[str, ...]]:
    """For every parameter its value, its gradient and its states; then where the results go."""
    given, count = node.inputs[2:], (len(node.inputs) - 2) // kinds
    return [(*given[number::count], *node.outputs[number::count]) for number in range(count)]


def lower_adagrad(plan: Plan, node: Node) -> None:
    norm = float(node.attrs.get("norm_coefficient", 0.0))
    decay = float(node.attrs.get("decay_factor", 0.0))
    epsilon = float(node.attrs.get("epsilon", 1e-6))
    for x, gradient, squares, new_x, new_squares in _groups(node, 3):
        step = _Step(plan, node, x)
        g = step.apply("gradient", (x, gradient), (norm,))
        h = step.apply("mixed_square", (squares, g), (1.0, 1.0), new_squares)
        step.apply("adagrad", (x, step.rate, step.number, g, h), (decay, epsilon), new_x)


def lower_adam(plan: Plan, node: Node) -> None:
    alpha, beta = float(node.attrs.get("alpha", 0.9)), float(node.attrs.get("beta", 0.999))
    epsilon = float(node.attrs.get("epsilon", 1e-6))
    norm = float(node.attrs.get("norm_coefficient", 0.0))
    shrink = float(node.attrs.get("norm_coefficient_post", 0.0))
    for x, gradient, average, squares, new_x, new_average, new_squares in _groups(node, 4):
        step = _Step(plan, node, x)
        g = step.apply("gradient", (x, gradient), (norm,))
        v = step.apply("mixed", (average, g), (alpha, 1.0 - alpha), new_average)
        h = step.apply("mixed_square", (squares, g), (beta, 1.0 - beta), new_squares)
        names = (x, step.rate, step.number, v, h)
        step.apply("adam", names, (alpha, beta, epsilon, shrink), new_x)


def lower_momentum(plan: Plan, node: Node) -> None:
    alpha, beta = float(node.attrs["alpha"]), float(node.attrs["beta"])
    norm = float(node.attrs["norm_coefficient"])
    nesterov = text(node.attrs["mode"]) == "nesterov"
    for x, gradient, momentum, new_x, new_momentum in _groups(node, 3):
        step = _Step(plan, node, x)
        g = step.apply("gradient", (x, gradient), (norm,))
        v = step.apply("momentum", (momentum, g, step.number), (alpha, beta), new_momentum)
        if nesterov:
            step.apply("nesterov", (x, step.rate, g, v), (alpha,), new_x)
        else:
            step.apply("along", (x, step.rate, v), (), new_x)


LOWERINGS: dict[str, Callable[[Plan, Node], Any]] = {
    f"{_DOMAIN}.Adagrad": lower_adagrad,
    f"{_DOMAIN}.Adam": lower_adam,
    f"{_DOMAIN}.Momentum": lower_momentum,
}
