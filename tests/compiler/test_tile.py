import pytest

from accelc.compiler.integer import ConvAttrs
from accelc.compiler.tile import ConvTile, choose_conv
from accelc.compiler.tile_cost import ConvShape, copies, even_splits
from accelc.compiler.window import axis, loaded_positions
from accelc.isa.config import PRESETS, REFERENCE, AccelConfig
from accelc.isa.errors import DoesNotFitError


def shape(
    size: int, channels: int, out: int, k: int, stride: int, config: AccelConfig
) -> ConvShape:
    pad = k // 2
    conv = ConvAttrs(kernel=(k, k), stride=(stride, stride), pads=(pad, pad, pad, pad))
    blocks = -(-channels // config.block_in)
    return ConvShape(
        groups=1,
        height=size,
        width=size,
        blocks_in=blocks,
        blocks_out=-(-out // config.block_out),
        conv=conv,
        pitch=blocks,
    )


def rows_needed(s: ConvShape, t: ConvTile) -> dict[str, int]:
    y = loaded_positions(t.lines, t.taps_y, s.conv.stride[0], s.conv.dilation[0])
    x = loaded_positions(t.columns, t.taps_x, s.conv.stride[1], s.conv.dilation[1])
    return {
        "inp_rows": y * x * t.blocks_in,
        "wgt_rows": t.chunk * t.blocks_in * t.taps_y * t.taps_x,
        "acc_rows": t.lines * t.columns * t.blocks_out,
        "out_rows": t.lines * t.columns * t.blocks_out,
        "prm_rows": t.blocks_out,
    }


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("size", "channels", "out", "k", "stride"),
    [(56, 64, 64, 3, 1), (56, 64, 128, 3, 2), (7, 512, 512, 3, 1), (1, 512, 1000, 1, 1)],
)
def test_tiles_fit_as_often_as_they_must(config, size, channels, out, k, stride) -> None:
    s = shape(size, channels, out, k, stride, config)
    tile = choose_conv(s, config)
    for name, need in rows_needed(s, tile).items():
        assert copies(config) * need <= getattr(config, name), name


@pytest.mark.parametrize(
    ("size", "channels", "out", "k", "stride", "least"),
    [
        (56, 64, 64, 3, 1, 0.95),
        (56, 64, 128, 3, 2, 0.95),
        (28, 128, 128, 3, 1, 0.95),
        (28, 128, 256, 3, 2, 0.95),
        (14, 256, 256, 3, 1, 0.95),
        (14, 256, 512, 3, 2, 0.94),
        (7, 512, 512, 3, 1, 0.94),
        (112, 32, 64, 1, 1, 0.90),
        (14, 512, 512, 1, 1, 0.90),
    ],
)
def test_the_model_expects_little_waste(size, channels, out, k, stride, least) -> None:
    s = shape(size, channels, out, k, stride, REFERENCE)
    tile = choose_conv(s, REFERENCE)
    oh, ow = s.output_size
    ideal = oh * ow * k * k * channels * out / REFERENCE.macs_per_cycle
    traffic = (size * size * channels + oh * ow * out + k * k * channels * out) / 8
    assert max(ideal, traffic) / tile.cycles >= least


def test_nothing_fits_in_too_little() -> None:
    s = shape(8, 16, 16, 3, 1, REFERENCE)
    tiny = AccelConfig(name="t", prm_rows=4, acc_rows=4, out_rows=4, inp_rows=4, wgt_rows=4)
    tile = choose_conv(s, tiny)
    assert (tile.lines, tile.columns, tile.taps_y, tile.taps_x) == (1, 1, 1, 1) or tile.cycles
    wide = ConvShape(**{**vars(s), "residual": True})
    assert choose_conv(wide, tiny).blocks_out == 1


def test_even_splits_cover_every_size() -> None:
    for size in (1, 2, 7, 100, 5000):
        sizes = even_splits(size)
        assert sizes[-1] == 1 and sizes == sorted(sizes, reverse=True)
        assert max(sizes) == min(size, max(sizes)) <= 4095


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("pad", [0, 1, 9])
def test_axes_name_the_positions_of_every_tap(stride: int, dilation: int, pad: int) -> None:
    for output in (0, 3):
        for outputs in (1, 4):
            for taps in (1, 3):
                size = 7
                a = axis(output=output, outputs=outputs, tap=1, taps=taps, size=size,
                         stride=stride, dilation=dilation, pad=pad)  # fmt: skip
                inside = [a.first + i * a.step for i in range(a.inside)]
                loaded: list[int | None] = [None] * a.before + inside + [None] * a.after
                assert all(0 <= p < size for p in inside)
                for o in range(outputs):
                    for t in range(taps):
                        wanted = (output + o) * stride + (1 + t) * dilation - pad
                        got = loaded[o * a.output_step + t * a.tap_step]
                        assert got == (wanted if 0 <= wanted < size else None)


def test_the_error_names_the_remedy() -> None:
    s = ConvShape(
        groups=1,
        height=1,
        width=1,
        blocks_in=1,
        blocks_out=1,
        conv=ConvAttrs(kernel=(1, 1)),
        pitch=1,
        residual=True,
    )
    assert choose_conv(s, REFERENCE).cycles > 0
    with pytest.raises(DoesNotFitError, match="raise inp_rows, wgt_rows or acc_rows"):
        choose_conv(s, _no_room())


def _no_room() -> AccelConfig:
    """A configuration its own checks would refuse: no public one is too small for one output."""
    config = AccelConfig(name="none")
    object.__setattr__(config, "wgt_rows", 1)
    return config
