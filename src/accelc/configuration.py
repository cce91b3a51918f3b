"""Finds the hardware configuration a user means: a name, a file, or an object."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from accelc.boards.registry import BOARDS
from accelc.isa.config import PRESETS, REFERENCE, AccelConfig
from accelc.isa.errors import ConfigError


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read configuration {path}: {reason}") from error
    try:
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:  # both parsers' errors are ValueErrors
        raise ConfigError(f"{path} is not {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold an object of parameters, not {type(values).__name__}")
    return values


def named(name: str) -> AccelConfig | None:
    """The configuration of a preset or of a board, or None if there is neither."""
    if name in PRESETS:
        return PRESETS[name]
    board = BOARDS.get(name)
    return None if board is None else board.config


def read(path: str | os.PathLike[str]) -> AccelConfig:
    """Read a ``.json`` or ``.toml`` file: parameters by name, the rest as in the key ``base``.

    ``base`` names the preset or board whose values hold where the file says nothing; without it
    the reference's do. A file without ``name`` is named after itself.
    """
    file = Path(path)
    values = _parse(file)
    base = values.pop("base", REFERENCE.name)
    values_of_base = named(base) if isinstance(base, str) else None
    if values_of_base is None:
        known = ", ".join((*PRESETS, *BOARDS))
        raise ConfigError(f"{file}: base must be one of {known}, not {base!r}")
    return AccelConfig.from_dict({**values_of_base.to_dict(), "name": file.stem, **values})


def resolve(config: AccelConfig | str | os.PathLike[str] | None) -> AccelConfig:
    """The configuration meant by a name, a path or None (the reference).

    Raises:
        ConfigError: there is no such preset or file, or its content breaks a rule.
    """
    if config is None:
        return REFERENCE
    if isinstance(config, AccelConfig):
        return config
    name = os.fspath(config)
    known = named(name)
    if known is not None:
        return known
    if Path(name).suffix in {".json", ".toml"}:
        return read(name)
    raise ConfigError(
        f"there is no configuration {name!r}; presets are {', '.join(PRESETS)}, "
        f"boards {', '.join(BOARDS)}, and files end in .json or .toml"
    )
