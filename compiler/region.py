"""What the lowerings of a region share: views, constants, parameters, steps so far."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accelc.compiler.footprint import Space
from accelc.compiler.graph import Array, Graph, Node
from accelc.compiler.integer import Post
from accelc.compiler.layout import Packing, Part, View, ceil_div
from accelc.compiler.memory_plan import ConstantPool
from accelc.compiler.task import Block, Step
from accelc.isa.config import AccelConfig
from accelc.isa.errors import UnsupportedOpError
from accelc.isa.semantics import PRM_DTYPE
from accelc.isa.spec import Alu, Load, Source, Store


def ranges(size: int, tile: int) -> Iterator[tuple[int, int]]:
    """Half-open ranges of at most ``tile`` that cover ``size``."""
    for start in range(0, size, tile):
        yield start, min(size, start + tile)


@dataclass
class RegionBuilder:
    """State of one region's lowering; ``layer`` is the node being lowered."""

    graph: Graph
    config: AccelConfig
    views: dict[str, View]
    constants: ConstantPool
    #: What nodes read in a layout of their own, by node: where it is, and patches or tiles.
    own: Mapping[str, tuple[View, Packing]] = field(default_factory=dict)
    layer: int = 0
    steps: list[Step] = field(default_factory=list)
    last_table: Block | None = None

    def shape(self, name: str) -> tuple[int, int, int, int]:
        n, h, w, c = self.graph.types[name].shape
        return n, h, w, c

    def constant(self, name: str) -> Array:
        return self.graph.constants[name]

    def step(
        self, instruction: Any, *rows: tuple[str, Block], also: tuple[Block, ...] = ()
    ) -> None:
        self.steps.append(Step(self.layer, instruction, rows, also))

    def vec_blocks(self, channels: int) -> int:
        return ceil_div(channels, self.config.block_out)

    # parameters and tables

    def parameters(self, node: Node, names: tuple[str, str, str], offset: int = 0) -> "Parameters":
        """Parameter rows of ``bias`` plus ``offset``, ``mult``, ``shift``, each ``(channels,)``."""
        bias, mult, shift = (self.constant(name).reshape(-1) for name in names)
        blocks = self.vec_blocks(bias.size)
        limit = 1 << self.config.mult_bits
        if mult.size and (int(mult.max()) >= limit or int(mult.min()) < 0):
            raise UnsupportedOpError(
                f"{node.name}: multipliers must lie in 0 to {limit - 1} (mult_bits = "
                f"{self.config.mult_bits}), not {int(mult.min())} to {int(mult.max())}; "
                "quantize for this configuration"
            )
        rows = np.zeros(blocks * self.config.block_out, PRM_DTYPE)
        rows["bias"][: bias.size] = (bias.astype(np.int64) + offset).astype(np.int32)
        scale = mult.astype(np.int64) | shift.astype(np.int64) << 24
        rows["scale"][: bias.size] = scale.astype(np.uint32)
        address = self.constants.add(f"{node.name}.params", rows.tobytes())
        return Parameters(self, address, blocks)

    def table(self, node: Node, post: Post) -> tuple[Block, ...]:
        """The block of the look-up table that ``post`` asks for, if any."""
        if not post.table:
            return ()
        if not self.config.lut:
            raise UnsupportedOpError(
                f"{node.name}: configuration {self.config.name!r} has no look-up table; set lut"
            )
        data = self.constant(node.inputs[-1]).astype(np.int8).tobytes()
        address = self.constants.add(f"{node.name}.table", data)
        load = Load(buffer=Space.LUT, dram=address)
        # a table stays until a layer needs another one
        if self.last_table is None or self.last_table.loads != (load,):
            self.last_table = Block(Space.LUT, 1, (load,))
        return (self.last_table,)

    def post_fields(self, node: Node, post: Post) -> dict[str, int]:
        """Fields of ALU that ``post`` sets, the add stage included."""
        fields: dict[str, int] = {
            "a_zero": post.zero,
            "a_inside": int(post.inside),
            "a_min": post.min,
            "a_max": post.max,
            "lut": int(post.table),
        }
        if post.add is not None:
            if not self.config.add:
                raise UnsupportedOpError(
                    f"{node.name}: configuration {self.config.name!r} has no add stage; set add"
                )
            fields |= {
                "add": 1,
                "m1": post.add.m1,
                "m2": post.add.m2,
                "offset": post.add.offset,
                "b_shift": post.add.shift,
                "b_zero": post.add.zero,
                "b_min": post.add.min,
                "b_max": post.add.max,
            }
        return fields

    # rows of activations

    def load_rows(
        self,
        view: View,
        group: int,
        lines: tuple[int, int],
        columns: tuple[int, int],
        blocks: tuple[int, int],
    ) -> Block:
        """A box of ``view`` in ``vin``, ``[line][pixel][block]``; blocks are rows of ``out``."""
        box = _Box(view, group, lines, columns, blocks, self.config.vec_row_bytes)
        load = Load(buffer=Space.VIN, row=0, **box.transfer())
        return Block(Space.VIN, box.rows, (load,), (box.part,))

    def store_rows(
        self,
        view: View,
        out: Block,
        group: int,
        lines: tuple[int, int],
        columns: tuple[int, int],
        blocks: tuple[int, int],
    ) -> None:
        """Store ``out``, ``[line][pixel][block]``, to a box of ``view``."""
        box = _Box(view, group, lines, columns, blocks, self.config.vec_row_bytes)
        instruction = Store(row=0, **box.transfer())
        self.steps.append(Step(self.layer, instruction, (("row", out),), stores=box.part))


