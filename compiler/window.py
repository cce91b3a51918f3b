"""Windows of a tensor as LOAD brings them in: halo, stride, dilation and padding."""

from dataclasses import dataclass

from accelc.compiler.footprint import Space, row_bytes
from accelc.compiler.integer import ConvAttrs
from accelc.compiler.layout import Part, View
from accelc.compiler.task import Block
from accelc.isa.config import AccelConfig
from accelc.isa.errors import DoesNotFitError
from accelc.isa.spec import Load


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Positions along one axis that some windows need, and how to walk them."""

    #: Position in the tensor of the first one inside it.
    first: int
    #: Positions inside the tensor, and between two of them.
    inside: int
    step: int
    #: Positions outside, before and after.
    before: int
    after: int
    #: Distance, in loaded positions, from output to output and from tap to tap.
    output_step: int
    tap_step: int

    @property
    def total(self) -> int:
        return self.before + self.inside + self.after


def loaded_positions(outputs: int, taps: int, stride: int, dilation: int) -> int:
    """Positions that an :class:`Axis` of these counts loads."""
    if taps == 1:
        return outputs
    if outputs == 1:
        return taps
    return (outputs - 1) * stride + (taps - 1) * dilation + 1


def axis(
    *,
    output: int,
    outputs: int,
    tap: int,
    taps: int,
    size: int,
    stride: int,
    dilation: int,
    pad: int,
) -> Axis:
    """The positions that outputs ``output ...`` need of taps ``tap ...`` in a tensor of ``size``.

    A single tap, or a single output, skips the positions in between.
    """
    start = output * stride + tap * dilation - pad
    total = loaded_positions(outputs, taps, stride, dilation)
    if taps == 1:
        step, output_step, tap_step = stride, 1, 1
    elif outputs == 1:
        step, output_step, tap_step = dilation, 1, 1
    else:
        step, output_step, tap_step = 1, stride, dilation
    before = min(total, max(0, -(start // step)))
    stop = min(total, max(before, -((start - size) // step)))
    return Axis(
        first=start + before * step,
        inside=stop - before,
        step=step,
        before=before,
        after=total - stop,
        output_step=output_step,
        tap_step=tap_step,
    )


@dataclass(frozen=True, kw_only=True)
class Extent:
    """A half-open range of outputs or taps along both axes."""

    y: int
    x: int
    n_y: int
    n_x: int


@dataclass(frozen=True, kw_only=True)
class Window:
    """A loaded window ``[line][pixel][block]`` and the strides, in rows, to walk it."""

    block: Block
    output_y: int
    output_x: int
    tap_y: int
    tap_x: int
    #: Whether neighbouring taps of a line are neighbouring pixels.
    contiguous: bool
    #: Loaded columns from output to output.
    output_step: int


def load_window(
    view: View,
    space: Space,
    config: AccelConfig,
    *,
    group: int,
    outputs: Extent,
    taps: Extent,
    conv: ConvAttrs,
    blocks: tuple[int, int],
) -> Window:
    """Bring what ``outputs`` need of ``taps`` into ``space``; ``blocks`` counts rows of that space.

    Raises:
        DoesNotFitError: the padding of a line exceeds a LOAD's fields.
    """
    top, left, _, _ = conv.pads
    y = axis(
        output=outputs.y,
        outputs=outputs.n_y,
        tap=taps.y,
        taps=taps.n_y,
        size=view.h,
        stride=conv.stride[0],
        dilation=conv.dilation[0],
        pad=top,
    )
    x = axis(
        output=outputs.x,
        outputs=outputs.n_x,
        tap=taps.x,
        taps=taps.n_x,
        size=view.w,
        stride=conv.stride[1],
        dilation=conv.dilation[1],
        pad=left,
    )
    nbytes = row_bytes(space, config)
    depth = blocks[1] - blocks[0]
    line = x.total * depth
    rows = y.total * line
    if rows > 0xFFFF:
        raise DoesNotFitError(f"a window of {rows} rows exceeds the 65535 a LOAD can fill")
    per_vector = nbytes // config.inp_row_bytes
    reads: tuple[Part, ...] = ()
    if not y.inside or not x.inside:
        load = Load(buffer=space, row=0, dram=0, n2=0, pad_top=rows, pad_value=conv.pad_value)
    else:
        whole_pixels = depth * nbytes == view.pixel_bytes and x.step == 1
        n0, n1, n2 = depth, x.inside, y.inside
        if whole_pixels:
            n0, n1 = x.inside * depth, 1
            if x.inside == view.w == x.total and y.step == 1:
                n0, n2 = n0 * n2, 1
        load = Load(
            buffer=space,
            row=0,
            dram=view.at(group, y.first, x.first) + blocks[0] * nbytes,
            n0=n0,
            n1=n1,
            n2=n2,
            stride1=x.step * view.pixel_bytes if n1 > 1 else 0,
            stride2=y.step * view.line_bytes if n2 > 1 else 0,
            pad_value=conv.pad_value,
            pad_top=y.before * line,
            pad_bottom=y.after * line,
            pad_left=x.before * depth,
            pad_right=x.after * depth,
        )
        base = group * view.h + y.first
        in_vectors = config.vec_inp_rows // per_vector
        part = Part(
            view,
            (base, base + (y.inside - 1) * y.step + 1),
            (x.first, x.first + (x.inside - 1) * x.step + 1),
            (blocks[0] // in_vectors, -(-blocks[1] // in_vectors)),
        )
        reads = (part,)
    return Window(
        block=Block(space, rows, (load,), reads),
        output_y=y.output_step * line,
        output_x=x.output_step * depth,
        tap_y=y.tap_step * line,
        tap_x=x.tap_step * depth,
        contiguous=x.tap_step == 1,
        output_step=x.output_step,
    )
