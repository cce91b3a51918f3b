"""Decide which layers are quantized, and which values share a scale."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from accelc.compiler.graph import Graph
from accelc.compiler.quantize.layers import Kind, Layer

_ALWAYS = (Kind.LINEAR, Kind.PRODUCT)
_IF_FED = (Kind.ADD, Kind.AVERAGE, Kind.CONCAT)


@dataclass(frozen=True)
class Plan:
    """What is quantized.

    Members:
        active: the quantized layers by name.
        source: by value, the one whose range it takes; itself for most.
    """

    layers: tuple[Layer, ...]
    active: frozenset[str]
    source: Mapping[str, str]

    @property
    def quantized(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if layer.name in self.active)

    @property
    def produced(self) -> dict[str, Layer]:
        """Values that quantized layers compute: whoever reads them reads them dequantized."""
        return {value: layer for layer in self.quantized for value in layer.outputs}

    @property
    def values(self) -> tuple[str, ...]:
        """Every value that is quantized somewhere, constants of additions too."""
        found: dict[str, None] = {}
        for layer in self.quantized:
            found.update(dict.fromkeys((*layer.reads, *layer.outputs)))
        return tuple(found)


def make_plan(graph: Graph, layers: Iterable[Layer], keep_float: Collection[str] = ()) -> Plan:
    """Quantize every layer that pays, except those named in ``keep_float``.

    Linear layers always; sums, averages and joins where an operand is quantized anyway; functions
    between quantized layers; movement of what is quantized on either side.
    """
    layers = tuple(layers)
    active: set[str] = set()
    quantized: set[str] = set()
    for layer in layers:
        if layer.name in keep_float:
            continue
        fed = any(value in quantized for value in layer.reads)
        if layer.kind in _ALWAYS or fed:
            active.add(layer.name)
            quantized.update(layer.outputs)
    needed: set[str] = set()
    for layer in reversed(layers):
        wanted = any(value in needed for value in layer.outputs)
        if layer.kind is Kind.FUNCTION and not wanted:
            active.discard(layer.name)
        elif layer.kind is Kind.MOVEMENT:
            if wanted and layer.name not in keep_float:
                active.add(layer.name)
            if not wanted:
                continue  # moved for a float layer: no reason to quantize what it moves
        if layer.name in active:
            needed.update(layer.reads)
    return Plan(layers, frozenset(active), _sources(graph, layers, active))


def _sources(graph: Graph, layers: tuple[Layer, ...], active: Collection[str]) -> dict[str, str]:
    """Movement keeps its operand's scale; what only a join reads takes the join's.

    The join then only copies: an operand of its own scale would be rounded twice.
    """
    source: dict[str, str] = {}
    moved: set[str] = set()
    for layer in layers:
        for value in (*layer.reads, *layer.outputs):
            source.setdefault(value, value)
        if layer.kind is Kind.MOVEMENT:
            moved.update((*layer.reads, *layer.outputs))
            source.update(dict.fromkeys(layer.outputs, source[layer.reads[0]]))
    consumers = graph.consumers()
    for layer in reversed(layers):
        if layer.kind is not Kind.CONCAT or layer.name not in active:
            continue
        for value in layer.reads:
            alone = len(consumers[value]) == 1 and layer.reads.count(value) == 1
            if alone and value not in moved and value not in (*graph.inputs, *graph.outputs):
                source[value] = source[layer.outputs[0]]
    return source