@dataclass(frozen=True)
class _Box:
    view: View
    group: int
    lines: tuple[int, int]
    columns: tuple[int, int]
    blocks: tuple[int, int]
    row_bytes: int

    @property
    def _counts(self) -> tuple[int, int, int]:
        return (
            self.lines[1] - self.lines[0],
            self.columns[1] - self.columns[0],
            self.blocks[1] - self.blocks[0],
        )

    @property
    def rows(self) -> int:
        lines, columns, blocks = self._counts
        return lines * columns * blocks

    @property
    def part(self) -> Part:
        base = self.group * self.view.h
        return Part(
            self.view, (base + self.lines[0], base + self.lines[1]), self.columns, self.blocks
        )

    def transfer(self) -> dict[str, int]:
        """Address, counts and strides of the LOAD or STORE, in the fewest and longest runs."""
        view = self.view
        n2, n1, n0 = self._counts
        stride1, stride2 = view.pixel_bytes, view.line_bytes
        if n0 * self.row_bytes == view.pixel_bytes:
            n0, n1 = n0 * n1, 1
            if n0 * self.row_bytes == view.line_bytes:
                n0, n2 = n0 * n2, 1
        elif n1 == view.w:
            n1, n2 = n1 * n2, 1
        address = view.at(self.group, self.lines[0], self.columns[0])
        return {
            "dram": address + self.blocks[0] * self.row_bytes,
            "n0": n0,
            "n1": n1,
            "n2": n2,
            "stride1": stride1 if n1 > 1 else 0,
            "stride2": stride2 if n2 > 1 else 0,
        }


@dataclass
class Parameters:
    """Parameter rows of one layer: all at once where they fit, else the blocks a tile needs."""

    builder: RegionBuilder
    address: int
    blocks: int
    _whole: Block | None = None

    def rows(self, blocks: tuple[int, int]) -> tuple[Block, int]:
        """The block that holds the rows of output blocks ``blocks``, and where they start."""
        config = self.builder.config
        if self.blocks * 2 <= config.prm_rows:
            if self._whole is None:
                self._whole = self._load(0, self.blocks)
            return self._whole, blocks[0]
        return self._load(*blocks), 0

    def _load(self, start: int, stop: int) -> Block:
        address = self.address + start * self.builder.config.prm_row_bytes
        load = Load(buffer=Space.PRM, dram=address, n0=stop - start)
        return Block(Space.PRM, stop - start, (load,))


def requantize(
    builder: RegionBuilder,
    params: Parameters,
    fields: Mapping[str, int],
    *,
    area: tuple[int, int],
    depth: tuple[int, int],
    chunk: tuple[int, int],
    acc: Block,
    out: Block,
    addend: Block | None = None,
    table: tuple[Block, ...] = (),
) -> None:
    """Append the ALU that turns sums ``[block][line][pixel]`` of ``chunk`` into rows of ``out``.

    ``out`` and ``addend`` hold output blocks ``depth`` of ``area`` lines and columns as
    ``[line][pixel][block]``.
    """
    lines, columns = area
    blocks = depth[1] - depth[0]
    rows, first = params.rows(chunk)
    places = [("src", acc), ("prm", rows), ("dst", out)]
    second: dict[str, int] = {}
    if addend is not None:
        second = {
            "vin": chunk[0] - depth[0],
            "vin_0": 1,
            "vin_1": columns * blocks,
            "vin_2": blocks,
        }
        places.append(("vin", addend))
    instruction = Alu(
        source=Source.ACC,
        scale=1,
        n0=chunk[1] - chunk[0],
        n1=lines,
        n2=columns,
        src_0=lines * columns,
        src_1=columns,
        src_2=1,
        prm=first,
        prm_0=1,
        dst=chunk[0] - depth[0],
        dst_0=1,
        dst_1=columns * blocks,
        dst_2=blocks,
        **second,
        **fields,
    )
    builder.step(instruction, *places, also=table)
