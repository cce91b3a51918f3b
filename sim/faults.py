"""One wording for what a device reports when a program fails, whichever device it is."""

from accelc.isa.errors import AddressError, DeviceError, EncodingError, RowRangeError
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import Unit

#: Number the ``error_info`` register gives the fetch unit.
FETCH = 4

_REMEDIES = {
    ErrorCode.ILLEGAL_INSTRUCTION: "the program is damaged or of another ISA version",
    ErrorCode.ILLEGAL_FIELD: "the instruction breaks a rule or needs a feature this device lacks",
    ErrorCode.ROW_OUT_OF_RANGE: "check the program with `accelc verify`",
    ErrorCode.ADDRESS_OUT_OF_RANGE: "check the program with `accelc verify`",
    ErrorCode.READ_RESPONSE: "the memory refused a read; check memory_base and memory_bytes",
    ErrorCode.WRITE_RESPONSE: "the memory refused a write; check memory_base and memory_bytes",
    ErrorCode.WATCHDOG: "no unit made progress, probably a missing token; run `accelc verify`",
    ErrorCode.MISSING_FINISH: "the instruction list ended without FINISH",
}


def device_fault(
    code: ErrorCode,
    unit: int | None,
    index: int | None,
    detail: str = "",
    *,
    exact: bool = True,
) -> DeviceError:
    """The error for ``code`` in ``unit`` (4 is fetch) at instruction ``index`` of the program.

    Without ``exact`` the unit may have been ahead of ``index`` when it found the fault.
    """
    where = (
        "" if unit is None else f" in unit {'fetch' if unit == FETCH else Unit(unit).name.lower()}"
    )
    at = "" if index is None else f" at{'' if exact else ' or after'} instruction {index}"
    because = f": {detail}" if detail else ""
    return DeviceError(f"{code.name}{where}{at}{because}; {_REMEDIES[code]}")


def semantic_fault(error: EncodingError, unit: int | None, index: int) -> DeviceError:
    """The fault the hardware reports where ``isa.semantics`` raised ``error``."""
    if isinstance(error, RowRangeError):
        code = ErrorCode.ROW_OUT_OF_RANGE
    elif isinstance(error, AddressError):
        code = ErrorCode.ADDRESS_OUT_OF_RANGE
    else:
        code = ErrorCode.ILLEGAL_FIELD
    return device_fault(code, unit, index, str(error))
