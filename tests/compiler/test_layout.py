import numpy as np
import pytest

from accelc.compiler.integer import ConvAttrs
from accelc.compiler.layout import (
    GATHER_CONSTANT,
    Packing,
    gather_table,
    pack,
    patches,
    unpack,
)
from accelc.compiler.lower_conv import weight_tiles
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.errors import InputError

CONFIGS = list(PRESETS.values())


def tensor(seed: int, *shape: int) -> np.ndarray:
    print(f"seed {seed}")
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int64).astype(np.int8)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 2, 5, 7), (2, 3, 4, 33)])
def test_every_byte_lies_where_the_layout_says(
    config: AccelConfig, shape: tuple[int, int, int, int]
) -> None:
    array = tensor(1, *shape)
    packing = Packing(value="x", shape=shape)
    data = np.frombuffer(pack(array, packing, config), np.int8)
    _, h, w, c = shape
    blocks = -(-c // config.block_out) * config.block_out // config.block_in
    for (n, y, x, channel), value in np.ndenumerate(array):
        row = ((n // config.batch * h + y) * w + x) * blocks + channel // config.block_in
        offset = (row * config.batch + n % config.batch) * config.block_in
        assert data[offset + channel % config.block_in] == value
    assert data.size == packing.nbytes(config)
    np.testing.assert_array_equal(unpack(data.tobytes(), packing, config), array)


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_patches_hold_the_windows_of_a_convolution(lines: int) -> None:
    conv = ConvAttrs(kernel=(3, 2), stride=(2, 1), pads=(1, 0, 2, 3), dilation=(1, 2), pad_value=-7)
    array = tensor(2, 1, 6, 5, 3)
    packing = Packing(value="x", shape=(1, 6, 5, 3), kind="patch", conv=conv, patch_lines=lines)
    windows = patches(array, packing)
    walk = packing.patch_conv()
    oh, ow = conv.output_size(6, 5)
    assert walk.output_size(*windows.shape[1:3]) == (oh, ow)
    for y in range(oh):
        for x in range(ow):
            for ky, kx in np.ndindex(3, 2):
                iy, ix = y * 2 - 1 + ky, x + kx * 2
                inside = 0 <= iy < 6 and 0 <= ix < 5
                expected = array[0, iy, ix] if inside else np.full(3, -7)
                line = y * walk.stride[0] + ky // lines * walk.dilation[0]
                place = (ky % lines * 2 + kx) * 3
                np.testing.assert_array_equal(windows[0, line, x, place : place + 3], expected)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_tiles_are_rows_of_weights(config: AccelConfig) -> None:
    """What the host packs at run time is what constant weights are packed to."""
    array = tensor(3, 19, 1, 3, 37)
    packing = Packing(value="w", shape=array.shape, kind="tiles")
    outputs, depth = (-(-19 // config.block_out), -(-37 // config.block_in))
    data = np.frombuffer(pack(array, packing, config), np.int8)
    tiles = data.reshape(outputs, 3, depth, config.block_out, config.block_in)
    # weights are ordered by taps within a block of channels
    expected = weight_tiles(array, config)[:, :, 0].transpose(0, 2, 1, 3, 4)
    np.testing.assert_array_equal(tiles, expected)


def test_wrong_arrays_are_refused() -> None:
    config = CONFIGS[0]
    packing = Packing(value="x", shape=(1, 2, 2, 3))
    with pytest.raises(InputError, match=r"x must be int8 \(1, 2, 2, 3\), not int8 \(1, 2, 2, 4\)"):
        pack(np.zeros((1, 2, 2, 4), np.int8), packing, config)
    with pytest.raises(InputError, match="not uint8"):
        pack(np.zeros((1, 2, 2, 3), np.uint8), packing, config)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="region has 64 bytes, not 63"):
        unpack(bytes(63), packing, config)
    patch = Packing(
        value="x", shape=(1, 2, 2, 3), kind="patch", conv=ConvAttrs(kernel=(2, 2)), patch_lines=2
    )
    for packing in (patch, Packing(value="x", shape=(1, 2, 2, 3), kind="tiles")):
        with pytest.raises(InputError, match="only nhwc regions can be unpacked"):
            unpack(bytes(64), packing, config)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("lines", [-1, 0, 1, 3])
def test_the_gather_table_packs_as_pack_does(config: AccelConfig, lines: int) -> None:
    conv = ConvAttrs(kernel=(3, 2), stride=(2, 1), pads=(1, 0, 2, 3), dilation=(1, 2), pad_value=-7)
    array = tensor(5, 1, 6, 5, 3)
    packing = Packing(value="x", shape=array.shape)
    if lines < 0:
        packing = Packing(value="x", shape=array.shape, kind="tiles")
    elif lines:
        packing = Packing(value="x", shape=array.shape, kind="patch", conv=conv, patch_lines=lines)
    table = gather_table(packing, config)
    constant = table >= GATHER_CONSTANT
    packed = array.reshape(-1)[np.where(constant, 0, table)].view(np.uint8)
    packed[constant] = table[constant] & 0xFF
    assert packed.tobytes() == pack(array, packing, config)
