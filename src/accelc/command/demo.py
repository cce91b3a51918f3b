"""``accelc demo``: the whole path on the example model."""

from pathlib import Path

import click

from accelc.command import console
from accelc.command.build import CONFIG_OPTION, compile_summary
from accelc.command.run import difference_lines, layer_table, open_sessions, tally_lines
from accelc.evaluate import evaluate
from accelc.files import require_writable
from accelc.inputs import read_labelled
from accelc.isa.errors import InputError

#: Where the example lies, seen from this file in a checkout.
MODELS = Path(__file__).parents[3] / "models"
MODEL = "digits_resnet8_int8.onnx"
DATA = "digits_test.npz"


@click.command(short_help="Compile the example and run it on simulator and hardware.")
@CONFIG_OPTION
@click.option(
    "--images",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Images on the RTL; the functional simulator always runs all of them. 0 means all.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("build/digits.accel"),
    show_default=True,
    help="Where to put the compiled network.",
)
def demo(config: str | None, images: int, output: Path) -> int:
    """Compile the example network and run real images of digits on simulator and hardware.

    Compiles models/digits_resnet8_int8.onnx for the accelerator, classifies the labelled images of
    models/digits_test.npz on the functional simulator and on the Verilated RTL. Prints accuracy,
    cycles, the use of the matrix unit per layer, and whether both agree bit for bit. The first run
    builds the Verilated model, which takes about a minute.

    \b
    Examples:
      accelc demo
      accelc demo --images 0                 all images on the RTL too
      accelc demo --config 1x8x8
    """
    import accelc
    from accelc.report import compile_report

    if not (MODELS / MODEL).is_file():
        raise InputError(
            f"the example is not at {MODELS}: run this in a checkout, installed with pip install -e"
        )
    if output.parent == Path("build"):
        output.parent.mkdir(exist_ok=True)
    require_writable(output)
    with console.progress("compiling") as report:
        artifact = accelc.compile(MODELS / MODEL, "vta", config, progress=report)
    artifact.save(output)
    for text in artifact.model.graph.notes:
        console.note(text)
    console.show(*compile_summary(artifact, compile_report(artifact), output))
    console.show("the RTL's first run builds its Verilated model, about a minute")
    sessions = open_sessions(output, ("functional", "rtl"))
    labelled = read_labelled(MODELS / DATA, sessions[0].inputs, None)
    limit = -(-images // labelled.batch) if images else None
    with console.progress("running") as report:
        tallies, differences = evaluate(sessions, labelled.batches(), [None, limit], report)
    console.show(layer_table(sessions[1]))
    for tally in tallies:
        console.show(*tally_lines(tally))
    if differences:
        console.show(*difference_lines(differences, "functional"))
        return 1
    console.show(
        f"functional and rtl agree bit for bit on all {tallies[1].batches} inputs both have run"
    )
    return 0
