"""Portable C for a host beside the plain core: the network's image, and functions that run it."""

import re
from collections.abc import Mapping
from importlib.resources import files

import accelc
from accelc.artifact import Artifact
from accelc.compiler.graph import Graph
from accelc.compiler.layout import Packing
from accelc.compiler.partition import Place
from accelc.compiler.pipeline import Step
from accelc.isa.errors import InputError, UnsupportedOpError
from accelc.isa.program import Program, Region
from accelc.isa.registers import BY_NAME, IDENTITY
from accelc.isa.spec import ISA_VERSION

#: Operators of a step on the CPU that move no values: a host may leave them out.
_LAYOUT = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity")
_BYTES_A_LINE = 24
#: Registers the functions use.
_REGISTERS = (
    "id version config control status error program_address program_length memory_base memory_bytes"
).split()


def emit_c(artifact: Artifact, stem: str) -> dict[str, str]:
    """C source and headers by file suffix: ``""`` the source, ``.h`` its interface.

    Raises:
        UnsupportedOpError: more than one step runs on the accelerator, or none.
        InputError: no C compiler could include a file of this name.
    """
    if re.search(r'["\\\n\r]', stem):
        raise InputError(f"{stem!r} cannot be the name of a C file; choose another with -o")
    steps = [step for step in artifact.model.steps if step.place is Place.ACCELERATOR]
    if len(steps) != 1:
        raise UnsupportedOpError(
            f"network {artifact.model.graph.name!r} has {len(steps)} regions on the accelerator; C "
            "is written for networks with one, so that a single call runs it (accelc inspect names "
            "the nodes that split it)"
        )
    step = steps[0]
    program, packings = step.program, step.packings
    if program is None or packings is None:
        raise AssertionError("an accelerator step has a program and packings")
    name = re.sub(r"\W", "_", stem)
    if not name or name[0].isdigit():
        name = f"net_{name}"
    tensors = _tensors(program, packings)
    return {
        "": _source(name, stem, artifact, program, packings, tensors),
        ".h": _header(name, artifact, step, program, packings, tensors),
    }


class _Tensors:
    """Values a caller hands over: each once, though several regions may hold it."""

    def __init__(self) -> None:
        self.inputs: dict[str, tuple[int, ...]] = {}
        self.outputs: dict[str, tuple[int, ...]] = {}


def _tensors(program: Program, packings: Mapping[str, Packing]) -> _Tensors:
    tensors = _Tensors()
    for region in program.inputs:
        packing = packings[region.name]
        tensors.inputs[packing.value] = packing.shape
    for region in program.outputs:
        packing = packings[region.name]
        tensors.outputs[packing.value] = packing.shape
    return tensors


def _prototype(name: str, tensors: _Tensors) -> str:
    inputs = [f"const int8_t *input{index}" for index in range(len(tensors.inputs))]
    outputs = [f"int8_t *output{index}" for index in range(len(tensors.outputs))]
    return f"int {name}_run(const struct accelc_port *port, {', '.join([*inputs, *outputs])})"


def _comment(text: str) -> str:
    """Text that cannot end a C comment, or begin another line."""
    return re.sub(r"\s+", " ", text).replace("*/", "* /")


def _meaning(graph: Graph, value: str) -> str:
    """The value's quantization, if its type or the node that reads or makes it tells."""
    quant = graph.types[value].quant if value in graph.types else None
    if quant is None or not quant.per_tensor:
        return ""
    scale = float(quant.scale.reshape(-1)[0])
    zero = int(quant.zero_point.reshape(-1)[0])
    return f"; real = (q {'+' if zero < 0 else '-'} {abs(zero)}) * {scale:.9g}"


