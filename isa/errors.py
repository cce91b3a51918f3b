"""The errors every part of accelc raises; the command line makes each one line and an exit code."""


class AccelcError(Exception):
    """Something the user can act on: what was wrong, the limit, the remedy.

    Its text is one line, whatever the names in a model hold.
    """

    def __str__(self) -> str:
        line = " ".join(super().__str__().splitlines())
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class ConfigError(AccelcError):
    """A hardware configuration breaks one of its own rules, or is not the one that was expected."""


class EncodingError(AccelcError):
    """A value does not fit the instruction field, or the hardware, it is meant for."""


class RowRangeError(EncodingError):
    """An instruction names a scratchpad row beyond the configured depth."""


class AddressError(EncodingError):
    """An instruction names a memory address out of range or not aligned to the bus."""


class DoesNotFitError(AccelcError):
    """A tile, tensor or program is larger than the memory it must fit in."""


class UnsupportedOpError(AccelcError):
    """The model holds operators or attributes accelc has no implementation for."""


class ModelError(AccelcError):
    """The model file is unreadable, malformed or inconsistent."""


class InputError(AccelcError):
    """An array given at run time has the wrong name, shape or type."""


class ArtifactError(AccelcError):
    """A compiled artifact is unreadable, of another version, or for another configuration."""


class VerifyError(AccelcError):
    """The static verifier found a fault in a finished program."""


class DeviceError(AccelcError):
    """A device reported an error status, or did not answer."""


class ToolError(AccelcError):
    """An external tool (Verilator, a C++ compiler, ...) is missing or failed.

    What the tool printed follows in lines of its own.
    """

    __str__ = Exception.__str__


class TimingError(AccelcError):
    """A bitstream was made, but not for the clock that was asked for."""
