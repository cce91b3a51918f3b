"""Products of activations with tiles of weights: GEMM over tiles, then requantize and store."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from accelc.compiler.footprint import Space
from accelc.compiler.graph import Node
from accelc.compiler.layout import View
from accelc.compiler.region import Parameters, RegionBuilder, ranges, requantize
from accelc.compiler.task import Block
from accelc.compiler.tile import ConvTile
from accelc.compiler.tile_cost import ConvShape
from accelc.compiler.window import Extent, Window, load_window
from accelc.isa.spec import Gemm


@dataclass(frozen=True)
class Reduction:
    """One step of the reduction: input blocks and taps that are summed from one loaded window."""

    blocks: tuple[int, int]
    taps: Extent


@dataclass(frozen=True)
class Output:
    """One tile of the output plane."""

    group: int
    area: Extent

    @property
    def lines(self) -> tuple[int, int]:
        return self.area.y, self.area.y + self.area.n_y

    @property
    def columns(self) -> tuple[int, int]:
        return self.area.x, self.area.x + self.area.n_x


def outputs(groups: int, height: int, width: int, lines: int, columns: int) -> Iterator[Output]:
    """All tiles of the output planes, top to bottom."""
    for group in range(groups):
        for y0, y1 in ranges(height, lines):
            for x0, x1 in ranges(width, columns):
                yield Output(group, Extent(y=y0, x=x0, n_y=y1 - y0, n_x=x1 - x0))


def tap_ranges(kernel: tuple[int, int], taps_y: int, taps_x: int) -> Iterator[Extent]:
    """All parts of a kernel of at most ``taps_y`` by ``taps_x`` taps."""
    for y0, y1 in ranges(kernel[0], taps_y):
        for x0, x1 in ranges(kernel[1], taps_x):
            yield Extent(y=y0, x=x0, n_y=y1 - y0, n_x=x1 - x0)


@dataclass(kw_only=True)
class PlaneLowering:
    """What every convolution does with a tile of its output, whatever computes the sums."""

    builder: RegionBuilder
    node: Node
    shape: ConvShape
    x: View
    y: View
    params: Parameters
    residual: View | None = None

    def __post_init__(self) -> None:
        self.table = self.builder.table(self.node, self.node.attrs["post"])
        self.fields = self.builder.post_fields(self.node, self.node.attrs["post"])

    def addend(self, plane: Output, depth: tuple[int, int]) -> Block | None:
        """The residual's rows of a tile, if there is a residual."""
        if self.residual is None:
            return None
        return self.builder.load_rows(
            self.residual, plane.group, plane.lines, plane.columns, depth
        )

    def requantize(
        self,
        area: Extent,
        depth: tuple[int, int],
        chunk: tuple[int, int],
        acc: Block,
        out: Block,
        addend: Block | None,
    ) -> None:
        """The sums ``acc`` of output blocks ``chunk``, of the tile's ``depth``, to ``out``."""
        requantize(
            self.builder,
            self.params,
            self.fields,
            area=(area.n_y, area.n_x),
            depth=depth,
            chunk=chunk,
            acc=acc,
            out=out,
            addend=addend,
            table=self.table,
        )


