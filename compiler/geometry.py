"""Window geometry of ONNX convolutions and pools: pads from every way of asking for them."""

from collections.abc import Mapping, Sequence
from typing import Any


def explicit_pads(
    attrs: Mapping[str, Any], spatial: Sequence[int], kernel: Sequence[int]
) -> tuple[int, ...]:
    """Pads as ONNX orders them (all begins, then all ends), ``auto_pad`` resolved.

    ``spatial`` and ``kernel`` are per axis; ``dilations`` are honoured, ``ceil_mode`` adds nothing.
    """
    rank = len(spatial)
    strides = attrs.get("strides") or (1,) * rank
    dilations = attrs.get("dilations") or (1,) * rank
    mode = attrs.get("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        return tuple(attrs.get("pads") or (0,) * (2 * rank))
    if mode == "VALID":
        return (0,) * (2 * rank)
    begins: list[int] = []
    ends: list[int] = []
    for size, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        span = (k - 1) * dilation + 1
        total = max(0, (-(-size // stride) - 1) * stride + span - size)
        small, large = total // 2, total - total // 2
        begins.append(large if mode == "SAME_LOWER" else small)
        ends.append(small if mode == "SAME_LOWER" else large)
    return (*begins, *ends)


def pool_output(attrs: Mapping[str, Any], spatial: Sequence[int]) -> tuple[int, ...]:
    """Spatial output shape of a pool, ``ceil_mode`` included."""
    kernel = attrs["kernel_shape"]
    rank = len(spatial)
    strides = attrs.get("strides") or (1,) * rank
    dilations = attrs.get("dilations") or (1,) * rank
    pads = explicit_pads(attrs, spatial, kernel)
    out: list[int] = []
    for axis, size in enumerate(spatial):
        room = size + pads[axis] + pads[axis + rank] - ((kernel[axis] - 1) * dilations[axis] + 1)
        if attrs.get("ceil_mode", 0):
            count = -(-room // strides[axis]) + 1
            if (count - 1) * strides[axis] >= size + pads[axis]:
                count -= 1  # a window wholly in the padding at the end does not count
        else:
            count = room // strides[axis] + 1
        out.append(count)
    return tuple(out)
