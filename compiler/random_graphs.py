"""Random small graphs of integer operators, for tests of everything behind the graph."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accelc.compiler.graph import Array, Graph, Node, TensorType
from accelc.compiler.integer import AddStage, ConvAttrs, MatmulAttrs, Post
from accelc.isa.config import AccelConfig

Shape = tuple[int, int, int, int]
_INT8 = np.dtype(np.int8)
#: Scratchpads so small that everything is tiled.
SMALL = AccelConfig(
    name="small",
    block_in=4,
    block_out=4,
    bus_bytes=4,
    vector_lanes=4,
    inp_rows=64,
    wgt_rows=64,
    acc_rows=32,
    vin_rows=64,
    out_rows=32,
    prm_rows=8,
)


@dataclass
class GraphBuilder:
    """Builds a graph with random constants; methods for operators return the new value."""

    config: AccelConfig
    rng: np.random.Generator
    name: str = "random"
    nodes: list[Node] = field(default_factory=list)
    types: dict[str, TensorType] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)

    def graph(self, *outputs: str) -> Graph:
        return Graph(
            name=self.name,
            nodes=tuple(self.nodes),
            types=dict(self.types),
            constants=dict(self.constants),
            inputs=tuple(self.inputs),
            outputs=outputs,
        )

    def shape(self, value: str) -> Shape:
        n, h, w, c = self.types[value].shape
        return n, h, w, c

    def input(self, shape: Shape) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.types[name] = TensorType(shape, _INT8)
        return name

    def constant(self, role: str, array: Array) -> str:
        name = f"{role}{len(self.constants)}"
        self.constants[name] = array
        self.types[name] = TensorType(array.shape, array.dtype)
        return name

    def int8(self, *shape: int) -> Array:
        return self.rng.integers(-128, 128, shape, np.int64).astype(np.int8)

    def requantization(self, channels: int, terms: int) -> tuple[str, str, str]:
        """Bias, multiplier and shift that bring sums of ``terms`` products to int8's range."""
        rng, bits = self.rng, self.config.mult_bits
        mult = rng.integers(1 << (bits - 1), 1 << bits, channels).astype(np.int32)
        # the sum of products of uniform int8 has a deviation near sqrt(terms) * 74^2
        spread = int(np.log2(np.sqrt(terms) * 74 * 74 / 64)) if terms > 1 else 0
        shift = (bits + spread + rng.integers(-1, 2, channels)).astype(np.int32)
        limit = 1000 if terms > 1 else 20
        bias = rng.integers(-limit, limit, channels).astype(np.int32)
        return (
            self.constant("bias", bias),
            self.constant("mult", mult),
            self.constant("shift", shift),
        )

    def post(self, *, add: bool = False, table: bool = False) -> Post:
        rng = self.rng
        low, high = sorted(rng.integers(-128, 128, 2).tolist())
        wide = rng.random() < 0.7
        stage = None
        if add and self.config.add:
            stage = AddStage(
                m1=int(rng.integers(1, 1 << 12)),
                m2=int(rng.integers(-(1 << 12), 1 << 12)),
                offset=int(rng.integers(-(1 << 16), 1 << 16)),
                shift=int(rng.integers(8, 14)),
                zero=int(rng.integers(-20, 20)),
                min=int(rng.integers(-128, -100)),
                max=int(rng.integers(100, 128)),
            )
        return Post(
            zero=int(rng.integers(-128, 128)) if wide else 0,
            inside=bool(rng.integers(2)),
            min=-128 if wide else low,
            max=127 if wide else high,
            add=stage,
            table=table and self.config.lut,
        )

    def emit(self, op: str, inputs: tuple[str, ...], shape: Shape, **attrs: Any) -> str:
        name = f"{op.removeprefix('int.')}{len(self.nodes)}"
        self.types[name] = TensorType(shape, _INT8)
        self.nodes.append(Node(op, name, inputs, (name,), attrs))
        return name

    def conv(
        self,
        x: str,
        channels: int,
        conv: ConvAttrs,
        *,
        residual: bool = False,
        table: bool = False,
    ) -> str:
        n, h, w, c = self.shape(x)
        kh, kw = conv.kernel
        weights = self.constant("w", self.int8(channels, kh, kw, c))
        shape = (n, *conv.output_size(h, w), channels)
        return self._conv(x, weights, shape, conv, kh * kw * c, residual, table, depthwise=False)

    def depthwise(
        self, x: str, conv: ConvAttrs, *, residual: bool = False, table: bool = False
    ) -> str:
        n, h, w, c = self.shape(x)
        kh, kw = conv.kernel
        weights = self.constant("w", self.int8(kh, kw, c))
        shape = (n, *conv.output_size(h, w), c)
        return self._conv(x, weights, shape, conv, kh * kw, residual, table, depthwise=True)

    def _conv(
        self,
        x: str,
        weights: str,
        shape: Shape,
        conv: ConvAttrs,
        terms: int,
        residual: bool,
        table: bool,
        *,
        depthwise: bool,
    ) -> str:
        post = self.post(add=residual, table=table)
        inputs = (x, weights, *self.requantization(shape[3], terms))
        if post.add is not None:
            inputs = (*inputs, self.input(shape))
        if post.table:
            inputs = (*inputs, self.constant("table", self.int8(256)))
        return self.emit("int.conv", inputs, shape, conv=conv, post=post, depthwise=depthwise)

    def matmul(
        self, a: str, outputs: int, matmul: MatmulAttrs, *, b: str = "", table: bool = False
    ) -> str:
        """The product of ``a`` and ``b``, an input of its own if it is not given."""
        m, _, _, k = self.shape(a)
        b = b or self.input((outputs, 1, math.prod(matmul.b_batch), k))
        post = self.post(table=table)
        zeros = matmul.a_zero, matmul.b_zero
        # a zero point widens the sums as numbers of its size would; their mean is taken away
        spread = math.prod(1 + (zero / 74) ** 2 for zero in zeros)
        bias, mult, shift = self.requantization(outputs, math.ceil(k * spread))
        self.constants[bias] -= np.int32(k * math.prod(zeros))
        inputs = (a, b, bias, mult, shift)
        if post.table:
            inputs = (*inputs, self.constant("table", self.int8(256)))
        shape = (m, 1, math.prod(matmul.batch), outputs)
        return self.emit("int.matmul", inputs, shape, matmul=matmul, post=post)

    def maxpool(self, x: str, conv: ConvAttrs, *, table: bool = False) -> str:
        n, h, w, c = self.shape(x)
        post = self.post(table=table)
        inputs = (x, self.constant("table", self.int8(256))) if post.table else (x,)
        shape = (n, *conv.output_size(h, w), c)
        return self.emit("int.maxpool", inputs, shape, conv=conv, post=post)

    def add(self, a: str, b: str, *, table: bool = False) -> str:
        post = self.post(add=True, table=table)
        inputs = (a, b, self.constant("table", self.int8(256))) if post.table else (a, b)
        return self.emit("int.add", inputs, self.shape(a), post=post)

    def scale(self, x: str) -> str:
        shape = self.shape(x)
        inputs = (x, *self.requantization(shape[3], 1))
        return self.emit("int.scale", inputs, shape, post=self.post())

    def lookup(self, x: str) -> str:
        inputs = (x, self.constant("table", self.int8(256)))
        return self.emit("int.lookup", inputs, self.shape(x), post=Post(table=True))

    def concat(self, *values: str) -> str:
        n, h, w, _ = self.shape(values[0])
        channels = sum(self.shape(value)[3] for value in values)
        inputs = (*values, *self.requantization(channels, 1))
        return self.emit("int.concat", inputs, (n, h, w, channels), post=self.post())

    def resize(self, x: str, factors: tuple[int, int]) -> str:
        n, h, w, c = self.shape(x)
        shape = (n, h * factors[0], w * factors[1], c)
        return self.emit("int.resize", (x,), shape, factors=factors)


