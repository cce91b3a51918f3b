"""Shapes that break compilers: larger than every scratchpad, odd windows, shared values."""

import numpy as np
import pytest

from accelc.compiler.accelerator import LowerOptions, lower
from accelc.compiler.graph import Node
from accelc.compiler.integer import ConvAttrs, Post
from accelc.compiler.random_graphs import SMALL, GraphBuilder
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.errors import DoesNotFitError, UnsupportedOpError
from accelc.isa.spec import Gemm, Load

CONFIGS = [SMALL, PRESETS["1x4x8"], PRESETS["2x16x16"]]


def builder(config: AccelConfig, seed: int = 0) -> GraphBuilder:
    return GraphBuilder(config, np.random.default_rng(seed))


def square(
    k: int,
    stride: int = 1,
    pad: int = 0,
    *,
    dilation: tuple[int, int] = (1, 1),
    pad_value: int = 0,
) -> ConvAttrs:
    pads = (pad, pad, pad, pad)
    return ConvAttrs(
        kernel=(k, k), stride=(stride, stride), pads=pads, dilation=dilation, pad_value=pad_value
    )


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("shape", "channels", "conv"),
    [
        pytest.param((1, 3, 3, 600), 5, square(1), id="more input blocks than wgt rows"),
        pytest.param((1, 2, 2, 5), 300, square(1), id="more output blocks than acc and prm rows"),
        pytest.param((1, 2, 300, 3), 4, square(3, pad=1), id="wider than every scratchpad"),
        pytest.param((1, 300, 2, 3), 4, square(3, pad=1), id="higher than every scratchpad"),
        pytest.param((1, 21, 20, 3), 5, square(20), id="kernel larger than inp and wgt"),
        pytest.param((1, 1, 300, 2), 3, ConvAttrs(kernel=(1, 290)), id="more taps than 8 bits"),
        pytest.param((1, 1, 5000, 1), 2, square(1), id="more columns than 12 bits"),
        pytest.param((1, 4, 4, 9), 7, square(2, pad=5, pad_value=-77), id="pads beyond the kernel"),
        pytest.param((1, 1, 1, 1), 1, square(3, stride=3, pad=7), id="windows wholly in padding"),
        pytest.param((5, 1, 1, 70), 33, square(1), id="fully connected, five images"),
        pytest.param((1, 9, 9, 40), 40, square(3, pad=1), id="all dimensions cut"),
        pytest.param((1, 9, 9, 8), 8, square(1, stride=2), id="pointwise with stride"),
    ],
)
def test_convolution(check, config, shape, channels, conv) -> None:
    b = builder(config)
    x = b.input(shape)
    check(b.graph(b.conv(x, channels, conv)), config)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("shape", "conv"),
    [
        pytest.param((1, 7, 7, 600), square(3, pad=1), id="many channels"),
        pytest.param((1, 3, 400, 4), square(3, stride=2, pad=1), id="wide, stride 2"),
        pytest.param((1, 24, 24, 5), square(24), id="global average of a large image"),
        pytest.param((1, 1, 300, 5), ConvAttrs(kernel=(1, 300)), id="one line of many taps"),
        pytest.param((1, 12, 12, 9), square(5, pad=4, dilation=(2, 2)), id="dilated"),
        pytest.param((1, 9, 9, 9), ConvAttrs(kernel=(7, 3), pads=(0, 1, 3, 2)), id="tall"),
        pytest.param((1, 9, 9, 9), square(2, stride=3), id="stride beyond the kernel"),
        pytest.param((3, 6, 6, 20), square(3, stride=2, pad=1), id="three images"),
    ],
)
def test_depthwise(check, config, shape, conv) -> None:
    b = builder(config)
    x = b.input(shape)
    check(b.graph(b.depthwise(x, conv)), config)


