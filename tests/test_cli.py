"""The command line: forms that are relied on, help, errors of one line, exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from accelc.command.main import ExitCode, cli, run
from accelc.isa.codec import decode_all

MODELS = Path(__file__).parents[1] / "models"
MODEL = MODELS / "digits_resnet8_int8.onnx"
DATA = MODELS / "digits_test.npz"
COMMANDS = sorted(cli.commands)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "digits.accel"
    assert run(["compile", str(MODEL), "-o", str(path), "--config", "1x4x4", "-q"]) == 0
    return path


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def accelc(command: Any) -> Any:
    return lambda *arguments: Result(*command(*arguments))


def assert_one_error(result: Result, code: ExitCode, *parts: str) -> None:
    errors = [line for line in result.err.splitlines() if not line.startswith("note: ")]
    assert len(errors) == 1, result.err
    assert errors[0].startswith("error: ")
    assert "Traceback" not in result.err
    for part in parts:
        assert part in errors[0]
    assert result.code == code


class TestHelp:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_command_teaches_by_example(self, command: str) -> None:
        text = CliRunner().invoke(cli, [command, "--help"]).output
        assert "Examples:" in text
        assert f"accelc {command}" in text

    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_option_is_explained(self, command: str) -> None:
        for parameter in cli.commands[command].params:
            if parameter.param_type_name == "option":
                assert getattr(parameter, "help", None), f"{command} {parameter.opts}"

    def test_the_overview_lists_commands_and_exit_codes(self, accelc: Any) -> None:
        result = accelc("--help")
        assert result.code == 0
        for command in COMMANDS:
            assert f"\n  {command} " in result.out
        assert "Exit codes:" in result.out

    def test_without_arguments_there_is_help(self, accelc: Any) -> None:
        result = accelc()
        assert result.code == ExitCode.USER_ERROR
        assert "Usage: accelc" in result.out + result.err

    def test_module_and_command_are_the_same(self) -> None:
        result = subprocess.run(
            [sys.executable, "-m", "accelc", "--version"], capture_output=True, text=True
        )
        assert result.returncode == 0
        assert result.stdout.startswith("accelc, version ")


class TestCompile:
    def test_writes_an_artifact_and_says_what_runs_where(self, accelc: Any, tmp_path: Path) -> None:
        out = tmp_path / "out.accel"
        result = accelc("compile", "--target", "vta", MODEL, "-o", out, "--config", "1x4x4")
        assert result.code == 0
        assert "note: symbolic batch dimension 'batch' set to 1\n" in result.err
        assert "nodes on the accelerator 1x4x4" in result.out
        assert "image/quantize (QuantizeLinear): quantization of an input" in result.out
        assert out.stat().st_size > 10_000

    def test_the_cpu_target(self, accelc: Any, tmp_path: Path) -> None:
        out = tmp_path / "out.accel"
        assert accelc("compile", "--target", "cpu", MODEL, "-o", out).code == 0
        result = accelc("run", out, "--on", "cpu", "--json")
        assert (result.code, result.json["device"]) == (0, "cpu")

    def test_dimensions(self, accelc: Any, tmp_path: Path) -> None:
        out = tmp_path / "out.accel"
        arguments = ("compile", MODEL, "-o", out, "--config", "1x4x4")
        assert accelc(*arguments, "--dim", "batch=2").code == 0
        shape = accelc("run", out, "--json").json["outputs"]["logits"]["shape"]
        assert shape == [2, 10]
        assert_one_error(accelc(*arguments, "--dim", "batch"), ExitCode.USER_ERROR, "NAME=N")
        assert_one_error(accelc(*arguments, "--dim", "batch=0"), ExitCode.USER_ERROR, "NAME=N")
        assert_one_error(accelc(*arguments, "--dim", "b=1"), ExitCode.USER_ERROR, "batch")

    def test_open_dimensions(self, accelc: Any, tmp_path: Path) -> None:
        out = tmp_path / "out.accel"
        assert accelc("compile", MODEL, "--target", "cpu", "-o", out).code == 0
        for size in ("3", "1", "2"):
            result = accelc("run", out, "--on", "cpu", "--dim", f"batch={size}", "--json")
            assert result.json["outputs"]["logits"]["shape"] == [int(size), 10]
        images = tmp_path / "images.npy"
        np.save(images, np.zeros((5, 1, 8, 8), np.float32))
        given = ("run", out, "--on", "cpu", "--input", f"image={images}", "--json")
        assert accelc(*given).json["outputs"]["logits"]["shape"] == [5, 10]
        wrong = accelc(*given, "--dim", "batch=4")
        assert_one_error(wrong, ExitCode.USER_ERROR, "batch=4", "has 5")
        wrong = accelc("run", out, "--on", "cpu", "--dim", "height=4")
        assert_one_error(wrong, ExitCode.USER_ERROR, "'height'", "'batch'")

    @pytest.mark.parametrize(
        ("stage", "expected"),
        [
            ("graph", "  # res1_conv1\n"),
            ("schedule", "layer res1_conv1 (int.conv): 147456 MACs"),
            ("asm", "# res1_conv1 (int.conv)\n"),
        ],
    )
    def test_stages_are_text_on_stdout(self, accelc: Any, stage: str, expected: str) -> None:
        result = accelc("compile", MODEL, "--config", "1x4x4", "--emit", stage)
        assert result.code == 0
        assert expected in result.out

    def test_native_stages(self, accelc: Any, tmp_path: Path) -> None:
        result = accelc("compile", MODEL, "--target", "cpu", "--dim", "batch=1", "--emit", "llvm")
        assert "define void @" in result.out
        out = tmp_path / "net.o"
        arguments = ("compile", MODEL, "--target", "cpu", "--dim", "batch=1", "-o")
        assert accelc(*arguments, out, "--emit", "obj").code == 0
        assert out.read_bytes()[:4] == b"\x7fELF"
        assert accelc(*arguments, tmp_path / "libnet.so", "--emit", "lib").code == 0
        assert (tmp_path / "libnet.so").read_bytes()[:4] == b"\x7fELF"
        assert "accelc_run" in (tmp_path / "libnet.h").read_text()
        wrong = accelc("compile", MODEL, "--emit", "obj", "-o", out)
        assert_one_error(wrong, ExitCode.USER_ERROR, "--target cpu")
        wrong = accelc("compile", MODEL, "--target", "cpu", "--emit", "lib", "-o", out)
        assert_one_error(wrong, ExitCode.USER_ERROR, "--dim batch=N")

    def test_bad_models_are_one_error_and_overwrite_nothing(
        self, accelc: Any, tmp_path: Path
    ) -> None:
        out = tmp_path / "out.accel"
        out.write_text("precious")
        truncated = tmp_path / "truncated.onnx"
        truncated.write_bytes(MODEL.read_bytes()[:20_000])
        text = tmp_path / "text.onnx"
        text.write_text("this is no model")
        for model in (truncated, text, tmp_path / "none.onnx", tmp_path, MODELS / "README.md"):
            assert_one_error(accelc("compile", model, "-o", out), ExitCode.USER_ERROR, model.name)
            assert out.read_text() == "precious"

    def test_unsupported_operators_are_listed_at_once(self, accelc: Any, tmp_path: Path) -> None:
        nodes = [
            helper.make_node("Sparkle", ["x"], ["a"], name="first"),
            helper.make_node("Glitter", ["a"], ["y"], name="second"),
        ]
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes, "g", [value("x", TensorProto.FLOAT, [1])], [value("y", TensorProto.FLOAT, [1])]
        )
        onnx.save(helper.make_model(graph), tmp_path / "odd.onnx")
        result = accelc("compile", tmp_path / "odd.onnx", "-o", tmp_path / "out.accel")
        assert_one_error(result, ExitCode.USER_ERROR, "Sparkle", "first", "Glitter", "second")
        assert not (tmp_path / "out.accel").exists()

    def test_unwritable_outputs(self, accelc: Any, tmp_path: Path) -> None:
        for out in (tmp_path, tmp_path / "none" / "out.accel"):
            result = accelc("compile", MODEL, "--config", "1x4x4", "-o", out)
            assert_one_error(result, ExitCode.USER_ERROR, "cannot write")

    def test_unknown_configuration(self, accelc: Any) -> None:
        result = accelc("compile", MODEL, "--config", "3x3", "-o", "x.accel")
        assert_one_error(result, ExitCode.USER_ERROR, "3x3", "1x16x16")


class TestRun:
    def test_timing_is_what_inspect_predicts(self, accelc: Any, compiled: Path) -> None:
        cycles = accelc("run", compiled, "--on", "timing", "--json").json["cycles"]
        predicted = accelc("inspect", compiled, "--json").json["programs"][0]["predicted_cycles"]
        assert cycles == predicted > 0

    def test_json_for_scripts(self, accelc: Any, compiled: Path) -> None:
        result = accelc("run", compiled, "--on", "functional", "--json")
        assert result.code == 0
        assert "note: random values (seed 0) for image" in result.err
        report = result.json
        assert {"cycles", "utilisation", "dram_bytes", "layers", "limit_cycles"} <= set(report)
        assert report["config"] == "1x4x4"
        assert report["macs"] == sum(layer["macs"] for layer in report["layers"]) == 554_944
        first = report["layers"][0]
        assert {"name", "op", "cycles", "macs", "dram_bytes", "limit_cycles"} <= set(first)

    def test_inputs_and_outputs_are_files(
        self, accelc: Any, compiled: Path, tmp_path: Path
    ) -> None:
        with np.load(DATA) as data:
            x, y = data["x"][3:4], int(data["y"][3])
        np.save(tmp_path / "image.npy", x)
        out = tmp_path / "out.npz"
        given = f"image={tmp_path / 'image.npy'}"
        result = accelc("run", compiled, "--input", given, "--output", out)
        assert result.code == 0
        assert "note" not in result.err
        with np.load(out) as outputs:
            assert int(outputs["logits"].argmax()) == y

    def test_accuracy(self, accelc: Any, compiled: Path) -> None:
        result = accelc("run", compiled, "--data", DATA, "--json")
        assert (result.json["correct"], result.json["labelled"]) == (446, 450)
        text = accelc("run", compiled, "--data", DATA, "--limit", 10).out
        assert "functional: accuracy 100.0 % (10 of 10)" in text

    def test_several_devices_must_agree(self, accelc: Any, compiled: Path) -> None:
        result = accelc("run", compiled, "--on", "golden,functional", "--compare", "cpu")
        assert result.code == 0
        assert "golden, functional, cpu: all outputs equal, bit for bit" in result.out
        report = accelc("run", compiled, "--on", "golden,cpu", "--json").json
        assert report["agree"] is True
        assert [other["device"] for other in report["others"]] == ["cpu"]

    def test_networks_of_the_cpu_alone(self, accelc: Any, tmp_path: Path) -> None:
        cpu = tmp_path / "cpu.accel"
        assert accelc("compile", MODEL, "--target", "cpu", "-q", "-o", cpu).code == 0
        result = accelc("run", cpu, "--on", "timing")
        assert "timing: 1 run in" in result.out
        assert "nothing of this network runs on the accelerator" in result.out
        assert "cycles" not in result.out
        no_code = accelc("disasm", cpu)
        assert_one_error(no_code, ExitCode.USER_ERROR, "everything runs on the CPU")

    def test_disagreement_is_an_exit_code(
        self, accelc: Any, compiled: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from accelc.session import Session

        honest = Session.run

        def lying(self: Session, inputs: Any) -> Any:
            outputs = honest(self, inputs)
            if self.device == "cpu":
                outputs["logits"][0, 0] += 1
            return outputs

        monkeypatch.setattr(Session, "run", lying)
        result = accelc("run", compiled, "--on", "functional,cpu")
        assert result.code == ExitCode.CHECK_FAILED
        assert "cpu differs from functional at input 1: output logits, 1 of 10 el" in result.out
        assert accelc("run", compiled, "--compare", "cpu", "--json").json["agree"] is False

    def test_wrong_inputs_are_one_error(self, accelc: Any, compiled: Path, tmp_path: Path) -> None:
        np.save(tmp_path / "wide.npy", np.zeros((1, 1, 8, 9), np.float32))
        (tmp_path / "text.npy").write_text("no array")
        user = ExitCode.USER_ERROR
        cases = {
            f"image={tmp_path / 'wide.npy'}": "must be float32 [1, 1, 8, 8]",
            f"image={tmp_path / 'text.npy'}": "cannot read",
            f"image={tmp_path / 'none.npy'}": "cannot read",
            f"picture={tmp_path / 'wide.npy'}": "there is no input 'picture'",
            "image": "NAME=FILE.npy",
        }
        for given, part in cases.items():
            assert_one_error(accelc("run", compiled, "--input", given), user, part)
        assert_one_error(accelc("run", compiled, "--data", "none.npz"), user, "x and y")
        assert_one_error(accelc("run", compiled, "--on", "moon"), user, "there is no device 'moon'")
        no_set = accelc("run", compiled, "--data", tmp_path / "wide.npy")
        assert_one_error(no_set, user, "one array")
        assert_one_error(accelc("run", compiled, "--limit", 3), user, "--data")
        assert_one_error(accelc("run", compiled, "--on", "cpu,cpu"), user, "twice")
        itself = accelc("run", compiled, "--on", "cpu", "--compare", "cpu")
        assert_one_error(itself, user, "itself")
        nowhere = accelc("run", compiled, "--output", tmp_path / "none" / "out.npz")
        assert_one_error(nowhere, user, "there is no folder")
        assert nowhere.out == ""
        assert_one_error(accelc("run", MODEL), user, "is not an accelc artifact")
        assert_one_error(accelc("run", tmp_path / "none.accel"), user, "No such file")


@pytest.mark.rtl
class TestHardware:
    def test_the_demo_is_the_main_job(self, accelc: Any, tmp_path: Path) -> None:
        out = tmp_path / "digits.accel"
        result = accelc("demo", "--config", "1x4x4", "--images", 3, "-o", out)
        assert result.code == 0
        assert "functional: accuracy 99.1 % (446 of 450)" in result.out
        assert "rtl: accuracy 100.0 % (3 of 3)" in result.out
        assert "res1_conv1" in result.out and "utilisation" in result.out
        assert "agree bit for bit on all 3 inputs" in result.out
        assert accelc("verify", out).code == 0

    def test_rtl_counts_and_agrees_under_stalls(self, accelc: Any, compiled: Path) -> None:
        calm = accelc("run", compiled, "--on", "rtl", "--json").json
        assert calm["cycles"] > 0
        assert 0 < calm["utilisation"] < 1
        assert calm["counters"][0]["cycles"] == calm["cycles"]
        assert list(calm["counters"][0]["busy"]) == ["load", "gemm", "alu", "store"]
        assert sum(layer["cycles"] for layer in calm["layers"]) <= calm["cycles"]
        result = accelc("run", compiled, "--on", "rtl,golden", "--stall", 0.2, "--json")
        assert result.json["agree"] is True
        assert result.json["cycles"] > calm["cycles"]


class TestTools:
    def test_verify(self, accelc: Any, compiled: Path) -> None:
        result = accelc("verify", compiled)
        assert result.code == 0
        assert "no fault" in result.out
        assert accelc("verify", compiled, "--json").json["verified"] is True

    def test_verify_finds_a_lost_token(self, accelc: Any, compiled: Path, tmp_path: Path) -> None:
        from dataclasses import replace

        from accelc.artifact import Artifact

        artifact = Artifact.load(compiled)
        model = artifact.model
        index = next(i for i, step in enumerate(model.steps) if step.program)
        program = model.steps[index].program
        assert program is not None
        instructions = list(program.instructions)
        position = next(i for i, ins in enumerate(instructions) if ins.signal)
        instructions[position] = replace(instructions[position], signal=0)
        broken = replace(program, instructions=tuple(instructions))
        steps = list(model.steps)
        steps[index] = replace(steps[index], program=broken)
        Artifact(replace(model, steps=tuple(steps))).save(tmp_path / "broken.accel")
        result = accelc("verify", tmp_path / "broken.accel")
        assert result.code == ExitCode.CHECK_FAILED
        assert "no fault" not in result.out

    def test_inspect_a_model_and_an_artifact(self, accelc: Any, compiled: Path) -> None:
        before = accelc("inspect", MODEL, "--config", "1x4x4", "--json").json
        after = accelc("inspect", compiled, "--json").json
        assert before["nodes"] == after["nodes"]
        assert before["accelerator_mac_share"] == 1.0
        for node in before["nodes"]:
            assert bool(node["reason"]) == (node["tier"] != "accelerator")
            assert (node["cycles"] is None) == (node["tier"] != "accelerator")
        assert sum(node["cycles"] or 0 for node in before["nodes"]) <= before["cycles"]
        assert before["cycles"] == after["programs"][0]["predicted_cycles"]
        program = after["programs"][0]
        assert program["instructions"]["FINISH"] == 1
        assert program["predicted_utilisation"] > 0
        text = accelc("inspect", compiled).out
        assert "res1_conv1" in text and "100.0 % of them on the accelerator" in text

    def test_disassembly_assembles_to_the_same_bits(
        self, accelc: Any, compiled: Path, tmp_path: Path
    ) -> None:
        from accelc.artifact import Artifact

        source, out = tmp_path / "net.s", tmp_path / "net.bin"
        assert accelc("disasm", compiled, "-o", source).code == 0
        assert accelc("asm", source, "-o", out).code == 0
        assert decode_all(out.read_bytes()) == Artifact.load(compiled).programs[0].instructions
        again = accelc("disasm", out).out
        assert [line for line in source.read_text().splitlines() if line[0] != "#"] == (
            again.splitlines()
        )

    def test_asm_errors_name_file_and_line(self, accelc: Any, tmp_path: Path) -> None:
        source = tmp_path / "bad.s"
        source.write_text("finish\nload row=70000\n")
        assert_one_error(
            accelc("asm", source), ExitCode.USER_ERROR, "bad.s: line 2: LOAD.row must be"
        )
        assert not (tmp_path / "bad.bin").exists()
        (tmp_path / "odd.bin").write_bytes(bytes(65))
        assert_one_error(accelc("disasm", tmp_path / "odd.bin"), ExitCode.USER_ERROR, "65 bytes")

    def test_verilog(self, accelc: Any, tmp_path: Path) -> None:
        out = tmp_path / "core.v"
        assert accelc("verilog", "--config", "1x4x4", "-o", out).code == 0
        text = out.read_text()
        assert "module accel(" in text
        assert "m_axi_araddr" in text

    def test_config(self, accelc: Any, tmp_path: Path) -> None:
        assert accelc("config", "--list").out.splitlines()[0] == "1x16x16"
        one = accelc("config", "1x8x8", "--json")
        assert one.json["block_in"] == 8
        mine = tmp_path / "mine.json"
        mine.write_text(one.out)
        assert accelc("config", mine, "--json").json == one.json
        assert "MACs per cycle" in accelc("config").out


class TestErrors:
    def test_wrong_usage_is_one_line(self, accelc: Any) -> None:
        user = ExitCode.USER_ERROR
        assert_one_error(accelc("compile"), user, "MODEL", "accelc compile --help")
        assert_one_error(accelc("flatten"), user, "flatten")
        assert_one_error(accelc("run", "x", "--colour"), user, "--colour")
        assert_one_error(accelc("compile", MODEL, "--target", "gpu"), user, "vta")

    def test_device_and_tool_errors_have_their_own_codes(
        self, accelc: Any, compiled: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from accelc.isa.errors import DeviceError, ToolError
        from accelc.sim.functional import FunctionalDevice

        for error, code in ((DeviceError, ExitCode.DEVICE_ERROR), (ToolError, ExitCode.TOOL_ERROR)):

            def fail(*_: object, error: type[Exception] = error) -> None:
                raise error("it broke\nbadly")

            monkeypatch.setattr(FunctionalDevice, "run", fail)
            assert_one_error(accelc("run", compiled), code, "it broke badly")

    def test_defects_are_one_line_too(
        self, accelc: Any, compiled: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from accelc.sim.functional import FunctionalDevice

        def fail(*_: object) -> None:
            raise RuntimeError("oops")

        monkeypatch.setattr(FunctionalDevice, "run", fail)
        assert_one_error(accelc("run", compiled), ExitCode.INTERNAL_ERROR, "RuntimeError: oops")
        shown = accelc("--traceback", "run", compiled)
        assert "Traceback" in shown.err
        assert shown.code == ExitCode.INTERNAL_ERROR