def random_window(
    rng: np.random.Generator, h: int, w: int, *, pad_value: int | None = None
) -> ConvAttrs:
    """A window with odd sizes, strides, pads and dilations that leaves at least one output."""
    while True:
        kernel = int(rng.integers(1, 5)), int(rng.integers(1, 5))
        conv = ConvAttrs(
            kernel=kernel,
            stride=(int(rng.integers(1, 4)), int(rng.integers(1, 4))),
            pads=(*rng.integers(0, 4, 4).tolist(),),
            dilation=(int(rng.integers(1, 3)), int(rng.integers(1, 3))),
            pad_value=int(rng.integers(-128, 128)) if pad_value is None else pad_value,
        )
        if min(conv.output_size(h, w)) >= 1:
            return conv


def random_matmul(rng: np.random.Generator, heads: int) -> MatmulAttrs:
    """A product whose first operand has ``heads`` heads, one or several batch axes, any zeros."""
    zeros = rng.choice([0, 0, 0, -128, 127, int(rng.integers(-127, 127))], 2).tolist()
    batches: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((heads,), (heads,)),
        ((heads,), (1,)),
        ((heads, 1), (1, int(rng.integers(1, 4)))),
    ]
    a_batch, b_batch = batches[int(rng.integers(len(batches)))]
    return MatmulAttrs(a_batch=a_batch, b_batch=b_batch, a_zero=zeros[0], b_zero=zeros[1])


