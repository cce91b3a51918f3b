"""What the sequencer of the sequential core sees of the compute engines.

GEMM and ALU never run at the same time, so they share one address generator, its parameter
registers and the accumulators; both are started through one :func:`ComputePort`. The engines and
their scratchpads are ``accelc.hw.sequential.compute.Compute``, which has the ports

``compute : In(ComputePort())``
    Below.
``inp, wgt, prm, vin : In(ScratchWrite(config))``
    LOAD's writes, only while idle.
``out : In(ScratchRead(config))``
    STORE's reads, only while idle; the data follow one cycle after ``en`` and hold.

The sequencer writes parameters, starts an engine and waits until it is idle again. A start covers
the inner loops of an instruction only; the outer ones are the sequencer's:

``start_gemm``
    One reduction loop of ``isa.spec.Gemm``, with a weight tile per step, and inside it the loops
    ``iy``, ``ix`` and, in window mode, ``it``.
``start_alu``
    One channel block ``i0``: the loops ``i1``, ``i2``, ``iy`` and ``ix`` of ``isa.spec.Alu``.

Every loop count must be at least 1; illegal fields must have been refused before.
"""

import enum

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

#: Bits of a parameter's number.
PARAM_INDEX_BITS = 5
#: Bits of a parameter.
PARAM_BITS = 16


class GemmParam(enum.IntEnum):
    """Parameters of ``start_gemm``, in rows where the instruction has rows.

    The registers are those of :class:`AluParam`: an instruction writes all that it uses. They keep
    their value, but a start leaves ``INP`` and ``WGT`` a tile behind its last one.
    """

    #: Bit 0: the sums replace the accumulators. Bit 1: window mode.
    FLAGS = 0
    INP = 1
    ACC = 2
    WGT = 3
    N_Y = 4
    N_X = 5
    #: 1 without window mode.
    N_T = 6
    #: 1, always: the loop only ALU has.
    ONE = 7
    INP_Y = 8
    INP_X = 9
    #: Any value without window mode.
    INP_T = 10
    ACC_Y = 12
    ACC_X = 13
    #: Window mode: columns before the first firing.
    FIRST = 14
    #: Window mode: columns from firing to firing.
    STEP = 15
    #: Window mode: ``first * n_t``, the rows of a window.
    TAPS = 16
    #: Weight tiles in a row, each added to the same accumulators; the first alone clears them. 12
    #: bits.
    N_K = 17
    #: From tile to tile: input rows, and rows of the weight scratchpad.
    INP_K = 18
    WGT_K = 19


class AluParam(enum.IntEnum):
    """Parameters of ``start_alu``, in rows where the instruction has rows.

    They keep their value.
    """

    #: Bit 0: source is vin. Bit 1: scale. Bit 2: a_inside.
    FLAGS = 0
    SRC = 1
    DST = 2
    #: Any value without scale.
    PRM = 3
    N_1 = 4
    N_2 = 5
    N_KY = 6
    N_KX = 7
    SRC_1 = 8
    SRC_2 = 9
    SRC_KY = 10
    SRC_KX = 11
    DST_1 = 12
    DST_2 = 13
    A_ZERO = 14
    A_MIN = 15
    A_MAX = 16


def ParamWrite() -> wiring.Signature:
    """Write a parameter at the clock edge; narrower parameters take the low bits."""
    return wiring.Signature(
        {"en": Out(1), "index": Out(PARAM_INDEX_BITS), "value": Out(PARAM_BITS)}
    )


def ComputePort() -> wiring.Signature:
    """Start and observe the engines, seen from the sequencer.

    Members
    -------
    set : ``Out(ParamWrite())``
        Only while ``idle``.
    start_gemm, start_alu : ``Out(1)``
        Begin, with the parameters as they are after this cycle's ``set``. Only one of them and only
        while ``idle``.
    idle : ``In(1)``
        Nothing is running and all results are in the scratchpads; low from the cycle after a start.
    range_error : ``In(1)``
        A row beyond its scratchpad would have been used. Everything stands still, ``idle`` low,
        until reset.
    issue : ``In(1)``
        A row was issued that makes the array compute.
    """
    return wiring.Signature(
        {
            "set": Out(ParamWrite()),
            "start_gemm": Out(1),
            "start_alu": Out(1),
            "idle": In(1),
            "range_error": In(1),
            "issue": In(1),
        }
    )
