"""A network as SVG: operators coloured by where they run, from the report of ``accelc inspect``.

The layout is layered (Sugiyama), by fast-sugiyama. A deep network would be a strip too narrow to
read, so it is folded into columns; where an edge is cut by a fold, both ends carry one number.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from fast_sugiyama import from_edges

#: Pixels: a box, the steps between boxes and layers, what surrounds columns and the picture.
BOX_WIDTH, BOX_HEIGHT = 168, 44
STEP_X, STEP_Y = 186, 74
COLUMN_GAP, MARGIN, HEADER = 64, 32, 96
#: Width of the lane of an edge that passes a layer, in box steps.
LANE = 0.22
#: Width to height that folding aims at, and the fewest layers worth folding.
ASPECT, MIN_LAYERS = 1.5, 14
#: Characters that fit a line of a box.
TITLE_CHARS, DETAIL_CHARS = 20, 27
#: Characters of a title beside the tag in its usual size.
TITLE_FITS = 13


@dataclass(frozen=True)
class _Style:
    label: str
    tag: str
    fill: str
    line: str
    #: As ``line``, dark enough for small letters.
    ink: str
    dashes: str = ""


#: Okabe and Ito's colours, which the colour-blind tell apart; tags and dashes say the same in grey.
STYLES: Mapping[str, _Style] = {
    "accelerator": _Style("accelerator", "ACC", "#dcebf7", "#0072b2", "#005a8e"),
    "native": _Style("CPU, native code", "CPU", "#fff2d6", "#e69f00", "#7a5200"),
    "reference": _Style("CPU, onnx.reference", "REF", "#fbe3d9", "#d55e00", "#9c4400", "5 3"),
    "edge": _Style("input or output", "", "#f1f3f5", "#868e96", "#5c6670"),
}
_TEXT, _SOFT, _LINE = "#1b1f24", "#5c6670", "#98a2ad"
FONTS = "Helvetica, Arial, sans-serif"
_TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    f'orient="auto"><path d="M0 0.8 7.4 4 0 7.2z" fill="{_LINE}"/></marker>'
)


@dataclass(frozen=True)
class _Box:
    title: str
    detail: str
    style: str
    tooltip: str
    #: Part of all predicted cycles, 0 to 1.
    share: float = 0.0


@dataclass(frozen=True)
class _Layout:
    """Centres of boxes, in pixels, and edges as chains of points; cut ones as pieces."""

    boxes: Mapping[str, tuple[float, float]]
    edges: Sequence[Sequence[tuple[float, float]]]
    #: Where a fold cuts an edge: the point, and the number that its other end carries too.
    cuts: Sequence[tuple[float, float, int]]
    width: float
    height: float


def picture(report: Mapping[str, Any]) -> str:
    """The SVG text for a report of ``accelc.explain``."""
    boxes, edges = _boxes(report)
    layout = _arrange(list(boxes), edges)
    width = max(layout.width + 2 * MARGIN, 760)
    height = layout.height + HEADER + 2 * MARGIN
    left = (width - layout.width) / 2
    box = f"0 0 {width:.0f} {height:.0f}"
    size = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" {size} font-family="{FONTS}">',
        f"<title>{escape(report['model'])}</title>",
        f"<defs>{_TIP}</defs>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        *_header(report, width),
        f'<g transform="translate({left:.1f} {HEADER + MARGIN})">',
        *(_edge(points, last) for points, last in _pieces(layout)),
        *(_cut(*cut) for cut in layout.cuts),
        *(_box(boxes[name], *centre) for name, centre in layout.boxes.items()),
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


def _boxes(report: Mapping[str, Any]) -> tuple[dict[str, _Box], list[tuple[str, str]]]:
    """Boxes by a key of their own, and which feeds which."""
    boxes: dict[str, _Box] = {}
    source: dict[str, str] = {}
    total = sum(node["cycles"] or 0 for node in report["nodes"])
    for value in report["inputs"]:
        key = f"input {value['name']}"
        boxes[key] = _Box(value["name"], _shape(value), "edge", key)
        source[value["name"]] = key
    for number, node in enumerate(report["nodes"]):
        key = f"node {number}"
        share = (node["cycles"] or 0) / total if total else 0.0
        detail = _shape(node["outputs"][0]) if node["outputs"] else ""
        boxes[key] = _Box(
            node["op"].removeprefix("int."), detail, node["tier"], _tooltip(node), share
        )
        source.update((output["name"], key) for output in node["outputs"])
    edges: dict[tuple[str, str], None] = {}
    for number, node in enumerate(report["nodes"]):
        for name in node["inputs"]:
            if name in source:
                edges[source[name], f"node {number}"] = None
    for value in report["outputs"]:
        key = f"output {value['name']}"
        boxes[key] = _Box(value["name"], _shape(value), "edge", key)
        if value["name"] in source:
            edges[source[value["name"]], key] = None
    return boxes, list(edges)


def _shape(value: Mapping[str, Any]) -> str:
    sizes = "×".join("?" if size < 0 else str(size) for size in value["shape"])
    return f"{value['dtype']} {sizes or 'scalar'}"


def _tooltip(node: Mapping[str, Any]) -> str:
    lines = [f"{node['op']} {node['name']}", STYLES[node["tier"]].label]
    if node["reason"]:
        lines[-1] += f": {node['reason']}"
    lines.append(f"{node['macs']:,} MACs, {node['bytes']:,} bytes")
    if node["cycles"] is not None:
        lines.append(f"{node['cycles']:,} cycles predicted")
    return "\n".join(lines)


def _arrange(keys: Sequence[str], edges: Sequence[tuple[str, str]]) -> _Layout:
    """Place the boxes in layers, and the layers in columns."""
    numbers = {key: number for number, key in enumerate(keys)}
    linked = [(numbers[a], numbers[b]) for a, b in edges]
    places, links = _layers(len(keys), linked)
    rows: dict[int, list[int]] = {}
    for point, (_, row) in places.items():
        rows.setdefault(row, []).append(point)
    first_rows = _folds(places, links, len(rows))
    column_of = [sum(row >= first for first in first_rows) - 1 for row in range(len(rows))]
    pixels: dict[int, tuple[float, float]] = {}
    left = width = 0.0
    for column, first in enumerate(first_rows):
        members = [p for row in rows if column_of[row] == column for p in rows[row]]
        low = min(places[p][0] for p in members)
        high = max(places[p][0] for p in members)
        for p in members:
            x, row = places[p]
            pixels[p] = left + BOX_WIDTH / 2 + (x - low) * STEP_X, (row - first + 0.5) * STEP_Y
        width = left + BOX_WIDTH + (high - low) * STEP_X
        left = width + COLUMN_GAP
    deepest = max(places[p][1] - first_rows[column_of[places[p][1]]] for p in places)
    routes, cuts = _routes(len(keys), places, links, pixels, column_of)
    boxes = {key: pixels[number] for key, number in numbers.items()}
    return _Layout(boxes, routes, cuts, width, (deepest + 1) * STEP_Y)


def _layers(
    count: int, edges: Sequence[tuple[int, int]]
) -> tuple[dict[int, tuple[float, int]], list[tuple[int, int]]]:
    """Column and layer of every box and of the points by which edges pass layers, and the links
    between neighbouring layers. Points have numbers from ``count`` on."""
    places: dict[int, tuple[float, int]] = {}
    links: list[tuple[int, int]] = []
    left = 0.0
    fresh = count
    # what has a name is a box, what comes back as a number is a point: no two can be confused
    named = [(str(a), str(b)) for a, b in edges]
    for positions, width, height, pieces in from_edges(
        named, dummy_vertices=True, dummy_size=LANE, vertex_spacing=1, ranking_type="minimize"
    ):
        numbers: dict[int | str, int] = {}
        for point, (x, y) in sorted(positions, key=lambda found: str(found[0])):
            if isinstance(point, str):
                numbers[point] = int(point)
            else:
                numbers[point], fresh = fresh, fresh + 1
            places[numbers[point]] = left + x, round(height - y)
        links += [(numbers[a], numbers[b]) for a, b in pieces or ()]
        left += width + 1
    for number in range(count):  # what has no edge
        if number not in places:
            places[number] = left, 0
            left += 1
    return places, links


def _folds(
    places: Mapping[int, tuple[float, int]], links: Sequence[tuple[int, int]], rows: int
) -> list[int]:
    """The first layer of every column: about as many layers each, cut where few edges are."""
    width = max(x for x, _ in places.values()) * STEP_X + BOX_WIDTH + COLUMN_GAP
    columns = round(math.sqrt(ASPECT * rows * STEP_Y / width))
    if columns < 2 or rows < MIN_LAYERS:
        return [0]
    crossing = [0] * (rows + 1)
    for _, b in links:
        crossing[places[b][1]] += 1
    length = rows / columns
    firsts = [0]
    for column in range(1, columns):
        wanted, slack = round(column * length), max(1, round(length / 8))
        around = range(max(firsts[-1] + 2, wanted - slack), min(rows - 1, wanted + slack) + 1)
        if around:
            firsts.append(min(around, key=lambda row: (crossing[row], abs(row - wanted))))
    return firsts


def _routes(
    count: int,
    places: Mapping[int, tuple[float, int]],
    links: Sequence[tuple[int, int]],
    pixels: Mapping[int, tuple[float, float]],
    column_of: Sequence[int],
) -> tuple[list[list[tuple[float, float]]], list[tuple[float, float, int]]]:
    """Every edge as points from box to box, in pieces where a fold cuts it, and the cuts."""
    following: dict[int, list[int]] = {}
    for a, b in links:
        following.setdefault(a, []).append(b)
    routes: list[list[tuple[float, float]]] = []
    cuts: dict[tuple[float, float, int], None] = {}
    half = BOX_HEIGHT / 2
    for start in range(count):
        for target in following.get(start, ()):
            x, y = pixels[start]
            route = [(x, y + half)]
            here, there = start, target
            while True:
                x1, y1 = pixels[there]
                if column_of[places[here][1]] != column_of[places[there][1]]:
                    end = route[-1][0], route[-1][1] + 0.32 * STEP_Y
                    begin = x1, y1 - half - 0.24 * STEP_Y
                    cuts |= {(*end, start): None, (*begin, start): None}
                    routes.append([*route, end])
                    route = [begin]
                if there < count:
                    routes.append([*route, (x1, y1 - half)])
                    break
                route.append((x1, y1))
                here, there = there, following[there][0]
    order = {s: n for n, s in enumerate(dict.fromkeys(s for _, _, s in cuts), 1)}
    return routes, [(x, y, order[start]) for x, y, start in cuts]


def _pieces(layout: _Layout) -> list[tuple[Sequence[tuple[float, float]], bool]]:
    """Edges, each with whether it ends at a box."""
    ends = {(x, y) for x, y, _ in layout.cuts}
    return [(points, points[-1] not in ends) for points in layout.edges]


def _edge(points: Sequence[tuple[float, float]], arrow: bool) -> str:
    """A smooth line that leaves and enters every point vertically."""
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in rest:
        if abs(to_x - x) < 0.5:
            path.append(f"L{to_x:.1f} {to_y:.1f}")
        else:
            middle = (y + to_y) / 2
            path.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    tip = ' marker-end="url(#tip)"' if arrow else ""
    return f'<path d="{"".join(path)}" fill="none" stroke="{_LINE}" stroke-width="1.4"{tip}/>'


def _cut(x: float, y: float, number: int) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="#ffffff" stroke="{_SOFT}"/>'
        f'<text x="{x:.1f}" y="{y + 3.5:.1f}" font-size="10" text-anchor="middle" '
        f'fill="{_SOFT}">{number}</text>'
    )


def _fitted(text: str, chars: int) -> str:
    """``text``, its middle left out where it is too long: names differ at their ends."""
    if len(text) <= chars:
        return escape(text)
    tail = (chars - 1) // 2
    return escape(f"{text[: chars - 1 - tail]}…{text[-tail:]}")


def _box(box: _Box, x: float, y: float) -> str:
    style = STYLES[box.style]
    left, top = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
    radius = BOX_HEIGHT / 2 if box.style == "edge" else 6
    paint = f'rx="{radius:.0f}" {_paint(style)}'
    parts = [
        f"<g><title>{escape(box.tooltip)}</title>",
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" {paint}/>',
    ]
    if box.style == "edge":
        parts += [
            _text(x, y - 3, _fitted(box.title, TITLE_CHARS), 12, _TEXT, "middle", bold=True),
            _text(x, y + 12, _fitted(box.detail, DETAIL_CHARS - 3), 10, _SOFT, "middle"),
        ]
        return "".join([*parts, "</g>"])
    title = _fitted(box.title, TITLE_CHARS)
    size = round(min(13.0, 13.0 * TITLE_FITS / len(title)), 1)
    parts += [
        _text(left + 12, y - 3, title, size, _TEXT, bold=True),
        _text(left + 12, y + 12, _fitted(box.detail, DETAIL_CHARS), 10.5, _SOFT),
        _text(left + BOX_WIDTH - 9, y - 6, style.tag, 8.5, style.ink, "end", bold=True),
    ]
    if box.share >= 0.005:
        length = max(2.0, box.share * (BOX_WIDTH - 12))
        parts.append(
            f'<rect x="{left + 6:.1f}" y="{top + BOX_HEIGHT - 5:.1f}" width="{length:.1f}" '
            f'height="3" rx="1.5" fill="{style.line}"/>'
        )
    return "".join([*parts, "</g>"])


def _paint(style: _Style) -> str:
    dashes = f' stroke-dasharray="{style.dashes}"' if style.dashes else ""
    return f'fill="{style.fill}" stroke="{style.line}" stroke-width="1.4"{dashes}'


def _text(
    x: float,
    y: float,
    text: str,
    size: float,
    fill: str,
    anchor: str = "start",
    *,
    bold: bool = False,
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" '
        f'text-anchor="{anchor}"{weight}>{text}</text>'
    )


def _header(report: Mapping[str, Any], width: float) -> list[str]:
    """Name, totals and legend."""
    config = report["config"]
    where = f"accelerator {config}" if config else "the CPU"
    line = f"{report['network']}: {len(report['nodes'])} operators for {where}, "
    line += f"{report['macs']:,} MACs"
    if report["cycles"]:
        line += f", {report['cycles']:,} cycles predicted on the accelerator"
    chars = int((width - 2 * MARGIN) / 11)
    parts = [
        _text(MARGIN, 40, _fitted(report["model"], chars), 20, _TEXT, bold=True),
        _text(MARGIN, 60, escape(line), 12, _SOFT),
    ]
    x = float(MARGIN)
    for name in ("accelerator", "native", "reference"):
        style, found = STYLES[name], report["tiers"][name]
        if not found["nodes"]:
            continue
        label = f"{style.label}: {found['nodes']}"
        if found["macs"]:
            label += f", {100 * found['macs'] / report['macs']:.1f} % of MACs"
        parts += [
            f'<rect x="{x:.0f}" y="76" width="22" height="14" rx="4" {_paint(style)}/>',
            _text(x + 29, 87.5, escape(label), 12, _TEXT),
        ]
        x += 29 + 6.6 * len(label) + 22
    if report["cycles"]:
        color = STYLES["accelerator"].line
        parts += [
            f'<rect x="{x:.0f}" y="82" width="22" height="3" rx="1.5" fill="{color}"/>',
            _text(x + 29, 87.5, "share of the predicted cycles", 12, _TEXT),
        ]
    return parts
