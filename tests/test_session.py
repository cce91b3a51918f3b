"""Sessions: every device gives the same bits, inputs are checked, costs are reported."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import accelc
from accelc.artifact import Artifact
from accelc.configuration import resolve
from accelc.evaluate import compare, evaluate
from accelc.inputs import random_inputs, read_labelled
from accelc.isa.config import PRESETS, REFERENCE, AccelConfig
from accelc.isa.errors import ConfigError, InputError
from accelc.isa.program import Layer, Program
from accelc.session import Session, layer_reports
from accelc.sim.device import Counters, MemoryModel

MODELS = Path(__file__).parents[1] / "models"
MODEL = MODELS / "digits_resnet8_int8.onnx"


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return accelc.compile(MODEL, config="1x4x4")


def image(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"image": rng.random((1, 1, 8, 8), np.float32)}


def test_all_devices_agree(artifact: Artifact) -> None:
    inputs = image()
    reference = accelc.load(artifact, "golden").run(inputs)
    assert list(reference) == ["logits"]
    for device in ("functional", "cpu"):
        result = accelc.load(artifact, device).run(inputs)
        assert result["logits"].dtype == np.float32
        assert result["logits"].tobytes() == reference["logits"].tobytes(), device


def test_the_cpu_target_agrees_too(artifact: Artifact) -> None:
    cpu = accelc.compile(MODEL, "cpu")
    assert cpu.programs == ()
    assert cpu.config is None
    expected = accelc.load(artifact).run(image(1))["logits"]
    # a session for an artifact without accelerator runs on the CPU whatever its device
    assert accelc.load(cpu).run(image(1))["logits"].tobytes() == expected.tobytes()


def test_runs_do_not_remember(artifact: Artifact) -> None:
    session = accelc.load(artifact)
    first = session.run(image(1))["logits"].copy()
    session.run(image(2))
    assert session.run(image(1))["logits"].tobytes() == first.tobytes()


def test_accuracy_on_the_whole_labelled_set(artifact: Artifact) -> None:
    session = accelc.load(artifact)
    labelled = read_labelled(MODELS / "digits_test.npz", session.inputs, None)
    tallies, differences = evaluate([session], labelled.batches(), [None])
    assert differences == []
    assert (tallies[0].correct, tallies[0].labelled) == (446, 450)


def test_a_batch_of_several_images() -> None:
    session = accelc.load(accelc.compile(MODEL, dims={"batch": 4}, config="1x4x4"))
    labelled = read_labelled(MODELS / "digits_test.npz", session.inputs, 10)
    tallies, _ = evaluate([session], labelled.batches(), [None])
    assert tallies[0].batches == 3
    assert tallies[0].labelled == 10  # the padding of the last batch has no labels
    single = accelc.load(accelc.compile(MODEL, config="1x4x4"))
    alone, _ = evaluate(
        [single], read_labelled(MODELS / "digits_test.npz", single.inputs, 10).batches(), [None]
    )
    assert tallies[0].correct == alone[0].correct


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "^input 'image' is missing$"),
        ({"image": np.zeros((1, 8, 8, 1), np.float32)},
         r"^input 'image' must be float32 \[1, 1, 8, 8\], not float32 \[1, 8, 8, 1\]$"),
        ({"image": np.zeros((1, 1, 8, 8), np.float64)},
         r"^input 'image' must be float32 \[1, 1, 8, 8\], not float64 \[1, 1, 8, 8\]$"),
        ({"picture": np.zeros((1, 1, 8, 8), np.float32)},
         "^input 'image' is missing; there is no input 'picture', only image$"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_one_error(
    artifact: Artifact, inputs: dict[str, np.ndarray], message: str
) -> None:
    session = accelc.load(artifact)
    with pytest.raises(InputError, match=message):
        session.run(inputs)
    session.run(image())


def test_an_array_without_its_name_is_refused(artifact: Artifact) -> None:
    session: Any = accelc.load(artifact)
    with pytest.raises(InputError, match="arrays by name .image., not ndarray"):
        session.run(image(1)["image"])


def test_objects_name_themselves_in_a_line(artifact: Artifact) -> None:
    name = artifact.model.graph.name
    assert repr(artifact) == f"<Artifact of network {name!r} for accelerator 1x4x4>"
    assert repr(accelc.load(artifact, "cpu")) == f"<Session of network {name!r} on cpu>"


def test_unknown_devices_are_refused(artifact: Artifact) -> None:
    with pytest.raises(InputError, match="^there is no device 'fpga'; there are golden, func"):
        accelc.load(artifact, "fpga")


def test_functional_counts_bytes(artifact: Artifact) -> None:
    session = accelc.load(artifact)
    session.run(image())
    program = artifact.programs[0]
    (counters,) = session.counters
    fetched = 64 * len(program.instructions)
    moved = sum(layer.dram_bytes for layer in program.layers)
    assert counters.read_bytes + counters.write_bytes == fetched + moved
    assert session.cycles == 0
    assert [layer.name for layer in session.layers] == [layer.name for layer in program.layers]
    assert all(layer.cycles == 0 and layer.utilisation == 0 for layer in session.layers)


def test_layers_split_the_cycles() -> None:
    layers = tuple(
        Layer(name=name, op="int.conv", first=first, last=last, macs=macs, moved_bytes=moved,
              dram_bytes=2 * moved)
        for name, first, last, macs, moved in (("a", 0, 1, 1600, 80), ("b", 2, 3, 16, 801))
    )  # fmt: skip
    program = Program(
        config=PRESETS["1x4x4"], instructions=(), instructions_address=0, memory_bytes=0,
        layers=layers,
    )  # fmt: skip
    counters = Counters(cycles=420, retired=np.array([100, 200, 300, 400]))
    a, b = layer_reports(program, counters, MemoryModel())
    assert (a.cycles, a.limit_cycles, a.utilisation) == (200, 100, 0.5)
    # 801 bytes over the 4 bytes a cycle of this configuration's bus
    assert (b.cycles, b.limit_cycles, b.dram_bytes) == (200, 201, 1602)


def test_compare_names_what_differs() -> None:
    a = {"x": np.array([1.0, 2.0, np.nan], np.float32), "y": np.array([1], np.int8)}
    b = {"x": np.array([1.0, 3.0, np.nan], np.float32), "y": np.array([1], np.int8)}
    assert compare(0, "rtl", a, {k: v.copy() for k, v in a.items()}) == []
    (difference,) = compare(7, "rtl", a, b)
    assert (difference.batch, difference.device, difference.output) == (7, "rtl", "x")
    assert (difference.differing, difference.elements) == (1, 3)
    assert compare(0, "rtl", {"x": np.zeros(1)}, {"x": -np.zeros(1)})


def small_model(op: str = "Relu") -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_models_without_integers_run_on_the_cpu() -> None:
    artifact = accelc.compile(small_model(), dims={"n": 2})
    assert artifact.programs == ()
    x = np.array([[-1, 0, 1], [2, -3, 4]], np.float32)
    again = Artifact.from_bytes(artifact.to_bytes())
    for one in (artifact, again):
        assert Session(one).run({"x": x})["y"].tolist() == np.maximum(x, 0).tolist()


def test_random_inputs_are_repeatable(artifact: Artifact) -> None:
    types = accelc.load(artifact).inputs
    a, b, c = (random_inputs(types, seed)["image"] for seed in (1, 1, 2))
    assert a.tobytes() == b.tobytes() != c.tobytes()


class TestLabelled:
    def write(self, path: Path, **arrays: np.ndarray) -> Path:
        np.savez(path / "data.npz", allow_pickle=True, **arrays)
        return path / "data.npz"

    def test_pixels_become_int8(self, tmp_path: Path, artifact: Artifact) -> None:
        types = {"x": accelc.load(artifact).inputs["image"].__class__((1, 2), np.dtype("int8"))}
        path = self.write(tmp_path, x=np.array([[0, 255]], np.uint8), y=np.array([1]))
        labelled = read_labelled(path, types, None)
        assert labelled.x.tolist() == [[-128, 127]]
        assert labelled.notes == ("uint8 data minus 128 is the network's int8 input",)

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"x": np.zeros((2, 1, 8, 8), np.float32)}, "must be an .npz with arrays x and y"),
            ({"x": np.zeros((2, 1, 8, 8), np.float32), "y": np.zeros(3)}, "need one label each"),
            ({"x": np.zeros((2, 7), np.float32), "y": np.zeros(2)}, r"a sample is \[7\]"),
            ({"x": np.zeros((2, 64), np.int16), "y": np.zeros(2)}, "x is int16, the network takes"),
        ],
    )
    def test_wrong_data_is_one_error(
        self, tmp_path: Path, artifact: Artifact, arrays: dict[str, np.ndarray], message: str
    ) -> None:
        path = self.write(tmp_path, **arrays)
        with pytest.raises(InputError, match=message):
            read_labelled(path, accelc.load(artifact).inputs, None)

    def test_other_files_are_one_error(self, tmp_path: Path, artifact: Artifact) -> None:
        path = tmp_path / "data.npz"
        path.write_bytes(b"PK\x03\x04 broken")
        with pytest.raises(InputError, match="must be an .npz with arrays x and y"):
            read_labelled(path, accelc.load(artifact).inputs, None)


class TestConfiguration:
    def test_names_objects_and_nothing(self) -> None:
        assert resolve(None) is REFERENCE
        assert resolve("1x8x8") is PRESETS["1x8x8"]
        assert resolve(PRESETS["1x4x4"]) is PRESETS["1x4x4"]

    def test_files(self, tmp_path: Path) -> None:
        toml = tmp_path / "mine.toml"
        toml.write_text('base = "1x8x8"\ninp_rows = 4096\n')
        config = resolve(toml)
        assert (config.name, config.block_in, config.inp_rows) == ("mine", 8, 4096)
        full = tmp_path / "full.json"
        full.write_text('{"name": "full", "vin_rows": 1024}')
        assert resolve(full) == AccelConfig(name="full", vin_rows=1024)

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("a.json", "{", "is not JSON"),
            ("a.toml", "x = ", "is not TOML"),
            ("a.json", "[]", "must hold an object of parameters, not list"),
            ("a.json", '{"blocks": 1}', "unknown configuration keys"),
            ("a.json", '{"base": "9x9"}', "base must be one of 1x16x16"),
            ("a.json", '{"batch": 3}', "batch must be a power of two, not 3"),
            ("a.json", '{"batch": "1"}', "batch must be an integer, not '1'"),
        ],
    )
    def test_wrong_files(self, tmp_path: Path, name: str, text: str, message: str) -> None:
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=message):
            resolve(tmp_path / name)

    @pytest.mark.parametrize("name", ["none.json", "2x2"])
    def test_missing(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ConfigError, match="cannot read configuration|there is no config"):
            resolve(str(tmp_path / name) if "." in name else name)
