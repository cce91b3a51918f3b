"""Padded planes: the input of a window operator so that every tap reads contiguous memory.

With stride ``s`` an axis is dealt out in ``s`` phases: padded position ``q * s + r`` goes to plane
``r``, place ``q``. Window tap ``k`` of output ``o`` is then place ``o + (k * d) // s`` of plane
``(k * d) % s``.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelc.compiler.cpu.copies import Fill, emit_fill, strided_copy
from accelc.compiler.cpu.elementwise import contiguous
from accelc.compiler.cpu.parse import require, text
from accelc.compiler.cpu.plan import NotNative, Plan
from accelc.compiler.graph import Node

#: Phases copied one by one; with more, padding and dealing out are two copies of everything.
MAX_COPIES = 4


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution or pool; tuples have one entry for each spatial axis."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def trivial(self) -> bool:
        """Every output reads its own input and nothing else."""
        ones = (1,) * len(self.kernel)
        zeros = (0,) * len(self.kernel)
        return (self.kernel, self.strides, self.before, self.after) == (ones, ones, zeros, zeros)


def window_of(node: Node, inputs: Sequence[int], outputs: Sequence[int], kernel: Any) -> Window:
    """The window of ``node``'s attributes for spatial extents ``inputs`` and ``outputs``.

    Raises:
        NotNative: the attributes contradict the extents.
    """
    rank = len(inputs)
    kernel = tuple(int(v) for v in kernel)
    strides = tuple(int(v) for v in node.attrs.get("strides") or (1,) * rank)
    dilations = tuple(int(v) for v in node.attrs.get("dilations") or (1,) * rank)
    require(len(kernel) == len(strides) == len(dilations) == rank > 0, "window rank")
    pads = [int(v) for v in node.attrs.get("pads") or (0,) * (2 * rank)]
    mode = text(node.attrs.get("auto_pad", "NOTSET"))
    before, after = pads[:rank], pads[rank:]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        for axis in range(rank):
            wanted = -(-inputs[axis] // strides[axis])
            total = max(0, (wanted - 1) * strides[axis] + spans[axis] - inputs[axis])
            small = total // 2
            before[axis] = small if mode == "SAME_UPPER" else total - small
            after[axis] = total - before[axis]
    elif mode == "VALID":
        before, after = [0] * rank, [0] * rank
    for axis in range(rank):
        require(before[axis] >= 0 and after[axis] >= 0, "negative pads")
        # ceil_mode reads further than the pads say
        reach = (outputs[axis] - 1) * strides[axis] + spans[axis]
        after[axis] = max(after[axis], reach - before[axis] - inputs[axis])
    strides = tuple(1 if o == 1 else s for o, s in zip(outputs, strides, strict=True))
    return Window(
        tuple(inputs), tuple(outputs), kernel, strides, dilations, tuple(before), tuple(after)
    )


@dataclass(frozen=True)
class Planes:
    """Where the planes of one channel are; offsets in elements.

    ``taps`` are the offsets of every window tap, ``pitch`` the strides of the output axes.
    """

    value: str
    channel: int
    taps: tuple[int, ...]
    pitch: tuple[int, ...]

    def columns(self, outputs: Sequence[int]) -> int:
        """Extent of the flattened output axes, gaps included."""
        return sum((o - 1) * p for o, p in zip(outputs, self.pitch, strict=True)) + 1


def planes(plan: Plan, source: str, channels: int, window: Window, pad: str) -> Planes:
    """Deal ``source`` ``(channels, *inputs)`` out into planes padded with the scalar ``pad``.

    Without padding and strides the planes are the input itself.
    """
    rank = len(window.kernel)
    padded = [b + i + a for b, i, a in zip(window.before, window.inputs, window.after, strict=True)]
    extents = [-(-size // s) for size, s in zip(padded, window.strides, strict=True)]
    plane = int(np.prod(extents))
    pitch = contiguous(extents)
    positions = [
        [divmod(k * d, s) for k in range(count)]
        for count, d, s in zip(window.kernel, window.dilations, window.strides, strict=True)
    ]
    phases = sorted({tuple(p[1] for p in tap) for tap in itertools.product(*positions)})
    number = {phase: i for i, phase in enumerate(phases)}
    taps = tuple(
        number[tuple(p[1] for p in tap)] * plane
        + sum(p[0] * step for p, step in zip(tap, pitch, strict=True))
        for tap in itertools.product(*positions)
    )
    if not any(window.before) and not any(window.after) and set(window.strides) == {1}:
        return Planes(source, plane, taps, pitch)
    channel = plane * len(phases)
    dtype = plan.dtype(source)
    many = len(phases) > MAX_COPIES
    if many:
        channel = plane * math.prod(window.strides)
    value = plan.temporary((channels * channel,), dtype)
    if many:
        deal(plan, source, value, channels, window, extents, pad)
        steps = contiguous((*window.strides, plane))[:-1]
        taps = tuple(
            sum(p[1] * step for p, step in zip(tap, steps, strict=True))
            + sum(p[0] * step for p, step in zip(tap, pitch, strict=True))
            for tap in itertools.product(*positions)
        )
        return Planes(value, channel, taps, pitch)
    plan.call(emit_fill, Fill(channels * channel, dtype.itemsize), [pad], [value])
    read = contiguous((channels, *window.inputs))
    for phase in phases:
        starts: list[int] = []
        counts: list[int] = []
        for axis in range(rank):
            stride, before = window.strides[axis], window.before[axis]
            first = max(0, -(-(before - phase[axis]) // stride))
            last = (before + window.inputs[axis] - 1 - phase[axis]) // stride
            starts.append(first)
            counts.append(max(0, min(last + 1, extents[axis]) - first))
        strided_copy(
            plan,
            source,
            value,
            (channels, *counts),
            (read[0], *(r * s for r, s in zip(read[1:], window.strides, strict=True))),
            (channel, *pitch),
            read_start=sum(
                (q * s + r - b) * step
                for q, s, r, b, step in zip(
                    starts, window.strides, phase, window.before, read[1:], strict=True
                )
            ),
            write_start=number[phase] * plane
            + sum(q * step for q, step in zip(starts, pitch, strict=True)),
        )
    return Planes(value, channel, taps, pitch)


def deal(
    plan: Plan,
    source: str,
    value: str,
    channels: int,
    window: Window,
    extents: Sequence[int],
    pad: str,
) -> None:
    """Fill the planes of all phases: pad to multiples of the strides, then one transposing copy."""
    whole = [extent * stride for extent, stride in zip(extents, window.strides, strict=True)]
    steps = contiguous((channels, *whole))
    padded = plan.temporary((channels, *whole), plan.dtype(source))
    fill = Fill(plan.size(padded), plan.dtype(source).itemsize)
    plan.call(emit_fill, fill, [pad], [padded])
    counts = [
        min(size, total - before)
        for size, total, before in zip(window.inputs, whole, window.before, strict=True)
    ]
    first = sum(b * s for b, s in zip(window.before, steps[1:], strict=True))
    box = (channels, *counts)
    read = contiguous((channels, *window.inputs))
    strided_copy(plan, source, padded, box, read, steps, write_start=first)
    strided_copy(
        plan,
        padded,
        value,
        (channels, *window.strides, *extents),
        (steps[0], *steps[1:], *(s * n for s, n in zip(steps[1:], window.strides, strict=True))),
        contiguous((channels, *window.strides, *extents)),
    )


def require_native(plan: Plan, *names: str) -> None:
    for name in names:
        if any(extent <= 0 for extent in plan.shape(name)):
            raise NotNative(f"{name} is empty or of unknown shape")
