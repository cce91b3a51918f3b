"""``accelc quantize``: a float model to a standard int8 QDQ model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accelc.command import console
from accelc.command.build import CONFIG_OPTION, DIM_OPTION, parse_dims
from accelc.files import require_writable, write_atomically
from accelc.isa.errors import InputError

if TYPE_CHECKING:
    from accelc.quantize_report import LayerResult, QuantizationReport


@click.command("quantize", short_help="Quantize a float model to int8.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Model to write."
)
@click.option(
    "--calibration",
    metavar="DATA",
    required=True,
    help="Typical inputs: an .npz file with arrays named by input, samples along the first axis; a "
    "folder of images; or MODULE:FUNCTION, which returns an iterable of samples.",
)
@click.option("--samples", type=click.IntRange(1), help="Samples to calibrate with at most.")
@click.option(
    "--image",
    "image",
    metavar="KEY=VALUE",
    multiple=True,
    help="How images become inputs, (pixel * scale - mean) / std: scale=1/255 (needed), "
    "mean=R,G,B, std=R,G,B, size=HxW, layout=nchw|nhwc, channels=rgb|bgr|gray, "
    "fit=stretch|crop|pad. Repeat for each.",
)
@click.option(
    "--observer",
    type=click.Choice(["auto", "min-max", "percentile", "entropy", "mse"]),
    default="auto",
    show_default=True,
    help="How the range of a value is found; auto takes the one that measures best.",
)
@click.option(
    "--percentile",
    type=float,
    default=99.99,
    show_default=True,
    help="Share of the numbers, in percent, that the observer percentile covers.",
)
@click.option(
    "--equalization",
    type=click.Choice(["auto", "none", "weights", "activations"]),
    default="auto",
    show_default=True,
    help="Equalize channels across layers, by the reach of weights or of activations.",
)
@click.option(
    "--bias-correction/--no-bias-correction",
    default=None,
    help="Take the mean of the weights' rounding errors from the biases.  [default: if it helps]",
)
@click.option(
    "--keep-float", metavar="NODE", multiple=True, help="Leave a node float; repeat for more."
)
@click.option("--labels", metavar="NAME", help="Array of DATA with class numbers.")
@click.option(
    "--validation",
    metavar="DATA",
    help="Labelled samples to measure the accuracy on.  [default: the calibration data]",
)
@click.option(
    "--max-accuracy-drop",
    type=float,
    metavar="POINTS",
    help="Percentage points of accuracy that may be lost: layers that cost more stay float, on the "
    "CPU. Needs --labels.",
)
@click.option("--sensitivity", is_flag=True, help="Measure what each layer costs by itself.")
@DIM_OPTION
@CONFIG_OPTION
@click.option(
    "--report", type=click.Path(path_type=Path), help="File to write the report to, as JSON."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, not as tables.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def quantize(
    model: Path,
    output: Path,
    calibration: str,
    samples: int | None,
    image: tuple[str, ...],
    observer: str,
    percentile: float,
    equalization: str,
    bias_correction: bool | None,
    keep_float: tuple[str, ...],
    labels: str | None,
    validation: str | None,
    max_accuracy_drop: float | None,
    sensitivity: bool,
    dims: tuple[str, ...],
    config: str | None,
    report: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Quantize MODEL, a float ONNX file, to int8.

    The result is a standard QDQ model: accelc compiles it for the accelerator, onnxruntime and
    others run it. Weights become symmetric int8 with a scale per channel, activations asymmetric
    int8. See docs/quantization.md.

    \b
    Examples:
      accelc quantize net.onnx -o int8.onnx --calibration samples.npz
      accelc quantize net.onnx -o int8.onnx --calibration photos/ --image scale=1/255
      accelc quantize net.onnx -o int8.onnx --calibration data:samples
      accelc quantize net.onnx -o int8.onnx --calibration labelled.npz --labels y \\
          --max-accuracy-drop 0.5
    """
    from accelc.quantize_images import parse_preprocessing

    if max_accuracy_drop is not None and labels is None:
        raise InputError("--max-accuracy-drop needs labelled samples: name them with --labels")
    sizes = parse_dims(dims)
    preprocessing = parse_preprocessing(image) if image else None
    for target in (output, report):
        if target is not None:
            require_writable(target, model, calibration)
    if report is not None and report.resolve() == output.resolve():
        raise InputError(f"--report and -o name the same file, {output}")
    import accelc

    with console.progress("reading the model") as progress:
        result = accelc.quantize(
            model,
            calibration,
            observer=observer,
            percentile=percentile,
            equalization=equalization,
            bias_correction=bias_correction,
            keep_float=keep_float,
            labels=labels,
            validation=validation,
            max_accuracy_drop=max_accuracy_drop,
            sensitivity=sensitivity,
            images=preprocessing,
            samples=samples,
            dims=sizes,
            config=config,
            progress=progress,
        )
    result.save(output)
    if report is not None:
        write_atomically(report, json.dumps(result.report.to_dict(), indent=1) + "\n")
    if as_json:
        console.print_json(result.report.to_dict())
    elif not quiet:
        for text in result.report.notes:
            console.note(text)
        show_report(result.report, output)


