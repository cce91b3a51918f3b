"""Microprogram of GEMM and ALU: their outer loops around the engines' inner ones."""

from accelc.hw.sequential.microcode_control import begin
from accelc.isa.config import AccelConfig
from accelc.isa.spec import FIELDS, Opcode

_START_GEMM, _START_ALU = 1, 2


def _window(config: AccelConfig) -> str:
    if not config.window:
        return """
    window:
        j bad_field
        """
    return f"""
    window:
        get n_t
        j zero bad_field
        st gemm_n_t
        get first
        j zero bad_field
        st gemm_first
        st count_o
        get step
        j zero bad_field
        st gemm_step
        ld #{config.block_in}
        sub count_o
        jn carry bad_field              ; and the product below stays small
        ld #0
        st t0
    add_taps:
        ld t0
        add gemm_n_t
        st t0
        ld count_o
        sub #1
        st count_o
        jn zero add_taps
        ld t0
        st gemm_taps
        ld #{config.block_in}
        sub t0
        jn carry bad_field
        j counts
    """


def _gemm(config: AccelConfig) -> str:
    return f"""
    {begin(Opcode.GEMM)}
        ld word1
        and #2                          ; window, at its place in the engine's flags
        st flags
        st flags_now
        jn zero window
        ld #1
        st gemm_n_t
    counts:
        ld #1
        st gemm_one
        get n_o
        j zero next
        st count_o
        get n_k0
        j zero next
        st n_a
        get n_k1
        j zero next
        st n_b
        get n_k2
        j zero next
        st gemm_n_k
        get n_y
        j zero next
        st gemm_n_y
        get n_x
        j zero next
        st gemm_n_x
        get inp
        st start_inp
        st line_inp
        st t0
        get wgt
        st start_wgt
        st line_wgt
        st t1
        get acc
        st acc_row
        getraw inp_o
        then inp_k0
        then inp_k1
        then inp_k2
        st gemm_inp_k
        getraw inp_y
        st gemm_inp_y
        getraw inp_x
        st gemm_inp_x
        getraw inp_t
        st gemm_inp_t
        getraw wgt_o
        then wgt_k0
        then wgt_k1
        then wgt_k2
        st gemm_wgt_k
        getraw acc_o
        then acc_y
        st gemm_acc_y
        getraw acc_x
        st gemm_acc_x

        ; The engine's loop is the innermost that runs more than once.
        ld gemm_n_k
        sub #1
        jn zero loops_known
        ld n_b
        st gemm_n_k
        ld kept_inp_k1
        st gemm_inp_k
        ld kept_wgt_k1
        st gemm_wgt_k
        ld #1
        st n_b
        ld gemm_n_k
        sub #1
        jn zero loops_known
        ld n_a
        st gemm_n_k
        ld kept_inp_k0
        st gemm_inp_k
        ld kept_wgt_k0
        st gemm_wgt_k
        ld #1
        st n_a
    loops_known:
        ld n_a
        st count_a
        ld n_b
        st count_b
        ld word1
        and #1
        jn zero start_gemm              ; accumulate
        ld flags
        add #1
        st flags_now
        j start_gemm

    next_gemm:                          ; at inp t0, wgt t1, acc acc_row
        call await
    start_gemm:
        ld t0
        st gemm_inp
        ld t1
        st gemm_wgt
        ld acc_row
        st gemm_acc
        ld flags_now
        st gemm_flags
        ld #{_START_GEMM}
        st compute

        ; Meanwhile, where the next one is.
        ld flags
        st flags_now
        ld count_b
        sub #1
        st count_b
        j zero end_b
        ld gemm_inp
        add kept_inp_k1
        st t0
        ld gemm_wgt
        add kept_wgt_k1
        st t1
        j next_gemm
    end_b:
        ld n_b
        st count_b
        ld count_a
        sub #1
        st count_a
        j zero end_a
        ld line_inp
        add kept_inp_k0
        st line_inp
        st t0
        ld line_wgt
        add kept_wgt_k0
        st line_wgt
        st t1
        j next_gemm
    end_a:
        ld n_a
        st count_a
        ld count_o
        sub #1
        st count_o
        j zero next
        ld start_inp
        add kept_inp_o
        st start_inp
        st line_inp
        st t0
        ld start_wgt
        add kept_wgt_o
        st start_wgt
        st line_wgt
        st t1
        ld acc_row
        add kept_acc_o
        st acc_row
        ld word1
        and #1
        jn zero next_gemm
        ld flags
        add #1
        st flags_now
        j next_gemm

    {_window(config)}
    """


def _word(name: str) -> str:
    """The word of ALU that is just this field."""
    (offset,) = (spec.offset for spec in FIELDS[Opcode.ALU] if spec.name == name)
    return f"word{offset // 16}"


def _alu() -> str:
    return f"""
    {begin(Opcode.ALU)}
        ld word1
        and #0b1100                     ; no add stage, no table
        jn zero bad_field
        get n_ky
        j zero bad_field
        st alu_n_ky
        get n_kx
        j zero bad_field
        st alu_n_kx
        ld word1
        and #1
        jn zero source_known
        ld word1
        and #2
        j zero bad_field                ; accumulators are scaled, and have no window
        ld alu_n_kx
        add alu_n_ky
        sub #2
        jn zero bad_field
    source_known:
        get n0
        j zero next
        st count
        get n1
        j zero next
        st alu_n_1
        get n2
        j zero next
        st alu_n_2
        ldh word1                       ; a_inside to bit 2
        ext 2 #0
        and #0b100
        st t0
        ld word1
        and #0b11
        add t0
        st alu_flags
        getraw a_zero
        st alu_a_zero
        getraw a_min
        st alu_a_min
        getraw a_max
        st alu_a_max
        get src
        st alu_src
        get dst
        st alu_dst
        get prm
        st alu_prm
        get prm_0
        st prm_0
        get src_1
        st alu_src_1
        get src_2
        st alu_src_2
        get src_ky
        st alu_src_ky
        get src_kx
        st alu_src_kx
        get dst_1
        st alu_dst_1
        get dst_2
        st alu_dst_2
    start_alu:
        ld #{_START_ALU}
        st compute
        ld count
        sub #1
        st count
        j zero next
        call await
        ld alu_src                      ; as it was written last
        add {_word("src_0")}
        st alu_src
        ld alu_dst
        add {_word("dst_0")}
        st alu_dst
        ld alu_prm
        add prm_0
        st alu_prm
        j start_alu
    """


def compute_text(config: AccelConfig) -> str:
    """GEMM and ALU."""
    return _gemm(config) + _alu()