def _header(
    name: str,
    artifact: Artifact,
    step: Step,
    program: Program,
    packings: Mapping[str, Packing],
    tensors: _Tensors,
) -> str:
    guard = f"{name.upper()}_H"
    lines = [
        f"/* Network {_comment(artifact.model.graph.name)}",
        f" * for configuration {_comment(program.config.name)}.",
        f" * Written by accelc {accelc.__version__}. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifndef ACCELC_PORT",
        "#define ACCELC_PORT",
        "/* How the host reaches an accelerator. */",
        "struct accelc_port {",
        "    void *context; /* handed to the functions */",
        "    uint32_t (*read)(void *context, uint32_t offset); /* an AXI4-Lite register */",
        "    void (*write)(void *context, uint32_t offset, uint32_t value);",
        "    uint8_t *memory;      /* the accelerator's memory, as the host sees it */",
        "    uint32_t memory_base; /* the same on the accelerator's bus; whole bus words */",
        "    /* Write back and drop cached copies of a range; null where memory is coherent. */",
        "    void (*clean)(void *context, void *start, size_t bytes);",
        "    void (*invalidate)(void *context, void *start, size_t bytes);",
        "};",
        "",
        "/* Results below 0; results above 0 are the accelerator's error codes (docs/ISA.md). */",
        "#define ACCELC_NO_DEVICE (-1)     /* no accelerator answers at these registers */",
        "#define ACCELC_OTHER_VERSION (-2) /* its instruction set has another version */",
        "#define ACCELC_OTHER_CONFIG (-3)  /* it was built for another configuration */",
        "#define ACCELC_NO_ANSWER (-4)     /* it reports an error without a code */",
        "#endif",
        "",
        f"#define {name.upper()}_MEMORY_BYTES {program.memory_bytes}u",
        f"#define {name.upper()}_CONFIG 0x{program.config.digest:08x}u",
        "",
        "/* Check the accelerator and write instructions and constants to its memory, once. */",
        f"int {name}_load(const struct accelc_port *port);",
        "",
        "/* Run the network once; 0, or what went wrong. Tensors are int8, last axis fastest. */",
    ]
    for kind, group in (("input", tensors.inputs), ("output", tensors.outputs)):
        for index, (value, shape) in enumerate(group.items()):
            axes = "".join(f"[{size}]" for size in shape)
            meaning = _meaning(artifact.model.graph, value) or _meaning(step.graph, value)
            lines.append(f"/*   {kind}{index} {axes} (n, h, w, c): {_comment(value)}{meaning} */")
    others = [
        node
        for other in artifact.model.steps
        if other.place is Place.CPU
        for node in other.graph.nodes
        if node.op not in _LAYOUT
    ]
    lines.append(f"{_prototype(name, tensors)};")
    if others:
        left = ", ".join(dict.fromkeys(_comment(node.op) for node in others))
        lines += ["", f"/* Not included, because it runs on the CPU: {left}. */"]
    return "\n".join([*lines, "", f"#endif /* {guard} */", ""])


def _bytes(name: str, data: bytes) -> list[str]:
    rows = [data[i : i + _BYTES_A_LINE] for i in range(0, len(data), _BYTES_A_LINE)]
    body = [f"    {','.join(map(str, row))}," for row in rows]
    return [f"static const uint8_t {name}[{len(data)}] = {{", *body, "};", ""]


def _layout(name: str, region: Region, packing: Packing, program: Program) -> list[str]:
    config = program.config
    _, lines, columns, blocks, batch, block_in = packing.packed_shape(config)
    n, h, w, c = packing.shape
    fields: dict[str, int] = {
        "address": region.address,
        **{"n": n, "h": h, "w": w, "c": c},
        **{"batch": batch, "block_in": block_in, "blocks": blocks},
        **{"lines": lines, "columns": columns, "patch_lines": 1, "patch_columns": 1},
        **dict.fromkeys(("line_step", "column_step", "line_dilation", "column_dilation"), 1),
        **{"top": 0, "left": 0, "pad_value": 0},
    }
    if packing.conv is not None:
        conv = packing.conv
        fields |= {
            "patch_lines": packing.patch_lines,
            "patch_columns": conv.kernel[1],
            "line_step": conv.stride[0] if packing.patch_conv().kernel[0] == 1 else 1,
            "column_step": conv.stride[1],
            "line_dilation": conv.dilation[0],
            "column_dilation": conv.dilation[1],
            "top": conv.pads[0],
            "left": conv.pads[1],
            "pad_value": conv.pad_value,
        }
    values = ", ".join(f".{key} = {value}" for key, value in fields.items())
    return [f"static const struct layout {name} = {{{values}}};"]


