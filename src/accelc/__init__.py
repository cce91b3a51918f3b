"""accelc: from a trained ONNX network to an accelerator on a cheap FPGA.

::

    import accelc

    artifact = accelc.compile("model.onnx", target="vta")   # for the reference configuration
    artifact.save("model.accel")
    session = accelc.load("model.accel", device="rtl")
    outputs = session.run({"image": image})
    print(session.cycles, session.layers)

Importing this package is cheap; compilers, simulators and hardware are imported when first used.
"""

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from accelc.isa.config import AccelConfig
from accelc.isa.errors import AccelcError

if TYPE_CHECKING:
    from accelc.artifact import Artifact
    from accelc.quantize_images import Preprocessing
    from accelc.quantizer import Quantized
    from accelc.session import Session
    from accelc.sim.device import MemoryModel

__version__ = "0.1.0"
__all__ = ["AccelConfig", "AccelcError", "compile", "load", "quantize"]


def compile(
    model: Any,
    target: str = "vta",
    config: AccelConfig | str | PathLike[str] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    disable: Iterable[str] = (),
    progress: Callable[[str], None] | None = None,
) -> "Artifact":
    """Compile an ONNX network.

    Args:
        model: path of an ONNX file, or an ``onnx.ModelProto``.
        target: ``vta`` for the accelerator, with what it cannot do on the CPU; ``cpu`` for the CPU.
        config: which accelerator: a preset's name, the path of a JSON or TOML file, or a
            configuration; by default the reference, 1x16x16.
        dims: sizes of symbolic dimensions by name; a symbolic batch that is not given is 1.
        disable: names of passes and rules to leave out; ``accelc passes`` lists them.
        progress: called with a phrase when a stage begins.

    Raises:
        AccelcError: one of ``accelc.isa.errors`` says what is wrong and what to do.
    """
    from accelc.artifact import Artifact
    from accelc.compiler.pipeline import compile_model
    from accelc.configuration import resolve

    resolved = resolve(config)
    report = progress or (lambda _: None)
    return Artifact(
        compile_model(model, target, resolved, dims=dims, disable=disable, progress=report)
    )


def load(
    path_or_artifact: "str | PathLike[str] | Artifact",
    device: str = "functional",
    *,
    memory: "MemoryModel | None" = None,
) -> "Session":
    """Open a compiled network for running.

    Args:
        path_or_artifact: an ``.accel`` file or what :func:`compile` returned.
        device: ``golden``, ``functional``, ``timing``, ``rtl``, or ``cpu`` for everything in native
            code on this machine; a serial port with a board, or ``sim:BOARD``.
        memory: timing of the memory behind ``timing`` and ``rtl``.

    Raises:
        ArtifactError: the file is not an artifact, damaged, or of another version.
        ToolError: ``rtl`` without Verilator or a C++ compiler.
        DeviceError: no board answers at the port.
    """
    from accelc.artifact import Artifact
    from accelc.session import Session

    if isinstance(path_or_artifact, Artifact):
        return Session(path_or_artifact, device, memory)
    return Session(Artifact.load(path_or_artifact), device, memory)


def quantize(
    model: Any,
    calibration: Any,
    *,
    observer: str = "auto",
    percentile: float = 99.99,
    equalization: str = "auto",
    bias_correction: bool | None = None,
    keep_float: Iterable[str] = (),
    labels: str | None = None,
    validation: Any = None,
    max_accuracy_drop: float | None = None,
    sensitivity: bool = False,
    images: "Preprocessing | None" = None,
    samples: int | None = None,
    dims: Mapping[str, int] | None = None,
    config: AccelConfig | str | PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> "Quantized":
    """Quantize a float ONNX network to int8, as a standard QDQ model.

    ::

        quantized = accelc.quantize("float.onnx", "samples.npz")
        quantized.save("int8.onnx")
        print(quantized.report.output_sqnr_db)

    Args:
        model: path of an ONNX file, or an ``onnx.ModelProto``.
        calibration: typical inputs: path of an ``.npz`` file with arrays named by input, samples
            along the first axis; path of a folder of images; an iterable of samples, or a function
            that returns one. A sample is an array, or a mapping from input to array.
        observer: how ranges are found: ``min-max``, ``percentile``, ``entropy``, ``mse``, or
            ``auto`` for the one that measures best.
        percentile: share of the numbers, in percent, that ``percentile`` covers.
        equalization: of channels across layers: ``none``, by ``weights`` or ``activations``, or
            ``auto``.
        bias_correction: whether rounding errors are taken from the biases; None is where it helps.
        keep_float: names of nodes that stay float.
        labels: name of the array, or mapping key, with the class numbers.
        validation: labelled data to measure the accuracy on, as ``calibration``, which is used
            otherwise.
        max_accuracy_drop: percentage points of accuracy the network may lose; layers that cost more
            stay float.
        sensitivity: also measure every layer alone.
        images: how images become inputs; needed for a folder.
        samples: how many samples to use at most.
        dims: sizes of symbolic dimensions by name.
        config: the accelerator that the report counts nodes for.
        progress: called with a phrase when a stage begins.

    Raises:
        AccelcError: one of ``accelc.isa.errors`` says what is wrong and what to do.
    """
    from accelc import quantizer
    from accelc.configuration import resolve

    return quantizer.quantize(
        model,
        calibration,
        labels=labels,
        validation=validation,
        dims=dims,
        images=images,
        samples=samples,
        options=quantizer.Options(
            observer=observer,
            percent=percentile,
            equalization=equalization,
            bias_correction=bias_correction,
            keep_float=tuple(keep_float),
            max_drop=max_accuracy_drop,
            sensitivity=sensitivity,
        ),
        config=resolve(config),
        progress=progress,
    )
