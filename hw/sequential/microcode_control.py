"""Microprogram: idling, fetching, tokens, counters, errors."""

from accelc.hw.sequential.words import (
    MOMENT_CYCLES,
    NO_UNIT,
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
#: From READ_BYTES to WRITE_BYTES in words, and how far STORE's unit_index lies above it.
_WRITE_INDEX = 4
_STORE_SHIFT = 2
#: Words zeroed at a time.
_ZEROED_TOGETHER = 4


def used_words(opcode: Opcode) -> tuple[int, int]:
    """Words of an instruction that are not all reserved; bits used of the last, 0 for all."""
    bits = max((HEADER_BITS, *(spec.offset + spec.bits for spec in FIELDS[opcode])))
    return -(-bits // 16), bits % 16


def begin(opcode: Opcode) -> str:
    """The start of an instruction's code: no reserved bit is set; whose it is, its tokens."""
    unit = INSTRUCTIONS[opcode].unit
    own = 0xF if unit is None else 1 << unit
    words, rest = used_words(opcode)
    last = f"ldh word{words - 1}\n ext {rest} #0\n jn zero illegal" if rest else ""
    unit_begins = (
        ""
        if unit is None
        else f"""
        ld #{4 * (unit + 1)}
        st unit_index
        ld #{unit:d}
        st unit
        ldh word0
        ext 4 #0
        add #0x100                      ; that something is due
        st due
    """
    )
    return f"""
    .fields {opcode.name}
    {opcode.name.lower()}:
        ld #{words}                     ; every word behind the last used one is zero
        ld word0
        j tail illegal                  ; of the number, not of word 0
        and #{0xF000 | own << 4 | own << 8:#x}      ; reserved, and the own unit's tokens
        jn zero illegal
        {last}
        {unit_begins}
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
    taken = Control.TAKE_START | Control.TAKE_MOMENT | Control.TAKE_PROGRESS
    taken |= Control.RESET_ENGINES
    return f"""
    reset:
        {_resets()}
    clear:
        ld #0
        st error
        st error_info
        st error_info+1
        st status
        ld #{Control.TAKE_ABORT | Control.RESET_ENGINES:d}
        st control
        nop
        nop
    idle:
        j abort clear
        jn start idle

        ld #0
        st error
        st error_info
        st error_info+1
        st before                       ; time starts with the status
        st due
        ld #{NO_UNIT:#x}
        st unit_index
        ld #{Status.BUSY:d}
        st status
        ld #{taken:d}
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
        stb traffic_before
        j next
    """


def _next() -> str:
    return f"""
    ; What is left of an instruction needs neither its words nor the mover: ask for the next.
    next:
        j abort aborted
        ld left
        j zero left_low_zero
        sub #1
    count_left:
        st left
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

        ld #&fetched
        st link
        j await
    fetched:                            ; and the instruction before is done
        stt now
        stb traffic
        ld unit_index
        st retire
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
    left_low_zero:
        ld left+1
        j zero missing
        sub #1
        st left+1
        ld #0xFFFF
        j count_left

    {begin(Opcode.FINISH)}
        ld #&finished
        st back
        j account_done
    finished:
        ld #{Status.DONE:d}
        st status
        j idle

    ; Accounts of the instruction done last, which now and traffic belong to; to back.
    account_done:
        ldh retire                      ; 2 * unit
        ext 1 #0
        sub #2
        st index
        ld read_bytes
        add #{INSTRUCTION_BYTES}
        st read_bytes
        ld read_bytes+1
        adc #0
        st read_bytes+1
        ld retired^x
        add #1
        st retired^x
        ld retired+1^x
        adc #0
        st retired+1^x
        ld traffic
        sub traffic_before
        j zero no_traffic
        st delta
        ld traffic
        st traffic_before
        ldh retire                      ; {4 * (Unit.STORE + 1)} of STORE: write_bytes
        ext {_STORE_SHIFT} #0
        and #{_WRITE_INDEX}
        st index
        ld delta
        add read_bytes^x
        st read_bytes^x
        ld read_bytes+1^x
        adc #0
        st read_bytes+1^x
    no_traffic:
        ld retire
        j account_to

    ; Cycles since the last time go to the run's and the unit's counters; to back.
    account:
        stt now
        ld unit_index
    account_to:
        st index
        ld now
        sub before
        st delta
        ld now
        st before
        ld cycles
        add delta
        st cycles
        ld cycles+1
        adc #0
        st cycles+1
        ld busy_cycles^x
        add delta
        st busy_cycles^x
        ld busy_cycles+1^x
        adc #0
        st busy_cycles+1^x
        ld back
        ret
    """


def _tokens() -> str:
    waits = "\n".join(
        f"""
        ld due
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
    signals = "\n".join(
        f"""
        ld due
        and #{16 << other}
        j zero signalled_{other:d}
        ld tokens+{other:d}^x
        add #1
        st tokens+{other:d}^x
    signalled_{other:d}:
        """
        for other in Unit
    )
    return f"""
    ; The instruction's tokens, and the accounts of the one before, while it is executed.
    exchange:
        ld due
        and #0xF
        j zero taken_{Unit.STORE:d}
        ld unit
        st index
        {waits}
        ld due
        and #0xF0
        j zero signalled_{Unit.STORE:d}
        ld unit_index
        st index
        {signals}
        ld #0
        st due
        ld #&waiting
        st back
        j account_done
    starved:                            ; in program order the token can not come any more
        ld #{ErrorCode.WATCHDOG:d}
        j unit_fault
    """


def _waits() -> str:
    return f"""
    ; Until mover and engines are idle; to link.
    await:
        ld due
        jn zero exchange
    waiting:
        jn working arrived
        jn moment waiting
        ld #{Control.TAKE_MOMENT:d}
        st control
        j abort aborted
        j compute_fault beyond_rows
        ld #&watch
        st back
        j account
    watch:
        j progress watch_progress
        ld watchdog_cycles
        jn zero watch_armed
        ld watchdog_cycles+1
        j zero waiting
    watch_armed:
        ld patience
        sub #{MOMENT_CYCLES}
        st patience
        ld patience+1
        sbc #0
        st patience+1
        j carry waiting
        ld link
        sub #&fetched
        jn zero starved
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
        jn carry waiting
        ld #0xFFFF
        st patience+1
        j waiting
    arrived:
        ld link
        ret
    """


def _faults() -> str:
    return f"""
    program_refused:
        ld #{ErrorCode.READ_RESPONSE:d}
        j fetch_fault
    refused:
        ld unit
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

    ; The error in A is that of the unit whose instruction it is, or of the fetch unit.
    unit_fault:
        st error
        ldh #0
        ext 8 unit
        st t1
        j fault
    program_fault:
        ld #{ErrorCode.ADDRESS_OUT_OF_RANGE:d}
        st error
        j fetch_unit
    missing:
        ld #{ErrorCode.MISSING_FINISH:d}
        st error
        j fetch_unit
    fetch_fault:                        ; the instruction does not count as fetched
        st error
        ld left
        add #1
        st left
        ld left+1
        adc #0
        st left+1
    fetch_unit:
        ld #{_FETCH_UNIT << 8}
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
        ld #&account_fault
        st back
        ld due
        jn zero account_done
    account_fault:
        ld #&failed
        st back
        j account
    failed:
        ld #{Status.BUSY | Status.ERROR:d}
        st status
        ld #{Control.STOP_MOVER | Control.RESET_ENGINES:d}
        st control
    fault_drain:
        j working fault_drain
        ld #{Status.ERROR:d}
        st status
        j idle

    aborted:
        ld #{Control.STOP_MOVER | Control.RESET_ENGINES:d}
        st control
    abort_drain:
        j working abort_drain
        j clear
    """


def control_text(config: AccelConfig) -> str:
    """From reset to the first instruction, from one to the next, and what they share."""
    return "".join((_start(config), _next(), _tokens(), _waits(), _faults()))