def _source(
    name: str,
    stem: str,
    artifact: Artifact,
    program: Program,
    packings: Mapping[str, Packing],
    tensors: _Tensors,
) -> str:
    runtime = files("accelc").joinpath("c", "host.c").read_text(encoding="ascii")
    lines = [
        f"/* Network {_comment(artifact.model.graph.name)}.",
        f" * Written by accelc {accelc.__version__}; see {_comment(stem)}.h. */",
        f'#include "{stem}.h"',
        "",
        "#include <string.h>",
        "",
        *(f"#define ACCELC_REG_{r.upper()} 0x{BY_NAME[r].offset:03x}u" for r in _REGISTERS),
        "",
        runtime,
    ]
    segments = program.segments()
    for index, (_, data) in enumerate(segments):
        lines += _bytes(f"segment{index}", data)
    lines += [
        "static const struct { uint32_t address, bytes; const uint8_t *data; } segments[] = {",
        *(f"    {{{a}u, {len(d)}u, segment{i}}}," for i, (a, d) in enumerate(segments)),
        "};",
    ]
    regions = {"in": program.inputs, "out": program.outputs}
    for kind, group in regions.items():
        for index, region in enumerate(group):
            lines += _layout(f"{kind}{index}", region, packings[region.name], program)
    lines += [
        "",
        f"int {name}_load(const struct accelc_port *port) {{",
        "    size_t i;",
        f"    if (get(port, ACCELC_REG_ID) != 0x{IDENTITY:08x}u)",
        "        return ACCELC_NO_DEVICE;",
        f"    if (get(port, ACCELC_REG_VERSION) != {ISA_VERSION}u)",
        "        return ACCELC_OTHER_VERSION;",
        f"    if (get(port, ACCELC_REG_CONFIG) != {name.upper()}_CONFIG)",
        "        return ACCELC_OTHER_CONFIG;",
        "    for (i = 0; i < sizeof segments / sizeof segments[0]; i++) {",
        "        memcpy(port->memory + segments[i].address, segments[i].data, segments[i].bytes);",
        "        to_device(port, segments[i].address, segments[i].bytes);",
        "    }",
        "    return 0;",
        "}",
        "",
        f"{_prototype(name, tensors)} {{",
        "    const int8_t *packed;",
        "    int result;",
    ]
    for index, region in enumerate(program.inputs):
        tensor = list(tensors.inputs).index(packings[region.name].value)
        lines += [
            f"    pack(&in{index}, input{tensor}, (int8_t *)port->memory + in{index}.address);",
            f"    to_device(port, in{index}.address, packed_bytes(&in{index}));",
        ]
    where = f"{program.instructions_address}u, {len(program.instructions)}u"
    lines += [
        f"    result = execute(port, {where}, {name.upper()}_MEMORY_BYTES);",
        "    if (result)",
        "        return result;",
    ]
    for index, region in enumerate(program.outputs):
        tensor = list(tensors.outputs).index(packings[region.name].value)
        lines += [
            "    if (port->invalidate)",
            f"        port->invalidate(port->context, port->memory + out{index}.address,",
            f"                         packed_bytes(&out{index}));",
            f"    packed = (const int8_t *)port->memory + out{index}.address;",
            f"    unpack(&out{index}, packed, output{tensor});",
        ]
    return "\n".join([*lines, "    return 0;", "}", ""])
