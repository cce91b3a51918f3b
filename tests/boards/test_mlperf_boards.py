"""A simulated board answers the MLPerf Tiny runner through its serial line, and nothing else."""

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
import serial
from numpy.typing import NDArray
from onnx import TensorProto, helper

import accelc
from accelc.artifact import Artifact
from accelc.boards.link.host import BoardDevice, Connection
from accelc.boards.mlperf.protocol import BAUD, READY
from accelc.boards.registry import find
from accelc.boards.simulate import SimulatedPort, simulated_port
from accelc.command.mlperf import SIMULATED_CYCLES_PER_BIT
from accelc.mlperf import install
from accelc.session import Session

pytestmark = pytest.mark.rtl

BOARD = find("tang-nano-20k")
#: As the runner sends inputs: hexadecimal, so many bytes a command.
CHUNK_BYTES = 31
#: Without a byte; the machine may have other things to do.
SECONDS = 300
#: The board's greeting takes ten thousand cycles.
GREETING_SECONDS = 5
RUNS, WARMUPS = 3, 1
#: At most, for the processor to start a run and to see its end.
START_CYCLES = 1500
CLASSES = 5
FLOATS = 24

Array = NDArray[Any]


def quantized(name: str, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT8, shape)


def dequantized_input(networks: ModuleType, builder: Any, channels: int, size: int) -> Any:
    """An int8 input ``image`` of real numbers around 0."""
    parameters = [
        builder.constant("image_scale", np.float32(0.03)),
        builder.constant("image_zero", np.int8(-3)),
    ]
    name = builder.node("DequantizeLinear", ["image", *parameters], "image_dq")
    return networks.Value(name, channels, size, 0.0, 1.0, 0.03, -3)