@dataclass(kw_only=True)
class Dense(PlaneLowering):
    """Lowering of a convolution of ``x`` to ``y``, or of what one column of ``x`` has to do with
    one of ``y``: ``shape`` counts from ``x_column`` and ``y_column`` on."""

    tile: ConvTile
    x_column: int = 0
    y_column: int = 0

    def run(self) -> None:
        oh, ow = self.shape.output_size
        self.reductions = [
            Reduction(blocks, taps)
            for blocks in ranges(self.shape.blocks_in, self.tile.blocks_in)
            for taps in tap_ranges(self.shape.conv.kernel, self.tile.taps_y, self.tile.taps_x)
        ]
        planes = list(outputs(self.shape.groups, oh, ow, self.tile.lines, self.tile.columns))
        depths = list(ranges(self.shape.blocks_out, self.tile.blocks_out))
        if self.tile.keep_weights:
            for depth in depths:
                self.kept_weights: dict[tuple[int, int], Block] = {}
                for plane in planes:
                    self.kept_windows: dict[int, Window] = {}
                    self.tile_steps(plane, depth)
        else:
            for plane in planes:
                self.kept_windows = {}
                for depth in depths:
                    self.kept_weights = {}
                    if not self.tile.keep_input:
                        self.kept_windows = {}
                    self.tile_steps(plane, depth)

    def tile_steps(self, plane: Output, depth: tuple[int, int]) -> None:
        """Compute one tile of outputs and store it."""
        area = plane.area
        rows = area.n_y * area.n_x
        blocks = depth[1] - depth[0]
        chunks = [(depth[0] + a, depth[0] + b) for a, b in ranges(blocks, self.tile.chunk)]
        sums = [Block(Space.ACC, (b - a) * rows) for a, b in chunks]
        out = Block(Space.OUT, rows * blocks)
        addend = self.addend(plane, depth)
        for index, reduction in enumerate(self.reductions):
            window = self.window(plane, index, reduction)
            for chunk, acc in zip(chunks, sums, strict=True):
                self.gemm(area, index, reduction, window, chunk, acc)
                if index + 1 == len(self.reductions):
                    self.requantize(area, depth, chunk, acc, out, addend)
        first, last = plane.columns
        columns = self.y_column + first, self.y_column + last
        self.builder.store_rows(self.y, out, plane.group, plane.lines, columns, depth)

    def window(self, plane: Output, index: int, reduction: Reduction) -> Window:
        if index not in self.kept_windows:
            self.kept_windows[index] = load_window(
                self.x,
                Space.INP,
                self.builder.config,
                group=plane.group,
                outputs=replace(plane.area, x=self.x_column + plane.area.x),
                taps=reduction.taps,
                conv=self.shape.conv,
                blocks=reduction.blocks,
            )
        return self.kept_windows[index]

    def load_weights(self, reduction: Reduction, chunk: tuple[int, int]) -> Block:
        """The tiles ``[o][block][tap]`` of output blocks ``chunk`` and the taps of a reduction."""
        raise NotImplementedError

    def weight_block(self, index: int, reduction: Reduction, chunk: tuple[int, int]) -> Block:
        if (index, chunk[0]) not in self.kept_weights:
            self.kept_weights[index, chunk[0]] = self.load_weights(reduction, chunk)
        return self.kept_weights[index, chunk[0]]

    def gemm(
        self,
        area: Extent,
        index: int,
        reduction: Reduction,
        window: Window,
        chunk: tuple[int, int],
        acc: Block,
    ) -> None:
        taps = reduction.taps
        depth = reduction.blocks[1] - reduction.blocks[0]
        per_block = taps.n_y * taps.n_x
        self.multiply(
            area,
            chunk,
            acc,
            window.block,
            self.weight_block(index, reduction, chunk),
            accumulate=int(index > 0),
            n_k0=depth,
            n_k1=taps.n_y,
            n_k2=taps.n_x,
            inp_k0=1,
            inp_k1=window.tap_y,
            inp_k2=window.tap_x,
            inp_y=window.output_y,
            inp_x=window.output_x,
            wgt_o=depth * per_block,
            wgt_k0=per_block,
            wgt_k1=taps.n_x,
            wgt_k2=1,
        )

    def multiply(
        self,
        area: Extent,
        chunk: tuple[int, int],
        acc: Block,
        rows: Block,
        tiles: Block,
        **fields: int,
    ) -> None:
        """A GEMM of ``rows`` and ``tiles`` into the accumulators of output blocks ``chunk``."""
        instruction = Gemm(
            **{"inp": 0, **fields},
            wgt=0,
            acc=0,
            n_o=chunk[1] - chunk[0],
            n_y=area.n_y,
            n_x=area.n_x,
            acc_o=area.n_y * area.n_x,
            acc_y=area.n_x,
            acc_x=1,
        )
        self.builder.step(instruction, ("inp", rows), ("wgt", tiles), ("acc", acc))
