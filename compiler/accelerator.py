"""The accelerator's back end: a region of integer operators to a program."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from accelc.compiler.alias import slices
from accelc.compiler.emit import finish
from accelc.compiler.graph import Graph, Node
from accelc.compiler.integer import AS_WEIGHTS, ConvAttrs
from accelc.compiler.layout import Packing, ceil_div, pack, packed_view
from accelc.compiler.lower_concat import lower_concat
from accelc.compiler.lower_conv import is_pointwise, lower_conv
from accelc.compiler.lower_depthwise import lower_depthwise
from accelc.compiler.lower_eltwise import lower_add, lower_lookup, lower_resize, lower_scale
from accelc.compiler.lower_matmul import lower_matmul
from accelc.compiler.lower_pool import lower_maxpool
from accelc.compiler.memory_plan import (
    ConstantPool,
    Lifetime,
    MemoryPlan,
    plan_memory,
)
from accelc.compiler.region import RegionBuilder
from accelc.compiler.schedule import schedule
from accelc.compiler.split_pool import split_pools
from accelc.compiler.tile import choose_conv
from accelc.compiler.tile_cost import ConvShape
from accelc.compiler.tokens import insert_tokens
from accelc.compiler.verify import verify
from accelc.isa.config import AccelConfig
from accelc.isa.errors import DoesNotFitError, UnsupportedOpError
from accelc.isa.program import Program, Region


@dataclass(frozen=True, kw_only=True)
class LowerOptions:
    """Choices of the back end; the defaults are the fast and safe ones."""

    #: Let first layers with few channels read their input as patches.
    patches: bool = True
    #: Compute the inputs of a concatenation as slices of its output.
    in_place: bool = True
    #: Let tensors that never live together share memory.
    share_memory: bool = True
    #: Check the finished program.
    verify: bool = True


@dataclass(frozen=True, kw_only=True)
class LoweredRegion:
    """A program, how each of its input and output regions is packed, and the memory plan behind it.

    ``packings`` is keyed by region name: graph values, and ``value@node`` for an input that one
    node reads in a layout of its own, as patches or as tiles of weights. ``in_place`` values need
    no copy: they are slices of a concatenation.
    """

    program: Program
    packings: Mapping[str, Packing]
    plan: MemoryPlan
    in_place: tuple[str, ...] = ()


def _lower_any_conv(builder: RegionBuilder, node: Node) -> None:
    (lower_depthwise if node.attrs.get("depthwise", False) else lower_conv)(builder, node)


#: What the 32-bit addresses of instructions reach.
MAX_MEMORY_BYTES = 1 << 32
LOWERINGS: dict[str, Callable[[RegionBuilder, Node], None]] = {
    "int.conv": _lower_any_conv,
    "int.matmul": lower_matmul,
    "int.maxpool": lower_maxpool,
    "int.add": lower_add,
    "int.scale": lower_scale,
    "int.lookup": lower_lookup,
    "int.concat": lower_concat,
    "int.resize": lower_resize,
}


def lower(
    graph: Graph, config: AccelConfig, *, options: LowerOptions | None = None
) -> LoweredRegion:
    """Compile a graph of ``int.*`` nodes for ``config``.

    Raises:
        UnsupportedOpError: operators without a lowering (all named at once), or ones that need a
            unit the configuration lacks.
        DoesNotFitError: the region exceeds what instructions can address.
        VerifyError: a defect of this compiler; the program must not be run.
    """
    options = options or LowerOptions()
    unknown = sorted({f"{n.op} ({n.name})" for n in graph.nodes if n.op not in LOWERINGS})
    if unknown:
        raise UnsupportedOpError(f"no accelerator lowering for {', '.join(unknown)}")
    original = graph
    graph, layers = split_pools(graph, config)
    own = _weights_from_host(graph)
    if options.patches:
        own |= _patched_nodes(graph, config)
    packings, names = _packings(graph, own)
    parts = slices(graph, config) if options.in_place else {}
    plan = plan_memory(_lifetimes(graph, packings, parts, config), share=options.share_memory)
    if plan.peak_bytes > MAX_MEMORY_BYTES:
        raise DoesNotFitError(
            f"the network's activations take {plan.peak_bytes} bytes, instructions address "
            f"{MAX_MEMORY_BYTES}; compile for a smaller batch or input"
        )
    views = {
        name: packed_view(packing, plan.addresses[name], config)
        for name, packing in packings.items()
        if name not in parts
    }
    for name, (whole, channel) in parts.items():
        blocks = ceil_div(packings[name].shape[3], config.block_out)
        views[name] = views[whole].part(channel // config.block_out, blocks, config)
    builder = RegionBuilder(
        graph=graph,
        config=config,
        views=views,
        constants=ConstantPool(plan.peak_bytes),
        own={node: (views[name], packings[name]) for node, name in names.items()},
    )
    _constant_operands(builder)
    for layer, node in zip(layers, graph.nodes, strict=True):
        builder.layer = layer
        LOWERINGS[node.op](builder, node)
    tasks = schedule(builder.steps, config)
    instructions = insert_tokens([t.instruction for t in tasks], config, plan.peak_bytes)
    regions = {
        name: Region(name=name, address=plan.addresses[name], nbytes=packing.nbytes(config))
        for name, packing in packings.items()
        if name not in parts
    }
    input_names = [n for n, p in packings.items() if p.value in graph.inputs]
    program = finish(
        original,
        config,
        tasks=tasks,
        instructions=instructions,
        constants=builder.constants,
        inputs=tuple(regions[name] for name in input_names),
        outputs=tuple(regions[name] for name in graph.outputs),
        regions=tuple(regions.values()),
    )
    if options.verify:
        verify(program)
    kept = (*input_names, *graph.outputs)
    return LoweredRegion(
        program=program,
        packings={name: packings[name] for name in kept},
        plan=plan,
        in_place=tuple(parts),
    )


def _weights_from_host(graph: Graph) -> dict[str, Packing]:
    """Operands at run time that the host lays out as weights: by node that reads them."""
    result: dict[str, Packing] = {}
    for node in graph.nodes:
        if node.op not in AS_WEIGHTS:
            continue
        value = node.inputs[AS_WEIGHTS[node.op]]
        if value in graph.inputs:
            result[node.name] = Packing(value=value, shape=_shape(graph, value), kind="tiles")
        elif value not in graph.constants:
            raise AssertionError(f"{node.name}: {value} must come from outside of the region")
    return result


def _patched_nodes(graph: Graph, config: AccelConfig) -> dict[str, Packing]:
    """Convolutions of graph inputs that are cheaper on patches: node name to the best patches."""
    result: dict[str, Packing] = {}
    for node in graph.nodes:
        value = node.inputs[0]
        if node.op != "int.conv" or node.attrs.get("depthwise") or value not in graph.inputs:
            continue
        conv: ConvAttrs = node.attrs["conv"]
        shape = _shape(graph, value)
        if conv.kernel == (1, 1) or shape[3] >= config.block_in:
            continue
        # patches of a line more that need as many steps only hold more
        options = [Packing(value=value, shape=shape)] + [
            Packing(value=value, shape=shape, kind="patch", conv=conv, patch_lines=lines)
            for lines in sorted({ceil_div(conv.kernel[0], k + 1) for k in range(conv.kernel[0])})
        ]
        best = min(options, key=functools.partial(_conv_cycles, graph, config, node))
        if best.kind == "patch":
            result[node.name] = best
    return result


def _conv_cycles(graph: Graph, config: AccelConfig, node: Node, packing: Packing) -> int:
    """Cycles of a convolution whose input is packed that way."""
    groups, height, width, pitch, _, _ = packing.packed_shape(config)
    plain = packing.kind == "nhwc"
    conv = node.attrs["conv"] if plain else packing.patch_conv()
    if is_pointwise(conv):
        groups, height, width = 1, 1, groups * height * width
    shape = ConvShape(
        groups=groups,
        height=height,
        width=width,
        blocks_in=ceil_div(packing.shape[3], config.block_in) if plain else pitch,
        blocks_out=ceil_div(_shape(graph, node.outputs[0])[3], config.block_out),
        conv=conv,
        pitch=pitch,
        residual=node.attrs["post"].add is not None,
    )
    return choose_conv(shape, config).cycles


def _packings(
    graph: Graph, own: Mapping[str, Packing]
) -> tuple[dict[str, Packing], dict[str, str]]:
    """Packing of every region, and by node the names of the regions in a layout of their own.

    An input that is read only in such layouts has no plain region.
    """
    packings: dict[str, Packing] = {}
    names: dict[str, str] = {}
    consumers = graph.consumers()
    for name in graph.inputs:
        readers = consumers.get(name, [])
        if not readers or any(_reads_plain(node, name, own) for node in readers):
            packings[name] = Packing(value=name, shape=_shape(graph, name))
        for node in readers:
            if node.name in own and own[node.name].value == name:
                names[node.name] = f"{name}@{node.name}"
                packings[names[node.name]] = own[node.name]
    for node in graph.nodes:
        for name in node.outputs:
            packings[name] = Packing(value=name, shape=_shape(graph, name))
    return packings, names


def _reads_plain(node: Node, value: str, own: Mapping[str, Packing]) -> bool:
    """Whether ``node`` reads an input elsewhere than where it has a layout of its own."""
    place = AS_WEIGHTS.get(node.op, 0) if node.name in own else None
    return any(name == value and k != place for k, name in enumerate(node.inputs))


def _shape(graph: Graph, name: str) -> tuple[int, int, int, int]:
    n, h, w, c = graph.types[name].shape
    return n, h, w, c


def _lifetimes(
    graph: Graph,
    packings: Mapping[str, Packing],
    parts: Mapping[str, tuple[str, int]],
    config: AccelConfig,
) -> list[Lifetime]:
    """When each activation is alive, in node numbers; inputs stay for a second run.

    What holds ``parts`` lives as long as any of them.
    """
    end = len(graph.nodes)
    spans: dict[str, tuple[int, int]] = {}
    born = {output: index for index, node in enumerate(graph.nodes) for output in node.outputs}
    dies = {name: index for index, node in enumerate(graph.nodes) for name in node.inputs}
    for name, packing in packings.items():
        is_input = packing.value in graph.inputs
        first = 0 if is_input else born[name]
        last = end if is_input or name in graph.outputs else dies.get(name, first)
        owner = parts[name][0] if name in parts else name
        known = spans.get(owner, (first, last))
        spans[owner] = min(known[0], first), max(known[1], last)
    return [
        Lifetime(name=name, nbytes=packings[name].nbytes(config), first=first, last=last)
        for name, (first, last) in spans.items()
    ]


#: Operands of each operator that are activations, as a slice of the node's inputs.
_ACTIVATIONS = {
    "int.conv": (0, 5),
    "int.matmul": (0,),
    "int.maxpool": (0,),
    "int.add": (0, 1),
    "int.scale": (0,),
    "int.lookup": (0,),
    "int.resize": (0,),
}


def _constant_operands(builder: RegionBuilder) -> None:
    """Pack activations that are known at compile time."""
    graph, config = builder.graph, builder.config
    for node in graph.nodes:
        if node.op == "int.concat":
            names = node.inputs[:-3]
        else:
            names = tuple(node.inputs[i] for i in _ACTIVATIONS[node.op] if i < len(node.inputs))
            if node.op == "int.conv" and node.attrs["post"].add is None:
                names = names[:1]
        for name in names:
            if name not in graph.constants or name in builder.views:
                continue
            value = graph.constants[name].astype(np.int8)
            if value.shape[0] == 1:
                # one image for all: every place of the batch holds it
                value = np.repeat(value, config.batch, axis=0)
            n, h, w, c = value.shape
            packing = Packing(value=name, shape=(n, h, w, c))
            address = builder.constants.add(name, pack(value, packing, config))
            builder.views[name] = packed_view(packing, address, config)