def test_depthwise_without_windows(check) -> None:
    config = AccelConfig(name="no window", window=False)
    b = builder(config)
    lowered = check(b.graph(b.depthwise(b.input((1, 9, 9, 40)), square(3, pad=1))), config)
    assert not any(i.window for i in lowered.program.instructions if isinstance(i, Gemm))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_maximum_pools(check, config) -> None:
    b = builder(config)
    x = b.input((1, 13, 11, 21))
    pools = [
        b.maxpool(x, square(3, stride=2, pad=1, pad_value=-128)),
        b.maxpool(x, ConvAttrs(kernel=(5, 2), pads=(6, 0, 2, 3), pad_value=-128), table=True),
        b.maxpool(x, ConvAttrs(kernel=(2, 3), dilation=(3, 2), pad_value=-128)),
    ]
    check(b.graph(*pools), config)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("shape", "conv"),
    [
        pytest.param((1, 24, 24, 5), ConvAttrs(kernel=(24, 24), pad_value=-128), id="global"),
        pytest.param((1, 1, 700, 3), ConvAttrs(kernel=(1, 700), pad_value=-128), id="one line"),
        pytest.param(
            (1, 40, 40, 3),
            ConvAttrs(kernel=(30, 25), stride=(3, 2), pads=(3, 0, 9, 30), pad_value=-128),
            id="stride and pads",
        ),
        pytest.param(
            (2, 70, 9, 3),
            ConvAttrs(kernel=(33, 2), dilation=(2, 3), pad_value=-128),
            id="dilated",
        ),
    ],
)
def test_pools_larger_than_vin(check, config, shape, conv) -> None:
    b = builder(config)
    x = b.input(shape)
    lowered = check(b.graph(b.maxpool(x, conv, table=True)), config)
    assert [layer.op for layer in lowered.program.layers] == ["int.maxpool"]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_rows_to_rows(check, config) -> None:
    b = builder(config)
    x = b.input((3, 5, 7, 37))
    y = b.input((3, 5, 7, 37))
    values = [b.add(x, y), b.add(x, x, table=True), b.scale(x), b.lookup(y)]
    values.append(b.add(x, b.constant("addend", b.int8(1, 1, 1, 37))))
    values.append(b.add(y, b.constant("addend", b.int8(3, 5, 7, 37))))
    values.append(b.resize(x, (2, 3)))
    check(b.graph(*values), config)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_rows_wider_than_every_scratchpad(check, config) -> None:
    b = builder(config)
    x, y = b.input((1, 2, 1, 700)), b.input((1, 2, 1, 700))
    values = [b.add(x, y), b.scale(x), b.lookup(y), b.resize(x, (1, 2)), b.concat(x, y)]
    check(b.graph(*values), config)


def test_one_pixel_computed_at_run_time_is_added_everywhere(check) -> None:
    config = SMALL
    b = builder(config)
    x = b.input((1, 4, 5, 9))
    mean = b.depthwise(x, ConvAttrs(kernel=(4, 5)))
    check(b.graph(b.add(x, mean)), config)


def test_a_pixel_of_one_image_can_not_serve_a_batch() -> None:
    b = builder(PRESETS["2x16x16"])
    graph = b.graph(b.add(b.input((2, 4, 5, 9)), b.input((1, 1, 1, 9))))
    with pytest.raises(UnsupportedOpError, match="add0: adding one image's x1 to a batch"):
        lower(graph, b.config)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("channels", [(16, 32, 5), (3, 9, 1, 40), (8, 8, 8)])
def test_concat(check, config, channels) -> None:
    b = builder(config)
    inputs = [b.input((3, 5, 6, c)) for c in channels]
    check(b.graph(b.concat(*inputs)), config)


def test_concat_of_one_value_twice(check) -> None:
    b = builder(SMALL)
    x = b.input((1, 3, 3, 5))
    check(b.graph(b.concat(x, x)), SMALL)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("last", [16, 5])
def test_concat_without_requantization_is_computed_in_place(check, config, last) -> None:
    b = builder(config)
    x = b.input((3, 6, 5, 9))
    conv = square(3, pad=1)
    parts = [
        b.conv(x, 32, conv),
        b.depthwise(b.conv(x, 16, square(1)), conv),
        b.conv(x, last, conv),
    ]
    params = [
        b.constant(role, np.full(48 + last, value, np.int32))
        for role, value in (("bias", -3), ("mult", 1 << 6), ("shift", 6))
    ]
    joined = b.emit("int.concat", (*parts, *params), (3, 6, 5, 48 + last), post=Post(zero=3))
    # readers of a slice, of the whole, and of both
    used = b.add(b.conv(parts[1], 48 + last, conv), joined)
    lowered = check(b.graph(b.maxpool(parts[0], square(2)), used), config)
    layers = {layer.name: layer for layer in lowered.program.layers}
    assert layers[joined].dram_bytes == 0
    assert layers[joined].last == layers[joined].first - 1


def test_concat_in_place_only_where_it_is_safe(check) -> None:
    """Inputs of the region, its outputs, values joined twice and inner concatenations move."""
    config = SMALL
    b = builder(config)
    x = b.input((1, 4, 4, 8))
    y, z = b.conv(x, 8, square(1)), b.conv(x, 8, square(1))

    def join(*values: str) -> str:
        channels = 8 * len(values)
        params = [
            b.constant(role, np.full(channels, value, np.int32))
            for role, value in (("bias", 0), ("mult", 1), ("shift", 0))
        ]
        return b.emit("int.concat", (*values, *params), (1, 4, 4, channels), post=Post())

    inner = join(y, x)
    twice = join(z, z)
    outer = b.emit(
        "int.concat",
        (inner, twice, *b.requantization(32, 1)),
        (1, 4, 4, 32),
        post=Post(),
    )
    again = join(y, z)
    check(b.graph(outer, again, y, inner), config)


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
def test_residual_blocks(check, config) -> None:
    b = builder(config)
    x = b.input((2, 10, 9, 24))
    y = b.conv(x, 24, square(3, pad=1), residual=True, table=True)
    z = b.depthwise(y, square(3, pad=1), residual=True)
    check(b.graph(y, z), config)