def model(builder: Any, source: list[int], result: onnx.ValueInfoProto) -> onnx.ModelProto:
    graph = helper.make_graph(
        builder.nodes, "small", [quantized("image", source)], [result], builder.constants
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def classifier(networks: ModuleType) -> onnx.ModelProto:
    """``(1, 1, 8, 8)`` int8 to as many probabilities as there are classes, in int8."""
    b = networks.Builder(seed=5)
    x = b.conv_relu(dequantized_input(networks, b, 1, 8), "conv1", 8, 3, 2)
    x = b.conv_relu(x, "conv2", 8, 3, 2, groups=8)
    y = b.node("GlobalAveragePool", [x.name], "pool")
    x = b.quantize(y, "pool", 8, 1, x.mean, x.square, 0.0)
    x = b.conv_linear(x, "classes", CLASSES, 1)
    flat = b.node("Flatten", [x.name], "flat", axis=1)
    parameters = [
        b.constant("result_scale", np.float32(1 / 256)),
        b.constant("result_zero", np.int8(-128)),
    ]
    b.node("QuantizeLinear", [b.node("Softmax", [flat], "softmax"), *parameters], "result")
    return model(b, [1, 1, 8, 8], quantized("result", [1, CLASSES]))


def autoencoder(networks: ModuleType) -> onnx.ModelProto:
    """int8 numbers to as many."""
    b = networks.Builder(seed=6)
    x = b.conv_relu(dequantized_input(networks, b, FLOATS, 1), "encode", 8, 1)
    b.conv_linear(x, "decode", FLOATS, 1)
    assert b.nodes.pop().op_type == "DequantizeLinear"
    shape = [1, FLOATS, 1, 1]
    return model(b, shape, quantized("decode_q", shape))


class Runner:
    """The benchmark's end of the line."""

    def __init__(self, port: str) -> None:
        """Wait for the end of what the board says unasked, whose start may have come before."""
        self._port = serial.Serial(port, BAUD, timeout=GREETING_SECONDS)
        while self._port.read(64):
            pass
        self._port.timeout = SECONDS

    def answer(self, command: str) -> str:
        """What comes up to and without the board's ``m-ready`` after ``command``."""
        self._port.write(f"{command}%".encode())
        text = self._port.read_until(READY.encode()).decode()
        assert text.endswith(READY), f"{command!r}: {text!r}"
        return text.removesuffix(READY)

    def load(self, data: bytes) -> None:
        """Send an input in as many commands as it takes."""
        assert self.answer(f"db load {len(data)}") == f"m-[Expecting {len(data)} bytes]\r\n"
        for start in range(0, len(data), CHUNK_BYTES):
            chunk = data[start : start + CHUNK_BYTES]
            last = start + CHUNK_BYTES >= len(data)
            assert self.answer(f"db {chunk.hex()}") == ("m-load-done\r\n" if last else "")

    def infer(self) -> tuple[int, list[float]]:
        """Microseconds that RUNS runs took, and the results."""
        text = self.answer(f"infer {RUNS} {WARMUPS}")
        dialogue = re.fullmatch(
            rf"m-warmup-start-{WARMUPS}\r\nm-warmup-done\r\nm-infer-start-{RUNS}\r\n"
            r"m-lap-us-(\d+)\r\nm-lap-us-(\d+)\r\nm-infer-done\r\nm-results-\[(.*)\]\r\n",
            text,
        )
        assert dialogue, text
        assert self.answer("results") == f"m-results-[{dialogue[3]}]\r\n"
        first, second = int(dialogue[1]), int(dialogue[2])
        return second - first, [float(number) for number in dialogue[3].split(",")]

    def close(self) -> None:
        self._port.close()


@pytest.fixture(scope="module")
def board() -> Iterator[SimulatedPort]:
    with simulated_port(BOARD, cycles_per_bit=SIMULATED_CYCLES_PER_BIT) as port:
        yield port


def handed_over(board: SimulatedPort, artifact: Artifact, benchmark: str) -> tuple[Runner, int]:
    """The runner of a board that has just been given to it, and the cycles of an inference."""
    (program,) = artifact.programs
    # whoever had the line before: it is the host's again
    board.send_break()
    with Connection(board.port, patience=SECONDS) as connection:
        device = BoardDevice(BOARD.config, connection)
        device.load(program)
        cycles = device.run(program).cycles
        connection.release(0)
        install(artifact, benchmark, connection)
    runner = Runner(board.port)
    assert runner.answer("name") == f"m-name-dut-[accelc-{BOARD.name}]\r\n"
    assert runner.answer("profile").endswith(f"m-model-[{benchmark}]\r\n")
    return runner, cycles


def check_time(microseconds: int, cycles: int) -> None:
    """RUNS runs lie between the laps, and little else: a line of text, and starting them.

    When the SDRAM is refreshed is not the same every time.
    """
    text = 10 * SIMULATED_CYCLES_PER_BIT * len("m-lap-us-1234567\r\n")
    runs = RUNS * cycles
    least, most = 0.98 * runs, 1.02 * runs + text + RUNS * START_CYCLES
    assert least <= microseconds * BOARD.clock_hz / 1e6 <= most


def test_the_dialogue_of_a_classifier(board: SimulatedPort, networks: ModuleType) -> None:
    artifact = accelc.compile(classifier(networks), "vta", BOARD.config)
    runner, cycles = handed_over(board, artifact, "kws01")
    session = Session(artifact)
    rng = np.random.default_rng(7)
    seen: set[bytes] = set()
    for _ in range(3):
        image = rng.integers(-128, 128, (1, 1, 8, 8), np.int8)
        runner.load(image.tobytes())
        microseconds, results = runner.infer()
        check_time(microseconds, cycles)
        (wanted,) = session.run({"image": image}).values()
        seen.add(wanted.tobytes())
        # in steps of 1/256, of which three digits are printed; rounded half up and half to even
        steps = (wanted.reshape(-1).astype(int) + 128) / 256
        assert np.abs(np.array(results) - steps).max() <= 1.26 / 256
    assert len(seen) == 3
    runner.close()


def test_the_dialogue_of_the_autoencoder(board: SimulatedPort, networks: ModuleType) -> None:
    artifact = accelc.compile(autoencoder(networks), "vta", BOARD.config)
    runner, cycles = handed_over(board, artifact, "ad01")
    session = Session(artifact)
    graph = artifact.model.graph
    scales, zeros = [], []
    for name in (*graph.inputs, *graph.outputs):
        quant = graph.types[name].quant
        assert quant is not None
        scales.append(quant.scale.item())
        zeros.append(quant.zero_point.item())
    floats = np.random.default_rng(8).normal(size=FLOATS).astype("<f4")
    runner.load(floats.tobytes())
    microseconds, (error,) = runner.infer()
    check_time(microseconds, cycles)
    image = np.clip(np.rint(floats / np.float32(scales[0])) + zeros[0], -128, 127).astype(np.int8)
    (copy,) = session.run({"image": image.reshape(1, FLOATS, 1, 1)}).values()
    values = (copy.reshape(-1).astype(float) - zeros[1]) * scales[1]
    # the board has 8 bits behind the point
    assert abs(error - np.mean((floats - values) ** 2)) < 0.02
    assert error > 0.1
    runner.close()
