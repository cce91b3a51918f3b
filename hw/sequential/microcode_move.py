"""Microprogram of LOAD and STORE."""

from amaranth.utils import exact_log2

from accelc.hw.layouts import row_beats_log2
from accelc.hw.sequential.microcode_control import begin
from accelc.hw.sequential.words import Command
from accelc.isa.config import AccelConfig
from accelc.isa.spec import Buffer, Opcode

#: Fields of LOAD and STORE in the order they have in both.
_FIELDS = "dram.lo dram.hi n0 n1 n2 stride1.lo stride1.hi stride2.lo stride2.hi"


def _scaled(names: str, shift: int) -> str:
    """Rows become beats."""
    return "\n".join(
        f"""
        ldh #0
        ext {16 - shift} {name}
        st {name}
        """
        for name in names.split()
        if shift
    )


def _fits(name: str) -> str:
    return f"""
        ld depth
        sub {name}
        jn carry beyond_rows
    """


def _then(fields: str) -> str:
    return "\n".join(f"then {name}" for name in fields.split())


def _load(config: AccelConfig) -> str:
    log2 = {buffer: row_beats_log2(config, buffer) for buffer in Buffer}
    fills = "first middle last"
    # What the mover can count it checks itself; a product could be too large for it.
    scaled = log2[Buffer.INP] or log2[Buffer.VIN]
    pads_fit = "".join(_fits(name) for name in fills.split()) if scaled else ""
    return f"""
    {begin(Opcode.LOAD)}
        ld #0
        st first
        st middle
        st last
        ld word1
        and #7
        st buffer
        sub #{Buffer.LUT:d}
        j carry bad_field
        ld buffer
        st index
        ldh word0
        ext 11 word1                    ; pad_value lies in the upper byte
        and #0xFF00
        add buffer
        st command
        add #{Command.FILL:d}
        st fill_command
        ld depths^x
        st depth
        ld #12                          ; is there any padding?
        ldh word11
        j tail padded                   ; of the number, not of word 11
        ext 11 #0
        jn zero padded
        getraw row
        {_then(_FIELDS)}
        st kept_stride2+1
        ld kept_n0
        j zero next
        ld kept_n1
        j zero next
        ld kept_n2
        j zero next
    runs_fit:
        {_fits("kept_n0")}
    to_beats:
        {_fits("kept_row")}
        ld buffer
        j zero {"move_rows" if not log2[Buffer.INP] else "inp_to_beats"}
        sub #1
        j zero wgt_to_beats
        sub #1
        j zero prm_to_beats
        {_scaled(f"kept_row kept_n0 {fills}", log2[Buffer.VIN])}
        j move_rows
    inp_to_beats:
        {_scaled(f"kept_row kept_n0 {fills}", log2[Buffer.INP])}
        j move_rows
    wgt_to_beats:
        {_scaled("kept_row kept_n0", log2[Buffer.WGT])}
        j move_rows
    prm_to_beats:
        {_scaled("kept_row kept_n0", log2[Buffer.PRM])}
        j move_rows

    padded:                             ; first, middle, last: rows filled before, between, behind
        ld buffer
        j zero can_pad
        sub #{Buffer.VIN:d}
        jn zero bad_field
    can_pad:
        getraw row
        {_then(_FIELDS)}
        {_then("pad_top pad_bottom pad_left pad_right")}
        ; the right padding is in A
        st middle
        add kept_pad_bottom
        st last
        j carry beyond_rows
        ld middle
        add kept_pad_left
        st middle
        j carry beyond_rows
        ld kept_pad_top
        add kept_pad_left
        st first
        j carry beyond_rows
        {pads_fit}
        ld kept_n2
        j zero fills_only
        ld kept_n1
        jn zero runs_fit
        st kept_n0                      ; no runs, no data
        j to_beats
    fills_only:
        st kept_n0
        ld kept_pad_top
        add kept_pad_bottom
        st first
        j carry beyond_rows
        j to_beats
    """


def _store(config: AccelConfig) -> str:
    return f"""
    {begin(Opcode.STORE)}
        ld #{Command.WRITE:d}
        st command
        ld #0
        st first
        st middle
        st last
        ldh word1                       ; row
        ext 0 word2
        {_then(_FIELDS)}
        st kept_stride2+1
        ld kept_n0
        j zero next
        ld kept_n1
        j zero next
        ld kept_n2
        j zero next
        ld #{config.out_rows - 1}
        sub kept_row
        jn carry beyond_rows
        ld #{config.out_rows}
        sub kept_n0
        jn carry beyond_rows
        {_scaled("kept_row kept_n0", exact_log2(config.vec_row_bytes // config.bus_bytes))}
        j move_rows
    """


def _move(config: AccelConfig) -> str:
    align = config.bus_bytes - 1
    return f"""
    ; Planes of runs of n0 beats, filling between them. n0 is 0 if there are no data.
    move_rows:
        ld kept_row
        st scratch
        ld kept_n0
        j zero no_data
        ld middle                       ; one run a plane and nothing between: a plane of runs
        jn zero planes_known
        ld kept_n1
        sub #1
        jn zero planes_known
        ld kept_n2
        st kept_n1
        ld kept_stride2
        st kept_stride1
        ld kept_stride2+1
        st kept_stride1+1
        ld #1
        st kept_n2
    planes_known:
        ldh #0
        ext {16 - exact_log2(config.bus_bytes)} kept_n0
        st run_bytes
        ld kept_dram
        and #{align}
        jn zero beyond_memory
        ld kept_dram
        add memory_base
        st address_low
        ld kept_dram+1
        adc memory_base+1
        st address_high
        j carry beyond_memory
        ld memory_end
        sub run_bytes
        st limit_low
        ld memory_end+1
        sbc #0
        st limit_high
        jn carry beyond_memory
        ld kept_n1
        sub #1
        st kept_n1
        j zero run_known
        ld kept_stride1
        and #{align}
        jn zero beyond_memory
        ld kept_stride1
        sub run_bytes
        st stride_low
        ld kept_stride1+1
        sbc #0
        st stride_high
    run_known:
        ld kept_n2
        sub #1
        j zero no_data
        ld kept_stride2
        and #{align}
        jn zero beyond_memory
    no_data:
        ld first
        j fill

    plane:
        ld kept_n2
        j zero next
        ld kept_n0
        j zero plane_moved
        sub #1
        st beats
        ld kept_n1
        st runs
        ld command
        st move
        call await
        j limit_fault beyond_memory
        j row_fault beyond_rows
        j response_fault refused
    plane_moved:
        ld kept_n2
        sub #1
        st kept_n2
        j zero last_fill
        ld kept_n0
        j zero middle_fill
        ld address_low                  ; still that of the plane before
        add kept_stride2
        st address_low
        ld address_high
        adc kept_stride2+1
        st address_high
        j carry beyond_memory
    middle_fill:
        ld middle
        j fill
    last_fill:
        ld last
    fill:                               ; as many beats as A says
        j zero plane
        sub #1
        st beats
        ld fill_command
        st move
        nop
    filling:
        j working filling
        j row_fault beyond_rows
        j plane
    """


def move_text(config: AccelConfig) -> str:
    """LOAD, STORE, and what moves the rows of both."""
    return "".join((_load(config), _store(config), _move(config)))
