"""The C written for hosts of plain cores, compiled and run against the functional simulator."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import accelc
from accelc.artifact import Artifact
from accelc.emit_c import emit_c
from accelc.isa.errors import DeviceError, UnsupportedOpError
from accelc.isa.registers import BY_NAME, IDENTITY, ErrorCode
from accelc.isa.spec import ISA_VERSION
from accelc.session import Session
from accelc.sim.functional import FunctionalDevice

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "models" / "digits_resnet8_int8.onnx"
SHARED = ROOT.parent / "shared" / "models"
BASE = 0x4000_0000

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
CACHE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Port(ctypes.Structure):
    """``struct accelc_port``."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("read", READ),
        ("write", WRITE),
        ("memory", ctypes.c_void_p),
        ("memory_base", ctypes.c_uint32),
        ("clean", CACHE),
        ("invalidate", CACHE),
    )


class Board:
    """Registers and a memory that is not coherent: the device sees only what was cleaned."""

    def __init__(self, artifact: Artifact) -> None:
        (self.program,) = artifact.programs
        self.device = FunctionalDevice(self.program.config)
        self.device.reserve(self.program.memory_bytes)
        size = self.program.memory_bytes
        self.memory = np.full(size, 0xA5, np.uint8)
        self.registers = {
            "id": IDENTITY,
            "version": ISA_VERSION,
            "config": self.program.config.digest,
            "status": 0,
        }
        self.fails = False
        self.names = {register.offset: name for name, register in BY_NAME.items()}
        address = self.memory.ctypes.data

        def clean(_, start: int, count: int) -> None:
            place = start - address
            self.device.write(place, self.memory[place : place + count].tobytes())

        def invalidate(_, start: int, count: int) -> None:
            place = start - address
            data = self.device.read(place, count)
            self.memory[place : place + count] = np.frombuffer(data, np.uint8)

        self.port = Port(
            None,
            READ(lambda _, offset: self.registers.get(self.names[offset], 0)),
            WRITE(self._write),
            address,
            BASE,
            CACHE(clean),
            CACHE(invalidate),
        )

    def _write(self, _, offset: int, value: int) -> None:
        name = self.names[offset]
        if name != "control":
            self.registers[name] = value
        elif value == 2:
            self.registers["status"] = 0
        else:
            program = self.program
            expected = {
                "program_address": program.instructions_address,
                "program_length": len(program.instructions),
                "memory_base": BASE,
                "memory_bytes": program.memory_bytes,
            }
            assert {name: self.registers[name] for name in expected} == expected
            if self.fails:
                self.registers |= {"status": 4, "error": int(ErrorCode.READ_RESPONSE)}
                return
            try:
                self.device.run(program)
                self.registers["status"] = 2
            except DeviceError:
                self.registers |= {"status": 4, "error": int(ErrorCode.WATCHDOG)}


def build(artifact: Artifact, folder: Path) -> ctypes.CDLL:
    for suffix, text in emit_c(artifact, "net").items():
        (folder / f"net{suffix or '.c'}").write_text(text)
    strict = "-std=c99 -Wall -Wextra -Wconversion -pedantic -Werror -O1".split()
    subprocess.run(
        ["gcc", *strict, "-shared", "-fPIC", "-o", "net.so", "net.c"], cwd=folder, check=True
    )
    return ctypes.CDLL(str(folder / "net.so"))


def check(artifact: Artifact, folder: Path, seed: int) -> None:
    print(f"seed {seed}")
    library, board = build(artifact, folder), Board(artifact)
    assert library.net_load(ctypes.byref(board.port)) == 0
    step = next(step for step in artifact.model.steps if step.program is not None)
    assert step.program is not None and step.packings is not None
    rng = np.random.default_rng(seed)
    inputs = {
        packing.value: rng.integers(-128, 128, packing.shape).astype(np.int8)
        for packing in (step.packings[region.name] for region in step.program.inputs)
    }
    outputs = {
        packing.value: np.zeros(packing.shape, np.int8)
        for packing in (step.packings[region.name] for region in step.program.outputs)
    }
    pointers = [
        array.ctypes.data_as(ctypes.c_void_p) for array in (*inputs.values(), *outputs.values())
    ]
    for _ in range(2):
        assert library.net_run(ctypes.byref(board.port), *pointers) == 0
    session = Session(artifact, "functional")
    runner = next(s for s in session._steps if hasattr(s, "device"))  # pyright: ignore
    expected = runner.run(dict(inputs))  # pyright: ignore
    for name, array in outputs.items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize("config", ["1x16x16", "2x16x16", "1x4x8"])
def test_the_shipped_network(config: str, tmp_path: Path) -> None:
    check(accelc.compile(str(DIGITS), config=config), tmp_path, 1)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/models")
@pytest.mark.parametrize("name", ["t_kws_dscnn_q", "t_vww_q"])
def test_networks_with_few_input_channels(name: str, tmp_path: Path) -> None:
    check(accelc.compile(str(SHARED / f"{name}.onnx"), config="1x8x8"), tmp_path, 2)


@pytest.mark.parametrize("config", ["1x16x16", "2x16x16", "1x4x8"])
def test_a_product_of_two_inputs(config: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        product (int8[3,9,20] a, int8[3,20,11] b) => (int8[3,9,11] y)
        <float s = {0.05}, float t = {2.0}, int8 z = {0}>
        { y = QLinearMatMul (a, s, z, b, s, z, t, z) }""")
    check(accelc.compile(model, config=config), tmp_path, 3)


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    artifact = accelc.compile(str(DIGITS), config="1x8x8")
    library, board = build(artifact, tmp_path), Board(artifact)
    port = ctypes.byref(board.port)
    wrong = {"id": -1, "version": -2, "config": -3}
    for name, result in wrong.items():
        right = board.registers[name]
        board.registers[name] = right ^ 1
        assert library.net_load(port) == result
        board.registers[name] = right
    board.fails = True
    buffer = (ctypes.c_int8 * 1000)()
    assert library.net_run(port, buffer, buffer) == ErrorCode.READ_RESPONSE
    assert board.registers["status"] == 0


def test_a_network_in_two_regions_is_refused() -> None:
    artifact = accelc.compile(str(DIGITS), target="cpu")
    with pytest.raises(UnsupportedOpError, match="0 regions"):
        emit_c(artifact, "net")
