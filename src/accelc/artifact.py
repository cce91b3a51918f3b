"""A compiled network in one file.

An ``.accel`` file is a zip archive: ``manifest.json`` (versions, target, configuration, steps),
``graph.json`` (the typed graph and the placement report), ``arrays.bin`` (its constants) and per
accelerator step ``program<n>.json`` (memory map, layers), ``program<n>.bin`` (encoded
instructions) and ``program<n>.data`` (constants in device memory). Nothing in it is executable by
Python, and equal compilations make equal files.
"""

import io
import json
import mmap
import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

import accelc
from accelc.compiler.layout import Packing
from accelc.compiler.onnx_weights import release
from accelc.compiler.partition import Place, subgraphs
from accelc.compiler.pipeline import CompiledModel, Step
from accelc.compiler.place import TARGETS
from accelc.files import write_atomically
from accelc.isa.codec import decode_all, encode_all
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.errors import AccelcError, ArtifactError
from accelc.isa.program import Program
from accelc.isa.spec import ISA_VERSION
from accelc.values import ALIGNMENT, Reader, Writer

FORMAT = "accelc artifact"
#: Raised whenever a file of the old form could be misread.
FORMAT_VERSION = 1
#: Every entry's time stamp, so that equal content gives equal files.
_EPOCH = (1980, 1, 1, 0, 0, 0)
#: The entry with the constants.
ARRAYS = "arrays.bin"
#: Constants of this size together are mapped from a file, not read.
MAPPED_BYTES = 1 << 20
#: Read at once to check the constants of a file.
CHECKED_BYTES = 1 << 24
#: Number and size of an extra field of a zip entry; the number is the one others align with, too.
_EXTRA = struct.Struct("<HH")
_PADDING_FIELD = 0xD935
#: A zip entry's header, of which the lengths of name and extra fields matter.
_LOCAL_HEADER = struct.Struct("<26xHH")
#: The extra field of an entry of more than 4 GiB.
_ZIP64_BYTES = 20
#: Width of the addresses in instructions.
ADDRESS_BITS = 32


def _step_manifest(index: int, step: Step) -> dict[str, Any]:
    name = f"program{index}" if step.program is not None else None
    return {"place": step.place.name, "nodes": list(step.nodes), "program": name}


def _program_entries(name: str, step: Step) -> dict[str, bytes]:
    program = step.program
    if program is None:
        raise AssertionError("only accelerator steps have a program")
    writer = Writer()
    form = {
        "instructions_address": program.instructions_address,
        "memory_bytes": program.memory_bytes,
        "constants": [[address, len(data)] for address, data in program.constants],
        "inputs": writer.encode(program.inputs),
        "outputs": writer.encode(program.outputs),
        "regions": writer.encode(program.regions),
        "layers": writer.encode(program.layers),
        "packings": writer.encode(dict(step.packings or {})),
    }
    return {
        f"{name}.json": json.dumps(form).encode(),
        f"{name}.bin": encode_all(program.instructions),
        f"{name}.data": b"".join(data for _, data in program.constants),
    }


def _read_program(
    archive: zipfile.ZipFile, name: str, config: AccelConfig
) -> tuple[Program, dict[str, Packing]]:
    form = json.loads(archive.read(f"{name}.json"))
    data = archive.read(f"{name}.data")
    reader = Reader(b"")
    constants: list[tuple[int, bytes]] = []
    offset = 0
    for address, nbytes in form["constants"]:
        constants.append((address, data[offset : offset + nbytes]))
        offset += nbytes
    program = Program(
        config=config,
        instructions=decode_all(archive.read(f"{name}.bin")),
        instructions_address=form["instructions_address"],
        memory_bytes=form["memory_bytes"],
        constants=tuple(constants),
        inputs=reader.decode(form["inputs"]),
        outputs=reader.decode(form["outputs"]),
        regions=reader.decode(form["regions"]),
        layers=reader.decode(form["layers"]),
    )
    _check_addresses(program)
    return program, reader.decode(form["packings"])


