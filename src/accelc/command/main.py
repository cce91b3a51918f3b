"""The command ``accelc``: its help, its error reporting and its exit codes."""

import enum
import sys
import traceback
from collections.abc import Sequence

import click

import accelc
from accelc.command.boards import boards, build
from accelc.command.build import asm, compile_command, disasm
from accelc.command.demo import demo
from accelc.command.diff import diff
from accelc.command.explain import config, inspect, verify, verilog
from accelc.command.link import flash, selftest
from accelc.command.mlperf import mlperf
from accelc.command.passes import passes
from accelc.command.quantize import quantize
from accelc.command.run import run_command
from accelc.command.suite import suite
from accelc.isa.errors import AccelcError, DeviceError, TimingError, ToolError


class ExitCode(enum.IntEnum):
    """What the command says to the shell that started it."""

    OK = 0
    #: A check that was asked for failed: two devices disagree, the verifier found a fault, a
    #: bitstream is too slow for its clock.
    CHECK_FAILED = 1
    #: The command line, a model, an artifact, an input or an output file is wrong.
    USER_ERROR = 2
    #: A device reported an error or did not answer.
    DEVICE_ERROR = 3
    #: A tool that is needed (Verilator, a C++ compiler) is missing or failed.
    TOOL_ERROR = 4
    #: A defect of accelc itself.
    INTERNAL_ERROR = 70
    INTERRUPTED = 130


EPILOG = """
\b
Start here:
  accelc demo                                    see everything work on an example
  accelc inspect model.onnx                      what would run where, and why
  accelc quantize float.onnx -o model.onnx --calibration samples.npz
                                                 make a float model int8 first
  accelc compile model.onnx -o model.accel       compile for the reference accelerator
  accelc run model.accel --on functional         run it, bit for bit as the hardware does
  accelc run model.accel --on rtl                run it on the Verilated hardware

\b
Exit codes:
  0  success                       3  the device reported an error
  1  a check failed (verify,       4  a needed tool is missing or failed
     run with --compare, timing)  70  a defect of accelc (use --traceback)
  2  wrong command, model, artifact or input
"""


@click.group(
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(accelc.__version__, prog_name="accelc")
@click.option("--traceback", "show_traceback", is_flag=True, help="Show where an error came from.")
def cli(show_traceback: bool) -> None:
    """Compile ONNX networks for a small open accelerator and run them.

    A compiled network is one .accel file. It runs, bit for bit alike, on the golden model, the
    functional simulator, the Verilated RTL, and on the CPU.
    """


for command in (
    compile_command, run_command, inspect, verify, asm, disasm, verilog, config, demo, boards,
    build, flash, selftest, mlperf, quantize, suite, passes, diff,
):  # fmt: skip
    cli.add_command(command)


def _exit_code(error: AccelcError) -> ExitCode:
    if isinstance(error, DeviceError):
        return ExitCode.DEVICE_ERROR
    if isinstance(error, TimingError):
        return ExitCode.CHECK_FAILED
    return ExitCode.TOOL_ERROR if isinstance(error, ToolError) else ExitCode.USER_ERROR


def _say(message: str) -> None:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every failure is one line on stderr."""
    try:
        result = cli.main(list(arguments), prog_name="accelc", standalone_mode=False)
        return result if isinstance(result, int) else ExitCode.OK
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USER_ERROR
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        _say(error.format_message() + where)
        return ExitCode.USER_ERROR
    except click.ClickException as error:
        _say(error.format_message())
        return ExitCode.USER_ERROR
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has seen enough; keep Python from complaining at exit
        sys.stdout = None
        return ExitCode.OK
    except AccelcError as error:
        _report(arguments)
        _say(str(error))
        return _exit_code(error)
    except MemoryError as error:
        _report(arguments)
        _say(f"this machine's memory does not suffice: {error}")
        return ExitCode.USER_ERROR
    except Exception as error:  # a defect must not look like the user's fault, nor print pages
        _report(arguments)
        _say(
            f"internal error, {type(error).__name__}: {error}; "
            "accelc --traceback COMMAND ... shows where"
        )
        return ExitCode.INTERNAL_ERROR


def _report(arguments: Sequence[str]) -> None:
    if "--traceback" in arguments:
        traceback.print_exc()
