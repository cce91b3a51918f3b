"""Split maximum pools whose windows do not fit ``vin`` into chains of smaller ones."""

from dataclasses import replace

from accelc.compiler.graph import Graph, Node, TensorType
from accelc.compiler.integer import ConvAttrs, Post
from accelc.compiler.layout import ceil_div
from accelc.compiler.tile_cost import ConvShape
from accelc.compiler.tile_plane import choose_pool
from accelc.isa.config import AccelConfig


def split_pools(graph: Graph, config: AccelConfig) -> tuple[Graph, tuple[int, ...]]:
    """Replace pools that do not fit; also, per new node, the number of the node it came from.

    ::

        maxpool kh x kw        ->  maxpool 1 x kw, maxpool kh x 1
        maxpool 1 x k          ->  maxpool 1 x ceil(k/2) stride 1, maxpool 1 x 2 dilation floor(k/2)

    A maximum may count an element twice, so halves that overlap are no harm.
    """
    nodes: list[Node] = []
    owners: list[int] = []
    types = dict(graph.types)
    for index, node in enumerate(graph.nodes):
        chain = [node]
        if node.op == "int.maxpool":
            chain = _chain(node, types, config)
        nodes += chain
        owners += [index] * len(chain)
    return graph.with_(nodes=tuple(nodes), types=types), tuple(owners)


def _chain(node: Node, types: dict[str, TensorType], config: AccelConfig) -> list[Node]:
    conv: ConvAttrs = node.attrs["conv"]
    n, h, w, c = types[node.inputs[0]].shape
    blocks = ceil_div(c, config.block_out)
    shape = ConvShape(
        groups=ceil_div(n, config.batch),
        height=h,
        width=w,
        blocks_in=blocks,
        blocks_out=blocks,
        conv=conv,
        pitch=blocks,
    )
    if choose_pool(shape, config, *conv.kernel) is not None:
        return [node]
    first, second = _halves(conv)
    between = f"{node.outputs[0]}.{node.inputs[0]}"
    types[between] = replace(types[node.inputs[0]], shape=(n, *first.output_size(h, w), c))
    attrs = {**node.attrs, "conv": first, "post": Post()}
    front = Node(node.op, f"{node.name}.part", (node.inputs[0],), (between,), attrs)
    inputs = (between, *node.inputs[1:])
    back = node.with_(inputs=inputs, attrs={**node.attrs, "conv": second})
    return _chain(front, types, config) + _chain(back, types, config)


def _halves(conv: ConvAttrs) -> tuple[ConvAttrs, ConvAttrs]:
    (kh, kw), (sy, sx), (dy, dx) = conv.kernel, conv.stride, conv.dilation
    top, left, bottom, right = conv.pads
    if kh > 1 and kw > 1:
        return (
            replace(conv, kernel=(1, kw), stride=(1, sx), pads=(0, left, 0, right)),
            replace(conv, kernel=(kh, 1), stride=(sy, 1), pads=(top, 0, bottom, 0)),
        )
    k = max(kh, kw)
    half, rest = ceil_div(k, 2), k // 2
    if kw > 1:
        kernels, dilation = ((1, half), (1, 2)), (dy, dx * rest)
    else:
        kernels, dilation = ((half, 1), (2, 1)), (dy * rest, dx)
    return (
        replace(conv, kernel=kernels[0], stride=(1, 1)),
        replace(conv, kernel=kernels[1], pads=(0, 0, 0, 0), dilation=dilation),
    )