def test_first_layers_read_patches(check) -> None:
    config = PRESETS["1x16x16"]
    b = builder(config)
    x = b.input((1, 30, 30, 3))
    first = b.conv(x, 32, square(7, stride=2, pad=3, pad_value=-9))
    second = b.depthwise(x, square(3))
    graph = b.graph(first, second)
    lowered = check(graph, config)
    regions = [region.name for region in lowered.program.inputs]
    assert regions == ["x0", f"x0@{first}"]
    assert lowered.packings[f"x0@{first}"].kind == "patch"
    plain = check(graph, config, options=LowerOptions(patches=False))
    assert [region.name for region in plain.program.inputs] == ["x0"]
    # 147 bytes of a window fill 10 rows where 49 taps would read 49 rows of 3 bytes

    def steps(region):
        gemms = [i for i in region.program.instructions if isinstance(i, Gemm) and not i.window]
        return max(i.n_k0 * i.n_k1 * i.n_k2 for i in gemms)

    assert steps(lowered) <= 10 < steps(plain)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [(8, 8), (10, 4), (5, 3)])
def test_first_layers_read_patches_of_some_lines(check, config, stride, kernel) -> None:
    b = builder(config)
    conv = ConvAttrs(
        kernel=kernel,
        stride=(stride, stride),
        pads=(3, 3, 4, 4),
        dilation=(1, 2),
        pad_value=-5,
    )
    lowered = check(b.graph(b.conv(b.input((2, 20, 18, 1)), 16, conv)), config)
    assert {p.kind for p in lowered.packings.values()} == {"nhwc", "patch"}


def test_tall_kernels_split_their_patches() -> None:
    """Patches of two lines fill a row of 16 and move a quarter of what whole windows do."""
    config = PRESETS["1x16x16"]
    b = builder(config)
    conv = ConvAttrs(kernel=(8, 8), pads=(3, 3, 4, 4))
    y = b.conv(b.input((1, 49, 40, 1)), 16, conv)
    packing = lower(b.graph(y), config).packings[f"x0@{y}"]
    assert packing.patch_lines == 2
    assert packing.nbytes(config) == 55 * 40 * 16


def test_strided_pointwise_convolutions_load_only_their_pixels(check) -> None:
    config = PRESETS["1x16x16"]
    b = builder(config)
    x = b.input((1, 16, 16, 64))
    lowered = check(b.graph(b.conv(x, 64, square(1, stride=2))), config)
    rows = sum(
        i.n0 * i.n1 * i.n2
        for i in lowered.program.instructions
        if isinstance(i, Load) and i.buffer == 0
    )
    assert rows == 8 * 8 * 4


def test_tables_and_adds_need_their_hardware() -> None:
    rich, poor = PRESETS["1x4x4"], AccelConfig(name="poor", add=False, lut=False)
    b = builder(rich)
    x = b.input((1, 2, 2, 3))
    added, looked = b.graph(b.add(x, x)), b.graph(b.lookup(x))
    with pytest.raises(UnsupportedOpError, match="'poor' has no add stage; set add"):
        lower(added, poor)
    with pytest.raises(UnsupportedOpError, match="'poor' has no look-up table; set lut"):
        lower(looked.with_(nodes=looked.nodes[1:], outputs=looked.nodes[1].outputs), poor)


def test_multipliers_wider_than_the_hardware_are_refused() -> None:
    b = builder(PRESETS["1x4x4"])
    graph = b.graph(b.scale(b.input((1, 2, 2, 3))))
    narrow = AccelConfig(name="narrow", mult_bits=12)
    with pytest.raises(UnsupportedOpError, match=r"multipliers must lie in 0 to 4095"):
        lower(graph, narrow)


def test_all_unknown_operators_are_named_at_once() -> None:
    b = builder(SMALL)
    x = b.input((1, 2, 2, 3))
    b.emit("int.scale", (x,), (1, 2, 2, 3), post=Post())
    nodes = tuple(Node(op, op.lower(), (x,), (op,)) for op in ("Relu", "Softmax"))
    graph = b.graph("Softmax").with_(nodes=nodes)
    with pytest.raises(UnsupportedOpError, match=r"Relu \(relu\), Softmax \(softmax\)"):
        lower(graph, SMALL)


def test_a_resize_beyond_out_is_refused() -> None:
    b = builder(SMALL)
    graph = b.graph(b.resize(b.input((1, 1, 1, 4)), (1, 50)))
    with pytest.raises(DoesNotFitError, match="repeated 50 times exceeds half of out's 32 rows"):
        lower(graph, SMALL)
