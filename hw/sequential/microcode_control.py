"""Microprogram: idling, fetching, tokens, counters, errors."""

from accelc.hw.sequential.words import (
    BUSY_WORD,
    MOMENT_CYCLES,
    NOWHERE_WORD,
    ZEROED_WORDS,
    Command,
    Control,
    Status,
)
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.registers import REGISTERS, Access, ErrorCode
from accelc.isa.spec import FIELDS, HEADER_BITS, INSTRUCTIONS, Opcode, Unit

#: Number of the fetch unit in ``error_info``.
_FETCH_UNIT = 4
#: Before the first instruction: the accounts of this unit lie where nobody looks.
_NO_UNIT = 4
#: Words zeroed at a time.
_ZEROED_TOGETHER = 4


def used_words(opcode: Opcode) -> tuple[int, int]:
    """Words of an instruction that are not all reserved; bits used of the last, 0 for all."""
    bits = max((HEADER_BITS, *(spec.offset + spec.bits for spec in FIELDS[opcode])))
    return -(-bits // 16), bits % 16


def begin(opcode: Opcode) -> str:
    """The start of an instruction's code: no reserved bit is set, its tokens are there."""
    unit = INSTRUCTIONS[opcode].unit
    own = 0xF if unit is None else 1 << unit
    words, rest = used_words(opcode)
    last = f"ldh word{words - 1}\n ext {rest} #0\n jn zero illegal" if rest else ""
    tokens = (
        ""
        if unit is None
        else f"""
        ld #{4 * (unit + 1)}
        st unit_index
        ld #{unit:d}
        st unit
        call take_tokens
    """
    )
    return f"""
    .fields {opcode.name}
    {opcode.name.lower()}:
        ld #{words}                     ; every word behind the last used one is zero
        j tail illegal
        ld word0
        and #{0xF000 | own << 4 | own << 8:#x}      ; reserved, and the own unit's tokens
        jn zero illegal
        {last}
        {tokens}
    """


def _resets() -> str:
    """Parameters take their reset values."""
    places: dict[int, list[str]] = {}
    for register in REGISTERS:
        if register.access is Access.READ_WRITE:
            for half in range(2):
                value = register.reset >> 16 * half & 0xFFFF
                places.setdefault(value, []).append(f"st {register.name}+{half}")
    return "\n".join(f"ld #{value}\n" + "\n".join(words) for value, words in places.items())


def _start(config: AccelConfig) -> str:
    low, high = ZEROED_WORDS
    zeroed = low.start
    return f"""
    reset:
        {_resets()}
    clear:
        ld #0
        st error
        st error_info
        st error_info+1
        st status
        ld #{Control.TAKE_START | Control.TAKE_ABORT | Control.RESET_ENGINES:d}
        st control
    idle:
        j abort clear
        jn start idle

        ld #0
        st error
        st error_info
        st error_info+1
        st before                       ; the timer starts with the status
        st signals
        ld #{_NO_UNIT}
        st unit
        ld #{NOWHERE_WORD ^ BUSY_WORD:#x}
        st unit_index
        ld #{Status.BUSY:d}
        st status
        ld #{Control.TAKE_START | Control.RESET_ENGINES:d}
        st control

        ld #{high.stop - zeroed - _ZEROED_TOGETHER:#x}
    zero_words:                         ; counters and tokens
        st k
        st index
        ld #0
        st cycles^x
        st cycles+1^x
        st cycles+2^x
        st cycles+3^x
        ld k
        sub #{high.start - zeroed:#x}
        jn zero zero_next
        ld #{low.stop - zeroed:#x}
        j zero_low
    zero_next:
        ld k
    zero_low:
        sub #{_ZEROED_TOGETHER}
        j carry zero_words

        ld program_length
        st left
        ld program_length+1
        st left+1
        ld memory_base
        and #{config.bus_bytes - 1}
        jn zero program_fault
        ld program_address
        and #{config.bus_bytes - 1}
        jn zero program_fault
        ldh #0                          ; t1:t0 = bytes of the program
        ext 10 program_length
        st t0
        ext 10 program_length+1
        st t1
        ext 10 #0
        jn zero program_fault
        ld t0                           ; t1:t0 = its end
        add program_address
        st t0
        ld t1
        adc program_address+1
        st t1
        j carry program_fault
        ld memory_bytes
        sub t0
        ld memory_bytes+1
        sbc t1
        jn carry program_fault
        ld memory_base                  ; memory_end: first bus address behind the memory
        add memory_bytes
        st memory_end
        ld memory_base+1
        adc memory_bytes+1
        st memory_end+1
        jn carry end_known
        ld #0xFFFF                      ; or the last there is
        st memory_end
        st memory_end+1
    end_known:
        ld memory_base                  ; pc: one instruction before the first
        add program_address
        st t0
        ld memory_base+1
        adc program_address+1
        st t1
        ld t0
        sub #{INSTRUCTION_BYTES}
        st pc
        ld t1
        sbc #0
        st pc+1
        stt now
        j fetch


    """


def _next() -> str:
    signals = "\n".join(
        f"""
        ld signals
        and #{1 << other}
        j zero signalled_{other:d}
        ld tokens+{other:d}^x
        add #1
        st tokens+{other:d}^x
    signalled_{other:d}:
        """
        for other in Unit
    )
    return f"""
    ; An instruction is done: ask for the next, and do the accounts while it comes.
    next:
        stt now
        ld unit
        st retire
    fetch:
        j abort aborted
        ld left
        j zero left_low_zero
    some_left:
        ld pc                           ; writing it sets the mover's address
        add #{INSTRUCTION_BYTES}
        st pc
        ld pc+1
        adc #0
        st pc+1
        ld #0
        st scratch
        ld #BEATS_OF_INSTRUCTION
        st beats
        ld #{Command.FETCH:d}
        st move
        ld unit
        add unit
        st index
        ld #&accounted
        st back
        ld retired^x
        add #1
        st retired^x
        jn carry account_now
        ld retired+1^x
        add #1
        st retired+1^x
        j account_now
    accounted:                          ; the index is the unit's of account
        ld read_bytes
        add #{INSTRUCTION_BYTES}
        st read_bytes
        j carry read_bytes_carry
    read_bytes_done:
        ld signals
        j zero fetching
        {signals}
    fetching:
        call await_mover
    fetched:
        j response_fault program_refused
        ld word0
        and #0xF
        sub #1
        j zero load
        sub #1
        j zero gemm
        sub #1
        j zero alu
        sub #1
        j zero store
        sub #1
        j zero finish
    illegal:
        ld #{ErrorCode.ILLEGAL_INSTRUCTION:d}
        j fetch_fault

    {begin(Opcode.FINISH)}
        ld #&finished
        st back
        j account
    finished:
        ld #{Status.DONE:d}
        st status
        j idle

    read_bytes_carry:
        ld read_bytes+1
        add #1
        st read_bytes+1
        j read_bytes_done
    left_low_zero:
        ld left+1
        jn zero some_left
        ld #{ErrorCode.MISSING_FINISH:d}
        j fetch_fault

    ; Cycles since the last time go to the run's and the unit's counters; to back.
    account:
        stt now
    account_now:
        ld unit_index
        st index
        ld now
        sub before
        st delta
        ld now
        st before
        ld cycles
        add delta
        st cycles
        j carry cycles_carry
    cycles_done:
        ld busy_cycles^x
        add delta
        st busy_cycles^x
        j carry busy_carry
    busy_done:
        ld back
        ret
    cycles_carry:
        ld cycles+1
        add #1
        st cycles+1
        j cycles_done
    busy_carry:
        ld busy_cycles+1^x
        add #1
        st busy_cycles+1^x
        j busy_done
    """


def _tokens() -> str:
    waits = "\n".join(
        f"""
        ld t0
        and #{1 << other}
        j zero taken_{other:d}
        ld tokens+{4 * (other + 1)}^x
        j zero starved
        sub #1
        st tokens+{4 * (other + 1)}^x
    taken_{other:d}:
        """
        for other in Unit
    )
    return f"""
    ; The instruction is sound and begins: its unit takes the tokens; to link.
    take_tokens:
        ld unit
        st index
        ld left
        sub #1
        st left
        jn carry left_borrow
    left_done:
        ldh word0
        ext 8 #0
        st signals
        ldh word0
        ext 4 #0
        and #0xF
        j zero begins
        st t0
        {waits}
    begins:
        ld unit
        st begin
        ld link
        ret
    left_borrow:
        ld left+1
        sub #1
        st left+1
        j left_done
    starved:                            ; in program order the token can not come any more
        ld #{ErrorCode.WATCHDOG:d}
        j unit_fault
    """


def _waits() -> str:
    return f"""
    ; Until the mover is idle; to link.
    await_mover:
        jn moving arrived
        jn moment await_mover
        ld #{Control.TAKE_MOMENT:d}
        st control
        j abort aborted
        ld #&watch
        st back
        j account
    watch:
        j progress watch_progress
        ld watchdog_cycles
        jn zero watch_armed
        ld watchdog_cycles+1
        j zero await_mover
    watch_armed:
        ld patience
        sub #{MOMENT_CYCLES}
        st patience
        ld patience+1
        sbc #0
        st patience+1
        j carry await_mover
        ld link
        sub #&fetched
        j zero fetch_starved
        j starved
    fetch_starved:
        ld #{ErrorCode.WATCHDOG:d}
        j fetch_fault
    watch_progress:
        ld #{Control.TAKE_PROGRESS:d}
        st control
        ld watchdog_cycles              ; a moment may come at once
        add #{MOMENT_CYCLES}
        st patience
        ld watchdog_cycles+1
        adc #0
        st patience+1
        jn carry await_mover
        ld #0xFFFF
        st patience+1
        j await_mover

    ; Until the engines are idle; to link.
    await_engines:
        j compute_idle arrived
        jn moment await_engines
        ld #{Control.TAKE_MOMENT:d}
        st control
        j abort aborted
        j compute_fault beyond_rows
        ld #&await_engines
        st back
        j account

    arrived:
        ld link
        ret
    """


def _faults() -> str:
    return f"""
    program_fault:
        ld #{ErrorCode.ADDRESS_OUT_OF_RANGE:d}
        j fetch_fault
    program_refused:
        ld #{ErrorCode.READ_RESPONSE:d}
        j fetch_fault
    refused:
        ld bytes_index
        jn zero refused_write
        ld #{ErrorCode.READ_RESPONSE:d}
        j unit_fault
    refused_write:
        ld #{ErrorCode.WRITE_RESPONSE:d}
        j unit_fault
    beyond_memory:
        ld #{ErrorCode.ADDRESS_OUT_OF_RANGE:d}
        j unit_fault
    beyond_rows:
        ld #{ErrorCode.ROW_OUT_OF_RANGE:d}
        j unit_fault
    bad_field:
        ld #{ErrorCode.ILLEGAL_FIELD:d}
        j unit_fault

    ; The error in A is the fetch unit's, or the unit's whose instruction it is.
    fetch_fault:
        st error
        ld #{_FETCH_UNIT << 8}
        st t1
        j fault
    unit_fault:
        st error
        ldh #0
        ext 8 unit
        st t1
    fault:
        ld program_length
        sub left
        st error_info
        ld program_length+1
        sbc left+1
        and #0xFF
        add t1
        st error_info+1
        ld #&failed
        st back
        j account
    failed:
        ld #{Status.BUSY | Status.ERROR:d}
        st status
        ld #{Control.STOP_MOVER:d}
        st control
    fault_drain:
        j moving fault_drain
        ld #{Control.RESET_ENGINES:d}
        st control
        ld #{Status.ERROR:d}
        st status
        j idle

    aborted:
        ld #{Control.STOP_MOVER:d}
        st control
    abort_drain:
        j moving abort_drain
        j clear
    """


def control_text(config: AccelConfig) -> str:
    """From reset to the first instruction, from one to the next, and what they share."""
    return "".join((_start(config), _next(), _tokens(), _waits(), _faults()))