def random_graph(seed: int, config: AccelConfig, *, nodes: int = 4) -> Graph:
    """A connected random graph of about ``nodes`` integer operators on small images."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(config, rng, name=f"random{seed}")
    n = int(rng.integers(1, config.batch * 2 + 1))
    channels = int(rng.choice([1, 3, config.block_in, 2 * config.block_out + 1]))
    size = int(rng.integers(1, 10)), int(rng.integers(1, 10))
    values = [builder.input((n, *size, channels))]
    while len(builder.nodes) < nodes:
        x = values[-1] if rng.random() < 0.7 else str(rng.choice(values))
        values.append(_random_node(builder, rng, x, values))
    used = {name for node in builder.nodes for name in node.inputs}
    ends = [node.outputs[0] for node in builder.nodes if node.outputs[0] not in used]
    return builder.graph(*ends)


def _random_node(builder: GraphBuilder, rng: np.random.Generator, x: str, values: list[str]) -> str:
    n, h, w, c = builder.shape(x)
    config = builder.config
    table = rng.random() < 0.3 and config.lut
    kind = rng.choice(
        ["conv", "depthwise", "maxpool", "add", "concat", "fc", "scale", "lookup", "resize"],
        p=[0.3, 0.15, 0.1, 0.12, 0.1, 0.08, 0.05, 0.05, 0.05],
    )
    if kind == "conv" and h == 1 and rng.random() < 0.8:
        kind = "matmul"
    same = [v for v in values if builder.shape(v) == (n, h, w, c)]
    channels = int(rng.integers(1, 3 * config.block_out))
    match kind:
        case "depthwise":
            residual = rng.random() < 0.3
            return builder.depthwise(x, random_window(rng, h, w), residual=residual, table=table)
        case "maxpool":
            return builder.maxpool(x, random_window(rng, h, w, pad_value=-128), table=table)
        case "add" if config.add:
            if rng.random() < 0.3:
                other = builder.constant("addend", builder.int8(1, 1, 1, c))
            else:
                other = str(rng.choice(same))
            return builder.add(x, other, table=table)
        case "concat":
            others = [v for v in values if builder.shape(v)[:3] == (n, h, w)]
            return builder.concat(x, *rng.choice(others, int(rng.integers(1, 3))).tolist())
        case "fc":
            return builder.conv(x, channels, ConvAttrs(kernel=(h, w)), table=table)
        case "matmul":
            return builder.matmul(x, channels, random_matmul(rng, w), table=table)
        case "scale":
            return builder.scale(x)
        case "lookup" if config.lut:
            return builder.lookup(x)
        case "resize" if h * w <= 64:
            return builder.resize(x, (int(rng.integers(1, 4)), int(rng.integers(1, 4))))
        case _:
            residual = rng.random() < 0.3
            conv = random_window(rng, h, w)
            return builder.conv(x, channels, conv, residual=residual, table=table)
