"""What would bring more of a network to the accelerator, or use it better."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from accelc.compiler.graph import Graph
from accelc.isa.config import AccelConfig

#: Layers that use less of the multipliers than this, for want of channels, are worth a word...
FULL_SHARE = 0.75
#: ...if they take at least this part of all cycles.
WORTH_CYCLES = 0.03
#: Nodes that a remedy names.
NAMED = 5
_BATCH_NOTE = re.compile(r"symbolic batch dimension '(.+)' set to 1")


@dataclass(frozen=True)
class Remedy:
    """``what`` to do, ``why`` and to which ``nodes``; ``kind`` is one word for scripts."""

    kind: str
    what: str
    why: str
    nodes: tuple[str, ...] = ()


def remedies(
    graph: Graph, config: AccelConfig | None, report: Mapping[str, Any]
) -> tuple[Remedy, ...]:
    """What the user could do, the most useful first, from a report's nodes and notes."""
    found = list(_dimensions(graph))
    if config is not None:
        found = [
            *_calibration(report),
            *_configuration(report),
            *found,
            *_channels(graph, config, report),
        ]
    return (*found, *_reference(report))


def _names(nodes: list[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(node["name"] for node in nodes)


def _calibration(report: Mapping[str, Any]) -> Iterator[Remedy]:
    floats = [
        node
        for node in report["nodes"]
        if node["macs"] and node["tier"] != "accelerator" and _is_float(node)
    ]
    share = sum(node["macs"] for node in floats) / report["macs"] if report["macs"] else 0
    if floats:
        yield Remedy(
            "calibrate",
            "quantize the model: accelc quantize MODEL.onnx -o int8.onnx --calibration DATA",
            f"{len(floats)} operators with {100 * share:.1f} % of the MACs compute on floats, the "
            "accelerator on int8",
            _names(floats),
        )


def _is_float(node: Mapping[str, Any]) -> bool:
    return any(value["dtype"].startswith(("float", "bfloat")) for value in node["outputs"])


def _configuration(report: Mapping[str, Any]) -> Iterator[Remedy]:
    for option, words in (
        ("lut", ("no look-up table", "lut = false")),
        ("add", ("no add stage", "add = false")),
    ):
        nodes = [n for n in report["nodes"] if any(word in n["reason"] for word in words)]
        if nodes:
            yield Remedy(
                "configuration",
                f"choose a configuration with {option} = true (accelc config lists them)",
                f"{len(nodes)} operators need a unit that {report['config']} lacks",
                _names(nodes),
            )


def _dimensions(graph: Graph) -> Iterator[Remedy]:
    for note in graph.notes:
        if found := _BATCH_NOTE.fullmatch(note):
            yield Remedy(
                "dimension",
                f"set --dim {found[1]}=N for another batch",
                f"the batch {found[1]!r} has no size in the model, 1 was taken",
            )
    symbols = {s for names in graph.symbols.values() for s in names if s}
    if symbols:
        listed = " ".join(f"--dim {name}=N" for name in sorted(symbols))
        yield Remedy(
            "dimension",
            f"fix the sizes: {listed}",
            "open dimensions are compiled for when the inputs are there, on the CPU alone",
        )


def _channels(graph: Graph, config: AccelConfig, report: Mapping[str, Any]) -> Iterator[Remedy]:
    total = report["cycles"] or 0
    nodes = {node.name: node for node in graph.nodes}
    for entry in report["nodes"]:
        node = nodes[entry["name"]]
        cycles = entry["cycles"] or 0
        if node.op != "int.conv" or node.attrs["depthwise"] or cycles < WORTH_CYCLES * total:
            continue
        c, o = graph.types[node.inputs[0]].shape[3], graph.types[node.outputs[0]].shape[3]
        first = node.inputs[0] in graph.inputs or c < config.block_in
        wanted = c if first else _whole(c, config.block_in), _whole(o, config.block_out)
        share = (c * o) / (wanted[0] * wanted[1])
        if share >= FULL_SHARE:
            continue
        parts = [
            f"{kind} from {now} to {then}"
            for kind, now, then in (("inputs", c, wanted[0]), ("outputs", o, wanted[1]))
            if now != then
        ]
        yield Remedy(
            "channels",
            f"widen {entry['name']}: {' and '.join(parts)} channels cost no further cycle",
            f"of {config.block_in} by {config.block_out} channels multiplied at a time "
            f"{100 * share:.0f} % are used, in {100 * cycles / total:.0f} % of the cycles",
            (entry["name"],),
        )


def _whole(channels: int, block: int) -> int:
    return -(-channels // block) * block


def _reference(report: Mapping[str, Any]) -> Iterator[Remedy]:
    nodes = [node for node in report["nodes"] if node["tier"] == "reference"]
    if nodes:
        operators = ", ".join(sorted({node["op"] for node in nodes}))
        yield Remedy(
            "reference",
            f"replace {operators} if speed matters",
            f"{len(nodes)} operators have no native kernel and run through onnx.reference",
            _names(nodes),
        )