def show_report(report: "QuantizationReport", output: Path) -> None:
    """The tables and sentences of a finished quantization."""
    if len(report.candidates) > 1:
        rows = [
            [c.observer, c.equalization, "yes" if c.bias_correction else "no",
             decibels(c.sqnr_db), "chosen" if c == report.chosen else ""]
            for c in report.candidates
        ]  # fmt: skip
        columns = ("observer", "equalization", "bias correction", ">output SQNR", "")
        console.show(console.table("ways tried", columns, rows))
    console.show(_layer_table(report.layers))
    large, small = (console.size(nbytes) for nbytes in report.constant_bytes)
    quantized = sum(layer.form == "int8" for layer in report.layers)
    console.show(
        f"{output}: {quantized} of {len(report.layers)} layers int8, {small} of constants, in "
        f"float {large}; "
        f"calibrated with {console.count(report.samples)} samples",
        f"output SQNR {decibels(report.output_sqnr_db)} against the float network",
        f"compiled for {report.config}: {report.accelerator_nodes} nodes on the accelerator, "
        f"{report.cpu_nodes} on the CPU; {console.percent(report.accelerator_mac_share)} of the "
        "MACs on the accelerator",
    )
    accuracy = report.accuracy
    if accuracy is not None:
        console.show(
            f"accuracy {100 * accuracy.quantized_share:.2f} % of {accuracy.samples} samples, "
            f"float {100 * accuracy.float_share:.2f} %: a drop of {accuracy.drop_points:.2f} points"
        )


def _layer_table(layers: Sequence["LayerResult"]) -> Any:
    alone = any(layer.alone_sqnr_db is not None for layer in layers)
    drops = any(layer.alone_drop is not None for layer in layers)
    columns = ["layer", "operator", "form", ">lowest", ">highest", ">scale", ">zero", ">SQNR"]
    columns += [">alone"] * alone + [">drop alone"] * drops + ["~why float"]
    rows: list[list[str]] = []
    for layer in layers:
        row = [layer.name, layer.op, layer.form]
        row += [f"{v:.4g}" if v is not None else "" for v in (layer.low, layer.high, layer.scale)]
        row.append("" if layer.zero_point is None else str(layer.zero_point))
        row.append(decibels(layer.sqnr_db))
        row += [decibels(layer.alone_sqnr_db)] * alone
        row += ["" if layer.alone_drop is None else f"{layer.alone_drop:.2f}"] * drops
        rows.append([*row, layer.reason])
    return console.table("layers", columns, rows)


def decibels(value: float | None) -> str:
    """A ratio of powers; ``exact`` where there is no noise."""
    if value is None:
        return ""
    return "exact" if value == float("inf") else f"{value:.1f} dB"
