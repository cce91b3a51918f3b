"""Where calibration data comes from: a file, a folder, a function, or Python."""

import importlib
import sys
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from accelc.isa.errors import InputError
from accelc.quantize_data import Samples, Types, from_iterable, read_npz
from accelc.quantize_images import Preprocessing, read_images


def open_samples(
    calibration: Any,
    types: Types,
    labels: str | None,
    images: Preprocessing | None,
    limit: int | None,
) -> Samples:
    """Calibration data from a path, ``module:function``, or Python.

    Raises:
        InputError: there is no such file, or what is there is no calibration data.
    """
    if not isinstance(calibration, str | PathLike):
        return from_iterable(calibration, types, labels, limit)
    path = Path(calibration)
    if path.is_dir():
        if images is None:
            raise InputError(
                f"{path} is a folder: say how its images are preprocessed, at least by their"
                " scale (--image scale=1/255)"
            )
        if labels is not None:
            raise InputError("a folder of images has no labels; give labelled samples as .npz")
        return read_images(path, types, images, limit)
    if not path.exists() and ":" in fspath(calibration):
        return from_iterable(import_source(fspath(calibration)), types, labels, limit)
    return read_npz(path, types, labels, limit)


def import_source(text: str) -> Callable[[], Any]:
    """The function that ``module:function`` names; modules of the current folder too.

    Raises:
        InputError: there is no such module or function.
    """
    module, _, function = text.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # whatever the user's module does when it is imported
        raise InputError(f"cannot import {text}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(here)
    if not callable(found):
        raise InputError(f"{text} is no function that returns samples")
    return found