def _check_addresses(program: Program) -> None:
    """Refuse a memory no program addresses, and what lies outside of it.

    Raises:
        ValueError: naming the first range that is out of bounds.
    """
    size = program.memory_bytes
    if not 0 < size <= 1 << ADDRESS_BITS:
        raise ValueError(f"a memory of {size} bytes")
    ranges = [(program.instructions_address, len(program.instructions) * INSTRUCTION_BYTES)]
    ranges += [(address, len(data)) for address, data in program.constants]
    ranges += [(region.address, region.nbytes) for region in (*program.inputs, *program.outputs)]
    for address, nbytes in ranges:
        if address < 0 or nbytes < 0 or address + nbytes > size:
            raise ValueError(f"{nbytes} bytes at {address}, beyond its memory of {size} bytes")


@dataclass(frozen=True)
class Artifact:
    """A compiled network: what :func:`accelc.compile` returns and a session runs."""

    model: CompiledModel

    def __repr__(self) -> str:
        place = "the CPU" if self.config is None else f"accelerator {self.config.name}"
        return f"<Artifact of network {self.model.graph.name!r} for {place}>"

    @property
    def config(self) -> AccelConfig | None:
        return self.model.config

    @property
    def programs(self) -> tuple[Program, ...]:
        """Programs of the accelerator steps, in execution order."""
        return tuple(step.program for step in self.model.steps if step.program is not None)

    def to_bytes(self) -> bytes:
        """The content of an ``.accel`` file."""
        buffer = io.BytesIO()
        self.write(buffer)
        return buffer.getvalue()

    def write(self, file: BinaryIO) -> None:
        """Write the content of an ``.accel`` file, the constants piece by piece."""
        model = self.model
        writer = Writer()
        graph = {
            "graph": writer.encode(model.graph),
            "placements": writer.encode(model.placements),
        }
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "accelc_version": accelc.__version__,
            "isa_version": ISA_VERSION,
            "target": model.target,
            "config": None if model.config is None else model.config.to_dict(),
            "config_digest": None if model.config is None else model.config.digest,
            "steps": [_step_manifest(index, step) for index, step in enumerate(model.steps)],
        }
        entries = {
            "manifest.json": json.dumps(manifest, indent=1).encode(),
            "graph.json": json.dumps(graph).encode(),
        }
        for index, step in enumerate(model.steps):
            if step.program is not None:
                entries |= _program_entries(f"program{index}", step)
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in entries.items():
                # weights hardly compress, instructions and text do tenfold
                packed = not name.endswith(".data")
                info = zipfile.ZipInfo(name, _EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
                archive.writestr(info, data)
            _write_arrays(archive, writer, file.tell())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to ``path``; on failure what was there before stays.

        Raises:
            OutputError: the file cannot be written.
        """
        write_atomically(path, self.write)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "artifact") -> "Artifact":
        """Read what :meth:`to_bytes` made.

        Raises:
            ArtifactError: not an artifact, damaged, or of another version.
        """
        return cls._read(io.BytesIO(data), name)

    @classmethod
    def _read(cls, file: BinaryIO, name: str) -> "Artifact":
        try:
            with zipfile.ZipFile(file) as archive:
                manifest = json.loads(archive.read("manifest.json"))
                if manifest["format"] != FORMAT:
                    raise ArtifactError(f"{name} is not an accelc artifact")
                _check_version(name, "format version", manifest["format_version"], FORMAT_VERSION)
                _check_version(name, "ISA version", manifest["isa_version"], ISA_VERSION)
                return cls(_read_model(archive, manifest, name))
        except ArtifactError:
            raise
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise ArtifactError(
                f"{name} is not an accelc artifact, or is damaged ({error}); "
                "make one with: accelc compile MODEL.onnx -o OUT.accel"
            ) from error
        except (AccelcError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise ArtifactError(
                f"{name} is damaged ({type(error).__name__}: {error}); compile the model again"
            ) from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Artifact":
        """Read an ``.accel`` file. Large constants stay in it: it must not be changed while the
        artifact is used (being replaced by another file is no change).

        Raises:
            ArtifactError: the file is missing, not an artifact, damaged, or of another version.
        """
        try:
            file = open(path, "rb")
        except OSError as error:
            raise ArtifactError(f"cannot read {os.fspath(path)}: {error.strerror}") from error
        with file:
            return cls._read(file, os.fspath(path))


def _write_arrays(archive: zipfile.ZipFile, writer: Writer, position: int) -> None:
    """Add the constants so that each starts at a multiple of ``ALIGNMENT`` in the file, too.

    ``position`` is where the archive ends so far. An extra field of the entry fills the gap.
    """
    info = zipfile.ZipInfo(ARRAYS, _EPOCH)
    info.file_size = writer.nbytes
    large = info.file_size * 1.05 > zipfile.ZIP64_LIMIT  # where zipfile adds a field of its own
    header = _LOCAL_HEADER.size + len(ARRAYS) + (_ZIP64_BYTES if large else 0)
    gap = -(position + header + _EXTRA.size) % ALIGNMENT
    info.extra = _EXTRA.pack(_PADDING_FIELD, gap) + bytes(gap)
    with archive.open(info, "w") as entry:
        for chunk in writer.chunks():
            entry.write(chunk)


def _read_arrays(archive: zipfile.ZipFile) -> bytes | memoryview:
    """The constants: where they are in a file, mapped; else copied.

    Raises:
        BadZipFile: they are damaged.
    """
    info, file = archive.getinfo(ARRAYS), archive.fp
    stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
    if file is None or isinstance(file, io.BytesIO) or not stored or info.file_size < MAPPED_BYTES:
        return archive.read(ARRAYS)
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size:
        raise zipfile.BadZipFile("truncated")
    start = info.header_offset + _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack(header))
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if start + info.file_size > len(mapped):
        raise zipfile.BadZipFile("truncated")
    view = memoryview(mapped)[start : start + info.file_size]
    checksum = 0
    for at in range(0, info.file_size, CHECKED_BYTES):
        part = np.frombuffer(view, np.uint8)[at : at + CHECKED_BYTES]
        checksum = zlib.crc32(part.data, checksum)
        release(part)
    if checksum != info.CRC:
        raise zipfile.BadZipFile(f"bad checksum of {ARRAYS!r}")
    return view


def _check_version(name: str, what: str, found: object, expected: int) -> None:
    if found != expected:
        raise ArtifactError(
            f"{name} has {what} {found}, this accelc reads {expected}; compile the model again"
        )


def _read_model(archive: zipfile.ZipFile, manifest: dict[str, Any], name: str) -> CompiledModel:
    config = None
    if manifest["config"] is not None:
        config = AccelConfig.from_dict(manifest["config"])
        if config.digest != manifest["config_digest"]:
            raise ArtifactError(
                f"{name} was compiled for configuration {config.name!r} with fingerprint "
                f"{manifest['config_digest']:08x}, which is {config.digest:08x} here; "
                "compile the model again"
            )
    if manifest["target"] not in TARGETS:
        raise ValueError(f"there is no target {manifest['target']!r}")
    form = json.loads(archive.read("graph.json"))
    reader = Reader(_read_arrays(archive))
    graph = reader.decode(form["graph"])
    steps: list[Step] = []
    members = [tuple(entry["nodes"]) for entry in manifest["steps"]]
    parts = subgraphs(graph, members, [f"{graph.name}.{k}" for k in range(len(members))])
    for index, (entry, part) in enumerate(zip(manifest["steps"], parts, strict=True)):
        nodes, place = members[index], Place[entry["place"]]
        program, packings = None, None
        if (entry["program"] is not None) != (place is Place.ACCELERATOR):
            raise ValueError(f"step {index} is on the {place.name}, its program {entry['program']}")
        if place is Place.ACCELERATOR:
            if config is None:
                raise ValueError("a program without a configuration")
            program, packings = _read_program(archive, entry["program"], config)
        steps.append(Step(place, nodes, part, program, packings))
    if sorted(node for step in steps for node in step.nodes) != list(range(len(graph.nodes))):
        raise ValueError("its steps are not its network")
    return CompiledModel(
        manifest["target"], config, graph, tuple(steps), reader.decode(form["placements"])
    )
